//! Lines made of events: what is known of each request until it has ended.

use super::args::{Said, operation};
use super::errnos::result;
use super::file_name;
use super::flags::{CQE, flags};
use super::select::Select;
use super::summary::Summary;
use super::times::Times;
use crate::trace::fault_name;
use softring_engine::stats::trace::read::Source;
use softring_engine::stats::trace::{Event, FIXED, NO_CQE, Step};
use softring_engine::stats::trace::{TEXT_SECOND, TEXT_STRUCTURE};
use softring_uapi::{
    IORING_CQE_BUFFER_SHIFT, IORING_CQE_F_BUFFER, IORING_CQE_F_MORE, IORING_CQE_F_NOTIF,
    IORING_OP_POLL_ADD, IORING_OP_SEND_ZC, IORING_OP_SENDMSG_ZC, IOSQE_FIXED_FILE,
    IOSQE_IO_HARDLINK, IOSQE_IO_LINK,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Most requests in flight that are kept: lost ends never come.
const MOST: usize = 1 << 18;
/// Most names of descriptors that are kept.
const MOST_NAMES: usize = 1 << 16;

/// Format of the lines.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub verbose: bool,
    /// Digits of a latency behind the point.
    pub digits: usize,
    /// Flag, true if there are lines at all.
    pub lines: bool,
}

/// An event that waits for those before it.
#[derive(Debug)]
pub struct Waiting {
    pub process: u32,
    pub source: Arc<Source>,
    pub event: Event,
    pub more: Vec<u64>,
}

/// A request that has been taken.
#[derive(Debug)]
struct Request {
    said: Said,
    began: u64,
    tid: u32,
    /// First route of the request, and whether a barrier held it.
    route: Option<Step>,
    drained: bool,
    /// The request's place in a chain; 0: in none.
    link: u32,
    source: Arc<Source>,
    /// Flag, true if only a notification is missing.
    sent: bool,
    /// Names of the faults injected into it.
    faults: Vec<&'static str>,
}

/// A process and its ring.
type Ring = (u32, u64);

/// All that is known of requests, names and chains.
#[derive(Debug)]
pub struct Lines {
    how: How,
    select: Select,
    times: Times,
    pub summary: Option<Summary>,
    open: HashMap<(Ring, u32), Request>,
    names: HashMap<(u32, u64, bool, i32), String>,
    /// Local address of the socket whose name is being told.
    local: Vec<u8>,
    /// Chains by ring: the place of the next request in the chain that the ring's last request is
    /// part of.
    chains: HashMap<Ring, u32>,
    /// Text to be written.
    pub text: String,
}

impl Lines {
    pub fn new(how: How, select: Select, times: Times, summary: Option<Summary>) -> Lines {
        Lines {
            how,
            select,
            times,
            summary,
            open: HashMap::new(),
            names: HashMap::new(),
            local: Vec::new(),
            chains: HashMap::new(),
            text: String::new(),
        }
    }

    /// Returns whether there are lines, and not only a table.
    pub fn has_lines(&self) -> bool {
        self.how.lines
    }

    /// Takes an event; all events before it have been taken. `ns` converts times of its clock to
    /// ns.
    pub fn take(&mut self, w: Waiting, ns: &impl Fn(u64) -> u64) {
        let ring = (w.process, w.source.ring);
        let key = (ring, w.event.req);
        match w.event.step {
            Step::Submit => self.begin(key, w, ns),
            Step::Inline => self.inline(ring, &w, ns),
            Step::Text => self.on_text(key, &w),
            Step::Name | Step::Address => self.name(ring, &w),
            Step::More => self.result(key, &w, ns, false),
            Step::Done => self.result(key, &w, ns, true),
            Step::Enter | Step::Pass => _ = self.chains.remove(&ring),
            Step::Fault => {
                if let Some(request) = self.open.get_mut(&key) {
                    request.faults.extend(fault_name(w.event.value));
                }
            }
            Step::Drained => {
                if let Some(request) = self.open.get_mut(&key) {
                    request.drained = true;
                }
            }
            Step::Armed | Step::Punt | Step::Aio | Step::Model | Step::Queued => {
                if let Some(request) = self.open.get_mut(&key) {
                    request.route.get_or_insert(w.event.step);
                }
            }
            _ => {}
        }
    }

    fn said(&mut self, ring: Ring, w: &Waiting) -> Said {
        let sqe = w.event.sqe(&w.more).unwrap_or_default();
        let fixed = sqe.flags & IOSQE_FIXED_FILE != 0;
        let file = self.names.get(&(ring.0, ring.1, fixed, sqe.fd)).cloned();
        Said { sqe, file, ..Said::default() }
    }

    /// Returns the place of a request in a chain. The chain goes on with the next request of the
    /// same call if this one says so.
    fn chain(&mut self, ring: Ring, flags: u8) -> u32 {
        let before = self.chains.remove(&ring).unwrap_or(0);
        let goes_on = flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK) != 0;
        let place = if goes_on || before > 0 { before + 1 } else { 0 };
        if goes_on {
            self.chains.insert(ring, place);
        }
        place
    }

    fn begin(&mut self, key: (Ring, u32), w: Waiting, ns: &impl Fn(u64) -> u64) {
        let said = self.said(key.0, &w);
        let link = self.chain(key.0, said.sqe.flags);
        if self.open.len() >= MOST {
            self.open.clear();
        }
        let (began, tid, source) = (ns(w.event.time), w.event.tid, w.source);
        let (route, drained, sent, faults) = (None, false, false, Vec::new());
        let request = Request { said, began, tid, route, drained, link, source, sent, faults };
        self.open.insert(key, request);
    }

    fn inline(&mut self, ring: Ring, w: &Waiting, ns: &impl Fn(u64) -> u64) {
        let e = &w.event;
        let (began, ended) = (ns(e.time.saturating_sub(u64::from(e.req))), ns(e.time));
        // A linked request never ends this way.
        self.chains.remove(&ring);
        if self.shown(e.opcode, e.value, ended.saturating_sub(began)) {
            let said = self.said(ring, w);
            let call = format!("{}({})", operation(e.opcode), said.arguments(self.how.verbose));
            let tail = format!("{} inline", self.took(began, ended));
            self.line(&w.source, e.tid, began, &format!("{call} = {}{tail}", result(e.value)));
        }
    }

    /// Counts a result; returns whether it has a line.
    fn shown(&mut self, opcode: u8, res: i32, ns: u64) -> bool {
        let shown = self.select.shows(opcode, res, ns);
        if let Some(summary) = self.summary.as_mut().filter(|_| shown) {
            summary.add(opcode, res, ns);
        }
        shown && self.how.lines
    }

    fn on_text(&mut self, key: (Ring, u32), w: &Waiting) {
        let Some(request) = self.open.get_mut(&key) else { return };
        let bytes = bytes(w);
        match w.event.value {
            TEXT_STRUCTURE => request.said.structure = Some(bytes),
            TEXT_SECOND => request.said.texts[1] = Some(bytes),
            _ => request.said.texts[0] = Some(bytes),
        }
    }

    fn name(&mut self, ring: Ring, w: &Waiting) {
        let e = &w.event;
        let name = file_name(e, bytes(w), &mut self.local);
        if self.names.len() >= MOST_NAMES {
            self.names.clear();
        }
        if let Some(name) = name {
            self.names.insert((ring.0, ring.1, e.flags & FIXED != 0, e.value), name);
        }
    }

    /// Takes a result of a request, which has ended with it or goes on.
    fn result(&mut self, key: (Ring, u32), w: &Waiting, ns: &impl Fn(u64) -> u64, ends: bool) {
        let e = &w.event;
        let (all, ended) = (e.cqe_flags(&w.more), ns(e.time));
        let Some(request) = self.open.remove(&key) else {
            // The request began before the trace, or its beginning was lost. Nobody has waited for
            // a notification.
            if all & IORING_CQE_F_NOTIF == 0 && self.shown(e.opcode, e.value, 0) {
                let (name, res) = (operation(e.opcode), result(e.value));
                let flags = cqe_flags(e.flags & NO_CQE != 0, all);
                let text = format!("<... {name} resumed> = {res}{flags}");
                self.line(&w.source, e.tid, ended, &text);
            }
            return;
        };
        let opcode = request.said.sqe.opcode;
        let took = ended.saturating_sub(request.began);
        if self.shown(opcode, e.value, took) {
            let call =
                format!("{}({})", operation(opcode), request.said.arguments(self.how.verbose));
            let flags = cqe_flags(e.flags & NO_CQE != 0, all);
            let took = self.took(request.began, ended);
            let route = route(&request);
            let text = format!("{call} = {}{flags}{took}{route}", result(e.value));
            self.line(&request.source, request.tid, request.began, &text);
        }
        let notified = matches!(opcode, IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC)
            && all & IORING_CQE_F_MORE != 0;
        if !ends || notified {
            self.open.insert(key, Request { sent: notified, ..request });
        }
    }

    fn took(&self, began: u64, ended: u64) -> String {
        let seconds = ended.saturating_sub(began) as f64 / 1e9;
        format!(" <{seconds:.*}>", self.how.digits)
    }

    fn line(&mut self, source: &Source, tid: u32, began: u64, text: &str) {
        let thread = match tid {
            tid if tid == source.pid => format!("[pid {tid}]"),
            tid => format!("[pid {} tid {tid}]", source.pid),
        };
        let time = self.times.text(began);
        self.text.push_str(&format!("{thread} {time} ring {} {text}\n", source.ring));
    }

    /// Writes lines for requests that have not ended by `now`, in ns. With a condition on results
    /// there are none.
    pub fn unfinished(&mut self, now: u64) {
        let open: BTreeMap<_, _> = std::mem::take(&mut self.open).into_iter().collect();
        if self.select.failed || !self.how.lines {
            return;
        }
        for request in open.into_values().filter(|r| !r.sent) {
            let opcode = request.said.sqe.opcode;
            if self.select.shows(opcode, 0, now.saturating_sub(request.began)) {
                let said = request.said.arguments(self.how.verbose);
                let text =
                    format!("{}({said}) <unfinished ...>{}", operation(opcode), route(&request));
                self.line(&request.source, request.tid, request.began, &text);
            }
        }
    }
}

/// Returns the bytes that belong to an event.
fn bytes(w: &Waiting) -> Vec<u8> {
    w.more.iter().flat_map(|word| word.to_ne_bytes()).take(w.event.data as usize).collect()
}

/// Formats the flags of a CQE: ` MORE|BUFFER(3)`, ` (no CQE)`.
fn cqe_flags(none: bool, all: u32) -> String {
    if none {
        return " (no CQE)".to_owned();
    }
    let mut low = all & 0xffff;
    let buffer = low & IORING_CQE_F_BUFFER != 0;
    low &= !IORING_CQE_F_BUFFER;
    let mut names = Vec::new();
    if buffer {
        names.push(format!("BUFFER({})", all >> IORING_CQE_BUFFER_SHIFT));
    }
    if low != 0 {
        names.push(flags(low, CQE));
    }
    if names.is_empty() { String::new() } else { format!(" {}", names.join("|")) }
}

/// Formats the route that a request took, and its place in a chain.
fn route(request: &Request) -> String {
    let route = match request.route {
        None => "inline",
        Some(Step::Armed) => "poll",
        Some(Step::Queued) if request.said.sqe.opcode == IORING_OP_POLL_ADD => "poll",
        Some(Step::Aio) => "aio",
        Some(Step::Model) => "model",
        Some(Step::Queued) => "queued",
        Some(_) => "worker",
    };
    let drained = if request.drained { " drained" } else { "" };
    let link = if request.link > 0 { format!(" link {}", request.link) } else { String::new() };
    let faults = match request.faults.as_slice() {
        [] => String::new(),
        faults => format!(" (injected: {})", faults.join(", ")),
    };
    format!(" {route}{drained}{link}{faults}")
}
