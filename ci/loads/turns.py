"""What the loads of this folder share: runs in turns, how their ratios are printed, and system calls
counted instead."""

import argparse
import collections
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOFTRING = os.environ.get("SOFTRING", os.path.join(TOP, "target/release/softring"))
UNDER = {
    "kernel": [],
    "softring": [SOFTRING, "run", "--deny", "--quiet", "--"],
    "own": [SOFTRING, "deny", "--"],
}
# By what QEMU makes its I/O where it does not do so by io_uring.
QEMU_AIO = {"own": "threads", "least": "native"}


def enter(root):
    """Has each run be made in a root of its own, which gets a copy of softring. /proc is mounted there for
    this command only: without it softring cannot intercept each close, and asks about descriptors again
    and again."""
    if not os.path.exists(os.path.join(root, "proc/self")):
        mount = 'mount -t proc proc "$0/proc" && exec "$@"'
        os.execvp("unshare", ["unshare", "--mount", "sh", "-c", mount, root, sys.executable, *sys.argv])
    folder = os.path.join(root, "softring")
    os.makedirs(folder, exist_ok=True)
    for file in (SOFTRING, os.path.join(os.path.dirname(SOFTRING), "libsoftring.so")):
        if os.path.exists(file):
            shutil.copy(file, folder)
    for name, under in UNDER.items():
        inside = ["/softring/softring" if word == SOFTRING else word for word in under]
        UNDER[name] = ["chroot", root, *inside]


def parser(doc, rows, least=None):
    """The command line of a comparison of rows. `least`: the program that does the least that user space
    must do for them, if there is one."""
    own = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    own.add_argument("rows", nargs="*", metavar="ROW", help=f"which: {', '.join(rows)} (all)")
    own.add_argument("--pairs", type=int, default=7)
    own.add_argument("--json", metavar="FILE", help="add the runs of each row to this file")
    own.add_argument("--dir", default="/var/tmp", help="folder for files, on a disk")
    own.add_argument("--calls", action="store_true",
                     help="count system calls per request by strace, instead of time")
    if least:
        own.add_argument("--least", action="store_true",
                         help=f"run also the least that user space must do: {least}")
    return own


def parsed(own, rows):
    """The arguments, with all rows if none is named. `rows`: what there is, by the other arguments."""
    args = own.parse_args()
    rows = rows(args) if callable(rows) else rows
    unknown = set(args.rows) - set(rows)
    if unknown:
        own.error(f"no such row: {', '.join(sorted(unknown))}")
    if getattr(args, "least", False):
        add_least()
    args.rows = args.rows or rows
    return args


def add_least():
    """Has the least that user space must do run in the same turns. It runs where io_uring is denied, as
    softring does: some programs would wait for it by a ring of the kernel's."""
    UNDER["least"] = UNDER["own"]


def make_file(path, size):
    """Makes a file of zeros whose pages are not in the cache: else the first O_DIRECT write to each would
    find it there, and go to a worker."""
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def spread(ratios):
    """Median and interval, for people."""
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"


def need(programs, path=None, other=""):
    """Ends if a program is missing. `programs`: names, and Debian's packages; `other`: what else would do."""
    for program, package in programs.items():
        if not shutil.which(program, path=path):
            sys.exit(f"{program} is needed: apt-get install {package}{other}")


def counted(rows, one):
    """Prints a table: each row's system calls for each request on the kernel, on softring and, if it is
    asked for, of the least that user space must do, by name, of those that are made at least once in
    fifty requests. `one`: as for `compare`."""
    need({"strace": "strace"})
    names = [name for name in UNDER if name != "own"]
    print(f"| load | calls of a request, {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    with tempfile.NamedTemporaryFile("r", suffix=".calls") as summary:
        for name, under in UNDER.items():
            UNDER[name] = ["strace", "-f", "-I", "2", "-qq", "-c", "-o", summary.name, *under]
        for row in rows:
            cells = []
            for name in names:
                done = one(name, row)
                cells.append(cell(summary.name, done[2]) if done else "")
            title = row if isinstance(row, str) else ", ".join(map(str, row))
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


def cell(summary, requests):
    """What strace has counted, for each request: the sum, and each call's part."""
    calls = collections.Counter()
    # futex_wake(2), which an older strace knows by number only.
    with open(summary, encoding="utf-8") as lines:
        for line in lines:
            words = line.replace("syscall_0x1c6", "futex_wake").split()
            if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                calls[words[-1]] += int(words[3])
    often = [(name, n / requests) for name, n in calls.most_common() if n / requests >= 0.02]
    parts = ", ".join(f"{name} {n:.2g}" for name, n in often)
    return f"{sum(n for _, n in often):.2g}: {parts}"


def processor(pid):
    """Waits for a process; its status, and seconds of processor time that it has taken."""
    _, status, usage = os.wait4(pid, 0)
    return status, usage.ru_utime + usage.ru_stime


def used(pid):
    """Seconds of processor time that all threads of a running process have taken."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(command, env=None):
    """Runs a command; what it prints, and its processor time."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}) as child:
        text = child.stdout.read()
        child.returncode, busy = processor(child.pid)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: status {child.returncode}")
    return text, busy


def show(args, one):
    """Prints what the arguments of `parser` ask for: time, or system calls. `one`: as for `compare`."""
    if args.calls:
        counted(args.rows, one)
    else:
        compare(args.rows, one, args.pairs, args.json)


def compare(rows, one, pairs, results=None):
    """Prints a table: each row's speed and processor time, softring's by the kernel's and by those of
    the program's own way without rings, and the least's by the kernel's. `one(name, row)` makes one run,
    `name` one of UNDER, and returns speed, processor time and requests, or nothing for a row without such
    a run. `results`: a file that gets the runs as JSON, added to what it has."""
    by = [("softring", "kernel", "to the kernel's"), ("softring", "own", "to its own")]
    if "least" in UNDER:
        by.append(("least", "kernel", "the least to the kernel's"))
    print(f"| load | kernel | softring | {' | '.join(f'{title} | processor time' for *_, title in by)} |")
    print(f"|{'---|' * (3 + 2 * len(by))}")
    for row in rows:
        runs = rounds(row, one, pairs)
        cells = [f"{statistics.median(r[0] for r in runs[name]):.0f}" for name in ("kernel", "softring")]
        for ours, theirs, _ in by:
            cells += ratios(runs[ours], runs[theirs]) if ours in runs else ["", ""]
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
        if results:
            add(results, row, runs)


def rounds(row, one, pairs):
    """The runs of a row by name, every second round backwards: each speed and processor time."""
    runs = {}
    for turn in range(pairs):
        for name in list(UNDER)[:: 1 if turn % 2 == 0 else -1]:
            done = one(name, row)
            if done:
                runs.setdefault(name, []).append(done[:2])
    return runs


def ratios(ours, theirs):
    """Speed and processor time of runs by those of others in the same rounds, for people."""
    return [spread([a[what] / b[what] for a, b in zip(ours, theirs)]) for what in (0, 1)]


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
