#!/usr/bin/env bash
# Runs the recipes of examples/containers in real containers: under Podman's default profile and
# Docker's current one, with root and without, plain and with every right taken away that can be.
# Programs with rings fail there, or fall back; with softring they have rings. Nothing is pulled:
# the images are made here, from Debian's packages and what `make dist` packs.
set -u
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=ci/sandboxes.sh
. "$TOP/ci/sandboxes.sh"

usage() {
    cat <<EOF
usage: ci/containers.sh [--quick] [--dist DIR]
  --quick     run only the hardened containers and the recipes
  --dist DIR  folder of the packages from ci/package.sh (default: dist/out)
EOF
}

packed "$@"
need podman:podman runc:runc newuidmap:uidmap catatonit:catatonit fio:fio qemu-img:qemu-utils \
    cc:gcc /usr/include/liburing.h:liburing-dev mmdebstrap:mmdebstrap python3:python3
command -v node >/dev/null || die 'node (20 or newer) is not installed'
scratch containers
chmod 755 "$SCRATCH"
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml" | head -n 1)
RECIPES=$TOP/examples/containers
FAILED=0 PASSED=0 SKIPPED=0
docker_profile
[ -s "$PROFILE" ] || note "Docker's profile is not tried: go, which fetches it, is not installed"
# Every user may read the profile there.
[ ! -s "$PROFILE" ] || install -m 644 "$PROFILE" "$SCRATCH/docker.json"

# outcome NAME RC  counts and prints an outcome.
outcome() {
    if [ "$2" = 0 ]; then
        PASSED=$((PASSED + 1))
        echo "$1: ok"
    else
        FAILED=$((FAILED + 1))
        echo "$1: FAILED ($2)"
        tail -n 20 "$SCRATCH/log"
    fi
}

# skip WHAT  counts what is left out, and prints why.
skip() {
    SKIPPED=$((SKIPPED + 1))
    echo "skipped: $*"
}

export CONTAINERS_CONF=$SCRATCH/containers.conf
podman_config >"$CONTAINERS_CONF"

# a_root COMMAND…  runs a command of Podman's, with storage of its own.
a_root() {
    timeout -k 5 300 podman --root="$SCRATCH/storage" --runroot="$SCRATCH/run" \
        "$@"
}

# Runs it as a user without rights, who has a range of user numbers, as every user of a distribution
# has. Only a mount namespace has that range here.
a_user() {
    # shellcheck disable=SC2016  # the inner shell expands these
    timeout -k 5 300 unshare --mount sh -c '
        mount --bind "$0/subids" /etc/subuid && mount --bind "$0/subids" /etc/subgid &&
        exec setpriv --reuid=65534 --regid=65534 --clear-groups \
            env "HOME=$0/rootless" "XDG_RUNTIME_DIR=$0/rootless/run" "$@"' "$SCRATCH" \
        podman --storage-driver="${ROOTLESS_STORAGE:-overlay}" --root="$SCRATCH/rootless/storage" \
        "$@"
}

# copied ROOT COMMAND…  copies programs of this machine, which runs the same Debian as the root, and
# their libraries into the root.
copied() {
    local root=$1 file library
    shift
    for file; do
        file=$(realpath "$(command -v "$file")")
        install -D "$file" "$root/usr/bin/$(basename "$file")"
        ldd "$file" | grep -o '/[^ ]*' | while read -r library; do
            [ -e "$root$library" ] || install -D "$(realpath "$library")" "$root$library"
        done
    done
}

images() {
    local root=$SCRATCH/program
    debian_root bookworm "$root"
    copied "$root" fio qemu-img node
    cc -O2 -o "$root/usr/bin/liburing-client" "$TOP/ci/liburing-client.c" -luring || return
    copied "$root" "$root/usr/bin/liburing-client"
    cc -O2 -o "$root/usr/bin/ring" "$TOP/ci/ring.c" || return
    install "$TOP/ci/rings-inside.sh" "$root/usr/bin/rings-inside.sh"
    install -D -m 644 "$TOP/ci/node-files.js" "$root/usr/local/share/node-files.js"
    tar -C "$root" -cf "$SCRATCH/program.tar" .
    rm -rf "$root"
    mkdir -p "$SCRATCH"/rootless/run "$SCRATCH/data"
    chown -R 65534:65534 "$SCRATCH/rootless"
    chmod 700 "$SCRATCH/rootless/run"
    chmod 1777 "$SCRATCH/data"
    echo 'nobody:200000:65536' >"$SCRATCH/subids"
    a_root import -q --change ENV=PATH=/usr/local/bin:/usr/bin:/bin "$SCRATCH/program.tar" \
        localhost/program:latest &&
        a_root load -q -i "$DIST/softring-$VERSION-linux-x86_64.oci.tar" &&
        a_root build -q --pull=never --network=none -t localhost/with-softring \
            --build-arg BASE=localhost/program:latest \
            --build-arg SOFTRING="localhost/softring:$VERSION" "$RECIPES" &&
        a_root build -q --pull=never --network=none -t localhost/one-file \
            -f "$RECIPES/Dockerfile.one-file" --build-arg BASE=localhost/program:latest \
            --build-arg SOFTRING="localhost/softring:$VERSION" "$RECIPES" &&
        a_root save -q -m -o "$SCRATCH/all.tar" localhost/with-softring localhost/one-file \
            localhost/program:latest "localhost/softring:$VERSION" &&
        chmod 644 "$SCRATCH/all.tar" && a_user load -q -i "$SCRATCH/all.tar"
}

HARDENED=(--read-only --user=1000 --cap-drop=all --security-opt=no-new-privileges
    --ulimit=nofile=64:64 --ulimit=nproc=2000:2000)

# limits  makes control groups of 64 MiB and 64 processes for a user's containers. The user's own
# Podman cannot: with cgroups of version 1 a user may make none, and with version 2 only those that
# systemd has delegated. Here root makes groups of version 1.
LIMITS=()
limits() {
    local controller group groups=()
    for controller in memory pids; do
        group=/sys/fs/cgroup/$controller/softring-containers-$$
        [ -d "/sys/fs/cgroup/$controller" ] && mkdir "$group" 2>/dev/null || return
        groups+=("$group")
    done
    echo $((64 << 20)) >"${groups[0]}/memory.limit_in_bytes" &&
        echo 64 >"${groups[1]}/pids.max" && LIMITS=("${groups[@]}")
}

# limit NAME GATE  moves a user's running container into these groups, and lets it go on.
limit() {
    local pid group
    for _ in $(seq 300); do
        pid=$(a_user inspect --format '{{.State.Pid}}' "$1" 2>/dev/null)
        [ "${pid:-0}" = 0 ] || break
        sleep 0.1
    done
    for group in "${LIMITS[@]}"; do echo "$pid" >"$group/cgroup.procs" || return; done
    touch "$2"
}

# try WHO PROFILE KIND [OPTION]…  runs all programs in one container, each in every way.
try() {
    local who=$1 profile=$2 kind=$3 data=$SCRATCH/data/$1-$2-$3 gate=''
    local more=("${@:4}")
    [ "$profile" = podman ] || more+=("--security-opt=seccomp=$SCRATCH/docker.json")
    mkdir -m 1777 "$data"
    if [ "$kind" = hardened ] && [ "$who" = a_root ]; then
        more+=(--memory=64m --pids-limit=64)
    elif [ "$kind" = hardened ] && [ ${#LIMITS[@]} -gt 0 ]; then
        gate=/data/go
        more+=(--name="limited-$profile")
        limit "limited-$profile" "$data/go" &
    elif [ "$kind" = hardened ]; then
        skip "$who, $profile's profile, $kind: limits of memory and processes, which take control" \
            'groups of version 1 that root may make here'
    fi
    # Only the first has the ENV of the image.
    # shellcheck disable=SC2016  # the container's shell expands these
    "$who" run --rm --quiet "${more[@]}" -e JOBS=8 -e GATE=$gate -v "$data:/data" \
        localhost/with-softring sh -c '
            until [ -z "$GATE" ] || [ -e "$GATE" ]; do sleep 0.1; done
            rings-inside.sh preload; rc=$?
            export LD_PRELOAD= SOFTRING_FOLLOW=0
            for how in run denied; do rings-inside.sh $how || rc=1; done
            exit $rc' >"$SCRATCH/log" 2>&1
    outcome "$who, $profile's profile, $kind" $?
}

matrix() {
    local who profile used
    limits
    for who in a_root a_user; do
        for profile in podman docker; do
            [ $profile = podman ] || [ -s "$SCRATCH/docker.json" ] || continue
            try $who $profile hardened "${HARDENED[@]}"
            [ -n "$QUICK" ] || try $who $profile plain
        done
    done
    [ ${#LIMITS[@]} -gt 0 ] || return 0
    # A group without a process would limit nothing.
    used=$(cat "${LIMITS[0]}/memory.max_usage_in_bytes")
    echo "a_user, hardened: at most $((used >> 20)) MiB of 64 in use"
    [ "$used" -gt 1000000 ]
    outcome 'limits of a user'\''s containers' $?
    rmdir "${LIMITS[@]}"
}

images >"$SCRATCH/log" 2>&1 || { cat "$SCRATCH/log"; die 'the images were not made'; }
began=$SECONDS
matrix
# shellcheck source=ci/container-recipes.sh
. "$TOP/ci/container-recipes.sh"
recipes
a_user unshare rm -rf "$SCRATCH/rootless/storage" 2>/dev/null
umount "$SCRATCH/storage/overlay" 2>/dev/null
printf '%d in %d s\n' $((PASSED + FAILED)) $((SECONDS - began))
printf '%d passed, %d failed, %d skipped in part\n' $PASSED $FAILED $SKIPPED
[ $FAILED = 0 ]
