#!/usr/bin/env bash
# Runs the test programs of Debian's libaio source package on the kernel and under softring: as they
# are, with every context polled, by spinning and by sleeps, and with kernel aio denied, so that
# contexts are emulated. A program must end under softring as it ends on the kernel.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/libaio-tests.sh [options]
  --only NAME     run only this program, 2 to 23 (repeatable)
  --quick         run only the programs linked to the shared library
  --source DIR    keep and reuse source and built tests in DIR (target/libaio-tests)
  --logs DIR      keep every program's output in DIR
EOF
}

VERSION=0.3.113 SOURCE=''
LEGS=(kernel softring polled hybrid emulated)
# Programs that need a file system of their own, which only root can mount.
MOUNTS=' 8 10 '
# Programs that take all contexts that the machine has left (aio-max-nr), and fail if another
# program takes one meanwhile: each is run again, a few times at most.
COUNTS=' 20 ' TRIES=5
# Outcomes that differ from the kernel's. 19 moves the ring that the kernel maps, and reads events
# from it: an emulated context has no such ring.
declare -A KNOWN=([emulated-19]=fail:1)

option() {
    case $1 in
        --source) SOURCE=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

build() {
    local library=../src/libaio.a
    make -C src || return 1
    if [ "$1" = shared ]; then
        ln -sf "$(cd src && echo libaio.so.1.*)" src/libaio.so.1
        library="../src/libaio.so.1 -Wl,-rpath,$SOURCE/shared/src"
    fi
    make -C harness LIBAIO="$library"
}

# one LEG KIND NAME  runs one program in a directory of its own, as the harness prepares it, and
# prints how it ended.
one() {
    local leg=$1 kind=$2 name=$3 dir=$SCRATCH/run/$1-$2-$3 prefix=() rc
    case $leg in
        softring) prefix=("$SOFTRING" run --quiet --) ;;
        polled) prefix=("$SOFTRING" run --quiet --aio-hipri --) ;;
        hybrid) prefix=("$SOFTRING" run --quiet --aio-hipri --poll=hybrid --) ;;
        emulated) prefix=("$SOFTRING" deny --aio --errno 38 -- "$SOFTRING" run --quiet --) ;;
    esac
    mkdir -p "$dir/testdir"
    (
        cd "$dir" || exit 2
        for mode in 400:rofile 200:wofile 600:rwfile; do
            echo test >"testdir/${mode#*:}" && chmod "${mode%:*}" "testdir/${mode#*:}"
        done
        export SOFTRING_CHECK=$$-$leg-$kind-$name
        exec timeout -s INT -k 5 "$LIMIT" "${prefix[@]}" "$SOURCE/$kind/harness/cases/$name.p"
    ) >"$LOGS/$leg-$kind-$name.log" 2>&1 </dev/null
    rc=$?
    end_tagged "$$-$leg-$kind-$name"
    rm -rf "$dir"
    case $rc in
        0) echo pass ;;
        3) echo skip ;;
        124 | 137) echo timeout ;;
        *) echo "fail:$rc" ;;
    esac
}

# ended LEG KIND NAME  prints how the program ended, the last time if it was run again.
ended() {
    local tries=1 how
    [[ $COUNTS == *" $3 "* ]] && tries=$TRIES
    for ((; tries > 0; tries--)); do
        how=$(one "$@")
        [ "$how" = pass ] && break
    done
    echo "$how"
}

main() {
    local kinds=(static shared) names name kind leg ended kernel bad=0 total=0
    [ -n "$QUICK" ] && kinds=(shared)
    scratch libaio
    keep_logs
    need_softring
    SOURCE=${SOURCE:-$TOP/target/libaio-tests}
    mkdir -p "$SOURCE"
    SOURCE=$(cd "$SOURCE" && pwd)
    need gcc:gcc make:make dpkg-source:dpkg-dev
    [ -d "$SOURCE/libaio-$VERSION" ] || fetch_source libaio "$VERSION"
    build_kinds "libaio-$VERSION" build "${kinds[@]}"
    mapfile -t names < <(cd "$SOURCE/${kinds[0]}/harness/cases" && printf '%s\n' *.p |
        sed 's/\.p$//' | sort -n)
    [ ${#ONLY[@]} -gt 0 ] && names=("${ONLY[@]}")
    printf '%-8s %-4s' KIND TEST
    printf ' %-10s' "${LEGS[@]}"
    echo
    for kind in "${kinds[@]}"; do
        for name in "${names[@]}"; do
            [[ $MOUNTS == *" $name "* ]] && continue
            printf '%-8s %-4s' "$kind" "$name"
            for leg in "${LEGS[@]}"; do
                ended=$(ended "$leg" "$kind" "$name")
                [ "$leg" = kernel ] && kernel=$ended
                if [ "$ended" != "$kernel" ] && [ "$ended" != "${KNOWN[$leg-$name]:-}" ]; then
                    bad=$((bad + 1)) ended="$ended<--"
                fi
                printf ' %-10s' "$ended"
                total=$((total + 1))
            done
            echo
        done
    done
    echo
    echo "$total runs, $bad that end otherwise than on the kernel"
    [ "$bad" = 0 ] && [ "$total" -gt 0 ]
}

main
