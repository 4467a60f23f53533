#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under event loops that sleep in their own poll.

ci/loads/event-loop.c runs on the kernel and, where io_uring is denied, on softring in turns, so that
what else the machine does hits both alike. Prints requests a second and microseconds of processor
time for each on the kernel, and the median and the interval of the ratios of the pairs. With --least,
also those of the least that user space must do: its shape calls, the same for each shape of the loop.

With --polled it compares instead what polling can gain: kernel aio whose memory the program polls without
a pause, by kernel aio that sleeps in io_getevents(2), with no softring in either.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile

from turns import TOP, UNDER, add, add_least, counted, make_file, ratios

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
    parser.add_argument("--least", action="store_true",
                        help="run also the least that user space must do: an epoll_wait for each round, "
                             "io_submit, and events from memory; send, recv and FIONREAD")
    parser.add_argument("--polled", action="store_true",
                        help="compare polled kernel aio with kernel aio that sleeps, reads and writes")
    args = parser.parse_args()
    if args.least:
        add_least()
    if args.polled:
        args.shapes, args.what = ["aio"], [what for what in args.what if what in ("read", "write")]
        UNDER.clear()
        UNDER.update(getevents=[], spin=[])
    return args


def run(name, loop, row, seconds, file):
    """One run: requests a second, microseconds of processor time for each, and how many."""
    shape, what, depth = row
    shape = {"least": "calls", "getevents": "getevents", "spin": "spin"}.get(name, shape)
    command = [*UNDER[name], loop, shape, what, str(depth), str(seconds), file]
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

        def one(name, row):
            return run(name, loop, row, args.seconds, file)

        if args.calls:
            counted(rows, one)
        else:
            show(rows, one, args)


def show(rows, one, args):
    """Runs the rows, and prints their figures. `one`: as for `counted`."""
    names = [name for name in UNDER if name != "own"]
    base = names[0]
    by = f"by {base}'s" if base != "kernel" else "by the kernel's"
    titles = [f"{name}'s speed {by} | CPU {by}" for name in names[1:]]
    print(f"| event loop | depth | {base}, requests/s | CPU | {' | '.join(titles)} |")
    print(f"|{'---|' * (4 + 2 * len(titles))}")
    for row in rows:
        runs = {name: [] for name in names}
        for _ in range(args.pairs):
            for name in names:
                runs[name].append(one(name, row)[:2])
        rate, cpu = (statistics.median(r[what] for r in runs[base]) for what in (0, 1))
        cells = [cell for name in names[1:] for cell in ratios(runs[name], runs[base])]
        shape, what, depth = row
        print(f"| {shape}, {what} | {depth} | {rate:,.0f} | {cpu:.1f} µs | {' | '.join(cells)} |",
              flush=True)
        if args.json:
            runs = {name: [(speed, busy / 1e6) for speed, busy in some] for name, some in runs.items()}
            add(args.json, f"{shape}, {what}, {depth}", runs)


if __name__ == "__main__":
    main()
