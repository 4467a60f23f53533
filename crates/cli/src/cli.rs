//! The command line, as data: help, the man page and the shell completions are generated from these
//! definitions.

use clap::ValueHint;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

mod bench;
mod doctor;
mod env;
mod explore;
mod faults;
mod stats;
mod strace;
mod trace;
mod under;

pub use bench::{BenchArgs, BenchOf, Driver, Op, PolledArgs, ReissueArgs, Rw, SqpollArgs};
pub use doctor::{DoctorArgs, Environment};
pub use env::{EnvArgs, Shell};
pub use explore::{CrashCommandArgs, CrashExploreArgs, CrashOf, ExploreArgs, ExploreOf, MergeArgs};
pub use faults::{CrashArgs, FaultArgs};
pub use stats::{Format, StatArgs, StatsArgs, TopArgs};
pub use strace::StraceArgs;
pub use trace::TraceArgs;
pub use under::{Engine, Poll, UnderArgs};

const AFTER: &str = "\
Exit codes: 0 success, 1 the work failed, 2 a usage error or an error of softring itself. \
`softring run`, `stat`, `trace`, `strace` and `deny` end with the program's own exit code or \
signal; 126 means that the program may not be executed, 127 that it was not found.";

/// The version, and the commit and day of the source as far as they are known.
pub const VERSION: &str = env!("SOFTRING_VERSION");

/// Run io_uring programs where io_uring is denied.
#[derive(Debug, Parser)]
#[command(name = "softring", version = VERSION, after_help = AFTER, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line, as [`Parser::parse_from`], and records which options of `bench` are
    /// there.
    pub fn read(args: Vec<OsString>) -> Cli {
        let matches = Cli::command().try_get_matches_from(args).unwrap_or_else(|e| {
            crate::signals::ignore_sigpipe();
            if e.use_stderr() || std::io::stdout().is_terminal() {
                e.exit()
            }
            // Help and the version are an answer like others: a user who cannot have the answer is
            // told so.
            let printed = crate::out::raw(e.render().to_string());
            std::process::exit(printed.map_or_else(|e| crate::fail::report(&e), |()| 0).into())
        });
        let mut cli = Cli::from_arg_matches(&matches)
            .unwrap_or_else(|e| e.format(&mut Cli::command()).exit());
        if let (Command::Bench(args), Some(m)) = (&mut cli.command, matches.subcommand()) {
            args.given = given(m.1);
        }
        cli
    }
}

fn given(matches: &ArgMatches) -> Vec<String> {
    let typed =
        |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    matches.ids().filter(typed).map(ToString::to_string).collect()
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with softring under it
    Run(RunArgs),
    /// Print the variables that put a shell's children under softring
    Env(EnvArgs),
    /// Show what denies io_uring here, what works instead, and what to change
    Doctor(DoctorArgs),
    /// Show counters of the rings of running programs, by ring and operation
    #[command(alias = "stats")]
    Metrics(StatsArgs),
    /// Record every step of every request, for a viewer of traces
    Trace(TraceArgs),
    /// Print a line for every request of a program, as strace(1) does for system calls
    Strace(Box<StraceArgs>),
    /// Run a program, or watch a running one, and report at its end the counters of its rings
    Stat(StatArgs),
    /// Show the activity of the rings of running programs, refreshed as by top(1)
    Top(TopArgs),
    /// Run a program once for each seed of its faults, and report what fails
    Explore(Box<ExploreArgs>),
    /// Cut the power of a program: many times, at points that seeds choose
    Crash(CrashCommandArgs),
    /// Deny io_uring to a program, run it on softring, and measure: needs nothing installed
    Demo(DemoArgs),
    /// Measure the same load through the kernel's io_uring, softring and others
    Bench(Box<BenchArgs>),
    /// Copy softring into a folder, for example a volume that containers share
    Copy(CopyArgs),
    /// Run a program with the io_uring system calls denied, and nothing else changed
    #[command(hide = true)]
    Deny(DenyArgs),
    /// Try one ring, by inline system calls, and report (JSON)
    #[command(hide = true)]
    Trial,
    /// Run one measurement (JSON in, JSON out)
    #[command(hide = true)]
    Worker,
    /// Write the man page or the shell completions
    #[command(hide = true)]
    Gen(GenArgs),
}

/// Returns the name of a value as the command line spells it.
pub fn name_of<T: ValueEnum>(v: T) -> String {
    v.to_possible_value().map_or_else(String::new, |p| p.get_name().to_owned())
}

const RUN_AFTER: &str = "\
--model PATH=DISK: DISK is a preset (nvme-gen4, nvme-gen5, cloud-ssd, hdd, null), a list of \
KEY:VALUE separated by commas, or a preset and such a list. READ/WRITE as a value sets reads and \
writes apart. softring models only I/O through its own rings; with --model, --engine=auto means \
user.

latency: time of one request, as in 80us/15us. jitter: its standard deviation, as in 8us or 10%. \
dist: its distribution: fixed, normal or lognormal. slow: a second mode; 2ms@1% makes 1 % of the \
requests take 2 ms. iops, bw: limits per second, in powers of 1000, as in 1m/215k and 6800m. \
queues: number of requests that the disk works on at once. seek: time added to a request that does \
not follow the previous one. pollqueues: 1 if an IOPOLL ring sees completions without an \
interrupt. irq: time of an interrupt. data: none moves no data, for benchmarks. seed: seed of the \
distributions.

--faults SPEC: items separated by commas: a preset (legal: what a correct kernel may do with \
healthy hardware; order: of that, only order and time; hostile: errors of hardware, peers and \
limits as well), seed=N, and \
FAULT=CHANCE, as short-read=0.05 or eio=read:0.001; delay=p99:20ms has a time. A filter follows: \
short-write=1@op=write,path=*.wal,nth=3. Faults: short-read, short-write, eintr, eagain, eio, \
enospc, edquot, enomem, econnreset, drop-connection, delay, reorder, overflow, cancel-late, \
multishot-end, buffers-out, notif-late, spurious-wake, sq-late. A TOML file says the same. Each \
fault is one that the kernel could produce; the same seed gives the same faults.

--crash SPEC: items separated by commas: seed=N, model=posix-minimal or ext4-ordered, \
sector=512 or 4096, dir=PATH (the working directory without it), and the moment: end, request=N, \
fsync=N, time=500ms or marker=TEXT. All processes are killed then, and each change below the \
directory that was not durable is kept, lost or torn, by the seed. A TOML file says the same. The \
command ends with 0 if the power has failed before the program ended by itself.

softring run --crash seed=7,fsync=3 -- CMD
softring run --faults legal,seed=7 --faults-log faults.jsonl -- CMD
softring run --faults-replay faults.jsonl -- CMD
softring run --model '/data=nvme-gen4' -- CMD
softring run --model '/data=latency:80us/15us,jitter:10%,iops:500k,bw:3g,queues:32' -- CMD";

#[derive(Debug, Args)]
#[command(after_help = RUN_AFTER)]
pub struct RunArgs {
    #[command(flatten)]
    pub under: UnderArgs,
    #[command(flatten)]
    pub crash: CrashArgs,
    /// Pipe on which softring reports that the program could not be started
    #[arg(long, hide = true, value_name = "FD")]
    pub failure_fd: Option<i32>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

const COPY_AFTER: &str = "\
Prints the path of the library in the folder. With this path in LD_PRELOAD, every program of the \
container uses softring's rings where the kernel's are denied.";

#[derive(Debug, Args)]
#[command(after_help = COPY_AFTER)]
pub struct CopyArgs {
    /// Folder for bin/softring and lib/libsoftring.so
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct DenyArgs {
    /// Error number with which io_uring_setup, _enter and _register fail
    #[arg(long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=133))]
    pub errno: u16,
    /// Deny the calls of kernel aio (io_setup and the others) as well
    #[arg(long)]
    pub aio: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    #[arg(value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Folder for the temporary file [default: TMPDIR, or /tmp]
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Seconds per measurement
    #[arg(long, default_value_t = 1.5, value_name = "S", value_parser = some_seconds)]
    pub seconds: f64,
}

#[derive(Debug, Args)]
pub struct GenArgs {
    /// Kind of output
    #[arg(value_enum)]
    pub what: GenWhat,
    /// Folder to write into
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum GenWhat {
    Man,
    Completions,
}

/// Parses a count of bytes: digits and an optional binary suffix.
pub fn bytes(s: &str) -> Result<u64, String> {
    let lower = s.trim().to_ascii_lowercase();
    let cut = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(cut);
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("unknown unit '{unit}': use k, m, g or t")),
    };
    let n: u64 = digits.parse().map_err(|_| "not a number".to_owned())?;
    n.checked_mul(1 << shift).filter(|&n| n > 0).ok_or_else(|| "out of range".to_owned())
}

/// Parses the number of a process.
fn process(s: &str) -> Result<i32, String> {
    let number = s.parse().ok().filter(|pid: &i32| *pid > 0);
    number.ok_or_else(|| "not a process ID; `pidof NAME` prints the ID of a program".to_owned())
}

/// Parses a positive number of seconds, at most an hour.
fn some_seconds(s: &str) -> Result<f64, String> {
    seconds(s).and_then(|v| if v > 0.0 { Ok(v) } else { Err("must be more than 0".to_owned()) })
}

/// Parses a number of seconds, at most an hour.
fn seconds(s: &str) -> Result<f64, String> {
    let v: f64 = s.parse().map_err(|_| "not a number".to_owned())?;
    if v.is_finite() && (0.0..=3600.0).contains(&v) {
        Ok(v)
    } else {
        Err("must be between 0 and 3600".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn byte_counts() {
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        assert_eq!(bytes("512"), Ok(512));
        for bad in ["", "k", "4x", "0", "99999999999g", "-1"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn process_ids_are_parsed() {
        assert_eq!(process("42"), Ok(42));
        for bad in ["", "fio", "0", "-1", "99999999999"] {
            assert!(process(bad).is_err_and(|why| why.contains("pidof")), "{bad}");
        }
    }

    #[test]
    fn options_after_the_program_belong_to_it() {
        let cli = Cli::parse_from(["softring", "run", "--quiet", "ls", "--engine", "x"]);
        let Command::Run(a) = cli.command else { panic!("run expected") };
        assert!(a.under.quiet);
        assert_eq!(a.command, ["ls", "--engine", "x"]);
    }

    /// `stats`, the older name, was too like `stat`.
    #[test]
    fn an_old_command_name_works_but_is_hidden() {
        let cli = Cli::parse_from(["softring", "stats", "--json"]);
        assert!(matches!(cli.command, Command::Metrics(args) if args.json));
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("  metrics ") && !help.contains("  stats "), "{help}");
    }

    /// Help is written in the imperative, or as nouns.
    #[test]
    fn help_texts_open_with_a_noun_or_verb() {
        fn check(command: &clap::Command) {
            const BAD: [&str; 8] =
                ["For ", "Whose ", "Who ", "Where ", "In ", "Into ", "No ", "So "];
            let texts =
                command.get_arguments().filter_map(clap::Arg::get_help).chain(command.get_about());
            for text in texts.map(ToString::to_string) {
                assert!(
                    text.starts_with(|c: char| c.is_uppercase() || c == '-' || c == 'I'),
                    "{text}"
                );
                assert!(!BAD.iter().any(|bad| text.starts_with(bad)), "{text}");
                assert!(!text.ends_with('.'), "{text}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
        let help =
            Cli::command().find_subcommand_mut("run").expect("run").render_help().to_string();
        assert!(help.contains("The io_uring implementation that the program uses"), "{help}");
    }

    #[test]
    fn an_unknown_option_is_a_usage_error() {
        for command in ["run", "stat", "trace", "strace"] {
            let e = Cli::try_parse_from(["softring", command, "--nope", "--", "ls"]).unwrap_err();
            assert_eq!(e.kind(), clap::error::ErrorKind::UnknownArgument, "{command}");
        }
    }
}
