#!/usr/bin/env bash
# Runs the conformance cases that take a machine of their own in a virtual one: NVMe commands to a
# device, and steps of the clock. On the guest kernel's own io_uring, and on softring through each
# entry point. The disk is QEMU's, the kernel is Debian's for clouds, fetched at test time.
set -eu
# A guest without KVM is slow.
LIMIT=${LIMIT:-400}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

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
need qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio dpkg-deb:dpkg
need_softring
scratch guest
BIN=$(dirname "$SOFTRING")
ROOT=$SCRATCH/root

# The kernel, with NVMe and io_uring built in: unpacked, not installed.
fetch_kernel() {
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -n 1)
    (cd "$SCRATCH" && apt-get download -qq -o APT::Sandbox::User=root "$package") ||
        die "cannot fetch ${package:-the kernel linux-image-cloud-amd64}; try apt-get update"
    dpkg-deb --fsys-tarfile "$SCRATCH"/linux-image-*.deb |
        tar -x -C "$SCRATCH" --wildcards './boot/vmlinuz-*' --transform 's,.*/,,'
    mv "$SCRATCH"/vmlinuz-* "$SCRATCH/kernel"
}

# put FILE…  copies programs and the libraries that they need, as they lie here.
put() {
    local file library
    for file in "$@"; do
        install -D "$file" "$ROOT$file"
        ldd "$file" | grep -o '/[^ ]*' | while read -r library; do
            [ -e "$ROOT$library" ] || install -D "$library" "$ROOT$library"
        done
    done
}

mkdir -p "$ROOT"/{bin,dev,proc,sys,tmp}
fetch_kernel
cp "$(command -v busybox)" "$ROOT/bin/busybox"
put "$BIN/conformance" "$BIN/libsoftring.so"
cat >"$ROOT/init" <<EOF
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /tmp
ip link set lo up
until [ -e /dev/ng0n1 ]; do sleep 0.1; done
export CONFORMANCE_SETS_CLOCK=1
# One case at a time, as all have the clock in common. Not to a terminal, where it would show
# progress.
set -f
for cases in $CASES; do
    ($BIN/conformance all --jobs 1 --case "\$cases"; echo "guest: exit \$?") 2>&1 | cat
done
poweroff -f
EOF
chmod +x "$ROOT/init"
(cd "$ROOT" && find . | cpio -o -H newc --quiet | gzip -1) >"$SCRATCH/initrd"
truncate -s 64m "$SCRATCH/disk"
timeout "$LIMIT" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1024 -smp 2 -nographic \
    -no-reboot -nodefaults -serial stdio -kernel "$SCRATCH/kernel" -initrd "$SCRATCH/initrd" \
    -append 'console=ttyS0 quiet loglevel=0 panic=-1 nvme.poll_queues=1' \
    -drive file="$SCRATCH/disk",if=none,format=raw,id=disk \
    -device nvme,serial=softring,drive=disk </dev/null | tr -d '\r' | tee "$SCRATCH/log"
grep -q '^guest: exit 0$' "$SCRATCH/log" && ! grep -q '^guest: exit [1-9]' "$SCRATCH/log"
