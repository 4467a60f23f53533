#!/usr/bin/env python3
"""Measures what libsoftring.so costs a program where the kernel's rings work, so that it has nothing to do.

Runs allowed.c without a library, under libsoftring.so, and under the least that a preloaded library
must do (allowed-least.c) in turns, so that what else the machine does hits all alike. Prints the time
of a call: an enter of one NOP on the kernel's ring, a poll(2), a dup(2) and a close(2). Then the
processor time that two programs take to start and to end, and what each library adds to it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from turns import SOFTRING, TOP, need, processor, run, spread

CALLS = ("enter", "poll", "dup")
STARTS = {"true": ["/bin/true"], "qemu-img": ["qemu-img", "--version"]}
STARTED = 40


def build(place, library):
    """Builds what is measured; the library of each run by name, "" where there is none."""
    program, least = os.path.join(place, "allowed"), os.path.join(place, "least.so")
    for out, flags in ((program, ["allowed.c"]), (least, ["-fPIC", "-shared", "allowed-least.c"])):
        subprocess.run(["cc", "-O2", "-Wall", "-o", out, *flags], check=True,
                       cwd=os.path.join(TOP, "ci/loads"))
    return program, {"without": "", "softring": library, "least": least}


def preloaded(library):
    """The environment of a run."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SOFTRING")}
    env.pop("LD_PRELOAD", None)
    return {**env, "LD_PRELOAD": library} if library else env


def start(command, library):
    """Milliseconds of processor time to start a program and to end it."""
    busy = 0
    for _ in range(STARTED):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=preloaded(library))
        status, used = processor(child.pid)
        child.returncode = status
        if status:
            sys.exit(f"{' '.join(command)} under {library}: status {status}")
        busy += used
    return busy / STARTED * 1e3


def table(title, names, one, pairs, apart):
    """Prints a row for each name: `one(name, library)` makes a run. `apart`: how a library's run differs
    from that without."""
    print(f"\n| {title} | without | softring | least |\n|---|---|---|---|")
    for name in names:
        runs = [one(name) for _ in range(pairs)]
        without = statistics.median(r["without"] for r in runs)
        cells = [spread([apart(r[key], r["without"]) for r in runs]) for key in ("softring", "least")]
        print(f"| {name} | {without:.2f} | {' | '.join(cells)} |", flush=True)


def main():
    """Runs all rows, and prints them."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    need({"cc": "gcc", "qemu-img": "qemu-utils"})
    library = os.path.join(os.path.dirname(SOFTRING), "libsoftring.so")
    with tempfile.TemporaryDirectory() as place:
        program, libraries = build(place, library)

        def call(name):
            return {key: float(run([program, name], preloaded(at))[0]) for key, at in libraries.items()}

        def begin(name):
            return {key: start(STARTS[name], at) for key, at in libraries.items()}

        table("a call, ns; times that without", CALLS, call, args.pairs, lambda a, b: a / b)
        table("start, ms of processor time; more than without", STARTS, begin, args.pairs, lambda a, b: a - b)


if __name__ == "__main__":
    main()
