//! `softring metrics`: shows what the rings of running programs did, read from the pages that they
//! keep (`softring_engine::stats`).

pub mod json;
pub mod pages;
mod prometheus;

use crate::cli::{Format, StatsArgs};
use crate::{container, out};
use comfy_table::{Cell, CellAlignment};
use json::{Process, Ring};

/// Runs `softring metrics`.
pub fn command(args: &StatsArgs) -> anyhow::Result<()> {
    let readings = match args.pid {
        Some(pid) => pages::one(pid)?.read().into_iter().collect(),
        None => {
            let all = pages::All::read()?;
            pages::note_foreign(&all.foreign);
            all.readings
        }
    };
    if args.format() == Format::Prometheus {
        return prometheus::text(&readings).try_for_each(|part| out::raw(&part));
    }
    let processes: Vec<Process> = readings.iter().map(Process::from).collect();
    drop(readings);
    if args.format() == Format::Json {
        return out::json(&processes);
    }
    if processes.is_empty() {
        return out::line(nothing_there());
    }
    processes.iter().try_for_each(|p| print(p, args.all))
}

/// Returns the message if no page was found.
pub fn nothing_there() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "No process that you may inspect has rings of softring."
    } else {
        "No process that you may inspect has rings of softring; root may inspect all processes."
    }
}

/// Prints SQ threads by ring, and the program's own meters.
fn print_threads(p: &Process) -> anyhow::Result<()> {
    let share =
        |work: u64, total: u64| format!("{:.1} %", work as f64 * 100.0 / total.max(1) as f64);
    let right = |s: String| Cell::new(s).set_alignment(CellAlignment::Right);
    let mut t =
        out::table(&["ring", "SqThread", "SqThreadCpu", "SqTotalTime", "SqWorkTime", "work"]);
    for (r, sq) in p.rings.iter().filter_map(|r| Some((r, r.sq?))) {
        let ids = [sq.sq_thread, sq.sq_thread_cpu].map(|n| n.to_string());
        let times = [sq.sq_total_time, sq.sq_work_time].map(|us| format!("{us} µs"));
        let work = share(sq.sq_work_time, sq.sq_total_time);
        let cells = ids.into_iter().chain(times).chain([work]).map(right);
        t.add_row([Cell::new(r.id)].into_iter().chain(cells));
    }
    if t.row_count() > 0 {
        out::line(&t.to_string())?;
    }
    let mut t = out::table(&["meter", "thread", "cpu", "total", "work", "work", "stretches"]);
    for m in p.meters.iter().filter(|m| m.kind == "program") {
        let times = [m.total_us, m.work_us].map(|us| format!("{us} µs"));
        let ids = [m.tid, m.cpu].map(|n| n.to_string());
        let last = [share(m.work_us, m.total_us), m.stretches.to_string()];
        let cells = ids.into_iter().chain(times).chain(last).map(right);
        t.add_row([Cell::new(&m.name)].into_iter().chain(cells));
    }
    if t.row_count() > 0 {
        out::line(&t.to_string())?;
    }
    Ok(())
}

/// Prints the spinning and sleeping of threads that poll.
fn print_idle_sleeps(rows: &[&Ring], name: impl Fn(&Ring) -> String) -> anyhow::Result<()> {
    let mut t = out::table(&["ring", "sleeps", "under", "over", "spared", "spun"]);
    for r in rows.iter().filter(|r| r.idle_sleeps.idle_sleeps > 0 || r.idle_sleeps.spun_ns > 0) {
        let n = &r.idle_sleeps;
        let times = [n.spared_ns, n.spun_ns].map(|ns| format!("{} µs", ns / 1000));
        let times = times.map(|t| Cell::new(t).set_alignment(CellAlignment::Right));
        let counts = [n.idle_sleeps, n.under, n.over].map(number);
        t.add_row([Cell::new(name(r))].into_iter().chain(counts).chain(times));
    }
    if t.row_count() > 0 { out::line(&t.to_string()) } else { Ok(()) }
}

fn number(n: u64) -> Cell {
    Cell::new(n).set_alignment(CellAlignment::Right)
}

/// Returns whether a ring had neither a request of its own nor a message from another ring.
fn idle(r: &Ring) -> bool {
    r.submitted == 0 && r.cqes == 0
}

/// Prints a process. Rings that never had a request are only counted, unless `all` are wanted.
fn print(p: &Process, all: bool) -> anyhow::Result<()> {
    let used = p.rings.iter().filter(|r| all || !idle(r));
    let rows: Vec<&Ring> = used.chain((p.ended.submitted > 0).then_some(&p.ended)).collect();
    let place = p.container.as_deref().map_or_else(String::new, container::words);
    out::line(&format!("{} ({}){place}: {} open ring(s)", p.pid, p.command, p.rings.len()))?;
    let folded = p.rings.iter().filter(|r| idle(r)).count();
    if folded > 0 && !all {
        out::line(&format!("{folded} ring(s) without a request; --all shows them."))?;
    }
    print_threads(p)?;
    if rows.is_empty() {
        return Ok(());
    }
    let name = |r: &Ring| if r.id == 0 { "ended".to_owned() } else { r.id.to_string() };
    let header = ["ring", "SQEs", "enters", "errors", "inline", "poll", "aio", "worker", "queued"];
    let mut t = out::table(&header);
    for r in &rows {
        let (w, e) = (&r.routes, r.enters);
        let counts = [r.submitted, e, r.errors, w.inline, w.poll, w.aio, w.worker, w.queued];
        t.add_row([Cell::new(name(r))].into_iter().chain(counts.map(number)));
    }
    out::line(&t.to_string())?;
    let header = ["ring", "at once", "armed", "at arm", "reissued", "aborted", "capped"];
    let mut t = out::table(&header);
    for r in rows.iter().filter(|r| r.reissue.done_at_once > 0 || r.reissue.armed > 0) {
        let i = &r.reissue;
        let counts = [i.done_at_once, i.armed, i.ready_at_arm, i.reissued, i.aborted, i.capped];
        t.add_row([Cell::new(name(r))].into_iter().chain(counts.map(number)));
    }
    if t.row_count() > 0 {
        out::line(&t.to_string())?;
    }
    print_idle_sleeps(&rows, name)?;
    for r in &rows {
        let mut ops: Vec<(&String, &u64)> = r.ops.iter().collect();
        ops.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let ops: Vec<String> = ops.iter().map(|(op, n)| format!("{op} {n}")).collect();
        out::line(&format!("ring {}: {}", name(r), ops.join(", ")))?;
    }
    if p.unseen_rings > 0 {
        out::line(&format!("{} more ring(s) did not fit on the statistics page.", p.unseen_rings))?;
    }
    Ok(())
}
