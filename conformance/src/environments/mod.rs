//! softring under other people's policies: a program of short checks, and a launcher that puts a
//! command under a policy. `ci/environments.sh` runs the one under the other.

pub mod checks;
mod checks_files;
mod checks_rings;
mod checks_waits;
pub mod command;
mod fixture;
pub mod policy;
mod sys;

/// Description of a fault.
pub type Fault = String;

/// Result of a check.
pub type Checked = Result<(), Fault>;
