//! Arrays of poll(2) and ppoll(2) that name rings: the answers for all of their entries.

use super::prelude::*;
use crate::os_poll::{self, poll_at, poll_each, put_entry};
use crate::poll_shapes::{Set, Shape, feed, while_waiting};
use libc::{POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

pub const CASES: &[Case] = &[
    case!("poll_arrays", events, [Op(IORING_OP_NOP)], "the events of a ring, with and without completions"),
    case!("poll_arrays", others, [Op(IORING_OP_NOP), Reg(IORING_REGISTER_EVENTFD)], "other files beside a ring"),
    case!("poll_arrays", waits, [Op(IORING_OP_NOP)], "polls that wait for others while a ring has completions"),
    case!("poll_arrays", memory, [Op(IORING_OP_NOP)], "arrays that cannot be read or written"),
    case!("poll_arrays", signals, [Op(IORING_OP_NOP)], "a signal that waits, and is let in by a poll's mask"),
];

/// Makes a ring that threads poll, and that is left with a completion, or without.
fn polled(cx: &mut Cx, flags: u32, ready: bool) -> Result<Ring, Stop> {
    let mut ring = cx.ring(4, flags)?;
    poll_each(&[(ring.fd, POLLIN)], 0, None);
    ring.push(sqe::nop()).submit();
    poll_each(&[(ring.fd, POLLIN)], 0, None);
    if !ready {
        ring.pop_all();
    }
    Ok(ring)
}

/// Polls by both calls, and records the answers.
fn note(cx: &mut Cx, what: &str, files: &[(RawFd, i16)]) {
    for mask in [None, Some(0)] {
        cx.note(what, format_args!("{:?}", poll_each(files, 0, mask)));
    }
}

fn events(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        for ready in [true, false] {
            let ring = polled(cx, flags, ready)?;
            cx.note("ready", ready);
            for asked in [
                0,
                POLLIN,
                POLLRDNORM,
                POLLIN | POLLRDNORM | POLLPRI | POLLRDHUP,
                POLLPRI,
                POLLOUT,
                POLLIN | POLLOUT,
                POLLWRNORM | POLLRDNORM,
            ] {
                note(cx, &format!("{asked:#x}"), &[(ring.fd, asked)]);
            }
            let again = os_poll::dup(ring.fd)?;
            note(cx, "twice", &[(ring.fd, POLLIN), (again.as_raw_fd(), POLLIN), (ring.fd, 0)]);
        }
    }
    Ok(())
}

fn others(cx: &mut Cx) -> Outcome {
    for ready in [true, false] {
        cx.note("ready", ready);
        let ring = polled(cx, 0, ready)?;
        let (mut told, pipe, closed) = (polled(cx, 0, false)?, cx.pipe()?, cx.pipe()?);
        let file = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC)?;
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags)?;
        let number = event.as_raw_fd();
        let at = addr(&number);
        cx.is("an eventfd", told.register(IORING_REGISTER_EVENTFD, at, 1), 0);
        let mine = (ring.fd, POLLIN);
        let (read, write) = (pipe.0.as_raw_fd(), pipe.1.as_raw_fd());
        let unused = closed.0.as_raw_fd();
        drop(closed);
        let out = (write, POLLOUT);
 let many = |n: usize| [vec![mine], vec![(read, POLLIN); n], vec![out]].concat();
        for round in 0..2 {
            cx.note("round", round);
            note(cx, "a pipe", &[(read, POLLIN), mine, (write, POLLIN | POLLOUT)]);
            note(cx, "no files", &[(-1, POLLIN), mine, (i32::MIN, POLLIN), (unused, POLLIN)]);
            note(cx, "a file", &[mine, (file.as_raw_fd(), POLLIN | POLLOUT)]);
            note(cx, "another ring", &[(told.fd, POLLIN), mine, (told.fd, POLLOUT)]);
            note(cx, "an eventfd", &[(number, POLLIN), mine]);
            for of in [&ring, &told] {
                let (set, outer) = (Set::with(Shape::Level, of.fd)?, Set::new()?);
                let inner = set.0.as_raw_fd();
                note(cx, "a set", &[(inner, POLLIN), mine]);
                outer.ctl(libc::EPOLL_CTL_ADD, inner, libc::EPOLLIN, 1);
                note(cx, "a set of sets", &[mine, (outer.0.as_raw_fd(), POLLIN)]);
            }
            for n in [20, 29, 30, 31, 32, 100] {
                note(cx, "many", &many(n));
            }
            told.push(sqe::nop()).submit();
            rustix::io::write(&pipe.1, b"x")?;
        }
    }
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    let ring = polled(cx, 0, true)?;
    let (r, w) = cx.pipe()?;
    let mut byte = [0; 1];
    for (what, files) in [
        ("alone", vec![(r.as_raw_fd(), POLLIN)]),
        ("beside the ring", vec![(ring.fd, POLLPRI), (r.as_raw_fd(), POLLIN), (ring.fd, 0)]),
    ] {
        for mask in [None, Some(0)] {
            let found = while_waiting(|| poll_each(&files, 900, mask), || feed(&w));
            cx.note(what, format_args!("{found:?}"));
            rustix::io::read(&r, &mut byte)?;
            cx.note("in vain", format_args!("{:?}", poll_each(&files, 5, mask)));
        }
    }
    Ok(())
}

fn memory(cx: &mut Cx) -> Outcome {
    for ready in [true, false] {
        cx.note("ready", ready);
        let ring = polled(cx, 0, ready)?;
        let border = os::border();
        put_entry(border - 8, ring.fd, POLLIN);
        let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
        put_entry(page, ring.fd, POLLIN);
        put_entry(page + 8, ring.fd, POLLIN);
        put_entry(page + 3003, ring.fd, POLLIN);
        for mask in [None, Some(0)] {
            let mut at = |what: &str, at, n| cx.note_answer(what, poll_at(at, n, 0, mask));
            at("good", border - 8, 1);
            at("unaligned", page + 3003, 1);
            at("ends too early", border - 8, 2);
            at("none", 0, 1);
            at("the kernel's", KERNEL, 1);
            at("no entries", 0, 0);
            at("too many", page, 1 << 30);
        }
        os_poll::protect(page);
        for mask in [None, Some(0)] {
            cx.note_answer("not to be written", poll_at(page, 2, 0, mask));
        }
        os::unmap(page);
    }
    Ok(())
}

static RUNS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    RUNS.fetch_add(1, SeqCst);
}

fn signals(cx: &mut Cx) -> Outcome {
    os_poll::on_usr1(count);
    let blocked = 1 << (libc::SIGUSR1 - 1);
    let pipe = cx.pipe()?;
    let read = (pipe.0.as_raw_fd(), POLLIN);
    for (ready, what, mask) in
        [(true, "let in", 0), (true, "kept out", blocked), (false, "kept out", blocked)]
    {
        let ring = polled(cx, 0, ready)?;
        os::block(libc::SIGUSR1, true);
        os_poll::signal_thread(os_poll::thread());
        let found = poll_each(&[(ring.fd, POLLIN), read], 0, Some(mask));
        cx.note(what, format_args!("{ready}: {found:?}, handled {}", RUNS.load(SeqCst)));
        os::block(libc::SIGUSR1, false);
        cx.note("in the end", RUNS.load(SeqCst));
    }
    Ok(())
}
