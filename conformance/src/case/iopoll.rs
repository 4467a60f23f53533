//! IOPOLL: the thread that enters polls for completions. On a device without poll queues the kernel
//! refuses requests which softring accepts: the engine's own tests cover these.

use super::prelude::*;

pub const CASES: &[Case] = &[
    legal!("iopoll", operations, [Setup(IORING_SETUP_IOPOLL), Trap("IOPOLL")], "what may be asked of a polled ring"),
    case!("iopoll", files, [Setup(IORING_SETUP_IOPOLL)], "files that cannot be polled"),
    case!("iopoll", flags, [Setup(IORING_SETUP_IOPOLL)], "set-up flags that IOPOLL allows"),
    case!("iopoll", waits, [Setup(IORING_SETUP_IOPOLL), Trap("IOPOLL")], "entering waits for what is polled only"),
    legal!("iopoll", inline, [Op(IORING_OP_FILES_UPDATE), Op(IORING_OP_PROVIDE_BUFFERS), Op(IORING_OP_REMOVE_BUFFERS), Op(IORING_OP_MSG_RING)], "requests that need no device complete at submission"),
    case!("iopoll", no_queues, [Setup(IORING_SETUP_IOPOLL)], "a disk without poll queues"),
    case!("iopoll", hybrid_alone, [Setup(IORING_SETUP_HYBRID_IOPOLL)], "HYBRID_IOPOLL needs IOPOLL"),
    legal!("iopoll", hybrid, [Setup(IORING_SETUP_HYBRID_IOPOLL)], "rules of a ring with HYBRID_IOPOLL"),
];

fn operations(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_IOPOLL)?;
    let (r, _w) = cx.pipe()?;
    for code in 0..cx.abi().ops {
        let polled = matches!(
            code,
            IORING_OP_NOP
                | IORING_OP_READV
                | IORING_OP_WRITEV
                | IORING_OP_READ_FIXED
                | IORING_OP_WRITE_FIXED
                | IORING_OP_READ
                | IORING_OP_WRITE
                | IORING_OP_FILES_UPDATE
                | IORING_OP_PROVIDE_BUFFERS
                | IORING_OP_REMOVE_BUFFERS
                | IORING_OP_MSG_RING
                | IORING_OP_URING_CMD
                | IORING_OP_READV_FIXED
                | IORING_OP_WRITEV_FIXED
        );
        if !polled {
            cx.one(&mut ring, &format!("{code}"), sqe::op(code, r.as_raw_fd()), -EINVAL);
        }
    }
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    Ok(())
}

fn files(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, IORING_SETUP_IOPOLL)?;
    let file = cx.file("f", b"0123456789")?;
    let (r, w) = cx.pipe()?;
    let event = cx.eventfd(1)?;
    let write_only = std::fs::OpenOptions::new().write(true).open(cx.dir()?.join("f"))?;
    let mut buf = [0u8; 8];
    let rows = [
        ("buffered", sqe::read(file.as_raw_fd(), &mut buf, 0), -EOPNOTSUPP),
        ("a buffered write", sqe::write(file.as_raw_fd(), b"x", 0), -EOPNOTSUPP),
        ("a pipe", sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE), -EOPNOTSUPP),
        ("a pipe, to write", sqe::write(w.as_raw_fd(), b"x", sqe::HERE), -EOPNOTSUPP),
        ("an eventfd", sqe::read(event.as_raw_fd(), &mut buf, 0), -EOPNOTSUPP),
        ("not open for reading", sqe::read(write_only.as_raw_fd(), &mut buf, 0), -EBADF),
        ("not open", sqe::read(-1, &mut buf, 0), -EBADF),
    ];
    cx.each(&mut ring, &rows);
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(1).link()).push(sqe::nop().ud(2));
    cx.is("submit", ring.submit_wait(2), 2);
    cx.reap(&mut ring, "a link behind a refusal", &[(1, -EOPNOTSUPP), (2, -ECANCELED)]);
    Ok(())
}

fn flags(cx: &mut Cx) -> Outcome {
    for bit in 0..19 {
        let flag = 1 << bit;
        if flag & IORING_SETUP_ATTACH_WQ != 0 {
            continue;
        }
        let flags = IORING_SETUP_IOPOLL | flag;
        let p = io_uring_params { flags, cq_entries: 16, ..Default::default() };
        match Ring::with(cx.entry, 8, p) {
            Err(e) => cx.note_answer(SETUP_NAMES[bit as usize], -e),
            Ok(ring) => {
                cx.note(SETUP_NAMES[bit as usize], format_args!("flags {:#x}", ring.params.flags));
            }
        }
    }
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, IORING_SETUP_IOPOLL)?;
    cx.is("for nothing", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    cx.is("for many", ring.enter(0, 100, IORING_ENTER_GETEVENTS), 0);
    let ts = kernel_timespec { tv_sec: 5, tv_nsec: 0 };
    let arg = io_uring_getevents_arg { ts: addr(&ts) as u64, ..Default::default() };
    cx.is("times are not honoured", ring.enter_ext(0, 1, &arg), 0);
    let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
    cx.is("a wrong size", ring.enter_raw(0, 1, flags, addr(&arg), 8), -EINVAL);
    cx.is("a bad address", ring.enter_raw(0, 1, flags, BAD, 24), -EFAULT);
    let wrong = io_uring_getevents_arg { ts: BAD as u64, ..Default::default() };
    cx.is("a bad time", ring.enter_ext(0, 1, &wrong), 0);
    let reg = flags | IORING_ENTER_EXT_ARG_REG;
    cx.is("a registered argument", ring.enter_raw(0, 1, reg, 0, 64), -EINVAL);
    Ok(())
}

/// Returns whether the disk under a file has poll queues.
fn has_queues(file: &impl std::os::fd::AsFd) -> Result<bool, Stop> {
    let dev = rustix::fs::fstat(file)?.st_dev;
    let at = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let polls = |dir: &str| std::fs::read_to_string(format!("{at}/{dir}/io_poll"));
    // A partition uses its disk's queue.
    let word = polls("queue").or_else(|_| polls("../queue"));
    Ok(word.is_ok_and(|w| w.trim() == "1"))
}

fn no_queues(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_IOPOLL)?;
    let file = cx.direct_file("f", &[7; 4096])?;
    if has_queues(&file)? {
        return Err(Stop::Skip("the disk has poll queues".into()));
    }
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let read = sqe::rw(IORING_OP_READ, file.as_raw_fd(), page, 4096, 0);
    cx.one(&mut ring, "a block", read, -EOPNOTSUPP);
    Ok(())
}

fn hybrid_alone(cx: &mut Cx) -> Outcome {
    for bit in 0..19 {
        let flags = IORING_SETUP_HYBRID_IOPOLL | 1 << bit;
        let with = SETUP_NAMES[bit as usize];
        if flags & (IORING_SETUP_IOPOLL | IORING_SETUP_ATTACH_WQ) == 0 {
            let p = io_uring_params { flags, cq_entries: 16, ..Default::default() };
            cx.setup_is(&format!("HYBRID_IOPOLL with {with}"), 4, p, -EINVAL);
        }
    }
    Ok(())
}

fn hybrid(cx: &mut Cx) -> Outcome {
    let flags = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;
    let mut ring = cx.ring(8, flags)?;
    cx.is("its flags", ring.params.flags as i32, flags.cast_signed());
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.one(&mut ring, "not polled", sqe::op(IORING_OP_FSYNC, 0), -EINVAL);
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0u8; 8];
    cx.one(&mut ring, "buffered", sqe::read(file.as_raw_fd(), &mut buf, 0), -EOPNOTSUPP);
    cx.is("for nothing", ring.enter(0, 1, IORING_ENTER_GETEVENTS), 0);
    Ok(())
}

/// Checks registered files, provided buffers and messages on a ring of each kind that polls.
fn inline(cx: &mut Cx) -> Outcome {
    for (what, more) in [("IOPOLL", 0), ("HYBRID_IOPOLL", IORING_SETUP_HYBRID_IOPOLL)] {
        cx.note("ring", what);
        let flags = IORING_SETUP_IOPOLL | more;
        let (mut ring, mut other) = (cx.ring(8, flags)?, cx.ring(8, flags)?);
        tables(cx, &mut ring)?;
        messages(cx, &mut ring, &mut other)?;
    }
    Ok(())
}

/// Checks registered files and provided buffers.
fn tables(cx: &mut Cx, ring: &mut Ring) -> Outcome {
    let file = cx.file("f", b"0123456789")?;
    let fds = [file.as_raw_fd()];
    let update =
        |slot, nr| sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&fds), nr, slot);
    cx.one(ring, "FILES_UPDATE without a table", update(0, 1), -ENXIO);
    cx.sparse_files(ring, 2);
    let mut buf = [0u8; 8];
    let read = in_slot(sqe::read(0, &mut buf, 0), 0).set(|s| (s.fd, s.file_index) = (1, 0));
    let mut mem = [0u8; 64];
    let provide = super::pbuf::provide(&mut mem, 8, 0);
    let remove = |n| sqe::op(IORING_OP_REMOVE_BUFFERS, n).set(|s| s.buf_index = super::pbuf::GROUP);
    cx.each(ring, &[
        ("a read of an empty slot", read.fixed(), -EBADF),
        ("FILES_UPDATE", update(1, 1), 1),
        ("a read of the slot, buffered", read.fixed(), -EOPNOTSUPP),
        ("FILES_UPDATE beyond the table", update(2, 1), -EINVAL),
        ("REMOVE_BUFFERS, no group", remove(1), -ENOENT),
        ("PROVIDE_BUFFERS", provide, 0),
        ("PROVIDE_BUFFERS, none", provide.set(|s| s.fd = 0), -libc::E2BIG),
        ("REMOVE_BUFFERS, some", remove(3), 3),
        ("REMOVE_BUFFERS, all", remove(100), 5),
        ("REMOVE_BUFFERS, none left", remove(1), 0),
    ]);
    cx.start(ring, &[update(0, 1).ud(1).link(), provide.ud(2).link(), remove(8).ud(3)]);
    cx.reap_in_order(ring, "a chain", &[(1, 1), (2, 0), (3, 8)]);
    Ok(())
}

fn messages(cx: &mut Cx, ring: &mut Ring, other: &mut Ring) -> Outcome {
    let msg = |to: i32, res, ud| {
        sqe::op(IORING_OP_MSG_RING, to).set(|s| (s.len, s.off) = (res, ud))
    };
    let own = ring.fd;
    cx.start(ring, &[msg(own, 5, 1).ud(2)]);
    cx.reap(ring, "to itself", &[(1, 5), (2, 0)]);
    cx.one(ring, "to another", msg(other.fd, 6, 3), 0);
    cx.is("there, without entering", other.cq_ready(), 1);
    cx.reap(other, "there", &[(3, 6)]);
    let mut plain = cx.ring(8, 0)?;
    cx.one(ring, "to one that does not poll", msg(plain.fd, 7, 4), 0);
    cx.reap(&mut plain, "there", &[(4, 7)]);
    cx.one(&mut plain, "from one that does not poll", msg(ring.fd, 8, 5), 0);
    cx.is("there, without entering", ring.cq_ready(), 1);
    cx.reap(ring, "there", &[(5, 8)]);
    let mut deferred = cx.ring(8, DEFER)?;
    cx.one(ring, "to one that defers", msg(deferred.fd, 9, 6), 0);
    cx.reap(&mut deferred, "there", &[(6, 9)]);
    cx.one(ring, "to a file", msg(0, 9, 6), -EBADFD);
    cx.one(ring, "with a bad flag", msg(other.fd, 9, 6).op_flags(1 << 5), -EINVAL);
    Ok(())
}
