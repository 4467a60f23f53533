#!/usr/bin/env bash
# Runs the hardened unit of examples/containers under systemd as process 1, with its control groups,
# in a virtual machine that has Debian 12, the .deb and the unit as it is. fio has no ring there
# without the library, and has one with it, also by the lines that `softring doctor --for` prints in
# a service. Needs root rights.
set -eu
# A guest without KVM is slow.
LIMIT=${LIMIT:-400}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/vm.sh"

usage() {
    cat <<EOF
usage: ci/service.sh [--dist DIR]
  --dist DIR  folder of the packages from ci/package.sh (default: dist/out)
EOF
}

packed "$@"
need "${VM_NEEDS[@]}" mkfs.ext4:e2fsprogs
scratch service
ROOT=$SCRATCH/root DISK=$SCRATCH/disk SYSTEM=$SCRATCH/system
UNIT=$TOP/examples/containers/fio.service
UNITS=$SYSTEM/etc/systemd/system

fetch_kernel bookworm "$SCRATCH/kernel"
debian_root bookworm "$SYSTEM" --include=systemd-sysv,fio
cp "$DIST"/*.deb "$SYSTEM/softring.deb"
inside "$SYSTEM" dpkg -i /softring.deb >/dev/null
cp "$UNIT" "$UNITS/fio.service"
sed '/^Environment=LD_PRELOAD=/d' "$UNIT" >"$UNITS/fio-without.service"
cp "$UNITS/fio-without.service" "$UNITS/fio-edited.service"
mkdir "$UNITS/fio-edited.service.d"
cat >"$SYSTEM/check" <<'END_OF_CHECK'
#!/bin/sh
# As `systemctl edit` would have it.
softring doctor --for >/etc/systemd/system/fio-edited.service.d/override.conf
systemctl daemon-reload
for unit in fio fio-without fio-edited; do
    # `start --wait` would want a bus.
    systemctl start $unit.service
    while systemctl is-active --quiet $unit.service; do sleep 0.2; done
    journalctl --sync
    journalctl -o cat -u $unit.service | sed "s/^/$unit: /"
    echo "service: $unit: $(systemctl show --value -p Result $unit.service)"
done
systemd-analyze security --no-pager fio.service | tail -n 1
systemctl poweroff --force --force
END_OF_CHECK
chmod +x "$SYSTEM/check"
cat >"$UNITS/check.service" <<'END_OF_UNIT'
[Service]
Type=oneshot
ExecStart=/check
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END_OF_UNIT
cat >"$UNITS/check.target" <<'END_OF_UNIT'
[Unit]
Requires=basic.target check.service
After=basic.target
END_OF_UNIT
ln -sf check.target "$UNITS/default.target"
truncate -s 1g "$DISK"
mkfs.ext4 -q -d "$SYSTEM" "$DISK"
rm -rf "$SYSTEM"
root_fs <<'END_OF_INIT'
mount /dev/nvme0n1 /mnt
mount --move /dev /mnt/dev
umount /tmp /sys /proc
exec switch_root /mnt /sbin/init
END_OF_INIT
boot "$SCRATCH/kernel" | tee "$SCRATCH/log"
has() {
    grep -q "^$1" "$SCRATCH/log" || die "the machine did not print: $1"
}

has 'service: fio: success$'
has 'fio: .*err= 0'
has 'service: fio-edited: success$'
has 'fio-edited: .*err= 0'
has 'service: fio-without: exit-code$'
has 'fio-without: .*Operation not permitted'
echo 'the unit runs under systemd, and has rings by softring only'
