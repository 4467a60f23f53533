#!/usr/bin/env python3
"""Measures a ring's whole life: made, mapped, unmapped and closed; and the same with one O_DIRECT read.

Runs operations.c on the kernel's ring, on softring's where that is denied, and without a ring but with
the least that user space must do, in turns, so that what else the machine does hits all alike. Prints
the time of a ring, and its ratio to the kernel's: of time (what the kernel does after a close counts
only as far as it delays the next ring), and of the process's own processor time.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time

from turns import SOFTRING, TOP, make_file, need, processor, spread

RINGS = 2000
ROWS = {"ring": "made and closed", "first": "one O_DIRECT read"}
UNDER = {
    "kernel": [],
    "softring": [SOFTRING, "run", "--deny", "--quiet", "--"],
    "least": [],
}


def taken(command):
    """Seconds of a command, and of processor time."""
    begun = time.monotonic()
    child = subprocess.Popen(command)
    child.returncode, busy = processor(child.pid)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: status {child.returncode}")
    return time.monotonic() - begun, busy


def ring(program, name, row, file):
    """Microseconds of a ring, and of processor time; what starts and ends the program does not count."""
    what = f"least-{row}" if name == "least" else row
    none, all_rings = (taken([*UNDER[name], program, what, str(n), file]) for n in (0, RINGS))
    return [(b - a) / RINGS * 1e6 for a, b in zip(none, all_rings)]


def main():
    """Runs all rows, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--dir", default="/var/tmp", help="folder for a file, on a disk")
    args = parser.parse_args()
    need({"cc": "gcc"})
    print("| a ring | kernel, µs | softring, µs | time | processor time | least, µs | time | processor time |")
    print(f"|{'---|' * 8}")
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        program, file = os.path.join(place, "operations"), os.path.join(place, "file")
        subprocess.run(["cc", "-O1", "-o", program, os.path.join(TOP, "ci/loads/operations.c")], check=True)
        make_file(file, 1 << 20)
        for row, title in ROWS.items():
            runs = [{name: ring(program, name, row, file) for name in UNDER} for _ in range(args.pairs)]
            middle = {name: statistics.median(r[name][0] for r in runs) for name in UNDER}
            cells = [f"{middle['kernel']:.1f}"]
            for name in ("softring", "least"):
                ratios = [spread([r[name][i] / r["kernel"][i] for r in runs]) for i in (0, 1)]
                cells += [f"{middle[name]:.1f}", *ratios]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
