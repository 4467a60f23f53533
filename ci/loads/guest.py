#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under QEMU's system emulation (TCG).

Boots a small guest (ci/loads/guest.sh makes it) whose NVMe disk is a file, and runs fio in it: with
QEMU's aio=io_uring on the kernel and on softring where io_uring is denied, and with aio=threads, in
turns, so that what else the machine does hits all alike. Prints the I/Os a second that the guest
sees, and the median and the interval of softring's ratios to the other two of the same round, of
speed and of QEMU's processor time while fio runs. With --least, also the least that user space must
do, QEMU's aio=native, to the kernel's rings.
"""

import os
import subprocess
import sys
import tempfile

from turns import QEMU_AIO, TOP, UNDER, make_file, parsed, parser, show, used

ROWS = [f"guest-{rw}-{depth}" for rw in ("randread", "randwrite") for depth in (1, 16)]
SIZE = 64 << 20


def guest(name, row, args, place):
    """One boot: I/Os a second, processor time of each, and how many."""
    _, rw, depth = row.split("-")
    aio = QEMU_AIO.get(name, "io_uring")
    command = [*UNDER[name], "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024",
               "-smp", "2", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
               "-kernel", os.path.join(place, "kernel"), "-initrd", os.path.join(place, "initrd"),
               "-append", f"console=ttyS0 quiet loglevel=0 panic=-1 load={rw},{depth},{args.seconds}",
               "-drive", f"file={place}/disk,if=none,format=raw,id=disk,cache=none,aio={aio}",
               "-device", "nvme,serial=softring,drive=disk"]
    terse, begun, ended = None, None, None
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as qemu:
        for line in qemu.stdout:
            if "guest: begin" in line:
                begun = used(qemu.pid)
            elif "guest: end" in line:
                ended = used(qemu.pid)
            elif ";fio-" in line:
                terse = line.split(";")
    if qemu.returncode or None in (terse, begun, ended):
        sys.exit(f"{' '.join(command)}: status {qemu.returncode}, and fio said {terse}")
    # fio's terse output, version 3: KiB, bandwidth and I/Os a second of reads, and of writes.
    at = 5 if rw == "randread" else 46
    count = int(terse[at]) // 4
    return float(terse[at + 2]), (ended - begun) / count, count


def main():
    """Runs the rows that are asked for, and prints them."""
    own = parser(__doc__, ROWS, "QEMU's aio=native")
    own.add_argument("--seconds", type=int, default=3, help="seconds of each run of fio")
    args = parsed(own, ROWS)
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        subprocess.run([os.path.join(TOP, "ci/loads/guest.sh"), place], check=True)
        make_file(os.path.join(place, "disk"), SIZE)

        def one(name, row):
            return guest(name, row, args, place)

        show(args, one)


if __name__ == "__main__":
    main()
