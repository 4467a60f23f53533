//! Result of one disk, load and depth: the four policies side by side.

use super::Disk;
use super::floor::Floor;
use super::idle_sleeps::{IdleSleep, IdleSleeps};
use crate::bench::job::{Lat, Report};
use crate::bench::stats::{Ratio, median, ratio};
use crate::bench::summary::{count, number, ratio_text, time};
use crate::cli::{Poll as Policy, name_of};
use crate::out;
use comfy_table::{Cell, Table};
use serde::Serialize;

/// A row of the source's table.
#[derive(Debug, Serialize)]
pub struct Row {
    pub disk: Disk,
    pub load: &'static str,
    pub depth: u32,
    /// The source's CPU %, and the most that hybrid polling may need.
    pub source_cpu: f64,
    pub target_cpu: f64,
    /// Lower bound of hybrid polling's CPU % here, with many in flight.
    pub floor: Option<Floor>,
    /// The sleeps of a hybrid run, for the drawing.
    pub idle_sleeps: Option<IdleSleeps>,
    pub ways: Vec<Measured>,
}

/// One policy: medians of its runs.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub policy: Policy,
    pub iops: f64,
    pub mb_per_second: f64,
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub p999_ns: f64,
    pub cpu_percent: f64,
    pub cpu_us_per_io: f64,
    /// Ratio to spin in the same round.
    pub rate_vs_spin: Option<Ratio>,
    pub mean_vs_spin: Option<Ratio>,
    /// Ratio to the better of block and hybrid in the same round.
    pub rate_vs_better: Option<Ratio>,
    pub runs: Vec<Report>,
}

impl Row {
    pub fn of(&self, policy: Policy) -> Option<&Measured> {
        self.ways.iter().find(|w| w.policy == policy)
    }

    /// Returns the row's sleeps, if they were traced.
    pub fn idle_sleeps_of(&self) -> Option<&[IdleSleep]> {
        self.idle_sleeps.as_ref().map(|n| n.all.as_slice())
    }
}

/// Sums up `runs`, which all have the same number of rounds.
pub fn sum(
    disk: Disk,
    load: &'static str,
    depth: u32,
    cpu: (f64, f64),
    runs: &[(Policy, Vec<Report>)],
) -> Row {
    let of = |p: Policy| runs.iter().find(|(q, _)| *q == p).map(|(_, r)| r);
    let iops = |p| of(p).map(|r| r.iter().map(Report::iops).collect::<Vec<_>>());
    let better = iops(Policy::Block).zip(iops(Policy::Hybrid));
    let better = better.map(|(a, b)| a.iter().zip(&b).map(|(a, b)| a.max(*b)).collect::<Vec<_>>());
    let ways: Vec<Measured> =
        runs.iter().map(|(p, r)| measured(*p, r, of(Policy::Spin), better.as_deref())).collect();
    let (source_cpu, target_cpu) = cpu;
    Row { disk, load, depth, source_cpu, target_cpu, floor: None, idle_sleeps: None, ways }
}

fn measured(
    policy: Policy,
    runs: &[Report],
    spin: Option<&Vec<Report>>,
    better: Option<&[f64]>,
) -> Measured {
    let all = |f: &dyn Fn(&Report) -> f64| runs.iter().map(f).collect::<Vec<f64>>();
    let middle = |f: &dyn Fn(&Report) -> f64| median(&all(f));
    let lat = |f: fn(&Lat) -> u64| middle(&|r: &Report| f(&r.lat) as f64);
    let to_spin = |f: fn(&Report) -> f64| {
        let pairs = runs.iter().zip(spin.filter(|_| policy != Policy::Spin)?);
        ratio(&pairs.map(|(mine, spin)| f(mine) / f(spin)).collect::<Vec<_>>())
    };
    let to_better = || {
        let pairs = runs.iter().zip(better.filter(|_| policy == Policy::Adaptive)?);
        ratio(&pairs.map(|(mine, best)| mine.iops() / best).collect::<Vec<_>>())
    };
    Measured {
        policy,
        iops: middle(&Report::iops),
        mb_per_second: middle(&|r| r.bytes as f64 / r.seconds.max(1e-9) / 1e6),
        mean_ns: middle(&|r| r.lat.mean),
        p50_ns: lat(|l| l.p50),
        p99_ns: lat(|l| l.p99),
        p999_ns: lat(|l| l.p999),
        cpu_percent: middle(&Report::cpu_percent),
        cpu_us_per_io: middle(&Report::cpu_us_per_io),
        rate_vs_spin: to_spin(Report::iops),
        mean_vs_spin: to_spin(|r| r.lat.mean),
        rate_vs_better: to_better(),
        runs: runs.to_vec(),
    }
}

/// Formats the row as a table.
pub fn table(row: &Row) -> Table {
    let header = [
        "wait",
        "IOPS",
        "MB/s",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "CPU %",
        "CPU µs/I/O",
        "rate vs spin",
        "mean vs spin",
    ];
    let mut t = out::table(&header);
    for w in &row.ways {
        let times = [w.mean_ns, w.p50_ns, w.p99_ns, w.p999_ns].map(|ns| number(time(ns)));
        let rates = [number(count(w.iops)), number(count(w.mb_per_second))];
        let cpu =
            [number(format!("{:.0}", w.cpu_percent)), number(format!("{:.2}", w.cpu_us_per_io))];
        let ratios = [number(ratio_text(w.rate_vs_spin)), number(ratio_text(w.mean_vs_spin))];
        let cells = rates.into_iter().chain(times).chain(cpu).chain(ratios);
        t.add_row([Cell::new(name_of(w.policy))].into_iter().chain(cells));
    }
    t
}
