#!/usr/bin/env bash
# Searches for wrong uses of memory: AddressSanitizer (with its search for leaks) under the engine's
# tests, and valgrind under conformance cases, which reach the engine through the preloaded library.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/memory.sh [--quick]
  --quick  under valgrind, run only the cases that pass much memory
EOF
}

QUICK=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) QUICK=1 ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

need valgrind:valgrind gcc:gcc
cd "$TOP"
TARGET=${CARGO_TARGET_DIR:-$TOP/target}
HOST=$(rustc -vV | sed -n 's/^host: //p')

# The sanitizer is an unstable option of rustc; the stable toolchain has its runtime, too.
note "the engine's tests with AddressSanitizer"
RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$TARGET/asan \
    RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address -Cforce-frame-pointers=yes" \
    cargo test -q -p softring-engine --target "$HOST" --lib --tests --locked

cargo build -q --locked --workspace
scratch memory
FAMILIES=('*')
[ -z "$QUICK" ] || FAMILIES=('pbuf::*' 'net_msg::*' 'net::*' 'cq::*' 'cancel::*')
RC=0
# under_valgrind CASES  runs these cases; valgrind takes one processor at a time.
under_valgrind() {
    note "valgrind under $1"
    SOFTRING_ENGINE=user SOFTRING_QUIET=1 SOFTRING_INTERCEPT=none \
        LD_PRELOAD=$TARGET/debug/libsoftring.so \
        valgrind -q --trace-children=yes --smc-check=all-non-file --log-file="$SCRATCH/%p.log" \
        "$TARGET/debug/conformance" run --timeout 120 --case "$1"
}
for cases in "${FAMILIES[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || RC=1; done
    under_valgrind "$cases" &
done
for job in $(jobs -p); do wait "$job" || RC=1; done
# "Syscall param" is not searched for, because cases pass bad pointers on purpose; nor are system
# calls that valgrind does not know.
grep -hE '^==[0-9]+== (Invalid|Conditional|Use of|Mismatched|Source and)' -A12 \
    "$SCRATCH"/*.log && RC=1
# A correct program has no report, and no exit code of one.
note "valgrind reports nothing of ours"
valgrind_nop() {
    SOFTRING_ENGINE=user SOFTRING_QUIET=1 LD_PRELOAD=$TARGET/debug/libsoftring.so \
        valgrind -q --error-exitcode=9 --smc-check=all-non-file --log-file="$SCRATCH/nop.log" \
        "$TARGET/debug/conformance" run --case nop::plain
}
valgrind_nop || { cat "$SCRATCH/nop.log"; RC=1; }
exit $RC
