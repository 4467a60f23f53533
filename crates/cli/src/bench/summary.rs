//! Summary of reports, as rows: medians per engine, and ratios to the first engine, pair by pair.

use super::job::Report;
use super::stats::{Ratio, median, ratio, spread};
use crate::cli::{Driver, name_of};
use crate::out;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

/// One engine's runs and their medians.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub engine: Driver,
    pub iops: f64,
    pub mib_per_second: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub cpu_percent: f64,
    pub cpu_us_per_io: f64,
    /// (max − min) / median of the IOPS.
    pub spread: f64,
    /// Ratio to the first engine in the same round.
    pub iops_ratio: Option<Ratio>,
    pub cpu_per_io_ratio: Option<Ratio>,
    pub runs: Vec<Report>,
}

/// Sums up `runs` per engine, in the order given; the first is the base.
pub fn summarize(runs: Vec<(Driver, Vec<Report>)>) -> Vec<Summary> {
    let base: Vec<(f64, f64)> = runs
        .first()
        .map_or_else(Vec::new, |(_, r)| r.iter().map(|r| (r.iops(), r.cpu_us_per_io())).collect());
    let rows = runs.into_iter().enumerate();
    rows.map(|(i, (engine, reports))| one(engine, reports, (i > 0).then_some(&base))).collect()
}

fn one(engine: Driver, runs: Vec<Report>, base: Option<&Vec<(f64, f64)>>) -> Summary {
    let all = |f: fn(&Report) -> f64| runs.iter().map(f).collect::<Vec<f64>>();
    let iops = all(Report::iops);
    let cpu = all(Report::cpu_us_per_io);
    let against = |mine: &[f64], theirs: fn(&(f64, f64)) -> f64| {
        let pairs = mine.iter().zip(base?);
        ratio(&pairs.map(|(m, b)| m / theirs(b)).collect::<Vec<_>>())
    };
    Summary {
        engine,
        mib_per_second: median(&all(|r| r.bytes as f64 / r.seconds.max(1e-9) / 1_048_576.0)),
        p50_ns: median(&all(|r| r.lat.p50 as f64)),
        p99_ns: median(&all(|r| r.lat.p99 as f64)),
        cpu_percent: median(&all(Report::cpu_percent)),
        cpu_us_per_io: median(&cpu),
        spread: spread(&iops),
        iops_ratio: against(&iops, |b| b.0),
        cpu_per_io_ratio: against(&cpu, |b| b.1),
        iops: median(&iops),
        runs,
    }
}

/// Formats a count with its thousands apart.
pub fn count(n: f64) -> String {
    let digits = format!("{n:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// Formats a time with a unit that suits it.
pub fn time(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e5 => format!("{:.1} µs", n / 1e3),
        n if n < 1e6 => format!("{:.0} µs", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.1} s", n / 1e9),
    }
}

pub fn ratio_text(r: Option<Ratio>) -> String {
    match r {
        None => String::new(),
        Some(r) if r.confidence == 0.0 => format!("{:.2}", r.median),
        Some(r) => format!("{:.2} [{:.2}, {:.2}]", r.median, r.low, r.high),
    }
}

pub fn number(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Makes the table for reading; `io` is the name of one operation.
pub fn table(rows: &[Summary], io: &str) -> Table {
    let base = rows.first().map_or_else(String::new, |r| name_of(r.engine));
    let per_io = format!("CPU µs/{io}");
    let (to, cpu_to) = (format!("rate vs {base}"), format!("CPU/{io} vs {base}"));
    let rate = if io == "I/O" { "IOPS".to_owned() } else { format!("{io}s/s") };
    // Operations that move no data have no such column.
    let moves = rows.iter().any(|r| r.mib_per_second > 0.0);
    let bytes = if moves { &["MiB/s"][..] } else { &[] };
    let first = ["engine", &rate];
    let last = ["p50", "p99", "CPU %", &per_io, "spread", &to, &cpu_to];
    let mut t = out::table(&[&first, bytes, &last].concat());
    for r in rows {
        let mib = moves.then(|| number(format!("{:.0}", r.mib_per_second)));
        let first = [Cell::new(name_of(r.engine)), number(count(r.iops))];
        t.add_row(first.into_iter().chain(mib).chain([
            number(time(r.p50_ns)),
            number(time(r.p99_ns)),
            number(format!("{:.0}", r.cpu_percent)),
            number(format!("{:.2}", r.cpu_us_per_io)),
            number(format!("{:.0} %", r.spread * 100.0)),
            number(ratio_text(r.iops_ratio)),
            number(ratio_text(r.cpu_per_io_ratio)),
        ]));
    }
    t
}

/// Makes the table of slat and clat, if they were measured.
pub fn split_table(rows: &[Summary]) -> Option<Table> {
    let mut t = out::table(&["engine", "slat p50", "slat p99", "clat p50", "clat p99"]);
    let mut any = false;
    for r in rows {
        let lats: Vec<_> = r.runs.iter().filter_map(|r| Some((r.slat?, r.clat?))).collect();
        if lats.is_empty() {
            continue;
        }
        any = true;
        let of = |f: fn(&(super::job::Lat, super::job::Lat)) -> u64| {
            number(time(median(&lats.iter().map(|l| f(l) as f64).collect::<Vec<_>>())))
        };
        let cells = [of(|l| l.0.p50), of(|l| l.0.p99), of(|l| l.1.p50), of(|l| l.1.p99)];
        t.add_row([Cell::new(name_of(r.engine))].into_iter().chain(cells));
    }
    any.then_some(t)
}

/// Makes the table of the cost of idle rings.
pub fn idle_table(rows: &[Summary]) -> Table {
    let header = ["engine", "rings", "private KiB/ring", "shared KiB/ring", "threads", "fds"];
    let mut t = out::table(&header);
    for r in rows {
        for i in r.runs.iter().filter_map(|r| r.idle) {
            t.add_row([
                Cell::new(name_of(r.engine)),
                number(i.rings.to_string()),
                number(format!("{:.1}", i.private as f64 / 1024.0)),
                number(format!("{:.1}", i.shared as f64 / 1024.0)),
                number(i.threads.to_string()),
                number(i.fds.to_string()),
            ]);
        }
    }
    t
}

/// Makes the table of the cost of requests that wait for data.
pub fn waiting_table(rows: &[Summary]) -> Table {
    let header =
        ["engine", "requests", "bytes/request", "kernel bytes/request", "fds", "threads", "CPU"];
    let mut t = out::table(&header);
    for r in rows {
        for w in r.runs.iter().filter_map(|r| r.waiting) {
            t.add_row([
                Cell::new(name_of(r.engine)),
                number(w.requests.to_string()),
                number(w.memory.to_string()),
                number(w.kernel.to_string()),
                number(w.fds.to_string()),
                number(w.threads.to_string()),
                number(format!(
                    "{} of {}",
                    time(w.cpu_us as f64 * 1e3),
                    time(w.waited_us as f64 * 1e3)
                )),
            ]);
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NOPs move no data: their MiB/s would say nothing.
    #[test]
    fn columns_without_values_are_left_out() {
        let row = |mib_per_second| Summary {
            engine: Driver::Softring,
            iops: 1.0,
            mib_per_second,
            p50_ns: 1.0,
            p99_ns: 1.0,
            cpu_percent: 1.0,
            cpu_us_per_io: 1.0,
            spread: 0.0,
            iops_ratio: None,
            cpu_per_io_ratio: None,
            runs: Vec::new(),
        };
        let nops = table(&[row(0.0)], "NOP").to_string();
        assert!(nops.contains("NOPs/s") && !nops.contains("MiB/s"), "{nops}");
        let reads = table(&[row(4.0)], "I/O").to_string();
        assert!(reads.contains("MiB/s") && reads.contains("IOPS"), "{reads}");
    }

    #[test]
    fn texts() {
        assert_eq!(count(1_234_567.0), "1 234 567");
        assert_eq!(count(999.0), "999");
        assert_eq!(time(1500.0), "1.5 µs");
        assert_eq!(time(250_000.0), "250 µs");
        assert_eq!(time(2.5e6), "2.5 ms");
    }
}
