//! Two readings of all pages, and what lies between them: processes, their rings, the threads that
//! poll.

use crate::files;
use crate::stats::json::{Meter, setup_flags};
use crate::stats::pages::{self, All, Reading, op_name};
use serde::Serialize;
use softring_engine::stats::{OPS, read};
use std::collections::HashMap;
use std::time::Instant;

/// All pages at one moment.
#[derive(Debug)]
pub struct Tick {
    at: Instant,
    processes: HashMap<i32, Seen>,
    /// Processes with pages that softring does not make.
    pub foreign: Vec<i32>,
}

#[derive(Debug)]
struct Seen {
    reading: Reading,
    meters: Vec<Meter>,
    /// Processor time of the whole process, in µs.
    cpu_us: u64,
}

impl Tick {
    /// Reads every page there is, or the page of one process.
    pub fn take(only: Option<i32>) -> anyhow::Result<Tick> {
        let all = match only {
            Some(pid) => {
                let reading = pages::open(pid).ok().flatten().and_then(|s| s.read());
                All { readings: reading.into_iter().collect(), foreign: Vec::new() }
            }
            None => All::read()?,
        };
        let seen = |reading: Reading| {
            let pid = reading.pid;
            let meters = reading.page.meters.iter().map(|m| Meter::new(pid, m)).collect();
            (pid, Seen { reading, meters, cpu_us: cpu_us(pid) })
        };
        let processes = all.readings.into_iter().map(seen).collect();
        Ok(Tick { at: Instant::now(), processes, foreign: all.foreign })
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }
}

/// Returns user and system time of a process, of all its threads; 0 if it is gone.
fn cpu_us(pid: i32) -> u64 {
    let stat = files::proc_text(&format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let field = |n: usize| rest.split_whitespace().nth(n).and_then(|w| w.parse::<u64>().ok());
    let ticks = field(11).unwrap_or(0) + field(12).unwrap_or(0);
    ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// Rates per second of a process or a ring, and its present state.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rates {
    /// Completions per second.
    pub iops: f64,
    pub errors: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Median latency of requests that ended between the readings.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub in_flight: u64,
    pub overflowed: f64,
    /// Workers that run something; `workers` counts all.
    pub workers_running: u64,
    pub workers: u64,
    /// Requests per second by route, most first; unused routes are left out.
    pub routes: Vec<(&'static str, f64)>,
    /// Requests per second by operation, most first.
    pub ops: Vec<(String, f64)>,
}

/// A thread that polls: its share of a processor, and the part of that which is work.
#[derive(Clone, Debug, Serialize)]
pub struct Thread {
    pub name: String,
    pub kind: &'static str,
    pub tid: u64,
    pub cpu_percent: f64,
    pub work_percent: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RingRow {
    pub id: u64,
    pub setup_flags: Vec<&'static str>,
    #[serde(flatten)]
    pub rates: Rates,
    /// The ring's SQ thread, at the first of the rings that share it.
    pub sq_thread: Option<Thread>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProcessRow {
    pub pid: i32,
    pub command: String,
    /// Container that the process is in, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    pub cpu_percent: f64,
    #[serde(flatten)]
    pub rates: Rates,
    pub rings: Vec<RingRow>,
    /// Threads of the program's own that have a work meter.
    pub meters: Vec<Thread>,
}

/// Returns the rates between two readings. A process or ring that is new counts from its beginning.
pub fn between(before: &Tick, now: &Tick) -> Vec<ProcessRow> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let of = |(pid, seen): (&i32, &Seen)| process(before.processes.get(pid), seen, seconds);
    let mut rows: Vec<ProcessRow> = now.processes.iter().map(of).collect();
    rows.sort_by_key(|row| row.pid);
    rows
}

fn process(before: Option<&Seen>, now: &Seen, seconds: f64) -> ProcessRow {
    let old = before.map(|b| &b.reading.page);
    let page = &now.reading.page;
    let mut all = total(page);
    if let Some(old) = old {
        all.subtract(&total(old));
    }
    let mut threads: Vec<Thread> = now.meters.iter().map(|m| thread(before, m, seconds)).collect();
    let ring = |ring: &read::Ring| {
        let mut between = ring.clone();
        if let Some(old) = old.and_then(|p| p.rings.iter().find(|old| old.id() == ring.id())) {
            between.subtract(old);
        }
        let sq = |t: &Thread| t.kind == "sq-thread" && t.tid == ring.sq_thread();
        let sq_thread = threads.iter().position(sq).map(|at| threads.remove(at));
        let setup_flags = setup_flags(ring.flags());
        RingRow { id: ring.id(), setup_flags, rates: rates(&between, seconds), sq_thread }
    };
    let rings: Vec<RingRow> = page.rings.iter().map(ring).collect();
    let mut rates = rates(&all, seconds);
    let mut pools: Vec<read::Pool> = page.rings.iter().filter_map(|r| r.pool).collect();
    pools.sort_by_key(|pool| pool.slot);
    pools.dedup_by_key(|pool| pool.slot);
    (rates.workers_running, rates.workers) = pools.iter().map(workers).fold((0, 0), add);
    let cpu = before.map_or(0, |b| now.cpu_us.saturating_sub(b.cpu_us));
    ProcessRow {
        pid: now.reading.pid,
        command: now.reading.command.clone(),
        container: now.reading.container.clone(),
        cpu_percent: percent(cpu, seconds),
        rates,
        rings,
        meters: threads,
    }
}

fn add(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

fn workers(pool: &read::Pool) -> (u64, u64) {
    let of = |a: &read::Account| (a.running(), a.workers);
    add(of(&pool.bound), of(&pool.unbound))
}

/// Sums up everything that a process's rings did.
pub fn total(page: &read::Page) -> read::Ring {
    let mut all = page.ended.clone();
    page.rings.iter().for_each(|ring| all.add(ring));
    all
}

fn thread(before: Option<&Seen>, now: &Meter, seconds: f64) -> Thread {
    let old = before.and_then(|b| b.meters.iter().find(|m| m.tid == now.tid && m.kind == now.kind));
    let since = |now: u64, old: Option<u64>| percent(now.saturating_sub(old.unwrap_or(0)), seconds);
    Thread {
        name: now.name.clone(),
        kind: now.kind,
        tid: now.tid,
        cpu_percent: since(now.total_us, old.map(|m| m.total_us)),
        work_percent: since(now.work_us, old.map(|m| m.work_us)),
    }
}

/// Returns the percentage of one processor.
fn percent(us: u64, seconds: f64) -> f64 {
    us as f64 / seconds / 10_000.0
}

fn rates(between: &read::Ring, seconds: f64) -> Rates {
    let per_second = |n: u64| n as f64 / seconds;
    let most_first = |n: &(_, f64), m: &(_, f64)| m.1.total_cmp(&n.1);
    let routes = [
        ("inline", between.inline()),
        ("poll", between.poll()),
        ("aio", between.aio()),
        ("worker", between.worker()),
        ("model", between.model()),
        ("queued", between.queued()),
    ];
    let routes = routes.into_iter().filter(|(_, n)| *n > 0);
    let mut routes: Vec<(&str, f64)> = routes.map(|(route, n)| (route, per_second(n))).collect();
    routes.sort_by(most_first);
    let used = (0..OPS).filter(|&op| between.ops(op) > 0);
    let mut ops: Vec<(String, f64)> =
        used.map(|op| (op_name(op), per_second(between.ops(op)))).collect();
    ops.sort_by(|n, m| m.1.total_cmp(&n.1));
    let latencies = between.all_latencies();
    let (workers_running, workers) = between.pool.as_ref().map_or((0, 0), workers);
    Rates {
        iops: per_second(between.cqes()),
        errors: per_second(between.errors()),
        read_bytes: per_second(between.read_bytes()),
        written_bytes: per_second(between.written_bytes()),
        p50_ns: latencies.quantile(0.5),
        p99_ns: latencies.quantile(0.99),
        in_flight: between.in_flight(),
        overflowed: per_second(between.overflowed()),
        workers_running,
        workers,
        routes,
        ops,
    }
}
