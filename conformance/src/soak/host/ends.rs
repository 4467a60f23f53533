//! Threads that end while their requests wait, some for data that have come.

use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::super::{Check, ensure};
use super::{Context, finish, wrong};
use crate::sqe;

const MANY: usize = 8;

/// Submits READs of pipes by a thread which then writes to some of the pipes and ends. Those READs
/// complete. The others may be cancelled, at the latest when their data come.
pub fn run(p: &mut Context) -> Check<bool> {
    let mut book = p.ring_with(0)?;
    let made = (0..MANY).map(|_| pipe_with(PipeFlags::CLOEXEC).map_err(wrong));
    let pipes: Vec<_> = made.collect::<Check<_>>()?;
    let written: Vec<bool> = (0..MANY).map(|_| p.rng.bool()).collect();
    let mut bufs = [[0u8; 4]; MANY];
    let ran = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            for (i, ((read, _), buf)) in pipes.iter().zip(&mut bufs).enumerate() {
                book.push(&[(sqe::read(read.as_raw_fd(), buf, u64::MAX), i as u32)])?;
            }
            book.submit(0, Duration::ZERO)?;
            for (_, (_, write)) in written.iter().zip(&pipes).filter(|(now, _)| **now) {
                rustix::io::write(write, b"data").map_err(wrong)?;
            }
            Ok(())
        });
        thread.join().unwrap_or_else(|_| Err("a thread fell".to_owned()))
    });
    ran?;
    for (_, (_, write)) in written.iter().zip(&pipes).filter(|(early, _)| !**early) {
        rustix::io::write(write, b"data").map_err(wrong)?;
    }
    for end in finish(&mut book)? {
        let cancelled = end.cqe.res == -libc::ECANCELED && !written[end.token as usize];
        ensure(end.cqe.res == 4 || cancelled, || {
            format!("after the thread's end; written before are {written:?}: {end:?}")
        })?;
    }
    p.close(book)?;
    Ok(true)
}
