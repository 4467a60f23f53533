#!/usr/bin/env bash
# Runs the recipes of docs/FAULTS.md ("in CI in five minutes"), as they stand there: the loop, the
# steps of the GitHub job, the Dockerfile's line that runs softring, cargo test, and CTest with and
# without a launcher. Each must fail with a program that has a bug (examples/buggy), and succeed
# with its corrected twin. Where ci/package.sh has made a .deb, the job's step unpacks that.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/fault-recipes.sh [options]
  --only WORD   run only the recipes whose name contains WORD (repeatable)
  --dist DIR    the packages (default: dist/out)
EOF
}

DIST=$TOP/dist/out

option() {
    case $1 in
        --dist) DIST=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

BAD=0

# block WORD  prints the first fenced block of docs/FAULTS.md that has WORD in it.
block() {
    awk -v word="$1" '
        /^```/ { if (inside && index(text, word)) { printf "%s", text; exit }
                 inside = !inside; text = ""; next }
        inside { text = text $0 "\n" }' "$TOP/docs/FAULTS.md"
}

the_loop() {
    sh -c "$(block 'for seed in')"
}

# The steps of the job that are commands, for each seed of its matrix, each in a shell as GitHub's
# runner starts it. What is installed goes to a folder instead of this system.
github_job() {
    local seed failed=0 step steps=()
    mapfile -t steps < <(block 'runs-on:' | sed -n 's/^ *- run: //p')
    [ ${#steps[@]} = 3 ] || die 'docs/FAULTS.md has another number of steps'
    printf 'tests:\n\ttest -x my-tests\n' >Makefile
    mkdir -p runner
    printf '#!/bin/sh\nexec "$@"\n' >runner/sudo
    # shellcheck disable=SC2016  # the script's own variables
    printf '#!/bin/sh\ntest "$1" = -i && exec dpkg-deb -x "$2" "%s/installed"\n' "$PWD" >runner/dpkg
    chmod +x runner/*
    local path=$PWD/runner:$PATH
    [ -z "$DEB" ] || path=$PWD/runner:$PWD/installed/usr/bin:$PATH
    [ -n "$DEB" ] || steps=("${steps[@]:1}")
    for seed in $(block 'runs-on:' | sed -n 's/^ *seed: \[\(.*\)\]/\1/p' | tr -d ,); do
        for step in "${steps[@]}"; do
            # shellcheck disable=SC2016  # GitHub replaces this
            PATH=$path SOFTRING_DEB=file://$DEB TMPDIR=$PWD \
                bash -e -c "${step//'${{ matrix.seed }}'/$seed}" && continue
            [[ $step = *--faults* ]] || die "a step failed: $step"
            failed=1
        done
    done
    [ -z "$DEB" ] || [ -x installed/usr/bin/softring ] || die 'the job installs nothing'
    rm -f /tmp/softring.deb
    [ $failed = 0 ] || [ -s faults.jsonl ] || die 'there is no log to upload'
    return $failed
}

# The Dockerfile's RUN, for some seeds, with its COPY of my-tests.
dockerfile() {
    local line seed failed=0
    line=$(block 'FROM docker.io' | sed -n 's/^RUN //p')
    [ -n "$line" ] || die 'docs/FAULTS.md has no RUN'
    for seed in 1 2 3 4 5 6 7 8; do
        PATH=$PWD:$PATH SEED=$seed sh -c "$line" || failed=1
    done
    return $failed
}

cargo_test() {
    mkdir -p crate/tests crate/src
    printf '[package]\nname = "recipe"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n' \
        >crate/Cargo.toml
    : >crate/src/lib.rs
    # A child of the test has the faults, too.
    cat >crate/tests/program.rs <<'EOF2'
#[test]
fn program() {
    let program = std::env::var("PROGRAM").unwrap();
    assert!(std::process::Command::new(program).status().unwrap().success());
}
EOF2
    (cd crate && CARGO_TARGET_DIR=$PWD/target PROGRAM=$PWD/../my-tests \
        sh -ec "$(block CARGO_TARGET_X86_64)")
}

# project LINE…  writes a project whose test program is my-tests.
project() {
    printf 'cmake_minimum_required(VERSION 3.13)\nproject(recipe C)\nenable_testing()\n'
    printf 'add_executable(my-tests %s)\n' "$SOURCE"
    [ "$FIXED" = '' ] || printf 'target_compile_definitions(my-tests PRIVATE FIXED)\n'
    printf '%s\n' "$@"
}

ctest_by_name() {
    project "$(block 'add_test(')" >CMakeLists.txt
    cmake -S . -B built && cmake --build built && (cd built && ctest --output-on-failure)
}

# Debian 12 has an older CMake.
ctest_launcher() {
    project 'add_test(NAME my-tests COMMAND my-tests)' >CMakeLists.txt
    PATH=$CMAKE/bin:$PATH sh -ec "$(block CMAKE_TEST_LAUNCHER)"
}

# recipe NAME FUNCTION PROGRAM  tries a recipe with a program of examples/buggy.
recipe() {
    local name=$1 function=$2 program=$3 twin rc said
    wanted "$name" || return 0
    for twin in '' -fixed; do
        rm -rf "$SCRATCH/at" && mkdir "$SCRATCH/at" && cd "$SCRATCH/at" || exit 2
        cp "$BUGGY/$program$twin" my-tests
        SOURCE=$TOP/examples/buggy/$program.c FIXED=$twin "$function" >"$SCRATCH/log" 2>&1
        rc=$?
        said='as it should'
        if [ "$twin" = '' ] && [ $rc = 0 ] || [ "$twin" != '' ] && [ $rc != 0 ]; then
            said=WRONG BAD=$((BAD + 1))
            tail -n 20 "$SCRATCH/log"
        fi
        printf '%-12s %-20s exit %-3s %s\n' "$name" "$program$twin" $rc "$said"
    done
}

scratch fault-recipes
need_softring
need cc:gcc make:make cmake:cmake curl:curl
BUGGY=$SCRATCH/buggy
make -s -C "$TOP/examples/buggy" OUT="$BUGGY" || die 'examples/buggy does not build'
PATH=$(dirname "$(realpath "$SOFTRING")"):$PATH
DEB=$(realpath "$DIST"/softring_*.deb 2>/dev/null)
[ -n "$DEB" ] || note "no .deb in $DIST: the GitHub job's first step is left out"
recipe 'loop' the_loop order
recipe 'GitHub' github_job order
recipe 'Dockerfile' dockerfile order
recipe 'cargo test' cargo_test order
recipe 'CTest' ctest_by_name order
if wanted launcher; then
    CMAKE=$TOP/target/tools/cmake
    python_tools "$CMAKE" cmake==3.29.6
    recipe 'launcher' ctest_launcher order
fi
[ "$BAD" = 0 ]
