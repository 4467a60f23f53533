//! Programs made from seeds: mostly sensible ones, so that they get somewhere, with something wrong
//! here and there.

mod conflicts;
mod ctl;
mod fs;
mod kbuf;
mod net;
mod ops;
mod pool;
mod register;
mod rw;
mod setup;
mod socket;
mod wait;
mod world;

pub use ops::OPS;
pub use setup::sqpoll;

use super::program::{Cell, Enter, Fd, Program, Slot, Step, Val};
use conflicts::{Conflicts, Piece};
use fastrand::Rng;
use kbuf::Group;
use ops::Family;
use pool::Made;
use softring_uapi::*;

/// State of one program in the making.
pub(crate) struct Gen<'a> {
    rng: Rng,
    only: &'a [u8],
    steps: Vec<Step>,
    /// The next user_data.
    ud: u64,
    /// Requests that may still be waiting.
    live: Vec<(u64, u8)>,
    conflicts: Conflicts,
    /// Requests that open descriptors, and the key of the opened files.
    opened: Vec<(u64, u64)>,
    /// Probable content of ring 0's table of files.
    fixed: Vec<Option<Slot>>,
    buffers: u8,
    /// Ring 0's groups of provided buffers, as far as they are known.
    groups: [Group; kbuf::GROUPS],
    /// Probable content of the epoll set.
    watched: Vec<Slot>,
    /// Flag, true if the program is about sockets.
    net: bool,
    /// Flag, true if a ring has wide CQEs.
    wide: bool,
    two: bool,
    /// Ring of the batch in the making.
    ring: u8,
}

/// Makes the program of `seed`, with the opcodes in `only` (all of [`OPS`] if that is empty).
pub fn program(seed: u64, only: &[u8]) -> Program {
    let mut rng = Rng::with_seed(seed);
    let only = match (only, rng.u32(0..100)) {
        ([], 0..35) => &OPS[..ops::FILES],
        ([], 35..85) => &OPS[ops::FILES..],
        ([], _) => OPS,
        (only, _) => only,
    };
    let mut g = Gen {
        rng,
        only,
        steps: Vec::new(),
        ud: 1,
        live: Vec::new(),
        conflicts: Conflicts::default(),
        opened: Vec::new(),
        fixed: Vec::new(),
        buffers: 0,
        groups: [Group::None; kbuf::GROUPS],
        watched: Vec::new(),
        net: only.iter().any(|op| ops::is_net(*op)),
        wide: false,
        two: false,
        ring: 0,
    };
    let tmpfs = g.chance(60);
    g.start();
    let rounds = if g.net { 3..10 } else { 2..7 };
    for _ in 0..g.rng.u32(rounds) {
        g.round();
    }
    Program { seed, tmpfs, steps: barriers_await_idle(g.steps) }
}

/// Makes a program await idle behind each batch with a barrier: whether the barrier still holds
/// later requests depends on workers.
fn barriers_await_idle(steps: Vec<Step>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    let (mut barrier, mut went) = (false, false);
    for step in steps {
        match &step {
            Step::Sqe { .. } if barrier && went => {
                out.push(Step::AwaitIdle);
                (barrier, went) = (false, false);
            }
            Step::AwaitIdle if went => (barrier, went) = (false, false),
            Step::Flush(_) => went = barrier,
            _ => {}
        }
        barrier |= matches!(&step, Step::Sqe { sqe, .. } if sqe.flags & IOSQE_IO_DRAIN != 0);
        out.push(step);
    }
    out
}

impl Gen<'_> {
    fn start(&mut self) {
        if self.chance(12) {
            self.bad_setup();
        }
        let flags = self.setup(0);
        if self.chance(35) {
            self.setup(1);
            self.two = true;
        }
        if self.chance(50) {
            self.files(0);
        }
        if self.chance(75) {
            self.register_buffers(0);
        }
        if self.two && self.chance(40) {
            self.files(1);
        }
        if flags & IORING_SETUP_R_DISABLED != 0 {
            if self.chance(60) {
                self.restrictions(0);
            }
            if self.chance(90) {
                let op = IORING_REGISTER_ENABLE_RINGS;
                self.steps.push(Step::Register { ring: 0, op, arg: Val::Num(0), nr: 0 });
            }
        }
        if self.net {
            self.buffer_rings();
        }
    }

    fn op(&mut self, op: u8) -> Made {
        match ops::family(op) {
            Family::Rw => self.rw(op),
            Family::Ctl => self.ctl(op),
            Family::Fs => self.fs(op),
            Family::Transfer => self.transfer(op),
            Family::Socket => self.socket(op),
            Family::Buffers => self.provide(op),
            Family::Wait => self.wait(op),
        }
    }

    /// Makes one submission that does not race with requests in flight.
    fn request(&mut self, flags: u8, chain: &[Piece]) -> Made {
        for _ in 0..8 {
            let op = self.pick(self.only);
            if let Some(made) = self.fitting(op, flags, chain) {
                return made;
            }
        }
        Made::default()
    }

    /// Makes a submission of `op`, if it does not race.
    fn fitting(&mut self, op: u8, flags: u8, chain: &[Piece]) -> Option<Made> {
        let (opened, fixed, live) = (self.opened.clone(), self.fixed.clone(), self.live.clone());
        let watched = self.watched.clone();
        let mut made = self.op(op);
        self.dress(&mut made);
        made.sqe.flags |= flags;
        if self.conflicts.stuck(&made, chain) {
            return None;
        }
        if self.conflicts.fits(&self.conflicts.piece(self.ud, &made, chain), chain) {
            return Some(made);
        }
        (self.opened, self.fixed, self.live) = (opened, fixed, live);
        self.watched = watched;
        None
    }

    /// Adds flags that any request may carry, and faults.
    fn dress(&mut self, made: &mut Made) {
        if self.chance(12) {
            made.sqe.flags |= IOSQE_ASYNC;
        }
        if self.chance(8) {
            made.sqe.flags |= IOSQE_CQE_SKIP_SUCCESS;
        }
        if self.chance(5) {
            made.sqe.flags |= IOSQE_IO_DRAIN;
        }
        if self.chance(10) {
            self.spoil(made);
        }
    }

    fn spoil(&mut self, made: &mut Made) {
        let sqe = &mut made.sqe;
        match self.rng.u32(0..14) {
            0 => sqe.fd = Fd::Num([-1, 99, 1 << 30, -100, 999][self.rng.usize(0..5)]),
            1 | 2 => sqe.addr = Val::Bad(self.bad()),
            3 => sqe.off = Val::Bad(self.bad()),
            4 => sqe.addr3 = Val::Num(self.rng.u64(1..9)),
            5 => sqe.ioprio = 1 << self.rng.u32(0..16),
            6 => sqe.op_flags ^= 1 << self.rng.u32(0..32),
            7 => sqe.buf_index = 1 << self.rng.u32(0..16),
            8 => sqe.personality = self.rng.u16(0..4),
            9 => sqe.file = Fd::Num(self.rng.i64(-2..9)),
            10 => sqe.pad2 = self.rng.u64(1..4),
            11 => sqe.len = [0, 1, u32::MAX, 1 << 31][self.rng.usize(0..4)],
            12 => sqe.flags ^= [1, 1, 0x80, 2, 0x40][self.rng.usize(0..5)],
            _ => sqe.op = self.rng.u8(63..255),
        }
        // These sizes would really allocate: a fault must not fill the disk.
        if sqe.op == IORING_OP_MADVISE || sqe.op == IORING_OP_FALLOCATE {
            let plain = self.op(sqe.op).sqe;
            (made.sqe.off, made.sqe.op_flags) = (plain.off, plain.op_flags);
            made.sqe.len = plain.len;
        }
    }

    /// Queues `made`, the next of `chain`.
    fn queue(&mut self, mut made: Made, chain: &mut Vec<Piece>) {
        made.sqe.ud = self.ud;
        if made.arms {
            self.live.push((self.ud, made.sqe.op));
        }
        let links = IOSQE_IO_LINK | IOSQE_IO_HARDLINK;
        // A request that is left out of a chain would link its neighbours.
        let alone = chain.is_empty() && made.sqe.flags & links == 0;
        let bad_index = alone && self.chance(1);
        chain.push(self.conflicts.piece(self.ud, &made, chain));
        self.ud += 1;
        self.steps.push(Step::Sqe { ring: self.ring, sqe: made.sqe, bad_index });
    }

    /// Makes requests that are submitted together: alone, or in chains.
    fn batch(&mut self) {
        for _ in 0..self.rng.u32(1..7) {
            let (mut soon, from) = (false, self.steps.len());
            let mut chain = Vec::new();
            if self.chance(7) {
                soon = self.timed(&mut chain);
            } else {
                let linked = self.chance(20);
                let n = if linked { self.rng.u32(2..5) } else { 1 };
                for i in 0..n {
                    let link = if self.chance(75) { IOSQE_IO_LINK } else { IOSQE_IO_HARDLINK };
                    let made = self.request(if i + 1 < n { link } else { 0 }, &chain);
                    self.queue(made, &mut chain);
                    if i + 2 == n && self.chance(20) {
                        let timeout = self.ctl(IORING_OP_LINK_TIMEOUT);
                        soon |= timeout.soon;
                        self.queue(timeout, &mut chain);
                        break;
                    }
                }
            }
            let drains =
                |s: &Step| matches!(s, Step::Sqe { sqe, .. } if sqe.flags & IOSQE_IO_DRAIN != 0);
            let drain = self.steps[from..].iter().any(drains);
            self.conflicts.queued(chain, soon, drain);
        }
    }

    /// Makes a request that waits, and a limit of its time; returns whether that is short.
    fn timed(&mut self, chain: &mut Vec<Piece>) -> bool {
        let waits = [IORING_OP_READ, IORING_OP_READV, IORING_OP_POLL_ADD, IORING_OP_WRITE];
        let op = self.pick(&waits);
        if !self.only.contains(&op) {
            return false;
        }
        let Some(made) = self.fitting(op, IOSQE_IO_LINK, chain) else { return false };
        self.queue(made, chain);
        let mut timeout = self.op(IORING_OP_LINK_TIMEOUT);
        timeout.arms = true;
        let soon = timeout.soon;
        self.queue(timeout, chain);
        soon
    }

    fn enter(&mut self, ring: u8) {
        let mut e = Enter { ring, ..Enter::default() };
        match self.rng.u32(0..100) {
            0..55 => {}
            55..70 => e.flags = IORING_ENTER_GETEVENTS,
            70..80 => (e.flags, e.min) = (IORING_ENTER_GETEVENTS, self.pick(&[1, 2, 70_000])),
            80..88 => {
                e.flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
                e.min = self.rng.u32(0..4);
                let time = pool::timespec(0, 10_000_000);
                let min_wait = if self.chance(20) { 2000 } else { 0 };
                let words = vec![Cell::U64(Val::Num(0)), Cell::U32(0), Cell::U32(min_wait)];
                let ts = if self.chance(92) { time } else { Val::Bad(self.bad()) };
                e.arg = Val::Mem(words.into_iter().chain([Cell::U64(ts)]).collect());
                e.size = if self.chance(92) { 24 } else { self.pick(&[0, 8, 16, 64]) };
            }
            88..93 => e.submit = Some(self.pick(&[0, 1, 2, 100])),
            93..96 => e.flags = 1 << self.rng.u32(0..32),
            96..98 => {
                e.fd = Some(if self.chance(50) { Fd::Slot(Slot::A) } else { Fd::Num(999) });
            }
            _ => {
                e.flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
                (e.arg, e.size) = (Val::Bad(self.bad()), 24);
            }
        }
        self.steps.push(Step::Enter(e));
        self.steps.push(Step::Flush(ring));
    }

    fn await_idle(&mut self) {
        self.steps.push(Step::AwaitIdle);
        self.conflicts.all_idle();
    }

    fn round(&mut self) {
        let ring = u8::from(self.two && self.chance(25));
        self.ring = ring;
        self.batch();
        self.enter(ring);
        if self.chance(7) {
            return;
        }
        self.await_idle();
        let outside = if self.net { 60 } else { 35 };
        if self.chance(outside) {
            self.host();
        }
        if self.chance(25) {
            if self.net && self.chance(50) {
                self.buffer_call();
            } else {
                self.register();
            }
            self.await_idle();
        }
        if self.chance(65) {
            let max = self.chance(15).then(|| self.rng.u32(0..4));
            self.steps.push(Step::Reap { ring, max });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_program() {
        for seed in 0..200 {
            assert_eq!(program(seed, &[]), program(seed, &[]));
        }
        assert_ne!(program(1, &[]).steps, program(2, &[]).steps);
    }

    #[test]
    fn every_opcode_occurs() {
        let mut seen = [false; 256];
        for seed in 0..400 {
            for step in program(seed, &[]).steps {
                if let Step::Sqe { sqe, .. } = step {
                    seen[usize::from(sqe.op)] = true;
                }
            }
        }
        let missing: Vec<_> = OPS.iter().filter(|&&op| !seen[usize::from(op)]).collect();
        assert!(missing.is_empty(), "never made: {missing:?}");
    }

    #[test]
    fn the_only_option_limits_opcodes() {
        for seed in 0..50 {
            for step in program(seed, &[IORING_OP_READ]).steps {
                let Step::Sqe { sqe, .. } = step else { continue };
                let also = [IORING_OP_READ, IORING_OP_NOP, IORING_OP_LINK_TIMEOUT];
                assert!(also.contains(&sqe.op) || sqe.op >= IORING_OP_LAST, "{}", sqe.op);
            }
        }
    }

    #[test]
    fn a_program_is_read_back_unchanged() {
        for seed in 0..50 {
            let p = program(seed, &[]);
            let text = serde_json::to_string(&p).expect("a program is plain data");
            assert_eq!(serde_json::from_str::<Program>(&text).expect("as written"), p);
        }
    }
}
