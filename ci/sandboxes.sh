# Containers and sandboxes for ci/environments.sh: each function runs a command in one. They see the
# machine's own /usr, and $SCRATCH. Their images are made here; none is fetched.
# shellcheck shell=bash

# Seconds for a container with its command, which ends itself earlier.
CONTAINER=120
# The profile that Docker's daemon applies is in github.com/moby/profiles.
PROFILES=github.com/moby/profiles/seccomp@v0.3.0

bubblewrap() {
    bwrap --unshare-all --die-with-parent --ro-bind / / --dev /dev --proc /proc \
        --bind "$TMPDIR" "$TMPDIR" "$@"
}

# Runs a command under a filter that denies rings, as Flatpak's does.
bubblewrap_without_rings() {
    bubblewrap --seccomp 9 "$@" 9<"$SCRATCH/no-rings.bpf"
}

gvisor() {
    timeout -k 5 $CONTAINER runsc --network=none "do" "$@"
}

gvisor_rootless() {
    timeout -k 5 $CONTAINER runsc --rootless --network=none "do" "$@"
}

# a_podman [OPTION]… -- COMMAND…  runs a command in a container with Podman's own profile. Limits
# that a machine denies to its root, and cgroups of two versions at once, stop crun and Podman's
# defaults.
a_podman() {
    local more=()
    while [ "$1" != -- ]; do more+=("$1"); shift; done
    timeout -k 5 $CONTAINER podman --cgroup-manager=cgroupfs --runtime=runc run --rm --quiet \
        --network=none --ulimit=nofile=1024:1024 --ulimit=nproc=2000:2000 \
        -v /usr:/usr:ro -v "$SCRATCH:$SCRATCH" -e TMPDIR "${more[@]}" --rootfs "$IMAGE" "${@:2}"
}

# nobody COMMAND…  runs a command as a user without rights, whose files are in the scratch
# directory.
nobody() {
    setpriv --reuid=65534 --regid=65534 --clear-groups \
        env "HOME=$ROOTLESS/home" "XDG_RUNTIME_DIR=$ROOTLESS/run" "$@"
}

container() {
    a_podman -- "$@"
}

container_docker() {
    a_podman "--security-opt=seccomp=$PROFILE" -- "$@"
}

container_rootless() {
    export -f a_podman
    export CONTAINER SCRATCH
    # shellcheck disable=SC2016  # the inner shell expands these
    IMAGE=$ROOTLESS/image nobody bash -c 'a_podman -- "$@"' bash "$@"
}

container_rootless_docker() {
    export -f a_podman
    export CONTAINER SCRATCH PROFILE
    # shellcheck disable=SC2016  # the inner shell expands these
    IMAGE=$ROOTLESS/image nobody bash -c 'a_podman "--security-opt=seccomp=$PROFILE" -- "$@"' \
        bash "$@"
}

# Sets RUN to Buildah's options for a command in a working container, like a Dockerfile's RUN line.
in_build() {
    RUN=(run --network=none --runtime=runc -v /usr:/usr:ro -v "$SCRATCH:$SCRATCH"
        -e "TMPDIR=$TMPDIR" "$@")
}

# a_buildah CONTAINER COMMAND…  runs a command in a working container.
a_buildah() {
    in_build --isolation=oci
    timeout -k 5 $CONTAINER buildah "${RUN[@]}" "$1" -- "${@:2}"
}

# nobodys_buildah CONTAINER COMMAND…  does the same without rights.
nobodys_buildah() {
    in_build --isolation=rootless
    nobody timeout -k 5 $CONTAINER buildah --storage-driver=vfs "${RUN[@]}" "$1" -- "${@:2}"
}

image_build_rootless() {
    nobodys_buildah "${NOBODYS[0]}" "$@"
}

image_build_rootless_docker() {
    nobodys_buildah "${NOBODYS[1]}" "$@"
}

image_build() {
    a_buildah "${BUILT[0]}" "$@"
}

image_build_docker() {
    a_buildah "${BUILT[1]}" "$@"
}

# working_container [OPTION]…  makes a working container for Buildah.
working_container() {
    local name
    name=$(buildah from --quiet "$@" scratch) || return
    BUILT+=("$name")
    image "$(buildah mount "$name")"
}

# nobodys_container [OPTION]…  makes a working container for Buildah without rights.
nobodys_container() {
    local name
    name=$(nobody buildah --storage-driver=vfs from --quiet "$@" scratch 2>/dev/null)
    NOBODYS+=("$name")
    # shellcheck disable=SC2016  # the inner shell expands these
    nobody buildah --storage-driver=vfs unshare sh -c \
        'cp -a "$1/." "$(buildah --storage-driver=vfs mount "$2")"' sh \
        "$ROOTLESS/image" "$name" 2>/dev/null
}

# image DIR  makes a root directory in which the machine's /usr can be mounted.
image() {
    local link
    mkdir -p "$1"/{usr,proc,sys,dev,tmp,run,etc}
    for link in bin lib lib64 sbin; do ln -sfn usr/$link "$1/$link"; done
    cp /etc/ld.so.cache /etc/passwd "$1/etc"
}

# docker_profile  fetches Docker's profile, and lets PROFILE name it; does nothing without go.
docker_profile() {
    PROFILE=''
    command -v go >/dev/null || return 0
    PROFILE=$(cd "$SCRATCH" && GOFLAGS=-modcacherw GOPATH=$SCRATCH/go \
        timeout 90 go mod download -json $PROFILES 2>/dev/null |
        sed -n 's/.*"Dir": "\(.*\)".*/\1\/default.json/p')
}

# containers  installs what containers need, and makes their images and profiles.
containers() {
    IMAGE=$SCRATCH/image ROOTLESS=$SCRATCH/rootless PROFILE='' BUILT=() NOBODYS=()
    export IMAGE
    (need podman:podman runc:runc buildah:buildah runsc:runsc newuidmap:uidmap bwrap:bubblewrap)
    image "$IMAGE"
    image "$ROOTLESS/image"
    mkdir -p "$ROOTLESS"/{home,run}
    chmod 700 "$ROOTLESS/run"
    chown -R 65534:65534 "$ROOTLESS" 2>/dev/null
    "$CHECKS" filter rings=EPERM >"$SCRATCH/no-rings.bpf"
    docker_profile
    if command -v buildah >/dev/null; then
        working_container
        nobodys_container
        if [ -s "$PROFILE" ]; then
            working_container "--security-opt=seccomp=$PROFILE"
            nobodys_container "--security-opt=seccomp=$PROFILE"
        fi
    fi
}

# containers_end  removes what is not in the scratch directory, and ends a process that rootless
# Podman leaves behind.
containers_end() {
    local pause=${ROOTLESS:-/none}/run/libpod/tmp/pause.pid
    [ -z "${BUILT[*]:-}" ] || buildah rm "${BUILT[@]}" >/dev/null
    [ ! -s "$pause" ] || kill "$(cat "$pause")" 2>/dev/null
}
