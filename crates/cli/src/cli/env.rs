//! The command line of `softring env`.

use super::UnderArgs;
use clap::{Args, ValueEnum};

const ENV_AFTER: &str = "\
Programs that the shell starts from then on run under softring, as by `softring run` with the same \
options; the shell itself does not. --deny works only with `softring run`: no variable denies a \
system call.

--undo removes the library from LD_PRELOAD, keeps the other entries, and unsets every other \
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
    /// Syntax of the lines [default: the syntax of the calling shell]
    #[arg(long, value_enum, value_name = "SHELL")]
    pub shell: Option<Shell>,
    /// Print the lines that undo this command
    #[arg(long, conflicts_with = "UnderArgs")]
    pub undo: bool,
    #[command(flatten)]
    pub under: UnderArgs,
}
