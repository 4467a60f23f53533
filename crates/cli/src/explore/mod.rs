//! `softring explore`: runs a program once for each seed of its faults, or of a power cut, and
//! reports what fails.
//!
//! [`campaign`] makes the runs ([`run`]), each in a process group of its own ([`process`]) and a
//! fresh folder ([`fresh`]). [`minimise`] drops faults; [`report`], [`table`] and [`junit`] are the
//! result.

mod again;
mod campaign;
mod fresh;
mod junit;
mod minimise;
mod outcome;
mod plan;
mod process;
mod report;
mod run;
pub mod seeds;
pub mod shard;
mod table;

use crate::cli::{
    CrashExploreArgs, Engine, ExploreArgs, ExploreOf, FaultArgs, MergeArgs, UnderArgs,
};
use crate::run::faults;
use crate::{crash, fail, out, signals};
use anyhow::Context;
use campaign::{Failed, Share, Tally};
use indicatif::ProgressBar;
use minimise::{Smallest, minimise};
use outcome::{Ending, Key, sites};
use plan::{Cuts, Plan};
use report::{Failure, Report};
use run::{Run, Setup};
use softring_crash::{At, Spec as CrashSpec};
use softring_faults::Spec;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most failures whose faults are minimised.
const MINIMISED: usize = 20;
/// Factor of the slowest run after which another one has hung, once the failure is known.
const SLOWER: u32 = 20;
const SHORTEST: Duration = Duration::from_secs(2);

/// Runs `softring explore`.
pub fn command(args: &ExploreArgs) -> anyhow::Result<()> {
    if let Some(ExploreOf::Merge(args)) = &args.of {
        return merge(args);
    }
    campaign(args, None)
}

/// Runs `softring crash explore`.
pub fn crash_command(args: &CrashExploreArgs) -> anyhow::Result<()> {
    if let Some(ExploreOf::Merge(args)) = &args.explore.of {
        return merge(args);
    }
    let spec = match args.crash.as_deref() {
        None => CrashSpec::default(),
        Some(text) => {
            refuse_seed(text, "--crash")?;
            crash::spec_of(text)?
        }
    };
    campaign(&args.explore, Some(spec))
}

/// Tries all seeds: faults, or power cuts.
fn campaign(args: &ExploreArgs, cuts: Option<CrashSpec>) -> anyhow::Result<()> {
    let start = Instant::now();
    let spec = if cuts.is_none() { spec_of(args)? } else { None };
    let shard = args.shard.map(|which| which.resolve(|name| std::env::var(name).ok()));
    let shard = shard.transpose().map_err(|e| {
        fail::usage(format!("--shard: {e}"), "name it: --shard 1/4, or --shard auto/4")
    })?;
    for path in [&args.json, &args.junit].into_iter().flatten() {
        out::may_write(path).map_err(|e| cannot_write(path, &e))?;
    }
    let setup = Setup::new(args, cuts.is_some())?;
    signals::catch_ends();
    let plan = match cuts {
        None => {
            passes(&setup, None)?;
            Plan::Faults(spec)
        }
        Some(spec) => {
            let whole = CrashSpec { at: Some(At::End), only: Some([0].into()), ..spec.clone() };
            let counts = passes(&setup, Some(whole.to_string()))?;
            let (requests, syncs) = counts.unwrap_or((0, 0));
            Plan::Cuts(Cuts { spec, requests, syncs })
        }
    };
    let share = Share { seeds: args.seeds, shard };
    let bar = out::progress(share.count());
    let tally = campaign::run(&setup, &plan, &share, jobs(args), &bar)?;
    bar.set_style(indicatif::ProgressStyle::default_spinner());
    let mut report = Report {
        softring: env!("CARGO_PKG_VERSION").to_owned(),
        command: setup.words(),
        faults: plan.told(args),
        seeds: args.seeds,
        shards: shard.into_iter().collect(),
        runs: tally.runs,
        failed: tally.failures() as u64,
        seconds: 0.0,
        stopped: tally.stopped,
        failures: failures(args, &setup, &plan, tally, &bar)?,
    };
    bar.finish_and_clear();
    report.stopped |= signals::end().is_some();
    report.seconds = start.elapsed().as_secs_f64();
    report.sort();
    finish(&report, args.json.as_deref(), args.junit.as_deref())
}

/// Returns the faults as they were asked for.
fn faults_of(args: &ExploreArgs) -> OsString {
    args.under.faults.faults.clone().unwrap_or_else(|| "legal".into())
}

/// Parses the faults; None: there are to be none.
fn spec_of(args: &ExploreArgs) -> anyhow::Result<Option<Spec>> {
    let faults = &args.under.faults;
    if faults.faults_log.is_some() || faults.faults_replay.is_some() {
        let hint = "softring run takes them; --keep DIR keeps a trace of each failure";
        return Err(fail::usage(
            "softring explore has no --faults-log and no --faults-replay",
            hint,
        ));
    }
    let text = faults_of(args);
    if text == "none" {
        return Ok(None);
    }
    refuse_seed(&text, "--faults")?;
    faults::spec_of(&text).map(Some)
}

/// Refuses a SPEC with a seed.
fn refuse_seed(spec: &OsStr, option: &str) -> anyhow::Result<()> {
    if spec.to_string_lossy().split(',').any(|item| item.trim().starts_with("seed=")) {
        let hint = "leave seed= out; --seeds 7..8 tries one seed";
        return Err(fail::usage(format!("{option}: the campaign counts the seeds"), hint));
    }
    Ok(())
}

/// Returns how many runs there are at the same time. Runs that share a folder would meet.
fn jobs(args: &ExploreArgs) -> u16 {
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get() as u16);
    args.jobs.unwrap_or_else(|| if args.with.is_some() { processors() } else { 1 })
}

/// Runs the program without faults, or until its end: if that fails, seeds tell nothing. Returns
/// the numbers of its requests and syncs, as far as they are counted.
fn passes(setup: &Setup<'_>, spec: Option<String>) -> anyhow::Result<Option<(u64, u64)>> {
    let cuts = spec.is_some();
    let run = Run { seed: None, spec, limit: setup.timeout };
    let Some(outcome) = setup.run(&run)? else { return Ok(None) };
    match outcome.ending {
        None => Ok(outcome.counts),
        Some(ending) => {
            let without = if cuts { "a power cut" } else { "faults" };
            let message = outcome.message;
            let what = format!("the program fails without {without} ({ending}): {message}");
            Err(fail::usage(what, "try it: softring run --engine=user -- CMD"))
        }
    }
}

/// Makes the rows of the table.
fn failures(
    args: &ExploreArgs,
    setup: &Setup<'_>,
    plan: &Plan,
    tally: Tally,
    bar: &ProgressBar,
) -> anyhow::Result<Vec<Failure>> {
    let limit = (tally.slowest * SLOWER).max(SHORTEST).min(setup.timeout);
    let mut rows = Vec::new();
    for (key, mut failed) in tally.failed {
        failed.sort_by_key(|f| f.seed);
        while !failed.is_empty() {
            bar.set_message(format!("{}: smallest faults", key.ending));
            let seed = failed[0].seed;
            let small = if args.no_minimise || rows.len() >= MINIMISED || tally.stopped {
                let spec = plan.spec(seed);
                Smallest { spec, variable: true, reproduced: true, ..Smallest::default() }
            } else {
                minimise(setup, plan, seed, &key, limit)?
            };
            // Other seeds are of this failure if the same was injected into them.
            let needed = sites(&small.faults);
            let (same, others): (Vec<Failed>, _) =
                failed.into_iter().partition(|f| f.seed == seed || needed.is_subset(&f.sites));
            failed = others;
            let row = row(args, setup, plan, (&key, small), &same);
            match rows.iter_mut().find(|known: &&mut Failure| known.is_same(&row)) {
                Some(known) => known.join(row),
                None => rows.push(row),
            }
        }
    }
    if !args.no_minimise {
        rows.iter_mut().try_for_each(|row| look_again(args, setup, row, limit))?;
    }
    Ok(rows)
}

/// Runs a failure once more, for what a hang waits for and for its trace.
fn look_again(
    args: &ExploreArgs,
    setup: &Setup<'_>,
    row: &mut Failure,
    limit: Duration,
) -> anyhow::Result<()> {
    if !row.reproduced || signals::end().is_some() {
        return Ok(());
    }
    let run = Run { seed: Some(row.seed), spec: row.spec.clone(), limit };
    if row.ending == Ending::Hang {
        row.in_flight = again::in_flight(setup, &run)?;
    }
    match &args.keep {
        Some(keep) => again::keep(setup, &run, &keep.join(format!("seed-{}", row.seed))),
        None => Ok(()),
    }
}

fn row(
    args: &ExploreArgs,
    setup: &Setup<'_>,
    plan: &Plan,
    (key, small): (&Key, Smallest),
    same: &[Failed],
) -> Failure {
    let sites = sites(&small.faults).into_iter().collect();
    Failure {
        ending: key.ending,
        message: same[0].outcome.message.clone(),
        pattern: key.pattern.clone(),
        sites,
        seeds: same.iter().map(|f| f.seed).collect(),
        seed: same[0].seed,
        spec: small.spec.clone(),
        reproduced: small.reproduced,
        replay: replay(args, setup, plan, (&small, same[0].seed)),
        faults: small.faults.into_iter().map(Into::into).collect(),
        in_flight: Vec::new(),
    }
}

/// Returns the command line that has the failure.
fn replay(
    args: &ExploreArgs,
    setup: &Setup<'_>,
    plan: &Plan,
    (small, seed): (&Smallest, u64),
) -> String {
    let mut words = Vec::new();
    if small.variable {
        words.push(format!("SOFTRING_SEED={seed}"));
    }
    words.extend(["softring", "run"].map(str::to_owned));
    // Faults and power cuts imply the engine.
    let engine = small.spec.is_none().then_some(Engine::User);
    let faults = FaultArgs::default();
    let under = UnderArgs { engine, faults, ..args.under.clone() };
    let spec = small.spec.iter().flat_map(|spec| plan.words(spec));
    words.extend(under.words().into_iter().chain(spec).map(|option| table::word(&option)));
    words.push("--".to_owned());
    words.extend(setup.words().iter().map(|text| table::word(OsStr::new(text))));
    let line = words.join(" ");
    match &args.with {
        Some(with) => format!("{line}   # in a copy of {}", with.display()),
        None => line,
    }
}

fn cannot_write(path: &Path, e: &std::io::Error) -> anyhow::Error {
    fail::usage(format!("cannot write {}: {e}", path.display()), "name a file that you may write")
}

/// Writes the result, and ends with the exit code that belongs to it.
fn finish(report: &Report, json: Option<&Path>, junit: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(report)? + "\n";
        fs::write(path, text).map_err(|e| cannot_write(path, &e))?;
    }
    if let Some(path) = junit {
        fs::write(path, junit::xml(report)).map_err(|e| cannot_write(path, &e))?;
    }
    let printed = out::line(&table::text(report));
    match signals::end() {
        Some(signal) => signals::die_of(signal),
        None if report.failures.is_empty() => printed,
        None => std::process::exit(fail::WORK.into()),
    }
}

/// Runs `softring explore merge`.
fn merge(args: &MergeArgs) -> anyhow::Result<()> {
    let mut all: Option<Report> = None;
    for path in &args.files {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        let hint = "name files that softring explore --json has written";
        let wrong = |e: String| fail::usage(format!("{}: {e}", path.display()), hint);
        let report: Report = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        match &mut all {
            None => all = Some(report),
            Some(all) => all.join(report).map_err(|e| wrong(e.to_owned()))?,
        }
    }
    let Some(report) = all else { return Ok(()) };
    let missing = report.missing();
    if !missing.is_empty() {
        out::note(&format!("warning: shards that are missing: {}", missing.join(", ")));
    }
    finish(&report, args.json.as_deref(), args.junit.as_deref())
}
