#!/usr/bin/env bash
# Runs the conformance cases that need a machine of their own in a virtual one: NVMe commands to a
# device, and steps of the clock. They run on the guest kernel's own io_uring, and on softring
# through each entry point. QEMU provides the disk; the kernel is Debian's for clouds, fetched at
# test time.
set -eu
# A guest without KVM is slow.
LIMIT=${LIMIT:-400}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/vm.sh"

usage() {
    cat <<EOF
usage: ci/guest.sh [--case GLOB]
  --case GLOB  the cases to run (default: nvme::* and clock::*)
EOF
}

CASES='nvme::* clock::*'
while [ $# -gt 0 ]; do
    case $1 in
        --case) CASES=$(argument "${@:1:2}"); shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
need "${VM_NEEDS[@]}"
need_softring
scratch guest
BIN=$(dirname "$SOFTRING")
ROOT=$SCRATCH/root DISK=$SCRATCH/disk
# shellcheck disable=SC1091
fetch_kernel "$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")" "$SCRATCH/kernel"
put "$BIN/conformance" "$BIN/libsoftring.so"
root_fs <<EOF
until [ -e /dev/ng0n1 ]; do sleep 0.1; done
export CONFORMANCE_SETS_CLOCK=1
# One case at a time, as all have the clock in common. Not to a terminal, where it would show
# progress.
set -f
for cases in $CASES; do
    ($BIN/conformance all --jobs 1 --case "\$cases"; echo "guest: exit \$?") 2>&1 | cat
done
EOF
truncate -s 64m "$DISK"
boot "$SCRATCH/kernel" | tee "$SCRATCH/log"
grep -q '^guest: exit 0$' "$SCRATCH/log" && ! grep -q '^guest: exit [1-9]' "$SCRATCH/log"
