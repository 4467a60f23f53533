#!/usr/bin/env bash
# Runs real programs under injected faults that a correct kernel may produce (docs/FAULTS.md), each
# with several seeds, and prints a table. Each program checks every byte. docs/FOUND.md explains the
# rows that fail: there the program takes such a fault wrongly. Any other failure fails the script.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/found.sh [options]
  --quick       4 seeds for each row
  --seeds N     N seeds for each row (default: 20)
  --only WORD   run only the rows whose name contains WORD (repeatable)
  --logs DIR    keep the reports of \`softring explore\` in DIR
EOF
}

SEEDS='' BAD=0

option() {
    case $1 in
        --seeds) SEEDS=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

# What a kernel may do but for short counts, which most programs do not expect of files.
WHOLE='legal,short-read=0,short-write=0'

# row passes|found NAME SPEC CMD…  runs a program under SPEC, each time in an empty folder.
row() {
    local expected=$1 name=$2 spec=$3 log
    shift 3
    wanted "$name" || return 0
    log=$LOGS/$(printf '%s' "$name $spec" | tr -c 'a-zA-Z0-9.=\n' '_').log
    "$SOFTRING" explore --quiet --faults "$spec" --seeds "$SEEDS" --with "$SCRATCH/empty" \
        --timeout 20s --no-minimise -- "$@" >"$log" 2>&1 </dev/null
    judge "$expected" "$log" 'passes, though docs/FOUND.md says that it fails for some seeds' \
        'fails: docs/FOUND.md'
    printf '%-26s %-36s %5s %7s  %s\n' "$name" "$spec" "$SEEDS" "$FAILED" "$SAID"
}

# fio_of RW OPTION…  prints a command that checks checksummed blocks of a file that it writes.
fio_of() {
    local rw=$1
    shift
    printf '%s ' exec fio --name=job --ioengine=io_uring --bs=4k --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --filename=data --size=1m --iodepth=16 --rw="$rw" "$@"
}

fio_rows() {
    local rw how options
    for rw in write randrw; do
        for how in plain fixed sqthread direct; do
            options=()
            case $how in
                fixed) options=(--fixedbufs --registerfiles) ;;
                sqthread) options=(--sqthread_poll=1) ;;
                direct) options=(--direct=1) ;;
            esac
            row passes "fio $rw $how" "$WHOLE" sh -c "$(fio_of $rw "${options[@]}")"
        done
    done
    row found 'fio randrw plain' short-read=0.05 sh -c "$(fio_of randrw)"
    row found 'fio randrw plain' short-write=0.05 sh -c "$(fio_of randrw)"
}

qemu_rows() {
    local cache
    for cache in off on; do
        row passes "qemu-img direct=$cache" "$WHOLE" sh "$TOP/ci/found/qemu-img.sh" "$cache"
    done
    row found 'qemu-img direct=off' short-read=0.2 sh "$TOP/ci/found/qemu-img.sh" off
    row found 'qemu-img direct=off' short-write=0.2 sh "$TOP/ci/found/qemu-img.sh" off
}

node_rows() {
    local node=(env UV_USE_IO_URING=1 node "$TOP/ci/found/node-files.js" 24)
    row passes 'node files' "$WHOLE" "${node[@]}"
    row passes 'node files' short-write=0.05 "${node[@]}"
    row found 'node files' short-read=0.05 "${node[@]}"
}

# Each run fills a copy of the store, and verifies it.
mariadb_rows() {
    local made=$SCRATCH/made store="bash $TOP/ci/found/mariadb-store.sh"
    wanted mariadb || return 0
    mkdir "$made"
    (cd "$made" && $store make fsync) >"$LOGS/make.log" 2>&1 ||
        die "the server makes no tables: $(tail -n 1 "$LOGS/make.log")"
    local run="cp -a '$made'/. . && $store fill fsync >told && $store verify fsync <told"
    row passes mariadb legal,eagain=0 sh -c "$run"
    row found mariadb eagain=0.05@op=ENTER sh -c "$run"
}

main() {
    SEEDS=${SEEDS:-$([ -n "$QUICK" ] && echo 4 || echo 20)}
    scratch found
    keep_logs
    mkdir -p "$SCRATCH/empty"
    need_softring
    need fio:fio qemu-img:qemu-utils node:nodejs mariadbd:mariadb-server
    printf '%-26s %-36s %5s %7s\n' PROGRAM FAULTS SEEDS FAILED
    fio_rows
    qemu_rows
    node_rows
    mariadb_rows
    [ "$BAD" = 0 ] || echo "$BAD rows fail that docs/FOUND.md does not explain"
    [ "$BAD" = 0 ]
}

main
