//! A ring's state as poll(2) knows it, and the descriptor that stands for a ring where the program
//! polls it: a memfd cannot be polled.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsRawFd;

use super::adopt_internal;
use super::table::{find, read, ring, write};
use crate::ctx::Ctx;
use crate::sys::{self, borrow};

/// Has ring `fd` completions to read? `None` if it is not a ring of ours.
pub fn readable(fd: i32) -> Option<bool> {
    let ring = find(fd)?;
    let ctx = ring.lock_now();
    Some(ctx.mem.cq_ready() > 0 || !ctx.overflow.is_empty())
}

/// Is the submission queue of ring `fd` full? False if it is not a ring of ours.
pub fn sq_full(fd: i32) -> bool {
    ring(fd).is_ok_and(|ring| {
        let ctx = ring.lock_now();
        ctx.mem.sq_ready() == ctx.mem.geo.sq_entries
    })
}

/// A descriptor that polls readable while ring `fd` has completions, to stand for it in epoll, poll
/// and select; `None` if `fd` is not a ring of ours. Stale readability is cleared here.
pub fn poll_fd(fd: i32) -> Option<i32> {
    let ring = ring(fd).ok()?;
    let known = read().poll.iter().find(|p| p.0 == ring.id).map(|(_, e)| e.as_raw_fd());
    let stand_in = match known {
        Some(raw) => raw,
        None => {
            // Without the table's lock: this closes a descriptor, and `close` asks the table.
            let e = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let e = adopt_internal(e);
            let mut table = write();
            let other = table.poll.iter().find(|p| p.0 == ring.id).map(|(_, e)| e.as_raw_fd());
            // If another thread was faster, ours goes; its close, too, waits until the lock is
            // free.
            let (raw, surplus) = match other {
                Some(raw) => (raw, Some(e)),
                None => {
                    let raw = e.as_raw_fd();
                    table.poll.push((ring.id, e));
                    (raw, None)
                }
            };
            drop(table);
            drop(surplus);
            raw
        }
    };
    let mut ctx = ring.lock_now();
    let e = borrow(stand_in)?;
    ctx.poll_fd = Some(stand_in);
    let ready = ctx.mem.cq_ready() > 0 || !ctx.overflow.is_empty();
    // Who waits for an edge must not see one that is none.
    match (ready, sys::poll_now(stand_in, sys::POLLIN) != 0) {
        (true, false) => drop(rustix::io::write(e, &1u64.to_ne_bytes())),
        (false, true) => drop(rustix::io::read(e, &mut [0u8; 8])),
        _ => {}
    }
    drop(ctx);
    crate::wait::reactor::guard(&ring, true);
    Some(stand_in)
}

/// CQEs were published: whoever polls the ring sees it.
pub fn signal_poll_fd(ctx: &Ctx) {
    if let Some(e) = ctx.poll_fd.and_then(borrow) {
        let _ = rustix::io::write(e, &1u64.to_ne_bytes());
    }
}
