#!/usr/bin/env bash
# Checks that `make dist` makes the same files each time, and that they work where docs/INSTALL.md
# says: the .deb in a clean Debian 12 root (installed, run, upgraded, removed), the .rpm's files,
# the tarball in Debian 11's root and in one with musl only, the command alone in roots that have
# nothing else of softring, or nothing at all, and cannot be written to. Needs root rights.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/dist.sh [--quick] [--twice] [--from DIR] [--out DIR]
  --quick     build with little optimisation, and pack twice; without --quick, build the source
              a second time in another folder, and compare the bytes
  --twice     build the source a second time with --quick, too
  --from DIR  use the files that ci/build.sh built in DIR
  --out DIR   keep the packages in DIR
EOF
}

FROM='' TWICE='' KEPT=''
option() {
    case $1 in
        --twice) TWICE=1 ;;
        --out) KEPT=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        --from) FROM=$(realpath "$(argument "${@:1:2}")") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"
[ "$(id -u)" = 0 ] || die "roots can only be entered by root"
need mmdebstrap:mmdebstrap rpm:rpm musl-gcc:musl-tools cc:gcc python3:python3
BUILD=${CARGO_TARGET_DIR:-$TOP/target}
scratch dist
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$TOP" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

[ -n "$QUICK" ] || TWICE=1
profile=release
[ -z "$QUICK" ] || profile=quick
if [ -z "$FROM" ]; then
    "$TOP/ci/build.sh" --profile $profile
    FROM=$BUILD/built
fi
"$TOP/ci/package.sh" --from "$FROM" --out "$SCRATCH/first"

# same_bytes WHAT DIR DIR  checks that both have the same files.
same_bytes() {
    diff "$2/SHA256SUMS" "$3/SHA256SUMS" || die "$1 did not give the same bytes"
    echo "$1: the same bytes"
}

again() {
    local copy=$SCRATCH/another/place
    mkdir -p "$copy" "$SCRATCH/cargo"
    git -C "$TOP" archive HEAD | tar -C "$copy" -x
    # Cargo gets another home, with the same crates.
    cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry "$SCRATCH/cargo/"
    cp "${CARGO_HOME:-$HOME/.cargo}"/config* "$SCRATCH/cargo/" 2>/dev/null || true
    (
        unset CARGO_TARGET_DIR
        export CARGO_HOME=$SCRATCH/cargo
        "$copy/ci/build.sh" --profile $profile
        "$copy/ci/package.sh" --from "$copy/target/built" --out "$SCRATCH/second"
    )
}

# Packs again later, with another umask and language, from another folder.
(sleep 1 && umask 077 && cd / && LC_ALL=C.UTF-8 TZ=Asia/Tokyo \
    "$TOP/ci/package.sh" --from "$FROM" --out "$SCRATCH/repacked")
same_bytes 'packed twice' "$SCRATCH/first" "$SCRATCH/repacked"
if [ -n "$TWICE" ]; then
    git -C "$TOP" diff --quiet HEAD || die "commit first: the second build is of the last commit"
    again
    same_bytes 'built twice' "$SCRATCH/first" "$SCRATCH/second"
fi
FILES=$SCRATCH/first
(cd "$FILES" && sha256sum --quiet -c SHA256SUMS)
[ -z "$KEPT" ] || { rm -rf "$KEPT" && cp -r "$FILES" "$KEPT"; }

# says WHAT PATTERN COMMAND…  checks that the command succeeds, and that a line of its output
# matches.
says() {
    local out
    out=$("${@:3}" 2>&1) || die "$1: failed ($?): $out"
    grep -qE -- "$2" <<<"$out" || die "$1: does not say '$2': $out"
    echo "$1: works"
}

# fails WHAT PATTERN COMMAND…  checks that the command fails, and that a line of its output matches.
fails() {
    local out
    ! out=$("${@:3}" 2>&1) || die "$1: did not fail: $out"
    grep -qE -- "$2" <<<"$out" || die "$1: fails without the words '$2': $out"
    echo "$1: fails, and says why"
}

# ring ROOT  puts a program that needs a ring, and a file for it to read, into a root.
ring() {
    cc -O2 -o "$1/ring" "$TOP/ci/ring.c"
    echo 'read through a ring' >"$1/file"
}

listed() {
    (cd "$1" && find . -xdev -path ./proc -prune -o -path ./dev -prune -o -path ./var -prune \
        -o ! -type d -print | sort)
}

debian_package() {
    local root=$SCRATCH/bookworm version=99.0.0
    debian_root bookworm "$root"
    listed "$root" >"$SCRATCH/before"
    cp "$FILES"/*.deb "$root/tmp/first.deb"
    inside "$root" dpkg -i /tmp/first.deb >"$SCRATCH/log" 2>&1 ||
        die "dpkg -i: $(cat "$SCRATCH/log")"
    ring "$root"
    says '.deb: version' "^softring $VERSION" inside "$root" softring --version
    fails 'no ring without it' 'not permitted' inside "$root" softring deny -- /ring /file
    says '.deb: run' 'read through a ring' inside "$root" softring run --deny -- /ring /file
    says '.deb: LD_PRELOAD' 'read through a ring' inside "$root" \
        env LD_PRELOAD=/usr/lib/libsoftring.so softring deny -- /ring /file
    says '.deb: doctor' 'A program under .softring run. gets' inside "$root" softring doctor

    "$TOP/ci/package.sh" --from "$FROM" --out "$SCRATCH/newer" --version $version 2>/dev/null
    cp "$SCRATCH/newer"/*.deb "$root/tmp/newer.deb"
    inside "$root" dpkg -i /tmp/newer.deb >"$SCRATCH/log" 2>&1 ||
        die "upgrade: $(cat "$SCRATCH/log")"
    says '.deb: upgraded' " $version-1 " inside "$root" dpkg -l softring
    says '.deb: run after the upgrade' 'read through a ring' inside "$root" \
        softring run --deny -- /ring /file
    inside "$root" dpkg -P softring >/dev/null 2>&1 || die "dpkg -P failed"
    rm "$root"/tmp/*.deb "$root"/{ring,file}
    listed "$root" | diff "$SCRATCH/before" - || die "removing the .deb has left something"
    echo '.deb: removed without a trace'
    ring "$root"
    install "$SCRATCH/softring" "$root/softring"
    alone "$root" 'Debian 12' /ring
}

rpm_package() {
    local root=$SCRATCH/rpm
    mkdir -p "$root"
    says '.rpm: its name' "^softring-$VERSION-1.x86_64$" rpm -qp --nosignature "$FILES"/*.rpm
    ! rpm -qpR --nosignature "$FILES"/*.rpm | grep -v '^rpmlib(' || die '.rpm: asks for more'
    # On Debian, rpm warns against this use.
    rpm -i --nosignature --nodeps --root "$root" "$FILES"/*.rpm 2>"$SCRATCH/log" ||
        die "rpm -i: $(cat "$SCRATCH/log")"
    ring "$root"
    says '.rpm: run' 'read through a ring' \
        "$root/usr/bin/softring" run --deny -- "$root/ring" "$root/file"
    rpm -e --nodeps --root "$root" softring 2>"$SCRATCH/log" || die "rpm -e: $(cat "$SCRATCH/log")"
    [ ! -e "$root/usr/bin/softring" ] || die 'rpm -e has left the command'
}

# tarball ROOT TITLE  unpacks the tarball there, and runs its command.
tarball() {
    local root=$1 what="tarball, $2" bin=/opt/softring-$VERSION-linux-x86_64/bin/softring
    mkdir -p "$root/opt"
    tar -C "$root/opt" -xf "$FILES"/*.tar.gz
    says "$what: version" "^softring $VERSION" inside "$root" "$bin" --version
    fails "$what: no ring without it" 'not permitted' inside "$root" "$bin" deny -- /ring /file
    says "$what: run" 'read through a ring' inside "$root" "$bin" run --deny -- /ring /file
    says "$what: LD_PRELOAD" 'read through a ring' inside "$root" \
        "$bin" deny -- env "LD_PRELOAD=${bin%bin/softring}lib/libsoftring.so" /ring /file
    says "$what: without /proc" 'read through a ring' chroot "$root" \
        "$bin" run --deny -- /ring /file
    says "$what: doctor" 'A program under .softring run. gets (softring|the kernel)' \
        inside "$root" "$bin" doctor
    says "$what: doctor, rings denied" 'gets softring.s rings' \
        inside "$root" "$bin" deny -- "$bin" doctor
    commands "$root" "$what" "$bin"
    cp "$root$bin" "$root/softring"
    alone "$root" "$2" /ring
}

# commands ROOT WHAT BIN  runs the commands that start softring itself, or a program, under the
# library.
commands() {
    local root=$1 what=$2 bin=$3 how
    says "$what: bench" '^ *softring +[0-9]' inside "$root" \
        "$bin" bench --op nop --engines softring --pairs 1 --seconds 0.1
    for how in stat strace 'trace -o /trace' 'explore --seeds 2' \
        'crash explore --seeds 1 --check true'; do
        # shellcheck disable=SC2086  # these are words
        says "$what: $how" 'read through a ring|READ|0 failed' inside "$root" \
            "$bin" $how -- /ring /file
    done
}

# bare rw|ro ROOT COMMAND…  runs a command in a root of its own that has /proc, and no devices; in
# one that is ro nobody can write.
bare() {
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare --mount --pid --fork sh -c '
        mode=$0 root=$1; shift
        mkdir -p "$root/proc" && mount --bind "$root" "$root" &&
        mount -t proc proc "$root/proc" && mount -o "remount,bind,$mode" "$root" &&
        exec chroot "$root" "$@"' "$@"
}

# alone ROOT TITLE PROGRAM…  runs a program by the command without a library beside it: where it can
# unpack the library, and in a root that nobody can write to.
alone() {
    local root=$1 what="the command alone, $2" file
    says "$what" 'read through a ring' bare rw "$root" /softring run --deny -- "${@:3}" /file
    file=$(cd "$root" && echo tmp/softring-*/libsoftring.so)
    if [ -d "$root/tmp" ]; then
        cmp -s "$root/$file" "$SCRATCH/library" || die "$what: has not unpacked its library"
        rm -r "${root:?}/${file%/*}"
    fi
    says "$what, read-only" 'read through a ring' \
        bare ro "$root" /softring run --deny -- "${@:3}" /file
}

old_debian() {
    local root=$SCRATCH/bullseye bin=/opt/softring-$VERSION-linux-x86_64/bin/softring
    debian_root bullseye "$root"
    # This machine's C library is newer; a program for an old one needs few symbols.
    cc -O2 -nostartfiles -o "$root/ring" "$TOP/ci/ring.c" "$TOP/ci/old-start.c"
    echo 'read through a ring' >"$root/file"
    tarball "$root" 'Debian 11'
    # The library asks for no symbol's version, whatever C library it was built beside.
    local built=${CARGO_TARGET_DIR:-$TOP/target}/release/libsoftring.so
    if [ -e "$built" ]; then
        cp "$built" "$root/built.so"
        says "library of 'make build', Debian 11" 'read through a ring' inside "$root" \
            "$bin" deny -- env LD_PRELOAD=/built.so /ring /file
    fi
    # shellcheck disable=SC2016  # the root's shell expands it
    alone "$root" 'Debian 11, a child' /bin/sh -c '/ring "$0"'
}

# The root has musl's loader, a shell, and nothing of glibc's.
musl() {
    local root=$SCRATCH/musl bin=/opt/softring-$VERSION-linux-x86_64/bin/softring
    need /bin/busybox:busybox-static
    mkdir -p "$root"/{bin,lib,proc,dev,tmp}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for name in sh env cat; do ln -s busybox "$root/bin/$name"; done
    cp "$(realpath /lib/ld-musl-x86_64.so.1)" "$root/lib/ld-musl-x86_64.so.1"
    musl-gcc -O2 -o "$root/ring" "$TOP/ci/ring.c"
    echo 'read through a ring' >"$root/file"
    tarball "$root" musl
}

# An image FROM scratch: the command and a static program.
empty() {
    local root=$SCRATCH/empty
    mkdir -p "$root"
    install "$SCRATCH/softring" "$root/softring"
    cc -O2 -static -o "$root/ring" "$TOP/ci/ring.c"
    echo 'read through a ring' >"$root/file"
    alone "$root" 'an empty root' /ring
    says 'the command alone, an empty root: doctor' 'gets softring.s rings' \
        bare ro "$root" /softring deny -- /softring doctor
    says 'the command alone, an empty root: copy' '^/volume/lib/libsoftring.so$' \
        bare rw "$root" /softring copy /volume
    cmp "$root/volume/lib/libsoftring.so" "$SCRATCH/library"
}

VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml" | head -n 1)
tar -xOf "$FILES"/*.tar.gz --wildcards '*/lib/libsoftring.so' >"$SCRATCH/library"
tar -xOf "$FILES"/*.tar.gz --wildcards '*/bin/softring' >"$SCRATCH/softring"
[ "$(stat -c %s "$SCRATCH/softring")" -lt 8000000 ] || die 'the command has 8,000,000 bytes or more'
debian_package
rpm_package
old_debian
musl
empty
if [ -z "$QUICK" ]; then
    python_tools "$BUILD/sbom-tools" 'cyclonedx-python-lib[json-validation]==11.0.0'
    python - "$FILES"/*.cdx.json <<'EOF'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(f"the list of parts is not as CycloneDX has it: {wrong}" if wrong else 0)
EOF
    echo 'list of parts: as CycloneDX 1.5 has it'
fi
