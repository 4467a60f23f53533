#!/usr/bin/env bash
# Runs static programs, which have no dynamic loader, under softring with io_uring denied, and
# prints a table: liburing 2.3's tests linked with musl's C library; the tests of Zig's own IoUring
# in PyPI's package of Zig, static without a C library and with musl's, and dynamic with glibc's;
# and static Rust programs on the io-uring crate. A test that passes on the kernel must pass.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/static.sh [options]
  --quick      a third of liburing's tests, their columns as recorded; no suite where io_uring is
               denied without softring
  --only WORD  run only the suites whose name contains WORD (repeatable)
  --logs DIR   keep the output of every suite in DIR
EOF
}

option() {
    return 1
}
options "$@"

BUILD=${CARGO_TARGET_DIR:-$TOP/target}/static
# The last version that has its tests in its package. The tests lie in the module of the standard
# library itself, and run as a program of their own.
ZIG=0.15.2
CRATES=(--package io-uring --package compio-driver --package compio-runtime)
# Programs of liburing's that a short run takes: those that tell most of a C library.
SHORT='accept across-fork connect cq-overflow eventfd fadvise file-register file-update fsync
io-cancel link_drain madvise nop openat2 open-close poll poll-cancel poll-ring register-restrictions
ring-leak ringbuf-read sendmsg_fs_cve shutdown sigfd-deadlock sq-poll-dup sqpoll-exit-hang statx
stdout submit-reuse timeout unlink xattr'

# row NAME TESTS KERNEL DENIED SOFTRING  prints a line of the table; notes tests that fail.
row() {
    local mark=''
    if [ "$5" != "$3" ] && [ "$3" != - ] || [ "$5" = 0 ]; then
        mark='  FAILS' BAD=$((BAD + 1))
    fi
    printf '%-34s %6s %8s %8s %10s%s\n' "$@" "$mark" >>"$SCRATCH/table"
}

# liburing NAME  runs the tests of liburing.
liburing() {
    local log=$LOGS/liburing.log options=(--static-musl) name in passed
    wanted "$1" || return 0
    if [ -n "$QUICK" ]; then
        options+=(--quick)
        for name in $SHORT; do options+=(--only "$name"); done
    fi
    "$TOP/ci/liburing-tests.sh" "${options[@]}" >"$log" 2>&1 || note "$(tail -n 40 "$log")"
    in=$(sed -n 's/^of these in scope: \([0-9]*\);.*/\1/p' "$log")
    passed=$(sed -n 's/.*; pass musl: \([0-9]*\).*/\1/p' "$log")
    row "$1" "$(sed -n 's/^\([0-9]*\) programs, .*/\1/p' "$log")" "${in:-0}" 0 "${passed:-0}"
}

# zig NAME OPTION…  builds the tests of Zig's IoUring with these options, and runs them.
zig() {
    local name=$1 program=$BUILD/zig-tests/${1// /-} legs=(kernel denied softring) leg prefix std
    local -A passed=([kernel]=- [denied]=-)
    wanted "$name" || return 0
    shift
    [ -z "$QUICK" ] || legs=(kernel softring)
    kernel_has_uring || legs=(softring)
    python_tools "$BUILD/zig" "ziglang==$ZIG"
    mkdir -p "$BUILD/zig-tests"
    std=$("$BUILD/zig/bin/python3" -c 'import ziglang; print(*ziglang.__path__)')
    sed 's,@import("../../std.zig"),@import("std"),' "$std/lib/std/os/linux/IoUring.zig" \
        >"$BUILD/zig-tests/IoUring.zig"
    ZIG_GLOBAL_CACHE_DIR=$BUILD/zig-cache ZIG_LOCAL_CACHE_DIR=$BUILD/zig-cache \
        "$std/zig" test "$BUILD/zig-tests/IoUring.zig" "$@" --test-no-exec "-femit-bin=$program" ||
        die "zig could not build its tests; see its message above"
    for leg in "${legs[@]}"; do
        prefix=()
        case $leg in
            denied) read -ra prefix <<<"$DENY" ;;
            softring) prefix=("$SOFTRING" run --deny --quiet --) ;;
        esac
        (cd "$SCRATCH" && timeout -k 5 "$LIMIT" "${prefix[@]}" "$program") \
            >"$LOGS/${program##*/}-$leg.log" 2>&1 </dev/null
        passed[$leg]=$(grep -cE '^[0-9]+/[0-9]+ .*OK$' "$LOGS/${program##*/}-$leg.log")
    done
    [ "${passed[softring]}" = "${passed[kernel]}" ] || note "$(grep -vE 'OK$' \
        "$LOGS/${program##*/}-softring.log")"
    row "$name" "$(sed -n '1s,^[0-9]*/\([0-9]*\) .*,\1,p' "$LOGS/${program##*/}-softring.log")" \
        "${passed[kernel]}" "${passed[denied]}" "${passed[softring]}"
}

# crates NAME  runs the tests of crates, built for musl.
crates() {
    local log=$LOGS/crates.log package tests kernel denied passed
    wanted "$1" || return 0
    "$TOP/ci/runtimes.sh" --static-musl "${CRATES[@]}" ${QUICK:+--quick} >"$log" 2>&1 ||
        note "$(tail -n 40 "$log")"
    while read -r package tests kernel denied _ passed; do
        row "$1: $package" "$tests" "$kernel" "$denied" "$passed"
    done < <(sed '1,/^SUITE/d' "$log" | grep -E '^[a-z]')
    grep -q '^SUITE' "$log" || row "$1" 0 0 0 0
}

main() {
    BAD=0
    scratch static
    keep_logs
    : >"$SCRATCH/table"
    need python3:python3
    need_softring
    liburing 'liburing 2.3, C, musl'
    zig "Zig $ZIG, no C library" -target x86_64-linux-none
    zig "Zig $ZIG, musl" -target x86_64-linux-musl -lc
    zig "Zig $ZIG, glibc, dynamic" -target x86_64-linux-gnu -lc
    crates 'Rust, musl'
    printf '%-34s %6s %8s %8s %10s\n' SUITE TESTS KERNEL DENIED SOFTRING
    cat "$SCRATCH/table"
    echo '(KERNEL, DENIED, SOFTRING: tests that pass; of liburing, those that prove something)'
    [ "$BAD" = 0 ]
}

main
