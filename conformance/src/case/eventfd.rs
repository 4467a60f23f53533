//! Eventfds that count completions.

use super::prelude::*;
use super::spurious_wakes::note_cqes;

pub const CASES: &[Case] = &[
    case!("eventfd", eventfd, [
        Reg(IORING_REGISTER_EVENTFD), Reg(IORING_UNREGISTER_EVENTFD),
    ], "an eventfd counts completions"),
    case!("eventfd", eventfd_refusals, [Reg(IORING_REGISTER_EVENTFD)], "bad fds, counts and pointers, and a second registration"),
    case!("eventfd", eventfd_async, [Reg(IORING_REGISTER_EVENTFD_ASYNC)], "inline completions do not signal an async eventfd"),
    case!("eventfd", async_memory_file, [Reg(IORING_REGISTER_EVENTFD_ASYNC), Setup(IORING_SETUP_DEFER_TASKRUN)], "an async eventfd is signalled for files in memory, whose requests run in a worker"),
    case!("eventfd", eventfd_disabled, [Reg(IORING_REGISTER_EVENTFD)], "the CQ flag EVENTFD_DISABLED silences the eventfd"),
    case!("eventfd", eventfd_by_syscall_poll, [Reg(IORING_REGISTER_EVENTFD)], "a late completion wakes a thread that polls the eventfd"),
    case!("eventfd", batches, [Reg(IORING_REGISTER_EVENTFD)], "the eventfd counts a batch once, and completions of workers one by one"),
    case!("eventfd", short_writes, [Reg(IORING_REGISTER_EVENTFD), Op(IORING_OP_WRITE)], "short buffered writes signal the eventfd one by one, however many there were"),
    case!("eventfd", connects, [Reg(IORING_REGISTER_EVENTFD), Op(IORING_OP_CONNECT)], "a connect signals the eventfd separately from its batch"),
    legal!("eventfd", drained, [
        Sqe(IOSQE_IO_DRAIN), Setup(IORING_SETUP_DEFER_TASKRUN),
    ], "requests that a barrier releases signal the eventfd as pending work"),
    legal!("eventfd", tags, [Reg(IORING_REGISTER_FILES2), Reg(IORING_REGISTER_EVENTFD)], "each posted tag signals the eventfd"),
    case!("eventfd", messages, [Op(IORING_OP_MSG_RING), Reg(IORING_REGISTER_EVENTFD)], "each message signals the eventfd, also a message to the same ring"),
    case!("eventfd", poll_of_other_file, [Reg(IORING_REGISTER_EVENTFD), Setup(IORING_SETUP_DEFER_TASKRUN)], "a poll of another file does not signal the eventfd"),
    case!("eventfd", blocking_eventfd_write, [Reg(IORING_REGISTER_EVENTFD), Op(IORING_OP_WRITE)], "a write to a blocking eventfd runs in a worker, and its failure is task work"),
    case!("eventfd", own_eventfd_polled, [Reg(IORING_REGISTER_EVENTFD), Op(IORING_OP_POLL_ADD)], "a multishot poll of the ring's own eventfd ends when the ring signals it"),
    case!("eventfd", overflow, [Reg(IORING_REGISTER_EVENTFD), Trap("overflow")], "what overflowed is told of again when it finds room"),
    case!("eventfd", overflow_async, [Reg(IORING_REGISTER_EVENTFD_ASYNC), Trap("overflow")], "but not to an async eventfd"),
    legal!("eventfd", worker_cqe_skip, [
        Reg(IORING_REGISTER_EVENTFD_ASYNC), Sqe(IOSQE_CQE_SKIP_SUCCESS),
    ], "a worker that posts nothing still signals completions of others"),
    case!("eventfd", worker_cq_full, [Reg(IORING_REGISTER_EVENTFD_ASYNC), Trap("overflow")], "a worker that finds no room tells of what is there"),
];

/// Returns the eventfd's count since the last read; 0 for nothing.
fn counted(fd: &impl std::os::fd::AsFd) -> u64 {
    let mut n = [0u8; 8];
    match rustix::io::read(fd, &mut n) {
        Ok(8) => u64::from_ne_bytes(n),
        _ => 0,
    }
}

/// Returns the eventfd's count, once workers have signalled what they have posted.
fn counted_late(fd: &impl std::os::fd::AsFd) -> u64 {
    std::thread::sleep(std::time::Duration::from_millis(5));
    counted(fd)
}

fn nonblocking_eventfd() -> Result<std::os::fd::OwnedFd, Stop> {
    Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK)?)
}

fn eventfd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ev = nonblocking_eventfd()?;
    let (r, w) = cx.pipe()?;
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fd), 0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.is("counted", counted(&ev), 1);
    cx.start(&mut ring, &[sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1)]);
    cx.is("nothing yet", counted(&ev), 0);
    rustix::io::write(&w, b"x")?;
    cx.spin(&ring, "completes", 1);
    std::thread::sleep(std::time::Duration::from_millis(5));
    cx.is("counted", counted(&ev), 1);
    ring.pop_all();
    cx.is("unregister", ring.register(IORING_UNREGISTER_EVENTFD, 0, 0), 0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.is("not counted", counted(&ev), 0);
    Ok(())
}

fn eventfd_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let ev = nonblocking_eventfd()?;
    let file = cx.file("f", b"")?;
    let (none, file, ev) = ([-1], [file.as_raw_fd()], [ev.as_raw_fd()]);
    for op in [IORING_REGISTER_EVENTFD, IORING_REGISTER_EVENTFD_ASYNC] {
        cx.registers(&ring, &[
            ("unregister none", IORING_UNREGISTER_EVENTFD, 0, 0, -ENXIO),
            ("no fd", op, addr(&none), 1, -EBADF),
            ("a file", op, addr(&file), 1, -EINVAL),
            ("count 0", op, addr(&ev), 0, -EINVAL),
            ("count 2", op, addr(&ev), 2, -EINVAL),
            ("null", op, 0, 1, -EFAULT),
            ("unmapped", op, BAD, 1, -EFAULT),
            ("good", op, addr(&ev), 1, 0),
            ("again", op, addr(&ev), 1, -EBUSY),
            ("unregister with a pointer", IORING_UNREGISTER_EVENTFD, addr(&ev), 0, -EINVAL),
            ("unregister with a count", IORING_UNREGISTER_EVENTFD, 0, 1, -EINVAL),
            ("unregister", IORING_UNREGISTER_EVENTFD, 0, 0, 0),
        ]);
    }
    Ok(())
}

/// Sets up a ring with an eventfd for late completions only, after one inline completion.
fn for_late_ones(cx: &mut Cx) -> Result<(Ring, std::os::fd::OwnedFd), Stop> {
    let mut ring = cx.ring(8, 0)?;
    let ev = nonblocking_eventfd()?;
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD_ASYNC, &fd), 0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.is("inline: not counted", counted(&ev), 0);
    Ok((ring, ev))
}

fn worker_cqe_skip(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = for_late_ones(cx)?;
    for what in ["told of by the worker", "nothing is new"] {
        cx.start(&mut ring, &[sqe::nop().with(IOSQE_ASYNC | IOSQE_CQE_SKIP_SUCCESS)]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        cx.note(what, counted(&ev));
    }
    Ok(())
}

fn eventfd_async(cx: &mut Cx) -> Outcome {
    let (mut ring, ev) = for_late_ones(cx)?;
    cx.one(&mut ring, "nop in a worker", sqe::nop().with(IOSQE_ASYNC), 0);
    cx.note("worker: counted", counted_late(&ev));
    // A worker runs a chain that its batch leaves open.
    let mut buf = [0; 4];
    let file = cx.file("f", b"data")?;
    for (what, sqe) in [("nop", sqe::nop()), ("read", sqe::read(file.as_raw_fd(), &mut buf, 0))] {
        cx.batch(&mut ring, what, &[sqe.link().ud(1)], &[(1, if what == "nop" { 0 } else { 4 })]);
        cx.note("open chain: counted", counted_late(&ev));
    }
    let mut ring = cx.ring(8, DEFER)?;
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD_ASYNC, &fd), 0);
    let (r, _w) = cx.pipe()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).with(IOSQE_ASYNC);
    cx.start(&mut ring, &[poll.ud(1)]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    cx.is("a poll that waits: not counted", counted(&ev), 0);
    Ok(())
}

/// Checks the eventfd for I/O of a memfd, which refuses attempts that must not block.
fn async_memory_file(cx: &mut Cx) -> Outcome {
    let file = rustix::fs::memfd_create(c"f", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, b"data")?;
    let mut buf = [0; 4];
    let read = sqe::read(file.as_raw_fd(), &mut buf, 0);
    let write = sqe::rw(IORING_OP_WRITE, file.as_raw_fd(), addr(b"more"), 4, 0);
    for setup in [0, DEFER] {
        let ev = nonblocking_eventfd()?;
        let mut ring = cx.ring(8, setup)?;
        let fd = [ev.as_raw_fd()];
        cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD_ASYNC, &fd), 0);
        for (what, sqe) in [("read", read), ("write", write), ("write, linked", write.link())] {
            cx.start(&mut ring, &[sqe.ud(1)]);
            std::thread::sleep(std::time::Duration::from_millis(20));
            cx.note(&format!("{what}: counted"), counted(&ev));
            cx.reap(&mut ring, what, &[(1, 4)]);
        }
    }
    Ok(())
}

fn eventfd_disabled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ev = nonblocking_eventfd()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &[ev.as_raw_fd()]), 0);
    ring.set_cq_flags(IORING_CQ_EVENTFD_DISABLED);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.is("silenced", counted(&ev), 0);
    ring.set_cq_flags(0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.is("counted", counted(&ev), 1);
    Ok(())
}

fn eventfd_by_syscall_poll(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ev = nonblocking_eventfd()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &[ev.as_raw_fd()]), 0);
    let ts = sqe::millis(20);
    cx.start(&mut ring, &[sqe::timeout(&ts, 0, 0).ud(1)]);
    cx.is("poll", os::poll(ev.as_raw_fd(), libc::POLLIN, 2000), i32::from(libc::POLLIN));
    let got = ring.pop_all();
    cx.completions("there without entering", &got, &[(1, -ETIME)]);
    Ok(())
}

fn batches(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ev = nonblocking_eventfd()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &[ev.as_raw_fd()]), 0);
    let (null, nop) = (std::fs::File::open("/dev/null")?, sqe::nop());
    let unfit = sqe::op(IORING_OP_READ_MULTISHOT, null.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
    let refused = sqe::op(IORING_OP_READ, -1);
    let [later, skipped] = [IOSQE_ASYNC, IOSQE_CQE_SKIP_SUCCESS].map(|flag| nop.with(flag));
    for (what, sqes, cqes) in [
        ("together", &[nop, nop][..], 2),
        ("one behind the other", &[nop.link(), nop], 2),
        ("a chain of three", &[nop.link(), nop.link(), nop], 3),
        ("a chain that fails", &[refused.link(), nop, nop], 3),
        ("beside a worker", &[later, nop], 2),
        ("beside two", &[later, nop, nop, later], 4),
        ("a chain, beside that", &[nop.link(), nop, refused.with(IOSQE_ASYNC)], 3),
        ("a worker has no file for it", &[refused.with(IOSQE_ASYNC), nop], 2),
        ("a worker cannot poll for it", &[unfit.with(IOSQE_ASYNC), nop], 2),
        ("skipped", &[skipped, nop], 1),
        ("skipped, by a worker", &[later.with(IOSQE_CQE_SKIP_SUCCESS), nop], 1),
    ] {
        cx.start(&mut ring, sqes);
        cx.spin(&ring, what, cqes);
        cx.note("counted", counted_late(&ev));
        ring.pop_all();
    }
    Ok(())
}

/// Writes so often that softring makes the writes on the submitter's thread.
fn short_writes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ev = nonblocking_eventfd()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &[ev.as_raw_fd()]), 0);
    let file = cx.file("f", b"")?;
    let write = sqe::rw(IORING_OP_WRITE, file.as_raw_fd(), addr(b"more"), 4, 0);
    for _ in 0..500 {
        ring.push(write).submit_wait(1);
        ring.pop_all();
    }
    cx.note("counted", counted_late(&ev));
    for (what, sqes) in [
        ("together", &[write; 4][..]),
        ("beside others", &[write, sqe::nop(), write, sqe::nop()]),
        ("skipped", &[write.with(IOSQE_CQE_SKIP_SUCCESS), write]),
    ] {
        cx.start(&mut ring, sqes);
        cx.spin(&ring, what, if what == "skipped" { 1 } else { 4 });
        cx.note("counted", counted_late(&ev));
        ring.pop_all();
    }
    Ok(())
}

fn drained(cx: &mut Cx) -> Outcome {
    for first in [0, IOSQE_ASYNC] {
        let mut ring = cx.ring(8, DEFER)?;
        let ev = nonblocking_eventfd()?;
        cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &[ev.as_raw_fd()]), 0);
        cx.start(&mut ring, &[sqe::nop().with(IOSQE_IO_DRAIN | first).ud(1)]);
        std::thread::sleep(std::time::Duration::from_millis(5));
        cx.holds("told", counted(&ev) > 0);
        cx.reap(&mut ring, "it ends", &[(1, 0)]);
    }
    Ok(())
}

fn connects(cx: &mut Cx) -> Outcome {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let at = os::loopback(listener.local_addr()?.port());
    let ev = nonblocking_eventfd()?;
    let [first, last] = [1, 3].map(|ud| sqe::nop().ud(ud));
    let later = first.with(IOSQE_ASYNC);
    for flags in [0, IORING_SETUP_COOP_TASKRUN] {
        let mut ring = cx.ring(8, flags)?;
        cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &[ev.as_raw_fd()]), 0);
        for (what, before, after) in [
            ("alone", &[][..], &[][..]),
            ("last", &[first], &[]),
            ("first", &[], &[last]),
            ("between", &[first], &[last]),
            ("beside a worker", &[later], &[]),
            ("between, beside a worker", &[later], &[last]),
        ] {
            let make = sqe::op(IORING_OP_SOCKET, libc::AF_INET).set(|s| s.off = 1);
            let sock = cx.one_fd(&mut ring, "socket", make)?;
            counted(&ev);
            let connect = sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, 16).ud(2);
            let sqes = [before, &[connect], after].concat();
            cx.start(&mut ring, &sqes);
            cx.spin(&ring, what, sqes.len() as u32);
            std::thread::sleep(std::time::Duration::from_millis(5));
            cx.note("counted", format_args!("{flags:#x} {what}: {}", counted(&ev)));
            ring.pop_all();
        }
    }
    Ok(())
}

fn overflow(cx: &mut Cx) -> Outcome {
    for flags in [0, DEFER] {
        overflows(cx, IORING_REGISTER_EVENTFD, flags)?;
    }
    Ok(())
}

fn overflow_async(cx: &mut Cx) -> Outcome {
    overflows(cx, IORING_REGISTER_EVENTFD_ASYNC, 0)
}

fn worker_cq_full(cx: &mut Cx) -> Outcome {
    for register in [IORING_REGISTER_EVENTFD_ASYNC, IORING_REGISTER_EVENTFD] {
        let mut ring = cx.ring(2, 0)?;
        let ev = nonblocking_eventfd()?;
        cx.is("register", ring.register_slice(register, &[ev.as_raw_fd()]), 0);
        for n in 1..=2 {
            cx.start(&mut ring, &[sqe::nop().ud(n), sqe::nop().ud(n)]);
        }
        cx.note("by the task", counted(&ev));
        for n in 3..=4 {
            cx.start(&mut ring, &[sqe::nop().with(IOSQE_ASYNC).ud(n)]);
            std::thread::sleep(std::time::Duration::from_millis(10));
            cx.note("by a worker", counted(&ev));
        }
        let all: Vec<_> = ring.take(6)?.iter().map(|c| c.user_data).collect();
        cx.note("all", format_args!("{all:?}"));
    }
    Ok(())
}

fn overflows(cx: &mut Cx, register: u32, flags: u32) -> Outcome {
    let mut ring = cx.ring(2, flags)?;
    let ev = nonblocking_eventfd()?;
    cx.is("register", ring.register_slice(register, &[ev.as_raw_fd()]), 0);
    let set = os::edge_set(ring.fd);
    for _ in 0..5 {
        cx.start(&mut ring, &[sqe::nop(), sqe::nop()]);
        cx.note("counted", counted(&ev));
        cx.note("told", os::events_now(&set));
    }
    for _ in 0..3 {
        cx.note("there", ring.pop_all().len());
        cx.note("polled", os::poll(ring.fd, libc::POLLIN, 0));
        cx.note("told", os::events_now(&set));
        cx.is("enter", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
        cx.note("counted", counted(&ev));
        cx.note("told", os::events_now(&set));
        cx.note("told again", os::events_now(&set));
    }
    Ok(())
}

fn blocking_eventfd_write(cx: &mut Cx) -> Outcome {
    for op in [IORING_REGISTER_EVENTFD, IORING_REGISTER_EVENTFD_ASYNC] {
        let mut ring = cx.ring(8, 0)?;
        let (ev, to) = (nonblocking_eventfd()?, cx.eventfd(0)?);
        let fd = [ev.as_raw_fd()];
        cx.is("register", ring.register_slice(op, &fd), 0);
        let one = 1u64.to_ne_bytes();
        let write = |buf: &[u8]| sqe::write(to.as_raw_fd(), buf, 0);
        for (what, write, want) in [
            ("eight bytes", write(&one), 8),
            ("none", write(&[]), 0),
            ("fewer", write(&one[..4]), -EINVAL),
        ] {
            cx.batch(&mut ring, what, &[sqe::nop().ud(1), write.ud(2)], &[(1, 0), (2, want)]);
            cx.note("counted", counted_late(&ev));
        }
        let sqes = [sqe::nop().link().ud(1), sqe::nop().ud(2), write(&one[..4]).ud(3)];
        cx.batch(&mut ring, "beside a chain", &sqes, &[(1, 0), (2, 0), (3, -EINVAL)]);
        cx.note("counted", counted_late(&ev));
    }
    Ok(())
}

fn tags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (ev, null) = (nonblocking_eventfd()?, std::fs::File::open("/dev/null")?);
    let (files, tags) = ([null.as_raw_fd(); 4], [11u64, 12, 13, 14]);
    let table = rsrc(4, 0, addr(&files), addr(&tags));
    cx.is("table", ring.register(IORING_REGISTER_FILES2, addr(&table), 32), 0);
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fd), 0);
    let close = sqe::op(IORING_OP_CLOSE, 0).ud(1);
    cx.batch(&mut ring, "a slot", &[close.set(|s| s.file_index = 1)], &[(1, 0), (11, 0)]);
    cx.is("counted", counted(&ev), 2);
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    cx.reap(&mut ring, "all", &[(12, 0), (13, 0), (14, 0)]);
    cx.is("counted", counted(&ev), 3);
    Ok(())
}

fn messages(cx: &mut Cx) -> Outcome {
    let (mut ring, mut other) = (cx.ring(8, 0)?, cx.ring(8, 0)?);
    let ev = nonblocking_eventfd()?;
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fd), 0);
    let message = sqe::op(IORING_OP_MSG_RING, ring.fd);
    let sqes = [message.set(|s| s.off = 11).ud(1), message.set(|s| s.off = 12).ud(2)];
    cx.batch(&mut ring, "to itself", &sqes, &[(1, 0), (2, 0), (11, 0), (12, 0)]);
    cx.is("counted", counted(&ev), 3);
    cx.batch(&mut other, "from another", &sqes, &[(1, 0), (2, 0)]);
    cx.is("counted", counted(&ev), 2);
    Ok(())
}

fn poll_of_other_file(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, DEFER | IORING_SETUP_TASKRUN_FLAG)?;
    let (ev, other) = (nonblocking_eventfd()?, cx.eventfd(1)?);
    let fd = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fd), 0);
    cx.is("another is ready", os::poll(other.as_raw_fd(), libc::POLLIN, 0), 1);
    cx.is("counted", counted(&ev), 0);
    cx.is("flags", ring.sq_flags(), 0);
    Ok(())
}

fn own_eventfd_polled(cx: &mut Cx) -> Outcome {
    for (op, flags) in [
        (IORING_REGISTER_EVENTFD, 0),
        (IORING_REGISTER_EVENTFD, DEFER),
        (IORING_REGISTER_EVENTFD_ASYNC, 0),
    ] {
        let mut ring = cx.ring(8, flags)?;
        let ev = nonblocking_eventfd()?;
        let fd = [ev.as_raw_fd()];
        cx.is("register", ring.register_slice(op, &fd), 0);
        let poll = sqe::poll_add(ev.as_raw_fd(), libc::POLLIN)
            .set(|s| s.len = IORING_POLL_ADD_MULTI)
            .ud(1);
        cx.start(&mut ring, &[poll, sqe::nop().ud(2)]);
        note_cqes(cx, &mut ring, "signalled by a NOP");
        cx.start(&mut ring, &[poll]);
        note_cqes(cx, &mut ring, "ready when it is armed");
        counted(&ev);
        cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3)]);
        note_cqes(cx, &mut ring, "cancelled");
        counted(&ev);
        cx.start(&mut ring, &[poll]);
        rustix::io::write(&ev, &1u64.to_ne_bytes())?;
        note_cqes(cx, &mut ring, "written by the program");
        cx.start(&mut ring, &[sqe::nop().ud(2)]);
        note_cqes(cx, &mut ring, "a NOP behind that");
    }
    Ok(())
}
