#!/usr/bin/env bash
# Runs softring on other kernels: Debian's for clouds, from 5.10 to the newest, in virtual machines.
# Runs there the checks of ci/environments.sh (an uncached file read byte by byte among them) on
# softring's rings, fio with verify, and qemu-img convert; compares doctor with what a program gets;
# tries ring flags that the kernel does not know, and the sysctl io_uring_disabled; and runs the
# tests of liburing and, with io_uring denied, the conformance cases.
set -u
# A guest without KVM is slow.
LIMIT=${LIMIT:-2700}
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/vm.sh
. "$(dirname "$0")/vm.sh"

usage() {
    cat <<END
usage: ci/kernels.sh [--quick] [--only SUITE]... [--case GLOB]... [--logs DIR] [--keep DIR]

  --quick       run 5.10 and the newest kernel, and only the cases that differed on old kernels
  --only SUITE  run bullseye (5.10), bookworm (6.1), trixie (6.12) or sid (the newest)
  --case GLOB   run these conformance cases
  --keep DIR    keep the kernels in DIR, and reuse kernels that DIR holds
END
}

CASES=() NEWEST='' KEEP='' LIBURING=$TOP/target/liburing-tests
option() {
    case $1 in
        --case) CASES+=("$(argument "${@:1:2}")") || exit; TOOK=2 ;;
        --keep) KEEP=$(argument "${@:1:2}") || exit; TOOK=2 ;;
        *) return 1 ;;
    esac
}
options "$@"
need "${VM_NEEDS[@]}" fio:fio mkfs.ext4:e2fsprogs qemu-img:qemu-utils
need_softring
scratch kernels
keep_logs
BIN=$(cd "$(dirname "$SOFTRING")" && pwd)
ROOT=$SCRATCH/root DISK=$SCRATCH/disk KEEP=${KEEP:-$SCRATCH/kernels}
mkdir -p "$KEEP"
KEEP=$(cd "$KEEP" && pwd)

SUITES=(bullseye bookworm trixie sid) SIZE=4m LOADS='write.0 write.1 randwrite.0 randwrite.1'
if [ -n "$QUICK" ]; then
    SUITES=(bullseye sid) SIZE=2m LOADS='write.0 randwrite.1'
    if [ ${#CASES[@]} = 0 ]; then
        # Cases that once differed on old kernels, and cases of Linux 7.2's changes.
        CASES=('rw::*' 'futexv::*' 'buffers::*' 'region::*' 'open::*')
        NEWEST='abi::* changed*::* entries::* rules::* filters::* programs::*'
    fi
fi
[ ${#ONLY[@]} = 0 ] || SUITES=("${ONLY[@]}")
[ ${#CASES[@]} != 0 ] || CASES=('*')
NEWEST=${NEWEST:-${CASES[*]}}

# Tests of liburing in scope that pass on a kernel's own rings, each with its number of tries and
# its limit in seconds, after colons. Emulated, a process costs ten times as much.
TESTS=
if [ -z "$QUICK" ]; then
    [ -e "$LIBURING/static/built" ] || "$TOP/ci/liburing-tests.sh" --only nop --quick >/dev/null
    TESTS=$(awk -F'\t' '!/^#/ && $2 == "in" && $3 == "pass" {
        print $1 ":" ($6 ? $6 : 1) ":" ($7 ? 4 * $7 : $6 ? 60 : 300)
    }' "$TOP/ci/liburing-tests.tsv" | tr '\n' ' ')
    for name in $TESTS; do put "$LIBURING/static/test/${name%%:*}.t"; done
fi
put "$BIN/softring" "$BIN/conformance" "$BIN/softring-environments" "$BIN/libsoftring.so" \
    "$(command -v fio)" "$(command -v qemu-img)" /bin/bash

# The last line that each part prints is for the table: "part: NAME OUTCOME".
root_fs <<END
mount -t ext4 /dev/nvme0n1 /mnt
export TMPDIR=/mnt HOME=/tmp PATH=$BIN:\$PATH
# A shell that can have the library; and no commands for the disk behind the file system's back.
ln -sf bash /bin/sh
rm -f /dev/ng0n1
cd /mnt
set -f
part() {
    name=\$1
    shift
    "\$@" >/tmp/out 2>&1
    rc=\$?
    tail -n \${TAIL:-400} /tmp/out
    # What was printed last may not end its line.
    echo
    echo "part: \$name \$rc"
}

checks() {
    softring run "\$@" -- softring-environments checks
}

load() {
    softring run "\$1" -- fio --name=v --ioengine=io_uring --size=$SIZE --bs=4k --rw="\${2%.*}" \
        --verify=crc32c --iodepth=16 --direct="\${2#*.}" --directory=/mnt --minimal \
        --output=/dev/null
}

# Random data and a hole, to qcow2 and back.
convert() {
    image() { echo "driver=\$1,file.driver=file,file.filename=\$2,file.aio=io_uring"; }
    for file in source back; do dd if=/dev/zero of=\$file bs=1M seek=6 count=0 2>/dev/null; done
    dd if=/dev/urandom of=source bs=1M seek=1 count=3 conv=notrunc 2>/dev/null
    qemu-img create -q -f qcow2 middle 6m || return 1
    for way in 'raw source qcow2 middle' 'qcow2 middle raw back'; do
        set -- \$way
        softring run --engine=user -- qemu-img convert -n --image-opts --target-image-opts \
            "\$(image \$1 \$2)" "\$(image \$3 \$4)" || return 1
    done
    cmp source back
}

rings() {
    sed -n 's/^ *"rings": "\(.*\)".*/\1/p'
}

# Does a program get what doctor says?
doctor() {
    says=\$(softring doctor --json | rings)
    gets=\$(softring run --quiet -- softring doctor --json | rings)
    echo "doctor: \$says; a program: \$gets; wanted: \$1"
    [ "\$says" = "\$gets" ] && [ "\$says" = "\$1" ]
}

# asks WANTED WORD FLAG…  sets a ring up, as the user of "softring run" sees it: what it comes to,
# and a line on stderr that has WORD in it, or none.
asks() {
    wanted=\$1 word=\$2
    shift 2
    got=\$(softring run -- softring-environments ring "\$@" 2>/tmp/said)
    echo "\$*: \$got; wanted: \$wanted; said:"
    cat /tmp/said
    [ "\$got" = "\$wanted" ] || return 1
    if [ -n "\$word" ]; then grep -q "\$word" /tmp/said; else [ ! -s /tmp/said ]; fi
}

# A flag that shapes a ring, and one that is a hint, both newer than all kernels but the newest.
set_up() {
    case \$(uname -r) in
        7.*) asks 'a ring' '' CQE_MIXED && asks 'a ring' '' IOPOLL HYBRID_IOPOLL ;;
        *)
            asks 'a ring' 'CQE_MIXED run in user space' CQE_MIXED &&
                asks 'no ring: Invalid argument (os error 22)' 'softring run --engine=user' \
                    IOPOLL HYBRID_IOPOLL && asks 'a ring' '' CLAMP
            ;;
    esac
}

# tried N SECONDS CMD…  runs a test at most N times, until one is not stopped for its time.
tried() {
    tries=\$1 seconds=\$2
    shift 2
    for try in \$(seq \$tries); do
        mkdir -p /mnt/test
        cd /mnt/test || return 1
        timeout -s INT -k 5 \$seconds "\$@"
        rc=\$?
        cd /mnt
        chmod -R u+rwX test
        rm -rf test
        # Only who is stopped is tried again.
        [ \$rc -gt 128 ] || break
    done
    return \$rc
}

# A test that is tried several times hangs now and then on the kernel's rings, too; where it always
# does, nothing is to be learned from it.
liburing() {
    test=$LIBURING/static/test/\$1.t
    tried \$2 \$3 softring run --deny --quiet -- \$test && return 0
    rc=\$?
    if [ \$rc -gt 128 ] && [ \$2 -gt 1 ]; then
        tried \$2 \$3 \$test || [ \$? -le 128 ] || { echo 'hangs on the kernel, too'; return 0; }
    fi
    return \$rc
}

echo "kernel: \$(uname -r)"
part 'checks' checks --engine=user
part 'checks, denied' checks --deny
part 'checks, --at-least=6.18' checks --at-least=6.18
for how in $LOADS; do part "fio \$how" load --engine=user \$how; done
part "fio, the kernel's rings" load --engine=auto write.0
part 'flags of set-up' set_up
part 'doctor' doctor kernel
if [ -e /proc/sys/kernel/io_uring_disabled ]; then
    echo 2 >/proc/sys/kernel/io_uring_disabled
    part 'doctor, io_uring_disabled' doctor softring
    part 'checks, io_uring_disabled' checks
    echo 0 >/proc/sys/kernel/io_uring_disabled
fi
[ -n "$QUICK" ] || part 'qemu-img convert' convert
# With the newest ABI's own kernel beside softring, that is asked, too.
case \$(uname -r) in
    7.*) how=beside under= cases='$NEWEST' ;;
    *) how=denied under='softring deny --' cases='${CASES[*]}' ;;
esac
# Without KVM softring is late, too, so more of its cases may agree only when asked again.
conform() {
    \$under conformance all --jobs 2 --timeout 120 --late-kernel --retry-budget 10 \\
        --intercept patch --case "\$1" >/tmp/all
    rc=\$?
    grep -v '^skipped' /tmp/all
    return \$rc
}
for case in \$cases; do part "conformance, \$how: \$case" conform "\$case"; done
TAIL=20
# Some of them raise the soft limit, and use all of it.
ulimit -n 20000
for test in $TESTS; do
    IFS=: read -r name tries seconds <<TEST
\$test
TEST
    part "liburing \$name" liburing \$name \$tries \$seconds
done
echo 'all parts were run'
END

FAILED=0
for suite in "${SUITES[@]}"; do
    kernel=$KEEP/$suite
    fetch_kernel "$suite" "$kernel"
    new_disk
    note "booting the kernel of $suite"
    began=$SECONDS
    boot "$kernel" >"$LOGS/$suite"
    tr -d '\0' <"$LOGS/$suite" | sed -n -e 's/^kernel: /\n== /p' -e '/^part: liburing .* 0$/d' \
        -e 's/^part: \(.*\) 0$/works   \1/p' -e 's/^part: \(.*\) \([0-9]*\)$/fails   \1 (\2)/p'
    passed=$(grep -a -c '^part: liburing .* 0$' "$LOGS/$suite")
    [ -z "$TESTS" ] || echo "liburing: $passed of $(wc -w <<<"$TESTS") tests pass"
    grep -a -E '^(DIFFERS|\| all )' "$LOGS/$suite"
    echo "$suite: $((SECONDS - began)) s"
    grep -a -q '^all parts were run' "$LOGS/$suite" || { echo 'fails   no end'; FAILED=1; }
    ! grep -a -E -q '^part: .* [1-9][0-9]*$' "$LOGS/$suite" || FAILED=1
done
exit $FAILED
