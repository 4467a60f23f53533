#!/usr/bin/env python3
"""Compares softring with the kernel's io_uring under MariaDB.

Runs sysbench's oltp_read_write through a Unix socket against a server whose tables are larger than
its buffer pool: on the kernel, on softring where io_uring is denied, and on MariaDB's own threads
(innodb_use_native_aio=0) in turns, so that what else the machine does hits all alike. Prints
transactions a second, and the median and the interval of softring's ratios to the other two of the
same round, of speed and of the server's processor time.
"""

import getpass
import os
import re
import subprocess
import sys
import tempfile
import time

from turns import UNDER, need, parsed, parser, show, used

ROWS = ["mariadb-O_DIRECT", "mariadb-fsync"]
TABLES, TABLE_ROWS = 4, 50000
USER = getpass.getuser()


class Server:
    """A server on data in a folder, ready to answer."""

    def __init__(self, under, data, method, rings):
        self.data, self.log = data, os.path.join(data, "error.log")
        self.socket, pid = os.path.join(data, "socket"), os.path.join(data, "pid")
        for old in (self.log, self.socket, pid):
            if os.path.exists(old):
                os.unlink(old)
        command = [*under, "mariadbd", "--no-defaults", f"--user={USER}", f"--datadir={data}",
                   f"--socket={self.socket}", f"--pid-file={pid}", f"--log-error={self.log}",
                   "--skip-networking", "--skip-name-resolve", "--max-connections=20",
                   "--table-open-cache=64", f"--innodb-flush-method={method}",
                   f"--innodb-use-native-aio={int(rings)}", "--innodb-buffer-pool-size=16M",
                   "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-dump-at-shutdown=0"]
        self.process = subprocess.Popen(command)
        while not self.answers():
            if self.process.poll() is not None:
                sys.exit(f"mariadbd ended: see {self.log}\n{self.said()}")
            time.sleep(0.1)
        if rings != ("Using io_uring" in self.said()):
            sys.exit(f"mariadbd uses {'no' if rings else ''} rings: {self.said()}")
        with open(pid, encoding="ascii") as file:
            self.pid = int(file.read())

    def said(self):
        """The server's log."""
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def answers(self):
        """Whether a client is served."""
        command = ["mariadb-admin", "--no-defaults", "--user=root", f"--socket={self.socket}", "ping"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def sysbench(self, *words):
        """What a command of sysbench's oltp_read_write prints."""
        command = ["sysbench", "oltp_read_write", f"--mysql-socket={self.socket}", "--mysql-user=root",
                   "--mysql-db=test", f"--tables={TABLES}", f"--table-size={TABLE_ROWS}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def stop(self):
        """Ends the server in order."""
        os.kill(self.pid, 15)
        if self.process.wait():
            sys.exit(f"mariadbd did not stop in order:\n{self.said()}")


def make(data):
    """Makes the data: a server that has stopped, with sysbench's tables."""
    command = ["mariadb-install-db", "--no-defaults", f"--user={USER}", f"--datadir={data}",
               "--skip-test-db", "--auth-root-authentication-method=normal"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    os.mkdir(os.path.join(data, "test"))
    server = Server([], data, "O_DIRECT", True)
    server.sysbench("prepare")
    server.stop()


def oltp(name, row, args, data):
    """One run: transactions a second, the server's processor time of each, and how many."""
    server = Server(UNDER[name], data, row.partition("-")[2], name != "own")
    before = used(server.pid)
    text = server.sysbench(f"--threads={args.threads}", f"--time={args.seconds}", "run")
    busy = used(server.pid) - before
    server.stop()
    count, rate = re.search(r"transactions: +(\d+) +\(([0-9.]+) per sec", text).groups()
    return float(rate), busy / int(count), int(count)


def main():
    """Runs the rows that are asked for, and prints them."""
    own = parser(__doc__, ROWS)
    own.add_argument("--seconds", type=int, default=5, help="seconds of each run")
    own.add_argument("--threads", type=int, default=4, help="sysbench's connections")
    args = parsed(own, ROWS)
    need({"mariadbd": "mariadb-server", "sysbench": "sysbench"})
    with tempfile.TemporaryDirectory(dir=args.dir) as place:
        data = os.path.join(place, "data")
        make(data)

        def one(name, row):
            return oltp(name, row, args, data)

        show(args, one)


if __name__ == "__main__":
    main()
