//! Execution of one program in this process. The transcript has one JSON line per step, so that a
//! crash or a hang keeps all earlier lines. The executor does not know which io_uring answers.

pub mod arena;
mod child;
mod digest;
mod host;
mod idle;
mod net;
mod world;

use super::program::{Enter, Fd, Program, Setup, Slot, Sqe, Step, Val};
use super::transcript::{Cqe, NO_RING, QUEUE_FULL, Rec, SOME_FD};
use crate::entry::{self, EntryPoint};
use crate::ring::Ring;
use anyhow::{Context, Result};
use arena::{Arena, Placed};
use softring_uapi::*;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;

/// Milliseconds after which a signal interrupts a wait for completions that never come.
const ALARM: i64 = 80;

/// Parameters of a run, from the driver.
#[derive(clap::Args, Debug, Clone)]
pub struct Args {
    /// The program, as JSON
    #[arg(long)]
    pub program: PathBuf,
    /// File for the transcript
    #[arg(long)]
    pub out: PathBuf,
    /// An empty directory to run in
    #[arg(long)]
    pub dir: PathBuf,
    /// A transcript of the same program: how many completions to wait for
    #[arg(long)]
    pub expect: Option<PathBuf>,
    /// Microseconds without a completion that count as idle
    #[arg(long, default_value_t = 3000)]
    pub quiet: u64,
    /// Way in which calls leave the program: syscall, patch or sigsys
    #[arg(long, alias = "door", value_name = "HOW", default_value = "syscall")]
    pub intercept: EntryPoint,
}

/// Runs `args.program` from its first to its last step.
///
/// # Errors
/// Returned if the directory, the program or the transcript's file cannot be used.
pub fn run(args: &Args) -> Result<()> {
    let text = std::fs::read(&args.program).context("reading the program")?;
    let program: Program = serde_json::from_slice(&text).context("parsing the program")?;
    let expect = match &args.expect {
        Some(path) => super::driver::read_recs(path),
        None => Vec::new(),
    };
    let out = std::fs::File::create(&args.out).context("creating the transcript")?;
    std::env::set_current_dir(&args.dir).context("entering the directory")?;
    host::make_files()?;
    let out = idle::move_high(out)?;
    let waits = |s: &Step| matches!(s, Step::Sqe { sqe, .. } if sqe.op == IORING_OP_WAITID);
    if program.steps.iter().any(waits) {
        child::make()?;
    }
    host::open_slots()?;
    host::calm()?;
    // The kernel loses waiters of private futexes when the first thread is made, which may be a
    // worker of its own (see LIMITATIONS).
    std::thread::spawn(|| ()).join().ok();
    let mut machine = Machine {
        arena: Arena::new(program.seed).context("mapping the buffers")?,
        rings: [None, None],
        ops: HashMap::new(),
        opened: HashMap::new(),
        closed: HashSet::new(),
        held: Vec::new(),
        came: Vec::new(),
        supplies: net::Supplies::new(),
        last: 0,
        entry: args.intercept,
        quiet: args.quiet,
        guided: args.expect.is_some(),
    };
    machine.play(&program, &expect, out)
}

struct Machine {
    arena: Arena,
    rings: [Option<Ring>; 2],
    /// The SQE of each user_data.
    ops: HashMap<u64, Sqe>,
    /// Descriptors that requests have opened.
    opened: HashMap<u64, i32>,
    /// Requests whose opened descriptor another request was told to close.
    closed: HashSet<u64>,
    /// Memory that SQEs were given, checked when the run ends.
    held: Vec<(u64, Placed)>,
    /// Connections from outside.
    came: Vec<i32>,
    supplies: net::Supplies,
    /// Result of the previous step.
    last: i64,
    entry: EntryPoint,
    quiet: u64,
    guided: bool,
}

impl Machine {
    fn play(&mut self, program: &Program, expect: &[Rec], mut out: std::fs::File) -> Result<()> {
        for (i, step) in program.steps.iter().enumerate() {
            let want = expect.iter().find(|r| r.step == i);
            let mut rec = self.step(step, want);
            rec.step = i;
            self.last = if matches!(step, Step::Register { .. }) { rec.ret } else { -1 };
            writeln!(out, "{}", serde_json::to_string(&rec)?)?;
        }
        let step = program.steps.len();
        let want = expect.iter().find(|r| r.step == step);
        let mut last = self.await_idle(want);
        last.step = step;
        writeln!(out, "{}", serde_json::to_string(&last)?)?;
        for ring in 0..2 {
            let rec = Rec { step: step + 1 + usize::from(ring), ..self.reap(ring, None) };
            writeln!(out, "{}", serde_json::to_string(&rec)?)?;
        }
        let mut rec = Rec { step: step + 3, ..Rec::default() };
        let sockets = Slot::ENDS.iter().chain(&Slot::OTHERS);
        rec.notes.extend(sockets.map(|slot| net::state(*slot)));
        self.rings = [None, None];
        for (ud, placed) in &self.held {
            rec.notes.extend(placed.change().map(|c| format!("ud{ud} {c}")));
        }
        rec.notes.extend(digest::buffers());
        rec.notes.extend(digest::rings());
        rec.notes.extend(digest::tree());
        writeln!(out, "{}", serde_json::to_string(&rec)?)?;
        Ok(())
    }

    fn step(&mut self, step: &Step, want: Option<&Rec>) -> Rec {
        match step {
            Step::Setup(s) => self.setup(s),
            Step::Sqe { ring, sqe, bad_index } => ret(self.queue(*ring, sqe, *bad_index)),
            Step::Enter(e) => self.enter(e),
            Step::Flush(ring) => self.flush(*ring),
            Step::AwaitIdle => self.await_idle(want),
            // io_uring does not promise when a completion is seen: the CQ is peeked at only when
            // idle.
            Step::Reap { ring, max } => {
                let tails = self.await_idle(want).tails;
                Rec { tails, ..self.reap(*ring, *max) }
            }
            Step::Register { ring, op, arg, nr } => self.register(*ring, *op, arg, *nr),
            Step::Resize { ring, sq, cq, flags } => self.resize(*ring, *sq, *cq, *flags),
            Step::Host(h) => self.host(h),
        }
    }

    fn fd(&self, fd: &Fd) -> i32 {
        match fd {
            Fd::Num(n) => *n as i32,
            Fd::Slot(s) => s.number(),
            Fd::Ring(i) => self.rings[usize::from(i & 1)].as_ref().map_or(-1, |r| r.fd),
            Fd::Of(ud) => self.opened.get(ud).copied().unwrap_or(-1),
            Fd::Child(i) => child::pid(*i),
        }
    }

    fn lower(&mut self, val: &Val) -> u64 {
        let fds: HashMap<_, _> = self.opened.clone();
        let rings = [self.fd(&Fd::Ring(0)), self.fd(&Fd::Ring(1))];
        self.arena.lower(val, &|fd| match fd {
            Fd::Num(n) => *n as i32,
            Fd::Slot(s) => s.number(),
            Fd::Ring(i) => rings[usize::from(i & 1)],
            Fd::Of(ud) => fds.get(ud).copied().unwrap_or(-1),
            Fd::Child(i) => child::pid(*i),
        })
    }

    fn setup(&mut self, s: &Setup) -> Rec {
        let slot = usize::from(s.ring & 1);
        self.rings[slot] = None;
        let wq_fd = s.wq_ring.map_or(0, |r| self.fd(&Fd::Ring(r)).cast_unsigned());
        let params = io_uring_params {
            flags: s.flags,
            cq_entries: s.cq_entries,
            wq_fd,
            sq_thread_idle: s.idle,
            resv: [s.resv, 0, 0],
            ..Default::default()
        };
        match Ring::with(self.entry, s.entries, params) {
            Err(e) => ret(-i64::from(e)),
            Ok(ring) => {
                let p = ring.params;
                let note = format!("sq {} cq {} flags {:#x}", p.sq_entries, p.cq_entries, p.flags);
                self.rings[slot] = Some(ring);
                Rec { notes: vec![note], ..Rec::default() }
            }
        }
    }

    fn queue(&mut self, ring: u8, sqe: &Sqe, bad_index: bool) -> i64 {
        let raw = io_uring_sqe {
            opcode: sqe.op,
            flags: sqe.flags,
            ioprio: sqe.ioprio,
            fd: self.fd(&sqe.fd),
            off: self.lower(&sqe.off),
            addr: self.lower(&sqe.addr),
            len: sqe.len,
            op_flags: sqe.op_flags,
            user_data: sqe.ud,
            buf_index: sqe.buf_index,
            personality: sqe.personality,
            file_index: self.fd(&sqe.file).cast_unsigned(),
            addr3: self.lower(&sqe.addr3),
            pad2: sqe.pad2,
        };
        let placed = self.arena.take_placed();
        self.held.extend(placed.into_iter().map(|p| (sqe.ud, p)));
        let Some(r) = &mut self.rings[usize::from(ring & 1)] else { return NO_RING };
        let at = r.next_slot();
        // An SQ thread sees all SQEs at once, at the next enter: they are one batch.
        let polled = r.has(IORING_SETUP_SQPOLL);
        if !(if polled { r.try_push_hidden(raw) } else { r.try_push(raw) }) {
            return QUEUE_FULL;
        }
        if r.has(IORING_SETUP_SQE128) {
            r.write_sqe_tail(at, [0; 8]);
        }
        if bad_index && !r.has(IORING_SETUP_NO_SQARRAY) {
            r.set_array(at, u32::MAX);
        }
        if sqe.op == IORING_OP_CLOSE
            && let Fd::Of(ud) = sqe.fd
        {
            // The number's later meaning depends on who opens a file first.
            self.opened.remove(&ud);
            self.closed.insert(ud);
        }
        self.ops.insert(sqe.ud, sqe.clone());
        0
    }

    fn enter(&mut self, e: &Enter) -> Rec {
        let arg = self.lower(&e.arg);
        self.arena.take_placed();
        let own = e.fd.as_ref().map(|fd| self.fd(fd));
        let Some(r) = &mut self.rings[usize::from(e.ring & 1)] else { return ret(NO_RING) };
        let polled = r.has(IORING_SETUP_SQPOLL);
        let ready = if polled { r.show() } else { r.sq_ready() };
        let submit = e.submit.unwrap_or(ready);
        let registered =
            if r.registered && own.is_none() { IORING_ENTER_REGISTERED_RING } else { 0 };
        let wakeup = if polled { IORING_ENTER_SQ_WAKEUP } else { 0 };
        let flags = e.flags | registered | wakeup;
        let (fd, size) = (own.unwrap_or(r.fd), e.size as usize);
        host::alarm(ALARM);
        let got = entry::enter(self.entry, fd, submit, e.min, flags, arg as usize, size);
        host::alarm(0);
        // An SQ thread that is awake consumes the SQEs that it sees, whatever the call returned; a
        // sleeping thread is woken. The SQEs of a disabled ring stay.
        if polled && (got >= 0 || entry::enter(self.entry, r.fd, 0, 0, wakeup, 0, 0) >= 0) {
            idle::taken(r);
        }
        let note = format!("queued {} dropped {}", r.sq_ready(), r.sq_dropped());
        Rec { notes: vec![note], ..ret(got as i64) }
    }

    /// Enters until the queue is empty or unchanged. Each enter waits for idleness, because a
    /// barrier's state depends on requests that workers still run.
    fn flush(&mut self, ring: u8) -> Rec {
        let (mut rec, mut last) = (Rec::default(), 0);
        loop {
            let Some(r) = &self.rings[usize::from(ring & 1)] else { return ret(NO_RING) };
            let left = r.sq_ready();
            if left == 0 || last == left {
                return rec;
            }
            last = left;
            let guided = std::mem::take(&mut self.guided);
            self.await_idle(None);
            self.guided = guided;
            let got = self.enter(&Enter { ring, ..Enter::default() });
            rec.notes.extend(got.notes);
            rec.ret = got.ret;
        }
    }

    fn register(&mut self, ring: u8, op: u32, arg: &Val, nr: u32) -> Rec {
        let arg = self.lower(arg);
        let placed = self.arena.take_placed();
        let Some(r) = &self.rings[usize::from(ring & 1)] else { return ret(NO_RING) };
        let got = r.register(op, arg as usize, nr);
        Rec { notes: placed.iter().filter_map(Placed::change).collect(), ..ret(got as i64) }
    }

    fn resize(&mut self, ring: u8, sq: u32, cq: u32, flags: u32) -> Rec {
        let Some(r) = &mut self.rings[usize::from(ring & 1)] else { return ret(NO_RING) };
        let mut p = io_uring_params { sq_entries: sq, cq_entries: cq, flags, ..Default::default() };
        let got = r.register_struct(IORING_REGISTER_RESIZE_RINGS, &mut p, 1);
        let mut rec = ret(got as i64);
        if got == 0 {
            rec.notes.push(format!("sq {} cq {}", p.sq_entries, p.cq_entries));
            p.flags |= r.params.flags;
            if p.flags & IORING_SETUP_NO_SQARRAY == 0 {
                // The kernel does not report the array's offset: it follows the CQEs, as setup lays
                // it out.
                let wide = u32::from(p.flags & IORING_SETUP_CQE32 != 0);
                let end = (p.cq_off.cqes + p.cq_entries * 16) << wide;
                p.sq_off.array = end.next_multiple_of(64);
            }
            if let Err(e) = r.remap(p) {
                rec.notes.push(format!("remap {e}"));
            }
        }
        rec
    }

    fn reap(&mut self, ring: u8, max: Option<u32>) -> Rec {
        let at = usize::from(ring & 1);
        let Some(r) = &mut self.rings[at] else { return ret(NO_RING) };
        let mut rec = Rec::default();
        rec.notes.push(format!("sq flags {:#x}", r.sq_flags() & IORING_SQ_CQ_OVERFLOW));
        let mut taken = Vec::new();
        empty(r, &mut taken, max);
        // Flushed completions may start requests: a chain behind a count of completions.
        if max.is_none() && rec.notes[0] != "sq flags 0x0" {
            self.idle_tails(None);
        }
        let Some(r) = &mut self.rings[at] else { return ret(NO_RING) };
        if max.is_none() {
            empty(r, &mut taken, max);
        }
        rec.notes.push(format!("overflow {}", r.cq_overflow()));
        rec.ret = taken.len() as i64;
        rec.cqes = taken.iter().map(|c| self.name_fd(c)).collect();
        rec
    }

    /// Returns the completion with its descriptor, if any, replaced and kept aside.
    fn name_fd(&mut self, c: &crate::ring::Cqe) -> Cqe {
        let (mut res, ud) = (i64::from(c.res), c.user_data);
        if self.ops.get(&ud).is_some_and(|sqe| res >= 0 && opens(sqe)) {
            if !self.closed.contains(&ud) {
                self.opened.insert(ud, c.res);
            }
            res = SOME_FD;
        }
        Cqe { ud, res, flags: c.flags, big: c.big }
    }

    /// Keeps aside the descriptors of all completions, in any order; call when idle.
    fn name_fds(&mut self) {
        let rings = self.rings.iter().flatten();
        let there: Vec<_> = rings.flat_map(Ring::peek_all).collect();
        for cqe in &there {
            self.name_fd(cqe);
        }
    }
}

/// Returns whether a request's result is a descriptor.
fn opens(sqe: &Sqe) -> bool {
    let opens = matches!(
        sqe.op,
        IORING_OP_OPENAT | IORING_OP_OPENAT2 | IORING_OP_ACCEPT | IORING_OP_SOCKET
    );
    sqe.op == IORING_OP_FIXED_FD_INSTALL || opens && sqe.file == Fd::Num(0)
}

fn ret(v: i64) -> Rec {
    Rec { ret: v, ..Rec::default() }
}

/// Takes completions, and also the overflowed ones unless there is a `max`.
fn empty(r: &mut Ring, taken: &mut Vec<crate::ring::Cqe>, max: Option<u32>) {
    loop {
        while taken.len() < max.unwrap_or(4096) as usize {
            let Some(cqe) = r.pop() else { break };
            taken.push(cqe);
        }
        if max.is_some() || r.sq_flags() & IORING_SQ_CQ_OVERFLOW == 0 {
            return;
        }
        let before = r.cq_tail();
        r.enter(0, 0, IORING_ENTER_GETEVENTS);
        if r.cq_tail() == before {
            return;
        }
    }
}
