#!/usr/bin/env bash
# Runs rings under a mix of everything, with checks at the end: on the kernel if it allows io_uring,
# and on softring with io_uring denied: through libc's syscall(), through patched call sites, and
# with completions in any order (--faults order).
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/soak.sh [--quick] [--seconds N] [--host N] [--connections N] [--seed N]
Without options the longest part must play 24 hours of logic time: see docs/HACKING.md.
  --quick          run half a minute, a minute of the part host, and 20000 connections
  --seconds N      seconds in all, not counting the two parts below (default: 600)
  --host N         seconds of the part host under softring (default: 600); a tenth elsewhere
  --connections N  short connections under softring (default: 1000000); a tenth elsewhere
  --seed N         repeats the choices of seed N
EOF
}

LONG=600 HOST=600 CONNECTIONS=1000000 SEED=() KERNEL=(--no-zero-copy) HOURS=24
while [ $# -gt 0 ]; do
    case $1 in
        # The mix does not run on the kernel: 6.18 now and then keeps an SQ thread for ever after
        # it.
        --quick)
            LONG=30 HOST=60 CONNECTIONS=20000 HOURS=0
            KERNEL+=(--only "race,futexes,host,connections") ;;
        --seconds) LONG=$(argument "${@:1:2}") HOURS=0; shift ;;
        --host) HOST=$(argument "${@:1:2}") HOURS=0; shift ;;
        --connections) CONNECTIONS=$(argument "${@:1:2}") HOURS=0; shift ;;
        --seed) SEED=(--seed "$(argument "${@:1:2}")"); shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

cd "$TOP"
cargo build --release --workspace
RC=0
# leg NAME PERCENT HOST CONNECTIONS [COMMAND…]  runs the soak under COMMAND, for PERCENT of the
# time.
leg() {
    local name=$1 seconds=$((LONG * $2 / 100)) host=$3 connections=$4 how=syscall
    local parts=()
    shift 4
    [ "$name" != kernel ] || parts=("${KERNEL[@]}")
    [ "$name" != softring ] || parts+=(--hours "$HOURS")
    [ "$name" != 'softring, patched' ] || how='patch'
    printf '\n-- %s\n' "$name"
    "$@" target/release/softring-soak --seconds "$seconds" --host "$host" \
        --connections "$connections" --intercept $how "${SEED[@]}" "${parts[@]}" || RC=1
}

if kernel_has_uring; then
    leg kernel 20 $((HOST / 10)) $((CONNECTIONS / 10))
else
    note "this kernel makes no io_uring: nothing to compare with"
fi
leg softring 50 "$HOST" "$CONNECTIONS" "$SOFTRING" run --quiet --deny --
leg 'softring, patched' 20 $((HOST / 10)) $((CONNECTIONS / 10)) "$SOFTRING" run --quiet --deny --
# The soak takes short counts and EINTR for errors, but no order for granted.
leg 'softring, any order' 10 $((HOST / 10)) $((CONNECTIONS / 100)) "$SOFTRING" run --quiet --deny \
    --faults order,seed="$RANDOM" --
exit $RC
