//! Scenes of a few requests: children, futexes, times, messages between rings.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::super::ledger::End;
use super::super::{Check, ensure, sys};
use super::stage::{Scene, Stage, Step, Token};
use crate::os;
use crate::ring::Map;
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

fn token(scene: usize, n: u32) -> Token {
    Token { scene, who: 0, step: Step::Other(n) }
}

fn page() -> Check<Map> {
    Map::anonymous(4096).map_err(|e| format!("no memory: errno {e}"))
}

fn odd() -> String {
    "an odd result".into()
}

/// A child that ends after a while, and a WAITID for it.
#[derive(Debug)]
pub struct Child {
    code: i32,
    done: bool,
    memory: Map,
}

impl Child {
    pub fn new(stage: &mut Stage, scene: usize) -> Check<Self> {
        let (memory, code, ring) = (page()?, stage.rng.i32(1..100), stage.any_ring());
        let pid = Stage::child(stage.rng.i32(0..4), code);
        ensure(pid > 0, || format!("fork: {pid}"))?;
        stage.count("children", 1);
        let sqe = sqe::op(IORING_OP_WAITID, pid).set(|s| {
            (s.len, s.file_index) = (libc::P_PID, libc::WEXITED.cast_unsigned());
            s.off = memory.addr as u64;
        });
        stage.push(ring, &[(sqe, token(scene, 0))])?;
        Ok(Child { code, done: false, memory })
    }
}

impl Scene for Child {
    fn on(&mut self, _: &mut Stage, end: &End<Token>) -> Check {
        self.done = true;
        // This is `si_status` of a siginfo_t.
        let told = os::load(self.memory.addr + 24).cast_signed();
        ensure(end.cqe.res == 0 && told == self.code, || format!("it ended with {told}"))
    }

    fn tick(&mut self, _: &mut Stage) -> Check {
        Ok(())
    }

    fn over(&self) -> bool {
        self.done
    }
}

/// A wait on one ring, for one word or several; a FUTEX_WAKE on any ring wakes it.
#[derive(Debug)]
pub struct Futex {
    scene: usize,
    waker: usize,
    waits: bool,
    waking: bool,
    woken: i32,
    memory: Map,
}

impl Futex {
    pub fn new(stage: &mut Stage, scene: usize) -> Check<Self> {
        let (memory, waiter) = (page()?, stage.any_ring());
        let at = memory.addr;
        let sqe = if stage.rng.bool() {
            sqe::rw(IORING_OP_FUTEX_WAIT, 2, at, 0, 0).set(|s| s.addr3 = u32::MAX.into())
        } else {
            sys::store(at + 64, [0u64, (at + 4) as u64, 2]);
            sys::store(at + 88, [0u64, at as u64, 2]);
            sqe::rw(IORING_OP_FUTEX_WAITV, 0, at + 64, 2, 0)
        };
        stage.push(waiter, &[(sqe, token(scene, 0))])?;
        stage.count("futexes", 1);
        let waker = stage.any_ring();
        Ok(Futex { scene, waker, waits: true, waking: false, woken: 0, memory })
    }
}

impl Scene for Futex {
    fn on(&mut self, _: &mut Stage, end: &End<Token>) -> Check {
        match end.token.step {
            Step::Other(0) => {
                self.waits = false;
                ensure([0, 1].contains(&end.cqe.res), odd)?;
            }
            _ => {
                self.waking = false;
                ensure([0, 1].contains(&end.cqe.res), odd)?;
                self.woken += end.cqe.res;
            }
        }
        ensure(!self.over() || self.woken == 1, || format!("{} woken", self.woken))
    }

    fn tick(&mut self, stage: &mut Stage) -> Check {
        if !self.waits || self.waking || self.woken > 0 {
            return Ok(());
        }
        self.waking = true;
        let wake = sqe::rw(IORING_OP_FUTEX_WAKE, 2, self.memory.addr, 0, 1);
        let wake = wake.set(|s| s.addr3 = u32::MAX.into());
        stage.push(self.waker, &[(wake, token(self.scene, 1))]).map(drop)
    }

    fn over(&self) -> bool {
        !self.waits && !self.waking
    }
}

/// Timeouts: alone, several, removed, and one of a receive without data.
#[derive(Debug)]
pub struct Timer {
    began: Instant,
    time: Duration,
    open: u32,
    shots: u32,
    _silent: [OwnedFd; 2],
    _memory: Map,
}

impl Timer {
    pub fn new(stage: &mut Stage, scene: usize) -> Check<Self> {
        let (memory, ring) = (page()?, stage.any_ring());
        let time = Duration::from_micros(stage.rng.u64(1..8000));
        sys::store(memory.addr, [0, time.as_nanos() as i64]);
        sys::store(memory.addr + 16, [60i64, 0]);
        let at = |i: usize| memory.addr + 16 * i;
        let (one, two) = UnixStream::pair().map_err(|e| format!("a pair: {e}"))?;
        let timeout = |i| sqe::rw(IORING_OP_TIMEOUT, -1, at(i), 1, 0);
        let many = timeout(0).op_flags(IORING_TIMEOUT_MULTISHOT).set(|s| s.off = 3);
        let recv = sqe::rw(IORING_OP_RECV, two.as_raw_fd(), at(8), 8, 0).link();
        let limit = sqe::rw(IORING_OP_LINK_TIMEOUT, -1, at(0), 1, 0);
        let poll = sqe::poll_add(two.as_raw_fd(), libc::POLLIN);
        let began = Instant::now();
        let t = |n| token(scene, n);
        stage.push(ring, &[(timeout(0), t(0))])?;
        stage.push(ring, &[(many, t(1))])?;
        stage.push(ring, &[(recv, t(2)), (limit, t(3))])?;
        let far = stage.push(ring, &[(timeout(1), t(4))])?;
        stage.push(ring, &[(poll, t(4))])?;
        let remove = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| s.addr = far);
        stage.push(ring, &[(remove, t(5))])?;
        let remove = sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = far + 1);
        stage.push(ring, &[(remove, t(5))])?;
        stage.count("timers", 4);
        let silent = [one.into(), two.into()];
        Ok(Timer { began, time, open: 8, shots: 0, _silent: silent, _memory: memory })
    }
}

impl Scene for Timer {
    fn on(&mut self, _: &mut Stage, end: &End<Token>) -> Check {
        let Step::Other(n) = end.token.step else { return Err("no such step".into()) };
        self.open -= u32::from(end.last);
        self.shots += u32::from(n == 1);
        let want = [libc::ETIME, libc::ETIME, libc::ECANCELED, libc::ETIME, libc::ECANCELED, 0];
        ensure(end.cqe.res == -want[n as usize], odd)?;
        ensure(n > 3 || self.began.elapsed() >= self.time, || "before its time".into())?;
        ensure(self.open > 0 || self.shots == 3, || format!("{} shots", self.shots))
    }

    fn tick(&mut self, _: &mut Stage) -> Check {
        Ok(())
    }

    fn over(&self) -> bool {
        self.open == 0
    }
}

/// Messages from one ring to another, or to itself.
#[derive(Debug)]
pub struct Message {
    scene: usize,
    left: u32,
    open: u32,
}

impl Message {
    pub fn new(stage: &mut Stage, scene: usize) -> Self {
        Message { scene, left: stage.rng.u32(1..20), open: 0 }
    }
}

impl Scene for Message {
    fn on(&mut self, stage: &mut Stage, end: &End<Token>) -> Check {
        let want = if end.token.step == Step::Other(0) { 0 } else { 77 };
        self.open -= 1;
        ensure(end.cqe.res == want, odd)?;
        self.tick(stage)
    }

    fn tick(&mut self, stage: &mut Stage) -> Check {
        if self.open > 0 || self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        self.open = 2;
        let (from, to) = (stage.any_ring(), stage.any_ring());
        let number = stage.hands[to].ledger.expect(token(self.scene, 1));
        let fd = stage.hands[to].ledger.ring.fd;
        let sqe = sqe::rw(IORING_OP_MSG_RING, fd, 0, 77, number);
        stage.count("messages", 1);
        stage.push(from, &[(sqe, token(self.scene, 0))]).map(drop)
    }

    fn over(&self) -> bool {
        self.left == 0 && self.open == 0
    }
}
