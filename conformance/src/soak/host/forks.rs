//! Forked children: they hold nothing of the parent's rings open, and have rings of their own.

use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsRawFd;

use super::super::ledger::END_LIMIT;
use super::super::{Check, ensure};
use super::{Context, one, wrong};
use crate::os;
use crate::ring::Ring;
use crate::sqe;
use softring_uapi::*;

pub fn run(p: &mut Context) -> Check<bool> {
    if p.rng.bool() { own_ring(p) } else { registered(p) }
}

/// Runs a NOP and a TIMEOUT on a ring of a child's own.
fn own_ring(p: &mut Context) -> Check<bool> {
    let entry = p.entry;
    let code = os::in_child(|| {
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 2 };
        let ts = kernel_timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        ring.push(sqe::nop()).push(sqe::timeout(&ts, 0, 0));
        if ring.submit_wait(2) != 2 {
            return 3;
        }
        // A timeout that expires ends the wait, also if the NOP completes after it.
        let mut completed = ring.pop_all().len();
        if completed == 1 {
            ring.submit_wait(1);
            completed += ring.pop_all().len();
        }
        if completed == 2 { 0 } else { 4 }
    });
    ensure(code == 0, || format!("a child with a ring of its own ended with {code}"))?;
    Ok(true)
}

/// Checks that a file which only the parent's table holds open closes when the parent unregisters
/// it.
fn registered(p: &mut Context) -> Check<bool> {
    let mut book = p.ring()?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(wrong)?;
    let slots = [write.as_raw_fd()];
    let got = book.ring.register_slice(IORING_REGISTER_FILES, &slots);
    ensure(got == 0, || format!("FILES: {got}"))?;
    drop(write);
    let pid = os::spawn_child(|| os::poll(-1, 0, -1));
    ensure(pid > 0, || format!("fork: {pid}"))?;
    let gone = book.ring.register(IORING_UNREGISTER_FILES, 0, 0);
    let poll = || os::poll(read.as_raw_fd(), libc::POLLIN, END_LIMIT.as_millis() as i32 / 3);
    // The child may not have run yet, and signals interrupt the poll.
    let end = (0..END_LIMIT.as_millis()).map(|_| poll()).find(|&end| end != -libc::EINTR);
    let end = end.unwrap_or(-libc::EINTR);
    os::signal(pid, libc::SIGKILL);
    os::wait_for(pid);
    ensure(gone == 0, || format!("UNREGISTER_FILES: {gone}"))?;
    ensure(end == i32::from(libc::POLLHUP), || {
        format!("a pipe is held open by a child: poll answers {end:#x}")
    })?;
    let got = one(&mut book, sqe::nop())?;
    ensure(got == 0, || format!("NOP: {got}"))?;
    p.close(book)?;
    Ok(true)
}
