#!/usr/bin/env bash
# Makes docs/top.svg: a real screen of `softring top`, over loads that softring itself makes. Needs
# tmux, python3 and the release build.
set -eu
cd "$(dirname "$0")/.."
case ${1:-} in
-h | --help) sed -n '2,3s/^# //p' "$0" && exit ;;
esac
out=${1:-docs/top.svg}
softring=${SOFTRING:-$PWD/target/release/softring}
server=softring-picture-$$
pids=()
finish() {
    for pid in "${pids[@]}"; do kill -- "-$pid" 2>/dev/null || true; done
    tmux -L "$server" kill-server 2>/dev/null || true
}
trap finish EXIT

load() {
    setsid "$softring" bench --engines softring --pairs 1 --seconds 60 "$@" >/dev/null 2>&1 &
    pids+=($!)
}
load --deny --direct --rw randrw --size 8m --threads 2 --setup-flags SQPOLL --dir target
load --deny --op echo --connections 16 --bs 512
load --deny --rw randread --size 8m --depth 8 --dir target
sleep 12

tmux -L "$server" -f /dev/null new-session -d -x 118 -y 20 "$softring top -d 2"
sleep 7
tmux -L "$server" capture-pane -p -e -N | python3 ci/top-picture.py >"$out"
printf '%s: %s bytes\n' "$out" "$(wc -c <"$out")"
