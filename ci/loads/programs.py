#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under programs of real runtimes.

Builds ci/loads/programs (tokio, tokio-uring, monoio, compio, and a server on the io-uring crate) and runs
each on the kernel, on softring where io_uring is denied, and on its own way without rings (epoll, or
tokio's threads) in turns, so that what else the machine does hits all alike. Prints requests or
round trips a second, and the median and the interval of softring's ratios to the other two of the
same round, of speed and of processor time.
"""

import os
import shutil
import subprocess
import sys
import tempfile

from turns import TOP, UNDER, parsed, parser, processor, run, show

BUILT = os.path.join(TOP, "target/loads")
ECHO = ("tokio-uring", "monoio", "compio", "ring")
ROWS = [f"files-tokio-{threads}" for threads in (1, 2, 8)]
ROWS += [f"echo-{server}-{connections}" for server in ECHO for connections in (16, 256)]
# Files, and requests for each of them.
TASKS, FILES, REQUESTS = 16, 4000, 7


def build():
    """The programs, built by cargo."""
    env = {**os.environ, "RUSTFLAGS": "--cfg tokio_unstable"}
    where = os.path.join(TOP, "ci/loads/programs")
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", BUILT]
    subprocess.run(command, cwd=where, env=env, check=True)


def program(name):
    """The path of a program."""
    return os.path.join(BUILT, "release", name)


def files(under, row, args):
    """One run of the files' load: requests a second, processor time of each, and how many."""
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        command = [*under, program("files-tokio"), row.rsplit("-", 1)[1], str(TASKS), str(FILES), place]
        text, used = run(command)
    return float(text), used / FILES, FILES * REQUESTS


def echo(under, row, args):
    """One run of an echo server: round trips a second, processor time of each, and how many."""
    name, connections = row.rsplit("-", 1)
    way = ["epoll"] if under == UNDER["own"] else []
    with subprocess.Popen([*under, program(name), *way], stdout=subprocess.PIPE, text=True) as child:
        port = child.stdout.readline().strip()
        client = [program("echo-client"), port, connections, str(int(args.seconds * 1000))]
        done = subprocess.run(client, capture_output=True, text=True, check=False)
        child.terminate()  # strace hands it on
        _, used = processor(child.pid)
        child.returncode = 0
    if done.returncode:
        sys.exit(f"{name} under {under}: {done.stderr}")
    trips = float(done.stdout) * args.seconds
    return float(done.stdout), used / trips, trips


def main():
    """Runs the rows that are asked for, and prints them."""
    own = parser(__doc__, ROWS)
    own.add_argument("--seconds", type=float, default=1, help="seconds of each run of an echo server")
    args = parsed(own, ROWS)
    if not shutil.which("cargo"):
        sys.exit("cargo is needed to build the programs")
    build()

    def one(name, row):
        load = files if row.startswith("files") else echo
        return load(UNDER[name], row, args)

    show(args, one)


if __name__ == "__main__":
    main()
