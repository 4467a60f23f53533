//! CPU against latency: one panel for each row, a dot for each run of each way to wait.

use super::row::Row;
use crate::bench::plot::COLOURS;
use crate::bench::summary::time;
use crate::cli::{Poll as Policy, name_of};
use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

type Drawn = Result<(), Box<dyn std::error::Error>>;
const POLICIES: [Policy; 4] = [Policy::Block, Policy::Spin, Policy::Hybrid, Policy::Adaptive];
const ACROSS: usize = 4;

/// Writes the drawing to `path` as SVG.
pub fn draw(path: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let mut svg = String::new();
    panels(&mut svg, rows).map_err(|e| anyhow!("cannot draw: {e}"))?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn panels(svg: &mut String, rows: &[Row]) -> Drawn {
    let down = rows.len().div_ceil(ACROSS).max(1);
    let size = (340 * ACROSS as u32, 30 + 280 * down as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (head, charts) = root.split_vertically(30);
    for (i, (policy, colour)) in (0..).zip(POLICIES.iter().zip(COLOURS)) {
        let left = 20 + i * 160;
        head.draw(&Rectangle::new([(left, 8), (left + 16, 16)], colour.filled()))?;
        head.draw(&Text::new(name_of(*policy), (left + 24, 5), ("sans-serif", 14)))?;
    }
    for (area, row) in charts.split_evenly((down, ACROSS)).iter().zip(rows) {
        panel(area, row)?;
    }
    root.present()?;
    Ok(())
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, row: &Row) -> Drawn {
    let means = || row.ways.iter().flat_map(|w| &w.runs).map(|r| r.lat.mean.max(1.0));
    let (low, high) = (means().fold(1e12, f64::min), means().fold(1.0, f64::max));
    let cpus = row.ways.iter().flat_map(|w| &w.runs).map(crate::bench::job::Report::cpu_percent);
    let top = cpus.fold(100.0, f64::max) * 1.05;
    let caption = format!("{}, {}, depth {}", name_of(row.disk), row.load, row.depth);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 13))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(44)
        .build_cartesian_2d(low * 0.9..high * 1.1, 0.0..top)?;
    chart
        .configure_mesh()
        .x_labels(4)
        .y_labels(6)
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
