#!/bin/sh
# usage: rings-inside.sh denied|preload|run
#
# Runs in a container: a program on liburing, fio, qemu-img and Node, each of which verifies its
# reads. Under a profile that denies rings the first three fail, and Node falls back to threads
# (denied); with the library in LD_PRELOAD (preload), or by `softring run` (run), each has rings.
# DATA is a folder to write to.
set -u
echo "$1:"
HOW=$1 DATA=${DATA:-/data} FAILED=0 PREFIX=''
NODE_WORDS='digest'
[ "$HOW" != run ] || PREFIX='softring run --quiet --'
[ "$HOW" = denied ] || NODE_WORDS='requests [1-9]'

# verdict NAME RC  compares the outcome with the expected one.
verdict() {
    got=works
    [ "$2" = 0 ] || got=fails
    want=works
    [ "$HOW" != denied ] || [ "$1" = node ] || want=fails
    if [ $got = $want ]; then
        echo "  $1: $got"
    else
        FAILED=1
        echo "  $1: $got, is to be: $want (!)"
        tail -n 5 "$DATA/log"
    fi
}

# try NAME COMMAND…
try() {
    name=$1
    shift
    # shellcheck disable=SC2086  # words
    timeout 60 $PREFIX "$@" >"$DATA/log" 2>&1
    verdict "$name" $?
}

node_files() {
    rm -rf "$DATA/node" && mkdir "$DATA/node" || return
    counter=softring
    [ "$HOW" != denied ] || counter=''
    # shellcheck disable=SC2086
    UV_USE_IO_URING=1 timeout 60 $PREFIX node /usr/local/share/node-files.js \
        "$DATA/node" 60 $counter >"$DATA/log" 2>&1 && grep -q "^$NODE_WORDS" "$DATA/log"
}

head -c 1048576 /dev/zero >"$DATA/disk" || exit 2
try liburing liburing-client nop 8 0.2
try fio fio --name=v --filename="$DATA/fio" --size=1m --bs=16k --rw=randwrite --verify=crc32c \
    --iodepth=8 --unlink=1 --ioengine=io_uring --thread
try qemu-img qemu-img bench -q -c 200 -d 8 -s 4096 -f raw -t none -i io_uring "$DATA/disk"
node_files
verdict node $?
exit $FAILED
