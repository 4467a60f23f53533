//! The command line of `softring-soak`.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use comfy_table::Table;

use super::health::Health;
use super::ledger::Totals;
use super::mix::transfer::{COPYING, SENDS, Ways};
use super::{Check, churn, futex, host, hours, mix, race};
use crate::entry::EntryPoint;
use crate::say;

/// Stress rings: race cancels against completions, mix all operations, also in a process that
/// closes, forks and has signals, and make short connections. Check that no completion is lost.
///
/// The soak uses softring if it is preloaded, otherwise the kernel. Exit code 0: success; 1: a part
/// failed; 2: the soak could not run.
#[derive(Parser, Debug)]
#[command(name = "softring-soak")]
struct Cli {
    /// Duration in seconds, without the part host and the connections
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Duration of the part host in seconds
    #[arg(long, default_value_t = 600)]
    host: u64,
    /// Short connections to make
    #[arg(long, default_value_t = 100_000)]
    connections: u64,
    /// Fail if fewer than these hours of logic time were played (docs/HACKING.md)
    #[arg(long, default_value_t = 0.0)]
    hours: f64,
    /// Seed of the random choices [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Entry point of the system calls: syscall, patch or sigsys
    #[arg(long, alias = "door", value_name = "HOW", default_value = "syscall")]
    intercept: EntryPoint,
    /// Run only these parts: race, futexes, mix, host, connections
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these out of the part host: locks, rights, closes, forks, jumps, ends, stalls, signals
    #[arg(long, value_delimiter = ',', value_parser = disturbance)]
    without: Vec<String>,
    /// Send only by copying in the mix: sometimes kernel 6.18 keeps a SEND_ZC after its connection
    /// was reset, and no cancel ends this request
    #[arg(long)]
    no_zero_copy: bool,
}

fn disturbance(name: &str) -> Result<String, String> {
    let known: Vec<_> = host::names().collect();
    if known.contains(&name) { Ok(name.to_owned()) } else { Err(known.join(", ")) }
}

/// A row of the summary.
struct Row {
    part: String,
    what: String,
    totals: Totals,
    seconds: f64,
    fault: Option<String>,
}

struct Soak {
    cli: Cli,
    seed: u64,
    terminal: bool,
    rows: Vec<Row>,
}

/// Runs the whole program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // With a core dump kernel 6.18 would wait for its SQ threads, and these for workers that wait
    // for the dump: such a process never ends.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        told(what);
        std::process::exit(101);
    }));
    if let Err(e) = crate::ring::Ring::new(cli.intercept, 8, 0) {
        eprintln!("softring-soak: no ring can be made: errno {e}");
        return ExitCode::from(2);
    }
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = cli.seed.unwrap_or_else(|| clock.map_or(1, |t| t.as_nanos() as u64 % 1_000_000));
    say!("seed {seed}, intercept {}", cli.intercept);
    let terminal = std::io::stderr().is_terminal();
    let mut soak = Soak { cli, seed, terminal, rows: Vec::new() };
    soak.races();
    soak.futexes();
    soak.mix();
    soak.host();
    soak.connections();
    soak.summary()
}

impl Soak {
    fn wants(&self, part: &str) -> bool {
        self.cli.only.is_empty() || self.cli.only.iter().any(|p| p == part)
    }

    fn sends(&self) -> Ways {
        if self.cli.no_zero_copy { COPYING } else { SENDS }
    }

    fn progress(&self, text: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{text}");
        }
    }

    fn part(&mut self, part: &str, run: impl FnOnce(&Soak) -> Check<(String, Totals)>) {
        let began = Instant::now();
        self.progress(part);
        let (what, totals, fault) = match run(self) {
            Ok((what, totals)) => (what, totals, None),
            Err(fault) => (String::new(), Totals::default(), Some(fault)),
        };
        let seconds = began.elapsed().as_secs_f64();
        self.progress("");
        self.rows.push(Row { part: part.into(), what, totals, seconds, fault });
    }

    fn races(&mut self) {
        if !self.wants("race") {
            return;
        }
        let time = Duration::from_secs(self.cli.seconds) / 10;
        let before = Health::now();
        for (name, flags) in race::RINGS {
            self.part(&format!("race, {name}"), |soak| {
                let (score, totals) = race::run(soak.cli.intercept, flags, soak.seed, time)?;
                let sum = |i: usize| score.values().map(|s| s[i]).sum::<u64>();
                let one_sided: Vec<_> =
                    score.iter().filter(|(_, s)| s.contains(&0)).map(|(n, _)| *n).collect();
                let mut what = format!("{} completed, {} cancelled", sum(0), sum(1));
                if !one_sided.is_empty() {
                    what += &format!("; only one of the two: {}", one_sided.join(", "));
                }
                Ok((what, totals))
            });
        }
        self.part("after the races", |_| {
            let now = Health::returned_to(before)?;
            Ok((format!("{} descriptors, {} threads", now.fds, now.threads), Totals::default()))
        });
    }

    fn futexes(&mut self) {
        if !self.wants("futexes") {
            return;
        }
        let time = Duration::from_secs(self.cli.seconds) / 10;
        self.part("futexes", |soak| futex::run(soak.cli.intercept, soak.seed, time));
    }

    fn mix(&mut self) {
        if !self.wants("mix") {
            return;
        }
        let time = Duration::from_secs(self.cli.seconds) * 6 / 10;
        self.part("mix", |soak| {
            let out = mix::run(soak.cli.intercept, soak.sends(), soak.seed, time)?;
            let counts: Vec<_> = out.tally.iter().map(|(what, n)| format!("{n} {what}")).collect();
            let (middle, end) = (out.middle.private_kib, out.end.private_kib);
            let what = format!("{}; private KiB {middle} then {end}", counts.join(", "));
            Ok((what, out.totals))
        });
    }

    fn host(&mut self) {
        if !self.wants("host") {
            return;
        }
        let time = Duration::from_secs(self.cli.host);
        self.part("host", |soak| {
            let cli = &soak.cli;
            let out = host::run(cli.intercept, soak.sends(), soak.seed, time, &cli.without)?;
            let counts: Vec<_> = out.tally.iter().map(|(what, n)| format!("{n} {what}")).collect();
            let load: Vec<_> = out.load.tally.iter().map(|(w, n)| format!("{n} {w}")).collect();
            Ok((format!("{}; beside {}", counts.join(", "), load.join(", ")), out.totals))
        });
    }

    fn connections(&mut self) {
        if !self.wants("connections") || self.cli.connections == 0 {
            return;
        }
        self.part("connections", |soak| {
            let wanted = soak.cli.connections;
            let out = churn::run(soak.cli.intercept, wanted, |n| {
                if n.is_multiple_of(1000) {
                    soak.progress(&format!("connections: {n} of {wanted}"));
                }
            })?;
            let end = churn::afterwards(&out)?;
            let what = format!(
                "{} made, {} bytes; descriptors {} then {}, threads {} then {}, private KiB {} \
                 then {}",
                out.made,
                out.bytes,
                out.start.fds,
                end.fds,
                out.start.threads,
                end.threads,
                out.middle.private_kib,
                out.end.private_kib
            );
            Ok((what, out.totals))
        });
    }

    fn summary(self) -> ExitCode {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        table.set_header(["part", "requests", "final", "more", "cancelled", "seconds", "outcome"]);
        for r in &self.rows {
            let t = r.totals;
            let outcome = r.fault.as_ref().map_or("ok", |_| "FAILED");
            table.add_row([
                r.part.clone(),
                t.requests.to_string(),
                t.finals.to_string(),
                t.more.to_string(),
                t.cancelled.to_string(),
                format!("{:.1}", r.seconds),
                outcome.into(),
            ]);
        }
        say!("{table}");
        for r in &self.rows {
            say!("{}: {}", r.part, r.fault.as_ref().unwrap_or(&r.what));
        }
        let mut sum = Totals::default();
        self.rows.iter().for_each(|r| sum += r.totals);
        let short = hours::whole(&sum) < self.cli.hours;
        let wanted =
            if short { format!("; {} hours are required", self.cli.hours) } else { String::new() };
        say!("{}{wanted}", hours::describe(&sum));
        let failed = short || self.rows.iter().any(|r| r.fault.is_some());
        say!("seed {}: {}", self.seed, if failed { "FAILED" } else { "ok" });
        ExitCode::from(u8::from(failed))
    }
}
