//! Contents of a page, as JSON.

use super::pages::{Reading, op_name};
use serde::Serialize;
use softring_engine::stats::{OPS, bounds, meter, read};
use softring_uapi::{SETUP_NAMES, names_of};
use std::collections::BTreeMap;
use std::fs;

/// One process.
#[derive(Debug, Serialize)]
pub struct Process {
    pub pid: i32,
    pub command: String,
    /// Container that the process is in, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Rings that did not fit on the statistics page.
    pub unseen_rings: u64,
    /// Operations of rings whose latencies found no room.
    pub unseen_latencies: u64,
    pub rings: Vec<Ring>,
    /// Meters of threads that say when they work.
    pub meters: Vec<Meter>,
    /// Sum of the rings that are closed.
    pub ended: Ring,
}

/// One ring.
#[derive(Debug, Serialize)]
pub struct Ring {
    pub id: u64,
    setup_flags: Vec<&'static str>,
    sq_entries: u64,
    cq_entries: u64,
    in_flight: u64,
    pub enters: u64,
    pub submitted: u64,
    pub cqes: u64,
    pub errors: u64,
    overflowed: u64,
    read_bytes: u64,
    written_bytes: u64,
    #[serde(flatten)]
    pub sq: Option<Sq>,
    pub routes: Routes,
    pub reissue: Reissue,
    pub idle_sleeps: IdleSleeps,
    /// Delay with which completions of modelled disks were seen, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_late: Option<Late>,
    /// The ring's workers, if it has needed any; rings with the same `pool` share them.
    workers: Option<Workers>,
    /// SQEs taken, by operation; operations that were not used are left out.
    pub ops: BTreeMap<String, u64>,
    /// Requests that failed, by operation.
    op_errors: BTreeMap<String, u64>,
    /// Latencies by operation.
    latency: BTreeMap<String, Latency>,
}

/// A ring's SQ thread, as the kernel's fdinfo tells of it. Times are processor time in µs.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Sq {
    pub sq_thread: i64,
    pub sq_thread_cpu: i64,
    pub sq_total_time: u64,
    pub sq_work_time: u64,
}

/// A thread's own account of its work.
#[derive(Debug, Serialize)]
pub struct Meter {
    pub name: String,
    pub kind: &'static str,
    pub tid: u64,
    pub cpu: u64,
    /// Processor time of the thread since it has had the meter, in µs.
    pub total_us: u64,
    /// The part of that time in which it worked.
    pub work_us: u64,
    pub stretches: u64,
    /// Sleeps between submissions (`--sq-idle=sleep`), the number that were too long, and the time
    /// slept.
    pub idle_sleeps: u64,
    pub idle_sleeps_over: u64,
    pub idle_slept_us: u64,
}

#[derive(Debug, Serialize)]
pub struct Routes {
    pub inline: u64,
    pub poll: u64,
    pub aio: u64,
    pub worker: u64,
    pub model: u64,
    pub queued: u64,
}

#[derive(Debug, Serialize)]
pub struct Reissue {
    pub done_at_once: u64,
    pub armed: u64,
    pub ready_at_arm: u64,
    pub reissued: u64,
    pub aborted: u64,
    pub capped: u64,
}

#[derive(Debug, Serialize)]
pub struct IdleSleeps {
    pub idle_sleeps: u64,
    pub under: u64,
    pub over: u64,
    pub spared_ns: u64,
    pub spun_ns: u64,
}

/// Delays between a modelled disk's completions and the moments at which they were seen, in ns.
/// Rings that have ended have a mean only.
#[derive(Debug, Serialize)]
pub struct Late {
    pub completions: u64,
    pub mean_ns: u64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Workers {
    pool: u64,
    bounded: Account,
    unbounded: Account,
}

#[derive(Debug, Serialize)]
struct Account {
    running: u64,
    idle: u64,
    queued: u64,
    max: u64,
}

/// Latencies of one operation, in ns.
#[derive(Debug, Serialize)]
pub struct Latency {
    pub count: u64,
    pub mean_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    /// Buckets that are not empty: the least value, the first that is too large, the count.
    buckets: Vec<(u64, u64, u64)>,
}

impl From<&read::Latencies> for Latency {
    fn from(l: &read::Latencies) -> Latency {
        let used = l.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        let bucket = |(at, &n): (usize, &u64)| (bounds(at).0, bounds(at).1, n);
        Latency {
            count: l.count(),
            mean_ns: l.mean(),
            p50_ns: l.quantile(0.5),
            p90_ns: l.quantile(0.9),
            p99_ns: l.quantile(0.99),
            p999_ns: l.quantile(0.999),
            buckets: used.map(bucket).collect(),
        }
    }
}

impl From<read::Account> for Account {
    fn from(a: read::Account) -> Account {
        Account { running: a.running(), idle: a.idle, queued: a.queued, max: a.max }
    }
}

/// Returns the names of the set-up flags that are set.
pub fn setup_flags(flags: u64) -> Vec<&'static str> {
    names_of(flags, &SETUP_NAMES).collect()
}

impl Meter {
    /// Makes a meter. A thread that polls in vain writes nothing: its total comes from its clock.
    pub fn new(pid: i32, m: &read::Meter) -> Meter {
        let clock = fs::read_to_string(format!("/proc/{pid}/task/{}/schedstat", m.tid()));
        let ns = clock.ok().and_then(|c| c.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        Meter {
            name: m.name(),
            kind: if m.kind() == meter::Kind::SqThread as u64 { "sq-thread" } else { "program" },
            tid: m.tid(),
            cpu: m.cpu(),
            total_us: m.total_us_at(ns),
            work_us: m.work_us(),
            stretches: m.stretches(),
            idle_sleeps: m.idle_sleeps(),
            idle_sleeps_over: m.idle_sleeps_over(),
            idle_slept_us: m.idle_slept_us(),
        }
    }
}

impl Ring {
    /// Returns the ring's SQ thread; -1, -1, 0, 0 if the thread is gone, as in fdinfo.
    fn sq(r: &read::Ring, meters: &[Meter]) -> Option<Sq> {
        if r.flags() & u64::from(softring_uapi::IORING_SETUP_SQPOLL) == 0 {
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

    pub fn new(r: &read::Ring, meters: &[Meter]) -> Ring {
        let by_op = |n: &dyn Fn(usize) -> u64| {
            (0..OPS).filter(|&op| n(op) > 0).map(|op| (op_name(op), n(op))).collect()
        };
        let latency = r.latencies.iter().filter(|(_, l)| l.count() > 0);
        Ring {
            id: r.id(),
            setup_flags: setup_flags(r.flags()),
            sq_entries: r.sq_entries(),
            cq_entries: r.cq_entries(),
            in_flight: r.in_flight(),
            enters: r.enters(),
            submitted: r.submitted(),
            cqes: r.cqes(),
            errors: r.errors(),
            overflowed: r.overflowed(),
            read_bytes: r.read_bytes(),
            written_bytes: r.written_bytes(),
            sq: Ring::sq(r, meters),
            routes: Routes::from(r),
            reissue: Reissue {
                done_at_once: r.at_once(),
                armed: r.armed(),
                ready_at_arm: r.ready_at_arm(),
                reissued: r.reissued(),
                aborted: r.aborted(),
                capped: r.capped(),
            },
            idle_sleeps: IdleSleeps {
                idle_sleeps: r.idle_sleeps(),
                under: r.idle_sleeps_under(),
                over: r.idle_sleeps_over(),
                spared_ns: r.spared_ns(),
                spun_ns: r.spun_ns(),
            },
            model_late: late(r),
            workers: r.pool.map(|pool| Workers {
                pool: pool.slot,
                bounded: pool.bound.into(),
                unbounded: pool.unbound.into(),
            }),
            ops: by_op(&|op| r.ops(op)),
            op_errors: by_op(&|op| r.op_errors(op)),
            latency: latency.map(|(&op, l)| (op_name(op), l.into())).collect(),
        }
    }
}

fn late(r: &read::Ring) -> Option<Late> {
    let mean_ns = r.late_ns().checked_div(r.late_seen())?;
    let own = |n: u64| (r.id() != 0).then_some(n);
    let (p50_ns, p99_ns) = (own(r.late_p50_ns()), own(r.late_p99_ns()));
    Some(Late { completions: r.late_seen(), mean_ns, p50_ns, p99_ns })
}

impl From<&read::Ring> for Routes {
    fn from(r: &read::Ring) -> Routes {
        Routes {
            inline: r.inline(),
            poll: r.poll(),
            aio: r.aio(),
            worker: r.worker(),
            model: r.model(),
            queued: r.queued(),
        }
    }
}

impl From<&Reading> for Process {
    fn from(p: &Reading) -> Process {
        let meters: Vec<Meter> = p.page.meters.iter().map(|m| Meter::new(p.pid, m)).collect();
        Process {
            pid: p.pid,
            command: p.command.clone(),
            container: p.container.clone(),
            unseen_rings: p.page.unseen_rings,
            unseen_latencies: p.page.unseen_hists,
            rings: p.page.rings.iter().map(|r| Ring::new(r, &meters)).collect(),
            ended: Ring::new(&p.page.ended, &[]),
            meters,
        }
    }
}
