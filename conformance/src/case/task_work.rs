//! Completions that became ready since the last call: each enter posts them, except on rings that
//! defer them until GETEVENTS.

use super::net::{recv, send};
use super::prelude::*;
use crate::os_poll;
use rustix::net::{self, RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!("task_work", nothing_to_submit, [], "enter(0, 0, 0) posts ready completions"),
    case!("task_work", submitting, [], "a submission without a wait posts ready completions"),
    case!("task_work", sleeping, [], "a thread that returns from a sleep posts ready completions"),
    case!("task_work", wait_satisfied, [], "one of many threads whose waits are over posts ready completions"),
    case!("task_work", ready_by_own_batch, [], "a batch posts completions that it made ready itself"),
    case!("task_work", armed_and_ready_in_batch, [], "a batch posts a request that it armed and made ready"),
    case!("task_work", woken_before_links, [Sqe(IOSQE_IO_LINK)], "a request that a batch makes ready is before what follows in the batch's chains"),
    case!("task_work", poll_of_taken_data, [
        Op(IORING_OP_POLL_ADD),
    ], "a poll reports data that a later request of its batch has taken"),
    case!("task_work", interrupts_epoll_wait, [Op(IORING_OP_TIMEOUT)], "task work interrupts a thread that waits in epoll_wait(2)"),
    case!("task_work", each_wake_up, [
        Op(IORING_OP_POLL_ADD),
    ], "a multishot poll reports each wake-up between two calls"),
    case!("task_work", deferred, [
        Setup(IORING_SETUP_DEFER_TASKRUN),
    ], "with DEFER_TASKRUN only a call with GETEVENTS posts completions"),
    any_order!("task_work", one_round, [
        Setup(IORING_SETUP_DEFER_TASKRUN), Sqe(IOSQE_IO_LINK),
    ], "with DEFER_TASKRUN one call runs the task work queued so far, the next call runs the rest"),
];

/// Number of rounds: enough that a thread of softring's own is not first each time.
const ROUNDS: u64 = 100;

/// A request that waits, its way to become ready, and the data left afterwards.
struct Waiting {
    what: &'static str,
    pipe: (OwnedFd, OwnedFd),
    socket: (UnixStream, UnixStream),
}

impl Waiting {
    fn all(cx: &mut Cx) -> Result<Vec<Self>, Stop> {
        let new = |what| Ok(Self { what, pipe: cx.pipe()?, socket: UnixStream::pair()? });
        ["READ", "RECV", "POLL_ADD"].into_iter().map(new).collect()
    }

    /// Returns all, and a SEND that waits for room: to fill and to empty its socket takes a while.
    fn all_and_send(cx: &mut Cx) -> Result<Vec<Self>, Stop> {
        let mut all = Self::all(cx)?;
        all.push(Self { what: "SEND", pipe: cx.pipe()?, socket: UnixStream::pair()? });
        Ok(all)
    }

    fn arm(&self, buf: &mut [u8]) -> io_uring_sqe {
        let (r, socket) = (self.pipe.0.as_raw_fd(), self.socket.1.as_raw_fd());
        match self.what {
            "READ" => sqe::read(r, buf, 0),
            "RECV" => recv(socket, buf),
            "SEND" => {
                let full = || net::send(&self.socket.1, &[0; 4096], SendFlags::DONTWAIT);
                while full().is_ok() {}
                send(socket, buf)
            }
            _ => sqe::poll_add(r, libc::POLLIN),
        }
        .ud(1)
    }

    /// Makes the request ready without using the ring.
    fn end(&self) -> Outcome {
        match self.what {
            "RECV" => rustix::io::write(&self.socket.0, b"x")?,
            "SEND" => {
                let mut room = vec![0; 1 << 16];
                let mut read = || net::recv(&self.socket.0, &mut room[..], RecvFlags::DONTWAIT);
                while read().is_ok() {}
                0
            }
            _ => rustix::io::write(&self.pipe.1, b"x")?,
        };
        Ok(())
    }

    /// Returns a request that makes it ready.
    fn ender(&self) -> io_uring_sqe {
        match self.what {
            "RECV" => send(self.socket.0.as_raw_fd(), b"x"),
            _ => sqe::write(self.pipe.1.as_raw_fd(), b"x", 0),
        }
        .ud(2)
    }

    fn clear(&self) -> Outcome {
        if self.what == "POLL_ADD" {
            rustix::io::read(&self.pipe.0, &mut [0; 8])?;
        }
        Ok(())
    }
}

/// Makes `ROUNDS` requests ready, and records after how many calls of `enter` the completion was
/// there.
fn rounds(
    cx: &mut Cx,
    flags: u32,
    comes: bool,
    mut enter: impl FnMut(&mut Ring) -> isize,
) -> Outcome {
    for waiting in Waiting::all_and_send(cx)? {
        let mut ring = cx.ring(MANY, flags)?;
        let (mut there, mut buf) = (0, [0; 1]);
        for _ in 0..ROUNDS {
            ring.push(waiting.arm(&mut buf)).submit();
            waiting.end()?;
            enter(&mut ring);
            there += ring.pop_all().iter().filter(|c| c.user_data == 1).count() as u64;
            if !comes {
                ring.take(1)?;
            } else if there == 0 {
                break;
            }
            waiting.clear()?;
        }
        cx.is(waiting.what, there, if comes { ROUNDS } else { 0 });
    }
    Ok(())
}

fn nothing_to_submit(cx: &mut Cx) -> Outcome {
    for flags in [0, IORING_SETUP_COOP_TASKRUN, IORING_SETUP_SINGLE_ISSUER] {
        rounds(cx, flags, true, |ring| ring.enter(0, 0, 0))?;
    }
    Ok(())
}

fn submitting(cx: &mut Cx) -> Outcome {
    rounds(cx, 0, true, |ring| ring.push(sqe::nop()).submit())
}

/// A time shorter than any other thread of softring's needs to check a ring that is often entered.
const SLEEP: Duration = Duration::from_micros(20);

fn sleeping(cx: &mut Cx) -> Outcome {
    for flags in [0, IORING_SETUP_COOP_TASKRUN] {
        rounds(cx, flags, true, |_| {
            std::thread::sleep(SLEEP);
            0
        })?;
    }
    Ok(())
}

/// Room of the CQ.
const MANY: u32 = 32;

fn wait_satisfied(cx: &mut Cx) -> Outcome {
    rounds(cx, 0, true, |ring| {
        (1..=MANY).map(|n| ring.push(sqe::nop()).submit_wait(n)).sum()
    })
}

fn ready_by_own_batch(cx: &mut Cx) -> Outcome {
    for waiting in Waiting::all(cx)? {
        let mut ring = cx.ring(8, 0)?;
        let (mut there, mut buf) = (0, [0; 1]);
        for _ in 0..ROUNDS {
            ring.push(waiting.arm(&mut buf)).submit();
            ring.push(waiting.ender()).submit();
            there += ring.pop_all().iter().filter(|c| c.user_data == 1).count() as u64;
            if there == 0 {
                break;
            }
            waiting.clear()?;
        }
        cx.is(waiting.what, there, ROUNDS);
    }
    Ok(())
}

fn armed_and_ready_in_batch(cx: &mut Cx) -> Outcome {
    for waiting in Waiting::all(cx)? {
        let (mut there, mut buf) = (0, [0; 1]);
        for _ in 0..ROUNDS / 4 {
            // A new ring has nothing in flight.
            let mut ring = cx.ring(8, 0)?;
            ring.push(waiting.arm(&mut buf)).push(waiting.ender()).submit();
            there += ring.pop_all().iter().filter(|c| c.user_data == 1).count() as u64;
            waiting.clear()?;
        }
        cx.is(waiting.what, there, ROUNDS / 4);
    }
    Ok(())
}

fn woken_before_links(cx: &mut Cx) -> Outcome {
    for flags in [0, IORING_SETUP_COOP_TASKRUN] {
        for waiting in Waiting::all(cx)? {
            let mut ring = cx.ring(8, flags)?;
            let mut buf = [0; 1];
            ring.push(waiting.arm(&mut buf)).submit();
            ring.push(waiting.ender().link()).push(sqe::nop().ud(3).link());
            ring.push(sqe::nop().ud(4)).submit();
            cx.note_cqes(waiting.what, &mut ring);
        }
    }
    Ok(())
}

/// Has a poll woken by data that a later request of the batch takes: the batch's own, or task work.
fn poll_of_taken_data(cx: &mut Cx) -> Outcome {
    for flags in [0, IORING_SETUP_COOP_TASKRUN, DEFER] {
        for takes in ["READ a pipe", "READ", "RECV"] {
            for (how, link) in [("beside", 0), ("linked", IOSQE_IO_LINK)] {
                let mut ring = cx.ring(8, flags)?;
                let (pipe, socket) = (cx.pipe()?, UnixStream::pair()?);
                let (to, from) = match takes {
                    "READ a pipe" => (pipe.1.as_raw_fd(), pipe.0.as_raw_fd()),
                    _ => (socket.0.as_raw_fd(), socket.1.as_raw_fd()),
                };
                let mut buf = [0; 8];
                let take = match takes {
                    "RECV" => recv(from, &mut buf),
                    _ => sqe::read(from, &mut buf, 0),
                };
                ring.push(sqe::poll_add(from, libc::POLLIN).ud(1)).submit();
                let give = sqe::write(to, b"x", 0).ud(2).with(link);
                ring.push(give).push(take.ud(3)).submit();
                ring.enter(0, 0, IORING_ENTER_GETEVENTS);
                cx.note_cqes(&format!("{takes}, {how}"), &mut ring);
            }
        }
    }
    Ok(())
}

fn interrupts_epoll_wait(cx: &mut Cx) -> Outcome {
    use rustix::event::epoll::{CreateFlags, create};
    for flags in [0, IORING_SETUP_COOP_TASKRUN, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let set = create(CreateFlags::CLOEXEC)?;
        let soon = sqe::millis(20);
        ring.push(sqe::timeout(&soon, 0, 0).ud(1)).submit();
        cx.note("epoll_wait", os_poll::epoll_wait(set.as_raw_fd(), 1, 200).0);
        cx.reap(&mut ring, "the timeout", &[(1, -ETIME)]);
    }
    Ok(())
}

fn each_wake_up(cx: &mut Cx) -> Outcome {
    type Enter = fn(&mut Ring) -> isize;
    let calls: [(&str, Enter); 3] = [
        ("nothing to submit", |ring| ring.enter(0, 0, 0)),
        ("a NOP", |ring| ring.push(sqe::nop()).submit()),
        ("a NOP awaited", |ring| ring.push(sqe::nop()).submit_wait(1)),
    ];
    for (what, enter) in calls {
        let mut ring = cx.ring(8, 0)?;
        let ev = cx.eventfd(0)?;
        let poll = sqe::poll_add(ev.as_raw_fd(), libc::POLLIN).ud(1);
        ring.push(poll.set(|s| s.len = IORING_POLL_ADD_MULTI)).submit();
        let mut told = 0;
        for _ in 0..ROUNDS {
            for _ in 0..2 {
                rustix::io::write(&ev, &1u64.to_ne_bytes())?;
                enter(&mut ring);
            }
            told += ring.pop_all().iter().filter(|c| c.user_data == 1).count() as u64;
        }
        cx.is(what, told, 2 * ROUNDS);
    }
    Ok(())
}

fn deferred(cx: &mut Cx) -> Outcome {
    rounds(cx, DEFER, false, |ring| ring.enter(0, 0, 0))?;
    rounds(cx, DEFER, false, |ring| ring.push(sqe::nop()).submit())?;
    rounds(cx, DEFER, true, |ring| ring.enter(0, 0, IORING_ENTER_GETEVENTS))
}

/// Checks a chain of three, and a NOP beside it: a linked request is task work of its predecessor.
fn one_round(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(MANY, DEFER)?;
    ring.push(sqe::nop().ud(1).link()).push(sqe::nop().ud(2).link());
    ring.push(sqe::nop().ud(3)).push(sqe::nop().ud(4));
    cx.is("submitted", ring.submit(), 4);
    for call in ["first", "second", "third"] {
        ring.enter(0, 0, IORING_ENTER_GETEVENTS);
        cx.note_cqes(call, &mut ring);
    }
    Ok(())
}
