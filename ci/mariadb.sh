#!/usr/bin/env bash
# mariadb.sh METHOD KILLS  one of the checks of clients.sh: MariaDB with that innodb_flush_method,
# under a load of transactions, killed KILLS times. `client` is clients.sh's.
#
# Every commit that a client was told of must be there after recovery, the sum of money that moves
# between accounts must stay the same, and the first server's lock must refuse the data to a second
# server.
set -u
METHOD=$1 KILLS=$2
WRITERS=4 ACCOUNTS=64
DATA=$PWD/data SOCKET=$PWD/socket
SERVER=(mariadbd --no-defaults --user="$(id -un)" --datadir="$DATA"
    --skip-networking --skip-name-resolve --innodb-flush-method="$METHOD"
    --innodb-use-native-aio=1 --innodb-buffer-pool-size=8M --innodb-log-file-size=8M
    --innodb-flush-log-at-trx-commit=1 --innodb-max-dirty-pages-pct=0
    --performance-schema=0)

wrong() {
    echo "wrong: $*"
    tail -n 20 error.log
    kill -9 "$(cat pid)"
    exit 1
}

sql() {
    mariadb --no-defaults --user=root --socket="$SOCKET" --batch --skip-column-names test "$@"
}

# Starts the server, and waits until it answers.
start() {
    rm -f "$SOCKET" pid
    client "${SERVER[@]}" --socket="$SOCKET" --pid-file="$PWD/pid" --log-error="$PWD/error.log" &
    WATCHER=$!
    for _ in $(seq 300); do
        [ -s pid ] && sql -e 'select 1' >/dev/null 2>&1 && return
        kill -0 $WATCHER 2>/dev/null || wrong "the server ended"
        sleep 0.1
    done
    wrong "the server does not answer"
}

# writer W FROM  inserts rows from number FROM on and moves money, and writes down the number of
# each row whose commit was acknowledged.
writer() {
    awk -v w="$1" -v n="$2" -v accounts=$ACCOUNTS 'BEGIN {
        srand(w * 1000003 + n)
        for (;;) {
            a = int(rand() * (accounts - 1)); b = a + 1
            printf "begin; insert into t values (%d, %d, repeat(char(97 + %d), %d));\n", w, n,
                n % 26, 100 + int(rand() * 3000)
            printf "update a set v = v - 1 where id = %d; update a set v = v + 1 where id = %d;\n",
                a, b
            printf "commit; select %d;\n", n
            if (n % 50 == 0) printf "select ascii(max(f)) > 0 from t where w = %d into @x;\n", w
            n++
        }
    }' | sql --unbuffered >>"acknowledged.$1" 2>/dev/null
}

# Checks that acknowledged commits are there, and that nothing is there by half.
verify() {
    local w lost
    [ "$(sql -e 'select sum(v), count(*) from a')" = "$(printf '0\t%d' $ACCOUNTS)" ] ||
        wrong "accounts: $(sql -e 'select sum(v), count(*) from a')"
    [ "$(sql -e 'select count(*) from t where f <> repeat(char(97 + n % 26), length(f))')" = 0 ] ||
        wrong "rows with other bytes"
    for w in $(seq $WRITERS); do
        sort -u "acknowledged.$w" >have
        sql -e "select n from t where w = $w" | sort >there
        lost=$(comm -23 have there | wc -l)
        [ "$lost" = 0 ] || wrong "$lost acknowledged commits of writer $w are lost"
    done
}

# Starts another server on the same data. It has its own Aria log, so that InnoDB's lock has to
# refuse it.
second_is_refused() {
    mkdir -p other && rm -f second.log
    timeout 60 "${SERVER[@]}" --socket="$PWD/other/socket" --pid-file="$PWD/other/pid" \
        --aria-log-dir-path="$PWD/other" --log-error="$PWD/second.log" &&
        wrong "a second server ran"
    grep -q 'Unable to lock ./ibdata1' second.log ||
        wrong "the second server was not refused by a lock: $(tail -n 3 second.log)"
}

mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$DATA" \
    --auth-root-authentication-method=normal >install.log 2>&1 ||
    wrong "install: $(tail -n1 install.log)"
start
grep -q 'InnoDB: Using io_uring' error.log || wrong "the server uses no rings"
sql -e "create table t (w int, n int, f blob, primary key (w, n)) engine=InnoDB;
    create table a (id int primary key, v int) engine=InnoDB;
    insert into a select seq, 0 from seq_0_to_$((ACCOUNTS - 1));" || wrong "no tables"
for w in $(seq $WRITERS); do : >"acknowledged.$w"; done
for kill in $(seq "$KILLS"); do
    for w in $(seq $WRITERS); do
        writer "$w" $(($(sql -e "select ifnull(max(n), 0) from t where w = $w") + 1)) &
    done
    sleep "1.$((RANDOM % 10))"
    [ $((kill % 10)) != 1 ] || second_is_refused
    kill -9 "$(cat pid)"
    wait
    start
    verify
done
echo "$(cat acknowledged.* | wc -l) commits acknowledged and found, $KILLS kills"
kill "$(cat pid)"
wait
