//! `conformance`: the cases, on the kernel and on softring.

use anyhow::{Result, anyhow, bail};
use clap::{Parser, Subcommand};
use softring_conformance::case::{self, Case, Holds};
use softring_conformance::report::{self, Outcome, Row, Verdict};
use softring_conformance::retries::{self, Budget};
use softring_conformance::target::{self, Launcher, Target};
use softring_conformance::{EntryPoint, record, recorded, say, suite};
use softring_faults::{Fault, Spec};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Run the same cases on the kernel's io_uring and on softring; the kernel decides what is right.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the cases with their descriptions.
    List(Select),
    /// Run cases in this process's surroundings: on the kernel, or on softring under a preload.
    Run {
        #[command(flatten)]
        select: Select,
        /// Entry point of the system calls: syscall, patch or sigsys.
        #[arg(long, alias = "door", value_name = "HOW", default_value = "syscall")]
        intercept: EntryPoint,
        /// Number of runs of each case, to find unstable cases.
        #[arg(long, default_value_t = 1)]
        times: u32,
    },
    /// Run cases on the kernel and on softring through every entry point, and compare.
    All(All),
    /// Run cases on the running kernel, and print the transcripts as a record for other machines.
    Record {
        #[command(flatten)]
        select: Select,
        /// Number of runs of each case; transcripts that vary are not recorded.
        #[arg(long, default_value_t = 3)]
        times: usize,
        /// Number of cases that run at a time.
        #[arg(long, default_value_t = 3)]
        jobs: usize,
        /// Also run each case with its files in this directory, which is not on ext4 (may be given
        /// more than once).
        #[arg(long, value_name = "DIR")]
        also_in: Vec<PathBuf>,
    },
    /// Run one case in this process and print its transcript.
    #[command(hide = true)]
    One {
        name: String,
        #[arg(long, alias = "door", value_name = "HOW", default_value = "syscall")]
        intercept: EntryPoint,
    },
}

#[derive(clap::Args)]
struct All {
    #[command(flatten)]
    select: Select,
    /// Run cases only through this entry point (may be given more than once).
    #[arg(long, alias = "door", value_name = "HOW")]
    intercept: Vec<EntryPoint>,
    /// Path of libsoftring.so (default: beside this program).
    #[arg(long)]
    library: Option<PathBuf>,
    /// Disk of the cases' files, under softring (see `softring run --help`).
    #[arg(long, value_name = "DISK")]
    model: Option<String>,
    /// Deny kernel aio to softring, too.
    #[arg(long)]
    no_aio: bool,
    /// Let SQ threads sleep between submissions, under softring (`softring run --sq-idle=sleep`).
    #[arg(long)]
    sq_idle_sleep: bool,
    /// Inject faults under softring (see `softring run --help`), and run only the cases that
    /// promise the same under them (`order` or `legal` in `conformance list`), once for each seed.
    #[arg(long, value_name = "SPEC")]
    faults: Option<String>,
    /// Number of seeds of the faults.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "faults")]
    seeds: u32,
    /// Number of cases that run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Ignore failures on the kernel: without KVM the kernel is late.
    #[arg(long)]
    late_kernel: bool,
    /// Fail if more cases than this agree only when run again, on softring through one entry
    /// point.
    #[arg(long, value_name = "N", default_value_t = retries::SOFTRING)]
    retry_budget: usize,
    /// Fail if the kernel passes more cases than this only when run again.
    #[arg(long, value_name = "N", default_value_t = retries::KERNEL)]
    kernel_retry_budget: usize,
}

#[derive(clap::Args)]
struct Select {
    /// Run only cases whose family::name matches (`*` matches anything).
    #[arg(long = "case", default_value = "*")]
    pattern: String,
    /// Machine-readable output (JSON).
    #[arg(long)]
    json: bool,
    /// Time limit of one case, in seconds.
    #[arg(long, default_value_t = 20)]
    timeout: u64,
}

fn main() -> ExitCode {
    match command(Args::parse().what) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("conformance: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn command(what: What) -> Result<ExitCode> {
    match what {
        What::List(select) => list(&select),
        What::Run { select, intercept, times } => run(&select, intercept, times),
        What::All(args) => all(args),
        What::Record { select, times, jobs, also_in } => {
            let (exe, timeout) = (std::env::current_exe()?, Duration::from_secs(select.timeout));
            let plan = record::Plan { exe, timeout, times, jobs, elsewhere: also_in };
            let abi = target::pin(case::OLDEST.release).release;
            let cases: Vec<_> = chosen(&select)?.into_iter().filter(|c| c.abi == abi).collect();
            // The text is whole lines.
            say!("{}", record::record(&plan, &cases)?.trim_end_matches('\n'));
            Ok(code(true))
        }
        What::One { name, intercept } => {
            let cases = case::matching(&name);
            let Some(case) = cases.iter().find(|c| c.path() == name) else {
                bail!("there is no case {name:?}: see `conformance list`")
            };
            // The verdict is in the transcript; the exit status only tells whether the process ran
            // to its end.
            target::run_here(case, intercept);
            Ok(code(true))
        }
    }
}

/// Returns exit code 0 if all is well, 1 if a fault was found.
fn code(well: bool) -> ExitCode {
    ExitCode::from(u8::from(!well))
}

fn chosen(select: &Select) -> Result<Vec<&'static Case>> {
    let cases = case::matching(&select.pattern);
    if cases.is_empty() {
        bail!("no case matches {:?}: see `conformance list`", select.pattern);
    }
    Ok(cases)
}

fn list(select: &Select) -> Result<ExitCode> {
    let cases = chosen(select)?;
    if select.json {
        let rows: Vec<_> = cases
            .iter()
            .map(|c| {
                let (family, name, why) = (c.family, c.name, c.why);
                let faults = c.holds.preset();
                serde_json::json!({"family": family, "name": name, "why": why, "faults": faults})
            })
            .collect();
        say!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        for c in &cases {
            say!("{:<44} {:<5} {}", c.path(), c.holds.preset().unwrap_or_default(), c.why);
        }
        say!("{} cases", cases.len());
    }
    Ok(code(true))
}

fn launcher(select: &Select, library: Option<PathBuf>) -> Result<Launcher> {
    let exe = std::env::current_exe()?;
    let library = library.or_else(|| target::find_library(&exe));
    Launcher::new(exe, library, Duration::from_secs(select.timeout), None)
}

fn run(select: &Select, entry: EntryPoint, times: u32) -> Result<ExitCode> {
    let launcher = launcher(select, None)?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut answers = Vec::new();
    for case in chosen(select)? {
        let mut first: Option<Vec<String>> = None;
        for _ in 0..times {
            let answer = launcher.run(case, Target::Here(entry))?;
            let seen = first.get_or_insert_with(|| answer.seen.clone());
            let stable = *seen == answer.seen;
            match &answer.verdict {
                Verdict::Pass if stable => passed += 1,
                Verdict::Skip(_) => skipped += 1,
                _ => failed += 1,
            }
            if !select.json && (answer.verdict != Verdict::Pass || !stable) {
                say!(
                    "{}: {}{}",
                    case.path(),
                    answer.verdict,
                    if stable { "" } else { " (not certain)" }
                );
                answer.wrong.iter().for_each(|w| say!("    {w}"));
                if !stable {
                    say!("    first {seen:#?}\n    now {:#?}", answer.seen);
                }
                answer.noise.lines().take(8).for_each(|n| say!("    stderr: {n}"));
            }
            answers.push((case.path(), answer));
        }
    }
    if select.json {
        say!("{}", serde_json::to_string_pretty(&answers)?);
    } else {
        say!("{passed} passed, {failed} failed, {skipped} skipped");
    }
    Ok(code(failed == 0))
}

/// Returns what a case has to promise if it is to run under a SPEC's faults.
fn needed(spec: &str) -> Result<Holds> {
    let parsed = |spec: &str| Spec::parse(spec).map_err(|e| anyhow!("--faults {spec}: {e}"));
    let spec = parsed(spec)?;
    for holds in [Holds::AnyOrder, Holds::Legal] {
        let preset = parsed(holds.preset().unwrap_or_default())?;
        let has = |fault: Fault| preset.entries.iter().any(|e| e.fault == fault);
        if spec.entries.iter().all(|e| has(e.fault)) {
            return Ok(holds);
        }
    }
    bail!("--faults: no case promises the same under more than the faults of legal")
}

fn all(args: All) -> Result<ExitCode> {
    let All { select, intercept, late_kernel, .. } = args;
    let all = intercept.is_empty();
    let entries = if all { EntryPoint::ALL.to_vec() } else { intercept };
    let mut launcher = launcher(&select, args.library)?;
    launcher.model = args.model;
    (launcher.no_aio, launcher.sq_idle_sleep) = (args.no_aio, args.sq_idle_sleep);
    let kernel = (!late_kernel).then_some(args.kernel_retry_budget);
    let budget = Budget { softring: args.retry_budget, kernel };

    let mut cases = chosen(&select)?;
    let rows = match &args.faults {
        None => suite::run(&launcher, &cases, &entries, args.jobs)?,
        Some(spec) => {
            let needed = needed(spec)?;
            cases.retain(|c| c.holds >= needed);
            launcher.calls_again = needed == Holds::Legal;
            let mut rows = Vec::new();
            for seed in 0..args.seeds {
                launcher.faults = Some(format!("{spec},seed={seed}"));
                rows.extend(suite::run(&launcher, &cases, &entries, args.jobs)?);
            }
            rows
        }
    };
    let retried = retries::of(&rows);
    let counts = |r: &Row| !late_kernel || r.target != target::KERNEL;
    let differs = |r: &Row| counts(r) && matches!(r.outcome, Outcome::Differs(_));
    let well = !rows.iter().any(differs) && !retried.iter().any(|r| r.is_over(budget));
    if select.json {
        say!("{}", serde_json::to_string_pretty(&rows)?);
        let over = retried.iter().filter(|r| r.is_over(budget));
        over.for_each(|r| eprintln!("{}", r.line(budget)));
        return Ok(code(well));
    }
    for row in &rows {
        match &row.outcome {
            Outcome::Pass => {}
            Outcome::Skip(why) => say!("skipped {} on {}: {why}", row.case, row.target),
            Outcome::Known(why) => say!("known {} on {}: {why}", row.case, row.target),
            Outcome::Differs(lines) => {
                say!("DIFFERS {} on {}", row.case, row.target);
                lines.iter().for_each(|l| say!("    {l}"));
            }
        }
    }
    say!("{}", report::table(&rows));
    recorded::summary(&rows).iter().for_each(|line| say!("{line}"));
    retried.iter().for_each(|r| say!("{}", r.line(budget)));
    if retried.is_empty() {
        say!("no difference agreed only when asked again");
    }
    Ok(code(well))
}
