#!/usr/bin/env bash
# Checks that the lines that `softring doctor --for docker` and `--for podman` print work as they
# are, with an image and a command filled in: qemu-img has no ring without them, and has one with
# them. Both run under Podman, with its own profile; ci/environments.sh tries Docker's.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/recipes.sh
EOF
}

case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
need_softring
need podman:podman runc:runc qemu-img:qemu-utils
scratch recipes
NAME=localhost/softring-recipes-$$ PODMAN=$(command -v podman)

# Makes an image in which the machine's /usr can be mounted.
mkdir -p "$SCRATCH"/image/{usr,proc,sys,dev,tmp,run,etc} "$SCRATCH/bin"
for link in bin lib lib64 sbin; do ln -s usr/$link "$SCRATCH/image/$link"; done
cp /etc/ld.so.cache /etc/passwd "$SCRATCH/image/etc"
tar -C "$SCRATCH/image" -c . | "$PODMAN" import --quiet - "$NAME" >/dev/null
trap '"$PODMAN" rmi --force "$NAME" >/dev/null 2>&1 || :; rm -rf "$SCRATCH"' EXIT

# The recipes call this Podman. Limits that a machine denies to its root, and cgroups of two
# versions at once, stop crun and Podman's defaults. /usr is writable, as in an image of one's own.
cat >"$SCRATCH/bin/podman" <<END
#!/bin/sh
shift
exec timeout -k 5 60 $PODMAN --cgroup-manager=cgroupfs --runtime=runc run --rm \\
    --network=none --ulimit=nofile=1024:1024 --ulimit=nproc=2000:2000 -v /usr:/usr:O "\$@"
END
chmod +x "$SCRATCH/bin/podman"
ln -s podman "$SCRATCH/bin/docker"
PATH=$SCRATCH/bin:$PATH

if ! why=$(podman run "$NAME" true 2>&1); then
    echo "skipped: Podman does not run here: $(tail -n 1 <<<"$why")"
    exit 0
fi
BENCH='qemu-img create -q /tmp/disk 4M; qemu-img bench -f raw -t none -i io_uring -c 100 /tmp/disk'
if podman run "$NAME" sh -c "$BENCH" >/dev/null 2>&1; then
    die "a container has rings without softring: nothing is shown here"
fi
for place in docker podman; do
    lines=$("$SOFTRING" doctor --for $place)
    recipe=$(sed -n "/^$place run/,/IMAGE COMMAND/p" <<<"$lines")
    recipe=${recipe/IMAGE COMMAND/\"$NAME\" sh -c \"$BENCH\"}
    printf '%s\n' "$recipe"
    eval "$recipe" | grep 'Run completed' || die "$place: no ring"
done
