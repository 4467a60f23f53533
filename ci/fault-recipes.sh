#!/usr/bin/env bash
# Runs the recipes of docs/FAULTS.md ("in CI in five minutes"), as they stand there: the loop, the
# lines of the GitHub job and of the Dockerfile that run softring, cargo test and CTest. Each must
# fail with a program that has a bug (examples/buggy), and succeed with its corrected twin.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/fault-recipes.sh [--only WORD]
EOF
}

option() {
    return 1
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

# The job's step that runs softring, for each seed of its matrix.
github_job() {
    local line seed failed=0
    line=$(block 'runs-on:' | sed -n 's/^ *- run: \(softring run.*\)/\1/p')
    [ -n "$line" ] || die 'docs/FAULTS.md has no step that runs softring'
    for seed in 1 2 3 4 5 6 7 8; do
        # shellcheck disable=SC2016  # GitHub replaces this
        bash -e -c "${line//'${{ matrix.seed }}'/$seed}" || failed=1
    done
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

ctest_launcher() {
    mkdir -p cmake
    {
        printf 'cmake_minimum_required(VERSION 3.13)\nproject(recipe C)\nenable_testing()\n'
        printf 'add_executable(my-tests %s)\n' "$SOURCE"
        [ "$FIXED" = '' ] || printf 'target_compile_definitions(my-tests PRIVATE FIXED)\n'
        block CMAKE_TEST_LAUNCHER
    } >cmake/CMakeLists.txt
    cmake -S cmake -B built >cmake.log && cmake --build built >>cmake.log &&
        (cd built && ctest --output-on-failure)
}

# recipe NAME FUNCTION PROGRAM  tries a recipe with a program of examples/buggy.
recipe() {
    local name=$1 function=$2 program=$3 twin rc said
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
need cc:gcc make:make cmake:cmake
BUGGY=$SCRATCH/buggy
make -s -C "$TOP/examples/buggy" OUT="$BUGGY" || die 'examples/buggy does not build'
PATH=$(dirname "$(realpath "$SOFTRING")"):$PATH
recipe 'loop' the_loop order
recipe 'GitHub' github_job order
recipe 'Dockerfile' dockerfile order
recipe 'cargo test' cargo_test order
recipe 'CTest' ctest_launcher order
[ "$BAD" = 0 ]
