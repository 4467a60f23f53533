# Virtual machines for checks that need another kernel, or a machine of their own.
# shellcheck shell=bash
# shellcheck source=ci/lib.sh

# shellcheck disable=SC2034  # what is set here is used by the scripts
VM_NEEDS=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio dpkg-deb:dpkg)

# unpack_kernel DEB TO  takes the kernel out of a package.
unpack_kernel() {
    local dir=$SCRATCH/unpack
    rm -rf "$dir"
    mkdir -p "$dir" "$(dirname "$2")"
    dpkg-deb --fsys-tarfile "$1" | tar -x -C "$dir" --wildcards '*/vmlinuz*'
    mv "$(find "$dir" -name 'vmlinuz*')" "$2"
}

# fetch_kernel SUITE TO  fetches Debian's kernel for clouds of that suite, with NVMe and ext4 built
# in, unless it is there, and unpacks it without installing it. The archive is the machine's own;
# lists of old suites have expired.
fetch_kernel() {
    [ ! -s "$2" ] || return 0
    local suite=$1 apt=$SCRATCH/apt-$1 package uri
    mkdir -p "$apt/lists/partial" "$apt/debs"
    # shellcheck disable=SC2016  # apt-get fills this in
    uri=$(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
        --format '$(REPO_URI)' | grep -v security | head -n 1)
    [ -n "$uri" ] || die "apt knows no Debian archive; add one and run 'apt-get update'"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" \
        >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list"
        -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache::pkgcache=$apt/pkgcache.bin" -o "Dir::Cache::srcpkgcache=$apt/src.bin"
        -o Acquire::Check-Valid-Until=false -o APT::Sandbox::User=root
        -o Acquire::Languages=none)
    apt-get "${options[@]}" update || die "cannot read the package list of $suite"
    package=$(apt-cache "${options[@]:1}" depends "linux-image-cloud-amd64" |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    # Newer packages of that name hold only their dependencies.
    local binary=${package/image/binary}
    apt-cache "${options[@]:1}" show "$binary" >/dev/null 2>&1 && package=$binary
    (cd "$apt/debs" && apt-get "${options[@]}" download "$package") ||
        die "cannot fetch ${package:-the kernel linux-image-cloud-amd64} of $suite"
    unpack_kernel "$apt/debs"/linux-*.deb "$2"
}

# new_disk  makes DISK an empty file system.
new_disk() {
    truncate -s 0 "$DISK"
    truncate -s 512m "$DISK"
    mkfs.ext4 -q "$DISK"
}

# put FILE…  copies programs and the libraries that they need into ROOT, to the same paths.
put() {
    local file library
    for file in "$@"; do
        install -D "$file" "$ROOT$file"
        ldd "$file" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
            [ -e "$ROOT$library" ] || install -D "$library" "$ROOT$library"
        done
    done
}

# root_fs  makes ROOT; after the usual mounts, the machine runs the script on standard input.
root_fs() {
    mkdir -p "$ROOT"/{bin,dev,proc,sys,tmp,mnt,etc}
    cp "$(command -v busybox)" "$ROOT/bin/busybox"
    {
        cat <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/usr/sbin
mount -t devtmpfs none /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs none /dev/shm
mount -t devpts none /dev/pts
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs none /tmp
ip link set lo up
until [ -e /dev/nvme0n1 ]; do sleep 0.1; done
END
        cat
        echo 'poweroff -f'
    } >"$ROOT/init"
    chmod +x "$ROOT/init"
}

# pack_root TO  packs ROOT, for a machine that runs from memory.
pack_root() {
    (cd "$ROOT" && find . | cpio -o -H newc --quiet | gzip -1) >"$1"
}

# boot KERNEL [OPTION]…  runs ROOT under that kernel, with the NVMe disk DISK, two poll queues for
# it, and QEMU's further options; prints the machine's output.
boot() {
    pack_root "$SCRATCH/initrd"
    timeout "$LIMIT" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m "${MEMORY:-1024}" \
        -smp 2 -nographic -no-reboot -nodefaults -serial stdio -kernel "$1" \
        -initrd "$SCRATCH/initrd" \
        -append 'console=ttyS0 quiet loglevel=0 panic=-1 nvme.poll_queues=1' \
        -drive file="$DISK",if=none,format=raw,id=disk \
        -device nvme,serial=softring,drive=disk "${@:2}" </dev/null | sed -u 's|\r||g'
}
