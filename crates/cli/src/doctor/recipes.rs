//! `softring doctor --for WHERE`: lines to copy, for users who start programs in containers, pods,
//! units and jobs.

use crate::cli::Environment;
use crate::run::lib_path;
use crate::{fail, files, out};
use std::env;
use std::path::Path;

/// Runs `softring doctor --for WHERE`.
pub fn command(environment: Environment) -> anyhow::Result<()> {
    let environment = match environment {
        Environment::Here => guess().ok_or_else(|| {
            let hint = "name it: softring doctor --for docker (podman, kubernetes, systemd, ci)";
            fail::usage("this environment is not a known container, pod, unit or CI job", hint)
        })?,
        named => named,
    };
    let lib = lib_path::lasting()?;
    out::raw(lines(environment, &lib.display().to_string()))
}

/// Guesses the environment that this process runs in. A CI job counts as one also in a container.
pub fn guess() -> Option<Environment> {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let there = |path| files::exists(Path::new(path));
    let signs = [
        (Environment::Ci, set("GITHUB_ACTIONS") || set("GITLAB_CI") || set("CI")),
        (Environment::Kubernetes, set("KUBERNETES_SERVICE_HOST")),
        (Environment::Podman, there("/run/.containerenv")),
        (Environment::Docker, there("/.dockerenv")),
        (Environment::Systemd, set("INVOCATION_ID") && is_service()),
    ];
    signs.into_iter().find(|sign| sign.1).map(|sign| sign.0)
}

/// Returns whether this process is in the control group of a service, and not of a login.
fn is_service() -> bool {
    let groups = files::proc_text("/proc/self/cgroup").unwrap_or_default();
    groups.lines().any(|line| line.ends_with(".service"))
}

/// Returns the lines to copy, with `lib` as the path of the library.
fn lines(environment: Environment, lib: &str) -> String {
    let recipe = match environment {
        Environment::Docker | Environment::Podman => CONTAINER,
        Environment::Kubernetes => KUBERNETES,
        Environment::Systemd => SYSTEMD,
        Environment::Ci | Environment::Here => CI,
    };
    let tool = if environment == Environment::Podman { "podman" } else { "docker" };
    recipe.replace("@TOOL@", tool).replace("@LIB@", lib)
}

const CONTAINER: &str = "\
# With an unchanged image: mount the library from the host, and preload it.
@TOOL@ run \\
    -v @LIB@:/usr/local/lib/libsoftring.so:ro \\
    -e LD_PRELOAD=/usr/local/lib/libsoftring.so \\
    IMAGE COMMAND

# Or in the image: copy the library beside the Dockerfile, and add
COPY libsoftring.so /usr/local/lib/libsoftring.so
ENV LD_PRELOAD=/usr/local/lib/libsoftring.so
";

const KUBERNETES: &str = "\
# In the pod's spec. SOFTRING_IMAGE: any image that has cp(1), and the library
# at that path.
initContainers:
- name: softring
  image: SOFTRING_IMAGE
  command: [cp, @LIB@, /softring/libsoftring.so]
  volumeMounts:
  - {name: softring, mountPath: /softring}
containers:
- name: CONTAINER
  image: IMAGE
  env:
  - {name: LD_PRELOAD, value: /softring/libsoftring.so}
  volumeMounts:
  - {name: softring, mountPath: /softring, readOnly: true}
volumes:
- {name: softring, emptyDir: {}}
";

const SYSTEMD: &str = "\
# systemctl edit UNIT; the unit must be allowed to read the library.
[Service]
Environment=LD_PRELOAD=@LIB@
";

const CI: &str = "\
# One command of a job, where softring is installed:
softring run -- COMMAND

# GitHub Actions: all later steps of the job.
- run: echo LD_PRELOAD=@LIB@ >>\"$GITHUB_ENV\"

# GitLab: all commands of the job.
variables:
  LD_PRELOAD: @LIB@
";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_recipe_names_the_library_and_fits_a_terminal() {
        for environment in Environment::value_variants() {
            let lines = lines(*environment, "/usr/local/lib/libsoftring.so");
            assert!(lines.contains("/usr/local/lib/libsoftring.so"), "{lines}");
            assert!(!lines.contains('@') && lines.ends_with('\n'), "{lines}");
            assert!(lines.lines().all(|line| line.len() <= 80), "{lines}");
        }
    }
}
