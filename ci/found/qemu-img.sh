# qemu-img.sh on|off  one of the programs of ci/found.sh: converts data and holes from raw to qcow2
# and back through rings, with O_DIRECT or without, and compares the bytes.
set -eu
cache=cache.direct=$1
# Converts $1 (a format and a file) to $2.
convert() {
    qemu-img convert -n --image-opts --target-image-opts \
        "driver=${1%:*},file.driver=file,file.filename=${1#*:},file.aio=io_uring,$cache" \
        "driver=${2%:*},file.driver=file,file.filename=${2#*:},file.aio=io_uring,$cache"
}
truncate -s 4m source back
for part in 0 1 3; do
    dd if=/dev/urandom of=source bs=512k seek=$((part * 2)) count=1 conv=notrunc status=none
done
LD_PRELOAD='' qemu-img create -q -f qcow2 middle 4m
convert raw:source qcow2:middle
convert qcow2:middle raw:back
cmp source back
