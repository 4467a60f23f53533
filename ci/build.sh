#!/usr/bin/env bash
# Builds the files of packages: libsoftring.so, which asks for nothing, and a static command (musl)
# that carries the library inside. Both go to target/built, laid out as they are installed. They
# contain no path of this machine, so that the same source gives the same bytes everywhere.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/build.sh [--profile PROFILE]
  --profile PROFILE  profile of Cargo.toml (default: release)
EOF
}

PROFILE=release
while [ $# -gt 0 ]; do
    case $1 in
        --profile) PROFILE=$(argument "${@:1:2}") || exit; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

BUILD=${CARGO_TARGET_DIR:-$TOP/target}
TO=$BUILD/built
MUSL=x86_64-unknown-linux-musl
need cc:gcc strip:binutils
cd "$TOP"
rustup -q target add $MUSL

# Relative paths, of the workspace, do no harm; these paths are in messages of panics.
remap="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/cargo"
remap+=" --remap-path-prefix=$(rustc --print sysroot)=/rust"
remap+=" --remap-path-prefix=$BUILD=/target --remap-path-prefix=$TOP=/softring"
export RUSTFLAGS=$remap

# build TARGET PACKAGE  builds a package, and sets BUILT to the folder of what was built.
build() {
    cargo build --profile "$PROFILE" --locked --target "$1" -p "$2"
    # Cargo's folder of the profile dev has another name.
    BUILT=$BUILD/$1/${PROFILE/#dev/debug}
}

build x86_64-unknown-linux-gnu softring-preload
rm -rf "$TO"
install -D -m 755 -s "$BUILT/libsoftring.so" "$TO/lib/libsoftring.so"
install -D -m 644 "$BUILT/libsoftring.a" "$TO/lib/libsoftring.a"
export SOFTRING_CARRIED=$TO/lib/libsoftring.so
build $MUSL softring-cli
install -D -m 755 -s "$BUILT/softring" "$TO/bin/softring"

# asks_not FILE PATTERN  fails if the file's dynamic section or its segments have such a line.
asks_not() {
    ! readelf -dlVW "$1" | grep -E "$2" >&2 || die "$1 asks for what not every system has"
}

asks_not "$TO/lib/libsoftring.so" 'NEEDED|VERNEED|TLS'
asks_not "$TO/bin/softring" 'NEEDED|INTERP'
note "in $TO: $(cd "$TO" && find . -type f | sort | tr '\n' ' ')"
