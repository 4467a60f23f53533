//! Rings in epoll sets: members come and go while threads wait, and sets are reached by other ways.

use super::prelude::*;
use crate::os_poll;
use crate::poll_shapes::{LONG, Set, Shape, feed, polled, while_waiting};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use libc::{EPOLLET, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};
use std::thread::scope;
use std::time::Instant;

pub const CASES: &[Case] = &[
    case!("epoll_sets", ctl_refusals, [Op(IORING_OP_NOP)], "epoll_ctl refuses what it refuses for any file"),
    legal!("epoll_sets", added_during_wait, [
        Op(IORING_OP_NOP), Op(IORING_OP_READ),
    ], "a ring that is added while a thread waits ends the wait"),
    any_order!("epoll_sets", changed_during_wait, [Op(IORING_OP_READ)], "a member is changed or removed while a thread waits"),
    case!("epoll_sets", edge_triggered, [Op(IORING_OP_NOP)], "an edge for each wake-up, and for each change of a member"),
    case!("epoll_sets", edge_of_enter, [
        Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_READ),
    ], "an edge for what an enter posts"),
    case!("epoll_sets", room_by_edge, [
        Op(IORING_OP_NOP), Op(IORING_OP_READ),
    ], "an edge tells of room in the SQ, too, if a member asks for both"),
    case!("epoll_sets", many_members, [Op(IORING_OP_NOP)], "rings and pipes of one set are all told of, one at a time"),
    case!("epoll_sets", set_in_a_set, [
        Op(IORING_OP_NOP),
    ], "a set in a set tells of a ring, and of none whose completions are taken"),
    legal!("epoll_sets", duplicated_set, [Op(IORING_OP_READ)], "a duplicate of the set is waited for"),
    legal!("epoll_sets", reused_fds, [Op(IORING_OP_NOP)], "a number that was a set or a ring means nothing of it later"),
    legal!("epoll_sets", polled_by_rings, [
        Op(IORING_OP_POLL_ADD), Op(IORING_OP_EPOLL_WAIT),
    ], "another ring polls the set, and waits for its events"),
    legal!("epoll_sets", one_waiter_per_completion, [Op(IORING_OP_READ)], "two threads wait on one set; each completion wakes one"),
    case!("epoll_sets", wait_timeouts, [Op(IORING_OP_NOP)], "a wait without events ends in time, whatever else comes"),
    case!("epoll_sets", bad_arrays, [Op(IORING_OP_NOP)], "an array that cannot be written is EFAULT"),
];

const READABLE: i32 = EPOLLIN;

/// Has the ring post a CQE.
fn ready(cx: &mut Cx, ring: &mut Ring) {
    cx.start(ring, &[sqe::nop()]);
}

fn ctl_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let (set, (r, _w)) = (Set::new()?, cx.pipe()?);
    let errno = |ret: i32| if ret < 0 { -crate::entry::errno() } else { ret };
    for (what, op, fd, events) in [
        ("changed before it is there", EPOLL_CTL_MOD, ring.fd, READABLE),
        ("removed before it is there", EPOLL_CTL_DEL, ring.fd, 0),
        ("added", EPOLL_CTL_ADD, ring.fd, READABLE),
        ("added twice", EPOLL_CTL_ADD, ring.fd, READABLE | EPOLLET),
        ("changed", EPOLL_CTL_MOD, ring.fd, READABLE | EPOLLOUT),
        ("changed back", EPOLL_CTL_MOD, ring.fd, READABLE),
        ("removed", EPOLL_CTL_DEL, ring.fd, 0),
        ("removed twice", EPOLL_CTL_DEL, ring.fd, 0),
        ("no such call", 9, ring.fd, READABLE),
    ] {
        cx.note(what, errno(set.ctl(op, fd, events, 1)));
    }
    for (what, fd) in [("not a set", r.as_raw_fd()), ("no set", -1)] {
        cx.note(what, errno(os_poll::epoll_ctl(fd, EPOLL_CTL_ADD, ring.fd, READABLE, 1)));
    }
    Ok(())
}

fn added_during_wait(cx: &mut Cx) -> Outcome {
    for edge in [0, EPOLLET] {
        for before in [false, true] {
            let (mut first, mut second) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
            let set = Set::new()?;
            if before {
                cx.is("one is there", set.ctl(EPOLL_CTL_ADD, first.fd, READABLE | edge, 1), 0);
            }
            ready(cx, &mut second);
            let fd = second.fd;
            let add = || assert_eq!(set.ctl(EPOLL_CTL_ADD, fd, READABLE | edge, 2), 0);
            cx.eq("added ready", while_waiting(|| set.wait(LONG), add), vec![2]);
            second.pop_all();
            let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
            cx.start(&mut second, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
            cx.eq("later", while_waiting(|| set.wait(LONG), || feed(&w)), vec![2]);
            cx.is("read", second.pop_all().len(), 1);
            ready(cx, &mut first);
            cx.eq("the first", set.wait(20), if before { vec![1] } else { vec![] });
        }
    }
    Ok(())
}

fn changed_during_wait(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let set = Set::with(Shape::Level, ring.fd)?;
    let fd = ring.fd;
    // Another number for the same ring in the set.
    let act = || assert_eq!(set.ctl(EPOLL_CTL_MOD, fd, READABLE | EPOLLONESHOT, 8), 0);
    cx.eq("nothing to tell", while_waiting(|| set.wait(60), act), vec![]);
    ready(cx, &mut ring);
    cx.eq("the new number", set.wait(LONG), vec![8]);
    cx.eq("once", set.wait(5), vec![]);
    cx.eq("armed while it waits", while_waiting(|| set.wait(LONG), act), vec![8]);
    let none = || assert_eq!(set.ctl(EPOLL_CTL_MOD, fd, 0, 9), 0);
    cx.eq("for nothing", while_waiting(|| set.wait(40), none), vec![]);
    cx.is("for all", set.ctl(EPOLL_CTL_MOD, fd, READABLE, 10), 0);
    cx.eq("again", set.wait(LONG), vec![10]);
    cx.is("removed", set.ctl(EPOLL_CTL_DEL, fd, 0, 0), 0);
    cx.eq("nothing", set.wait(5), vec![]);
    ring.pop_all();
    cx.is("added", set.ctl(EPOLL_CTL_ADD, fd, READABLE, 11), 0);
    let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
    let gone = || {
        set.ctl(EPOLL_CTL_DEL, fd, 0, 0);
        feed(&w);
    };
    cx.eq("removed while it waits", while_waiting(|| set.wait(60), gone), vec![]);
    cx.is("read all the same", ring.take(1)?.len(), 1);
    Ok(())
}

fn edge_triggered(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let set = Set::new()?;
    let asked = READABLE | EPOLLET | EPOLLRDHUP | EPOLLPRI;
    cx.is("added", set.ctl(EPOLL_CTL_ADD, ring.fd, asked, 7), 0);
    cx.eq("nothing", set.wait(0), vec![]);
    for n in 1..=3 {
        ready(cx, &mut ring);
        cx.eq(&format!("wake-up {n}"), set.wait(LONG), vec![7]);
        cx.eq("once", set.wait(5), vec![]);
    }
    ready(cx, &mut ring);
    ready(cx, &mut ring);
    cx.eq("one for two", set.wait(LONG), vec![7]);
    cx.eq("and no more", set.wait(5), vec![]);
    cx.is("changed", set.ctl(EPOLL_CTL_MOD, ring.fd, READABLE | EPOLLET, 8), 0);
    cx.eq("armed anew", set.wait(LONG), vec![8]);
    ring.pop_all();
    cx.is("changed", set.ctl(EPOLL_CTL_MOD, ring.fd, READABLE | EPOLLET, 9), 0);
    cx.eq("nothing to tell", set.wait(5), vec![]);
    ready(cx, &mut ring);
    ring.pop_all();
    cx.eq("consumed before", set.wait(5), vec![]);
    ready(cx, &mut ring);
    cx.is("polled", polled(Shape::Poll, &[ring.fd], 0), 1);
    cx.eq("a poll takes no edge", set.wait(LONG), vec![9]);
    Ok(())
}

fn edge_of_enter(cx: &mut Cx) -> Outcome {
    for edge in [0, EPOLLET] {
        let mut ring = cx.ring(8, DEFER)?;
        let set = Set::new()?;
        cx.is("added", set.ctl(EPOLL_CTL_ADD, ring.fd, READABLE | edge, 7), 0);
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        for round in 0..3 {
            cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
            cx.eq(&format!("nothing, {round}"), set.wait(5), vec![]);
            feed(&w);
            cx.is("enter", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
            cx.is("posted", ring.cq_ready(), 1);
            cx.eq("its CQE", set.wait(LONG), vec![7]);
            cx.eq("again", set.wait(5), if edge == 0 { vec![7] } else { vec![] });
            ring.pop_all();
        }
    }
    Ok(())
}

fn room_by_edge(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(2, 0)?;
    let set = Set::new()?;
    let asked = READABLE | EPOLLOUT | EPOLLET | EPOLLRDHUP;
    cx.is("added", set.ctl(EPOLL_CTL_ADD, ring.fd, asked, 7), 0);
    cx.eq("room", set.wait_events(LONG), vec![EPOLLOUT]);
    cx.eq("once", set.wait_events(5), vec![]);
    ready(cx, &mut ring);
    cx.eq("both", set.wait_events(LONG), vec![READABLE | EPOLLOUT]);
    cx.eq("once", set.wait_events(5), vec![]);
    ready(cx, &mut ring);
    ring.pop_all();
    cx.eq("consumed before", set.wait_events(5), vec![EPOLLOUT]);
    let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
    for full in [false, true] {
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        if full {
            ring.push(sqe::nop()).push(sqe::nop());
        }
        let events = if full { READABLE } else { READABLE | EPOLLOUT };
        cx.eq("later", while_waiting(|| set.wait_events(LONG), || feed(&w)), vec![events]);
        cx.is("read", ring.pop_all().len(), 1);
        cx.eq("once", set.wait_events(5), vec![]);
    }
    cx.is("changed while full", set.ctl(EPOLL_CTL_MOD, ring.fd, asked, 8), 0);
    cx.eq("no room", set.wait_events(5), vec![]);
    cx.is("submitted", ring.enter(2, 0, 0), 2);
    cx.eq("both", set.wait_events(LONG), vec![READABLE | EPOLLOUT]);
    cx.is("changed", set.ctl(EPOLL_CTL_MOD, ring.fd, asked, 9), 0);
    cx.eq("armed anew", set.wait_events(LONG), vec![READABLE | EPOLLOUT]);
    Ok(())
}

fn set_in_a_set(cx: &mut Cx) -> Outcome {
    for (mode, name) in [(0, "level"), (EPOLLET, "edge")] {
        let mut ring = cx.ring(4, 0)?;
        let (inner, outer) = (Set::new()?, Set::new()?);
        cx.is("inner", outer.ctl(EPOLL_CTL_ADD, inner.0.as_raw_fd(), READABLE | mode, 1), 0);
        cx.is("ring", inner.ctl(EPOLL_CTL_ADD, ring.fd, READABLE | mode, 2), 0);
        cx.eq(name, outer.wait_events(5), vec![]);
        ready(cx, &mut ring);
        cx.eq("told of", outer.wait_events(LONG), vec![READABLE]);
        ready(cx, &mut ring);
        cx.is("taken", ring.pop_all().len(), 2);
        cx.eq("no more", outer.wait_events(5), vec![]);
        cx.eq("nor inside", inner.wait_events(5), vec![]);
        ready(cx, &mut ring);
        cx.eq("again", outer.wait_events(LONG), vec![READABLE]);
        cx.eq("inside", inner.wait_events(5), vec![READABLE]);
    }
    Ok(())
}

fn many_members(cx: &mut Cx) -> Outcome {
    let set = Set::new()?;
    let mut rings = Vec::new();
    for n in 0..6 {
        let mut ring = cx.ring(4, 0)?;
        ready(cx, &mut ring);
        cx.is("a ring", set.ctl(EPOLL_CTL_ADD, ring.fd, READABLE, n), 0);
        rings.push(ring);
    }
    let (r, w) = cx.pipe()?;
    feed(&w);
    cx.is("a pipe", set.ctl(EPOLL_CTL_ADD, r.as_raw_fd(), READABLE, 6), 0);
    let mut all = set.wait(LONG);
    all.sort_unstable();
    cx.eq("all", all, (0..7).collect::<Vec<u64>>());
    let mut told: Vec<u64> = (0..40).flat_map(|_| set.wait_for(1, LONG)).collect();
    told.sort_unstable();
    told.dedup();
    cx.eq("one at a time", told, (0..7).collect::<Vec<u64>>());
    for ring in &mut rings {
        ring.pop_all();
    }
    cx.eq("the pipe", set.wait(LONG), vec![6]);
    Ok(())
}

fn duplicated_set(cx: &mut Cx) -> Outcome {
    for first in [false, true] {
        let mut ring = cx.ring(4, 0)?;
        let set = Set::new()?;
        let early = if first { Some(Set(os_poll::dup(set.0.as_raw_fd())?)) } else { None };
        let by = early.as_ref().unwrap_or(&set);
        cx.is("added", by.ctl(EPOLL_CTL_ADD, ring.fd, READABLE, 7), 0);
        cx.eq("nothing", set.wait(5), vec![]);
        let other = match early {
            Some(other) => other,
            None => Set(os_poll::dup(set.0.as_raw_fd())?),
        };
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        for set in [&other, &set] {
            cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
            cx.eq("told", while_waiting(|| set.wait(LONG), || feed(&w)), vec![7]);
            cx.is("read", ring.pop_all().len(), 1);
        }
        cx.is("changed by the other", other.ctl(EPOLL_CTL_MOD, ring.fd, READABLE, 8), 0);
        drop(set);
        ready(cx, &mut ring);
        cx.eq("the set lives on", other.wait(LONG), vec![8]);
    }
    Ok(())
}

fn reused_fds(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let set = Set::with(Shape::Level, ring.fd)?;
    ready(cx, &mut ring);
    cx.eq("told", set.wait(LONG), vec![7]);
    let number = set.0.as_raw_fd();
    drop(set);
    let set = Set::new()?;
    cx.is("the same number", set.0.as_raw_fd(), number);
    cx.eq("an empty set", set.wait(5), vec![]);
    cx.is("not there", set.ctl(EPOLL_CTL_MOD, ring.fd, READABLE, 1), -1);
    cx.is("added", set.ctl(EPOLL_CTL_ADD, ring.fd, READABLE, 2), 0);
    cx.eq("told", set.wait(LONG), vec![2]);
    let number = ring.fd;
    drop(ring);
    let mut ring = cx.ring(4, 0)?;
    cx.is("its number", ring.fd, number);
    ready(cx, &mut ring);
    cx.eq("another ring", set.wait(5), vec![]);
    Ok(())
}

fn polled_by_rings(cx: &mut Cx) -> Outcome {
    for late in [false, true] {
        let (mut ring, mut other) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
        let set = Set::new()?;
        let fd = set.0.as_raw_fd();
        let add = || set.ctl(EPOLL_CTL_ADD, ring.fd, READABLE, 7);
        if !late {
            cx.is("added", add(), 0);
            cx.eq("nothing", set.wait(5), vec![]);
        }
        cx.start(&mut other, &[sqe::poll_add(fd, libc::POLLIN)]);
        if late {
            cx.is("added", add(), 0);
        }
        cx.quiet(&other, "waits", 5);
        ready(cx, &mut ring);
        cx.reap(&mut other, "polled", &[(0, i32::from(libc::POLLIN))]);
        ring.pop_all();
        cx.eq("nothing", set.wait(5), vec![]);
        let mut event = [0u8; 12];
        let wait = sqe::rw(IORING_OP_EPOLL_WAIT, fd, addr_mut(&mut event), 1, 0);
        cx.start(&mut other, &[wait]);
        cx.quiet(&other, "waits", 5);
        ready(cx, &mut ring);
        cx.reap(&mut other, "its event", &[(0, 1)]);
        cx.eq("waited for", set.wait(LONG), vec![7]);
    }
    Ok(())
}

fn one_waiter_per_completion(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let set = Set::with(Shape::Edge, ring.fd)?;
    let mut buf = [0; 4];
    for round in 0..3 {
        let (r, w) = cx.pipe()?;
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let told: usize = scope(|s| {
            let waits = || s.spawn(|| set.wait(200).len());
            let both = [waits(), waits()];
            std::thread::sleep(crate::poll_shapes::SOON);
            feed(&w);
            both.map(|one| one.join().unwrap()).iter().sum()
        });
        cx.is(&format!("round {round}"), told, 1);
        cx.is("read", ring.pop_all().len(), 1);
    }
    cx.eq("alone again", set.wait(5), vec![]);
    ready(cx, &mut ring);
    cx.eq("told", set.wait(LONG), vec![7]);
    Ok(())
}

fn wait_timeouts(cx: &mut Cx) -> Outcome {
    for edge in [0, EPOLLET] {
        let mut ring = cx.ring(8, 0)?;
        let set = Set::new()?;
        cx.is("added", set.ctl(EPOLL_CTL_ADD, ring.fd, READABLE | edge, 7), 0);
        if edge != 0 {
            ready(cx, &mut ring);
            cx.eq("told", set.wait(0), vec![7]);
        }
        for ms in [0, 1, 30] {
            let began = Instant::now();
            cx.eq("nothing", set.wait(ms), vec![]);
            let took = began.elapsed().as_millis() as i32;
            cx.holds(&format!("{ms} ms"), (ms..ms + 500).contains(&took));
        }
    }
    Ok(())
}

fn bad_arrays(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let set = Set::with(Shape::Level, ring.fd)?;
    let fd = set.0.as_raw_fd();
    for max in [0, -1] {
        cx.note("no room", os_poll::epoll_wait_at(fd, 0, max));
    }
    cx.note("nowhere, and nothing", os_poll::epoll_wait_at(fd, 8, 4));
    ready(cx, &mut ring);
    cx.note("nowhere", os_poll::epoll_wait_at(fd, 8, 4));
    cx.eq("told later", set.wait(LONG), vec![7]);
    Ok(())
}
