//! Drawing of CPU against latency: one panel for each row, a dot for each run of each policy. Below
//! that, the targets of sleeps against the times of completions: a dot for each sleep.

use super::idle_sleeps::IdleSleep;
use super::row::Row;
use crate::bench::plot::COLOURS;
use crate::bench::summary::time;
use crate::cli::{Poll as Policy, name_of};
use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
const POLICIES: [Policy; 4] = [Policy::Block, Policy::Spin, Policy::Hybrid, Policy::Adaptive];
const ACROSS: usize = 4;
/// Most sleeps drawn of a row.
const DOTS: usize = 150;
/// Outcomes of a sleep.
const FATES: [&str; 3] = [
    "sleep that ended before a completion",
    "sleep during which a completion came",
    "sleep that coalesces several completions",
];

/// Writes the drawing to `path` as SVG.
pub fn draw(path: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let mut svg = String::new();
    panels(&mut svg, rows).map_err(|e| anyhow!("cannot draw: {e}"))?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn panels(svg: &mut String, rows: &[Row]) -> Drawn {
    let down = |n: usize| n.div_ceil(ACROSS);
    // A row has no sleeps if requests take less than a sleep costs.
    let idle_sleeps = |r| Some((r, Row::idle_sleeps_of(r).filter(|n| !n.is_empty())?));
    let idle_sleeps: Vec<(&Row, &[IdleSleep])> = rows.iter().filter_map(idle_sleeps).collect();
    let high = |n: usize| 30 + 280 * down(n) as u32;
    let lower = if idle_sleeps.is_empty() { 0 } else { high(idle_sleeps.len()) };
    let size = (340 * ACROSS as u32, high(rows.len().max(1)) + lower);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (root, rest) = root.split_vertically(size.1 - lower);
    let (head, charts) = root.split_vertically(30);
    key(&head, &POLICIES.map(name_of), 160)?;
    for (area, row) in charts.split_evenly((down(rows.len()).max(1), ACROSS)).iter().zip(rows) {
        panel(area, row)?;
    }
    if lower > 0 {
        let (head, charts) = rest.split_vertically(30);
        key(&head, &FATES.map(str::to_owned), 320)?;
        let areas = charts.split_evenly((down(idle_sleeps.len()), ACROSS));
        for (area, (row, idle_sleeps)) in areas.iter().zip(idle_sleeps) {
            idle_sleep_panel(area, row, idle_sleeps)?;
        }
    }
    root.present()?;
    Ok(())
}

/// Draws the key of the colours.
fn key(head: &Area<'_>, names: &[String], step: i32) -> Drawn {
    for (i, (name, colour)) in (0..).zip(names.iter().zip(COLOURS)) {
        let left = 20 + i * step;
        head.draw(&Rectangle::new([(left, 8), (left + 16, 16)], colour.filled()))?;
        head.draw(&Text::new(name.clone(), (left + 24, 5), ("sans-serif", 14)))?;
    }
    Ok(())
}

fn panel(area: &Area<'_>, row: &Row) -> Drawn {
    let means = || row.ways.iter().flat_map(|w| &w.runs).map(|r| r.lat.mean.max(1.0));
    let (low, high) = (means().fold(1e12, f64::min), means().fold(1.0, f64::max));
    let cpus = row.ways.iter().flat_map(|w| &w.runs).map(crate::bench::job::Report::cpu_percent);
    let top = cpus.fold(100.0, f64::max) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(caption(row), ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d(low * 0.9..high * 1.1, 0.0..top)?;
    chart
        .configure_mesh()
        .x_labels(4)
        .y_labels(6)
        .max_light_lines(0)
        .x_desc("mean latency")
        .y_desc("CPU %")
        .x_label_formatter(&|v| time(*v))
        .draw()?;
    for way in &row.ways {
        let at = POLICIES.iter().position(|p| *p == way.policy).unwrap_or(0);
        let dot = |r: &crate::bench::job::Report| {
            Circle::new((r.lat.mean, r.cpu_percent()), 4, COLOURS[at].filled())
        };
        chart.draw_series(way.runs.iter().map(dot))?;
    }
    Ok(())
}

fn caption(row: &Row) -> String {
    format!("{}, {}, depth {}", name_of(row.disk), row.load, row.depth)
}

/// Draws the sleeps of a row. A sleep on the line ends with its completion. Below the line the
/// thread spins for the rest; above the line the sleep is late, or the completion ends it.
fn idle_sleep_panel(area: &Area<'_>, row: &Row, idle_sleeps: &[IdleSleep]) -> Drawn {
    let mut times: Vec<f64> = idle_sleeps.iter().flat_map(|n| [n.target, n.there]).collect();
    times.sort_by(f64::total_cmp);
    let top = times.get(times.len() * 99 / 100).map_or(1000.0, |t| t * 1.2);
    let mut chart = ChartBuilder::on(area)
        .caption(caption(row), ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..top, 0.0..top)?;
    chart
        .configure_mesh()
        .x_labels(4)
        .y_labels(6)
        .max_light_lines(0)
        .x_desc("completion, from the start of the sleep")
        .y_desc("target of the sleep")
        .x_label_formatter(&|v| time(*v))
        .y_label_formatter(&|v| time(*v))
        .draw()?;
    chart.draw_series(LineSeries::new([(0.0, 0.0), (top, top)], COLOURS[4]))?;
    let dots = idle_sleeps.iter().step_by(idle_sleeps.len().div_ceil(DOTS).max(1)).map(|n| {
        let fate = if n.coalesces { 2 } else { usize::from(n.over()) };
        Circle::new((n.there.min(top), n.target.min(top)), 2, COLOURS[fate].filled())
    });
    chart.draw_series(dots)?;
    Ok(())
}
