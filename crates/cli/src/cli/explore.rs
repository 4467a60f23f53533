//! The command line of `softring explore`.

use super::UnderArgs;
use crate::explore::seeds::Seeds;
use crate::explore::shard::Which;
use crate::strace::select::duration;
use clap::{ArgAction, Args, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXPLORE_AFTER: &str = "\
Each run has softring's rings, the faults of its seed, and the seed in SOFTRING_SEED. --faults \
has no seed here; legal is the default, and none injects nothing. A run fails \
if the program ends with an exit code other than 0 or by a signal, hangs (--timeout), or if the \
checker fails. The table has a row for each distinct failure: same end, same last line on standard \
error (numbers are not compared), same fault. The smallest SPEC is what is left after faults were \
dropped, one by one, for as long as the failure stayed.

Exit codes: 0 no run failed, 1 some failed, 2 a usage error, or a program that fails without faults.

--shard takes I/N (the first is 1/4), auto/N or auto. auto reads the number of the shard from \
SOFTRING_SHARD_INDEX (from 0), or from the variables of Kubernetes' indexed jobs, Slurm's arrays, \
Buildkite, GitLab, CircleCI or GNU parallel; and that of all shards from SOFTRING_SHARD_COUNT, or \
from the same, where they tell it.

softring explore --seeds 200 --with fixtures --check ./verify -- ./program
softring explore --shard auto/20 --json \"shard-$JOB_COMPLETION_INDEX.json\" -- ./program
softring explore merge shard-*.json";

#[derive(Debug, Args)]
#[command(after_help = EXPLORE_AFTER)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ExploreArgs {
    #[command(subcommand)]
    pub of: Option<ExploreOf>,
    /// Seeds to try: A..B without B, A..=B, or N for 0..N
    #[arg(long, value_name = "SEEDS", default_value = "0..200")]
    pub seeds: Seeds,
    /// Number of runs at the same time [default: 1, or with --with one per processor]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
    /// Run each time in a fresh copy of this folder, which may be empty
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub with: Option<PathBuf>,
    /// Shell command that fails if a run has left something wrong; gets no faults
    #[arg(long, value_name = "CMD", value_hint = ValueHint::CommandString)]
    pub check: Option<OsString>,
    /// Time after which a run, or its checker, has hung: 500ms, 10s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// Another exit code that is no failure, for programs that report an error and end
    #[arg(long, value_name = "CODE", action = ArgAction::Append)]
    pub allow_exit: Vec<u8>,
    /// Try only this share of the seeds
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Which>,
    /// Report failures as they are, with the whole SPEC of their seed
    #[arg(long)]
    pub no_minimise: bool,
    /// Write the result to this file, for `softring explore merge`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the result as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// Keep a trace of each distinct failure in a folder of this folder, with its SPEC, log and
    /// output, and after a power cut with the directory that is left
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub keep: Option<PathBuf>,
    #[command(flatten)]
    pub under: UnderArgs,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum ExploreOf {
    /// Join the results of shards
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Results of softring explore --json
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Write the joined result to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the joined result as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
}

const CRASH_AFTER: &str = "\
CMD runs once to its end: its changes below the working directory, and its syncs, are counted. \
Then each seed chooses a moment, at which all processes are killed, and what is kept, lost or torn \
of the changes that were not durable. --check sees the result, and on its standard input what CMD \
had written to its own output. A run fails if the checker fails, if CMD ends by itself with an \
exit code other than 0, or if it hangs. The smallest SPEC names the requests that have to be lost.

Exit codes: 0 no run failed, 1 some failed, 2 a usage error, or a program that fails by itself.

softring crash explore --with empty --check './store verify' -- ./store fill
softring crash explore --crash model=ext4-ordered --with fixtures --check ./verify -- ./program";

#[derive(Debug, Args)]
pub struct CrashCommandArgs {
    #[command(subcommand)]
    pub of: CrashOf,
}

#[derive(Debug, Subcommand)]
pub enum CrashOf {
    /// Cut the power of a program once for each seed, and report what a checker finds
    #[command(after_help = CRASH_AFTER)]
    Explore(Box<CrashExploreArgs>),
}

#[derive(Debug, Args)]
pub struct CrashExploreArgs {
    /// The power cut, without a seed: model=..., sector=...; a moment, if it is to be the same for
    /// all seeds
    #[arg(long, value_name = "SPEC", value_hint = ValueHint::Other)]
    pub crash: Option<OsString>,
    #[command(flatten)]
    pub explore: ExploreArgs,
}
