//! Options that `run`, `env`, `stat`, `trace` and `strace` share: they say how softring gets under
//! a program.

use super::{FaultArgs, name_of};
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use serde::Serialize;
use softring_uapi::version::Release;
use std::ffi::OsString;

/// The io_uring implementation that the program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The kernel's where it is allowed, softring's where it is not
    Auto,
    /// Always softring's
    User,
    /// Always the kernel's
    Kernel,
}

/// Means by which the program's io_uring system calls reach softring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Intercept {
    /// Patched call sites; the trap for those that cannot be patched
    Auto,
    /// Patched call sites only
    Patch,
    /// The SIGSYS trap: slower, reaches every call site
    Sigsys,
}

/// Behaviour of SQ threads between submissions, until sq_thread_idle is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SqIdle {
    /// Poll the queue without a pause, as the kernel's SQ threads do
    Spin,
    /// Sleep until the next submission is due, where this saves processor time
    #[value(alias = "nap")]
    Sleep,
}

/// Policy by which threads of the program wait for I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Poll {
    /// Poll without a pause
    Spin,
    /// Sleep until shortly before the next completion is due, then poll
    Hybrid,
    /// Spin, sleep or block, by queue depth and by other load on the processor
    Adaptive,
    /// Sleep until something completes
    Block,
}

/// The options of `softring run`.
#[derive(Clone, Debug, Args)]
pub struct UnderArgs {
    /// The io_uring implementation that the program uses [default: SOFTRING_ENGINE, or auto]
    #[arg(long, value_enum, value_name = "WHICH")]
    pub engine: Option<Engine>,
    /// Use the kernel's rings only if they have all operations, set-up flags, features and register
    /// calls of this release of Linux; otherwise use softring's
    #[arg(long, value_name = "RELEASE")]
    pub at_least: Option<Release>,
    /// Means of intercepting the program's system calls [default: SOFTRING_INTERCEPT, or auto]
    #[arg(long, value_enum, value_name = "HOW", alias = "door")]
    pub intercept: Option<Intercept>,
    /// Suppress the notice and warnings
    #[arg(long, short)]
    pub quiet: bool,
    /// First deny the io_uring system calls (EPERM) to the program, as Docker's default profile
    /// does
    #[arg(long)]
    pub deny: bool,
    /// Poll for completions of kernel aio (libaio) instead of sleeping: without a pause, or as
    /// --poll says
    #[arg(long)]
    pub aio_hipri: bool,
    /// Complete I/O on a file, or on all files in a folder, as a modelled disk would
    #[arg(long, value_name = "PATH=DISK", action = ArgAction::Append)]
    #[arg(value_hint = ValueHint::AnyPath)]
    pub model: Vec<OsString>,
    /// Wait by this policy for O_DIRECT reads and writes on every ring, polled (IOPOLL) or not;
    /// implies --engine=user unless --engine says otherwise
    #[arg(long, value_enum, value_name = "HOW")]
    pub poll: Option<Poll>,
    /// Leave programs without softring that start with an environment without LD_PRELOAD
    #[arg(long)]
    pub no_follow: bool,
    /// Keep no statistics for `softring metrics`
    #[arg(long)]
    pub no_stats: bool,
    /// Behaviour of SQ threads (SQPOLL) between submissions [default: SOFTRING_SQ_IDLE, or spin]
    #[arg(long, value_enum, value_name = "HOW")]
    pub sq_idle: Option<SqIdle>,
    #[command(flatten)]
    pub faults: FaultArgs,
}

impl UnderArgs {
    /// Returns the arguments that say the same to `softring run`.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        words.extend(self.engine.map(|which| format!("--engine={}", name_of(which)).into()));
        words.extend(self.intercept.map(|how| format!("--intercept={}", name_of(how)).into()));
        words.extend(self.sq_idle.map(|how| format!("--sq-idle={}", name_of(how)).into()));
        words.extend(self.at_least.map(|v| format!("--at-least={v}").into()));
        words.extend(self.poll.map(|how| format!("--poll={}", name_of(how)).into()));
        let switches = [
            (self.quiet, "--quiet"),
            (self.deny, "--deny"),
            (self.aio_hipri, "--aio-hipri"),
            (self.no_follow, "--no-follow"),
            (self.no_stats, "--no-stats"),
        ];
        words.extend(switches.iter().filter(|s| s.0).map(|s| s.1.into()));
        for model in &self.model {
            words.extend(["--model".into(), model.clone()]);
        }
        words.extend(self.faults.words());
        words
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::{CommandFactory, Parser};

    #[test]
    fn words_repeat_the_options() {
        let given = [
            "--engine=user",
            "--intercept=patch",
            "--sq-idle=sleep",
            "--poll=adaptive",
            "--quiet",
            "--deny",
            "--aio-hipri",
            "--no-follow",
            "--no-stats",
            "--model",
            "/=null",
            "--faults",
            "legal,seed=7",
            "--faults-log",
            "log",
            "--faults-replay",
            "old",
        ];
        let all = ["softring", "run"].into_iter().chain(given).chain(["--", "true"]);
        let Command::Run(args) = Cli::parse_from(all).command else { panic!("run expected") };
        assert_eq!(args.under.words(), given);
    }

    #[test]
    fn an_old_option_name_works_but_is_hidden() {
        let words = ["softring", "run", "--door=sigsys", "--", "true"];
        let Command::Run(args) = Cli::parse_from(words).command else { panic!("run expected") };
        assert_eq!(args.under.words(), ["--intercept=sigsys"]);
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("run").expect("run").render_long_help().to_string();
        assert!(help.contains("--intercept") && !help.contains("--door"), "{help}");
    }
}
