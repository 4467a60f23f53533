//! `softring stats`: what the rings of running programs did, read from the pages that they keep
//! (`softring_engine::stats`).

use crate::cli::StatsArgs;
use crate::{fail, out};
use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use softring_engine::abi::{OP_NAMES, SETUP_NAMES};
use softring_engine::stats::{NAME, OPS, read};
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
    routes: Routes,
    reissue: Reissue,
    /// SQEs taken, by operation; those that were not used are left out.
    ops: BTreeMap<String, u64>,
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

impl Ring {
    fn new(r: &read::Ring) -> Ring {
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
    Process {
        pid: page.pid.cast_signed(),
        command: command.trim_end().to_owned(),
        unseen_rings: page.unseen,
        rings: page.rings.iter().map(Ring::new).collect(),
        ended: Ring::new(&page.ended),
    }
}

fn number(n: u64) -> Cell {
    Cell::new(n).set_alignment(CellAlignment::Right)
}

fn print(p: &Process) -> anyhow::Result<()> {
    let rows: Vec<&Ring> =
        p.rings.iter().chain((p.ended.submitted > 0).then_some(&p.ended)).collect();
    out::line(&format!("{} ({}): {} open ring(s)", p.pid, p.command, p.rings.len()))?;
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
