//! The command line of `softring doctor`.

use clap::{Args, ValueEnum};

const DOCTOR_AFTER: &str = "\
Doctor tries each check in a child process, because a sandbox may kill a process for trying. Then \
doctor runs a small program by softring run; the last lines tell which rings the program got, why, \
and what you could change. Checks that succeed are not explained; --json explains all.

Exit codes: 0 a program gets rings that work, 1 a program gets no rings, or rings that fail.

softring doctor --for docker     prints lines that put softring into a container
softring doctor --for            the same, for the environment that softring detects";

/// Environments that start the programs that are to have softring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Environment {
    /// docker run, a Dockerfile
    Docker,
    /// podman run, a Containerfile
    Podman,
    /// A pod's spec
    Kubernetes,
    /// A service
    Systemd,
    /// A job of GitHub Actions or GitLab
    Ci,
    /// Environment of this process
    Here,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_AFTER)]
pub struct DoctorArgs {
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
    /// Also advise on polled rings (IOPOLL)
    #[arg(long)]
    pub iopoll: bool,
    /// Check nothing; print lines to copy into the configuration of WHERE
    #[arg(long = "for", value_enum, value_name = "WHERE", num_args = 0..=1)]
    #[arg(default_missing_value = "here", conflicts_with_all = ["json", "iopoll"])]
    pub environment: Option<Environment>,
}
