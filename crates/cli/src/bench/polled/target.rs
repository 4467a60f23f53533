//! Targets of hybrid polling, and what it reached.

use super::Disk;
use super::row::Row;
use crate::bench::summary::number;
use crate::cli::{Poll as Policy, name_of};
use crate::out;
use comfy_table::{Cell, Table};
use serde::Serialize;

/// A target in one row.
#[derive(Debug, Serialize)]
pub struct Target {
    pub what: &'static str,
    pub disk: Disk,
    pub load: &'static str,
    pub depth: u32,
    pub reached: f64,
    pub bound: f64,
    pub at_least: bool,
    /// The measured floor, if it is above the bound; the floor is then asked for instead.
    pub floor: Option<f64>,
    pub met: bool,
}

/// Judges every target of the rows.
pub fn judge(rows: &[Row]) -> Vec<Target> {
    rows.iter().flat_map(of).collect()
}

fn of(row: &Row) -> Vec<Target> {
    let make = |what, reached: f64, bound: f64, at_least, floor: Option<f64>| Target {
        what,
        disk: row.disk,
        load: row.load,
        depth: row.depth,
        reached,
        bound,
        at_least,
        floor,
        met: if at_least { reached >= bound } else { reached <= floor.unwrap_or(bound) },
    };
    let mut all = Vec::new();
    if let Some(hybrid) = row.of(Policy::Hybrid) {
        if row.depth > 1 {
            let rate = hybrid.rate_vs_spin.map(|r| r.median);
            all.extend(rate.map(|r| make("hybrid: rate vs spin", r, 0.99, true, None)));
            let floor = row.floor.map(|f| f.percent).filter(|f| *f > row.target_cpu);
            all.push(make("hybrid: CPU %", hybrid.cpu_percent, row.target_cpu, false, floor));
        } else {
            let mean = hybrid.mean_vs_spin.map(|r| r.median);
            all.extend(mean.map(|r| make("hybrid: mean vs spin", r, 1.05, false, None)));
        }
    }
    let block = row.of(Policy::Block).and_then(|b| b.mean_vs_spin);
    if let Some(block) = block.filter(|_| row.disk == Disk::Real && row.depth == 1) {
        all.push(make("spin: mean vs block", 1.0 / block.median, 0.8, false, None));
    }
    let adaptive = row.of(Policy::Adaptive).and_then(|a| a.rate_vs_better);
    let best = "adaptive: rate vs better of block, hybrid";
    all.extend(adaptive.map(|r| make(best, r.median, 0.97, true, None)));
    all
}

/// Formats the targets as a table.
pub fn table(targets: &[Target]) -> Table {
    let head = ["target", "disk", "load", "depth", "reached", "asked", "or floor", ""];
    let mut t = out::table(&head);
    for g in targets {
        let digits = if g.bound > 2.0 { 0 } else { 2 };
        let sign = if g.at_least { "≥" } else { "≤" };
        let floor = g.floor.map_or_else(String::new, |f| format!("≤ {f:.0}"));
        t.add_row([
            Cell::new(g.what),
            Cell::new(name_of(g.disk)),
            Cell::new(g.load),
            number(g.depth.to_string()),
            number(format!("{:.digits$}", g.reached)),
            number(format!("{sign} {:.digits$}", g.bound)),
            number(floor),
            Cell::new(if g.met { "met" } else { "missed" }),
        ]);
    }
    t
}

#[cfg(test)]
mod tests {
    use super::super::row::sum;
    use super::*;
    use crate::bench::job::{Lat, Report};

    fn report(iops: u64, mean: f64, cpu: u64) -> Report {
        let none = r#"{"ring":null,"ios":0,"bytes":0,"verified":0,"seconds":1.0,"user_us":0,
            "system_us":0,"machine_us":0,"steal_us":0,"lat":{"mean":0.0,"p50":0,"p90":0,"p99":0,
            "p999":0,"max":0},"slat":null,"clat":null,"idle":null}"#;
        let none: Report = serde_json::from_str(none).unwrap();
        let lat = Lat { mean, ..none.lat };
        Report { ios: iops, user_us: cpu, lat, ..none }
    }

    #[test]
    fn each_row_is_judged_by_its_own_targets() {
        let runs = |depth| {
            let all = [
                (Policy::Block, vec![report(700, 140.0, 200_000)]),
                (Policy::Spin, vec![report(1000, 100.0, 1_000_000)]),
                (Policy::Hybrid, vec![report(995, 107.0, 400_000)]),
                (Policy::Adaptive, vec![report(990, 101.0, 500_000)]),
            ];
            sum(Disk::Real, "read 128k", depth, (44.0, 30.0), &all)
        };
        let met = |row: &Row| of(row).iter().map(|t| (t.what, t.met)).collect::<Vec<_>>();
        assert_eq!(
            met(&runs(64)),
            [
                ("hybrid: rate vs spin", true),
                ("hybrid: CPU %", false),
                ("adaptive: rate vs better of block, hybrid", true),
            ]
        );
        assert_eq!(
            met(&runs(1)),
            [
                ("hybrid: mean vs spin", false),
                ("spin: mean vs block", true),
                ("adaptive: rate vs better of block, hybrid", true),
            ]
        );
    }
}
