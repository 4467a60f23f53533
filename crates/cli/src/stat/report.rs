//! The summary, as perf-stat(1) writes one, with histograms as biolatency(8) draws them.

use super::watch::Summary;
use crate::cli::StatArgs;
use crate::fail;
use crate::out::{self, bytes_short, count_short, ns_short};
use crate::stats::json::{Process, Ring};
use crate::stats::pages::op_name;
use serde::Serialize;
use softring_engine::stats::{OPS, bounds, read};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Result of a run of the program.
pub struct Run {
    pub summary: Summary,
    pub elapsed: Duration,
    /// User and system time in µs.
    pub times: Option<(u64, u64)>,
}

/// The report as JSON. The counts of several runs are added up.
#[derive(Serialize)]
struct Report {
    runs: usize,
    seconds: f64,
    /// Processor time of a program that was started here, in seconds.
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    /// Sum of all processes, while they were watched.
    total: Ring,
    /// Each process, as its page was at the end.
    processes: Vec<Process>,
    /// Further processes, of which only the sum is kept: they had ended before.
    ended_processes: u64,
    /// Processes that are in no sum: no descriptor was free for their page, or it is unreadable.
    missed_processes: usize,
}

impl Run {
    fn total(&self) -> read::Ring {
        let mut total = self.summary.ended.total.clone();
        self.summary.each.iter().for_each(|r| total.add(&r.total));
        total
    }
}

/// Writes the summary of all runs to where the arguments say.
pub fn tell(args: &StatArgs, of: &str, runs: &[Run]) -> anyhow::Result<()> {
    let missed: usize = runs.iter().map(|run| run.summary.missed).sum();
    if missed > 0 {
        out::note(&format!(
            "{missed} processes are not counted: softring had no free descriptor for their pages, \
             or could not read the pages; raise `ulimit -n`"
        ));
    }
    let text = if args.json { json(runs, missed)? } else { text(of, runs) };
    write(args, &text)
}

fn json(runs: &[Run], missed: usize) -> anyhow::Result<String> {
    let mut total = read::Ring::default();
    runs.iter().for_each(|run| total.add(&run.total()));
    let seconds = |time: fn(&(u64, u64)) -> u64| {
        let all = runs.iter().map(|run| run.times.as_ref().map(time));
        all.sum::<Option<u64>>().map(|us| us as f64 / 1e6)
    };
    let each = runs.iter().flat_map(|run| &run.summary.each);
    Ok(serde_json::to_string_pretty(&Report {
        runs: runs.len(),
        seconds: runs.iter().map(|run| run.elapsed.as_secs_f64()).sum(),
        user_seconds: seconds(|t| t.0),
        system_seconds: seconds(|t| t.1),
        total: Ring::new(&total, &[]),
        processes: each.map(|r| Process::from(&r.reading)).collect(),
        ended_processes: runs.iter().map(|run| run.summary.ended.processes).sum(),
        missed_processes: missed,
    })?)
}

/// Writes lines to where the arguments say.
pub fn write(args: &StatArgs, text: &str) -> anyhow::Result<()> {
    match &args.output {
        // The text goes behind the lines of the stretches before it.
        Some(path) if args.interval.is_some() => {
            let file = fs::File::options().create(true).append(true).open(path);
            let written = file.and_then(|mut file| writeln!(file, "{text}"));
            written.map_err(|e| unwritable(path, &e))
        }
        Some(path) => fs::write(path, format!("{text}\n")).map_err(|e| unwritable(path, &e)),
        // Standard output is the program's.
        None if args.pid.is_none() => {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
            Ok(())
        }
        None => out::line(text),
    }
}

/// Checks before the program starts that the summary can be written when it has ended.
pub fn check(args: &StatArgs) -> anyhow::Result<()> {
    let Some(path) = &args.output else { return Ok(()) };
    out::may_write(path).map_err(|e| unwritable(path, &e))?;
    match args.interval {
        Some(_) => fs::write(path, "").map_err(|e| unwritable(path, &e)),
        None => Ok(()),
    }
}

fn unwritable(path: &Path, e: &std::io::Error) -> anyhow::Error {
    let hint = "name a file that you may write: softring stat -o FILE";
    fail::usage(format!("cannot write {}: {e}", path.display()), hint)
}

/// Lines to show if no page was seen.
const NONE_SEEN: [&str; 3] = [
    "     softring saw none of its rings: the program used the kernel's rings or none,",
    "     had --no-stats, or used rings only in short-lived processes that cannot",
    "     reach softring (another network namespace, a sandbox)",
];

fn text(of: &str, runs: &[Run]) -> String {
    let times = match runs.len() {
        1 => String::new(),
        n => format!(" ({n} runs)"),
    };
    let mut lines = vec![String::new(), format!(" Rings of {of}{times}:"), String::new()];
    let mut total = read::Ring::default();
    runs.iter().for_each(|run| total.add(&run.total()));
    let processes = |s: &Summary| s.each.len() as u64 + s.ended.processes;
    if runs.iter().all(|run| processes(&run.summary) == 0) {
        lines.extend(NONE_SEEN.map(str::to_owned));
        let n: usize = runs.iter().map(|run| run.summary.forbidden).sum();
        if n > 0 {
            lines.push(format!("     you may not inspect {n} process(es) of the program"));
        }
    } else {
        let each: Vec<[Vec<Count>; 2]> = runs
            .iter()
            .map(|run| {
                let n = processes(&run.summary);
                counters(n, &run.total(), run.elapsed.as_secs_f64())
            })
            .collect();
        let all: u64 = runs.iter().map(|run| processes(&run.summary)).sum();
        let seconds = runs.iter().map(|run| run.elapsed.as_secs_f64()).sum();
        let [first, ops] = counters(all, &total, seconds);
        lines.extend(first.iter().map(|count| mean_row(count, each.iter().map(|e| &e[0]))));
        lines.push(String::new());
        lines.extend(ops.iter().map(|count| mean_row(count, each.iter().map(|e| &e[1]))));
        for (&op, l) in total.latencies.iter().filter(|(_, l)| l.count() > 0) {
            lines.extend(latencies(&op_name(op), l));
        }
    }
    lines.push(String::new());
    let mut time = |name: &str, of: &dyn Fn(&Run) -> Option<f64>| {
        if let Some(all) = runs.iter().map(of).collect::<Option<Vec<f64>>>() {
            let (mean, error) = mean(&all);
            lines.push(format!("{mean:>16.6} seconds {name}{}", spread(&all, mean, error)));
        }
    };
    time("elapsed", &|run| Some(run.elapsed.as_secs_f64()));
    time("user", &|run| run.times.map(|t| t.0 as f64 / 1e6));
    time("sys", &|run| run.times.map(|t| t.1 as f64 / 1e6));
    lines.join("\n")
}

/// A number, what it counts, and a remark.
type Count = (u64, String, String);

/// Returns the mean of numbers and its standard error.
fn mean(all: &[f64]) -> (f64, f64) {
    let n = all.len().max(1) as f64;
    let mean = all.iter().sum::<f64>() / n;
    let squares: f64 = all.iter().map(|x| (x - mean) * (x - mean)).sum();
    (mean, (squares / (n - 1.0).max(1.0) / n).sqrt())
}

/// Formats the spread of more than one run: `  ( +- 1.23% )`.
fn spread(all: &[f64], mean: f64, error: f64) -> String {
    if all.len() < 2 || mean == 0.0 {
        return String::new();
    }
    format!("  ( +- {:.2}% )", error * 100.0 / mean)
}

/// Formats the mean of a count of all runs; a count that a run does not have is 0 there.
fn mean_row<'a>((sum, name, note): &Count, runs: impl Iterator<Item = &'a Vec<Count>>) -> String {
    let of = |counts: &Vec<Count>| counts.iter().find(|c| c.1 == *name).map_or(0, |c| c.0) as f64;
    let all: Vec<f64> = runs.map(of).collect();
    if all.len() < 2 {
        return row(*sum, name, note);
    }
    let (mean, error) = mean(&all);
    format!("{}{}", row(mean.round() as u64, name, note), spread(&all, mean, error))
}

/// Formats the lines of a stretch of time that ended `at`, in seconds.
pub fn interval(done: &read::Ring, at: f64, seconds: f64) -> String {
    let [first, ops] = counters(0, done, seconds);
    let some = first.into_iter().chain(ops).filter(|(n, ..)| *n > 0);
    let lines: Vec<String> = some.map(|(n, name, note)| row(n, &name, &note)).collect();
    if lines.is_empty() {
        return format!("{at:>12.6} {}", row(0, "requests", ""));
    }
    lines.iter().map(|line| format!("{at:>12.6} {line}")).collect::<Vec<_>>().join("\n")
}

/// Returns the counts of all rings, and the counts by operation.
fn counters(processes: u64, r: &read::Ring, seconds: f64) -> [Vec<Count>; 2] {
    let rate = |n: u64| format!("{}/s", count_short(n as f64 / seconds));
    let bytes = |n: u64| format!("{}B/s", bytes_short(n as f64 / seconds));
    let share = |n: u64, of: u64| format!("{:.2} %", n as f64 * 100.0 / of.max(1) as f64);
    let taken = r.submitted();
    let each = taken as f64 / r.enters().max(1) as f64;
    let mut rows = vec![
        (processes, "processes with rings", String::new()),
        (taken, "requests", rate(taken)),
        (r.cqes(), "completions", rate(r.cqes())),
        (r.errors(), "errors", share(r.errors(), taken)),
        (r.enters(), "enters", format!("{each:.1} requests each")),
        (r.read_bytes(), "bytes read", bytes(r.read_bytes())),
        (r.written_bytes(), "bytes written", bytes(r.written_bytes())),
        (r.overflowed(), "overflows", String::new()),
    ];
    let routes = [
        (r.inline(), "inline"),
        (r.poll(), "by poll"),
        (r.aio(), "by aio"),
        (r.worker(), "by worker"),
        (r.model(), "by model"),
        (r.queued(), "queued"),
    ];
    rows.extend(routes.map(|(n, name)| (n, name, share(n, taken))));
    rows.extend([(r.reissued(), "reissues", rate(r.reissued()))]);
    let idle_sleeps = format!("{} of them too short", r.idle_sleeps_under());
    rows.extend([(r.idle_sleeps(), "sleeps", idle_sleeps)]);
    if let Some(ns) = r.late_ns().checked_div(r.late_seen()) {
        let late = format!("on average, after the end set by the model ({ns} ns)");
        rows.extend([(ns.div_ceil(1000), "us late", late)]);
    }
    let used = (0..OPS).filter(|&op| r.ops(op) > 0);
    let ops = used.map(|op| {
        let errors = r.op_errors(op);
        let note = if errors > 0 { format!("{errors} errors") } else { String::new() };
        (r.ops(op), op_name(op), note)
    });
    // A count of 0 is shown only among the first ones.
    let shown = rows.into_iter().enumerate().filter(|(at, (n, ..))| *at < 5 || *n > 0);
    let shown = shown.map(|(_, (n, name, note))| (n, name.to_owned(), note));
    [shown.collect(), ops.collect()]
}

fn row(n: u64, name: &str, note: &str) -> String {
    let mark = if note.is_empty() { "" } else { "#  " };
    format!("{:>16}  {name:<24}{mark}{note}", thousands(n)).trim_end().to_owned()
}

/// Formats 1234567 as 1,234,567.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let grouped = digits.as_bytes().rchunks(3).rev();
    grouped.map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

/// Columns of the longest bar.
const BAR: usize = 40;

fn latencies(op: &str, l: &read::Latencies) -> Vec<String> {
    let quantile = |q| l.quantile(q).map_or_else(String::new, ns_short);
    let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
    let quantiles = quantiles.map(|(name, q)| format!("{name} {}", quantile(q)));
    let mean = l.mean().map_or_else(String::new, ns_short);
    let head =
        format!(" {op}: {} timed, mean {mean}, {}", thousands(l.count()), quantiles.join(", "));
    // Times of a few microseconds are shown in nanoseconds.
    let (unit, name) = if l.quantile(0.9) < Some(20_000) { (1, "nsecs") } else { (1000, "usecs") };
    let mut lines = vec![String::new(), head, format!("     {name:<20}: count     distribution")];
    lines.extend(histogram(&octaves(l, unit)));
    lines
}

/// Counts latencies by powers of two of the unit: from 0, 2, 4, 8 on.
fn octaves(l: &read::Latencies, unit: u64) -> Vec<u64> {
    let mut octaves: Vec<u64> = Vec::new();
    for (bucket, &n) in l.buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
        let (least, end) = bounds(bucket);
        let middle = least + (end.min(2 * least.max(16)) - least) / 2;
        let octave = (middle / unit).max(1).ilog2() as usize;
        octaves.resize(octaves.len().max(octave + 1), 0);
        octaves[octave] = octaves[octave].saturating_add(n);
    }
    octaves
}

fn histogram(octaves: &[u64]) -> Vec<String> {
    let most = octaves.iter().copied().max().unwrap_or(0).max(1);
    let first = octaves.iter().position(|&n| n > 0).unwrap_or(0);
    let bar = |(octave, &n): (usize, &u64)| {
        let from = if octave == 0 { 0 } else { 1u64 << octave };
        let to = (2u64 << octave) - 1;
        let stars = "*".repeat((n as f64 * BAR as f64 / most as f64).round() as usize);
        format!("{from:>10} -> {to:<10}: {n:<9}|{stars:<BAR$}|")
    };
    octaves.iter().enumerate().skip(first).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use softring_engine::stats::BUCKETS;

    #[test]
    fn numbers_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (n, want) in cases {
            assert_eq!(thousands(n), want);
        }
    }

    #[test]
    fn histograms_go_by_powers_of_two() {
        let mut l = read::Latencies { sum_ns: 0, buckets: vec![0; BUCKETS] };
        let at = |ns| (0..BUCKETS).find(|&b| bounds(b).1 > ns).unwrap();
        (l.buckets[at(1_500)], l.buckets[at(5_000)], l.buckets[at(5_900)]) = (10, 3, 2);
        assert_eq!(octaves(&l, 1000), [10, 0, 5]);
        assert_eq!(octaves(&l, 1)[10..], [10, 0, 5]);
        let drawn = histogram(&octaves(&l, 1000));
        assert_eq!(drawn[0], format!("         0 -> 1         : 10       |{}|", "*".repeat(BAR)));
        assert!(drawn[2].starts_with("         4 -> 7         : 5        |********************  "));
        l.buckets[BUCKETS - 1] = 1;
        assert_eq!(octaves(&l, 1).len(), 37);
    }
}
