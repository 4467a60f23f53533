//! Waits for readiness of a reused descriptor number, which means another file by then.

use super::prelude::*;
use std::os::fd::OwnedFd;

pub const CASES: &[Case] = &[
    any_order!("fd_reuse", several_waits, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ)], "several waits in a row on one file"),
    any_order!("fd_reuse", other_file, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ)], "a number that was awaited before now means another file"),
    any_order!("fd_reuse", cancelled_after_reuse, [Op(IORING_OP_ASYNC_CANCEL)], "a cancel of a wait leaves the file that now has its number alone"),
    any_order!("fd_reuse", same_file_reopened, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ)], "a number is closed and then means the same file again"),
    any_order!("fd_reuse", many_at_once, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ)], "several requests wait on one number, repeatedly"),
    any_order!("fd_reuse", registered, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ)], "the same with a registered file that is replaced"),
    any_order!("fd_reuse", closed_between, [Op(IORING_OP_READ)], "a file that was awaited is closed by closing its number"),
    legal!("fd_reuse", after_removal, [Op(IORING_OP_POLL_REMOVE)], "a wait follows a removed poll, or a poll that completed at once"),
    any_order!("fd_reuse", in_a_child, [Op(IORING_OP_POLL_ADD)], "a forked child keeps a file that its parent awaits and closes"),
    any_order!("fd_reuse", deferred, [Op(IORING_OP_READ), Op(IORING_OP_POLL_ADD)], "number reuse with DEFER_TASKRUN"),
];

const IN: i32 = libc::POLLIN as i32;

/// Returns a poll and a read that wait for data, with their results for one byte.
fn waits(fd: i32, buf: &mut [u8; 1]) -> [(&'static str, io_uring_sqe, i32); 2] {
    [("poll", sqe::poll_add(fd, libc::POLLIN), IN), ("read", sqe::read(fd, buf, 0), 1)]
}

/// Makes the number of `fd` refer to the file of `other`.
fn become_other(cx: &mut Cx, fd: &OwnedFd, other: i32) {
    let n = fd.as_raw_fd();
    cx.holds("the number means another file", os::dup2(other, n) == n);
}

/// Reads the byte that a poll has left.
fn drain(r: &OwnedFd) {
    if os::poll(r.as_raw_fd(), libc::POLLIN, 0) != 0 {
        let _ = rustix::io::read(r, &mut [0; 1]);
    }
}

fn rounds(cx: &mut Cx, flags: u32) -> Outcome {
    let mut ring = cx.ring(8, flags)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 1];
    for at in [0, 1, 1, 0, 0, 1] {
        let (what, sqe, want) = waits(r.as_raw_fd(), &mut buf)[at];
        cx.start(&mut ring, &[sqe.ud(1)]);
        cx.quiet(&ring, "waits", 2);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, what, &[(1, want)]);
        drain(&r);
    }
    let (_, read, _) = waits(r.as_raw_fd(), &mut buf)[1];
    cx.start(&mut ring, &[read.ud(2)]);
    drop(w);
    cx.reap(&mut ring, "the end", &[(2, 0)]);
    let hup = i32::from(libc::POLLHUP);
    cx.one(&mut ring, "hang-up", sqe::poll_add(r.as_raw_fd(), 0), hup);
    Ok(())
}

fn several_waits(cx: &mut Cx) -> Outcome {
    rounds(cx, 0)
}

fn deferred(cx: &mut Cx) -> Outcome {
    rounds(cx, DEFER)
}

fn other_file(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (number, _w) = cx.pipe()?;
    let mut buf = [0; 1];
    for at in [0, 1, 1, 0] {
        let (r, w) = cx.pipe()?;
        become_other(cx, &number, r.as_raw_fd());
        let (what, sqe, want) = waits(number.as_raw_fd(), &mut buf)[at];
        for _ in 0..2 {
            cx.start(&mut ring, &[sqe.ud(1)]);
            cx.quiet(&ring, "waits", 2);
            rustix::io::write(&w, b"x")?;
            cx.reap(&mut ring, what, &[(1, want)]);
            drain(&r);
        }
    }
    Ok(())
}

fn cancelled_after_reuse(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (mut old, mut new) = ([0; 1], [0; 1]);
    for at in 0..2 {
        let (number, old_w) = cx.pipe()?;
        let (r, w) = cx.pipe()?;
        // The duplicate keeps the old file open.
        let kept = os::own(os::dup(number.as_raw_fd()));
        cx.start(&mut ring, &[waits(number.as_raw_fd(), &mut old)[at].1.ud(1)]);
        become_other(cx, &number, r.as_raw_fd());
        let (what, sqe, want) = waits(number.as_raw_fd(), &mut new)[at];
        cx.start(&mut ring, &[sqe.ud(2)]);
        cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3)]);
        cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (3, 0)]);
        rustix::io::write(&old_w, b"x")?;
        cx.quiet(&ring, "the new one waits", 2);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, what, &[(2, want)]);
        drain(&number);
        cx.start(&mut ring, &[sqe.ud(4)]);
        cx.quiet(&ring, "and again", 2);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, what, &[(4, want)]);
        drain(&number);
        drop(kept);
    }
    Ok(())
}

fn same_file_reopened(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let (other, _other_w) = cx.pipe()?;
    let number = os::own(os::dup(r.as_raw_fd()));
    let mut buf = [0; 1];
    for at in [0, 1, 0, 1] {
        let (what, sqe, want) = waits(number.as_raw_fd(), &mut buf)[at];
        cx.start(&mut ring, &[sqe.ud(1)]);
        become_other(cx, &number, other.as_raw_fd());
        cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
        cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, 0)]);
        become_other(cx, &number, r.as_raw_fd());
        cx.start(&mut ring, &[sqe.ud(3)]);
        cx.quiet(&ring, "waits", 2);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, what, &[(3, want)]);
        drain(&r);
    }
    Ok(())
}

fn many_at_once(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let mut bufs = [[0; 1]; 4];
    let all = |want| [1, 2, 3, 4].map(|ud| (ud, want));
    for at in [0, 1, 1, 0, 1] {
        let mut want = 0;
        let mut sqes = Vec::new();
        for (ud, buf) in (1..).zip(&mut bufs) {
            let (_, sqe, res) = waits(r.as_raw_fd(), buf)[at];
            sqes.push(sqe.ud(ud));
            want = res;
        }
        cx.start(&mut ring, &sqes);
        cx.quiet(&ring, "all wait", 2);
        rustix::io::write(&w, b"abcd")?;
        cx.reap(&mut ring, "all", &all(want));
        for _ in 0..4 {
            drain(&r);
        }
    }
    // One read is cancelled, the others stay.
    let sqes: Vec<_> =
        (1..).zip(&mut bufs).map(|(ud, b)| waits(r.as_raw_fd(), b)[1].1.ud(ud)).collect();
    cx.start(&mut ring, &sqes);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(9)]);
    cx.reap(&mut ring, "the first is cancelled", &[(1, -ECANCELED), (9, 0)]);
    rustix::io::write(&w, b"bcd")?;
    cx.reap(&mut ring, "the others", &[(2, 1), (3, 1), (4, 1)]);
    Ok(())
}

fn registered(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let (other, other_w) = cx.pipe()?;
    let (mut buf, mut second) = ([0; 1], [0; 1]);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[r.as_raw_fd()]), 0);
    let both = [(&r, &w), (&other, &other_w)];
    for (round, at) in [0, 1, 1, 0, 1].into_iter().enumerate() {
        let (file, end) = both[round % 2];
        let fd = [file.as_raw_fd()];
        let update = rsrc_update(0, &fd, &[]);
        let got = ring.register(IORING_REGISTER_FILES_UPDATE2, addr(&update), 32);
        cx.is("replaced", got, 1);
        let (what, sqe, want) = waits(0, &mut buf)[at];
        for _ in 0..2 {
            cx.start(&mut ring, &[sqe.fixed().ud(1)]);
            cx.quiet(&ring, "waits", 2);
            rustix::io::write(end, b"x")?;
            cx.reap(&mut ring, what, &[(1, want)]);
            drain(file);
        }
        let two = [sqe.fixed().ud(1), waits(0, &mut second)[at].1.fixed().ud(2)];
        cx.start(&mut ring, &two);
        rustix::io::write(end, b"xy")?;
        cx.reap(&mut ring, "both", &[(1, want), (2, want)]);
        drain(file);
        drain(file);
    }
    Ok(())
}

fn closed_between(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [0; 1];
    for at in 0..2 {
        let (r, w) = cx.pipe()?;
        let (what, sqe, want) = waits(r.as_raw_fd(), &mut buf)[at];
        cx.start(&mut ring, &[sqe.ud(1)]);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, what, &[(1, want)]);
        cx.is("not a broken pipe", os::poll(w.as_raw_fd(), 0, 0), 0);
        drop(r);
        cx.is("now it is", os::poll(w.as_raw_fd(), 0, 1000), i32::from(libc::POLLERR));
        cx.one(&mut ring, "not open", sqe, -EBADF);
    }
    Ok(())
}

fn after_removal(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    let update = sqe::op(IORING_OP_POLL_REMOVE, -1)
        .set(|s| (s.addr, s.len) = (1, IORING_POLL_UPDATE_EVENTS))
        .op_flags(IN.cast_unsigned());
    for _ in 0..2 {
        cx.start(&mut ring, &[poll.ud(1)]);
        let remove = sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 1);
        cx.start(&mut ring, &[remove.ud(2)]);
        cx.reap(&mut ring, "removed", &[(1, -ECANCELED), (2, 0)]);
        rustix::io::write(&w, b"x")?;
        cx.quiet(&ring, "it is gone", 2);
        cx.one(&mut ring, "ready at once", poll, IN);
        drain(&r);
        cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLPRI).ud(1)]);
        rustix::io::write(&w, b"x")?;
        cx.quiet(&ring, "waits for something else", 2);
        cx.start(&mut ring, &[update.ud(3)]);
        cx.reap(&mut ring, "updated", &[(1, IN), (3, 0)]);
        drain(&r);
    }
    Ok(())
}

fn in_a_child(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut buf = [0; 1];
    for at in 0..2 {
        let (r, w) = cx.pipe()?;
        let (stop, stop_w) = cx.pipe()?;
        let (what, sqe, want) = waits(r.as_raw_fd(), &mut buf)[at];
        cx.start(&mut ring, &[sqe.ud(1)]);
        let child = os::spawn_child(|| {
            let _ = os::poll(stop.as_raw_fd(), libc::POLLIN, 5000);
            0
        });
        let (other, other_w) = cx.pipe()?;
        become_other(cx, &r, other.as_raw_fd());
        cx.start(&mut ring, &[sqe.ud(2)]);
        rustix::io::write(&other_w, b"x")?;
        cx.reap(&mut ring, what, &[(2, want)]);
        drain(&r);
        rustix::io::write(&w, b"x")?;
        cx.reap(&mut ring, what, &[(1, want)]);
        cx.start(&mut ring, &[sqe.ud(3)]);
        cx.quiet(&ring, "waits", 2);
        rustix::io::write(&other_w, b"x")?;
        cx.reap(&mut ring, what, &[(3, want)]);
        drain(&r);
        rustix::io::write(&stop_w, b"x")?;
        cx.is("child", os::wait_for(child), 0);
    }
    Ok(())
}
