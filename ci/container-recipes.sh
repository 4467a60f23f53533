# For ci/containers.sh: the recipes of examples/containers, each run as it is where that can be done
# here, and held against the schema of whoever reads it.
# shellcheck shell=bash

# logged NAME COMMAND…  runs one check.
logged() {
    local name=$1
    shift
    "$@" >"$SCRATCH/log" 2>&1
    outcome "$name" $?
}

# What pulls nothing: the image that stands for somebody else's.
compose() {
    mkdir -p "$SCRATCH/bin"
    printf '#!/bin/sh\nexec %s --root=%s --runroot=%s "$@"\n' \
        "$(command -v podman)" "$SCRATCH/storage" "$SCRATCH/run" >"$SCRATCH/bin/podman"
    chmod +x "$SCRATCH/bin/podman"
    cp "$RECIPES/compose.yaml" "$SCRATCH/compose.yaml"
    (cd "$SCRATCH" && PATH=$SCRATCH/bin:$PATH timeout -k 5 120 podman-compose -p recipe \
        --in-pod=false up -d) || return
    [ "$(a_root wait recipe_program_1)" = 0 ] || return
    a_root logs recipe_program_1 | grep 'err= 0'
}

# A pod with the rights that the "restricted" policy leaves.
kubernetes() {
    local code=1
    if a_root kube play --network=none "$RECIPES/kubernetes.yaml"; then
        code=$(a_root wait program-with-rings-program)
        a_root logs program-with-rings-program 2>&1 | tee "$SCRATCH/pod"
        grep -q 'err= 0' "$SCRATCH/pod" || code=1
    fi
    a_root kube down "$RECIPES/kubernetes.yaml"
    [ "$code" = 0 ]
}

kubernetes_schema() {
    kubernetes-validate --strict "$RECIPES/kubernetes.yaml"
}

# The same pod without the variable has no rings.
kubernetes_without() {
    sed 's/name: LD_PRELOAD/name: NOTHING/' "$RECIPES/kubernetes.yaml" >"$SCRATCH/without.yaml"
    local code=0
    a_root kube play --network=none "$SCRATCH/without.yaml" &&
        code=$(a_root wait program-with-rings-program)
    a_root kube down "$SCRATCH/without.yaml"
    [ "$code" != 0 ]
}

# Its variables reach shells, which exec starts, and not the container's own processes.
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
    id=$(a_root run -d -e LD_PRELOAD= localhost/with-softring sleep 60) || return
    ! a_root exec "$id" ring /etc/hostname || return
    a_root exec -e "LD_PRELOAD=$(cat "$SCRATCH/remote")" "$id" ring /etc/hostname &&
        a_root exec "$id" softring doctor
    local rc=$?
    a_root rm -f -t 0 "$id"
    return $rc
}

# job FILE  runs the commands of a CI job in a container. What fetches is replaced: the package is
# the one that was made here, and `make test` needs a ring.
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
    a_root run --rm -v "$at:/job:ro" -e PATH=/job:/usr/sbin:/usr/bin:/sbin:/bin \
        localhost/program sh /job/script
}

recipes() {
    python_tools "${CARGO_TARGET_DIR:-$TOP/target}/recipe-tools" podman-compose==1.6.0 \
        kubernetes-validate==1.37.0 check-jsonschema==0.39.0 pyyaml
    logged 'Kubernetes: podman kube play' kubernetes
    logged 'Kubernetes: no rings without the variable' kubernetes_without
    logged 'Kubernetes: its schema' kubernetes_schema
    logged 'Compose' compose
    logged 'devcontainer' devcontainer
    logged 'GitHub Actions: its commands' job github-actions.yml
    logged 'GitHub Actions: its schema' check-jsonschema \
        --builtin-schema vendor.github-workflows "$RECIPES/github-actions.yml"
    logged 'GitLab: its commands' job gitlab-ci.yml
    logged 'GitLab: its schema' check-jsonschema --builtin-schema vendor.gitlab-ci \
        "$RECIPES/gitlab-ci.yml"
    logged 'Compose: its schema' check-jsonschema --builtin-schema vendor.compose-spec \
        "$RECIPES/compose.yaml"
    if command -v systemd-analyze >/dev/null; then
        logged 'systemd: its unit' systemd-analyze verify "$RECIPES/fio.service"
    fi
}
