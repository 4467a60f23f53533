#!/usr/bin/env bash
# Runs softring on other kernels: Debian's for clouds, from 5.10 to the newest, in virtual machines.
# There: the checks of ci/environments.sh on softring's rings, fio with verify, and, with io_uring
# denied, the conformance cases.
set -u
# A guest without KVM is slow.
LIMIT=${LIMIT:-1500}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/vm.sh"

usage() {
    cat <<END
usage: ci/kernels.sh [--quick] [--only SUITE]... [--case GLOB] [--logs DIR] [--keep DIR]

  --quick       5.10 and the newest kernel, and only what differed on old kernels
  --only SUITE  bullseye (5.10), bookworm (6.1), trixie (6.12) or sid (the newest)
  --case GLOB   these conformance cases
  --keep DIR    keep the kernels in DIR, and use those that are there
END
}

CASES='*' KEEP=''
option() {
    case $1 in
        --case) CASES=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        --keep) KEEP=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"
need "${VM_NEEDS[@]}" fio:fio mkfs.ext4:e2fsprogs
need_softring
scratch kernels
keep_logs
BIN=$(cd "$(dirname "$SOFTRING")" && pwd)
ROOT=$SCRATCH/root DISK=$SCRATCH/disk KEEP=${KEEP:-$SCRATCH/kernels}
mkdir -p "$KEEP"
KEEP=$(cd "$KEEP" && pwd)

SUITES=(bullseye bookworm trixie sid)
[ -z "$QUICK" ] || SUITES=(bullseye sid)
[ ${#ONLY[@]} = 0 ] || SUITES=("${ONLY[@]}")

put "$BIN/softring" "$BIN/conformance" "$BIN/softring-environments" "$BIN/libsoftring.so" \
    "$(command -v fio)" /bin/bash
# What each part prints last is a line for the table: "part: NAME OUTCOME".
root_fs <<END
mount -t ext4 /dev/nvme0n1 /mnt
export TMPDIR=/mnt HOME=/tmp
cd /mnt
set -f
part() {
    name=\$1
    shift
    "\$@" >/tmp/out 2>&1
    rc=\$?
    tail -n \${TAIL:-400} /tmp/out
    echo "part: \$name \$rc"
}
echo "kernel: \$(uname -r)"
part checks $BIN/softring run --engine=user -- $BIN/softring-environments checks
part denied $BIN/softring run --deny -- $BIN/softring-environments checks
for rw in write randwrite; do
    for direct in 0 1; do
        part "fio \$rw direct=\$direct" $BIN/softring run --engine=user -- fio --name=v \
            --ioengine=io_uring --size=4m --bs=4k --rw=\$rw --verify=crc32c --iodepth=16 \
            --direct=\$direct --directory=/mnt --minimal --output=/dev/null
    done
done
part conformance $BIN/softring deny -- $BIN/conformance all --jobs 2 --timeout 120 --door patch \
    --case '$CASES'
END

FAILED=0
for suite in "${SUITES[@]}"; do
    kernel=$KEEP/$suite
    [ -s "$kernel" ] || fetch_kernel "$suite" "$kernel"
    truncate -s 0 "$DISK"
    truncate -s 512m "$DISK"
    mkfs.ext4 -q "$DISK"
    note "booting the kernel of $suite"
    boot "$kernel" >"$LOGS/$suite"
    tr -d '\0' <"$LOGS/$suite" | sed -n -e 's/^kernel: /\n== /p' \
        -e 's/^part: \(.*\) 0$/works   \1/p' -e 's/^part: \(.*\) \([0-9]*\)$/fails   \1 (\2)/p'
    grep -a -E '^(DIFFERS|\| all )' "$LOGS/$suite"
    grep -a -q '^part: conformance 0' "$LOGS/$suite" || FAILED=1
    ! grep -a -E -q '^part: .* [1-9][0-9]*$' "$LOGS/$suite" || FAILED=1
done
exit $FAILED
