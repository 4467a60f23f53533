#!/usr/bin/env bash
# Measures the cost of registered files: user-space instructions per cached 4 KiB read through
# softring, by registered and by plain descriptors, counted by valgrind's callgrind. The difference
# of two runs of different lengths counts, so starting costs nothing; the same binary has the same
# figures.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/file-cost.sh
SOFTRING=PATH: the command to use (default: target/release/softring, with its library beside it)
EOF
}

case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
need valgrind:valgrind
need_softring
scratch file-cost
LIB=${LIB:-$(dirname "$SOFTRING")/libsoftring.so}
[ -e "$LIB" ] || die "$LIB is not there; run 'cargo build --release' first"

# Counts of reads of the shorter and the longer run.
FEW=1024 MANY=5120
head -c $((MANY * 4096)) /dev/zero >"$SCRATCH/data"

# job READS FIXED  prints the job of a worker of `softring bench`: each block once, BATCH at a time.
job() {
    printf '{"driver":"softring","op":"rw","path":"%s","size":%d,"bs":4096,"depth":%d,"batch":%d,
        "wait":1,"threads":1,"pool_threads":1,"seconds":1.0,"warmup":0.0,"rw":"read","rwmix":0,
        "direct":false,"setup_flags":0,"fixed_files":%s,"slat":false,"verify":false,"seed":1,
        "once":true}' "$SCRATCH/data" $(($1 * 4096)) "$BATCH" "$BATCH" "$2"
}

# once READS FIXED  prints the instructions within io_uring_enter in one such run.
once() {
    local out n
    # A worker would read the blocks that the page cache has lost meanwhile.
    cat "$SCRATCH/data" >/dev/null
    out=$(job "$1" "$2" | SOFTRING_ENGINE=user SOFTRING_QUIET=1 SOFTRING_INTERCEPT=none \
        LD_PRELOAD=$LIB \
        valgrind --tool=callgrind --toggle-collect=softring_engine::syscall::enter::enter_by \
        --smc-check=all-non-file --callgrind-out-file=/dev/null "$SOFTRING" worker \
        2>"$SCRATCH/log") || die "$(cat "$SCRATCH/log")"
    case $out in
        *memfd*"\"ios\":$1,"*) ;;
        *) die "not $1 reads through softring: $out" ;;
    esac
    n=$(sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p' "$SCRATCH/log")
    [ "${n:-0}" -gt 0 ] || die "callgrind has found no enter_by in $LIB"
    echo "$n"
}

# count READS FIXED  prints the least of a few runs: a disturbance only adds instructions.
count() {
    for _ in 1 2 3 4 5; do once "$@"; done | sort -n | head -n 1
}

# per_read FIXED  prints the instructions per read.
per_read() {
    echo $((($(count $MANY "$1") - $(count $FEW "$1")) / (MANY - FEW)))
}

printf '%-8s %12s %12s\n' batch registered plain
for BATCH in 1 32; do
    printf '%-8d %12d %12d\n' "$BATCH" "$(per_read true)" "$(per_read false)"
done
