#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under event loops that sleep in their own poll.

ci/loads/event-loop.c runs on the kernel and, where io_uring is denied, on softring in turns, so that
what else the machine does hits both alike. Prints requests a second and microseconds of processor
time for each on the kernel, and the median and the interval of the ratios of the pairs.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile

from turns import TOP, UNDER, add, counted, make_file, spread

SHAPES, WHAT = ("ppoll", "level", "edge", "eventfd"), ("read", "write", "sockets", "both")
SIZE = 64 << 20


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 16, 128])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds of each run")
    parser.add_argument("--json", metavar="FILE", help="add the runs of each row to this file")
    parser.add_argument("--dir", default="/var/tmp", help="folder for the file, on a disk")
    parser.add_argument("--calls", action="store_true",
                        help="count system calls per request by strace, instead of time")
    return parser.parse_args()


def run(under, loop, shape, what, depth, seconds, file):
    """One run: requests a second, microseconds of processor time for each, and how many."""
    command = [*under, loop, shape, what, str(depth), str(seconds), file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    count, took, busy = done.stdout.split()
    return int(count) / float(took), float(busy) / max(int(count), 1) * 1e6, int(count)


def main():
    """Runs the rows that are asked for, and prints them."""
    args = arguments()
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        loop, file = os.path.join(place, "event-loop"), os.path.join(place, "file")
        source = os.path.join(TOP, "ci/loads/event-loop.c")
        subprocess.run(["cc", "-O2", "-Wall", "-o", loop, source], check=True)
        make_file(file, SIZE)
        rows = list(itertools.product(args.shapes, args.what, args.depths))
        if args.calls:
            counted(rows, lambda by, row: run(UNDER[by], loop, *row, args.seconds, file))
            return
        print("| event loop | depth | kernel, requests/s | CPU | softring's speed by the kernel's "
              "| CPU by the kernel's |\n|---|---|---|---|---|---|")
        for shape, what, depth in rows:
            pairs = []
            for _ in range(args.pairs):
                pairs.append([run(by, loop, shape, what, depth, args.seconds, file)
                              for by in (UNDER["kernel"], UNDER["softring"])])
            rate, cpu = (statistics.median(theirs[i] for theirs, _ in pairs) for i in (0, 1))
            speeds, costs = ([ours[i] / theirs[i] for theirs, ours in pairs] for i in (0, 1))
            print(f"| {shape}, {what} | {depth} | {rate:,.0f} | {cpu:.1f} µs | {spread(speeds)} "
                  f"| {spread(costs)} |", flush=True)
            if args.json:
                runs = {name: [(pair[i][0], pair[i][1] / 1e6) for pair in pairs]
                        for i, name in enumerate(("kernel", "softring"))}
                add(args.json, f"{shape}, {what}, {depth}", runs)


if __name__ == "__main__":
    main()
