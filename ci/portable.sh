#!/usr/bin/env bash
# Builds the command and libsoftring.so for glibc 2.17 and newer (2012), whatever glibc this machine
# has, by cargo-zigbuild and zig from PyPI. The library serves programs of musl's, too. Both go to
# target/portable, laid out as they are installed; `make install` takes them from there. They
# contain no path of this machine, so that the same source gives the same bytes everywhere.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/portable.sh [--static] [--musl] [--profile PROFILE]
  --static  builds a static command as well (static/softring), which runs on any Linux
  --musl  builds the library for musl as well, in lib/softring/musl; softring uses this library for
          programs of musl whose loader cannot load the other library
  --profile PROFILE  profile of Cargo.toml (default: release)
EOF
}

MUSL='' STATIC='' PROFILE=release
while [ $# -gt 0 ]; do
    case $1 in
        --musl) MUSL=1 ;;
        --static) STATIC=1 ;;
        --profile) PROFILE=$(argument "${@:1:2}") || exit; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

OLDEST=2.17
BUILD=${CARGO_TARGET_DIR:-$TOP/target}
TO=$BUILD/portable
need python3:python3 objdump:binutils
cd "$TOP"

# These versions have built the same bytes from two folders.
python_tools "$BUILD/portable-tools" ziglang==0.17.1 cargo-zigbuild==0.24.1
# Relative paths, of the workspace, do no harm; these paths are in messages of panics.
remap="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/cargo"
remap+=" --remap-path-prefix=$(rustc --print sysroot)=/rust"
remap+=" --remap-path-prefix=$BUILD=/target --remap-path-prefix=$TOP=/softring"
export RUSTFLAGS=$remap

cargo zigbuild --profile "$PROFILE" --locked -p softring-preload -p softring-cli \
    --target "x86_64-unknown-linux-gnu.$OLDEST"
BUILT=$BUILD/x86_64-unknown-linux-gnu/$PROFILE

# newest FILE  prints the newest glibc that FILE needs.
newest() {
    objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

for file in libsoftring.so softring; do
    asked=$(newest "$BUILT/$file")
    [ "$(printf '%s\n' "$asked" $OLDEST | sort -V | tail -n 1)" = $OLDEST ] ||
        die "$file asks for glibc $asked"
    note "$file asks for glibc $asked or newer"
done
rm -rf "$TO"
install -D -m 755 "$BUILT/softring" "$TO/bin/softring"
install -D -m 755 "$BUILT/libsoftring.so" "$TO/lib/libsoftring.so"

target=x86_64-unknown-linux-musl
if [ -n "$MUSL$STATIC" ]; then rustup -q target add $target; fi
if [ -n "$STATIC" ]; then
    cargo zigbuild --profile "$PROFILE" --locked -p softring-cli --target $target
    install -D -m 755 "$BUILD/$target/$PROFILE/softring" "$TO/static/softring"
fi
if [ -n "$MUSL" ]; then
    RUSTFLAGS="$remap -C target-feature=-crt-static" \
        cargo zigbuild --profile "$PROFILE" --locked -p softring-preload --target $target
    install -D -m 755 "$BUILD/$target/$PROFILE/libsoftring.so" \
        "$TO/lib/softring/musl/libsoftring.so"
fi
note "in $TO: $(cd "$TO" && find . -type f | sort | tr '\n' ' ')"
