#!/usr/bin/env bash
# Runs programs with rings under other people's policies: seccomp filters that refuse single calls,
# limits, namespaces, sandboxes. Each cell of the printed table is "works", "refused" (no ring, and
# a line of softring's says why) or "fails". A cell that differs from ci/environments.tsv is run
# once more, and its first output is shown. The script fails if the cell differs again, or if more
# than three cells differed.
#
# --quick leaves out real programs, sandboxes and containers, which need packages.
set -u
cd "$(dirname "$0")/.." || exit 2
# shellcheck source=ci/lib.sh
. ci/lib.sh
# shellcheck source=ci/sandboxes.sh
. ci/sandboxes.sh

usage() {
    cat <<'END'
usage: ci/environments.sh [--quick] [--only ROW]... [--logs DIR] [--jobs N] [--write]

  --quick      run only the program of checks, and only rows that need no packages
  --only ROW   run only this row of the table
  --logs DIR   keep the output of every cell in DIR
  --jobs N     run N cells at a time (default: four per processor)
  --write      write the results to ci/environments.tsv
END
}

JOBS=$(($(nproc) * 4)) WRITE=''
option() {
    case $1 in
        --jobs) JOBS=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        --write) WRITE=1 ;;
        *) return 1 ;;
    esac
}
options "$@"

CHECKS=${CHECKS:-$(dirname "$SOFTRING")/softring-environments}
LIBRARY=${LIBRARY:-$(dirname "$SOFTRING")/libsoftring.so}
need_softring
[ -x "$CHECKS" ] || die "$CHECKS is not there; run 'cargo build --release' first"
scratch environments
keep_logs
# Seconds for one cell; the checks end themselves earlier.
CELL=40

# Another user may read and write here, too.
chmod 755 "$SCRATCH"
BIN=$SCRATCH/bin TMPDIR=$SCRATCH/tmp
mkdir -p "$BIN" "$TMPDIR" "$SCRATCH/cells"
chmod 1777 "$TMPDIR"
cp "$SOFTRING" "$CHECKS" "$LIBRARY" "$BIN"
export TMPDIR BIN
SOFTRING=$BIN/softring CHECKS=$BIN/softring-environments LIBRARY=$BIN/libsoftring.so

ROWS=() SKIPPED=()
declare -A POLICY WRAP UNFIT SANDBOX

# row NAME POLICY…  adds a row whose programs run under a policy of `softring-environments under`.
row() {
    ROWS+=("$1")
    POLICY[$1]="${*:2}"
}

# wrapped NAME WRAPPER POLICY…  adds such a row inside a command, a function of this script.
wrapped() {
    row "$1" "${@:3}"
    WRAP[$1]=$2
}

# skip NAME WHY  notes a row that this machine cannot run.
skip() {
    SKIPPED+=("$1: $2")
}

# Reports a release as gVisor and old kernels do, whose pipes know no RWF_NOWAIT.
old_release() {
    setarch --uname-2.6 "$@"
}

no_proc() {
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"
}

no_shm() {
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare -m sh -c 'mount -t tmpfs -o size=0,nr_inodes=1,ro none /dev/shm && exec "$@"' sh "$@"
}

pid_namespace() {
    unshare --pid --fork --mount-proc "$@"
}

rows() {
    local call answer nr
    row 'nothing denied'
    for answer in EPERM ENOSYS EACCES EOPNOTSUPP kill; do row "rings $answer" "rings=$answer"; done
    for call in io_uring_enter io_uring_register; do
        for answer in EPERM ENOSYS kill; do row "$call $answer" "$call=$answer"; done
    done
    for nr in 334 435 440 447; do
        row "above $nr ENOSYS" rings=ENOSYS "above=$nr:ENOSYS"
    done
    row 'no_new_privs' rings=EPERM no_new_privs
    row 'MDWE by prctl' rings=EPERM mdwe=prctl
    row 'MDWE by seccomp' rings=EPERM mdwe=seccomp
    row 'nproc 8' rings=EPERM user=own nproc=8
    row 'nofile 64' rings=EPERM nofile=64
    row 'memlock 0' rings=EPERM user=65534 memlock=0
    row 'memlock 64k' rings=EPERM user=65534 memlock=65536
    row 'memory 64 MiB' rings=EPERM as=64
    UNFIT['memory 64 MiB']=' fio fio-preload qemu qemu-preload '
    [ -n "$QUICK" ] || skip 'memory 64 MiB, fio and qemu' 'they need more, also without softring'
    # The C library calls madvise at the end of a thread with a large stack.
    UNFIT['madvise kill']=' qemu qemu-preload '
    [ -n "$QUICK" ] || skip 'madvise kill, qemu' 'the C library calls it now and then'
    row 'another user' rings=EPERM user=65534
    wrapped 'old release' old_release rings=EPERM
    if unshare -m true 2>/dev/null; then
        wrapped 'no /proc' no_proc rings=EPERM
        wrapped 'no /dev/shm' no_shm rings=EPERM
        wrapped 'no /dev/shm, no memfd' no_shm rings=EPERM memfd_create=EPERM
        wrapped 'pid namespace' pid_namespace rings=EPERM
    else
        skip 'no /proc, no /dev/shm, pid namespace' 'unshare(2) is denied'
    fi
    sandboxes
    skip 'poll, rt_sigaction' 'no program of Rust starts without them, as the checks are'
    for call in $(comm -23 <("$CHECKS" calls | sort) <("$CHECKS" calls --kill | sort)); do
        skip "$call kill" 'the checks themselves, and what starts them, make it'
    done
    for answer in EPERM ENOSYS kill; do
        # shellcheck disable=SC2046  # nothing, or an option
        for call in $("$CHECKS" calls $([ $answer = kill ] && echo --kill)); do
            row "$call $answer" rings=EPERM "$call=$answer"
        done
    done
}

# sandboxed NAME COMMAND FUNCTION [OPTION]  adds a row for a sandbox, if it is there and runs at
# all; `softring run` gets the option.
sandboxed() {
    local why
    if ! command -v "$2" >/dev/null; then
        skip "$1" "$2 is not installed"
    elif ! why=$("$3" true 2>&1); then
        skip "$1" "it does not run here: $(tail -n 1 <<<"$why")"
    else
        wrapped "$1" "$3"
        SANDBOX[$1]=${4:---engine=auto}
    fi
}

sandboxes() {
    if [ -n "$QUICK" ]; then
        skip 'containers and sandboxes' 'they need packages, and --quick was given'
        return
    fi
    containers
    sandboxed bubblewrap bwrap bubblewrap
    sandboxed 'bubblewrap, rings EPERM' bwrap bubblewrap_without_rings
    sandboxed gVisor runsc gvisor
    sandboxed 'gVisor, user engine' runsc gvisor --engine=user
    sandboxed 'gVisor, rootless' runsc gvisor_rootless
    sandboxed podman podman container
    sandboxed 'podman, rootless' podman container_rootless
    if [ -s "$PROFILE" ]; then
        sandboxed "podman, Docker's profile" podman container_docker
        sandboxed "podman, rootless, Docker's" podman container_rootless_docker
    else
        skip "Docker's profile" 'go, which fetches it, is not installed or finds no proxy'
    fi
    sandboxed buildah buildah image_build
    sandboxed 'buildah, rootless' buildah image_build_rootless
    [ -s "$PROFILE" ] || return 0
    sandboxed "buildah, Docker's profile" buildah image_build_docker
    sandboxed "buildah, rootless, Docker's" buildah image_build_rootless_docker
}

FIO=(fio --name=v --size=1m --bs=16k --rw=randwrite --verify=crc32c --iodepth=8 --unlink=1
    "--directory=$TMPDIR" --minimal)
QEMU=(qemu-img bench -q -c 200 -d 8 -s 4096 -f raw -t none -w)

# fits ROW COLUMN  tells whether this machine and that environment can run the cell at all.
fits() {
    [[ ${UNFIT[$1]:-} != *" $2 "* ]] || return 1
    [ "$2" != node ] || [ -n "${SANDBOX[$1]:-}" ]
}

# program ROW COLUMN  sets PROGRAM to the command of a cell.
program() {
    local run=("$SOFTRING" run "${SANDBOX[$1]:---engine=auto}" --)
    local preload=(env "LD_PRELOAD=$LIBRARY")
    [ "${SANDBOX[$1]:-}" != --engine=user ] || preload+=(SOFTRING_ENGINE=user)
    local fio=("${FIO[@]}" "--filename=fio.$BASHPID" "--output=$TMPDIR/fio.$BASHPID.out")
    local qemu=("${QEMU[@]}" -i io_uring "$TMPDIR/disk")
    case $2 in
        doctor) PROGRAM=("$SOFTRING" doctor --json) ;;
        run) PROGRAM=("${run[@]}" "$CHECKS" checks) ;;
        preload) PROGRAM=("${preload[@]}" "$CHECKS" checks) ;;
        fio) PROGRAM=("${run[@]}" "${fio[@]}" --ioengine=io_uring) ;;
        fio-preload) PROGRAM=("${preload[@]}" "${fio[@]}" --ioengine=io_uring) ;;
        qemu) PROGRAM=("${run[@]}" "${qemu[@]}") ;;
        qemu-preload) PROGRAM=("${preload[@]}" "${qemu[@]}") ;;
        fio*' alone') PROGRAM=("${fio[@]}" --ioengine=psync) ;;
        qemu*' alone') PROGRAM=("${QEMU[@]}" -i threads "$TMPDIR/disk") ;;
        node)
            mkdir -p "$TMPDIR/node.$BASHPID" && chmod 777 "$TMPDIR/node.$BASHPID"
            PROGRAM=(env UV_USE_IO_URING=1 "${run[@]}" node "$BIN/node-files.js"
                "$TMPDIR/node.$BASHPID" 60)
            ;;
    esac
}

# cell ROW COLUMN  runs a cell, and writes its verdict to a file.
cell() {
    local name=$1 column=$2 log verdict rc why policy
    local under=(timeout -k 2 "$CELL" "$CHECKS" under)
    # This cell has a user of its own, whose processes no other cell counts.
    policy=${POLICY[$name]//user=own/user=$((60000 + BASHPID % 5000))}
    log=$LOGS/${name//[ \/]/_}.$column
    program "$name" "$column"
    # shellcheck disable=SC2086  # a policy is words, a wrapper may be none
    ${WRAP[$name]:-} "${under[@]}" $policy -- "${PROGRAM[@]}" >"$log" 2>&1 </dev/null
    rc=$?
    [ $rc != 0 ] || [ "$column" != node ] || grep -qx "$DIGEST" "$log" || rc=1
    why=$(grep '^softring: ' "$log" | grep -v -m1 '^softring: this program')
    if [ $rc = 0 ]; then
        verdict=works
    elif [ "$column" = doctor ] && [ $rc = 1 ]; then
        verdict=refused
    elif [ $rc -lt 124 ] && [ -n "$why" ] && ! grep -q ' passed, ' "$log"; then
        verdict=refused
    else
        verdict="fails ($rc)"
        program "$name" "$column alone"
        # shellcheck disable=SC2086
        [[ $column != fio* && $column != qemu* ]] ||
            ${WRAP[$name]:-} "${under[@]}" $policy -- "${PROGRAM[@]}" >"$log.alone" 2>&1 ||
            verdict='fails alone'
    fi
    printf '%s\n' "$verdict" >"$SCRATCH/cells/${name//\//_}.$column"
}

# ask_again ROW COLUMN  runs a cell that differs once more; if it agrees then, shows its first
# output.
ask_again() {
    local log=$LOGS/${1//[ \/]/_}.$2
    mv "$log" "$log.first"
    cell "$1" "$2"
    [ "$(cat "$SCRATCH/cells/${1//\//_}.$2")" = "$want" ] || return 0
    AGAIN=$((AGAIN + 1))
    note "$1, $2: $got, and $want only when asked again; at first it said:"
    tail -n 20 "$log.first" >&2
    got=$want
}

# expected ROW COLUMN  prints the verdict of ci/environments.tsv, which lists the cells other than
# "works".
expected() {
    awk -F '\t' -v row="$1" -v column="$2" '
        !/^#/ && $1 == row && $2 == column { print $3; found = 1 }
        END { if (!found) print "works" }' ci/environments.tsv
}

wanted() {
    local only
    [ ${#ONLY[@]} -gt 0 ] || return 0
    for only in "${ONLY[@]}"; do [ "$only" = "$1" ] && return 0; done
    return 1
}

COLUMNS=(run preload doctor)
if [ -z "$QUICK" ]; then
    need fio:fio qemu-img:qemu-utils
    COLUMNS+=(fio fio-preload qemu qemu-preload)
    head -c 4194304 /dev/zero >"$TMPDIR/disk"
    chmod 666 "$TMPDIR/disk"
    if command -v node >/dev/null; then
        COLUMNS+=(node)
        cp ci/node-files.js "$BIN"
        mkdir "$TMPDIR/node"
        DIGEST=$(node ci/node-files.js "$TMPDIR/node" 60)
    else
        skip 'Node in sandboxes' 'node is not installed'
    fi
fi
trap 'containers_end; chmod -R u+rwX "$SCRATCH" 2>/dev/null; rm -rf "$SCRATCH"' EXIT
rows

began=$SECONDS
for name in "${ROWS[@]}"; do
    wanted "$name" || continue
    for column in "${COLUMNS[@]}"; do
        fits "$name" "$column" || continue
        while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
        cell "$name" "$column" &
    done
done
wait

CHANGED=0 CELLS=0 AGAIN=0
{
    printf '# What does not simply work in ci/environments.sh: row, column, what happens.\n'
    printf '# Written by ci/environments.sh --write.\n'
} >"$SCRATCH/found.tsv"
format='%-28s'"$(printf ' %%-12s%.0s' "${COLUMNS[@]}")"'\n'
# shellcheck disable=SC2059  # the format has a column for each
printf "$format" environment "${COLUMNS[@]}"
for name in "${ROWS[@]}"; do
    wanted "$name" || continue
    cells=()
    for column in "${COLUMNS[@]}"; do
        if ! fits "$name" "$column"; then
            cells+=(-)
            continue
        fi
        got=$(cat "$SCRATCH/cells/${name//\//_}.$column")
        want=$(expected "$name" "$column")
        CELLS=$((CELLS + 1))
        if [ "$column" = doctor ]; then
            # doctor must report what the program gets.
            want=$(cat "$SCRATCH/cells/${name//\//_}.run")
        fi
        if [ "$got" != "$want" ] && [ "$column" != doctor ] && [ $AGAIN -lt 3 ]; then
            ask_again "$name" "$column"
        fi
        [ "$got" = works ] || [ "$column" = doctor ] ||
            printf '%s\t%s\t%s\n' "$name" "$column" "$got" >>"$SCRATCH/found.tsv"
        if [ "$got" != "$want" ]; then
            CHANGED=$((CHANGED + 1))
            got="$got (!)"
            note "$name, $column: $got, was: $want; see $LOGS/${name//[ \/]/_}.$column"
        fi
        cells+=("$got")
    done
    # shellcheck disable=SC2059
    printf "$format" "$name" "${cells[@]}"
done
for skipped in "${SKIPPED[@]}"; do printf 'skipped: %s\n' "$skipped"; done
printf '%d cells in %d s, %d changed, %d only when asked again, %d rows skipped\n' \
    $CELLS $((SECONDS - began)) $CHANGED $AGAIN ${#SKIPPED[@]}
if [ -n "$WRITE" ]; then
    cp "$SCRATCH/found.tsv" ci/environments.tsv
    exit 0
fi
[ $CHANGED = 0 ]
