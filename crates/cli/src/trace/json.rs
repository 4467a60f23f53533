//! The trace as Chrome's Trace Event Format, which ui.perfetto.dev and chrome://tracing show.
//!
//! A request is an asynchronous slice with its phases inside; all of one ring have a track
//! together. What a thread did is a slice on that thread's track. An arrow leads from where a
//! request was taken to where it was completed.

use super::record::{Kept, Record, began};
use anyhow::Context;
use serde_json::{Value, json};
use softring_engine::stats::trace::{Event, Step};
use softring_uapi::{OP_NAMES, SETUP_NAMES, names_of};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// What the file holds.
#[derive(Debug, Default)]
pub struct Told {
    pub events: usize,
    /// Requests that began, and of those the ones that had not ended.
    pub requests: u64,
    pub unfinished: u64,
}

/// A request that has begun.
struct Life {
    opcode: u8,
    /// The name of the phase it is in.
    phase: Option<&'static str>,
    /// The arrow's number; 0 until it has had to wait.
    flow: u64,
    taken: (f64, u32),
}

struct Writer<'a> {
    out: BufWriter<File>,
    record: &'a Record,
    lives: HashMap<(u32, u32), Life>,
    told: Told,
    flows: u64,
    /// Numbers of requests that have none of their own.
    inline: u64,
    first: bool,
    error: io::Result<()>,
}

/// An operation as people call it: `recv`.
pub fn op_name(op: u8) -> String {
    let name = OP_NAMES.get(usize::from(op)).map_or("invalid", |name| name);
    name.trim_start_matches("IORING_OP_").to_ascii_lowercase()
}

/// What a request is doing after a step.
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

/// Writes the file. `events` are in order, and `at` tells their times in µs from `start` on.
pub fn write(
    file: File,
    events: &[Kept],
    record: &Record,
    at: impl Fn(u64) -> f64,
    about: &Value,
) -> anyhow::Result<Told> {
    let mut w = Writer {
        out: BufWriter::new(file),
        record,
        lives: HashMap::new(),
        told: Told { events: events.len(), ..Told::default() },
        flows: 0,
        inline: 1 << 32,
        first: true,
        error: Ok(()),
    };
    w.raw("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    w.names();
    for kept in events {
        w.event(kept, at(began(&kept.event)), at(kept.event.time));
    }
    let end = events.last().map_or(0.0, |k| at(k.event.time));
    w.unfinished(end);
    let mut other = about.clone();
    let counts = [w.told.events as u64, w.told.requests, w.told.unfinished];
    for (name, n) in ["events", "requests", "unfinished"].into_iter().zip(counts) {
        other[name] = n.into();
    }
    w.raw(&format!("\n],\"otherData\":{other}}}\n"));
    w.error.and_then(|()| w.out.flush()).context("cannot write the trace")?;
    Ok(w.told)
}

impl Writer<'_> {
    fn raw(&mut self, text: &str) {
        if self.error.is_ok() {
            self.error = self.out.write_all(text.as_bytes());
        }
    }

    fn put(&mut self, value: &Value) {
        let comma = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        self.raw(&format!("{comma}{value}"));
    }

    /// Processes and threads.
    fn names(&mut self) {
        let record = self.record;
        let mut pids: Vec<(u32, &str)> =
            record.sources.iter().map(|s| (s.pid, s.comm.as_str())).collect();
        pids.sort_unstable();
        pids.dedup_by_key(|(pid, _)| *pid);
        for (pid, comm) in pids {
            let args = json!({ "name": comm });
            self.put(&json!({"ph": "M", "pid": pid, "name": "process_name", "args": args}));
        }
        let mut threads: Vec<_> = record.threads.iter().collect();
        threads.sort_unstable();
        for ((pid, tid), name) in threads {
            let args = json!({ "name": if name.is_empty() { "thread" } else { name } });
            let name = "thread_name";
            self.put(&json!({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}));
        }
    }

    /// One event of a request's: they belong together by their id.
    fn of(&mut self, ph: &str, name: &str, id: (u32, u64), ts: f64, tid: u32, args: &Value) {
        let source = &self.record.sources[id.0 as usize];
        let local = format!("{:#x}", u64::from(id.0) << 40 | id.1);
        let mut event = json!({
            "ph": ph, "cat": "request", "name": name, "pid": source.pid, "tid": tid, "ts": ts,
            "id2": {"local": local},
        });
        if !args.is_null() {
            event["args"] = args.clone();
        }
        self.put(&event);
    }

    fn event(&mut self, kept: &Kept, began: f64, ts: f64) {
        let e = &kept.event;
        match e.step {
            Step::Inline => {
                self.inline += 1;
                let id = (kept.source, self.inline);
                self.begin(id, e, began);
                let name = op_name(e.opcode);
                self.of("e", &name, id, ts, e.tid, &json!({"res": e.value, "inline": true}));
            }
            step if step.is_span() => self.span(kept, began, ts),
            _ if e.req != 0 => self.step(kept, ts),
            _ => {}
        }
    }

    /// The slice of a request, on the track of its ring: that has the name of the first event.
    fn begin(&mut self, id: (u32, u64), e: &Event, ts: f64) {
        self.told.requests += 1;
        let source = &self.record.sources[id.0 as usize];
        let flags: Vec<&str> = names_of(source.flags, &SETUP_NAMES).collect();
        let track = match flags.as_slice() {
            [] => format!("ring {}", source.ring),
            flags => format!("ring {} ({})", source.ring, flags.join(", ")),
        };
        self.of("n", &track, id, ts, e.tid, &Value::Null);
        let args = match e.step {
            Step::Submit => json!({"user_data": format!("{:#x}", e.data), "fd": e.value}),
            _ => json!({"user_data": format!("{:#x}", e.data)}),
        };
        self.of("b", &op_name(e.opcode), id, ts, e.tid, &args);
    }

    fn step(&mut self, kept: &Kept, ts: f64) {
        let e = &kept.event;
        let (key, id) = ((kept.source, e.req), (kept.source, u64::from(e.req)));
        let mut life = match self.lives.remove(&key) {
            Some(life) => life,
            // What began before the trace is shown from its next phase on.
            None if phase(e.step).is_none() => return,
            None => {
                self.begin(id, e, ts);
                Life { opcode: e.opcode, phase: None, flow: 0, taken: (ts, e.tid) }
            }
        };
        if e.step == Step::More {
            self.of("n", "cqe", id, ts, e.tid, &json!({"res": e.value}));
            self.lives.insert(key, life);
            return;
        }
        if let Some(old) = life.phase.take() {
            self.of("e", old, id, ts, e.tid, &Value::Null);
        }
        if let Some(new) = phase(e.step) {
            self.of("b", new, id, ts, e.tid, &Value::Null);
            life.phase = Some(new);
            if life.flow == 0 && !matches!(e.step, Step::Submit | Step::Issue) {
                self.flows += 1;
                life.flow = self.flows;
            }
            self.lives.insert(key, life);
            return;
        }
        self.of("e", &op_name(life.opcode), id, ts, e.tid, &json!({"res": e.value}));
        if life.flow != 0 {
            self.flow("s", life.flow, kept.source, life.taken);
            self.flow("f", life.flow, kept.source, (ts, e.tid));
        }
    }

    /// One end of an arrow between the slices that two threads are in.
    fn flow(&mut self, ph: &str, id: u64, source: u32, (ts, tid): (f64, u32)) {
        let pid = self.record.sources[source as usize].pid;
        let mut event = json!({
            "ph": ph, "cat": "request", "name": "request", "id": id,
            "pid": pid, "tid": tid, "ts": ts,
        });
        if ph == "f" {
            event["bp"] = "e".into();
        }
        self.put(&event);
    }

    /// What a thread did.
    fn span(&mut self, kept: &Kept, began: f64, ts: f64) {
        let e = &kept.event;
        let source = &self.record.sources[kept.source as usize];
        let name = match e.step {
            Step::Enter => "enter".to_owned(),
            Step::Sleep => "sleep".to_owned(),
            Step::Nap => "nap".to_owned(),
            Step::Work => op_name(e.opcode),
            Step::Pass => "SQ pass".to_owned(),
            _ => "drive".to_owned(),
        };
        let mut args = json!({"ring": source.ring});
        match e.step {
            Step::Enter | Step::Pass => args["to_submit"] = e.value.into(),
            Step::Work => args["request"] = e.req.into(),
            // For how long, in µs, unless so many completions come before.
            Step::Nap => {
                args["length"] = (f64::from(e.value) / 1000.0).into();
                args["completions"] = e.req.into();
            }
            _ => {}
        }
        let dur = ((ts - began) * 1000.0).round() / 1000.0;
        let event = json!({
            "ph": "X", "cat": "thread", "name": name, "pid": source.pid, "tid": e.tid,
            "ts": began, "dur": dur, "args": args,
        });
        self.put(&event);
    }

    /// What has not ended is shown up to the end of the trace.
    fn unfinished(&mut self, ts: f64) {
        let mut lives: Vec<_> = std::mem::take(&mut self.lives).into_iter().collect();
        lives.sort_unstable_by_key(|(key, _)| *key);
        for ((source, req), life) in lives {
            let (id, tid) = ((source, u64::from(req)), life.taken.1);
            self.told.unfinished += 1;
            if let Some(phase) = life.phase {
                self.of("e", phase, id, ts, tid, &Value::Null);
            }
            self.of("e", &op_name(life.opcode), id, ts, tid, &json!({"unfinished": true}));
        }
    }
}
