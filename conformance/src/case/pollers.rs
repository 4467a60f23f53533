//! A program that sleeps in its own poll, with rings among the descriptors.

use super::prelude::*;
use crate::os_poll;
use crate::poll_shapes::{
    LONG, SHAPES, SOON, Set, Shape, feed, polled, signalled, wait, while_waiting,
};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    any_order!("pollers", each_completion_kind, [
        Op(IORING_OP_TIMEOUT), Op(IORING_OP_READ), Op(IORING_OP_POLL_ADD), Op(IORING_OP_MSG_RING),
    ], "every way to complete a request ends the poll of its ring"),
    legal!("pollers", several_threads_and_rings, [Op(IORING_OP_READ)], "two threads poll one ring, and one thread polls two rings"),
    case!("pollers", until_reaped, [
        Op(IORING_OP_NOP),
    ], "a ring stays readable until it is reaped; edge triggering reports each completion once"),
    case!("pollers", one_shot, [Op(IORING_OP_NOP)], "EPOLLONESHOT reports once until it is armed again"),
    case!("pollers", other_set_members, [Op(IORING_OP_NOP)], "other members of the set are reported as well"),
    any_order!("pollers", set_in_set, [Op(IORING_OP_READ)], "a set with a ring is polled, and is a member of another set"),
    legal!("pollers", poll_and_enter, [Op(IORING_OP_READ)], "one thread polls, another waits in enter"),
    any_order!("pollers", signals, [Op(IORING_OP_READ)], "a signal handler ends the poll, under the poll's mask"),
    any_order!("pollers", handler_enters, [Op(IORING_OP_NOP)], "a signal handler may enter the polled ring"),
    any_order!("pollers", deferred, [
        Setup(IORING_SETUP_DEFER_TASKRUN), Op(IORING_OP_READ),
    ], "a ring is readable while its task has completions to post"),
    legal!("pollers", polled_by_ring, [
        Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ),
    ], "a ring polls the same file as a thread"),
    case!("pollers", by_eventfd, [
        Reg(IORING_REGISTER_EVENTFD), Op(IORING_OP_READ), Op(IORING_OP_TIMEOUT),
    ], "a thread polls a registered eventfd instead of the ring"),
    case!("pollers", poll_timeouts, [Op(IORING_OP_TIMEOUT)], "a poll ends in time, and not before"),
];

fn each_completion_kind(cx: &mut Cx) -> Outcome {
    let soon = kernel_timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    for shape in SHAPES {
        for what in ["a timeout", "a pipe", "a worker", "a poll", "a message", "another's NOP"] {
            let (mut ring, mut other) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
            let set = Set::with(shape, ring.fd)?;
            let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
            let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
            match what {
                "a timeout" => cx.start(&mut ring, &[sqe::timeout(&soon, 0, 0)]),
                "a pipe" => cx.start(&mut ring, &[read]),
                "a worker" => cx.start(&mut ring, &[read.with(IOSQE_ASYNC)]),
                "a poll" => cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN)]),
                _ => {}
            }
            let label = format!("{what}, {}", shape.name());
            cx.is(&format!("{label}: not yet"), wait(shape, ring.fd, &set, 0), 0);
            let fd = ring.fd;
            let got = while_waiting(|| wait(shape, fd, &set, LONG), || match what {
                "a message" => { other.push(sqe::op(IORING_OP_MSG_RING, fd)).submit(); },
                "another's NOP" => { ring.push(sqe::nop()).submit(); },
                _ => feed(&w),
            });
            cx.is(&label, got, 1);
            cx.is(&format!("{label}: posted"), ring.cq_ready(), 1);
        }
    }
    Ok(())
}

fn several_threads_and_rings(cx: &mut Cx) -> Outcome {
    for shape in SHAPES {
        let mut ring = cx.ring(4, 0)?;
        let set = Set::with(shape, ring.fd)?;
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let fd = ring.fd;
        let told = AtomicI32::new(0);
        scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    // One edge wakes only one of them.
                    let most = if shape == Shape::Edge { 200 } else { LONG };
                    told.fetch_add(wait(shape, fd, &set, most), SeqCst)
                });
            }
            sleep(SOON);
            feed(&w);
        });
        cx.is(shape.name(), told.load(SeqCst), if shape == Shape::Edge { 1 } else { 2 });
        cx.is("posted", ring.cq_ready(), 1);
    }
    for second in [false, true] {
        let mut rings = [cx.ring(4, 0)?, cx.ring(4, 0)?];
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        let fds = [rings[0].fd, rings[1].fd];
        cx.start(&mut rings[usize::from(second)], &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let act = || feed(&w);
        cx.is("one of two", while_waiting(|| polled(Shape::Poll, &fds, LONG), act), 1);
        let twice = [fds[usize::from(second)]; 2];
        cx.is("named twice", polled(Shape::Ppoll, &twice, LONG), 2);
    }
    Ok(())
}

fn until_reaped(cx: &mut Cx) -> Outcome {
    for shape in SHAPES {
        let mut ring = cx.ring(8, 0)?;
        let set = Set::with(shape, ring.fd)?;
        for round in 0..3 {
            cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
            for again in 0..3 {
                let label = format!("{}, {round}, {again}", shape.name());
                let told = shape != Shape::Edge || again == 0;
                cx.is(&label, wait(shape, ring.fd, &set, 5), i32::from(told));
            }
            if round > 0 {
                ring.pop_all();
                cx.is("reaped", wait(shape, ring.fd, &set, 5), 0);
            }
        }
    }
    let mut ring = cx.ring(8, 0)?;
    let set = Set::with(Shape::Edge, ring.fd)?;
    cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
    cx.is("told", set.wait(5).len(), 1);
    cx.is("MOD", set.ctl(libc::EPOLL_CTL_MOD, ring.fd, libc::EPOLLIN | libc::EPOLLET, 9), 0);
    cx.eq("told again, by MOD", set.wait(5), vec![9]);
    cx.eq("once", set.wait(5), vec![]);
    cx.is("DEL", set.ctl(libc::EPOLL_CTL_DEL, ring.fd, 0, 0), 0);
    cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
    cx.eq("no member any more", set.wait(5), vec![]);
    Ok(())
}

fn one_shot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let set = Set::new()?;
    let events = libc::EPOLLIN | libc::EPOLLONESHOT;
    cx.is("ADD", set.ctl(libc::EPOLL_CTL_ADD, ring.fd, events, 7), 0);
    cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
    cx.eq("told", set.wait(5), vec![7]);
    cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
    cx.eq("not again", set.wait(5), vec![]);
    cx.is("MOD", set.ctl(libc::EPOLL_CTL_MOD, ring.fd, events, 8), 0);
    cx.eq("armed", set.wait(5), vec![8]);
    Ok(())
}

fn other_set_members(cx: &mut Cx) -> Outcome {
    for shape in [Shape::Level, Shape::Edge] {
        let mut ring = cx.ring(8, 0)?;
        let set = Set::with(shape, ring.fd)?;
        let (r, w) = cx.pipe()?;
        cx.is("ADD", set.ctl(libc::EPOLL_CTL_ADD, r.as_raw_fd(), libc::EPOLLIN, 1), 0);
        let act = || feed(&w);
        cx.eq("the pipe", while_waiting(|| set.wait(LONG), act), vec![1]);
        cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
        let mut both = set.wait(LONG);
        both.sort_unstable();
        cx.eq("both", both, vec![1, 7]);
        if shape == Shape::Level {
            let mut seen: Vec<u64> = (0..4).flat_map(|_| set.wait_for(1, LONG)).collect();
            seen.sort_unstable();
            seen.dedup();
            cx.eq("one at a time", seen, vec![1, 7]);
        }
    }
    Ok(())
}

fn set_in_set(cx: &mut Cx) -> Outcome {
    for inner_first in [true, false] {
        let mut ring = cx.ring(8, 0)?;
        let inner = Set::new()?;
        let add = || inner.ctl(libc::EPOLL_CTL_ADD, ring.fd, libc::EPOLLIN, 7);
        if inner_first {
            cx.is("the ring", add(), 0);
        }
        let outer = Set::with(Shape::Level, inner.0.as_raw_fd())?;
        if !inner_first {
            cx.is("the ring", add(), 0);
        }
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        cx.eq("waits", inner.wait(5), vec![]);
        let act = || feed(&w);
        cx.eq("the outer set", while_waiting(|| outer.wait(LONG), act), vec![7]);
        cx.is("the inner one, polled", polled(Shape::Poll, &[inner.0.as_raw_fd()], LONG), 1);
        cx.eq("and waited for", inner.wait(LONG), vec![7]);
        ring.pop_all();
        cx.eq("reaped", inner.wait(5), vec![]);
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let act = || feed(&w);
        let fds = [inner.0.as_raw_fd()];
        cx.is("polled while it comes", while_waiting(|| polled(Shape::Poll, &fds, LONG), act), 1);
    }
    Ok(())
}

fn poll_and_enter(cx: &mut Cx) -> Outcome {
    for shape in SHAPES {
        for enters_first in [false, true] {
            let mut ring = cx.ring(8, 0)?;
            let set = Set::with(shape, ring.fd)?;
            let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
            cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
            let (fd, ring) = (ring.fd, &mut ring);
            let told = scope(|s| {
                let enter = s.spawn(move || {
                    sleep(if enters_first { Duration::ZERO } else { SOON });
                    ring.enter(0, 1, IORING_ENTER_GETEVENTS)
                });
                sleep(if enters_first { SOON } else { Duration::ZERO });
                let writer = s.spawn(|| {
                    sleep(SOON * 2);
                    feed(&w);
                });
                let told = wait(shape, fd, &set, LONG);
                writer.join().expect("writes");
                (told, enter.join().expect("enters"))
            });
            cx.eq(shape.name(), told, (1, 0));
        }
    }
    Ok(())
}

static RUNS: AtomicU32 = AtomicU32::new(0);
static POLLED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn count(_: i32) {
    RUNS.fetch_add(1, SeqCst);
}

/// Submits a NOP to the ring that is polled.
extern "C" fn enter(_: i32) {
    RUNS.fetch_add(1, SeqCst);
    let n = os_poll::submit(POLLED.load(SeqCst), 1);
    RUNS.fetch_add(if n == 1 { 10 } else { 1000 }, SeqCst);
}

fn handled(handler: extern "C" fn(i32)) {
    os_poll::on_usr1(handler);
    RUNS.store(0, SeqCst);
}

fn signals(cx: &mut Cx) -> Outcome {
    handled(count);
    for shape in SHAPES {
        let mut ring = cx.ring(8, 0)?;
        let set = Set::with(shape, ring.fd)?;
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let fd = ring.fd;
        let got = signalled(|| {
            let n = match shape {
                Shape::Level | Shape::Edge => os_poll::epoll_wait(set.0.as_raw_fd(), 8, LONG).0,
                _ => wait(shape, fd, &set, LONG),
            };
            (n, std::io::Error::last_os_error().raw_os_error())
        });
        cx.eq(shape.name(), got, (-1, Some(libc::EINTR)));
        let act = || feed(&w);
        cx.is("then it goes on", while_waiting(|| wait(shape, fd, &set, LONG), act), 1);
    }
    cx.is("handled", RUNS.load(SeqCst), SHAPES.len() as u32);
    Ok(())
}

fn handler_enters(cx: &mut Cx) -> Outcome {
    for shape in [Shape::Poll, Shape::Ppoll, Shape::Level] {
        handled(enter);
        let mut ring = cx.ring(8, 0)?;
        let set = Set::with(shape, ring.fd)?;
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        ring.push(sqe::nop());
        POLLED.store(ring.fd, SeqCst);
        let fd = ring.fd;
        let _ = signalled(|| wait(shape, fd, &set, LONG));
        cx.is(shape.name(), RUNS.load(SeqCst), 11);
        cx.is("the NOP is there", wait(shape, fd, &set, LONG), 1);
        cx.is("alone", ring.cq_ready(), 1);
        ring.pop_all();
        let act = || feed(&w);
        cx.is("then it goes on", while_waiting(|| wait(shape, fd, &set, LONG), act), 1);
    }
    Ok(())
}

fn deferred(cx: &mut Cx) -> Outcome {
    for shape in [Shape::Poll, Shape::Ppoll] {
        for flags in [DEFER, DEFER | IORING_SETUP_TASKRUN_FLAG] {
            let mut ring = cx.ring(8, flags)?;
            let set = Set::with(shape, ring.fd)?;
            let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
            for round in 0..3 {
                cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
                let fd = ring.fd;
                let act = || feed(&w);
                let label = format!("{}, {round}", shape.name());
                // The kernel reports the ring readable, but wakes no waiter, nor any epoll set, for
                // it.
                cx.is(&label, while_waiting(|| wait(shape, fd, &set, 100), act), 1);
                cx.is("and stays so", wait(shape, fd, &set, 5), 1);
                cx.is("nothing is posted", ring.cq_ready(), 0);
                cx.is("until it is entered", ring.take(1)?.len(), 1);
                cx.is("then it is not", wait(shape, fd, &set, 5), 0);
            }
        }
    }
    Ok(())
}

fn polled_by_ring(cx: &mut Cx) -> Outcome {
    for shape in SHAPES {
        let (mut ring, mut other) = (cx.ring(8, 0)?, cx.ring(8, 0)?);
        let set = Set::with(shape, ring.fd)?;
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        let fd = ring.fd;
        cx.is("polled before", wait(shape, fd, &set, 5), 0);
        cx.start(&mut other, &[sqe::poll_add(fd, libc::POLLIN)]);
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let act = || feed(&w);
        cx.is(shape.name(), while_waiting(|| wait(shape, fd, &set, LONG), act), 1);
        cx.is("the other ring", other.take(1)?.len(), 1);
    }
    Ok(())
}

/// Checks that the eventfd is level-triggered, whatever drives its ring.
fn by_eventfd(cx: &mut Cx) -> Outcome {
    let soon = kernel_timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    for shape in SHAPES {
        for flags in [0, DEFER] {
            for what in ["a timeout", "a pipe", "a worker"] {
                let mut ring = cx.ring(4, flags)?;
                let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?;
                let fd = event.as_raw_fd();
                let args = [fd];
                cx.is("register", ring.register(IORING_REGISTER_EVENTFD, addr(&args), 1), 0);
                let set = Set::with(shape, fd)?;
                let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
                for round in 0..2 {
                    let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
                    let sqe = match what {
                        "a timeout" => sqe::timeout(&soon, 0, 0),
                        "a pipe" => read,
                        _ => read.with(IOSQE_ASYNC),
                    };
                    cx.start(&mut ring, &[sqe]);
                    let label = format!("{what}, {}, {round}", shape.name());
                    cx.is(&format!("{label}: not yet"), wait(shape, fd, &set, 0), 0);
                    let act = || feed(&w);
                    cx.is(&label, while_waiting(|| wait(shape, fd, &set, LONG), act), 1);
                    let mut count = [0; 8];
                    let n = rustix::io::read(&event, &mut count)?;
                    let count = u64::from_ne_bytes(count);
                    cx.eq("its count", (n, count.min(1), flags != 0 || count == 1), (8, 1, true));
                    cx.is("taken", ring.take(1)?.len(), 1);
                    // With DEFER_TASKRUN the eventfd was signalled for task work, and is now for
                    // the CQE.
                    let _ = rustix::io::read(&event, &mut [0; 8]);
                }
            }
        }
    }
    Ok(())
}

fn poll_timeouts(cx: &mut Cx) -> Outcome {
    let late = kernel_timespec { tv_sec: 0, tv_nsec: 60_000_000 };
    for shape in SHAPES {
        let mut ring = cx.ring(8, 0)?;
        let set = Set::with(shape, ring.fd)?;
        let begin = Instant::now();
        cx.start(&mut ring, &[sqe::timeout(&late, 0, 0)]);
        cx.is("its own limit comes first", wait(shape, ring.fd, &set, 20), 0);
        let early = begin.elapsed();
        cx.is("then the ring's", wait(shape, ring.fd, &set, LONG), 1);
        let all = begin.elapsed();
        let ms = Duration::from_millis;
        let good = early >= ms(20) && all >= ms(60) && all < ms(1500);
        cx.is(shape.name(), i32::from(good), 1);
    }
    Ok(())
}
