#!/usr/bin/env bash
# Runs the test programs of Debian's liburing 2.3 source package under softring, with
# io_uring denied, linked to the static and to the shared liburing, and prints a table. With
# --static-musl they are static programs of musl's instead, without a dynamic loader.
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
  --built-in      link the static programs with libsoftring.a, and run them denied without softring;
                  implies --quick
  --baseline      run the kernel and denied columns only; needs no softring
  --static-musl   link the programs static with musl's C library, not with glibc's
  --source DIR    keep and reuse source and built tests in DIR (target/liburing-tests)
  --logs DIR      keep every program's output in DIR
EOF
}

DATA=$TOP/ci/liburing-tests.tsv JOBS=2 ALL='' BASELINE='' SOURCE='' KINDS='static shared'

option() {
    case $1 in
        --all) ALL=1 ;;
        --built-in) KINDS=built-in QUICK=1 ;;
        --baseline) BASELINE=1 ;;
        --static-musl) KINDS=musl ;;
        --source) SOURCE=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

# A few programs use functions that liburing.so does not export; these programs are only built
# static.
build() {
    local cc=gcc
    [ "$1" = musl ] && cc=$PWD/musl/cc && musl_compilers
    ./configure --cc="$cc" --cxx=g++ && make -C src -j2 || return 1
    case $1 in
        static) make -C test -j2 ;;
        built-in) make -C test -j2 LDFLAGS="$SOURCE/begin.o $SOURCE/libsoftring.a -static" ;;
        musl) make -C test -j2 CXX="$PWD/musl/c++" LDFLAGS="$PWD/musl/heap.o" ;;
        shared)
            ln -sf liburing.so.2.3 src/liburing.so.2
            ln -sf liburing.so.2 src/liburing.so
            make -k -C test -j2 LDFLAGS="-Wl,-rpath,$SOURCE/shared/src" || true
            ;;
    esac
}

# musl_compilers  makes compilers of static programs of musl's in the folder musl: with the kernel's
# headers, with what the tests need beyond musl (ci/liburing-musl), and without a C++ library.
musl_compilers() {
    local own=$TOP/ci/liburing-musl cxx
    mkdir -p musl/kernel
    ln -sfn /usr/include/linux /usr/include/asm-generic \
        "/usr/include/$(gcc -print-multiarch)/asm" musl/kernel/
    cxx=$(g++ -E -v -x c++ /dev/null 2>&1 >/dev/null | sed -n 's,^ \(/.*/c++/.*\),-isystem \1,p')
    cxx="'-D__GLIBC_PREREQ(a,b)=0' ${cxx//$'\n'/ }"
    printf '#!/bin/sh\nexec musl-gcc -static -I %q -idirafter %q "$@"\n' \
        "$own" "$PWD/musl/kernel" >musl/cc
    printf '#!/bin/sh\nexec musl-gcc -static -I %q %s -idirafter %q "$@"\n' \
        "$own" "$cxx" "$PWD/musl/kernel" >musl/c++
    chmod +x musl/cc musl/c++
    musl/cc -O1 -c -o musl/heap.o "$own/heap.c"
}

# one LEG NAME  runs one program in an empty directory of its own and records the outcome.
one() {
    local leg=$1 name=$2 dir=$SCRATCH/run/$1/$2 kind=${KINDS%% *} rc verdict
    local program prefix=() tries limit=$LIMIT
    [ "$leg" = shared ] && kind=shared
    program=$SOURCE/$kind/test/$name.t
    mkdir -p "$dir"
    case $leg in
        denied | built-in) read -ra prefix <<<"$DENY" ;;
        static | shared | musl) prefix=("$SOFTRING" run --deny --quiet --) ;;
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
    local name kind result kernel denied scope reason proves mark line failed=()
    local total=0 proving=0 inscope=0 said=''
    local -A ok=() absent=()
    # shellcheck disable=SC2086  # a column for each
    printf '%-24s %s%s\n' TEST "$(printf '%-9s ' KERNEL DENIED ${KINDS^^})" REASON
    for name in "$@"; do
        scope=$(field "$name" 2) reason=$(field "$name" 5)
        kernel=$(outcome kernel "$name") denied=$(outcome denied "$name")
        [ "$kernel" = - ] && kernel=$(field "$name" 3) && denied=$(field "$name" 4)
        total=$((total + 1)) proves='' mark='' line=''
        if [ "$kernel" = pass ] && [ "$denied" != pass ]; then
            proves=1 proving=$((proving + 1))
            [ "$scope" = in ] && inscope=$((inscope + 1))
        fi
        for kind in $KINDS; do
            result=$(outcome "$kind" "$name")
            line+=$(printf '%-9s ' "$result")' '
            if [ "$kernel" = pass ] && [ "$scope" = in ] && [ -z "$BASELINE" ]; then
                case $kind/$result in */pass | shared/absent) ;; *) mark='<-- FAILS ' ;; esac
            fi
            if [ -z "$proves" ] || [ "$scope" != in ]; then continue; fi
            [ "$result" = pass ] && ok[$kind]=$((${ok[$kind]:-0} + 1))
            [ "$result" = absent ] && absent[$kind]=$((${absent[$kind]:-0} + 1))
        done
        [ -n "$mark" ] && failed+=("$name")
        [ -z "$proves" ] && reason="${reason:+$reason; }proves nothing here"
        printf '%-24s %-9s %-9s %s%s\n' "$name" "$kernel" "$denied" "$line" "$mark$reason"
    done
    echo
    echo "$total programs, $proving prove something (pass on the kernel, not when denied)"
    [ -n "$BASELINE" ] && return 0
    for kind in $KINDS; do said+="; pass $kind: ${ok[$kind]:-0}"; done
    echo "of these in scope: $inscope$said${absent[shared]:+ (not linkable to the shared library:" \
        "${absent[shared]})}"
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
        for leg in $KINDS; do
            verdict=$(outcome "$leg" "$name")
            case $verdict in pass | absent) continue ;; esac
            printf '\n%s, %s: %s; its last lines:\n' "$name" "$leg" "$verdict"
            tail -n 20 "$LOGS/$leg/$name.log"
        done
    done
}

# bring_along  makes what the static programs are linked with that begin softring by themselves.
bring_along() {
    rm -rf "$SOURCE/built-in"
    "$TOP/dist/archive.sh" "$(dirname "$SOFTRING")/libsoftring.a" "$SOURCE/libsoftring.a" || exit
    gcc -c -I "$TOP/include" -x c -o "$SOURCE/begin.o" - <<EOF || exit
#include <softring.h>
static void __attribute__((constructor)) begin(void) { softring_install(SOFTRING_QUIET); }
EOF
}

main() {
    local names name kind runnable=()
    scratch liburing
    keep_logs
    SOURCE=${SOURCE:-$TOP/target/liburing-tests}
    mkdir -p "$SOURCE"
    SOURCE=$(cd "$SOURCE" && pwd)
    if [ -z "$BASELINE" ] || [ "$DENY" = "$SOFTRING deny --" ]; then need_softring; fi
    need gcc:gcc g++:g++ make:make dpkg-source:dpkg-dev python3:python3
    [ "$KINDS" != musl ] || need musl-gcc:musl-tools
    [ -d "$SOURCE/liburing-2.3" ] || fetch_source liburing 2.3
    [ "$KINDS" != built-in ] || bring_along
    note "building the tests ($KINDS)"
    # shellcheck disable=SC2086  # kinds
    build_kinds liburing-2.3 build $KINDS
    mapfile -t names < <(
        cd "$SOURCE/${KINDS%% *}/test" && printf '%s\n' *.t | sed 's/\.t$//' | sort
    )
    [ ${#ONLY[@]} -gt 0 ] && names=("${ONLY[@]}")
    for name in "${names[@]}"; do
        if [ -n "$ALL" ] || [ "$(field "$name" 2)" = in ]; then runnable+=("$name"); fi
    done
    export SOURCE LOGS SCRATCH SOFTRING DENY LIMIT DATA KINDS
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
        for kind in $KINDS; do run_leg "$kind" "${runnable[@]}"; done
    fi
    report "${names[@]}"
}

main
