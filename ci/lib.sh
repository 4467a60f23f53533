# Shared by the scripts in ci/: paths, package installation, headings, timing.
# shellcheck shell=bash

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export TOP
SOFTRING=${SOFTRING:-$TOP/target/release/softring}
# The command that denies io_uring to a program.
DENY=${DENY:-$SOFTRING deny --}
# Seconds that one program may take: several times what the slowest needs on a busy machine.
LIMIT=${LIMIT:-120}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

note() {
    printf '%s\n' "$*" >&2
}

# argument OPTION [VALUE]  prints the value that an option needs.
argument() {
    [ -n "${2:-}" ] || die "$1 needs a value; see --help"
    printf '%s' "$2"
}

# shellcheck disable=SC2034  # what is read here is used by the scripts
# options ARG…  reads the common options of checks (--quick, --only WORD, --logs DIR, --help) into
# QUICK, ONLY and LOGS. The script's own `option` gets each other option with the words behind it;
# it sets TOOK to the number of words that it used, or fails.
options() {
    QUICK='' ONLY=() LOGS=''
    while [ $# -gt 0 ]; do
        TOOK=1
        case $1 in
            --quick) QUICK=1 ;;
            --only) ONLY+=("$(argument "${@:1:2}")") || exit; TOOK=2 ;;
            --logs) LOGS=$(argument "${@:1:2}") || exit; TOOK=2 ;;
            -h | --help) usage; exit 0 ;;
            *) option "$@" || { usage >&2; exit 2; } ;;
        esac
        shift $TOOK
    done
}

# wanted NAME  tells whether a row of this name is to run, by the words of --only.
wanted() {
    local word
    [ ${#ONLY[@]} -eq 0 ] && return 0
    for word in "${ONLY[@]}"; do [[ $1 == *"$word"* ]] && return 0; done
    return 1
}

# shellcheck disable=SC2034  # SAID is used by the scripts
# judge passes|found LOG PASSED FAILED  reads the log of `softring explore` or `crash explore`, of
# which no run or some runs are expected to fail. Sets FAILED, how many did, and SAID, what to say
# of it: of the expected failures PASSED if there were none, else FAILED. Counts in BAD what is
# wrong.
judge() {
    FAILED=$(sed -n 's/^[0-9]* runs (.*), \([0-9]*\) failed.*/\1/p' "$2")
    SAID=passes
    case $1/${FAILED:-none} in
        */none) SAID="FAILS: $(grep -v '^$' "$2" | tail -n 1)" BAD=$((BAD + 1)) ;;
        passes/0) ;;
        passes/*) SAID='FAILS' BAD=$((BAD + 1)) ;;
        found/0) SAID=$3 ;;
        found/*) SAID=$4 ;;
    esac
    FAILED=${FAILED:--}
}

# packed ARG…  reads the options of checks of packages, which need root: those of `options`, and
# --dist DIR into DIST, where ci/package.sh must have packed something.
packed() {
    DIST=$TOP/dist/out
    option() {
        case $1 in
            --dist) DIST=$(realpath "$(argument "${@:1:2}")") || exit; TOOK=2 ;;
            *) return 1 ;;
        esac
    }
    options "$@"
    [ "$(id -u)" = 0 ] || die 'roots and containers can only be entered by root'
    [ -s "$DIST/SHA256SUMS" ] || die "nothing is packed in $DIST; run 'make dist'"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# need COMMAND:PACKAGE…  installs the Debian package of every command that is missing;
# a path in place of COMMAND stands for a file.
need() {
    local pair want package missing=()
    for pair in "$@"; do
        want=${pair%%:*} package=${pair#*:}
        case $want in
            /*) [ -e "$want" ] || missing+=("$package") ;;
            *) command -v "$want" >/dev/null || missing+=("$package") ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "missing: ${missing[*]}; this system has no apt-get, install them by hand"
    note "installing ${missing[*]}"
    # Two scripts may install at the same time; apt itself fails if another holds its lists.
    local lock
    exec {lock}>"${TMPDIR:-/tmp}/softring-install.$(id -u).lock" && flock "$lock"
    as_root apt-get -qq update {lock}>&-
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null {lock}>&- ||
        die "could not install ${missing[*]}; see apt-get's message above"
    exec {lock}>&-
}

# python_tools DIR PACKAGE…  installs PyPI's packages, which name their versions, into an
# environment in DIR, and puts their commands on the path.
python_tools() {
    local dir=$1
    shift
    if [ "$(cat "$dir/packages" 2>/dev/null)" != "$*" ]; then
        note "installing $* into $dir"
        python3 -m venv "$dir" ||
            die "python3 makes no environment; on Debian: apt-get install python3-venv"
        "$dir/bin/pip" install -q --disable-pip-version-check "$@" || die "pip could not install $*"
        printf '%s\n' "$*" >"$dir/packages"
    fi
    PATH=$dir/bin:$PATH
}

# debian_root SUITE DIR [OPTION]…  unpacks Debian's suite into DIR: the essential packages, and
# those that mmdebstrap's options name. The root is made once, and kept in the target directory.
debian_root() {
    local roots=${CARGO_TARGET_DIR:-$TOP/target}/roots file
    file=$roots/$(printf '%s' "$1${*:3}" | tr -c 'a-zA-Z0-9.' '_').tar
    if [ ! -s "$file" ]; then
        need mmdebstrap:mmdebstrap
        mkdir -p "$roots"
        note "making a root of Debian's $1 ${*:3}"
        as_root mmdebstrap --quiet --mode=root --format=tar --variant=essential "${@:3}" \
            "$1" "$file.part" http://deb.debian.org/debian ||
            die "mmdebstrap could not make a root of $1"
        mv "$file.part" "$file"
    fi
    mkdir -p "$2"
    tar -C "$2" --exclude='./dev/*' -xf "$file"
}

# inside DIR COMMAND…  runs a command in a root of its own, with /proc and the devices.
inside() {
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare --mount --pid --fork sh -c '
        mkdir -p "$0/proc" "$0/dev" && mount -t proc proc "$0/proc" &&
        mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$@"
}

# podman_config  prints a containers.conf(5) with which Podman runs here: limits that a machine
# denies to its root, and cgroups of two versions at once, stop crun and its defaults.
podman_config() {
    cat <<EOF
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=2000:2000"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
EOF
}

# Checks that the command of softring is there, which `cargo build --release` builds.
need_softring() {
    [ -x "$SOFTRING" ] ||
        die "$SOFTRING is not there; run 'cargo build --release' first, or set SOFTRING=PATH"
}

# scratch NAME  makes a private directory that is removed when the script ends.
scratch() {
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/softring-$1.XXXXXX")
    trap 'chmod -R u+rwX "$SCRATCH" 2>/dev/null; rm -rf "$SCRATCH"' EXIT
    trap 'exit 130' INT TERM
}

# keep_logs  makes the directory that --logs names, or one that goes with the scratch directory.
keep_logs() {
    LOGS=${LOGS:-$SCRATCH/logs}
    mkdir -p "$LOGS" || exit 2
    LOGS=$(cd "$LOGS" && pwd)
}

# end_tagged TAG  ends every process whose environment has SOFTRING_CHECK=TAG: those that a check
# left behind when its time ran out, also in process groups of their own.
end_tagged() {
    local pid
    for pid in $(tagged "SOFTRING_CHECK=$1"); do
        [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
    done
}

# tagged NAME=VALUE  prints the ids of the processes that have this in their environment.
tagged() {
    grep -lzxFs "$1" /proc/[0-9]*/environ | tr -dc '0-9\n'
}

# fetch_source PACKAGE VERSION  unpacks Debian's source package of that version into SOURCE. The
# source lines are derived from the binary ones that apt already has, so that mirrors, proxies and
# credentials stay as the machine's owner has set them.
fetch_source() {
    local apt=$SCRATCH/apt version
    note "fetching $1 $2"
    mkdir -p "$apt/lists/partial"
    # shellcheck disable=SC2016  # apt-get fills these in
    apt-get indextargets 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
        --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' | sort -u >"$apt/plain.list"
    [ -s "$apt/plain.list" ] ||
        die "apt knows no Debian archive; add one and run 'apt-get update', or use --source"
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    if [ -e $keyring ]; then
        sed "s,^deb-src ,deb-src [signed-by=$keyring] ," "$apt/plain.list" >"$apt/sources.list"
    else
        cp "$apt/plain.list" "$apt/sources.list"
    fi
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list"
        -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o "APT::Sandbox::User=")
    apt-get "${options[@]}" update || die "apt-get update of the source lists failed"
    version=$(apt-cache "${options[@]}" showsrc "$1" | awk '$1 == "Version:" { print $2 }' |
        grep -m1 -F "$2-") ||
        die "no $1 $2 source in this machine's Debian suites (it is in Debian 12)"
    (cd "$SOURCE" && apt-get "${options[@]}" source "$1=$version") >/dev/null ||
        die "apt-get source $1=$version failed"
}

# build_kinds TREE COMMAND KIND…  copies SOURCE/TREE to SOURCE/KIND, and has COMMAND build each: it
# runs inside the copy, with the kind as its argument. An earlier build stays.
build_kinds() {
    local tree=$1 command=$2 kind
    [ $# -gt 2 ] || die "nothing to build of $tree: no kind was named"
    for kind in "${@:3}"; do
        [ -e "$SOURCE/$kind/built" ] && continue
        rm -rf "${SOURCE:?}/$kind"
        cp -r "$SOURCE/$tree" "$SOURCE/$kind"
        (cd "$SOURCE/$kind" && "$command" "$kind") >"$SOURCE/$kind/build.log" 2>&1 ||
            die "$tree ($kind) did not build; see $SOURCE/$kind/build.log"
        : >"$SOURCE/$kind/built"
    done
}

# Succeeds if this host lets us make a real ring.
kernel_has_uring() {
    python3 - <<'EOF'
import ctypes, sys
params = ctypes.create_string_buffer(120)
fd = ctypes.CDLL(None, use_errno=True).syscall(425, 1, params)
sys.exit(0 if fd >= 0 else 1)
EOF
}
