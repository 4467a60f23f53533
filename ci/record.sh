#!/usr/bin/env bash
# Writes conformance/recorded/7.2.txt anew: what Linux 7.2 answers to the cases that need its ABI,
# asked in a virtual machine with Debian's newest kernel for clouds.
set -u
LIMIT=${LIMIT:-1200}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/vm.sh"

usage() {
    cat <<END
usage: ci/record.sh [--keep DIR]

  --keep DIR  keep the kernel in DIR, and use the one that is there
END
}

KEEP=''
option() {
    case $1 in
        --keep) KEEP=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"
need "${VM_NEEDS[@]}" mkfs.ext4:e2fsprogs
need_softring
scratch record
BIN=$(cd "$(dirname "$SOFTRING")" && pwd)
ROOT=$SCRATCH/root DISK=$SCRATCH/disk KERNEL=${KEEP:-$SCRATCH}/sid
RECORDS=$TOP/conformance/recorded/7.2.txt

put "$BIN/conformance"
root_fs <<END
mount -t ext4 /dev/nvme0n1 /mnt
export TMPDIR=/mnt HOME=/tmp
echo "begin \$(uname -r)"
$BIN/conformance record && echo end
END
fetch_kernel sid "$KERNEL"
new_disk
note 'booting the newest kernel'
boot "$KERNEL" | tr -d '\0' >"$SCRATCH/said"
grep -q "^end$" "$SCRATCH/said" || {
    sed -n "/begin /,\$p" "$SCRATCH/said" | grep -v -e "^case " -e "^  " >&2
    die 'not every case could be recorded; nothing is written'
}
{
    sed -n 's/^.*begin \([^+]*\).*/# Linux \1, x86-64: ci\/record.sh./p' "$SCRATCH/said"
    sed -n '/^case /,/^end$/p' "$SCRATCH/said" | sed '$d'
} >"$RECORDS"
note "$(grep -c '^case ' "$RECORDS") records are in conformance/recorded/7.2.txt"
