#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring by fio's own figures.

Each row is one fio job, run in turns (kernel, softring, kernel, softring ...), so that what else
the machine does hits both alike. Prints the median of each engine, and the median and the interval
of the ratios of the pairs. softring runs where io_uring is denied. Needs fio: apt-get install fio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The rows of docs/PERFORMANCE.md: name -> (directory, fio's options).
ROWS = {
    "direct-qd1": ("disk", ["--rw=randread", "--bs=4k", "--iodepth=1", "--direct=1", "--size=1g"]),
    "direct-qd32": ("disk", ["--rw=randread", "--bs=4k", "--iodepth=32", "--direct=1", "--size=1g"]),
    "cached-qd32": ("disk", ["--rw=randread", "--bs=4k", "--iodepth=32", "--size=64m",
                             "--invalidate=0", "--pre_read=1"]),
    "tmpfs-qd32": ("shm", ["--rw=randread", "--bs=4k", "--iodepth=32", "--size=64m"]),
    "write-128k": ("disk", ["--rw=write", "--bs=128k", "--iodepth=32", "--size=256m"]),
}
IOENGINES = {
    "kernel": ["--ioengine=io_uring"],
    "softring": ["--ioengine=io_uring"],
    "posixaio": ["--ioengine=posixaio"],
    "pool": ["--ioengine=psync", "--thread", "--numjobs=16", "--iodepth=1", "--group_reporting"],
}


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="of: " + ", ".join(ROWS))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--engines", default="kernel,softring",
                        help="in this order, the first is the base; of: " + ", ".join(IOENGINES))
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to measure")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for given, known in ((args.rows, ROWS), (args.engines.split(","), IOENGINES)):
        for name in given:
            if name not in known:
                parser.error(f"no such row or engine: {name}; there are {', '.join(known)}")
    return args


def run(engine, options, path, seconds):
    """One run of fio: I/Os a second, and microseconds of CPU for each."""
    softring = os.environ.get("SOFTRING", os.path.join(TOP, "target/release/softring"))
    command = [softring, "run", "--deny", "--quiet", "--"] if engine == "softring" else []
    command += ["fio", "--name=pair", f"--filename={path}", "--output-format=json", *options,
                "--time_based", f"--runtime={seconds}", "--gtod_reduce=1", *IOENGINES[engine]]
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}{done.stdout}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    side = job["write" if "--rw=write" in options else "read"]
    cpu = sum(after[2:4]) - sum(before[2:4])
    return side["iops"], cpu / side["total_ios"] * 1e6


def row(name, args, where):
    """All pairs of one row, by engine."""
    kind, options = ROWS[name]
    path = os.path.join(where[kind], name)
    engines = args.engines.split(",")
    got = {engine: [] for engine in engines}
    run(engines[0], options, path, 1)  # lays the file out
    for number in range(args.pairs):
        for engine in engines:
            got[engine].append(run(engine, options, path, args.seconds))
        if sys.stderr.isatty():
            print(f"\r{name}: {number + 1} of {args.pairs}", end="\033[K", file=sys.stderr)
    os.unlink(path)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return got


def spread(values):
    """Median and interval."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summary(got):
    """Medians of each engine, and its ratios to the first by pairs."""
    base = next(iter(got.values()))
    found = {}
    for engine, runs in got.items():
        pairs = list(zip(runs, base))
        found[engine] = {
            "iops": statistics.median(iops for iops, _ in runs),
            "cpu_us": statistics.median(cpu for _, cpu in runs),
            "iops_ratio": spread([ours[0] / theirs[0] for ours, theirs in pairs]),
            "cpu_ratio": spread([ours[1] / theirs[1] for ours, theirs in pairs]),
        }
    return found


def main():
    """Runs the rows that are asked for, and prints them."""
    args = arguments()
    tables = {}
    with tempfile.TemporaryDirectory(dir=args.dir) as disk, \
            tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        for name in args.rows or ROWS:
            tables[name] = summary(row(name, args, {"disk": disk, "shm": shm}))
            if args.json:
                continue
            for engine, found in tables[name].items():
                iops, cpu = found["iops_ratio"], found["cpu_ratio"]
                print(f"{name:12} {engine:9} {found['iops']:10,.0f} IOPS {found['cpu_us']:7.2f} "
                      f"us CPU   IOPS x {iops['median']:.2f} [{iops['low']:.2f}, "
                      f"{iops['high']:.2f}]   CPU x {cpu['median']:.2f} [{cpu['low']:.2f}, "
                      f"{cpu['high']:.2f}]", flush=True)
    if args.json:
        json.dump(tables, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
