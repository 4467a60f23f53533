#!/usr/bin/env bash
# Builds the command and libsoftring.so for glibc 2.17 and newer (2012),
# whatever glibc this machine has, by cargo-zigbuild and zig, which PyPI has. The library serves
# programs of musl's, too. Both come to target/portable, laid out as they are installed; `make
# install` takes them from there.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/portable.sh [--musl]
  --musl  builds the library for musl as well, into a folder of its own (lib/softring/musl). It is
          put under programs of musl's only where their loader does not take the other one
EOF
}

MUSL=''
while [ $# -gt 0 ]; do
    case $1 in
        --musl) MUSL=1 ;;
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

TOOLS=$BUILD/portable-tools
if ! [ -x "$TOOLS/bin/cargo-zigbuild" ]; then
    note "installing cargo-zigbuild and zig into $TOOLS"
    python3 -m venv "$TOOLS" ||
        die "python3 makes no environment; on Debian: apt-get install python3-venv"
    "$TOOLS/bin/pip" install -q --disable-pip-version-check ziglang cargo-zigbuild
fi
PATH=$TOOLS/bin:$PATH

cargo zigbuild --release --locked -p softring-preload -p softring-cli \
    --target "x86_64-unknown-linux-gnu.$OLDEST"
BUILT=$BUILD/x86_64-unknown-linux-gnu/release

# newest FILE  prints the newest glibc that FILE asks for.
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

if [ -n "$MUSL" ]; then
    target=x86_64-unknown-linux-musl
    rustup target add $target
    RUSTFLAGS='-C target-feature=-crt-static' \
        cargo zigbuild --release --locked -p softring-preload --target $target
    install -D -m 755 "$BUILD/$target/release/libsoftring.so" \
        "$TO/lib/softring/musl/libsoftring.so"
fi
note "in $TO: $(cd "$TO" && find . -type f | sort | tr '\n' ' ')"
