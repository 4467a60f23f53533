#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under programs that distributions package.

Runs Node's fs (files-node.js, on libuv's rings) and `qemu-img bench` on the kernel, on softring where
io_uring is denied, and on the program's own way without rings (threads) in turns, so that what else
the machine does hits all alike. Prints requests a second, and the median and the interval of
softring's ratios to the other two of the same round, of speed and of processor time.

With --root, as root: the qemu-img of a newer Debian in that folder, which ci/loads/root.sh makes, and
files through Qt (files-qt.cpp) and GLib's libdex (files-dex.c), built there.

With --least, also the least that user space must do, in the same turns, and its ratios to the kernel's
rings: QEMU's aio=native, which makes an io_submit(2) for each request, waits for an eventfd, and takes
the events from the ring that kernel aio maps into memory; of files-dex, the system calls themselves,
made by its loop.
"""

import os
import re
import shutil
import subprocess
import tempfile

from turns import QEMU_AIO, TOP, UNDER, enter, make_file, need, parsed, parser, run, show

DEPTHS = (1, 16, 32, 64)
QEMU = [f"qemu-{what}-{depth}" for what in ("read", "write") for depth in DEPTHS]
# How the programs of a root are built, and of what.
BUILDS = {
    "files-qt": ("files-qt.cpp", "g++ -std=c++17 -fPIC -O2 -Wall $(pkgconf --cflags Qt6Core) "
                 "-I$(pkgconf --variable=includedir Qt6Core)/QtCore/$(pkgconf --modversion Qt6Core) "
                 "-o $0 $0.cpp $(pkgconf --libs Qt6Core)"),
    "files-dex": ("files-dex.c", "gcc -O2 -Wall -o $0 $0.c $(pkgconf --cflags --libs libdex-1)"),
}
ROWS = ["files-node", *QEMU]
ROOT_ROWS = [*QEMU, *BUILDS]
# The rows for which a program does the least that user space must do.
LEAST = [*QEMU, "files-dex"]
TASKS, FILES = 16, 2000
QT_REQUESTS = 48000
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


def build(row, root, place):
    """Builds a program of a root; its path inside."""
    source, command = BUILDS[row]
    shutil.copy(os.path.join(TOP, "ci/loads", source), place)
    built = os.path.join("/", os.path.relpath(place, root), row)
    subprocess.run(["chroot", root, "sh", "-c", command, built], check=True)
    return built


def files(name, built, place):
    """One run of a program of a root, which that folder is in: as `node`."""
    if built.endswith("qt"):
        asked, count, on = QT_REQUESTS, QT_REQUESTS, os.path.join(place, "files", "one")
    else:
        asked, count, on = FILES, FILES * 6, os.path.join(place, "files")
    words = ["calls"] if name == "least" else []
    text, used = run([*UNDER[name], built, str(TASKS), str(asked), on, *words])
    return float(text), used / count, count


def qemu(name, row, image):
    """One run of qemu-img: requests a second, processor time of each, and how many."""
    _, what, depth = row.split("-")
    aio = QEMU_AIO.get(name, "io_uring")
    count = COUNT[int(depth)]
    command = [*UNDER[name], "qemu-img", "bench", "-f", "raw", "-t", "none", "-i", aio,
               "-c", str(count), "-d", depth, "-s", "4096", "-S", "20480"]
    command += ["-w"] if what == "write" else []
    text, used = run([*command, image])
    seconds = float(re.search(r"in ([0-9.]+) seconds", text)[1])
    return count / seconds, used / count, count


def programs(args):
    """What must be there: names, and Debian's packages."""
    needed = {"qemu-img": "qemu-utils"}
    if not args.root:
        needed["node"] = "nodejs"
    path = os.environ["PATH"]
    if args.root:
        path = ":".join(os.path.join(args.root, folder) for folder in ("usr/bin", "bin"))
    need(needed, path, ", or ci/loads/root.sh for a root")


def main():
    """Runs the rows that are asked for, and prints them."""
    own = parser(__doc__, ROWS + list(BUILDS), "QEMU's aio=native, and calls")
    own.add_argument("--root", metavar="DIR", help="run the programs of this root, not the machine's")
    args = parsed(own, lambda args: ROOT_ROWS if args.root else ROWS)
    programs(args)
    if args.root:
        args.root = os.path.realpath(args.root)
        args.dir = os.path.join(args.root, "var/tmp")
        enter(args.root)
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        make_file(os.path.join(place, "image"), SIZE)
        inside = os.path.join("/", os.path.relpath(place, args.root)) if args.root else place
        os.mkdir(os.path.join(place, "files"))
        built = {row: build(row, args.root, place) for row in args.rows if row in BUILDS}

        def one(name, row):
            if name == "least" and row not in LEAST:
                return None
            if row == "files-node":
                return node(name, place)
            if row in built:
                return files(name, built[row], inside)
            return qemu(name, row, os.path.join(inside, "image"))

        show(args, one)


if __name__ == "__main__":
    main()
