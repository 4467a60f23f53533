# The functions of .ci/run: steps with limits, two lists of steps side by side, a summary.
# shellcheck shell=bash

# The run ends by itself before its caller's time limit ends it and loses the output: no step goes
# on for longer than what is left of this many seconds.
ENOUGH=${ENOUGH:-4800}

RECORD=$(mktemp -d)
export RECORD
trap 'rm -rf "$RECORD"' EXIT
: >"$RECORD/summary"
: >"$RECORD/causes"

# step NAME LIMIT CMD…  runs one part for at most LIMIT seconds.
#
# The part's output goes to a file that is shown as it grows, never through a pipe: processes that
# the part leaves behind would hold the pipe open, and the run would wait for it for ever.
step() {
    local name=$1 limit=$2 began=$SECONDS left=$((ENOUGH - SECONDS)) rc outcome=passed printed clock
    shift 2
    printf '\n== %s: %s\n' "$name" "$*"
    printed=$(mktemp "$RECORD/printed.XXXXXX")
    [ "$left" -ge "$limit" ] || limit=$left
    if [ "$limit" -gt 0 ]; then
        ( clock "$printed.clock" timeout -k 10 "$limit" env "CI_STEP=$printed" "$@" \
            </dev/null >>"$printed" 2>&1 ) &
        tail -n +1 -s 0.2 -f --pid=$! "$printed"
        wait $!
        rc=$?
    else
        rc=124
    fi
    # 137: the part ignored SIGTERM.
    if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
        printf 'no end within %d s\n' "$limit" | tee -a "$printed"
        leftovers "$printed" end
    else
        leftovers "$printed" leave
    fi
    if [ "$rc" != 0 ]; then
        outcome="FAILED (exit $rc)"
        # A full disk fails a step in many ways, few of which name it.
        df -h . "${TMPDIR:-/tmp}"
        causes "$name" "$*" "$printed" >>"$RECORD/causes"
    fi
    clock=$(cat "$printed.clock" 2>/dev/null || echo '?')
    printf '%-28s %5d s  %6s s of a processor  %s\n' \
        "$name" $((SECONDS - began)) "$clock" "$outcome" >>"$RECORD/summary"
    printf '== %s: %s after %d s\n' "$name" "$outcome" $((SECONDS - began))
    rm -f "$printed" "$printed.clock"
    [ "$rc" = 0 ]
}

# clock FILE CMD…  runs CMD, and writes to FILE how long it kept a processor busy, in seconds.
clock() {
    local file=$1 rc
    shift
    "$@"
    rc=$?
    # The second line of times is the time of ended children: 0m1.234s 0m5.678s.
    times >"$file"
    tail -n 1 "$file" | tr 'ms' '  ' |
        awk '{ printf "%d\n", $1 * 60 + $2 + $3 * 60 + $4 }' >"$file.s"
    mv "$file.s" "$file"
    return $rc
}

# leftovers MARK end|leave  names the processes that a step has left behind, and ends or leaves
# them.
leftovers() {
    local pid
    for pid in $(tagged "CI_STEP=$1"); do
        printf 'left behind: %d %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
        [ "$2" = leave ] || kill -KILL "$pid" 2>/dev/null
    done
}

# causes NAME CMD PRINTED  prints the lines of a failed step that show its failure: a record of a
# run may keep only its end.
causes() {
    printf '\n== what failed in %s: %s\n' "$1" "$2"
    grep -aE '\(!\)|asked again|FAIL|panicked|diverged|wrong|differ|^error' "$3" | tail -n 30
    printf '%s\n' '-- its last lines'
    tail -n 12 "$3"
}

# side_by_side FIRST SECOND  runs two functions of steps at the same time, for parts that leave a
# processor idle. The second's output comes in one piece after the first's.
side_by_side() {
    local aside=$RECORD/aside other
    "$2" >"$aside" 2>&1 &
    other=$!
    "$1"
    wait $other
    cat "$aside"
}

# summary  prints the failures with their causes, and the time of each step; fails if a step has.
summary() {
    local failed
    failed=$(grep -c 'FAILED (exit' "$RECORD/summary")
    cut -c 1-300 "$RECORD/causes"
    printf '\n== summary\n'
    cat "$RECORD/summary"
    printf '%d passed, %d failed, %d s\n' \
        $(($(wc -l <"$RECORD/summary") - failed)) "$failed" "$SECONDS"
    [ "$failed" = 0 ]
}
