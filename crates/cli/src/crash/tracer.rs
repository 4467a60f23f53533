//! Follows a program and all that it starts, thread by thread, from one system call to the next.

use super::calls::{self, Kind, Of};
use super::changes::Pending;
use super::ptrace::{self, Call, Stop, Until};
use super::recorder::{Cut, Recorder};
use super::tracee::Tracee;
use softring_crash::At;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Time between two questions whether a thread has stopped, if the power fails at a certain time.
const ASK: Duration = Duration::from_micros(200);
/// Most bytes of a write in which a marker is searched.
const MARKED: u64 = 1 << 20;

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// End by itself, with this status as in wait(2).
    Itself(i32),
    /// The power has failed.
    Cut,
}

pub struct Tracer<'a> {
    recorder: &'a mut Recorder,
    /// The first process.
    first: i32,
    threads: BTreeSet<i32>,
    /// The call that is being made. Others that change files wait.
    current: Option<(i32, Pending)>,
    waiting: VecDeque<(i32, &'static str, Kind)>,
    /// Thread whose write has the marker.
    marked: Option<i32>,
    end: Option<End>,
}

impl<'a> Tracer<'a> {
    pub fn new(recorder: &'a mut Recorder, first: i32) -> Tracer<'a> {
        Tracer {
            recorder,
            first,
            threads: BTreeSet::from([first]),
            current: None,
            waiting: VecDeque::new(),
            marked: None,
            end: None,
        }
    }

    /// Follows the program until it has ended, or the power has failed; then nothing of it is left.
    pub fn run(&mut self) -> std::io::Result<End> {
        let due = match *self.recorder.spec.moment() {
            At::Time(ns) => Some(Instant::now() + Duration::from_nanos(ns)),
            _ => None,
        };
        loop {
            if self.end.is_none() && due.is_some_and(|due| Instant::now() >= due) {
                self.stop(End::Cut);
            }
            match ptrace::next(due.is_none()) {
                Ok(None) => std::thread::sleep(ASK),
                Ok(Some((tid, Stop::Ended(status)))) => self.ended(tid, status),
                Ok(Some((tid, stop))) => {
                    self.threads.insert(tid);
                    if self.end.is_some() {
                        ptrace::kill(tid);
                    } else {
                        self.stopped(tid, stop);
                    }
                }
                Err(e) if e.raw_os_error() == Some(libc::ECHILD) => break,
                Err(e) => return Err(e),
            }
        }
        // Nobody has seen whether the last call was made.
        if let Some((tid, pending)) = self.current.take() {
            self.recorder.after(Tracee(tid), pending, None);
        }
        Ok(self.end.unwrap_or(End::Cut))
    }

    /// Kills all that runs.
    fn stop(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.waiting.clear();
        for &tid in &self.threads {
            ptrace::kill(tid);
        }
    }

    fn ended(&mut self, tid: i32, status: i32) {
        self.threads.remove(&tid);
        if tid == self.first {
            self.stop(End::Itself(status));
        }
        self.waiting.retain(|call| call.0 != tid);
        if self.current.as_ref().is_some_and(|current| current.0 == tid)
            && let Some((tid, pending)) = self.current.take()
        {
            self.recorder.after(Tracee(tid), pending, None);
            self.proceed();
        }
    }

    fn stopped(&mut self, tid: i32, stop: Stop) {
        match stop {
            Stop::Filtered => {
                let decoded = ptrace::call(tid).ok().and_then(|call| self.decode(tid, &call));
                match decoded {
                    Some((op, kind)) if self.current.is_some() => {
                        self.waiting.push_back((tid, op, kind));
                    }
                    Some((op, kind)) => self.call(tid, op, kind),
                    None => resume(tid, Until::Event, 0),
                }
            }
            Stop::Returned => self.returned(tid),
            Stop::Stopped => resume(tid, Until::Continued, 0),
            Stop::Signal(signal) => resume(tid, Until::Event, signal),
            Stop::Other | Stop::Ended(_) => {
                let returns = self.current.as_ref().is_some_and(|current| current.0 == tid);
                resume(tid, if returns { Until::Return } else { Until::Event }, 0);
            }
        }
    }

    fn decode(&self, tid: i32, call: &Call) -> Option<(&'static str, Kind)> {
        calls::decode(Tracee(tid), call)
    }

    /// Handles a call that is about to be made, while no other is.
    fn call(&mut self, tid: i32, op: &'static str, kind: Kind) {
        let marked = self.has_marker(tid, &kind);
        match self.recorder.before(Tracee(tid), op, kind) {
            Err(Cut) => self.stop(End::Cut),
            Ok(Some(pending)) => {
                self.current = Some((tid, pending));
                self.marked = marked.then_some(tid).or(self.marked);
                resume(tid, Until::Return, 0);
            }
            Ok(None) if marked => {
                self.marked = Some(tid);
                resume(tid, Until::Return, 0);
            }
            Ok(None) => resume(tid, Until::Event, 0),
        }
    }

    fn returned(&mut self, tid: i32) {
        if self.current.as_ref().is_some_and(|current| current.0 == tid)
            && let Some((_, pending)) = self.current.take()
        {
            let result = ptrace::result(tid).ok();
            self.recorder.after(Tracee(tid), pending, result);
        }
        if self.marked == Some(tid) {
            return self.stop(End::Cut);
        }
        resume(tid, Until::Event, 0);
        self.proceed();
    }

    /// Handles the calls that have waited.
    fn proceed(&mut self) {
        while self.current.is_none()
            && let Some((tid, op, kind)) = self.waiting.pop_front()
        {
            self.call(tid, op, kind);
        }
    }

    fn has_marker(&self, tid: i32, kind: &Kind) -> bool {
        let At::Marker(text) = self.recorder.spec.moment() else { return false };
        let Kind::Change { of: Of::Fd(_), counted: true, .. } = kind else { return false };
        let Ok(call) = ptrace::call(tid) else { return false };
        let tracee = Tracee(tid);
        let [_, at, len, ..] = call.args;
        let parts = match call.nr {
            libc::SYS_write | libc::SYS_pwrite64 => vec![(at, len)],
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => tracee.vector(at, len),
            _ => return false,
        };
        let read = |(at, len): (u64, u64)| tracee.bytes(at, len.min(MARKED) as usize);
        let bytes: Vec<u8> = parts.into_iter().flat_map(read).collect();
        bytes.windows(text.len().max(1)).any(|part| part == text.as_bytes())
    }
}

fn resume(tid: i32, until: Until, signal: i32) {
    // A thread that has been killed meanwhile tells so by its end.
    let _ = ptrace::resume(tid, until, signal);
}
