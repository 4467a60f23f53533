#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under programs that distributions package.

Runs Node's fs (files-node.js, on libuv's rings) and `qemu-img bench` on the kernel, on softring where
io_uring is denied, and on the program's own way without rings (threads) in turns, so that what else
the machine does hits all alike. Prints requests a second, and the median and the interval of
softring's ratios to the other two of the same round, of speed and of processor time.
"""

import os
import re
import shutil
import sys
import tempfile

from turns import TOP, UNDER, compare, counted, parsed, parser, run

DEPTHS = (1, 16, 32, 64)
ROWS = ["files-node"]
ROWS += [f"qemu-{what}-{depth}" for what in ("read", "write") for depth in DEPTHS]
TASKS, FILES = 16, 2000
SIZE = 64 << 20
# Requests of one run of qemu-img, by depth: about half a second.
COUNT = {1: 8000, 16: 25000, 32: 30000, 64: 40000}


def node(name, place):
    """One run of Node's files: requests a second, processor time of each, and how many."""
    env = {"UV_USE_IO_URING": "0" if name == "own" else "1"}
    with tempfile.TemporaryDirectory(dir=place) as files:
        script = os.path.join(TOP, "ci/loads/files-node.js")
        command = [*UNDER[name], "node", script, str(TASKS), str(FILES), files]
        text, used = run(command, env)
    return float(text), used / (FILES * 7), FILES * 7


def qemu(name, row, image):
    """One run of qemu-img: requests a second, processor time of each, and how many."""
    _, what, depth = row.split("-")
    aio = "threads" if name == "own" else "io_uring"
    count = COUNT[int(depth)]
    command = [*UNDER[name], "qemu-img", "bench", "-f", "raw", "-t", "none", "-i", aio,
               "-c", str(count), "-d", depth, "-s", "4096", "-S", "20480"]
    command += ["-w"] if what == "write" else []
    text, used = run([*command, image])
    seconds = float(re.search(r"in ([0-9.]+) seconds", text)[1])
    return count / seconds, used / count, count


def main():
    """Runs the rows that are asked for, and prints them."""
    args = parsed(parser(__doc__, ROWS), ROWS)
    for program, package in (("node", "nodejs"), ("qemu-img", "qemu-utils")):
        if not shutil.which(program):
            sys.exit(f"{program} is needed: apt-get install {package}")
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        image = os.path.join(place, "image")
        with open(image, "wb") as data:
            for _ in range(SIZE >> 20):
                data.write(bytes(1 << 20))
            data.flush()
            os.fsync(data.fileno())
            # Else the first write to each page would find it in the cache, and go to a worker.
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def one(name, row):
            return node(name, place) if row == "files-node" else qemu(name, row, image)

        if args.calls:
            counted(args.rows, one)
        else:
            compare(args.rows, one, args.pairs, args.json)


if __name__ == "__main__":
    main()
