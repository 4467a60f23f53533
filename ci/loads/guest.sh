#!/usr/bin/env bash
# guest.sh DIR  makes in DIR the kernel and the initrd that guest.py boots: fio on the NVMe disk, by
# the words `load=RW,DEPTH,SECONDS` of the kernel's command line.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/../vm.sh"

[ $# = 1 ] || die 'usage: ci/loads/guest.sh DIR'
need "${VM_NEEDS[@]}" fio:fio
scratch guest-load
ROOT=$SCRATCH/root
# shellcheck disable=SC1091
fetch_kernel "$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")" "$1/kernel"
put "$(command -v fio)"
root_fs <<'EOF'
load=$(sed 's/.*load=\([^ ]*\).*/\1/' /proc/cmdline)
IFS=, read -r rw depth seconds <<END
$load
END
echo 'guest: begin'
fio --name=load --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --bs=4k --thread --rw="$rw" \
    --iodepth="$depth" --time_based --runtime="$seconds" --gtod_reduce=1 --output-format=terse
echo 'guest: end'
EOF
pack_root "$1/initrd"
