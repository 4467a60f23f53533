#!/usr/bin/env python3
"""sqlite-store.py fill|verify JOURNAL SYNCHRONOUS  transactions of SQLite in the working directory.

`fill` prints a line for each transaction that was committed; `verify` reads these lines, and fails
if fewer transactions are there, or the file is damaged. The library makes plain system calls.
"""
import os
import sqlite3
import sys

COUNT = 6


def fill(journal, synchronous):
    db = sqlite3.connect("t.db", isolation_level=None)
    db.execute(f"pragma journal_mode={journal}")
    db.execute(f"pragma synchronous={synchronous}")
    db.execute("create table if not exists t(i integer primary key, v text)")
    for i in range(COUNT):
        db.execute("insert into t values(?, ?)", (i, "x" * 700))
        os.write(1, b"done\n")


def verify():
    told = sum(1 for _ in sys.stdin)
    db = sqlite3.connect("t.db")
    if db.execute("pragma integrity_check").fetchall() != [("ok",)]:
        sys.exit("the file is damaged")
    try:
        there = db.execute("select count(*) from t").fetchone()[0]
    except sqlite3.OperationalError:
        there = 0
    if there < told:
        sys.exit(f"{told - there} acknowledged commits are lost")


if sys.argv[1] == "fill":
    fill(*sys.argv[2:])
else:
    verify()
