//! The table that `top` shows, as lines of cells: the same on a terminal and in a pipe.

use super::sample::{ProcessRow, Rates, Thread};
use crate::out::{bytes_short, count_short, ns_short};
use clap::ValueEnum;

/// Order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    #[default]
    Iops,
    Bytes,
    Cpu,
    P99,
    Inflight,
    Pid,
}

/// Subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Process,
    Ring,
    Thread,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub kind: Kind,
    /// Process that the line belongs to.
    pub pid: i32,
    pub cells: [String; COLUMNS],
}

pub const COLUMNS: usize = 12;
/// Column that is there only if a process is in a container.
const CONTAINER: usize = 1;
/// Header and width of each column, and whether its cells are right-aligned.
pub const HEADER: [(&str, usize, bool); COLUMNS] = [
    ("PROCESS", 18, false),
    ("CONTAINER", 12, false),
    ("IOPS", 6, true),
    ("READ/s", 6, true),
    ("WRIT/s", 6, true),
    ("P50", 5, true),
    ("P99", 5, true),
    ("INFL", 4, true),
    ("CPU%", 5, true),
    ("WORK%", 5, true),
    ("ROUTES", 11, false),
    ("WORKERS  OPERATIONS", 0, false),
];

/// Sorts processes, and the rings of each.
pub fn sort(rows: &mut [ProcessRow], by: Sort, reverse: bool) {
    let key = |r: &Rates, cpu: f64| match by {
        Sort::Iops => r.iops,
        Sort::Bytes => r.read_bytes + r.written_bytes,
        Sort::Cpu => cpu,
        Sort::P99 => r.p99_ns.unwrap_or(0) as f64,
        Sort::Inflight => r.in_flight as f64,
        Sort::Pid => 0.0,
    };
    for row in rows.iter_mut() {
        let cpu = |t: &Option<Thread>| t.as_ref().map_or(0.0, |t| t.cpu_percent);
        row.rings.sort_by(|a, b| {
            let (x, y) = (key(&a.rates, cpu(&a.sq_thread)), key(&b.rates, cpu(&b.sq_thread)));
            y.total_cmp(&x).then(a.id.cmp(&b.id))
        });
        if reverse {
            row.rings.reverse();
        }
    }
    rows.sort_by(|a, b| {
        let (x, y) = (key(&a.rates, a.cpu_percent), key(&b.rates, b.cpu_percent));
        y.total_cmp(&x).then(a.pid.cmp(&b.pid))
    });
    if reverse {
        rows.reverse();
    }
}

/// Returns the lines of the table; the rings of processes that `folded` names are left out.
pub fn lines(rows: &[ProcessRow], folded: impl Fn(i32) -> bool) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in rows {
        let name = format!("{} {}", row.pid, row.command);
        let cpu = [format!("{:.0}", row.cpu_percent), String::new()];
        let mut of_process = line(Kind::Process, row.pid, name, &row.rates, cpu);
        of_process.cells[CONTAINER] = row.container.clone().unwrap_or_default();
        lines.push(of_process);
        if folded(row.pid) {
            continue;
        }
        for ring in &row.rings {
            let polls = [("SQPOLL", "sqpoll"), ("IOPOLL", "iopoll")];
            let set = polls.iter().filter(|(flag, _)| ring.setup_flags.contains(flag));
            let names: String = set.map(|(_, name)| format!(" {name}")).collect();
            let name = format!("  ring {}{names}", ring.id);
            lines.push(line(Kind::Ring, row.pid, name, &ring.rates, Default::default()));
            lines.extend(ring.sq_thread.iter().map(|t| thread_line(row.pid, t, 4)));
        }
        lines.extend(row.meters.iter().map(|t| thread_line(row.pid, t, 2)));
    }
    lines
}

fn line(kind: Kind, pid: i32, name: String, r: &Rates, [cpu, work]: [String; 2]) -> Line {
    let share = |(name, n): &(&str, f64)| {
        let all: f64 = r.routes.iter().map(|(_, n)| n).sum();
        format!("{name} {:.0}%", n * 100.0 / all.max(f64::MIN_POSITIVE))
    };
    let routes: Vec<String> = r.routes.iter().map(share).collect();
    let ops: Vec<String> =
        r.ops.iter().take(4).map(|(op, n)| format!("{op} {}", count_short(*n))).collect();
    let workers = if r.workers == 0 {
        "-".to_owned()
    } else {
        format!("{}/{}", r.workers_running, r.workers)
    };
    let latency = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), ns_short);
    let cells = [
        name,
        String::new(),
        count_short(r.iops),
        bytes_short(r.read_bytes),
        bytes_short(r.written_bytes),
        latency(r.p50_ns),
        latency(r.p99_ns),
        r.in_flight.to_string(),
        cpu,
        work,
        routes.join(" "),
        format!("{workers:<7}  {}", ops.join(" ")),
    ];
    Line { kind, pid, cells }
}

fn thread_line(pid: i32, t: &Thread, indent: usize) -> Line {
    let name = if t.kind == "sq-thread" { "sq thread" } else { &t.name };
    let mut cells: [String; COLUMNS] = Default::default();
    cells[0] = format!("{:indent$}{name} {}", "", t.tid);
    cells[8] = format!("{:.0}", t.cpu_percent);
    cells[9] = format!("{:.1}", t.work_percent);
    Line { kind: Kind::Thread, pid, cells }
}

/// Returns the widths of the columns that these processes need, out of `width`. The rest goes to
/// the first column, then to the routes, then to the operations, which show only if there is room
/// for all.
pub fn widths(width: usize, rows: &[ProcessRow]) -> [usize; COLUMNS] {
    let mut widths = HEADER.map(|(_, width, _)| width);
    if rows.iter().all(|row| row.container.is_none()) {
        widths[CONTAINER] = 0;
    }
    // Each column but the last has a space behind it.
    let fixed = widths.iter().filter(|w| **w > 0).map(|w| w + 1).sum::<usize>().saturating_sub(1);
    let left = width.saturating_sub(fixed);
    let name = left.min(10);
    widths[0] += name;
    let routes = (left - name).min(24);
    widths[10] += routes;
    widths[11] = (left - name - routes).saturating_sub(1);
    widths
}

/// Formats a line, no longer than it must be.
pub fn text(cells: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let mut text = String::new();
    for (at, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        if width == 0 {
            continue;
        }
        let cell: String = cell.chars().take(width).collect();
        let pad = " ".repeat(width - cell.chars().count());
        let (before, after) =
            if HEADER[at].2 { (pad, String::new()) } else { (String::new(), pad) };
        text += &format!("{}{before}{cell}{after}", if at == 0 { "" } else { " " });
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the header's cells.
pub fn header() -> [String; COLUMNS] {
    HEADER.map(|(name, ..)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, iops: f64) -> ProcessRow {
        let rates = Rates {
            iops,
            p99_ns: Some(1500),
            routes: vec![("aio", 90.0), ("inline", 10.0)],
            ops: vec![("read".into(), iops)],
            ..Rates::default()
        };
        let thread = |kind| Thread {
            name: "poll".into(),
            kind,
            tid: 7,
            cpu_percent: 99.6,
            work_percent: 2.5,
        };
        let ring = super::super::sample::RingRow {
            id: 1,
            setup_flags: vec!["SQPOLL"],
            rates: rates.clone(),
            sq_thread: Some(thread("sq-thread")),
        };
        let command = "fio-with-a-long-name".into();
        let (rings, meters) = (vec![ring], vec![thread("program")]);
        ProcessRow { pid, command, container: None, cpu_percent: 55.0, rates, rings, meters }
    }

    #[test]
    fn eighty_columns_hide_only_the_last_column() {
        let w = widths(80, &[]);
        assert_eq!(w.iter().filter(|w| **w > 0).count(), COLUMNS - 2);
        for l in lines(&[row(1_234_567, 1e6)], |_| false) {
            assert!(text(&l.cells, &w).chars().count() <= 80);
        }
        assert!(text(&header(), &w).chars().count() <= 80);
        for width in 0..200 {
            let used: usize = widths(width, &[]).iter().filter(|w| **w > 0).map(|w| w + 1).sum();
            assert!(used <= width.max(80) + 1, "{width}");
        }
    }

    #[test]
    fn lines_form_a_tree() {
        let all = lines(&[row(1, 5.0), row(2, 7.0)], |pid| pid == 2);
        let kinds: Vec<Kind> = all.iter().map(|l| l.kind).collect();
        use Kind::{Process, Ring, Thread};
        assert_eq!(kinds, [Process, Ring, Thread, Thread, Process]);
        let w = widths(140, &[]);
        assert_eq!(
            text(&all[2].cells, &w).split_whitespace().collect::<Vec<_>>(),
            ["sq", "thread", "7", "100", "2.5"]
        );
        let process = text(&all[0].cells, &w);
        assert!(process.contains("aio 90% inline 10%") && process.contains("read 5"), "{process}");
    }

    #[test]
    fn containers_add_a_column() {
        let mut rows = [row(1, 5.0), row(2, 7.0)];
        let shown = |rows: &[ProcessRow]| {
            let w = widths(140, rows);
            let all =
                [header()].into_iter().chain(lines(rows, |_| true).into_iter().map(|l| l.cells));
            all.map(|cells| text(&cells, &w)).collect::<Vec<_>>()
        };
        assert!(!shown(&rows)[0].contains("CONTAINER"));
        rows[1].container = Some("0123456789ab".into());
        let lines = shown(&rows);
        assert!(lines[0].contains("CONTAINER") && lines[2].contains(" 0123456789ab "), "{lines:?}");
    }

    #[test]
    fn the_busiest_is_first() {
        let mut rows = [row(1, 5.0), row(2, 7.0), row(3, 7.0)];
        let pids = |rows: &[ProcessRow]| rows.iter().map(|r| r.pid).collect::<Vec<_>>();
        sort(&mut rows, Sort::Iops, false);
        assert_eq!(pids(&rows), [2, 3, 1]);
        sort(&mut rows, Sort::Pid, false);
        assert_eq!(pids(&rows), [1, 2, 3]);
        sort(&mut rows, Sort::Pid, true);
        assert_eq!(pids(&rows), [3, 2, 1]);
    }
}
