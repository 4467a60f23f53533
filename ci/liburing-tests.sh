#!/usr/bin/env bash
# Runs the test programs of Debian's liburing 2.3 source package under softring, with
# io_uring denied, linked to the static and to the shared liburing, and prints a table.
#
# A program proves something only if it passes on the kernel and does not pass when io_uring is
# denied without softring; exit status 77 (skip) is no pass. ci/liburing-tests.tsv says which
# programs are in scope, why the others are not, and how each behaved on the kernel when the file
# was recorded. A program in scope that passes on the kernel must pass under softring, even if it
# proves nothing: otherwise softring would do harm. The file also says how often a program is tried
# that hangs now and then on the kernel, and how much time a slow one has.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/liburing-tests.sh [options]
  --only NAME     run only this program (repeatable)
  --quick         take the kernel and denied columns from the recorded baseline
  --all           also run the programs out of scope under softring
  --baseline      run the kernel and denied columns only; needs no softring
  --source DIR    keep and reuse source and built tests in DIR (target/liburing-tests)
  --logs DIR      keep every program's output in DIR
EOF
}

DATA=$TOP/ci/liburing-tests.tsv JOBS=2 ALL='' BASELINE='' SOURCE=''

option() {
    case $1 in
        --all) ALL=1 ;;
        --baseline) BASELINE=1 ;;
        --source) SOURCE=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

# A few programs use functions that liburing.so does not export; these programs are only built
# static.
build() {
    ./configure --cc=gcc --cxx=g++ && make -C src -j2 || return 1
    if [ "$1" = static ]; then
        make -C test -j2
    else
        ln -sf liburing.so.2.3 src/liburing.so.2
        ln -sf liburing.so.2 src/liburing.so
        make -k -C test -j2 LDFLAGS="-Wl,-rpath,$SOURCE/shared/src" || true
    fi
}

# one LEG NAME  runs one program in an empty directory of its own and records the outcome.
one() {
    local leg=$1 name=$2 dir=$SCRATCH/run/$1/$2 kind=static rc verdict
    local program prefix=() tries limit=$LIMIT
    [ "$leg" = shared ] && kind=shared
    program=$SOURCE/$kind/test/$name.t
    mkdir -p "$dir"
    case $leg in
        denied) read -ra prefix <<<"$DENY" ;;
        static | shared) prefix=("$SOFTRING" run --deny --quiet --) ;;
    esac
    if [ ! -x "$program" ]; then
        echo "absent" >"$SCRATCH/res/$leg/$name"
        return
    fi
    tries=$(field "$name" 6)
    [ -z "$tries" ] || limit=10
    limit=$(field "$name" 7 | grep . || echo "$limit")
    for _ in $(seq "${tries:-1}"); do
        (
            cd "$dir" || exit 2
            export SOFTRING_CHECK=$PPID-$leg-$name
            exec timeout -s INT -k 5 "$limit" "${prefix[@]}" "$program"
        ) >"$LOGS/$leg/$name.log" 2>&1 </dev/null
        rc=$?
        end_tagged "$PPID-$leg-$name"
        [ $rc = 124 ] || [ $rc = 137 ] || break
    done
    case $rc in
        0) verdict=pass ;;
        77) verdict=skip ;;
        124 | 137) verdict=timeout ;;
        *) verdict="fail:$rc" ;;
    esac
    echo "$verdict" >"$SCRATCH/res/$leg/$name"
    chmod -R u+rwX "$dir" 2>/dev/null
    rm -rf "$dir"
}

run_leg() {
    local leg=$1
    shift
    mkdir -p "$SCRATCH/res/$leg" "$LOGS/$leg"
    note "running $# programs: $leg"
    # shellcheck disable=SC2016  # the inner shell fills these in
    printf '%s\n' "$@" | xargs -r -P "$JOBS" -I{} bash -c 'one "$0" "$1" 2>/dev/null' "$leg" {}
}

outcome() {
    cat "$SCRATCH/res/$1/$2" 2>/dev/null || echo -
}

field() {
    awk -F'\t' -v t="$1" -v c="$2" '!/^#/ && $1 == t { print $c; exit }' "$DATA"
}

# report NAME…  prints the table and its totals; fails if a program in scope fails.
report() {
    local name kernel denied static shared scope reason proves mark failed=()
    local total=0 proving=0 inscope=0 ok_static=0 ok_shared=0 absent=0
    printf '%-24s %-9s %-9s %-9s %-9s %s\n' TEST KERNEL DENIED STATIC SHARED REASON
    for name in "$@"; do
        scope=$(field "$name" 2) reason=$(field "$name" 5)
        kernel=$(outcome kernel "$name") denied=$(outcome denied "$name")
        [ "$kernel" = - ] && kernel=$(field "$name" 3) && denied=$(field "$name" 4)
        static=$(outcome static "$name") shared=$(outcome shared "$name")
        total=$((total + 1)) proves='' mark=''
        if [ "$kernel" = pass ] && [ "$denied" != pass ]; then
            proves=1 proving=$((proving + 1))
        fi
        if [ "$kernel" = pass ] && [ "$scope" = in ] && [ -z "$BASELINE" ]; then
            case $static in pass) ;; *) mark='<-- FAILS ' ;; esac
            case $shared in pass | absent) ;; *) mark='<-- FAILS ' ;; esac
        fi
        if [ -n "$proves" ] && [ "$scope" = in ]; then
            inscope=$((inscope + 1))
            [ "$static" = pass ] && ok_static=$((ok_static + 1))
            [ "$shared" = pass ] && ok_shared=$((ok_shared + 1))
            [ "$shared" = absent ] && absent=$((absent + 1))
        fi
        [ -n "$mark" ] && failed+=("$name")
        [ -z "$proves" ] && reason="${reason:+$reason; }proves nothing here"
        printf '%-24s %-9s %-9s %-9s %-9s %s\n' "$name" "$kernel" "$denied" "$static" \
            "$shared" "$mark$reason"
    done
    echo
    echo "$total programs, $proving prove something (pass on the kernel, not when denied)"
    [ -n "$BASELINE" ] && return 0
    echo "of these in scope: $inscope; pass static: $ok_static; pass shared: $ok_shared" \
        "(not linkable to the shared library: $absent)"
    [ ${#failed[@]} = 0 ] && return 0
    tell_why "${failed[@]}"
    echo "${#failed[@]} programs in scope fail: ${failed[*]}; --logs DIR keeps their output"
    return 1
}

# tell_why NAME…  prints the last lines of programs that fail under softring: a rare failure may not
# come again when the program is run by hand.
tell_why() {
    local name leg verdict
    for name in "$@"; do
        for leg in static shared; do
            verdict=$(outcome "$leg" "$name")
            case $verdict in pass | absent) continue ;; esac
            printf '\n%s, %s: %s; its last lines:\n' "$name" "$leg" "$verdict"
            tail -n 20 "$LOGS/$leg/$name.log"
        done
    done
}

main() {
    local names name runnable=()
    scratch liburing
    keep_logs
    SOURCE=${SOURCE:-$TOP/target/liburing-tests}
    mkdir -p "$SOURCE"
    SOURCE=$(cd "$SOURCE" && pwd)
    if [ -z "$BASELINE" ] || [ "$DENY" = "$SOFTRING deny --" ]; then need_softring; fi
    need gcc:gcc g++:g++ make:make dpkg-source:dpkg-dev python3:python3
    [ -d "$SOURCE/liburing-2.3" ] || fetch_source liburing 2.3
    note "building the tests (static and shared)"
    build_both liburing-2.3 build
    mapfile -t names < <(cd "$SOURCE/static/test" && printf '%s\n' *.t | sed 's/\.t$//' | sort)
    [ ${#ONLY[@]} -gt 0 ] && names=("${ONLY[@]}")
    for name in "${names[@]}"; do
        if [ -n "$ALL" ] || [ "$(field "$name" 2)" = in ]; then runnable+=("$name"); fi
    done
    export SOURCE LOGS SCRATCH SOFTRING DENY LIMIT DATA
    export -f one end_tagged tagged field
    if [ -n "$QUICK" ]; then
        note "kernel and denied columns: as recorded"
    elif kernel_has_uring; then
        run_leg kernel "${names[@]}"
        run_leg denied "${names[@]}"
    else
        note "no io_uring on this host: the kernel and denied columns are as recorded"
    fi
    if [ -z "$BASELINE" ]; then
        run_leg static "${runnable[@]}"
        run_leg shared "${runnable[@]}"
    fi
    report "${names[@]}"
}

main
