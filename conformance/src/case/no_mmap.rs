//! Rings in memory of the program's own, which it unmaps while they live.

use super::Cover;
use super::net::seen;
use super::prelude::*;
use crate::ring::{self, Map};
use std::os::fd::RawFd;
use std::time::Duration;

const SETUP: Cover = Setup(IORING_SETUP_NO_MMAP);

pub const CASES: &[Case] = &[
    any_order!("no_mmap", unmapped, [SETUP], "ring memory is unmapped before completions come and the ring ends"),
    any_order!("no_mmap", remapped, [SETUP], "a new mapping in place of ring memory is not written to"),
];

/// Sets up a ring in one page for the rings and one for SQEs, at `at`, with a READ of a pipe in
/// flight.
fn in_pages(
    entry: EntryPoint,
    at: usize,
    setup: u32,
    pipe: RawFd,
    buf: &mut [u8],
) -> Result<Ring, i32> {
    let flags = setup | IORING_SETUP_NO_MMAP | IORING_SETUP_REGISTERED_FD_ONLY;
    let mut p = io_uring_params { flags, ..Default::default() };
    (p.cq_off.user_addr, p.sq_off.user_addr) = (at as u64, at as u64 + 4096);
    let fd = ring::setup(entry, 4, &mut p)?;
    let own = (Map::of_program(at, 4096), Map::of_program(at + 4096, 4096));
    let mut ring = Ring::from_fd(entry, fd, p, Some(own))?;
    ring.push(sqe::read(pipe, buf, 0).ud(1));
    // A new SQ thread without work sleeps at once.
    if ring.enter(1, 0, IORING_ENTER_SQ_WAKEUP) == 1 { Ok(ring) } else { Err(1) }
}

/// Returns the exit status of a child whose ring lies in memory of this kind, which the child
/// unmaps: 128 + SIGSEGV if the memory is not pinned.
fn unmaps(entry: EntryPoint, setup: u32, kind: i32, anew: bool) -> i32 {
    os::in_child(|| {
        let Ok((reader, writer)) = rustix::pipe::pipe() else { return 10 };
        let (at, mut buf) = (os::pages(2, kind), [0; 4]);
        let Ok(ring) = in_pages(entry, at, setup, reader.as_raw_fd(), &mut buf) else { return 11 };
        // One call replaces the old mapping: another thread could map something in a gap.
        match anew {
            true if os::pages_at(at, 2) != at => return 12,
            true => {}
            false => os::unmap_pages(at, 2),
        }
        // The read completes though its CQE cannot be seen.
        let fine = rustix::io::write(&writer, b"data").is_ok();
        let entered = ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        for _ in 0..5000 {
            std::thread::sleep(Duration::from_millis(1));
            if seen(&buf) == "data" {
                break;
            }
        }
        let arrived = seen(&buf) == "data";
        let entered_again = ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        let up = io_uring_rsrc_update { offset: ring.fd.cast_unsigned(), ..Default::default() };
        let ended = ring.register_slice(IORING_UNREGISTER_RING_FDS, &[up]) == 1;
        // The ring's memory is unmapped already and must not be unmapped again.
        let _ring = std::mem::ManuallyDrop::new(ring);
        let clean = !anew || os::is_zero(at, 8192);
        let all = [fine, entered == 0, arrived, entered_again == 0, ended, clean];
        all.iter().position(|&fine| !fine).map_or(0, |i| 20 + i as i32)
    })
}

fn unmapped(cx: &mut Cx) -> Outcome {
    for (what, setup) in [("plain", 0), ("deferring", DEFER)] {
        cx.is(what, unmaps(cx.entry, setup, libc::MAP_SHARED, false), 0);
        cx.is("private memory", unmaps(cx.entry, setup, libc::MAP_PRIVATE, false), 0);
    }
    cx.is("with a thread", unmaps(cx.entry, IORING_SETUP_SQPOLL, libc::MAP_SHARED, false), 0);
    Ok(())
}

fn remapped(cx: &mut Cx) -> Outcome {
    cx.is("shared memory", unmaps(cx.entry, 0, libc::MAP_SHARED, true), 0);
    Ok(())
}
