//! The trace as Chrome's Trace Event Format, which ui.perfetto.dev and chrome://tracing show.
//!
//! A request is a slice on a track of its ring. Its waits lie inside, if there was more than one.
//! The work of a thread is slices on that thread's track. An arrow leads from the thread that took
//! a request to the thread that completed it, if they differ. Events are short: a trace soon has a
//! million of them.

use super::counters::points;
use super::faults::fault_name;
use super::record::{Record, Recorded, began};
use super::tracks::{Position, Tracks};
use crate::stats::pages::op_name;
use crate::strace::{file_name, select::Select};
use anyhow::Context;
use serde_json::{Value, json};
use softring_engine::stats::clean::printable;
use softring_engine::stats::trace::{Event, FIXED, Step, TEXT_STRUCTURE};
use softring_uapi::{IOSQE_FIXED_FILE, SETUP_NAMES, io_uring_sqe, names_of};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Contents of the file.
#[derive(Debug, Default)]
pub struct Written {
    pub events: usize,
    /// Requests that began; `unfinished` counts those that had not ended.
    pub requests: u64,
    pub unfinished: u64,
}

/// A request that has begun.
struct Life {
    opcode: u8,
    /// Arguments shown for it, as JSON.
    args: String,
    /// Present phase, and when it began.
    phase: Option<(&'static str, u64)>,
    /// Waits that are over: name, beginning and end.
    waited: Vec<(&'static str, u64, u64)>,
    began: u64,
    tid: u32,
    position: Position,
    /// Names of the faults injected into it.
    faults: Vec<&'static str>,
}

struct Writer<'a, W, F> {
    out: W,
    record: &'a Record,
    select: Select,
    /// Conversion of ticks to µs.
    at: F,
    tracks: Tracks,
    lives: HashMap<(u32, u32), Life>,
    names: HashMap<(u32, bool, i32), String>,
    local: Vec<u8>,
    /// Time for which a thread slept in its present call, by source and thread, in ns.
    slept: HashMap<(u32, u32), u64>,
    written: Written,
    flows: u64,
    first: bool,
    error: io::Result<()>,
}

/// Returns what a request does after a step.
pub fn phase(step: Step) -> Option<&'static str> {
    Some(match step {
        Step::Submit => "submit",
        Step::Issue => "issue",
        Step::Armed => "armed",
        Step::Reissue => "reissue",
        Step::Punt => "punted",
        Step::Aio => "aio",
        Step::Model => "model",
        Step::Queued => "queued",
        Step::Drained => "drained",
        _ => return None,
    })
}

/// Writes the file. `events` are in order, and `at` converts their times to µs from `start` on.
pub fn write(
    out: impl Write,
    events: &[Recorded],
    record: &Record,
    select: Select,
    at: impl Fn(u64) -> f64,
    about: &Value,
) -> anyhow::Result<Written> {
    let mut w = Writer {
        out,
        record,
        select,
        at,
        tracks: Tracks::default(),
        lives: HashMap::new(),
        names: record.names.clone(),
        local: Vec::new(),
        slept: HashMap::new(),
        written: Written { events: events.len(), ..Written::default() },
        flows: 0,
        first: true,
        error: Ok(()),
    };
    w.raw("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    w.thread_names();
    for kept in events {
        w.event(kept);
    }
    w.unfinished(events.last().map_or(0, |k| k.event.time));
    w.counters(events);
    let mut other = about.clone();
    let counts = [w.written.events as u64, w.written.requests, w.written.unfinished];
    for (name, n) in ["events", "requests", "unfinished"].into_iter().zip(counts) {
        other[name] = n.into();
    }
    w.raw(&format!("\n],\"otherData\":{other}}}\n"));
    w.error.and_then(|()| w.out.flush()).context("cannot write the trace")?;
    Ok(w.written)
}

impl<W: Write, F: Fn(u64) -> f64> Writer<'_, W, F> {
    fn raw(&mut self, text: &str) {
        if self.error.is_ok() {
            self.error = self.out.write_all(text.as_bytes());
        }
    }

    fn put(&mut self, event: &str) {
        let comma = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        self.raw(comma);
        self.raw(event);
    }

    fn name(&mut self, what: &str, pid: u32, tid: Option<u32>, name: &str) {
        let mut event = json!({"ph": "M", "pid": pid, "name": what, "args": {"name": name}});
        if let Some(tid) = tid {
            event["tid"] = tid.into();
        }
        self.put(&event.to_string());
    }

    /// Writes the names of processes and threads.
    fn thread_names(&mut self) {
        let record = self.record;
        let mut pids: Vec<(u32, &str)> =
            record.sources.iter().map(|s| (s.pid, s.comm.as_str())).collect();
        pids.sort_unstable();
        pids.dedup_by_key(|(pid, _)| *pid);
        for (pid, comm) in pids {
            let place = record.containers.get(&pid).map_or("", String::as_str);
            self.name("process_name", pid, None, &format!("{comm}{place}"));
        }
        let mut threads: Vec<_> = record.threads.iter().collect();
        threads.sort_unstable();
        for ((pid, tid), name) in threads {
            let name = if name.is_empty() { "thread" } else { name };
            self.name("thread_name", *pid, Some(*tid), name);
        }
    }

    /// Writes a slice, from one moment to another in ticks.
    fn slice(&mut self, name: &str, pid: u32, tid: u32, from: u64, to: u64, args: &str) {
        let (ts, end) = ((self.at)(from), (self.at)(to));
        let dur = ((end - ts).max(0.0) * 1000.0).round() / 1000.0;
        let args = if args.is_empty() { String::new() } else { format!(",\"args\":{{{args}}}") };
        self.put(&format!(
            "{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\
             \"dur\":{dur}{args}}}"
        ));
    }

    fn event(&mut self, kept: &Recorded) {
        let e = &kept.event;
        match e.step {
            Step::Inline => {
                let from = began(e);
                if self.select.shows(e.opcode, e.value, self.ns(from, e.time)) {
                    let (position, life) = self.begin(kept, from);
                    self.tracks.give(position, e.time);
                    self.end(&life, e.time, Some(e.value));
                }
            }
            Step::Text => self.text(kept),
            Step::Name | Step::Address => self.file(kept),
            step if step.is_span() => self.span(kept),
            _ if e.req != 0 => self.step(kept),
            _ => {}
        }
    }

    fn ns(&self, from: u64, to: u64) -> u64 {
        (((self.at)(to) - (self.at)(from)).max(0.0) * 1000.0) as u64
    }

    /// Begins a request, on a track of its ring.
    fn begin(&mut self, kept: &Recorded, from: u64) -> (Position, Life) {
        let e = &kept.event;
        let source = &self.record.sources[kept.source as usize];
        let (position, new) = self.tracks.take(kept.source, from);
        if new {
            let flags: Vec<&str> = names_of(source.flags, &SETUP_NAMES).collect();
            let track = match flags.as_slice() {
                [] => format!("ring {}", source.ring),
                flags => format!("ring {} ({})", source.ring, flags.join(", ")),
            };
            let tid = self.tracks.tid(position);
            self.name("thread_name", source.pid, Some(tid), &track);
        }
        let args = self.arguments(kept);
        let (phase, waited, faults) = (None, Vec::new(), Vec::new());
        let (opcode, tid, began) = (e.opcode, e.tid, from);
        (position, Life { opcode, args, phase, waited, began, tid, position, faults })
    }

    /// Formats the arguments of an SQE.
    fn arguments(&self, kept: &Recorded) -> String {
        let e = &kept.event;
        let mut args = String::new();
        // Writing to a string does not fail.
        if let Some(sqe) = e.sqe(&kept.more) {
            let file = self.names.get(&(kept.source, sqe.flags & IOSQE_FIXED_FILE != 0, sqe.fd));
            let _ = write!(args, "\"fd\":{}", sqe.fd);
            if let Some(file) = file {
                let _ = write!(args, ",\"path\":{}", Value::from(file.as_str()));
            }
            if has_place(&sqe) {
                let _ = write!(args, ",\"off\":{},\"len\":{}", sqe.off.cast_signed(), sqe.len);
            } else if sqe.len != 0 {
                let _ = write!(args, ",\"len\":{}", sqe.len);
            }
        }
        if e.data != 0 {
            let comma = if args.is_empty() { "" } else { "," };
            let _ = write!(args, "{comma}\"user_data\":\"{:#x}\"", e.data);
        }
        args
    }

    fn text(&mut self, kept: &Recorded) {
        let e = &kept.event;
        let Some(life) = self.lives.get_mut(&(kept.source, e.req)) else { return };
        if e.value != TEXT_STRUCTURE {
            let name = if e.value == 0 { "name" } else { "name2" };
            let text = Value::from(printable(&kept.bytes()));
            let comma = if life.args.is_empty() { "" } else { "," };
            let _ = write!(life.args, "{comma}\"{name}\":{text}");
        }
    }

    fn file(&mut self, kept: &Recorded) {
        let key = (kept.source, kept.event.flags & FIXED != 0, kept.event.value);
        if let Some(name) = file_name(&kept.event, kept.bytes(), &mut self.local) {
            self.names.insert(key, name);
        }
    }

    fn step(&mut self, kept: &Recorded) {
        let e = &kept.event;
        let key = (kept.source, e.req);
        let mut life = match self.lives.remove(&key) {
            Some(life) => life,
            // A request that began before the trace is shown from its next phase on.
            None if phase(e.step).is_none() => return,
            None => self.begin(kept, e.time).1,
        };
        if e.step == Step::Fault {
            self.mark(kept, &mut life);
            self.lives.insert(key, life);
            return;
        }
        if e.step == Step::More {
            if self.select.shows(life.opcode, e.value, self.ns(life.began, e.time)) {
                let (pid, tid) = (self.pid(kept.source), self.tracks.tid(life.position));
                let (ts, res) = ((self.at)(e.time), e.value);
                self.put(&format!(
                    "{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"cqe\",\"pid\":{pid},\"tid\":{tid},\
                     \"ts\":{ts},\"args\":{{\"res\":{res}}}}}"
                ));
            }
            self.lives.insert(key, life);
            return;
        }
        life.leave(e.time);
        if let Some(new) = phase(e.step) {
            life.phase = Some((new, e.time));
            self.lives.insert(key, life);
            return;
        }
        self.tracks.give(life.position, e.time);
        if self.select.shows(life.opcode, e.value, self.ns(life.began, e.time)) {
            self.end(&life, e.time, Some(e.value));
            if life.tid != e.tid && !life.waited.is_empty() {
                self.arrow(self.pid(kept.source), &life, e);
            }
        }
    }

    /// Marks the moment at which a fault was injected.
    fn mark(&mut self, kept: &Recorded, life: &mut Life) {
        let e = &kept.event;
        let Some(name) = fault_name(e.value) else { return };
        life.faults.push(name);
        let (pid, tid) = (self.pid(kept.source), self.tracks.tid(life.position));
        let ts = (self.at)(e.time);
        self.put(&format!(
            "{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"fault {name}\",\"pid\":{pid},\"tid\":{tid},\
             \"ts\":{ts}}}"
        ));
    }

    fn pid(&self, source: u32) -> u32 {
        self.record.sources[source as usize].pid
    }

    /// Writes a request, ended or not.
    fn end(&mut self, life: &Life, time: u64, res: Option<i32>) {
        self.written.requests += 1;
        let (pid, tid) = (self.pid(life.position.0), self.tracks.tid(life.position));
        let mut args = life.args.clone();
        let comma = if args.is_empty() { "" } else { "," };
        let _ = match res {
            Some(res) => write!(args, "{comma}\"res\":{res}"),
            None => write!(args, "{comma}\"unfinished\":true"),
        };
        if !life.faults.is_empty() {
            let _ = write!(args, ",\"faults\":{}", json!(life.faults));
        }
        match life.waited.as_slice() {
            [] if res.is_some() => args.push_str(",\"inline\":true"),
            [(one, ..)] => _ = write!(args, ",\"route\":\"{one}\""),
            _ => {}
        }
        self.slice(&op_name(life.opcode.into()), pid, tid, life.began, time, &args);
        if life.waited.len() > 1 {
            for (name, from, to) in &life.waited {
                self.slice(name, pid, tid, *from, *to, "");
            }
        }
    }

    /// Writes an arrow from the slice of one thread to that of another.
    fn arrow(&mut self, pid: u32, life: &Life, e: &Event) {
        self.flows += 1;
        let id = self.flows;
        for (ph, tid, at) in [("s", life.tid, life.began), ("f", e.tid, e.time)] {
            let ts = (self.at)(at);
            let bind = if ph == "f" { ",\"bp\":\"e\"" } else { "" };
            self.put(&format!(
                "{{\"ph\":\"{ph}\",\"cat\":\"io\",\"name\":\"io\",\"id\":{id},\"pid\":{pid},\
                 \"tid\":{tid},\"ts\":{ts}{bind}}}"
            ));
        }
    }

    /// Writes what a thread did.
    fn span(&mut self, kept: &Recorded) {
        let e = &kept.event;
        let source = &self.record.sources[kept.source as usize];
        let (pid, ring) = (source.pid, source.ring);
        if e.step == Step::Work && !self.select.ops.has(e.opcode) {
            return;
        }
        let (name, args) = match e.step {
            Step::Enter => {
                let mut args = format!("\"ring\":{ring},\"sqes\":{}", e.value);
                if let Some(ns) = self.slept.remove(&(kept.source, e.tid)) {
                    let _ = write!(args, ",\"slept\":{:.1}", ns as f64 / 1000.0);
                }
                ("enter", args)
            }
            Step::Pass => ("SQ pass", format!("\"ring\":{ring},\"sqes\":{}", e.value)),
            // The call in which the thread slept shows for how long.
            Step::Sleep => {
                let ns = self.ns(began(e), e.time);
                *self.slept.entry((kept.source, e.tid)).or_default() += ns;
                return;
            }
            // Longest time of the sleep, in µs; so many completions end it earlier.
            Step::IdleSleep => {
                let length = f64::from(e.value) / 1000.0;
                ("sleep", format!("\"length\":{length},\"completions\":{}", e.req))
            }
            Step::Work => ("", format!("\"ring\":{ring}")),
            _ => ("drive", format!("\"ring\":{ring}")),
        };
        let work = op_name(e.opcode.into());
        let name = if name.is_empty() { &work } else { name };
        self.slice(name, pid, e.tid, began(e), e.time, &args);
    }

    /// Writes requests that have not ended, up to the end of the trace.
    fn unfinished(&mut self, time: u64) {
        let mut lives: Vec<_> = std::mem::take(&mut self.lives).into_iter().collect();
        lives.sort_unstable_by_key(|(key, _)| *key);
        for (_, mut life) in lives {
            if self.select.failed || !self.select.shows(life.opcode, 0, self.ns(life.began, time)) {
                continue;
            }
            self.written.unfinished += 1;
            life.leave(time);
            self.end(&life, time, None);
        }
    }

    /// Writes the requests in flight and the rate of those that ended, by ring.
    fn counters(&mut self, events: &[Recorded]) {
        for p in points(events, &self.at) {
            let source = &self.record.sources[p.source as usize];
            let (pid, ring, ts) = (source.pid, source.ring, (p.ts * 1000.0).round() / 1000.0);
            for (name, value) in [("in flight", f64::from(p.in_flight)), ("IOPS", p.per_second)] {
                self.put(&format!(
                    "{{\"ph\":\"C\",\"name\":\"{name}, ring {ring}\",\"pid\":{pid},\"ts\":{ts},\
                     \"args\":{{\"n\":{value}}}}}"
                ));
            }
        }
    }
}

impl Life {
    /// Ends the request's phase. A phase that lasts only until the next one is no wait.
    fn leave(&mut self, time: u64) {
        if let Some((name, from)) = self.phase.take()
            && !matches!(name, "submit" | "issue")
        {
            match self.waited.last_mut() {
                // The same wait went on.
                Some((same, _, end)) if *same == name && *end == from => *end = time,
                _ => self.waited.push((name, from, time)),
            }
        }
    }
}

/// Returns whether `off` is a position in a file.
fn has_place(sqe: &io_uring_sqe) -> bool {
    use softring_uapi::*;
    matches!(
        sqe.opcode,
        IORING_OP_READ
            | IORING_OP_WRITE
            | IORING_OP_READV
            | IORING_OP_WRITEV
            | IORING_OP_READ_FIXED
            | IORING_OP_WRITE_FIXED
            | IORING_OP_READV_FIXED
            | IORING_OP_WRITEV_FIXED
            | IORING_OP_FALLOCATE
            | IORING_OP_FADVISE
            | IORING_OP_SYNC_FILE_RANGE
            | IORING_OP_SPLICE
    )
}
