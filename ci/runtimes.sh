#!/usr/bin/env bash
# Runs the test suites that event-driven io_uring runtimes carry in their registry packages, and the
# examples of the io-uring crate, each test in a process of its own, and prints a table: on the
# kernel's io_uring, with io_uring denied, and denied with softring underneath.
#
# A test that passes on the kernel must pass under softring, where strace must see no io_uring call
# succeed. (A static program has no tracer there: `softring run --deny` alone sees to that.) A test
# proves something if it also uses a ring: softring made one for it. (A failure
# where io_uring is denied proves less: some of these tests run on epoll, too, or instead.)
#
# cargo fetches the packages as this machine's owner has set it up; this repository keeps nothing of
# theirs. Their documentation tests are left out: most do not run anything.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF2
usage: ci/runtimes.sh [options]
  --quick         skip the denied leg
  --faults SPEC   inject faults under softring (docs/FAULTS.md): docs/FOUND.md explains what fails
  --only WORD     run only the tests whose name contains WORD (repeatable)
  --package NAME  run only the tests of this package (repeatable)
  --static-musl   build the tests as static programs of musl's
  --list          print the names of the tests
  --source DIR    keep and reuse sources and built tests in DIR (target/runtimes)
  --logs DIR      keep the output and strace log of every test in DIR
EOF2
}

# Package, version, features. Without LegacyDriver (legacy) monoio's tests do not compile; with it,
# its feature splice does not (hence tests/zero_copy.rs is empty).
MONOIO='iouring legacy macros utils async-cancel bytes mkdirat unlinkat renameat'
MONOIO+=' poll-io signal sync'
PACKAGES="
tokio-uring     0.5.0   bytes
monoio          0.2.4   $MONOIO
compio-driver   0.12.5  io-uring
compio-runtime  0.12.6  time async-fd
compio          0.19.2  runtime io-uring fs net macros time
tokio           1.54.1  rt-multi-thread fs io-util io-uring macros sync time
io-uring        0.7.15
"
# Tests that do not pass on every kernel either: two that close a descriptor twice (std's debug
# check ends them), some that fail for root, some that need the Internet, and some that set
# SO_REUSEPORT on AF_UNIX sockets. Used if there is no kernel to compare with.
EXCUSED='explicit_close|drop_off_runtime|permission|(uring|legacy)_(cancel_read|cancel_select|'
EXCUSED+='connect_timeout_dst|accept_read_write|shutdown)$'
# Dependencies that only the packages' benchmarks and examples need, and that take long to build.
UNUSED='criterion iai console-subscriber monoio compio-runtime async-stream futures-concurrency'
UNUSED+=' futures-test mockall proptest tracing-mock'
# tokio has rings only with this.
UNSTABLE='--cfg tokio_unstable'
ECHO_PORT=3456

LIST='' SOURCE='' FAULTS='' TARGET='' CHOSEN=() JOBS=2
MUSL=x86_64-unknown-linux-musl

option() {
    case $1 in
        --list) LIST=1 ;;
        --package) CHOSEN+=("$(argument "${@:1:2}")") || exit; TOOK=2 ;;
        --static-musl) TARGET=$MUSL ;;
        --faults) FAULTS=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        --source) SOURCE=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

# packages  prints the table without its blanks, and without packages that are not asked for.
packages() {
    local name rest
    while read -r name rest; do
        if [ -n "$name" ] && [[ ${#CHOSEN[@]} = 0 || " ${CHOSEN[*]} " = *" $name "* ]]; then
            printf '%s %s\n' "$name" "$rest"
        fi
    done <<<"$PACKAGES"
}

# fetch  has cargo fetch the packages, and copies them into a workspace without what the tests do
# not need.
fetch() {
    local name version features
    mkdir -p "$SOURCE/fetch/src"
    : >"$SOURCE/fetch/src/lib.rs"
    {
        printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n'
        printf '[workspace]\n[dependencies]\n'
        while read -r name version features; do
            printf '%s = "=%s"\n' "$name" "$version"
        done < <(packages)
    } >"$SOURCE/fetch/Cargo.toml"
    (
        cd "$SOURCE/fetch" &&
            cargo metadata --quiet --format-version 1 --filter-platform "${TARGET:-$(host)}" \
                >metadata.json
    ) || die "cargo could not fetch the packages; see its message above"
    rm -rf "${SOURCE:?}/ws" "$SOURCE/run"
    mkdir -p "$SOURCE/ws"
    UNUSED=$UNUSED python3 - "$SOURCE" <(packages) <<'EOF2'
import json, os, re, shutil, sys

top, table = sys.argv[1:3]
unused = set(os.environ["UNUSED"].split())
found = json.load(open(f"{top}/fetch/metadata.json"))["packages"]
where = {(p["name"], p["version"]): os.path.dirname(p["manifest_path"]) for p in found}
names = []
for name, version, *_ in map(str.split, open(table)):
    shutil.copytree(where[name, version], f"{top}/ws/{name}")
    names.append(name)
    # Where the tests run: as in the repository that the package was made from.
    run = shutil.copytree(where[name, version], f"{top}/run/{name}")
    shutil.copy(f"{run}/Cargo.toml.orig", f"{run}/Cargo.toml")
    manifest = f"{top}/ws/{name}/Cargo.toml"
    kept = []
    for part in re.split(r"(?m)^(?=\[)", open(manifest).read()):
        dev = re.match(r"\[(?:target\..+\.)?dev-dependencies\.\"?([\w-]+)", part)
        example = part.startswith("[[example]]") and name != "io-uring"
        if dev and dev[1] in unused or part.startswith(("[[bench]]", "[profile")) or example:
            continue
        if name == "compio-runtime" and part.startswith("[dependencies.compio-driver]"):
            part = part.replace("\n", '\nfeatures = ["io-uring"]\n', 1)
        kept.append(re.sub(r"(?ms)^real_blackbox = \[.*?\]\n", "", part))
    open(manifest, "w").write("".join(kept))
with open(f"{top}/ws/Cargo.toml", "w") as f:
    f.write(f'[workspace]\nresolver = "2"\nmembers = {json.dumps(names)}\n')
    f.write("[profile.dev]\ndebug = 0\n")
EOF2
}

host() {
    rustc -vV | sed -n 's/^host: //p'
}

# need_target  has rustup install the target's standard library, if it is missing.
need_target() {
    [ -d "$(rustc --print target-libdir --target "$TARGET")" ] || rustup -q target add "$TARGET" ||
        die "no standard library for $TARGET; install it (rustup target add $TARGET)"
}

# build  builds every package's tests, and lists them in $SOURCE/programs: package, target, program.
# Names those that do not compile, and leaves them out.
build() {
    local name version features
    : >"$SOURCE/programs.new"
    while read -r name version features; do
        local kinds=(--lib --tests)
        export CARGO_TARGET_DIR=$SOURCE/target RUSTFLAGS=
        case $name in
            io-uring) kinds=(--examples) ;;
            # Its other tests are of its pool of threads.
            tokio) kinds=(--test 'fs_*') RUSTFLAGS=$UNSTABLE CARGO_TARGET_DIR+=/unstable ;;
        esac
        (
            cd "$SOURCE/ws/$name" && cargo build --quiet --keep-going "${kinds[@]}" \
                ${TARGET:+--target "$TARGET"} \
                --no-default-features --features "$features" --message-format json \
                2>"$SOURCE/$name.err"
        ) >"$SOURCE/$name.json" </dev/null
        python3 - "$name" "$SOURCE/$name.json" >>"$SOURCE/programs.new" <<'EOF2' ||
import json, sys

name, log = sys.argv[1:3]
failed, built = {}, 0
for line in open(log):
    m = json.loads(line)
    target = m.get("target", {}).get("name")
    if m["reason"] == "compiler-message" and m["message"]["level"] == "error":
        failed.setdefault(target, m["message"]["message"])
    elif m["reason"] == "compiler-artifact" and m.get("executable"):
        if m["profile"]["test"] or "example" in m["target"]["kind"]:
            print(name, target, m["executable"], sep="\t")
            built += 1
for target, why in failed.items():
    print(f"skipped: {name}'s {target} does not compile: {why}", file=sys.stderr)
sys.exit(built == 0)
EOF2
            die "nothing of $name $version was built; see $SOURCE/$name.err"
    done < <(packages)
    mv "$SOURCE/programs.new" "$SOURCE/programs"
}

# list  prints one line for each test: number, package, target, program, name.
list() {
    local package target program name
    while IFS=$'\t' read -r package target program; do
        if [ "$package" = io-uring ]; then
            printf '%s\t%s\t%s\t%s\n' "$package" examples "$program" "$target"
            continue
        fi
        "$program" --list --format terse </dev/null | sed -n 's/: test$//p' | while read -r name; do
            printf '%s\t%s\t%s\t%s\n' "$package" "$target" "$program" "$name"
        done
    done <"$SOURCE/programs" | awk -F'\t' -v OFS='\t' -v only="${ONLY[*]}" '
        BEGIN { n = split(only, words, " ") }
        {
            wanted = n == 0
            for (i = 1; i <= n; i++) wanted = wanted || index($1 "/" $2 "/" $4, words[i])
            if (wanted) print ++number, $0
        }'
}

# example PROGRAM NAME  runs an example of the io-uring crate, with the prefix in PREFIX.
example() {
    local server rc
    case $2 in
        tcp_echo) ;;
        *) "${PREFIX[@]}" "$1"; return ;;
    esac
    "${PREFIX[@]}" "$1" &
    server=$!
    python3 - $ECHO_PORT <<'EOF2'
import os, socket, sys, time

def connect():
    for _ in range(300):
        try:
            return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        except ConnectionRefusedError:
            time.sleep(0.02)
    sys.exit("nobody listens")

peers = [connect() for _ in range(20)]
for turn in range(50):
    sent = os.urandom(1 + turn * 40)
    for s in peers:
        s.sendall(sent)
    for s in peers:
        got = b""
        while len(got) < len(sent):
            more = s.recv(65536) or sys.exit("the stream ended early")
            got += more
        if got != sent:
            sys.exit("not what was sent")
EOF2
    rc=$?
    kill "$server" 2>/dev/null
    return $rc
}

# one LEG NUMBER PACKAGE TARGET PROGRAM NAME  runs one test and records the outcome.
one() {
    local leg=$1 number=$2 package=$3 program=$5 name=$6 rc verdict log trace
    log=$LOGS/$1/$3_${4}_${6//[:\/]/_}.log trace=${log%.log}.strace
    PREFIX=()
    case $leg in
        denied) read -ra PREFIX <<<"$DENY" ;;
        softring)
            [ -z "$TARGET" ] || PREFIX=("$SOFTRING" run --deny ${FAULTS:+--faults "$FAULTS"} --)
            ;;
    esac
    case $leg$TARGET in
        softring)
            : >"$trace"
            PREFIX=(strace -f -qq --seccomp-bpf -A -o "$trace"
                -e "trace=io_uring_setup,io_uring_enter,io_uring_register,memfd_create"
                "$SOFTRING" run --deny --quiet ${FAULTS:+--faults "$FAULTS"} --)
            ;;
    esac
    (
        cd "$SOURCE/run/$package" || exit 2
        export SOFTRING_CHECK=$PPID-$leg-$number
        if [ "$package" = io-uring ]; then
            export -f example
            # shellcheck disable=SC2016  # the inner shell fills these in
            exec timeout -k 5 "$LIMIT" bash -c 'read -ra PREFIX <<<"$1"; example "$2" "$3"' \
                example "${PREFIX[*]}" "$program" "$name"
        fi
        exec timeout -k 5 "$LIMIT" "${PREFIX[@]}" "$program" --exact --test-threads 1 "$name"
    ) >"$log" 2>&1 </dev/null
    rc=$?
    end_tagged "$PPID-$leg-$number"
    case $rc in
        0) if grep -q ' 1 ignored' "$log"; then verdict=ignored; else verdict=pass; fi ;;
        124 | 137) verdict=timeout ;;
        *) verdict=fail ;;
    esac
    if [ "$leg$TARGET" = softring ]; then
        grep -qE 'io_uring_[a-z]+(\(| resumed).*= [0-9]+$' "$trace" && verdict='kernel-ring'
        grep -q 'memfd_create.*io_uring' "$trace" && : >"$SCRATCH/ring/$number"
    elif grep -q 'io_uring runs in user space' "$log"; then
        : >"$SCRATCH/ring/$number"
    fi
    echo "$verdict" >"$SCRATCH/res/$leg/$number"
}

run_leg() {
    local leg=$1
    mkdir -p "$SCRATCH/res/$leg" "$LOGS/$leg"
    note "running $(wc -l <"$SCRATCH/tests") tests: $leg"
    # shellcheck disable=SC2016  # the inner shell fills these in
    tr '\t\n' '\0\0' <"$SCRATCH/tests" |
        xargs -0 -r -n 5 -P "$JOBS" bash -c 'one "$0" "$@" 2>/dev/null' "$leg"
}

# judge KERNEL SOFTRING NAME  prints the verdict on a test's outcomes.
judge() {
    case $1/$2 in
        */kernel-ring | pass/fail | pass/timeout) echo FAILS ;;
        pass/pass | -/pass) echo passes ;;
        ignored/* | -/ignored) echo ignored ;;
        -/*) if [[ $3 =~ $EXCUSED ]]; then echo excused; else echo FAILS; fi ;;
        *) echo 'does not pass on the kernel' ;;
    esac
}

# report  prints the table; fails if a test fails that passes on the kernel.
report() {
    local package packages=() number target name kernel denied softring failed=0 verdict
    local -A tests=() ok=() denies=() proves=() good=()
    while IFS=$'\t' read -r number package target _ name; do
        kernel=$(outcome kernel "$number") denied=$(outcome denied "$number")
        softring=$(outcome softring "$number")
        [ "${tests[$package]:-0}" = 0 ] && packages+=("$package")
        tests[$package]=$((${tests[$package]:-0} + 1))
        [ "$denied" = pass ] && denies[$package]=$((${denies[$package]:-0} + 1))
        verdict=$(judge "$kernel" "$softring" "$name")
        [ "$verdict" = passes ] ||
            echo "$verdict: $package $target $name: kernel $kernel, softring $softring"
        case $verdict in
            passes) ;;
            FAILS) failed=$((failed + 1)) ;;
            *) continue ;;
        esac
        ok[$package]=$((${ok[$package]:-0} + 1))
        [ -e "$SCRATCH/ring/$number" ] && proves[$package]=$((${proves[$package]:-0} + 1))
        [ "$softring" = pass ] && good[$package]=$((${good[$package]:-0} + 1))
    done <"$SCRATCH/tests"
    echo
    printf '%-16s %6s %8s %8s %12s %10s\n' SUITE TESTS KERNEL DENIED 'USE A RING' SOFTRING
    for package in "${packages[@]}"; do
        printf '%-16s %6s %8s %8s %12s %10s\n' "$package" "${tests[$package]}" \
            "$(cell kernel "${ok[$package]:-0}")" "$(cell denied "${denies[$package]:-0}")" \
            "${proves[$package]:-0}" "${good[$package]:-0}"
    done
    echo "(KERNEL, DENIED: tests that pass; the last two columns count those of KERNEL)"
    [ "$failed" = 0 ] || echo "$failed tests fail; --logs DIR keeps their output"
    [ "$failed" = 0 ] && [ ${#packages[@]} -gt 0 ]
}

outcome() {
    cat "$SCRATCH/res/$1/$2" 2>/dev/null || echo -
}

# cell LEG COUNT  prints the count, or a dash if that leg did not run.
cell() {
    if [ -d "$SCRATCH/res/$1" ]; then echo "$2"; else echo -; fi
}

main() {
    scratch runtimes
    keep_logs
    SOURCE=${SOURCE:-$TOP/target/runtimes${TARGET:+-musl}}
    mkdir -p "$SOURCE" "$SCRATCH/ring"
    SOURCE=$(cd "$SOURCE" && pwd)
    command -v cargo >/dev/null || die "cargo is missing; install the Rust toolchain"
    need cc:gcc python3:python3 strace:strace
    [ -z "$TARGET" ] || need_target
    if [ "$(cat "$SOURCE/packages" 2>/dev/null)" != "$(packages)" ]; then
        note "fetching the packages"
        fetch
        packages >"$SOURCE/packages"
    fi
    note "building their tests"
    build
    list >"$SCRATCH/tests"
    if [ -n "$LIST" ]; then cut -f 2,3,5 "$SCRATCH/tests" | tr '\t' ' '; exit 0; fi
    need_softring
    export SOURCE LOGS SCRATCH SOFTRING DENY LIMIT ECHO_PORT FAULTS TARGET
    export -f one example end_tagged tagged
    if kernel_has_uring; then
        run_leg kernel
        [ -n "$QUICK" ] || run_leg denied
    else
        note "no io_uring on this host: the kernel and denied legs are skipped"
    fi
    run_leg softring
    report
}

main
