#!/usr/bin/env bash
# Counts system calls per operation of `softring bench`, by name, on the kernel's io_uring and on
# softring: by strace in the process under test, all its threads together, without the peer of an
# echo server. strace slows the calls down, so where many requests are ready at a time, more are.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/syscalls.sh [--seconds N]
  --seconds N  seconds per row (default: 2)
Prints a system call if there is at least one per thousand operations, and one per fifty calls.
SOFTRING=PATH: the command to use (default: target/release/softring, with its library beside it)
EOF
}

SECONDS_EACH=2
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) SECONDS_EACH=$(argument "${@:1:2}"); shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
need strace:strace python3:python3
need_softring
scratch syscalls

# per_operation  reads $SCRATCH/trace and $SCRATCH/result, and prints one cell of the table.
per_operation() {
    python3 - "$SCRATCH/trace" "$SCRATCH/result" <<'EOF'
import collections, json, re, sys

began = []                      # processes that became a worker: the measured one, then its peer
parent = {}
calls = []                      # (thread, name), from the first worker's start on
for line in open(sys.argv[1], errors="replace"):
    thread, _, text = line.partition(" ")
    text = text.strip()
    if text.startswith("execve(") and '"worker"]' in text:
        began.append(thread)
    made = re.search(r"\bv?(?:clone3?|fork)\b.* = (\d+)$", text)
    if made:
        parent[made[1]] = thread
    # futex_wake(2), which an older strace knows by number only.
    name = re.match(r"(\w+)\(", text.replace("syscall_0x1c6(", "futex_wake("))
    if name and began:
        calls.append((thread, name[1]))

def owner(thread):
    while thread not in began and thread in parent:
        thread = parent[thread]
    return thread

count = collections.Counter(name for thread, name in calls if owner(thread) == began[0])
operations = json.load(open(sys.argv[2]))["engines"][0]["runs"][0]["ios"]
least = max(operations / 1000, sum(count.values()) / 50)
cells = [f"{name} {n / operations:.2g}" for name, n in count.most_common() if n >= least]
print(", ".join(cells) or "none")
EOF
}

# row NAME OPTION…  prints one operation as a line of the table.
row() {
    local name=$1 engine cells=()
    shift
    for engine in kernel softring; do
        timeout "$LIMIT" strace -f -qq -o "$SCRATCH/trace" "$SOFTRING" bench "$@" \
            --engines "$engine" --pairs 1 --json \
            >"$SCRATCH/result" 2>"$SCRATCH/log" || die "$name, $engine: $(cat "$SCRATCH/log")"
        cells+=("$(per_operation)")
    done
    printf '| %s | %s | %s |\n' "$name" "${cells[@]}"
}

kernel_has_uring || die "this kernel makes no io_uring: nothing to compare with"
printf '| operation | kernel | softring |\n|---|---|---|\n'
TIMED=(--seconds "$SECONDS_EACH" --warmup 0)
row 'echo, 1 connection' --op echo --connections 1 --bs 64 "${TIMED[@]}"
row 'echo, 64 connections' --op echo --connections 64 --bs 64 "${TIMED[@]}"
row 'POLL_ADD, woken' --op poll --depth 1 "${TIMED[@]}"
row 'a timeout armed' --op timeout-add
row 'MSG_RING' --op msg-ring --depth 1 "${TIMED[@]}"
row 'FUTEX_WAIT, FUTEX_WAKE' --op futex --depth 1 "${TIMED[@]}"
