# Shared by the scripts in ci/: paths, package installation, headings, timing.
# shellcheck shell=bash

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export TOP
SOFTRING=${SOFTRING:-$TOP/target/release/softring}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

note() {
    printf '%s\n' "$*" >&2
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
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null ||
        die "could not install ${missing[*]}; see apt-get's message above"
}

# The command that softring is driven with; built by `cargo build --release`.
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

# end_tagged TAG  ends every process whose environment has SOFTRING_CHECK=TAG: what a check that
# ran out of time has left behind, also in process groups of its own.
end_tagged() {
    local file pid
    while read -r file; do
        pid=${file#/proc/} pid=${pid%/environ}
        [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
    done < <(grep -lzxs "SOFTRING_CHECK=$1" /proc/[0-9]*/environ)
}

# True where this host lets us make a real ring.
kernel_has_uring() {
    python3 - <<'EOF'
import ctypes, sys
params = ctypes.create_string_buffer(120)
fd = ctypes.CDLL(None, use_errno=True).syscall(425, 1, params)
sys.exit(0 if fd >= 0 else 1)
EOF
}
