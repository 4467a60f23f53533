"""What the loads of this folder share: runs in turns, and how their ratios are printed."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOFTRING = os.environ.get("SOFTRING", os.path.join(TOP, "target/release/softring"))
UNDER = {
    "kernel": [],
    "softring": [SOFTRING, "run", "--deny", "--quiet", "--"],
    "own": [SOFTRING, "deny", "--"],
}


def parser(doc, rows):
    """The command line of a comparison of rows."""
    own = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    own.add_argument("rows", nargs="*", metavar="ROW", help=f"which: {', '.join(rows)} (all)")
    own.add_argument("--pairs", type=int, default=7)
    own.add_argument("--json", metavar="FILE", help="add the runs of each row to this file")
    own.add_argument("--dir", default="/var/tmp", help="folder for files, on a disk")
    return own


def parsed(own, rows):
    """The arguments, with all rows if none is named."""
    args = own.parse_args()
    unknown = set(args.rows) - set(rows)
    if unknown:
        own.error(f"no such row: {', '.join(sorted(unknown))}")
    args.rows = args.rows or rows
    return args


def spread(ratios):
    """Median and interval, for people."""
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def processor(pid):
    """Waits for a process; its status, and seconds of processor time that it has taken."""
    _, status, used = os.wait4(pid, 0)
    return status, used.ru_utime + used.ru_stime


def run(command, env=None):
    """Runs a command; what it prints, and its processor time."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}) as child:
        text = child.stdout.read()
        child.returncode, used = processor(child.pid)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: status {child.returncode}")
    return text, used


def compare(rows, one, pairs, results=None):
    """Prints a table: each row's speed and processor time, softring's by the kernel's and by those of
    the program's own way without rings. `one(name, row)` makes one run, `name` one of UNDER, and
    returns speed and processor time. `results`: a file that gets the runs as JSON, added to what it
    has."""
    print("| load | kernel | softring | to the kernel's | processor time | to its own | processor time |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        runs = {name: [] for name in UNDER}
        for turn in range(pairs):
            order = list(UNDER) if turn % 2 == 0 else list(UNDER)[::-1]
            for name in order:
                runs[name].append(one(name, row))
        speed = {name: statistics.median(r[0] for r in some) for name, some in runs.items()}
        cells = [f"{speed['kernel']:.0f}", f"{speed['softring']:.0f}"]
        for other in ("kernel", "own"):
            for what in (0, 1):
                ours_and_theirs = zip(runs["softring"], runs[other])
                cells.append(spread([ours[what] / theirs[what] for ours, theirs in ours_and_theirs]))
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
        if results:
            add(results, row, runs)


def add(results, row, runs):
    """Adds the runs of a row, each its speed and seconds of processor time for each request."""
    try:
        with open(results, encoding="utf-8") as file:
            known = json.load(file)
    except FileNotFoundError:
        known = {"date": time.strftime("%Y-%m-%d"), "kernel": platform.release(),
                 "processors": os.cpu_count(), "rows": {}}
    known["rows"][row] = runs
    with open(results, "w", encoding="utf-8") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
