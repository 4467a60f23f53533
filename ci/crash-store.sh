#!/usr/bin/env bash
# Cuts the power of real databases (docs/CRASH.md), each at many points, and checks what recovery
# finds: each commit that a client was told of, and nothing by half. MariaDB stores its pages
# through a ring; SQLite makes plain calls. Prints a table. docs/FOUND.md explains the rows that
# fail; those with `none` in them show that the checker notices what is lost.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF2
usage: ci/crash-store.sh [options]
  --quick       8 points for each row
  --seeds N     N points for each row (default: 200)
  --only WORD   run only the rows whose name contains WORD (repeatable)
  --logs DIR    keep the reports of \`softring crash explore\` in DIR
EOF2
}

SEEDS='' BAD=0

option() {
    case $1 in
        --seeds) SEEDS=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"

# row passes|found MODEL WITH NAME STORE WORD…  cuts the power of `STORE fill WORD…`, each time in a
# copy of the folder WITH, and has `STORE verify WORD…` see what is left.
row() {
    local expected=$1 model=$2 with=$3 name=$4 words log
    read -ra words <<<"$5"
    shift 5
    wanted "$name" || return 0
    log=$LOGS/$(printf '%s' "$name $model" | tr -c 'a-zA-Z0-9.=\n' '_').log
    "$SOFTRING" crash explore --quiet --crash "model=$model" --seeds "$SEEDS" --with "$with" \
        --timeout 60s --check "${words[*]} verify $*" -- "${words[@]}" fill "$@" \
        >"$log" 2>&1 </dev/null
    judge "$expected" "$log" 'passes, though it fails at some points' 'fails, as it should'
    printf '%-32s %-14s %6s %7s  %s\n' "$name" "$model" "$SEEDS" "$FAILED" "$SAID"
}

mariadb_rows() {
    local method model log store="bash $TOP/ci/found/mariadb-store.sh"
    wanted mariadb || return 0
    for method in fsync O_DIRECT; do
        mkdir "$SCRATCH/$method"
        log=$LOGS/make-$method.log
        (cd "$SCRATCH/$method" && bash "$TOP/ci/found/mariadb-store.sh" make $method) \
            >"$log" 2>&1 || die "the server makes no tables: $(tail -n 1 "$log")"
    done
    for model in posix-minimal ext4-ordered; do
        for method in fsync O_DIRECT; do
            row passes $model "$SCRATCH/$method" "mariadb $method" "$store" $method
        done
    done
    row found posix-minimal "$SCRATCH/fsync" 'mariadb fsync, syncs: none' "$store" fsync \
        --innodb-flush-log-at-trx-commit=0
}

sqlite_rows() {
    local store="python3 $TOP/ci/found/sqlite-store.py" empty=$SCRATCH/empty
    mkdir "$empty"
    row passes posix-minimal "$empty" 'sqlite wal full' "$store" wal full
    row passes ext4-ordered "$empty" 'sqlite wal full' "$store" wal full
    row passes posix-minimal "$empty" 'sqlite delete extra' "$store" delete extra
    row passes ext4-ordered "$empty" 'sqlite delete extra' "$store" delete extra
    row found posix-minimal "$empty" 'sqlite delete full' "$store" delete full
    row found ext4-ordered "$empty" 'sqlite delete full' "$store" delete full
    row passes ext4-ordered "$empty" 'sqlite persist full' "$store" persist full
    row passes ext4-ordered "$empty" 'sqlite truncate full' "$store" truncate full
    row passes posix-minimal "$empty" 'sqlite persist full' "$store" persist full
    row passes posix-minimal "$empty" 'sqlite truncate full' "$store" truncate full
    row found posix-minimal "$empty" 'sqlite wal, syncs: none' "$store" wal off
}

main() {
    SEEDS=${SEEDS:-$([ -n "$QUICK" ] && echo 8 || echo 200)}
    scratch crash-store
    keep_logs
    need_softring
    need python3:python3 mariadbd:mariadb-server
    printf '%-32s %-14s %6s %7s\n' DATABASE MODEL POINTS FAILED
    sqlite_rows
    mariadb_rows
    [ "$BAD" = 0 ] || echo "$BAD rows fail; --logs DIR keeps the reports"
    [ "$BAD" = 0 ]
}

main
