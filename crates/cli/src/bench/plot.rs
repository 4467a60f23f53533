//! Drawing of a result: IOPS of every round, and latency by percentile.

use super::summary::{Summary, count, time};
use crate::cli::name_of;
use crate::{fail, out};
use anyhow::{Context, anyhow};
use plotters::prelude::*;
use std::path::Path;

pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0x33, 0x66, 0xaa),
    RGBColor(0xcc, 0x55, 0x22),
    RGBColor(0x44, 0x88, 0x44),
    RGBColor(0x88, 0x44, 0x99),
    RGBColor(0x77, 0x77, 0x77),
    RGBColor(0xbb, 0x99, 0x22),
    RGBColor(0x22, 0x99, 0x99),
];

/// Labels of the percentiles drawn.
const QUANTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

/// Checks that `path` can be written once there is something to draw; leaves nothing there yet.
///
/// # Errors
/// Usage.
pub fn check(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let refuse = |e| {
        let what = format!("cannot write the drawing to {}: {e}", path.display());
        fail::usage(what, "name a writable file in an existing folder")
    };
    out::may_write(path).map_err(refuse)
}

/// Writes the drawing to `path` as SVG.
pub fn draw(path: &Path, title: &str, rows: &[Summary]) -> anyhow::Result<()> {
    let mut svg = String::new();
    render(&mut svg, title, rows).map_err(|e| anyhow!("cannot draw: {e}"))?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn render(
    svg: &mut String,
    title: &str,
    rows: &[Summary],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (1000, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 18))?;
    let (left, right) = root.split_horizontally(500);
    let runs = rows.iter().map(|r| r.runs.len()).max().unwrap_or(1).max(1);
    let top = rows.iter().flat_map(|r| &r.runs).map(super::job::Report::iops).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&left)
        .caption("operations per second, by round", ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(0.5..runs as f64 + 0.5, 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .x_labels(runs.min(10))
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| count(*v))
        .draw()?;
    for (row, colour) in rows.iter().zip(COLOURS.iter().cycle()) {
        let points = (1..).zip(&row.runs).map(|(i, r)| (f64::from(i), r.iops()));
        let series = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
        chart.draw_series(series)?.label(name_of(row.engine)).legend(key(*colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    latencies(&right, rows)?;
    root.present()?;
    Ok(())
}

/// Returns an engine's mark in the legend.
fn key(colour: RGBColor) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 4), (x + 16, y + 4)], colour.filled())
}

fn latencies(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    rows: &[Summary],
) -> Result<(), Box<dyn std::error::Error>> {
    let of = |r: &Summary| {
        let middle = |f: fn(&super::job::Lat) -> u64| {
            super::stats::median(&r.runs.iter().map(|r| f(&r.lat) as f64).collect::<Vec<_>>())
        };
        [
            middle(|l| l.p50),
            middle(|l| l.p90),
            middle(|l| l.p99),
            middle(|l| l.p999),
            middle(|l| l.max),
        ]
    };
    percentiles(area, "latency, by percentile", &rows.iter().map(of).collect::<Vec<_>>())
}

/// Draws curves over [`QUANTILES`], in the order of the colours.
fn percentiles(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    caption: &str,
    all: &[[f64; 5]],
) -> Result<(), Box<dyn std::error::Error>> {
    let flat = || all.iter().flatten().copied().filter(|v| *v > 0.0);
    let (low, high) = (flat().fold(1e9, f64::min), flat().fold(1.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 14))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(-0.3..4.3, (low * 0.8..high * 1.25).log_scale())?;
    let label = |v: &f64| {
        let near = v.round();
        let at = QUANTILES.get(near as usize).filter(|_| (v - near).abs() < 1e-6 && *v >= 0.0);
        at.map_or_else(String::new, |s| (*s).to_owned())
    };
    chart
        .configure_mesh()
        .x_labels(6)
        .x_label_formatter(&label)
        .y_label_formatter(&|v| time(*v))
        .draw()?;
    for (points, colour) in all.iter().zip(COLOURS.iter().cycle()) {
        let points = (0..).zip(points).map(|(i, v)| (f64::from(i), v.max(1.0)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?;
    }
    Ok(())
}

/// Writes a drawing of named points to `path` as SVG: a panel for each caption, two rows of them.
pub fn draw_points(
    path: &Path,
    title: &str,
    names: &[&str],
    axes: [&str; 2],
    panels: &[(String, Vec<(f64, f64)>)],
) -> anyhow::Result<()> {
    let mut svg = String::new();
    points_of(&mut svg, title, names, axes, panels).map_err(|e| anyhow!("cannot draw: {e}"))?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn points_of(
    svg: &mut String,
    title: &str,
    names: &[&str],
    [x, y]: [&str; 2],
    panels: &[(String, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let columns = panels.len().div_ceil(2).max(1);
    let size = (340 * columns as u32, 720);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 18))?;
    let (head, charts) = root.split_vertically(30);
    heads(&head, names)?;
    for (area, (caption, points)) in charts.split_evenly((2, columns)).iter().zip(panels) {
        let right = points.iter().map(|p| p.0).fold(1.05, f64::max).min(20.0);
        let mut chart = ChartBuilder::on(area)
            .caption(caption, ("sans-serif", 14))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d((0.98..right * 1.02).log_scale(), 0.0..105.0)?;
        chart.configure_mesh().x_desc(x).y_desc(y).x_labels(5).draw()?;
        for (point, colour) in points.iter().zip(COLOURS.iter().cycle()) {
            let at = (point.0.min(right), point.1);
            chart.draw_series([Circle::new(at, 5, colour.filled())])?;
        }
    }
    root.present()?;
    Ok(())
}

/// Draws the key of the colours.
fn heads(
    head: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    names: &[&str],
) -> Result<(), Box<dyn std::error::Error>> {
    let step = if names.len() > 5 { 140 } else { 240 };
    for (i, (name, colour)) in (0..).zip(names.iter().zip(COLOURS.iter().cycle())) {
        let left = 20 + i * step;
        head.draw(&Rectangle::new([(left, 8), (left + 16, 16)], colour.filled()))?;
        head.draw(&Text::new((*name).to_owned(), (left + 24, 5), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// Writes a drawing of named curves over [`QUANTILES`] to `path` as SVG: a panel for each caption.
pub fn draw_percentiles(
    path: &Path,
    title: &str,
    names: &[&str],
    panels: &[(String, Vec<[f64; 5]>)],
) -> anyhow::Result<()> {
    let mut svg = String::new();
    panels_of(&mut svg, title, names, panels).map_err(|e| anyhow!("cannot draw: {e}"))?;
    std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn panels_of(
    svg: &mut String,
    title: &str,
    names: &[&str],
    panels: &[(String, Vec<[f64; 5]>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (500 * panels.len() as u32, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 18))?;
    let (head, charts) = root.split_vertically(30);
    heads(&head, names)?;
    for (area, (caption, all)) in charts.split_evenly((1, panels.len())).iter().zip(panels) {
        percentiles(area, caption, all)?;
    }
    root.present()?;
    Ok(())
}
