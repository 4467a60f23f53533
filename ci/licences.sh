#!/usr/bin/env bash
# Checks that every crate in Cargo.lock offers a licence that deny.toml allows, and comes from
# a registry: the part of cargo-deny that matters most, without the minutes it takes to build.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
need python3:python3

scratch licences
cargo metadata --format-version 1 --locked >"$SCRATCH/metadata.json"
python3 - "$SCRATCH/metadata.json" "$TOP/deny.toml" <<'EOF'
import json
import re
import sys


def allow_list(path):
    text = open(path).read()
    section = re.search(r"^\[licenses\]$(.*?)(?=^\[|\Z)", text, re.M | re.S).group(1)
    return set(re.findall(r'"([^"]+)"', re.search(r"allow = \[(.*?)\]", section, re.S).group(1)))


def holds(expression, allowed):
    """True where an SPDX expression can be met by allowed licences only; `/` is an old OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either():
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = both() or value
        return value

    def both():
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = one() and value
        return value

    def one():
        token = tokens.pop(0)
        if token == "(":
            value = either()
            tokens.pop(0)
            return value
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token += " WITH " + tokens.pop(0)
        return token in allowed

    return either()


allowed = allow_list(sys.argv[2])
packages = json.load(open(sys.argv[1]))["packages"]
bad = []
for package in packages:
    name = f"{package['name']} {package['version']}"
    licence = package["license"]
    if not licence or not holds(licence, allowed):
        bad.append(f"{name}: licence {licence or 'not stated'} is not allowed by deny.toml")
    if (package["source"] or "registry+").split("+")[0] != "registry":
        bad.append(f"{name}: comes from {package['source']}, not from a registry")
print("\n".join(bad) if bad else f"{len(packages)} crates, each under an allowed licence")
sys.exit(1 if bad else 0)
EOF
