#!/usr/bin/env bash
# Programs in Rust that bring softring along (crates/softring): examples/built-in-rust, static with
# musl and with glibc, and dynamic, on the io-uring crate and on tokio-uring. Each copies a file on
# the kernel's rings, where io_uring is denied, and under `softring run`, where one copy of softring
# works. `softring::install()` and the feature before-main are tried, and the documents made.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/built-in.sh [--sources]

  --sources   have the crate build the archive from the sources, as it does for others; else it
              takes the one of target/release
EOF
}

SOURCES=''
case ${1:-} in
    '') ;;
    --sources) SOURCES=1 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
need cc:gcc ld:binutils
need_softring
scratch built-in
TRIED=0
export CARGO_TARGET_DIR=$TOP/target/built-in
GLIBC=x86_64-unknown-linux-gnu MUSL=x86_64-unknown-linux-musl

RUSTDOCFLAGS='-D warnings' DOCS_RS=1 cargo doc --quiet --no-deps --all-features \
    --manifest-path "$TOP/crates/softring/Cargo.toml"
if [ -z "$SOURCES" ]; then
    "$TOP/dist/archive.sh" "$(dirname "$SOFTRING")/libsoftring.a" "$SCRATCH/libsoftring.a"
    export SOFTRING_LIB_DIR=$SCRATCH
fi

# copies PROGRAM LINES COMMAND…  has a program copy a file, behind a command, and say so many lines.
copies() {
    local program=$1 lines=$2
    shift 2
    rm -f "$SCRATCH/copy"
    "$@" "$program" "$program" "$SCRATCH/copy" 2>"$SCRATCH/said" ||
        die "$* $program: $(cat "$SCRATCH/said")"
    cmp "$program" "$SCRATCH/copy"
    [ "$(grep -c 'runs in user space' "$SCRATCH/said")" = "$lines" ] ||
        die "$* $program says: $(cat "$SCRATCH/said")"
    TRIED=$((TRIED + 1))
}

# try TARGET FEATURES BIN  builds a program and runs it.
try() {
    local program=$CARGO_TARGET_DIR/$1/debug/$3
    cargo build --quiet --locked --manifest-path "$TOP/examples/built-in-rust/Cargo.toml" \
        --target "$1" --features "$2" --bin "$3"
    if kernel_has_uring; then copies "$program" 0 env; fi
    copies "$program" 1 "$SOFTRING" deny --
    copies "$program" 1 "$SOFTRING" run --deny --
    copies "$program" 1 "$SOFTRING" run --engine=user --
}

if [ -d "$(rustc --print target-libdir --target $MUSL)" ]; then
    try $MUSL '' copy
    try $MUSL before-main copy
else
    note "skipped: rustc has no target $MUSL"
fi
try $GLIBC '' copy
try $GLIBC tokio-uring copy-tokio
export RUSTFLAGS=-Ctarget-feature=+crt-static CARGO_TARGET_DIR+=/static
try $GLIBC tokio-uring copy-tokio
try $GLIBC before-main copy
echo "$TRIED copies by programs with softring built in, each the same as its file"
