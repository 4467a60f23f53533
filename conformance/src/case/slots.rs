//! Fds made from slots and pipes put into slots: FIXED_FD_INSTALL and PIPE.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("slots", path_files, [Op(IORING_OP_OPENAT), Op(IORING_OP_POLL_ADD)], "an O_PATH file can be registered: it is ready, and all I/O on it fails"),
    any_order!("slots", path_files_other_requests, [Op(IORING_OP_OPENAT), Op(IORING_OP_FADVISE)], "other requests on a registered O_PATH file"),
    any_order!("slots", install, [Op(IORING_OP_FIXED_FD_INSTALL)], "a slot becomes an fd"),
    case!("slots", install_refusals, [Op(IORING_OP_FIXED_FD_INSTALL)], "plain fds, free slots, bad flags and words"),
    legal!("slots", pipe, [Op(IORING_OP_PIPE)], "a pipe with flags"),
    any_order!("slots", pipe_slots, [Op(IORING_OP_PIPE)], "a pipe in two slots"),
    case!("slots", pipe_refusals, [Op(IORING_OP_PIPE)], "bad pointers, flags and slots"),
    case!("slots", result_at_memory_end, [Op(IORING_OP_PIPE)], "a result at the end of memory is written as far as possible"),
];

fn install_sqe(slot: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_FIXED_FD_INSTALL, slot).fixed()
}

fn install(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, file.as_raw_fd()]), 0);
    let fd = cx.one_fd(&mut ring, "install", install_sqe(1))?;
    cx.is("close-on-exec", os::fcntl(fd.as_raw_fd(), libc::F_GETFD, 0), libc::FD_CLOEXEC);
    let mut buf = [0; 8];
    cx.one(&mut ring, "read", sqe::read(fd.as_raw_fd(), &mut buf, 0), 4);
    let open = install_sqe(1).op_flags(IORING_FIXED_FD_NO_CLOEXEC);
    let fd = cx.one_fd(&mut ring, "NO_CLOEXEC", open)?;
    cx.is("close-on-exec", os::fcntl(fd.as_raw_fd(), libc::F_GETFD, 0), 0);
    Ok(())
}

fn install_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, file.as_raw_fd()]), 0);
    let good = install_sqe(1);
    cx.each(&mut ring, &[
        ("a plain fd", sqe::op(IORING_OP_FIXED_FD_INSTALL, file.as_raw_fd()), -EBADF),
        ("a free slot", install_sqe(0), -EBADF),
        ("an unknown slot", install_sqe(9), -EBADF),
        ("unknown flag", good.op_flags(2), -EINVAL),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("an address", good.set(|s| s.addr = 1), -EINVAL),
        ("a length", good.set(|s| s.len = 1), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("addr3", good.set(|s| s.addr3 = 1), -EINVAL),
    ]);
    Ok(())
}

fn pipe_sqe(fds: &mut [i32; 2], flags: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_PIPE, 0)
        .op_flags(flags.cast_unsigned())
        .set(|s| s.addr = addr_mut(fds) as u64)
}

fn pipe(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut fds = [-1; 2];
    for (what, flags) in [("plain", 0), ("flags", libc::O_CLOEXEC | libc::O_NONBLOCK)] {
        cx.one(&mut ring, what, pipe_sqe(&mut fds, flags), 0);
        let got = *std::hint::black_box(&fds);
        let (r, w) = (cx.fd("read end", got[0])?, cx.fd("write end", got[1])?);
        rustix::io::write(&w, b"data")?;
        let mut buf = [0; 8];
        cx.is("through it", rustix::io::read(&r, &mut buf)?, 4);
        let fl = os::fcntl(r.as_raw_fd(), libc::F_GETFL, 0) & libc::O_NONBLOCK;
        cx.is("O_NONBLOCK", fl, flags & libc::O_NONBLOCK);
        let exec = libc::FD_CLOEXEC * i32::from(flags != 0);
        cx.is("close-on-exec", os::fcntl(r.as_raw_fd(), libc::F_GETFD, 0), exec);
    }
    Ok(())
}

fn pipe_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut fds = [-1; 2];
    let mut buf = [0; 8];
    cx.sparse_files(&ring, 4);
    cx.one(&mut ring, "at slot 1", in_slot(pipe_sqe(&mut fds, 0), 1), 0);
    cx.one(&mut ring, "write", sqe::write(2, b"data", 0).fixed(), 4);
    cx.one(&mut ring, "read", sqe::read(1, &mut buf, 0).fixed(), 4);
    let any = pipe_sqe(&mut fds, 0).set(|s| s.file_index = IORING_FILE_INDEX_ALLOC);
    cx.one(&mut ring, "at any", any, 0);
    cx.eq("slots", *std::hint::black_box(&fds), [3, 0]);
    cx.one(&mut ring, "none left", any, -libc::ENFILE);
    // A file that replaces another does not move the search for the next slot.
    let (mut ring, null) = (cx.ring(4, 0)?, std::fs::File::open("/dev/null")?);
    let fd = null.as_raw_fd();
    cx.is("files", ring.register_slice(IORING_REGISTER_FILES, &[-1, -1, -1, fd, fd, -1]), 0);
    cx.one(&mut ring, "over slot 3", in_slot(pipe_sqe(&mut fds, 0), 3), 0);
    cx.one(&mut ring, "at any", any, 0);
    cx.eq("first slots", *std::hint::black_box(&fds), [0, 1]);
    Ok(())
}

fn pipe_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut fds = [-1; 2];
    let before = os::open_fds();
    let good = pipe_sqe(&mut fds, 0);
    cx.one(&mut ring, "slot without a table", in_slot(good, 0), -ENXIO);
    cx.sparse_files(&ring, 2);
    cx.each(&mut ring, &[
        ("null", good.set(|s| s.addr = 0), -EFAULT),
        ("unmapped", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("unknown flag", good.op_flags(1), -EINVAL),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("an fd", good.set(|s| s.fd = 3), -EINVAL),
        ("addr3", good.set(|s| s.addr3 = 1), -EINVAL),
        ("unknown slot", in_slot(good, 2), -EINVAL),
        ("one slot where two are needed", in_slot(good, 1), -EINVAL),
    ]);
    let left = os::open_fds() - before;
    cx.is("fds left open", left, 0);
    Ok(())
}

fn result_at_memory_end(cx: &mut Cx) -> Outcome {
    const UNTOUCHED: u32 = 0x5a5a_5a5a;
    let mut ring = cx.ring(4, 0)?;
    let end = os::border();
    let page = end - 4096;
    let last = |i: usize| os::load(end - 4 * i);
    let fresh = || os::store(page, &[UNTOUCHED; 1024]);
    fresh();
    let before = os::open_fds();
    let pipe = |at: usize| sqe::op(IORING_OP_PIPE, 0).set(|s| s.addr = at as u64);
    cx.one(&mut ring, "room for one end of a pipe", pipe(end - 4), -EFAULT);
    cx.holds("it was told", last(1) < 1024);
    cx.is("word before it", last(2), UNTOUCHED);
    cx.is("fds left open", os::open_fds() - before, 0);
    fresh();
    cx.one(&mut ring, "room for a byte", pipe(end - 1), -EFAULT);
    cx.is("the others of its word", last(1) & 0xff_ffff, UNTOUCHED & 0xff_ffff);
    cx.holds("it was told", last(1) != UNTOUCHED);
    cx.sparse_files(&ring, 2);
    fresh();
    cx.one(&mut ring, "room for one slot", in_slot(pipe(end - 4), 0), -EFAULT);
    cx.note("slot told", last(1));
    Ok(())
}

/// Sets up a ring with an O_PATH file registered in its first slot.
fn ring_with_path(cx: &mut Cx) -> Result<Ring, Stop> {
    let mut ring = cx.ring(8, 0)?;
    cx.is("table", ring.register_slice(IORING_REGISTER_FILES, &[-1i32; 2]), 0);
    let root = addr(c"/".to_bytes_with_nul());
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, root, 0, 0)
        .set(|s| (s.op_flags, s.file_index) = (libc::O_PATH.cast_unsigned(), 1));
    cx.one(&mut ring, "open", open, 0);
    Ok(ring)
}

fn path_files(cx: &mut Cx) -> Outcome {
    let mut ring = ring_with_path(cx)?;
    let mut byte = [0];
    let poll = |events: i16, len: u32| sqe::poll_add(0, events).set(|s| s.len = len).fixed();
    for (what, sqe) in [
        ("poll in", poll(libc::POLLIN, 0)),
        ("poll both", poll(libc::POLLIN | libc::POLLOUT, 0)),
        ("poll for urgent", poll(libc::POLLPRI, 0)),
        ("poll many", poll(libc::POLLOUT, IORING_POLL_ADD_MULTI)),
        ("poll a level", poll(libc::POLLOUT, IORING_POLL_ADD_LEVEL)),
        ("read", sqe::read(0, &mut byte, 0).fixed()),
        ("sync", sqe::rw(IORING_OP_FSYNC, 0, 0, 0, 0).fixed()),
    ] {
        for flags in [0, IOSQE_ASYNC] {
            cx.start(&mut ring, &[sqe.with(flags).ud(1)]);
            std::thread::sleep(std::time::Duration::from_millis(5));
            cx.note_cqes(what, &mut ring);
        }
    }
    Ok(())
}

fn path_files_other_requests(cx: &mut Cx) -> Outcome {
    let mut ring = ring_with_path(cx)?;
    for (what, sqe) in [
        ("sync a range", sqe::rw(IORING_OP_SYNC_FILE_RANGE, 0, 0, 0, 0)),
        ("advise", sqe::rw(IORING_OP_FADVISE, 0, 0, 0, 0)),
        ("truncate", sqe::rw(IORING_OP_FTRUNCATE, 0, 0, 0, 0)),
        ("listen", sqe::rw(IORING_OP_LISTEN, 0, 0, 1, 0)),
    ] {
        cx.is("submitted", ring.push(sqe.fixed().ud(1)).submit_wait(1), 1);
        cx.note_cqes(what, &mut ring);
    }
    Ok(())
}
