//! The command line of `softring doctor`.

use clap::{Args, ValueEnum};

const DOCTOR_AFTER: &str = "\
Each check is tried, not derived: in a child, as a sandbox may kill for it. Then a small program \
is run by softring run, and the last lines tell which rings it got, why, and what you could \
change. What is as wished is not explained; --json explains all.

Exit codes: 0 a program gets rings that work, 1 it gets none, or such as fail it.

softring doctor --for docker     lines that put softring into a container
softring doctor --for            the same, where softring finds out in what it runs";

/// Starters of the programs that are to have softring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
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
    /// Environment that this runs in
    Here,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_AFTER)]
pub struct DoctorArgs {
    /// Machine-readable output (JSON)
    #[arg(long)]
    pub json: bool,
    /// Advise on polled rings (IOPOLL), too
    #[arg(long)]
    pub iopoll: bool,
    /// Check nothing, and print lines to copy for whoever starts the programs
    #[arg(long = "for", value_enum, value_name = "WHERE", num_args = 0..=1)]
    #[arg(default_missing_value = "here", conflicts_with_all = ["json", "iopoll"])]
    pub place: Option<Place>,
}
