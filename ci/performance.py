#!/usr/bin/env python3
"""Measures the table of docs/PERFORMANCE.md: softring beside the kernel's io_uring.

Each row is one `softring bench`, whose engines take turns, so that what else the machine does hits
all alike. The raw results go to docs/results/DATE.json, the table to standard output; --table FILE
prints the table of such a file again. Needs a release build (make build).
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ECHO = ["--op", "echo", "--bs", "64", "--seconds", "0.5"]
RANDOM = ["--rw", "randread", "--seconds", "0.5"]
CACHED = [*RANDOM, "--depth", "32", "--size", "64m"]
DIRECT = [*RANDOM, "--direct", "--depth"]
WRITE = ["--rw", "write", "--bs", "128k", "--size", "256m", "--seconds", "0.5"]
POLL = ["--op", "poll", "--seconds", "0.5", "--depth"]
MSG_RING = ["--op", "msg-ring", "--depth", "1", "--seconds", "0.5"]
FUTEX = ["--op", "futex", "--depth", "1", "--seconds", "0.5"]
# Title of a row, options of `softring bench`, and other engines that can do the same.
ROWS = [
    ("NOP, 32 per call", ["--op", "nop", "--batch", "32", "--seconds", "0.4"], []),
    ("cached 4 KiB reads, 32 in flight", CACHED, ["posix-aio", "calls"]),
    ("the same on tmpfs", [*CACHED, "--dir", "/dev/shm"], ["posix-aio", "calls"]),
    ("O_DIRECT 4 KiB reads, 1 in flight", [*DIRECT, "1"], ["posix-aio", "libaio"]),
    ("O_DIRECT 4 KiB reads, 32 in flight", [*DIRECT, "32"], ["posix-aio", "libaio"]),
    ("the same, one request for each call", [*DIRECT, "32", "--batch", "1"], ["posix-aio", "libaio"]),
    ("buffered 128 KiB writes", WRITE, ["posix-aio", "calls"]),
    ("TCP echo, 1 connection", [*ECHO, "--connections", "1"], ["epoll"]),
    ("TCP echo, 64 connections", [*ECHO, "--connections", "64"], ["epoll"]),
    ("TCP echo, 64 connections, multishot", [*ECHO, "--connections", "64", "--multishot"], ["epoll"]),
    ("POLL_ADD and its wake-up", [*POLL, "1"], ["calls"]),
    ("the same, 32 at a time", [*POLL, "32"], ["calls"]),
    ("timeouts armed", ["--op", "timeout-add", "--count", "300000"], []),
    ("MSG_RING to another thread and back", MSG_RING, ["calls"]),
    ("FUTEX_WAIT and FUTEX_WAKE", FUTEX, ["calls"]),
    ("a ring made and closed", ["--op", "setup", "--seconds", "0.5"], ["calls"]),
]


def measure(softring, pairs):
    """Runs all rows; answers what goes into the file."""
    out = {
        "date": datetime.date.today().isoformat(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "pairs": pairs,
        "load_before": os.getloadavg(),
        "rows": [],
    }
    for name, options, others in ROWS:
        engines = ",".join(["kernel", "softring", *others])
        command = ["bench", "--engines", engines, "--pairs", str(pairs), *options]
        print(f"{name}: softring {' '.join(command)}", file=sys.stderr)
        done = subprocess.run([softring, *command, "--json"], stdout=subprocess.PIPE, check=True)
        outcome = json.loads(done.stdout)
        for engine in outcome["engines"]:
            keys = ("ios", "seconds", "user_us", "system_us", "steal_us")
            engine["runs"] = [{key: run[key] for key in keys} for run in engine["runs"]]
        row = {"name": name, "command": " ".join(["softring", *command])}
        row |= {key: outcome[key] for key in ("softring", "engines", "skipped", "warnings")}
        out["rows"].append(row)
    out["load_after"] = os.getloadavg()
    return out


def number(n):
    """A rate in three digits."""
    for size, unit in ((1e6, " M"), (1e3, " K")):
        if n >= size:
            return f"{n / size:.3g}{unit}" if n < 1000 * size else f"{n / size:.0f}{unit}"
    return f"{n:.0f}"


def ratio(r, interval=True):
    """A ratio, with the interval of its pairs."""
    if not r:
        return ""
    return f"{r['median']:.2f}" + (f" [{r['low']:.2f}, {r['high']:.2f}]" if interval else "")


def table(results):
    """The table in Markdown."""
    print("| operations per second | kernel | softring | ratio | processor time | another way |")
    print("|---|---|---|---|---|---|")
    for row in results["rows"]:
        by = {engine["engine"]: engine for engine in row["engines"]}
        kernel, ours = by["kernel"], by["softring"]
        others = [f"{name} {ratio(engine['iops_ratio'], False)}" for name, engine in by.items()
                  if name not in ("kernel", "softring")]
        cells = [row["name"], number(kernel["iops"]), number(ours["iops"]),
                 ratio(ours["iops_ratio"]), ratio(ours["cpu_per_io_ratio"], False),
                 ", ".join(others)]
        print(f"| {' | '.join(cells)} |")


def main():
    """Measures, or prints again."""
    args = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    args.add_argument("--pairs", type=int, default=5, help="rounds of each row [default: 5]")
    args.add_argument("--softring", default=f"{TOP}/target/release/softring", metavar="FILE")
    args.add_argument("--out", metavar="FILE", help="[default: docs/results/DATE.json]")
    args.add_argument("--table", metavar="FILE", help="only print the table of this file")
    args = args.parse_args()
    if args.table:
        with open(args.table, encoding="utf-8") as file:
            return table(json.load(file))
    results = measure(args.softring, args.pairs)
    path = args.out or f"{TOP}/docs/results/{results['date']}.json"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    return table(results)


if __name__ == "__main__":
    main()
