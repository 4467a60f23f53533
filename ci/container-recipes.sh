# For ci/containers.sh: runs each recipe of examples/containers as it is where this machine can, by
# root and by a user, under Podman's profile and Docker's, and checks it against the schema of its
# reader.
# shellcheck shell=bash

# logged NAME COMMAND…  runs one check.
logged() {
    local name=$1
    shift
    "$@" >"$SCRATCH/log" 2>&1
    outcome "$name" $?
}

# The user whose Podman runs the recipes: a_root or a_user.
WHO=a_root

# Runs the Compose recipe. Nothing is pulled: a local image stands for somebody else's.
compose() {
    local at=$SCRATCH/compose-$WHO
    mkdir -p "$at/bin"
    # podman-compose calls this script, because functions of the shell are no commands.
    {
        printf '#!/bin/bash\n%s\n' "$(declare -f "$WHO")"
        # The user's own Podman is the next on the path.
        # shellcheck disable=SC2016  # the script that is written expands it
        printf 'PATH=${PATH#*:}\nSCRATCH=%q\n%s "$@"\n' "$SCRATCH" "$WHO"
    } >"$at/bin/podman"
    chmod +x "$at/bin/podman"
    cp "$RECIPES/compose.yaml" "$at/compose.yaml"
    # A user's networks need programs that a machine may lack.
    [ "$WHO" = a_root ] ||
        sed -i 's/^  program:$/&\n    network_mode: none/' "$at/compose.yaml"
    (cd "$at" && PATH=$at/bin:$PATH timeout -k 5 120 podman-compose -p recipe \
        --in-pod=false up -d) || return
    local code
    code=$("$WHO" wait recipe_program_1)
    "$WHO" logs recipe_program_1 >"$at/said" 2>&1
    cat "$at/said"
    "$WHO" rm -f -t 0 recipe_program_1 recipe_softring_1
    "$WHO" volume rm recipe_softring
    [ "$code" = 0 ] && grep -q 'err= 0' "$at/said"
}

# pod_file TO  writes the pod's manifest, without the memory limit for a user's Podman on cgroups of
# version 1, which cannot set one.
pod_file() {
    install -m 644 "$RECIPES/kubernetes.yaml" "$1"
    if [ "$WHO" = a_user ] && [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
        sed -i '/^      resources:$/,/limits:/d' "$1"
    fi
}

# Runs a pod with the rights that the "restricted" policy leaves.
kubernetes() {
    local code=1 pod=$SCRATCH/pod.yaml
    pod_file "$pod"
    cmp -s "$pod" "$RECIPES/kubernetes.yaml" ||
        skip "$WHO: the pod's limit of memory: cgroups of version 1" >&3
    if "$WHO" kube play --network=none "$pod"; then
        code=$("$WHO" wait program-with-rings-program)
        "$WHO" logs program-with-rings-program 2>&1 | tee "$SCRATCH/pod"
        grep -q 'err= 0' "$SCRATCH/pod" || code=1
    fi
    "$WHO" kube down "$pod"
    [ "$code" = 0 ]
}

kubernetes_schema() {
    kubernetes-validate --strict "$RECIPES/kubernetes.yaml"
}

# Checks that the same pod without the variable has no rings.
kubernetes_without() {
    local code=0 pod=$SCRATCH/without.yaml
    pod_file "$pod"
    sed -i 's/name: LD_PRELOAD/name: NOTHING/' "$pod"
    "$WHO" kube play --network=none "$pod" &&
        code=$("$WHO" wait program-with-rings-program)
    "$WHO" kube down "$pod"
    [ "$code" != 0 ]
}

# The devcontainer's variables reach shells, which exec starts, and not the container's own
# processes. `softring doctor --for` guesses the place there.
devcontainer() {
    python3 - "$RECIPES" >"$SCRATCH/remote" <<'EOF' || return
import json, pathlib, re, sys
folder = pathlib.Path(sys.argv[1])
text = re.sub(r"^\s*//.*$", "", (folder / "devcontainer.json").read_text(), flags=re.M)
asked = json.loads(text)
args = re.findall(r"^ARG (\w+)", (folder / asked["build"]["dockerfile"]).read_text(), re.M)
assert set(asked["build"]["args"]) <= set(args), "the Dockerfile takes other arguments"
assert asked["containerEnv"]["LD_PRELOAD"] == ""
print(asked["remoteEnv"]["LD_PRELOAD"])
EOF
    local id
    id=$("$WHO" run -d -e LD_PRELOAD= localhost/with-softring sleep 60) || return
    ! "$WHO" exec "$id" ring /etc/hostname || return
    "$WHO" exec -e "LD_PRELOAD=$(cat "$SCRATCH/remote")" "$id" ring /etc/hostname &&
        "$WHO" exec "$id" softring doctor &&
        "$WHO" exec "$id" softring doctor --for | grep '^podman run'
    local rc=$?
    "$WHO" rm -f -t 0 "$id"
    return $rc
}

# Runs programs in the image that has the command alone: by a file that the command unpacks, and by
# memory where nobody may write.
one_file() {
    local sealed=(--read-only --read-only-tmpfs=false --cap-drop=all
        --security-opt=no-new-privileges)
    # shellcheck disable=SC2016  # the container's shell expands it
    "$WHO" run --rm localhost/one-file sh -c 'echo "$LD_PRELOAD"; ring /etc/hostname' |
        grep '^/.*/softring-0-.*/libsoftring.so$' &&
        "$WHO" run --rm "${sealed[@]}" localhost/one-file ring /etc/hostname &&
        "$WHO" run --rm "${sealed[@]}" localhost/one-file sh -c 'ring /etc/hostname'
}

# job FILE  runs the commands of a CI job in a container. The package that was made here replaces
# the fetched one, and `make test` needs a ring.
job() {
    local at=$SCRATCH/job
    mkdir -p "$at"
    cp "$DIST"/*.deb "$at/softring.deb"
    printf '#!/bin/sh\n' | tee "$at/apt-get" >"$at/curl"
    # shellcheck disable=SC2016  # the container's shell expands it
    echo 'while [ $# -gt 1 ]; do [ "$1" != -fsSLo ] || cp /job/softring.deb "$2"; shift; done' \
        >>"$at/curl"
    printf '#!/bin/sh\nexec ring /etc/hostname\n' >"$at/make"
    chmod +x "$at"/{apt-get,curl,make}
    python3 - "$RECIPES/$1" >"$at/script" <<'EOF' || return
import sys, yaml
asked = yaml.safe_load(open(sys.argv[1]))
jobs = asked["jobs"] if "jobs" in asked else asked
job = jobs["tests"]
steps = [step.get("run") for step in job.get("steps", [])]
lines = [step for step in steps if step] or job["before_script"] + job["script"]
variables = job.get("env") or job.get("variables")
print("set -eu\n" + "\n".join(f"export {name}={value}" for name, value in variables.items()))
print("\n".join(lines))
EOF
    "$WHO" run --rm -v "$at:/job:ro" -e PATH=/job:/usr/sbin:/usr/bin:/sbin:/bin \
        localhost/program sh /job/script
}

# Checks that the host's command sees a program in a container: by the host's process number, and
# with the container's name as far as the control groups tell it.
seen() {
    local id pid place rc=1
    id=$("$WHO" run -d --user=1000 localhost/with-softring liburing-client nop 8 60) || return
    pid=$("$WHO" inspect --format '{{.State.Pid}}' "$id")
    place="in container ${id:0:12}" short=${id:0:12}
    grep -q "$id" "/proc/$pid/cgroup" || place='in another pid namespace' short=other
    for _ in $(seq 100); do
        "$HOST" metrics -p "$pid" | grep -q '^ring ' && break
        sleep 0.1
    done
    # The program's own number, the innermost, is another.
    grep '^NSpid:' "/proc/$pid/status" | grep -q '[[:space:]]1$' &&
        "$HOST" metrics | grep -F "$pid (liburing-client) $place: 1 open ring(s)" &&
        "$HOST" top --once -d 0.2 | grep "^$pid liburing-client  *$short " &&
        "$HOST" strace -p "$pid" -e NOP --seconds 0.2 -o "$SCRATCH/lines" &&
        grep -qxF -e "--- process $pid (liburing-client) $place ---" "$SCRATCH/lines" &&
        grep -q "^\[pid $pid tid [0-9]*\] .* NOP() = 0" "$SCRATCH/lines" &&
        "$HOST" trace -p "$pid" --seconds 0.2 -o "$SCRATCH/trace.json" &&
        grep -F "\"name\":\"liburing-client $place\"" "$SCRATCH/trace.json" && rc=0
    "$WHO" rm -f -t 0 "$id"
    return $rc
}

# Checks that the first two lines of each recipe say when to use it.
described() {
    local file
    for file in "$RECIPES"/*; do
        case $file in
            *.md) continue ;;
        esac
        [ "$(head -n 2 "$file" | grep -c '^\(#\|//\) .')" = 2 ] &&
            head -n 1 "$file" | grep 'When to use it: ' || return
    done
}

# run_recipes WHO PROFILE  runs all recipes that this machine can run so.
run_recipes() {
    WHO=$1
    local where="$1, $2's profile" CONTAINERS_CONF=$SCRATCH/containers-$2.conf
    export CONTAINERS_CONF
    podman_config >"$CONTAINERS_CONF"
    [ "$2" = podman ] || sed -i "/^\[containers\]/a seccomp_profile = \"$SCRATCH/docker.json\"" \
        "$CONTAINERS_CONF"
    logged "Kubernetes: podman kube play ($where)" kubernetes
    logged "Kubernetes: no rings without the variable ($where)" kubernetes_without
    logged "Compose ($where)" compose
    logged "devcontainer ($where)" devcontainer
    logged "the command alone ($where)" one_file
    logged "GitHub Actions: its commands ($where)" job github-actions.yml
    logged "GitLab: its commands ($where)" job gitlab-ci.yml
    logged "seen from the host ($where)" seen
}

recipes() {
    # Descriptor 3 bypasses the logs of the checks.
    exec 3>&1
    python_tools "${CARGO_TARGET_DIR:-$TOP/target}/recipe-tools" podman-compose==1.6.0 \
        kubernetes-validate==1.37.0 check-jsonschema==0.39.0 pyyaml
    HOST=$SCRATCH/softring-$VERSION-linux-x86_64/bin/softring
    tar -C "$SCRATCH" -xf "$DIST/softring-$VERSION-linux-x86_64.tar.gz"
    logged 'each says when to use it' described
    run_recipes a_root podman
    [ -n "$QUICK" ] || run_recipes a_user podman
    if [ -s "$SCRATCH/docker.json" ]; then
        [ -n "$QUICK" ] || run_recipes a_root docker
        run_recipes a_user docker
    fi
    logged 'Kubernetes: its schema' kubernetes_schema
    logged 'GitHub Actions: its schema' check-jsonschema \
        --builtin-schema vendor.github-workflows "$RECIPES/github-actions.yml"
    logged 'release workflow: its schema' check-jsonschema \
        --builtin-schema vendor.github-workflows "$TOP/.github/workflows/release.yml"
    logged 'GitLab: its schema' check-jsonschema --builtin-schema vendor.gitlab-ci \
        "$RECIPES/gitlab-ci.yml"
    logged 'Compose: its schema' check-jsonschema --builtin-schema vendor.compose-spec \
        "$RECIPES/compose.yaml"
    logged 'campaign, Kubernetes: its schema' \
        kubernetes-validate --strict "$TOP/examples/campaign/kubernetes.yaml"
    logged 'campaign, GitHub Actions: its schema' check-jsonschema \
        --builtin-schema vendor.github-workflows "$TOP/examples/campaign/github-actions.yml"
    logged 'campaign, Buildkite: its schema' check-jsonschema \
        --builtin-schema vendor.buildkite "$TOP/examples/campaign/buildkite.yml"
    if command -v systemd-analyze >/dev/null; then
        logged 'systemd: its unit' systemd-analyze verify "$RECIPES/fio.service"
    fi
}
