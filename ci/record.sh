#!/usr/bin/env bash
# Writes conformance/recorded/7.2.txt anew: the answers of Linux 7.2 to the cases that need its ABI,
# recorded in a virtual machine with Debian's newest kernel for clouds. With --here writes 6.18.txt:
# the answers of the running kernel, a 6.18, to all other cases.
set -u
LIMIT=${LIMIT:-1200}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/vm.sh"

usage() {
    cat <<END
usage: ci/record.sh [--keep DIR | --here]

  --here      record the running kernel, a 6.18: as root, with temporary files on ext4,
              in three minutes
  --keep DIR  keep the kernel in DIR, and reuse a kernel that DIR holds
END
}

KEEP='' HERE=''
option() {
    case $1 in
        --here) HERE=1 ;;
        --keep) KEEP=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

# Records each case with its files on tmpfs and overlayfs, too, as a container may have them.
record_here() {
    local release shm
    release=$(uname -r)
    [[ $release == 6.18.* ]] || die "the running kernel is $release, no 6.18"
    need_softring
    scratch record
    shm=$(mktemp -d /dev/shm/softring-record.XXXXXX)
    mkdir "$SCRATCH"/{below,above,work,overlay}
    # The mount is gone with its namespace.
    unshare --mount bash -s >"$SCRATCH/records" <<END
mount -t overlay overlay "$SCRATCH/overlay" \
    -o "lowerdir=$SCRATCH/below,upperdir=$SCRATCH/above,workdir=$SCRATCH/work" &&
    exec "$(dirname "$SOFTRING")/conformance" record --also-in "$shm" --also-in "$SCRATCH/overlay"
END
    local rc=$?
    rmdir "$shm"
    [ $rc = 0 ] || die 'not recorded; nothing is written'
    {
        printf '# Linux %s, x86-64: ci/record.sh --here.\n' "${release%%[-+]*}"
        cat "$SCRATCH/records"
    } >"$TOP/conformance/recorded/6.18.txt"
    note "$(grep -c '^case ' "$SCRATCH/records") records are in conformance/recorded/6.18.txt"
}

if [ -n "$HERE" ]; then
    record_here
    exit
fi
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
ulimit -n 4096
echo "begin \$(uname -r)"
$BIN/conformance record --times 1 && echo end
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
