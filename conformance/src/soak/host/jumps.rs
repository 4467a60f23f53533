//! Handlers that jump out of enter (siglongjmp), so that the call never returns.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::super::{Check, ensure};
use super::{Context, one};
use crate::entry::{self, EntryPoint};
use crate::{jump, os, sqe};
use softring_uapi::IORING_ENTER_GETEVENTS;

static BUSY: AtomicBool = AtomicBool::new(false);
static ENTRY: AtomicU32 = AtomicU32::new(0);

extern "C" fn wait(fd: i32) -> isize {
    let entry = EntryPoint::ALL[ENTRY.load(Ordering::Relaxed) as usize];
    jump::begin();
    let ret = entry::enter(entry, fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
    jump::end();
    ret
}

/// Waits for a completion that never comes, jumps out of the wait, and uses the ring again, by this
/// thread and by another.
pub fn run(p: &mut Context) -> Check<bool> {
    if BUSY.swap(true, Ordering::Acquire) {
        return Ok(false);
    }
    let out = leave(p);
    BUSY.store(false, Ordering::Release);
    out
}

fn leave(p: &mut Context) -> Check<bool> {
    os::handle(libc::SIGUSR2, jump::handler, libc::SA_NODEFER);
    let mut book = p.ring_with(0)?;
    let fd = book.ring.fd;
    let entry = EntryPoint::ALL.iter().position(|d| *d == p.entry).unwrap_or(0);
    ENTRY.store(entry as u32, Ordering::Relaxed);
    let (late, back) = (Duration::from_micros(p.rng.u64(0..2000)), AtomicBool::new(false));
    let got = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let got = jump::call(wait, fd);
            back.store(true, Ordering::Release);
            (got, one(&mut book, sqe::nop()))
        });
        std::thread::sleep(late);
        while !back.load(Ordering::Acquire) {
            match jump::jumper() {
                0 => std::thread::yield_now(),
                tid => {
                    os::signal_thread(tid, libc::SIGUSR2);
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        }
        waiter.join().map_err(|_| "a thread fell".to_owned())
    })?;
    ensure(got == (jump::JUMPED, Ok(0)), || format!("in the thread that was jumped in: {got:?}"))?;
    let other = one(&mut book, sqe::nop())?;
    ensure(other == 0, || format!("in another: {other}"))?;
    p.close(book)?;
    Ok(true)
}
