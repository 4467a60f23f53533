#!/usr/bin/env bash
# Counts user-space instructions per operation, the program's own included, by valgrind's callgrind:
# they show a change of a per cent where time is too noisy. The difference of two runs of different
# lengths counts, so starting costs nothing. The least of three pairs counts, because a disturbance
# only adds instructions. The rows with -patched are those of a patched program, in which every
# close is reported, so that numbers stay registered. The last two rows are a call that is not
# softring's, by an instruction of the program's that takes any number: not patched, and patched.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/instructions.sh [LIBRARY]...
Each LIBRARY is a libsoftring.so and gets a column; the others are compared with the first
(default: target/release/libsoftring.so). Before a change, keep a copy, and name both files.
INTERCEPT=patch: by the program's patched calls, so that each close is reported, in place of none.
EOF
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
esac
need valgrind:valgrind cc:gcc
scratch instructions
LIBRARIES=("$@")
[ $# -gt 0 ] || LIBRARIES=("$TOP/target/release/libsoftring.so")
for library in "${LIBRARIES[@]}"; do
    [ -e "$library" ] || die "$library is not there; run 'cargo build --release' first"
done
FEW=500 MANY=2500
cc -O1 -o "$SCRATCH/operations" "$TOP/ci/loads/operations.c"
head -c 65536 /dev/zero >"$SCRATCH/data"

# once LIBRARY WHAT COUNT  prints the instructions of one such run.
once() {
    local n what=$2 intercept=${INTERCEPT:-none}
    case $what in
        patched) what=other intercept='patch' ;;
        *-patched) what=${what%-patched} intercept='patch' ;;
    esac
    SOFTRING_ENGINE=user SOFTRING_QUIET=1 SOFTRING_INTERCEPT=$intercept \
        LD_PRELOAD=$(realpath "$1") \
        valgrind --tool=callgrind --smc-check=all-non-file --callgrind-out-file=/dev/null \
        "$SCRATCH/operations" "$what" "$3" "$SCRATCH/data" >"$SCRATCH/log" 2>&1 ||
        die "$(cat "$SCRATCH/log")"
    n=$(sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p' "$SCRATCH/log")
    [ "${n:-0}" -gt 0 ] || die "callgrind has counted nothing: $(cat "$SCRATCH/log")"
    echo "$n"
}

# count LIBRARY WHAT  prints the instructions per operation.
count() {
    for _ in 1 2 3; do
        echo $((($(once "$1" "$2" $MANY) - $(once "$1" "$2" $FEW)) / (MANY - FEW)))
    done | sort -n | head -n 1
}

for what in nop nops read reads direct echo poll echo-patched poll-patched \
    ring other patched; do
    first=''
    printf '%-12s' $what
    for library in "${LIBRARIES[@]}"; do
        n=$(count "$library" $what)
        printf ' %12d' "$n"
        [ -z "$first" ] || awk -v n="$n" -v of="$first" \
            'BEGIN { printf " %+6.2f %%", (n - of) * 100 / of }'
        first=${first:-$n}
    done
    echo
done
