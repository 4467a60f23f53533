//! The command line of `softring env`.

use super::UnderArgs;
use clap::{Args, ValueEnum};

const ENV_AFTER: &str = "\
What the shell starts from then on is under softring, as by `softring run` with the same options; \
the shell itself is not. --deny is for `softring run` only: no variable denies a system call.

--undo takes the library out of LD_PRELOAD, leaves what else stands there, and unsets every other \
variable that this command sets.

eval \"$(softring env)\"          in sh, bash, zsh; eval \"$(softring env --undo)\" ends it
softring env | source            in fish; softring env --undo | source ends it";

/// A shell's syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// POSIX: sh, dash, bash, ksh, zsh, busybox
    Sh,
    Fish,
}

#[derive(Debug, Args)]
#[command(after_help = ENV_AFTER)]
pub struct EnvArgs {
    /// The syntax of the lines [default: that of the shell which runs this]
    #[arg(long, value_enum, value_name = "SHELL")]
    pub shell: Option<Shell>,
    /// Print what ends it
    #[arg(long, conflicts_with = "UnderArgs")]
    pub undo: bool,
    #[command(flatten)]
    pub under: UnderArgs,
}
