#!/usr/bin/env bash
# mariadb-store.sh make|fill|verify METHOD [OPTION…]  a MariaDB server that stores through a ring,
# in the working directory. `make` makes it; `fill` runs transactions, and prints the number of each
# that was acknowledged; `verify` reads these numbers, and checks that recovery finds them all.
#
# Each transaction inserts a row, and moves money between two accounts.
set -u
WHAT=$1 METHOD=$2
shift 2
OPTIONS=("$@")
WRITERS=3 TRANSACTIONS=12 ACCOUNTS=16
SERVER=''

fail() {
    echo "$*" >&2
    # A server that is left would keep its caller's output open.
    [ -z "$SERVER" ] || kill -9 "$SERVER" 2>/dev/null
    exit 1
}

sql() {
    mariadb --no-defaults --user=root --socket="$PWD/socket" --batch --skip-column-names test "$@"
}

start() {
    rm -f socket error.log
    # What the page cleaner has to write goes through the ring, and there is little room.
    mariadbd --no-defaults --user="$(id -un)" --datadir="$PWD/data" --socket="$PWD/socket" \
        --pid-file="$PWD/pid" --log-error="$PWD/error.log" --skip-networking --skip-name-resolve \
        --innodb-flush-method="$METHOD" --innodb-use-native-aio=1 --innodb-buffer-pool-size=6M \
        --innodb-log-file-size=4M --aria-log-file-size=8M --innodb-flush-log-at-trx-commit=1 \
        --innodb-max-dirty-pages-pct=0 --innodb-buffer-pool-dump-at-shutdown=0 \
        --performance-schema=0 "${OPTIONS[@]}" &
    SERVER=$!
    for _ in $(seq 400); do
        sql -e 'select 1' >/dev/null 2>&1 && return
        kill -0 $SERVER 2>/dev/null ||
            fail "the server ended: $(grep -a ERROR error.log | tail -n 1)"
        sleep 0.05
    done
    fail 'the server does not answer'
}

stop() {
    kill $SERVER
    wait $SERVER
}

# writer W  moves money, and prints what was acknowledged.
writer() {
    awk -v w="$1" -v accounts=$ACCOUNTS -v count=$TRANSACTIONS 'BEGIN {
        for (n = 1; n <= count; n++) {
            a = (w * 7 + n * 5) % (accounts - 1)
            printf "begin; insert into t values (%d, %d, repeat(char(97 + %d), %d));\n", w, n,
                n % 26, 100 + (w * 977 + n * 631) % 3000
            printf "update a set v = v - 1 where id = %d; update a set v = v + 1 where id = %d;\n",
                a, a + 1
            printf "commit; select %d, %d;\n", w, n
        }
    }' | sql --unbuffered
}

fill() {
    local w writers=()
    start
    for w in $(seq $WRITERS); do
        writer "$w" &
        writers+=($!)
    done
    for w in "${writers[@]}"; do wait "$w" || fail "a writer failed"; done
    stop || fail "the server did not stop"
}

verify() {
    local lost
    sort -u >told
    start
    [ "$(sql -e 'select sum(v), count(*) from a')" = "$(printf '0\t%d' $ACCOUNTS)" ] ||
        fail "accounts: $(sql -e 'select sum(v), count(*) from a' 2>&1)"
    [ "$(sql -e 'select count(*) from t where f <> repeat(char(97 + n % 26), length(f))')" = 0 ] ||
        fail 'rows with other bytes'
    lost=$(sql -e 'select w, n from t' | sort | comm -23 told - | wc -l)
    [ "$lost" = 0 ] || fail "$lost acknowledged commits are lost"
    [ "$(sql -e 'check table t, a' | grep -cv 'OK$')" = 0 ] ||
        fail "$(sql -e 'check table t, a' | grep -v 'OK$' | tail -n 1)"
    stop || fail 'the server did not stop after recovery'
}

# make_store  makes the directory: a server with two tables that has been stopped.
make_store() {
    mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$PWD/data" --skip-test-db \
        --auth-root-authentication-method=normal --innodb-log-file-size=4M \
        --aria-log-file-size=8M >install.log 2>&1 || fail "install: $(tail -n 1 install.log)"
    mkdir data/test
    start
    grep -q 'InnoDB: Using io_uring' error.log || fail 'the server uses no rings'
    sql -e "create table t (w int, n int, f blob, primary key (w, n)) engine=InnoDB;
        create table a (id int primary key, v int) engine=InnoDB;
        insert into a select seq, 0 from seq_0_to_$((ACCOUNTS - 1));" || fail 'no tables'
    stop || fail 'the server did not stop'
    rm -f install.log
}

case $WHAT in
    make) make_store ;;
    fill) fill ;;
    verify) verify ;;
    *) fail "usage: mariadb-store.sh make|fill|verify METHOD [OPTION…]" ;;
esac
