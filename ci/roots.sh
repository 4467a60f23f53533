#!/usr/bin/env bash
# Runs programs with rings in the root file systems of older distributions, with their C libraries
# and compilers: fio where its package has the engine io_uring, and liburing 2.3's test programs
# that are in scope (ci/liburing-tests.tsv), built inside. The packed command denies io_uring to
# them and gives them softring's rings. A program counts that passes on the kernel, and does not
# pass when denied; it must pass under softring. Needs root rights and the network, once.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<END
usage: ci/roots.sh [--dist DIR] [--only SUITE]
  --dist DIR    take the packages from DIR (dist/out)
  --only SUITE  run only this root: $SUITES
END
}

SUITES='bookworm bullseye focal bionic xenial'
packed "$@"
kernel_has_uring || die 'the kernel has no io_uring to compare with'
ROOTS=${CARGO_TARGET_DIR:-$TOP/target}/roots
INCLUDE=fio,gcc,make,libc6-dev
scratch roots
mkdir -p "$ROOTS"

# ubuntu_keys  puts the keys of Ubuntu's archive into the scratch directory.
ubuntu_keys() {
    local package=ubuntu-keyring_2018.09.18.1~18.04.2_all.deb
    [ -s "$SCRATCH/ubuntu.gpg" ] && return
    curl -sSf -o "$SCRATCH/keys.deb" \
        "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/$package" &&
        sha256sum --quiet -c - <<END &&
5d8609563fb3074026b254d7d5248f90d393c7dbafcac48916f333bf3c90fed9  $SCRATCH/keys.deb
END
        dpkg-deb -x "$SCRATCH/keys.deb" "$SCRATCH/keys" &&
        cat "$SCRATCH"/keys/etc/apt/trusted.gpg.d/*-archive.gpg >"$SCRATCH/ubuntu.gpg"
}

# ubuntu_root SUITE DIR  does as debian_root for Ubuntu's suites, whose old dpkg needs debootstrap.
ubuntu_root() {
    local file=$ROOTS/ubuntu_$1.tar
    if [ ! -s "$file" ]; then
        need debootstrap:debootstrap curl:curl
        note "making a root of Ubuntu's $1"
        ubuntu_keys || die "the keys of Ubuntu's archive cannot be had"
        debootstrap --variant=minbase --keyring="$SCRATCH/ubuntu.gpg" --include=$INCLUDE \
            --components=main,universe "$1" "$SCRATCH/made" http://archive.ubuntu.com/ubuntu \
            >"$SCRATCH/log" || die "debootstrap could not make a root of $1"
        tar -C "$SCRATCH/made" --exclude='./dev/*' --exclude='./proc/*' -cf "$file.part" . &&
            mv "$file.part" "$file"
        rm -rf "$SCRATCH/made"
    fi
    mkdir -p "$2"
    tar -C "$2" -xf "$file"
}

# What runs inside: three times each program, on the kernel, denied and under softring. Prints the
# name and the three outcomes.
inner() {
    cat <<'END'
SOFTRING=/opt/softring/bin/softring
try() {
    mkdir -p "/run/$$" && cd "/run/$$" || exit 2
    timeout -k 5 "$1" $2 $3 >>/log 2>&1 </dev/null && echo pass || echo fail
    cd / && rm -rf "/run/$$"
}
three() {
    kernel=$(try 10 '' "$1")
    [ "$kernel" = pass ] || { echo "$1 fail - -"; return; }
    denied=$(try 20 "$SOFTRING deny --" "$1")
    ours=$(try 60 "$SOFTRING run --deny --quiet --" "$1")
    # A busy machine may have been too slow.
    [ "$ours" = pass ] || ours=$(try 60 "$SOFTRING run --deny --quiet --" "$1")
    echo "$1 $kernel $denied $ours"
}
case $1 in
    fio)
        for how in '' --direct=1 --registerfiles --fixedbufs --sqthread_poll=1 --nonvectored=1; do
            echo "fio --name=a --ioengine=io_uring --filename=/data --size=4m --rw=randrw \
                --bs=4k --iodepth=16 --verify=crc32c $how" >"/fio$how"
            sed -i '1i #!/bin/sh' "/fio$how" && chmod +x "/fio$how"
            three "/fio$how"
            rm -f /data
        done
        ;;
    build) cd /liburing && ./configure && make -C src && make -k -C test; test -e test/nop.t ;;
    liburing) while read -r name; do three "/liburing/test/$name.t"; done ;;
esac
END
}

# names  prints the programs of liburing's tests that must pass under softring.
names() {
    awk -F'\t' '!/^#/ && $2 == "in" && $3 == "pass" { print $1 }' "$TOP/ci/liburing-tests.tsv"
}

# judged TITLE WHAT  reads outcomes; prints a row of the table, and what fails.
judged() {
    awk -v title="$1" -v what="$2" '
        $2 == "pass" && $3 != "pass" { proving++ }
        $2 == "pass" && $3 != "pass" && $4 == "pass" { works++ }
        $2 == "pass" && $4 != "pass" { wrong = wrong " " $1 }
        END {
            printf "%-40s %-10s %d of %d\n", title, what, works, proving
            if (wrong) print "  fail under softring:" wrong
            exit wrong != "" || proving == 0
        }'
}

bad=0
for suite in $SUITES; do
    [ ${#ONLY[@]} -eq 0 ] || [[ " ${ONLY[*]} " = *" $suite "* ]] || continue
    root=$SCRATCH/$suite
    case $suite in
        bookworm | bullseye) debian_root "$suite" "$root" "--include=$INCLUDE" ;;
        *) ubuntu_root "$suite" "$root" ;;
    esac
    mkdir -p "$root/opt/softring" "$root/run"
    tar -C "$root/opt/softring" --strip-components=1 -xf "$DIST"/*.tar.gz
    inner >"$root/inner"
    libc=$(inside "$root" ldd --version | sed -n '1s/.* /glibc /p')
    title="$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release"), $libc"
    if inside "$root" fio --enghelp=io_uring >"$SCRATCH/log" 2>&1 &&
        ! grep -q 'not found\|not loadable' "$SCRATCH/log"; then
        inside "$root" sh /inner fio | judged "$title" fio || bad=1
    fi
    SOURCE=${SOURCE:-$TOP/target/liburing-tests}
    mkdir -p "$SOURCE"
    [ -d "$SOURCE/liburing-2.3" ] || fetch_source liburing 2.3
    cp -r "$SOURCE/liburing-2.3" "$root/liburing"
    inside "$root" sh /inner build >"$SCRATCH/log" 2>&1 ||
        die "liburing does not build in $suite: $(tail -n 5 "$SCRATCH/log")"
    names | inside "$root" sh /inner liburing | judged "$title" liburing || bad=1
    rm -rf "$root"
done
exit $bad
