#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring by a small client that is linked to liburing.so.

4k random reads of a file in the page cache or in tmpfs, and NOPs, 32 in flight. The client runs on
the kernel and, where io_uring is denied, on softring in turns, so that what else the machine does
hits both alike. Prints the median of each, and the median and the interval of the ratios of the
pairs. Installs liburing-dev and gcc where they are missing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOFTRING = os.environ.get("SOFTRING", os.path.join(TOP, "target/release/softring"))
# The place of each row's file; NOPs have none.
ROWS = {"cached-qd32": "disk", "tmpfs-qd32": "shm", "nop-qd32": None}
BLOCK, BLOCKS, DEPTH = 4096, 16384, 32


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1, help="seconds of each run")
    parser.add_argument("--dir", default="/var/tmp", help="folder for the file in the page cache")
    args = parser.parse_args()
    for name in args.rows:
        if name not in ROWS:
            parser.error(f"no such row: {name}; there are {', '.join(ROWS)}")
    return args


def built(where):
    """The client, linked to the shared liburing."""
    packages = "gcc:gcc /usr/include/liburing.h:liburing-dev"
    subprocess.run(["bash", "-c", f". {TOP}/ci/lib.sh && need {packages}"], check=True)
    client = os.path.join(where, "client")
    source = os.path.join(TOP, "ci/liburing-client.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-o", client, source, "-luring"], check=True)
    libraries = subprocess.run(["ldd", client], capture_output=True, text=True, check=True).stdout
    if "liburing.so" not in libraries:
        sys.exit("the client is not linked to liburing.so, but statically: nothing to compare")
    return client


def laid_out(where):
    """A file whose blocks begin with their numbers; it stays in the page cache."""
    path = os.path.join(where, "file")
    with open(path, "wb") as file:
        for number in range(BLOCKS):
            file.write(number.to_bytes(8, "little").ljust(BLOCK, b"."))
        file.flush()
        os.fsync(file.fileno())
    return path


def run(under, client, what, seconds):
    """One run: I/Os a second, and microseconds of CPU time for each."""
    command = [*under, client, what, str(DEPTH), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    count, took, busy = done.stdout.split()
    return {"iops": int(count) / float(took), "cpu": float(busy) / int(count) * 1e6}


def spread(ratios):
    """Median and interval, for people."""
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def main():
    """Runs the rows that are asked for, and prints them."""
    args = arguments()
    engines = {"kernel": [], "softring": [SOFTRING, "run", "--deny", "--quiet", "--"]}
    with tempfile.TemporaryDirectory(dir=args.dir) as disk, \
            tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        client = built(disk)
        for name in args.rows or ROWS:
            place = {"disk": disk, "shm": shm}.get(ROWS[name])
            what = laid_out(place) if place else "nop"
            got = {engine: [] for engine in engines}
            for _ in range(args.pairs):
                for engine, under in engines.items():
                    got[engine].append(run(under, client, what, args.seconds))
            for engine, runs in got.items():
                iops, cpu = (statistics.median(run[key] for run in runs) for key in ("iops", "cpu"))
                ratios = {key: spread([ours[key] / theirs[key] for ours, theirs
                                       in zip(runs, got["kernel"])]) for key in ("iops", "cpu")}
                print(f"{name:12} {engine:9} {iops:12,.0f} IOPS {cpu:7.3f} us CPU   "
                      f"IOPS x {ratios['iops']}   CPU x {ratios['cpu']}", flush=True)


if __name__ == "__main__":
    main()
