//! Requests that wait for a wake-up: POLL_ADD, MSG_RING, futexes.

use super::job::Job;
use super::phase::{Counts, Stage, rounds};
use super::uring::Ring;
use anyhow::{Context, bail};
use rustix::event::{EventfdFlags, eventfd};
use softring_uapi::*;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::thread;

const POLLIN: u32 = 1;
/// `user_data` of the message that ends the other thread.
const STOP: u64 = u64::MAX;
const ANY: u64 = u32::MAX as u64;
/// Futex flags: `FUTEX2_SIZE_U32 | FUTEX2_PRIVATE`.
const FUTEX: i32 = 2 | 128;

fn open(job: &Job) -> anyhow::Result<Ring> {
    let entries = (2 * job.depth).next_power_of_two();
    Ring::new(entries, job.setup_flags).context("io_uring_setup")
}

fn of(ring: &Ring) -> anyhow::Result<Counts> {
    Ok(Counts { ring: ring.kind(), ..Counts::new(false)? })
}

/// Makes an eventfd for each of `depth` operations.
pub fn eventfds(job: &Job) -> anyhow::Result<Vec<OwnedFd>> {
    let new = |_| eventfd(0, EventfdFlags::CLOEXEC).context("eventfd");
    (0..job.depth).map(new).collect()
}

/// Takes `want` completions and waits for them; a failed request is an error.
fn take(ring: &mut Ring, want: u32) -> anyhow::Result<()> {
    let (mut got, mut bad) = (0, 0);
    while got < want {
        ring.enter(want - got).context("io_uring_enter")?;
        got += ring.reap(|c| bad = c.res.min(bad));
    }
    if bad < 0 { bail!("a request returned {bad}") } else { Ok(()) }
}

/// Arms a POLL_ADD on each eventfd, then writes to each, takes the completions, and reads.
pub fn poll(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let ring = open(job);
    stage.ready();
    let (mut ring, fds) = (ring?, eventfds(job)?);
    rounds(stage, of(&ring)?, job.depth, || {
        for fd in &fds {
            let (opcode, fd) = (IORING_OP_POLL_ADD, fd.as_raw_fd());
            ring.push(io_uring_sqe { opcode, fd, op_flags: POLLIN, ..Default::default() });
        }
        ring.enter(0).context("io_uring_enter")?;
        for fd in &fds {
            rustix::io::write(fd, &1u64.to_ne_bytes())?;
        }
        take(&mut ring, job.depth)?;
        for fd in &fds {
            rustix::io::read(fd, &mut [0u8; 8])?;
        }
        Ok(())
    })
}

/// Waits on each futex and wakes it, all through one ring.
pub fn futex(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let ring = open(job);
    stage.ready();
    let mut ring = ring?;
    // Leaked: the other side may access the words as long as the process lives.
    let words: &'static [AtomicU32] =
        Box::leak((0..job.depth).map(|_| AtomicU32::new(0)).collect());
    let sqe = |opcode, word: &AtomicU32, off| {
        let addr = word.as_ptr().expose_provenance() as u64;
        io_uring_sqe { opcode, fd: FUTEX, addr, off, addr3: ANY, ..Default::default() }
    };
    rounds(stage, of(&ring)?, job.depth, || {
        for word in words {
            ring.push(sqe(IORING_OP_FUTEX_WAIT, word, 0));
        }
        ring.enter(0).context("io_uring_enter")?;
        for word in words {
            ring.push(sqe(IORING_OP_FUTEX_WAKE, word, 1));
        }
        take(&mut ring, 2 * job.depth)
    })
}

/// Measures two threads, each with its ring: `depth` messages go there, as many come back.
pub fn msg_ring(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let ring = open(job);
    stage.ready();
    let mut ring = ring?;
    let here = ring.fd();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let other = scope.spawn(move || answer(job, here, &sender));
        let there = receiver.recv().context("the other thread ended")?;
        let done = rounds(stage, of(&ring)?, job.depth, || {
            send(&mut ring, there, job.depth, 0);
            take(&mut ring, job.depth)
        });
        send(&mut ring, there, 1, STOP);
        ring.enter(0).context("io_uring_enter")?;
        match other.join() {
            Ok(Ok(())) => done,
            Ok(Err(e)) => Err(e),
            Err(_) => bail!("a thread panicked"),
        }
    })
}

/// Sends back as many messages as come.
fn answer(job: &Job, to: i32, tell: &mpsc::Sender<i32>) -> anyhow::Result<()> {
    let mut ring = open(job)?;
    tell.send(ring.fd())?;
    loop {
        ring.enter(1).context("io_uring_enter")?;
        let (mut stop, mut bad) = (false, 0);
        let got = ring.reap(|c| (stop, bad) = (stop | (c.user_data == STOP), c.res.min(bad)));
        if stop || bad < 0 {
            return if bad < 0 { bail!("MSG_RING returned {bad}") } else { Ok(()) };
        }
        send(&mut ring, to, got, 0);
    }
}

/// Queues messages; only a failure posts a CQE here.
fn send(ring: &mut Ring, to: i32, count: u32, name: u64) {
    for _ in 0..count {
        ring.push(io_uring_sqe {
            opcode: IORING_OP_MSG_RING,
            flags: IOSQE_CQE_SKIP_SUCCESS,
            fd: to,
            addr: IORING_MSG_DATA,
            off: name,
            ..Default::default()
        });
    }
}
