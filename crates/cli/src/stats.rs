//! `softring stats`: what the rings of running programs did, read from the pages that they keep
//! (`softring_engine::stats`).

use crate::cli::StatsArgs;
use crate::{fail, out};
use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use softring_engine::abi::{OP_NAMES, SETUP_NAMES};
use softring_engine::stats::{NAME, OPS, meter, read};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One process, for programs.
#[derive(Debug, Serialize)]
struct Process {
    pid: i32,
    command: String,
    /// Rings that found no room on the page.
    unseen_rings: u64,
    rings: Vec<Ring>,
    /// Threads that say when they work.
    meters: Vec<Meter>,
    /// Rings that are closed, as one.
    ended: Ring,
}

/// One ring.
#[derive(Debug, Serialize)]
struct Ring {
    id: u64,
    setup_flags: Vec<&'static str>,
    sq_entries: u64,
    cq_entries: u64,
    enters: u64,
    submitted: u64,
    errors: u64,
    #[serde(flatten)]
    sq: Option<Sq>,
    routes: Routes,
    reissue: Reissue,
    /// SQEs taken, by operation; those that were not used are left out.
    ops: BTreeMap<String, u64>,
}

/// A ring's SQ thread, as the kernel's fdinfo tells of it. Times are processor time in µs.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Sq {
    sq_thread: i64,
    sq_thread_cpu: i64,
    sq_total_time: u64,
    sq_work_time: u64,
}

/// A thread's own account of its work.
#[derive(Debug, Serialize)]
struct Meter {
    name: String,
    kind: &'static str,
    tid: u64,
    cpu: u64,
    /// Processor time of the thread since it has the meter, in µs.
    total_us: u64,
    /// Of that, time in which it worked.
    work_us: u64,
    stretches: u64,
    /// Naps between submissions (`--sq-idle=nap`), those that were too long, and their time.
    naps: u64,
    naps_over: u64,
    napped_us: u64,
}

#[derive(Debug, Serialize)]
struct Routes {
    inline: u64,
    poll: u64,
    aio: u64,
    worker: u64,
    queued: u64,
}

#[derive(Debug, Serialize)]
struct Reissue {
    done_at_once: u64,
    armed: u64,
    ready_at_arm: u64,
    reissued: u64,
    aborted: u64,
    capped: u64,
}

impl Meter {
    /// While a thread polls in vain it writes nothing: its total is what its clock says.
    fn new(proc: &Path, m: &read::Meter) -> Meter {
        let clock = fs::read_to_string(proc.join(format!("task/{}/schedstat", m.tid())));
        let ns = clock.ok().and_then(|c| c.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        Meter {
            name: m.name(),
            kind: if m.kind() == meter::Kind::SqThread as u64 { "sq-thread" } else { "program" },
            tid: m.tid(),
            cpu: m.cpu(),
            total_us: m.total_us_at(ns),
            work_us: m.work_us(),
            stretches: m.stretches(),
            naps: m.naps(),
            naps_over: m.naps_over(),
            napped_us: m.napped_us(),
        }
    }
}

impl Ring {
    /// -1, -1, 0, 0 where the thread is gone, as fdinfo says.
    fn sq(r: &read::Ring, meters: &[Meter]) -> Option<Sq> {
        if r.flags() & u64::from(softring_engine::abi::IORING_SETUP_SQPOLL) == 0 {
            return None;
        }
        let gone = Sq { sq_thread: -1, sq_thread_cpu: -1, sq_total_time: 0, sq_work_time: 0 };
        let thread = meters.iter().find(|m| m.kind == "sq-thread" && m.tid == r.sq_thread());
        Some(thread.map_or(gone, |m| Sq {
            sq_thread: m.tid.cast_signed(),
            sq_thread_cpu: m.cpu.cast_signed(),
            sq_total_time: m.total_us,
            sq_work_time: m.work_us,
        }))
    }

    fn new(r: &read::Ring, meters: &[Meter]) -> Ring {
        let ops = (0..OPS).filter(|&op| r.ops(op) > 0).map(|op| (op_name(op), r.ops(op)));
        let set =
            |(bit, name): (usize, &&'static str)| (r.flags() >> bit & 1 == 1).then_some(*name);
        Ring {
            id: r.id(),
            setup_flags: SETUP_NAMES.iter().enumerate().filter_map(set).collect(),
            sq_entries: r.sq_entries(),
            cq_entries: r.cq_entries(),
            enters: r.enters(),
            submitted: r.submitted(),
            errors: r.errors(),
            sq: Ring::sq(r, meters),
            routes: Routes {
                inline: r.inline(),
                poll: r.poll(),
                aio: r.aio(),
                worker: r.worker(),
                queued: r.queued(),
            },
            reissue: Reissue {
                done_at_once: r.at_once(),
                armed: r.armed(),
                ready_at_arm: r.ready_at_arm(),
                reissued: r.reissued(),
                aborted: r.aborted(),
                capped: r.capped(),
            },
            ops: ops.collect(),
        }
    }
}

/// An operation as the statistics call it: `nop`, `recv`.
fn op_name(op: usize) -> String {
    let name = OP_NAMES.get(op).map_or("invalid", |name| name);
    name.trim_start_matches("IORING_OP_").to_ascii_lowercase()
}

/// `softring stats`
pub fn command(args: &StatsArgs) -> anyhow::Result<()> {
    let processes = match args.pid {
        Some(pid) => vec![one(pid)?],
        None => all()?,
    };
    if args.json {
        return out::json(&processes);
    }
    if processes.is_empty() {
        return out::line("No process that you may look at has rings of softring's.");
    }
    processes.iter().try_for_each(print)
}

fn one(pid: i32) -> anyhow::Result<Process> {
    let hint = "softring stats without -p lists the processes that have any";
    match look(pid) {
        Ok(Some(process)) => Ok(process),
        Ok(None) => Err(fail::work_hint(
            format!("process {pid} keeps no statistics: no ring of softring's, or --no-stats"),
            hint,
        )),
        Err(Trouble::Version(v)) => Err(fail::work_hint(
            format!("process {pid} runs another version of softring (page version {v})"),
            "use the softring that it was started with",
        )),
        Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::NotFound => {
            Err(fail::work_hint(format!("there is no process {pid}"), hint))
        }
        Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied => {
            let hint = "run softring stats as the same user, or as root";
            Err(fail::work_hint(format!("process {pid} is not yours to look at"), hint))
        }
        Err(Trouble::Io(e)) => Err(fail::work(format!("cannot look at process {pid}: {e}"))),
    }
}

/// Every process with a page; what may not be looked at, or ends meanwhile, is passed over.
fn all() -> anyhow::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc")
        .map_err(|e| fail::work_hint(format!("cannot read /proc: {e}"), "mount /proc"))?;
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<Process> = pids.filter_map(|pid| look(pid).ok().flatten()).collect();
    found.sort_by_key(|p| p.pid);
    Ok(found)
}

/// Why a process cannot be looked at.
enum Trouble {
    Io(io::Error),
    Version(u64),
}

/// The page of a process; none if it has no page of its own.
fn look(pid: i32) -> Result<Option<Process>, Trouble> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let dir = fs::read_dir(proc.join("fd")).map_err(Trouble::Io)?;
    let mut newer = None;
    for fd in dir.filter_map(Result::ok).map(|e| e.path()).filter(|p| is_page(p)) {
        let Ok(bytes) = fs::read(&fd) else { continue };
        match read::page(&bytes) {
            // A forked child may hold its parent's page before it has one.
            Ok(page) if page.pid.cast_signed() == pid => return Ok(Some(process(&proc, &page))),
            Err(read::Unreadable::Version(v)) => newer = Some(v),
            _ => {}
        }
    }
    newer.map_or(Ok(None), |v| Err(Trouble::Version(v)))
}

fn is_page(fd: &Path) -> bool {
    let named = |link: PathBuf| link.to_string_lossy().starts_with(&format!("/memfd:{NAME}"));
    fs::read_link(fd).is_ok_and(named)
}

fn process(proc: &Path, page: &read::Page) -> Process {
    let command = fs::read_to_string(proc.join("comm")).unwrap_or_default();
    let meters: Vec<Meter> = page.meters.iter().map(|m| Meter::new(proc, m)).collect();
    Process {
        pid: page.pid.cast_signed(),
        command: command.trim_end().to_owned(),
        unseen_rings: page.unseen,
        rings: page.rings.iter().map(|r| Ring::new(r, &meters)).collect(),
        ended: Ring::new(&page.ended, &[]),
        meters,
    }
}

/// SQ threads by ring, and the program's own meters.
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

fn number(n: u64) -> Cell {
    Cell::new(n).set_alignment(CellAlignment::Right)
}

fn print(p: &Process) -> anyhow::Result<()> {
    let rows: Vec<&Ring> =
        p.rings.iter().chain((p.ended.submitted > 0).then_some(&p.ended)).collect();
    out::line(&format!("{} ({}): {} open ring(s)", p.pid, p.command, p.rings.len()))?;
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
    for r in rows.iter().filter(|r| r.reissue.done_at_once + r.reissue.armed > 0) {
        let i = &r.reissue;
        let counts = [i.done_at_once, i.armed, i.ready_at_arm, i.reissued, i.aborted, i.capped];
        t.add_row([Cell::new(name(r))].into_iter().chain(counts.map(number)));
    }
    if t.row_count() > 0 {
        out::line(&t.to_string())?;
    }
    for r in &rows {
        let mut ops: Vec<(&String, &u64)> = r.ops.iter().collect();
        ops.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let ops: Vec<String> = ops.iter().map(|(op, n)| format!("{op} {n}")).collect();
        out::line(&format!("ring {}: {}", name(r), ops.join(", ")))?;
    }
    if p.unseen_rings > 0 {
        out::line(&format!("{} more ring(s) found no room on the page.", p.unseen_rings))?;
    }
    Ok(())
}
