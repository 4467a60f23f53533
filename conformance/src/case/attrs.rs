//! Extended attributes, advice, SPLICE and TEE.

use super::futex::sorted;
use super::prelude::*;
use std::ffi::CStr;

pub const CASES: &[Case] = &[
    legal!("attrs", by_fd, [Op(IORING_OP_FSETXATTR), Op(IORING_OP_FGETXATTR)], "attributes of an open file"),
    legal!("attrs", by_path, [Op(IORING_OP_SETXATTR), Op(IORING_OP_GETXATTR)], "attributes of a named file"),
    legal!("attrs", refusals, [
        Op(IORING_OP_FSETXATTR), Op(IORING_OP_FGETXATTR), Op(IORING_OP_SETXATTR),
        Op(IORING_OP_GETXATTR),
    ], "bad names, sizes, pointers, flags and fds"),
    legal!("attrs", fadvise, [Op(IORING_OP_FADVISE)], "advice on a file"),
    legal!("attrs", madvise, [Op(IORING_OP_MADVISE)], "advice on memory"),
    any_order!("attrs", splice, [Op(IORING_OP_SPLICE)], "data moves between a file and a pipe"),
    legal!("attrs", splice_pipes, [Op(IORING_OP_SPLICE)], "a splice from an empty pipe waits"),
    legal!("attrs", splice_rings, [Op(IORING_OP_SPLICE), Op(IORING_OP_TEE)], "a splice from a ring fails once its pipe has room"),
    any_order!("attrs", splice_closed_fd, [Op(IORING_OP_SPLICE), Op(IORING_OP_TEE), Sqe(IOSQE_IO_HARDLINK)], "a splice from a closed descriptor fails in a worker, and its chain goes on there"),
    legal!("attrs", splice_refusals, [Op(IORING_OP_SPLICE)], "bad fds, offsets, flags and kinds of files"),
    legal!("attrs", tee, [Op(IORING_OP_TEE)], "TEE copies data between pipes"),
    legal!("attrs", tee_refusals, [Op(IORING_OP_TEE)], "bad fds, offsets and flags"),
];

/// Makes an SQE of an attribute operation: `addr` is the name, `off` the value, `len` its size,
/// `addr3` the path if there is one.
fn attr(op: u8, fd: i32, path: Option<&CStr>, name: &CStr, value: &mut [u8]) -> io_uring_sqe {
    sqe::op(op, fd).set(|s| {
        (s.addr, s.off, s.len) = (addr(name) as u64, addr_mut(value) as u64, value.len() as u32);
        s.addr3 = path.map_or(0, |p| addr(p) as u64);
    })
}

const NAME: &CStr = c"user.softring";

/// Skips the case if the file system has no user attributes.
fn need_attributes(cx: &mut Cx) -> Result<std::fs::File, Stop> {
    let file = cx.file("f", b"data")?;
    let none = rustix::fs::XattrFlags::empty();
    match rustix::fs::fsetxattr(&file, c"user.probe", b"1", none) {
        Ok(()) => Ok(file),
        Err(e) => Err(Stop::Skip(format!("no user attributes on this file system ({e})"))),
    }
}

fn set_and_get(cx: &mut Cx, set: u8, get: u8, fd: i32, path: Option<&CStr>) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (mut value, mut buf) = (*b"value", [0u8; 16]);
    let set = attr(set, fd, path, NAME, &mut value);
    let get = attr(get, fd, path, NAME, &mut buf);
    cx.each(&mut ring, &[
        ("get none", get, -libc::ENODATA),
        ("replace none", set.op_flags(libc::XATTR_REPLACE.cast_unsigned()), -libc::ENODATA),
        ("set", set, 0),
        ("create again", set.op_flags(libc::XATTR_CREATE.cast_unsigned()), -EEXIST),
        ("get", get, 5),
        ("ask for the size", get.set(|s| (s.off, s.len) = (0, 0)), 5),
        ("too small", get.set(|s| s.len = 4), -libc::ERANGE),
        ("empty", set.set(|s| (s.off, s.len) = (0, 0)), 0),
    ]);
    cx.eq("value", std::hint::black_box(&buf)[..5].to_vec(), b"value".to_vec());
    Ok(())
}

fn by_fd(cx: &mut Cx) -> Outcome {
    let file = need_attributes(cx)?;
    let fd = file.as_raw_fd();
    set_and_get(cx, IORING_OP_FSETXATTR, IORING_OP_FGETXATTR, fd, None)?;
    let mut ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 16];
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[fd]), 0);
    let get = attr(IORING_OP_FGETXATTR, 0, None, NAME, &mut buf).fixed();
    cx.one(&mut ring, "by a registered file", get, 0);
    Ok(())
}

fn by_path(cx: &mut Cx) -> Outcome {
    need_attributes(cx)?;
    let path = cx.path("f")?;
    set_and_get(cx, IORING_OP_SETXATTR, IORING_OP_GETXATTR, 0, Some(&path))
}

fn refusals(cx: &mut Cx) -> Outcome {
    let file = need_attributes(cx)?;
    let (path, none) = (cx.path("f")?, cx.path("none")?);
    let mut ring = cx.ring(4, 0)?;
    let fd = file.as_raw_fd();
    let mut value = *b"value";
    for (op, path) in [
        (IORING_OP_FSETXATTR, None),
        (IORING_OP_FGETXATTR, None),
        (IORING_OP_SETXATTR, Some(&*path)),
        (IORING_OP_GETXATTR, Some(&*path)),
    ] {
        let good = attr(op, fd, path, NAME, &mut value);
        let sets = matches!(op, IORING_OP_FSETXATTR | IORING_OP_SETXATTR);
        cx.each(&mut ring, &[
            ("null name", good.set(|s| s.addr = 0), -EFAULT),
            ("unmapped name", good.set(|s| s.addr = BAD as u64), -EFAULT),
            ("empty name", good.set(|s| s.addr = addr(c"") as u64), -libc::ERANGE),
            ("no such space", good.set(|s| s.addr = addr(c"none.x") as u64), -EOPNOTSUPP),
            ("unknown flag", good.op_flags(1 << 10), -EINVAL),
        ]);
        if sets {
            cx.one(&mut ring, "unmapped value", good.set(|s| s.off = BAD as u64), -EFAULT);
            cx.one(&mut ring, "huge value", good.set(|s| s.len = 1 << 20), -libc::E2BIG);
        }
    }
    let missing = attr(IORING_OP_GETXATTR, 0, Some(&none), NAME, &mut value);
    cx.each(&mut ring, &[
        ("missing", missing, -ENOENT),
        ("null path", missing.set(|s| s.addr3 = 0), -EFAULT),
        ("fixed file", missing.fixed(), -EBADF),
        ("-1", attr(IORING_OP_FGETXATTR, -1, None, NAME, &mut value), -EBADF),
    ]);
    Ok(())
}

fn fadvise(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", &[0; 8192])?;
    let (r, _w) = cx.pipe()?;
    let advise = |fd: i32, off: u64, len: u32, advice: i32| {
        sqe::op(IORING_OP_FADVISE, fd)
            .op_flags(advice.cast_unsigned())
            .set(|s| (s.off, s.len) = (off, len))
    };
    let fd = file.as_raw_fd();
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[fd]), 0);
    for advice in 0..6 {
        cx.one(&mut ring, "advice", advise(fd, 0, 4096, advice), 0);
    }
    let long = advise(fd, 0, 0, libc::POSIX_FADV_DONTNEED).set(|s| s.addr = 1 << 33);
    cx.each(&mut ring, &[
        ("fixed file", advise(0, 0, 4096, 0).fixed(), 0),
        ("in a worker", advise(fd, 0, 4096, 3).with(IOSQE_ASYNC), 0),
        ("64-bit length", long, 0),
        ("unknown advice", advise(fd, 0, 4096, 99), -EINVAL),
        ("a pipe", advise(r.as_raw_fd(), 0, 4096, 0), -ESPIPE),
        ("-1", advise(-1, 0, 4096, 0), -EBADF),
        ("a buffer index", advise(fd, 0, 1, 0).set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", advise(fd, 0, 1, 0).set(|s| s.file_index = 1), -EINVAL),
    ]);
    Ok(())
}

fn madvise(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::store(page, &[7u32; 1024]);
    let advise = |at: usize, len: u32, advice: i32| {
        sqe::op(IORING_OP_MADVISE, -1)
            .op_flags(advice.cast_unsigned())
            .set(|s| (s.addr, s.len) = (at as u64, len))
    };
    let long = advise(page, 0, libc::MADV_WILLNEED).set(|s| s.off = 4096);
    cx.each(&mut ring, &[
        ("will need", advise(page, 4096, libc::MADV_WILLNEED), 0),
        ("64-bit length", long, 0),
        ("nothing", advise(page, 0, libc::MADV_WILLNEED), 0),
        ("unknown advice", advise(page, 4096, 99), -EINVAL),
        ("not aligned", advise(page + 8, 4096, libc::MADV_WILLNEED), -EINVAL),
        ("not mapped", advise(0x1000, 4096, libc::MADV_DONTNEED), -ENOMEM),
        ("a buffer index", advise(page, 1, 0).set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", advise(page, 1, 0).set(|s| s.file_index = 1), -EINVAL),
        ("do not need", advise(page, 4096, libc::MADV_DONTNEED), 0),
    ]);
    cx.is("the page is fresh", os::load(page), 0);
    Ok(())
}

const NONE: u64 = u64::MAX;

/// Makes a SPLICE: `off_in` is in `addr`, `fd_in` beside it, the flags in a field of their own.
fn splice_sqe(from: (i32, u64), to: (i32, u64), len: u32, flags: u32) -> io_uring_sqe {
    sqe::op(IORING_OP_SPLICE, to.0).op_flags(flags).set(|s| {
        (s.off, s.addr, s.len) = (to.1, from.1, len);
        s.file_index = from.0.cast_unsigned();
    })
}

fn splice(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (cx.file("a", b"0123456789")?, cx.file("b", b"----------")?);
    let (r, w) = cx.pipe()?;
    let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
    let (r, w) = (r.as_raw_fd(), w.as_raw_fd());
    cx.one(&mut ring, "file to pipe", splice_sqe((a, 2), (w, NONE), 5, 0), 5);
    cx.one(&mut ring, "pipe to file", splice_sqe((r, NONE), (b, 3), 5, 0), 5);
    let found = cx.content("b")?;
    cx.eq("file", found, b"---23456--".to_vec());
    cx.one(&mut ring, "at the position", splice_sqe((a, NONE), (w, NONE), 3, 0), 3);
    cx.one(&mut ring, "next", splice_sqe((a, NONE), (w, NONE), 3, 0), 3);
    let mut buf = [0; 8];
    cx.one(&mut ring, "read back", sqe::read(r, &mut buf, 0), 6);
    cx.eq("data", std::hint::black_box(&buf)[..6].to_vec(), b"012345".to_vec());
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[a, w]), 0);
    let both = splice_sqe((0, 0), (1, NONE), 4, SPLICE_F_FD_IN_FIXED).fixed();
    cx.one(&mut ring, "both registered", both, 4);
    cx.one(&mut ring, "at the end", splice_sqe((a, 10), (w, NONE), 4, 0), 0);
    cx.one(&mut ring, "nothing", splice_sqe((a, 0), (w, NONE), 0, 0), 0);
    Ok(())
}

fn splice_pipes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ((r1, w1), (r2, w2)) = (cx.pipe()?, cx.pipe()?);
    let move_on = splice_sqe((r1.as_raw_fd(), NONE), (w2.as_raw_fd(), NONE), 8, 0);
    cx.start(&mut ring, &[move_on.ud(1)]);
    cx.quiet(&ring, "waits", 10);
    rustix::io::write(&w1, b"data")?;
    cx.reap(&mut ring, "splice", &[(1, 4)]);
    let mut buf = [0; 8];
    cx.is("read back", rustix::io::read(&r2, &mut buf)?, 4);
    let nonblock = move_on.op_flags(libc::SPLICE_F_NONBLOCK);
    cx.one(&mut ring, "NONBLOCK", nonblock, -EAGAIN);
    Ok(())
}

fn splice_rings(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (other, file) = (cx.ring(4, 0)?, cx.file("f", b"data")?);
    let ((r, w), (_full_r, full)) = (cx.pipe()?, cx.pipe()?);
    let room = os::fcntl(full.as_raw_fd(), libc::F_SETPIPE_SZ, 4096);
    cx.is("fill", rustix::io::write(&full, &vec![0; room as usize])?, room as usize);
    rustix::io::write(&w, b"data")?;
    let (r, w, full, file) = (r.as_raw_fd(), w.as_raw_fd(), full.as_raw_fd(), file.as_raw_fd());
    let tee = |from, to| splice_sqe((from, 0), (to, 0), 4, 0).set(|s| s.opcode = IORING_OP_TEE);
    let at_once = libc::SPLICE_F_NONBLOCK;
    for fd in [ring.fd, other.fd] {
        cx.each(&mut ring, &[
            ("to a pipe", splice_sqe((fd, NONE), (w, NONE), 4, 0), -EINVAL),
            ("from an offset", splice_sqe((fd, 0), (w, NONE), 4, 0), -EINVAL),
            ("to a full pipe, from an offset", splice_sqe((fd, 0), (full, NONE), 4, 0), -EINVAL),
            ("to a full pipe", splice_sqe((fd, NONE), (full, NONE), 4, at_once), -EAGAIN),
            ("to an offset of a pipe", splice_sqe((fd, 0), (w, 0), 4, 0), -ESPIPE),
            ("from a pipe", splice_sqe((r, NONE), (fd, NONE), 4, 0), -EINVAL),
            ("from a pipe to an offset", splice_sqe((r, NONE), (fd, 0), 4, 0), -EINVAL),
            ("from an offset of a pipe", splice_sqe((r, 0), (fd, 0), 4, 0), -ESPIPE),
            ("to a file", splice_sqe((fd, 0), (file, 0), 4, 0), -EINVAL),
            ("nothing", splice_sqe((fd, 0), (w, NONE), 0, 0), 0),
            ("tee from", tee(fd, w), -EINVAL),
            ("tee to", tee(r, fd), -EINVAL),
        ]);
    }
    Ok(())
}

fn splice_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (cx.file("a", b"0123456789")?, cx.file("b", b"")?);
    let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
    let (r, w) = cx.pipe()?;
    let (r, w) = (r.as_raw_fd(), w.as_raw_fd());
    cx.each(&mut ring, &[
        ("no pipe", splice_sqe((a, 0), (b, 0), 4, 0), -EINVAL),
        ("an offset of a pipe", splice_sqe((a, 0), (w, 0), 4, 0), -ESPIPE),
        ("an offset of the other", splice_sqe((r, 0), (b, 0), 4, 0), -ESPIPE),
        ("bad from", splice_sqe((-1, NONE), (w, NONE), 4, 0), -EBADF),
        ("bad to", splice_sqe((a, 0), (-1, NONE), 4, 0), -EBADF),
        ("from a write end", splice_sqe((w, NONE), (b, 0), 4, 0), -EBADF),
        ("no table", splice_sqe((0, 0), (w, NONE), 4, SPLICE_F_FD_IN_FIXED), -EBADF),
        ("unknown flag", splice_sqe((a, 0), (w, NONE), 4, 1 << 10), -EINVAL),
        ("a pipe to itself", splice_sqe((r, NONE), (w, NONE), 4, 0), -EINVAL),
    ]);
    Ok(())
}

fn splice_closed_fd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_r, w) = cx.pipe()?;
    let (r, _other) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK)?;
    let mut byte = [0];
    let read = sqe::read(r.as_raw_fd(), &mut byte, 0).ud(2);
    for len in [0, 4] {
        for (what, sqe) in [
            ("splice", splice_sqe((-1, NONE), (w.as_raw_fd(), NONE), len, 0)),
            ("tee", tee_sqe(-1, w.as_raw_fd(), len, 0)),
            ("a slot", splice_sqe((0, 0), (w.as_raw_fd(), NONE), len, SPLICE_F_FD_IN_FIXED)),
        ] {
            let sqes = [sqe.with(IOSQE_IO_HARDLINK).ud(1), read, sqe::nop().ud(3)];
            cx.start(&mut ring, &sqes);
            // A worker may complete its request before the batch does.
            sorted(cx, &mut ring, what, 3)?;
        }
    }
    Ok(())
}

fn tee_sqe(from: i32, to: i32, len: u32, flags: u32) -> io_uring_sqe {
    splice_sqe((from, 0), (to, 0), len, flags).set(|s| s.opcode = IORING_OP_TEE)
}

fn tee(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ((r1, w1), (r2, w2)) = (cx.pipe()?, cx.pipe()?);
    rustix::io::write(&w1, b"data")?;
    cx.one(&mut ring, "tee", tee_sqe(r1.as_raw_fd(), w2.as_raw_fd(), 8, 0), 4);
    let mut buf = [0; 8];
    cx.is("the copy", rustix::io::read(&r2, &mut buf)?, 4);
    cx.is("the original", rustix::io::read(&r1, &mut buf)?, 4);
    cx.one(&mut ring, "nothing", tee_sqe(r1.as_raw_fd(), w2.as_raw_fd(), 0, 0), 0);
    Ok(())
}

fn tee_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let ((r1, _w1), (_r2, w2)) = (cx.pipe()?, cx.pipe()?);
    let file = cx.file("a", b"data")?;
    let (r, w) = (r1.as_raw_fd(), w2.as_raw_fd());
    cx.each(&mut ring, &[
        ("a file", tee_sqe(file.as_raw_fd(), w, 4, 0), -EINVAL),
        ("bad from", tee_sqe(-1, w, 4, 0), -EBADF),
        ("bad to", tee_sqe(r, -1, 4, 0), -EBADF),
        ("an offset", tee_sqe(r, w, 4, 0).set(|s| s.off = 1), -EINVAL),
        ("another", tee_sqe(r, w, 4, 0).set(|s| s.addr = 1), -EINVAL),
        ("unknown flag", tee_sqe(r, w, 4, 1 << 10), -EINVAL),
        ("NONBLOCK on an empty pipe", tee_sqe(r, w, 4, libc::SPLICE_F_NONBLOCK), -EAGAIN),
    ]);
    Ok(())
}
