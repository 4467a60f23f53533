#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring, and with others, by fio's own figures.

Each row is one fio job, run in turns (kernel, softring, kernel, softring ...), so that what else
the machine does hits both alike. Prints the median of each engine, and the median and the interval
of the ratios of the pairs. softring runs where io_uring is denied. Needs fio: apt-get install fio.

spin, hybrid, adaptive: polled rings (hipri=1) under softring, by that policy; block: a plain ring
that waits by that policy. libaio-hipri: fio's libaio, polled by softring run --aio-hipri, which
spins; libaio-hybrid, libaio-adaptive: the same by these policies. psync: a
pread(2) or pwrite(2) each, one at a time. null: no I/O at all, what fio itself takes. least: the
least that user space must do for the row, libaio where it is O_DIRECT, psync where it is not.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

DIRECT = ["--direct=1", "--size=1g"]
SEQUENTIAL = ["--bs=128k", "--direct=1", "--size=256m"]
RANDOM = ["--bs=4k", "--direct=1", "--size=256m"]
# The rows of the measurements by fio: name -> (directory, fio's options).
ROWS = {
    "direct-qd1": ("disk", ["--rw=randread", "--bs=4k", "--iodepth=1", *DIRECT]),
    "direct-qd32": ("disk", ["--rw=randread", "--bs=4k", "--iodepth=32", *DIRECT]),
    "cached-qd32": ("disk", ["--rw=randread", "--bs=4k", "--iodepth=32", "--size=64m",
                             "--invalidate=0", "--pre_read=1"]),
    "tmpfs-qd32": ("shm", ["--rw=randread", "--bs=4k", "--iodepth=32", "--size=64m"]),
    "write-128k": ("disk", ["--rw=write", "--bs=128k", "--iodepth=32", "--size=256m"]),
}
# The rows that poll.
POLLED = {
    f"{name}-qd{depth}": ("disk", [f"--rw={rw}", f"--iodepth={depth}", *options])
    for depth in (64, 16, 1)
    for name, rw, options in (("read-128k", "read", SEQUENTIAL),
                              ("write-128k", "write", SEQUENTIAL),
                              ("randread-4k", "randread", RANDOM),
                              ("randwrite-4k", "randwrite", RANDOM))
}
DENIED = ["run", "--deny", "--quiet"]
POLLING = ["--ioengine=io_uring", "--hipri=1"]
# Name -> (softring's arguments, if fio runs under it; fio's options).
ENGINES = {
    "kernel": ([], ["--ioengine=io_uring"]),
    "softring": (DENIED, ["--ioengine=io_uring"]),
    "block": ([*DENIED, "--poll=block"], ["--ioengine=io_uring"]),
    "spin": ([*DENIED, "--poll=spin"], POLLING),
    "hybrid": ([*DENIED, "--poll=hybrid"], POLLING),
    "adaptive": ([*DENIED, "--poll=adaptive"], POLLING),
    "libaio": ([], ["--ioengine=libaio"]),
    "libaio-hipri": (["run", "--quiet", "--aio-hipri"], ["--ioengine=libaio"]),
    "libaio-hybrid": (["run", "--quiet", "--aio-hipri", "--poll=hybrid"], ["--ioengine=libaio"]),
    "libaio-adaptive": (["run", "--quiet", "--aio-hipri", "--poll=adaptive"],
                        ["--ioengine=libaio"]),
    "posixaio": ([], ["--ioengine=posixaio"]),
    "pool": ([], ["--ioengine=psync", "--thread", "--numjobs=16", "--iodepth=1",
                  "--group_reporting"]),
    "psync": ([], ["--ioengine=psync"]),
    "null": ([], ["--ioengine=null"]),
}
# How the least that user space must do is run, by whether a row is O_DIRECT.
LEAST = {True: "libaio", False: "psync"}


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    known_rows = ROWS | POLLED
    parser.add_argument("rows", nargs="*", metavar="ROW",
                        help=f"of: {', '.join(known_rows)} (default: the first {len(ROWS)})")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="seconds of each run")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the file")
    parser.add_argument("--engines", default="kernel,softring",
                        help="engines in this order, the first is the base; of: " + ", ".join([*ENGINES, "least"]))
    parser.add_argument("--latency", action="store_true",
                        help="let fio measure and print the latency of each I/O")
    parser.add_argument("--dir", default="/var/tmp", help="folder on the disk to measure")
    parser.add_argument("--json", action="store_true", help="print JSON, with each run")
    args = parser.parse_args()
    for given, known in ((args.rows, known_rows), (args.engines.split(","), [*ENGINES, "least"])):
        for name in given:
            if name not in known:
                parser.error(f"no such row or engine: {name}; there are {', '.join(known)}")
    return args


def fio(engine, options):
    """Runs fio; its report on the job, and the processor time of all its threads in seconds."""
    softring = os.environ.get("SOFTRING", os.path.join(TOP, "target/release/softring"))
    if engine == "least":
        engine = LEAST["--direct=1" in options]
    under, ioengine = ENGINES[engine]
    command = [softring, *under, "--"] if under else []
    command += ["fio", "--name=pair", "--output-format=json", *options, *ioengine]
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}{done.stdout}")
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    return job, sum(after[2:4]) - sum(before[2:4])


def run(engine, options, idle, seconds, latency=False):
    """One run: I/Os a second, microseconds of CPU for each, and latencies in microseconds. `idle`:
    what fio takes to start and to end, which is not the I/Os'."""
    timing = [] if latency else ["--gtod_reduce=1"]
    job, busy = fio(engine, [*options, "--time_based", f"--runtime={seconds}", *timing])
    side = job["write" if "write" in options[0] else "read"]
    cpu = max(busy - idle, 0)
    got = {"iops": side["iops"], "cpu_us": cpu / side["total_ios"] * 1e6,
           "cpu_percent": cpu / side["runtime"] * 1e5}
    if latency:
        lat, percentiles = side["lat_ns"], side["clat_ns"]["percentile"]
        got["mean_us"] = lat["mean"] / 1e3
        for name, key in (("p50", "50"), ("p99", "99"), ("p999", "99.9")):
            got[f"{name}_us"] = percentiles[f"{float(key):.6f}"] / 1e3
    return got


def row(name, args, where):
    """All pairs of one row, by engine."""
    kind, options = (ROWS | POLLED)[name]
    path = os.path.join(where[kind], name)
    options = [*options, f"--filename={path}"]
    engines = args.engines.split(",")
    got = {engine: [] for engine in engines}
    fio(engines[0], [*options, "--time_based", "--runtime=1"])  # lays the file out
    if args.jobs > 1:
        options += [f"--numjobs={args.jobs}", "--group_reporting"]
    idle = {engine: fio(engine, [*options, "--number_ios=1"])[1] for engine in engines}
    for number in range(args.pairs):
        for engine in engines:
            got[engine].append(run(engine, options, idle[engine], args.seconds, args.latency))
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
        found[engine] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        found[engine]["runs"] = runs
        for key, name in (("iops", "iops"), ("cpu_us", "cpu"), ("mean_us", "mean")):
            if key in runs[0]:
                ratios = [ours[key] / theirs[key] for ours, theirs in zip(runs, base)]
                found[engine][f"{name}_ratio"] = spread(ratios)
    return found


def line(name, engine, found):
    """What was found of one engine, for people."""
    def times(key):
        got = found[key]
        return f"x {got['median']:.2f} [{got['low']:.2f}, {got['high']:.2f}]"
    text = (f"{name:16} {engine:12} {found['iops']:10,.0f} IOPS {found['cpu_us']:7.2f} us CPU "
            f"{found['cpu_percent']:4.0f} %   IOPS {times('iops_ratio')}   "
            f"CPU {times('cpu_ratio')}")
    if "mean_us" in found:
        text += (f"   mean {found['mean_us']:.1f} p50 {found['p50_us']:.1f} p99 "
                 f"{found['p99_us']:.1f} p99.9 {found['p999_us']:.1f} us, "
                 f"mean {times('mean_ratio')}")
    return text


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
                print(line(name, engine, found), flush=True)
    if args.json:
        json.dump(tables, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
