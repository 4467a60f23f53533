//! The command line of `softring-fuzz`.

mod replay;

use self::replay::{again, replay};
use super::check::{Divergence, Verdict, check, shrink};
use super::compare::{op_name, op_of};
use super::driver::Driver;
use super::program::{Program, Step};
use super::retried::RetriedPrograms;
use super::transcript::Transcript;
use super::{exec, make, report};
use crate::entry::EntryPoint;
use crate::{say, target};
use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of divergences about one thing that are minimised and kept; more are only counted.
const KEPT: usize = 3;

/// Run random io_uring programs on the kernel and on softring, and compare.
///
/// Exit code 0: all agreed; 1: some differed, or too many agreed only when run again; 2: the fuzzer
/// could not run.
#[derive(Parser, Debug)]
#[command(name = "softring-fuzz", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Hidden>,
    /// Seed of the first program; each next program has the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of programs
    #[arg(long, default_value_t = 500)]
    programs: u64,
    /// Stop after this number of seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Use only these opcodes, for example read,write,poll_add
    #[arg(long, value_delimiter = ',', value_parser = parse_op)]
    only: Vec<u8>,
    /// Leave out register calls
    #[arg(long)]
    no_register: bool,
    /// Let SQ threads submit (SQPOLL)
    #[arg(long)]
    sqpoll: bool,
    /// Number of programs that run at a time; most of them wait most of the time
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// The library to preload [default: libsoftring.so beside this program]
    #[arg(long)]
    lib: Option<PathBuf>,
    /// Entry point of the system calls: syscall, patch or sigsys
    #[arg(long, alias = "door", value_name = "HOW", default_value = "syscall")]
    intercept: EntryPoint,
    /// Compare the kernel with itself, to test the fuzzer: it must find no divergence
    #[arg(long)]
    against_kernel: bool,
    /// Falsify results of this opcode on the second side, to test the fuzzer
    #[arg(long, value_parser = parse_op)]
    spoil: Option<u8>,
    /// Falsify only results of first runs, so that the programs agree when they run again
    #[arg(long, requires = "spoil")]
    spoil_once: bool,
    /// Do not minimise divergences
    #[arg(long)]
    no_minimise: bool,
    /// Directory for divergences: a .txt to read and a .json to replay for each; also for
    /// differences that were seen only once (flaky)
    #[arg(long)]
    out: Option<PathBuf>,
    /// Run this one program (a .json) and show both transcripts
    #[arg(long, conflicts_with_all = ["programs", "only", "seconds"])]
    replay: Option<PathBuf>,
    /// Fail if more programs than this agree only when run again [default: 1 in 100, 3 at least]
    #[arg(long, value_name = "N")]
    retry_budget: Option<u64>,
    /// Also print how often each opcode succeeded and failed
    #[arg(long)]
    coverage: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Hidden {
    /// Run one program in this process
    #[command(hide = true)]
    Exec(exec::Args),
}

fn parse_op(name: &str) -> Result<u8, String> {
    let known = make::OPS.iter().find(|&&op| op_name(op).eq_ignore_ascii_case(name));
    known.copied().ok_or_else(|| format!("{name:?} is not an opcode of the fuzzer's programs"))
}

/// Runs the whole program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Hidden::Exec(args)) => exec::run(args).map(|()| ExitCode::SUCCESS),
        None => fuzz(&cli),
    };
    done.unwrap_or_else(|e| {
        eprintln!("softring-fuzz: {e:#}");
        ExitCode::from(2)
    })
}

fn driver(cli: &Cli) -> Result<Driver> {
    let exe = std::env::current_exe().context("finding this program")?;
    let beside = exe.with_file_name("libsoftring.so");
    let library = cli.lib.clone().unwrap_or(beside);
    let library = if cli.against_kernel {
        None
    } else {
        ensure!(
            library.is_file(),
            "{} is missing: build it (cargo build -p softring-preload), or name it with --lib",
            library.display()
        );
        Some(library.canonicalize()?)
    };
    let mut driver = Driver::new(exe, library, cli.intercept)?;
    (driver.spoil, driver.spoil_once) = (cli.spoil, cli.spoil_once);
    Ok(driver)
}

fn fuzz(cli: &Cli) -> Result<ExitCode> {
    let driver = driver(cli)?;
    if let Some(path) = &cli.replay {
        return replay(cli, &driver, path);
    }
    if let Some(dir) = &cli.out {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let run = Run {
        cli,
        driver,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        start: Instant::now(),
        tally: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cli.jobs.max(1)).map(|_| scope.spawn(|| run.work())).collect();
        run.progress();
        workers.into_iter().try_for_each(|w| match w.join() {
            Ok(done) => done,
            Err(_) => bail!("a worker thread of the fuzzer panicked"),
        })
    })?;
    let tally = run.tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ensure!(tally.tried() > 0, "no program ran: raise --programs or --seconds");
    if cli.json {
        say!("{}", tally.json(cli)?)
    } else {
        tally.print(run.start.elapsed(), cli.coverage)
    }
    let target = if cli.against_kernel { target::KERNEL } else { "softring" };
    let (retried, over) = tally.flaky.sum_up(target, tally.tried(), cli.retry_budget);
    match cli.json {
        false => say!("{retried}"),
        true if over => eprintln!("{retried}"),
        true => {}
    }
    Ok(ExitCode::from(u8::from(over || !tally.groups.is_empty())))
}

/// Counts, and the divergences by subject.
#[derive(Default, serde::Serialize)]
struct Tally {
    agreed: u64,
    unstable: u64,
    flaky: RetriedPrograms,
    /// Number of programs that differ as `docs/LIMITATIONS.md` says.
    explained: u64,
    diverged: u64,
    /// Words for the difference, and the programs.
    known: BTreeMap<&'static str, Vec<u64>>,
    /// Differences of unstable programs, and their seeds.
    races: BTreeMap<String, Vec<u64>>,
    groups: BTreeMap<String, Group>,
    /// Completions by opcode and result; 0 stands for every success.
    coverage: BTreeMap<String, BTreeMap<i64, u64>>,
}

#[derive(Default, serde::Serialize)]
struct Group {
    count: u64,
    seeds: Vec<u64>,
    examples: Vec<String>,
    /// The small programs, to find equal ones.
    #[serde(skip)]
    small: Vec<String>,
    files: Vec<PathBuf>,
}

struct Run<'a> {
    cli: &'a Cli,
    driver: Driver,
    next: AtomicU64,
    stop: AtomicBool,
    start: Instant,
    tally: Mutex<Tally>,
}

impl Run<'_> {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn finished(&self) -> bool {
        let late = self.cli.seconds.is_some_and(|s| self.start.elapsed().as_secs() >= s);
        late || self.stop.load(Ordering::Relaxed)
    }

    fn work(&self) -> Result<()> {
        while !self.finished() {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            // With a time limit alone, `programs` is no limit.
            if i >= self.cli.programs && self.cli.seconds.is_none() {
                break;
            }
            let mut program = make::program(self.cli.seed + i, &self.cli.only);
            if self.cli.no_register {
                program.steps.retain(|s| !matches!(s, Step::Register { .. } | Step::Resize { .. }));
            }
            if self.cli.sqpoll {
                make::sqpoll(&mut program);
            }
            let verdict = check(&self.driver, &program);
            let done = verdict.and_then(|v| self.count(&program, v));
            if done.is_err() {
                self.stop.store(true, Ordering::Relaxed);
                return done;
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn count(&self, program: &Program, verdict: Verdict) -> Result<()> {
        let mut tally = self.tally();
        match verdict {
            Verdict::Agreed(kernel) => {
                tally.agreed += 1;
                tally.cover(program, &kernel);
            }
            Verdict::Unstable(what) => {
                tally.unstable += 1;
                let about = what.map_or("hang or crash on the kernel".to_owned(), |d| d.about);
                tally.races.entry(about).or_default().push(program.seed);
            }
            Verdict::Flaky(first) => {
                let what = &first.difference;
                tally.flaky.add(program.seed, &format!("{} ({})", what.about, what.text));
                drop(tally);
                if self.cli.out.is_some() {
                    self.save(&first, "flaky-")?;
                }
            }
            Verdict::Known(words, found) => {
                tally.explained += 1;
                tally.known.entry(words).or_default().push(found.program.seed);
            }
            Verdict::Diverged(found) => {
                tally.diverged += 1;
                let group = tally.groups.entry(found.difference.about.clone()).or_default();
                group.count += 1;
                group.seeds.push(found.program.seed);
                let text = report::without_numbers(&found.difference.text);
                let new = !group.examples.contains(&text);
                if new && group.examples.len() < KEPT {
                    group.examples.push(text);
                    drop(tally);
                    return self.keep(&found);
                }
            }
        }
        Ok(())
    }

    fn keep(&self, found: &Divergence) -> Result<()> {
        let small = match self.cli.no_minimise {
            true => None,
            false => Some(shrink(&self.driver, found)?),
        };
        let found = small.as_ref().unwrap_or(found);
        let mut text = found.difference.text.clone();
        for step in &found.program.steps {
            text = text + "\n" + &report::step(step);
        }
        let text = report::without_numbers(&text);
        let mut tally = self.tally();
        let group = tally.groups.entry(found.difference.about.clone()).or_default();
        if group.small.contains(&text) {
            return Ok(());
        }
        group.small.push(text);
        drop(tally);
        if let Some(file) = self.save(found, "")? {
            let mut tally = self.tally();
            tally.groups.entry(found.difference.about.clone()).or_default().files.push(file);
        }
        Ok(())
    }

    /// Saves a divergence; returns the file to read, if files are wanted.
    fn save(&self, found: &Divergence, kind: &str) -> Result<Option<PathBuf>> {
        let about = found.difference.about.replace([' ', '(', ')', '/'], "_");
        let name = format!("{kind}{about}-{}", found.program.seed);
        let dir = self.cli.out.clone().unwrap_or_default();
        let (txt, json) = (dir.join(format!("{name}.txt")), dir.join(format!("{name}.json")));
        let text = report::divergence(found, &again(self.cli, &json.display().to_string()));
        if self.cli.out.is_some() {
            std::fs::write(&txt, &text)?;
            std::fs::write(&json, serde_json::to_vec_pretty(&found.program)?)?;
            return Ok(Some(txt));
        }
        if !self.cli.json {
            say!("{text}");
        }
        Ok(None)
    }

    /// Rewrites a line of progress while programs run; silent unless stderr is a terminal.
    fn progress(&self) {
        let watched = std::io::stderr().is_terminal();
        while !self.finished() {
            std::thread::sleep(Duration::from_millis(200));
            if watched {
                let t = self.tally();
                eprint!(
                    "\r{} programs, {} diverged, {} unstable ",
                    t.tried(),
                    t.diverged,
                    t.unstable
                );
                std::io::stderr().flush().ok();
            }
        }
        if watched {
            eprintln!();
        }
    }
}

impl Tally {
    fn tried(&self) -> u64 {
        self.agreed + self.unstable + self.flaky.len() + self.explained + self.diverged
    }

    fn cover(&mut self, program: &Program, kernel: &Transcript) {
        for cqe in kernel.cqes() {
            let count = self.coverage.entry(op_of(program, cqe.ud)).or_default();
            *count.entry(cqe.res.min(0)).or_default() += 1;
        }
    }

    fn print_coverage(&self) {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["completions of", "success", "errors"]);
        for (op, results) in &self.coverage {
            let good = results.get(&0).copied().unwrap_or(0);
            let bad = results.iter().filter(|(res, _)| **res < 0);
            let bad: Vec<String> = bad.map(|(res, n)| format!("{res}: {n}")).collect();
            table.add_row([op.clone(), good.to_string(), bad.join(", ")]);
        }
        say!("{table}");
    }

    fn print(&self, took: Duration, coverage: bool) {
        if coverage {
            self.print_coverage();
        }
        let share = self.unstable as f64 * 100.0 / self.tried() as f64;
        say!(
            "{} programs in {:.0} s: {} agreed, {} differed as LIMITATIONS says, {} diverged, \
             {} flaky, {} unstable ({share:.1} %)",
            self.tried(),
            took.as_secs_f64(),
            self.agreed,
            self.explained,
            self.diverged,
            self.flaky.len(),
            self.unstable,
        );
        if !self.races.is_empty() {
            let mut races: Vec<_> = self.races.iter().collect();
            races.sort_by_key(|(_, seeds)| std::cmp::Reverse(seeds.len()));
            say!("unstable in:");
            for (about, seeds) in races {
                let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
                say!("  {about}: {}, seed {}", seeds.len(), list.join(" "));
            }
        }
        for (words, seeds) in &self.known {
            let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
            say!("known ({words}): {}, seed {}", seeds.len(), list.join(" "));
        }
        if self.groups.is_empty() {
            return;
        }
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["about", "programs", "seed", "kernel / softring"]);
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, g)| std::cmp::Reverse(g.count));
        for (about, g) in groups {
            let seed = g.seeds.first().map_or(String::new(), u64::to_string);
            let count = g.count.to_string();
            if g.count > 0 {
                table.add_row([about.clone(), count, seed, g.examples.join("\n")]);
            }
        }
        say!("{table}");
    }

    fn json(&self, cli: &Cli) -> Result<String> {
        let all = serde_json::json!({ "seed": cli.seed, "programs": self.tried(), "result": self });
        Ok(serde_json::to_string_pretty(&all)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
