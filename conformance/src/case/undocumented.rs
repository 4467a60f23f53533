//! Undocumented behaviour of the kernel on which programs may rely all the same.

use super::prelude::*;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

pub const CASES: &[Case] = &[
    legal!("undocumented", chain_goes_on, [Sqe(IOSQE_IO_LINK)], "some operations fail without breaking a chain"),
    legal!("undocumented", chain_breaks, [Sqe(IOSQE_IO_LINK)], "other operations break a chain, and so does a refused SQE"),
    legal!("undocumented", skip_hides_failure, [Sqe(IOSQE_CQE_SKIP_SUCCESS)], "SKIP_SUCCESS hides failures that break no chain"),
    legal!("undocumented", fifo, [Op(IORING_OP_OPENAT)], "a FIFO is opened without waiting, and blocks afterwards"),
    any_order!("undocumented", interrupted_in_worker, [Op(IORING_OP_SPLICE), Op(IORING_OP_TEE), Op(IORING_OP_OPENAT)], "an interrupted request in a worker fails with ERESTARTSYS"),
    legal!("undocumented", longest_names, [Op(IORING_OP_OPENAT), Op(IORING_OP_FGETXATTR)], "the longest path and attribute name"),
    legal!("undocumented", large_open_how, [Op(IORING_OP_OPENAT2)], "open_how may exceed a page"),
    legal!("undocumented", path_only, [Op(IORING_OP_OPENAT), Op(IORING_OP_FILES_UPDATE)], "O_PATH files may be opened into slots, but not registered"),
    legal!("undocumented", pipe_slot_numbers, [Op(IORING_OP_PIPE)], "a pipe in chosen slots returns their numbers, and a failed one leaves none"),
    legal!("undocumented", broken_pipe, [Op(IORING_OP_SPLICE)], "a splice to a broken pipe raises no signal"),
    any_order!("undocumented", chain_in_worker, [Sqe(IOSQE_IO_LINK)], "requests behind a worker's request, or in an unterminated chain, block in a worker"),
    legal!("undocumented", files_without_read_iter, [Op(IORING_OP_READV), Op(IORING_OP_WRITEV)], "files without read_iter accept flags, and check empty transfers"),
    any_order!("undocumented", write_without_pwrite, [Op(IORING_OP_WRITE), Op(IORING_OP_WRITEV)], "a write at a position works on files that pwrite(2) refuses"),
    any_order!("undocumented", slots_use_no_descriptors, [Op(IORING_OP_OPENAT)], "registered files take no descriptors"),
];

const HERE: i32 = libc::AT_FDCWD;
const NONE: &CStr = c"/no/such";

fn named(op: u8) -> io_uring_sqe {
    sqe::op(op, HERE).set(|s| s.addr = addr(NONE) as u64)
}

fn xattr(op: u8, fd: i32) -> io_uring_sqe {
    sqe::op(op, fd).set(|s| {
        (s.addr, s.addr3) = (addr(c"user.softring") as u64, addr(NONE) as u64);
    })
}

fn ends_of(cx: &mut Cx) -> Result<[OwnedFd; 2], Stop> {
    cx.pipe().map(|(r, w)| [r, w])
}

/// Returns operations whose call fails, with their results.
fn lenient(pipe: &OwnedFd, file: &std::fs::File) -> [(&'static str, io_uring_sqe, i32); 13] {
    let (pipe, file) = (pipe.as_raw_fd(), file.as_raw_fd());
    let two = |op| named(op).set(|s| (s.off, s.len) = (s.addr, HERE.cast_unsigned()));
    [
        ("MKDIRAT", named(IORING_OP_MKDIRAT), -ENOENT),
        ("UNLINKAT", named(IORING_OP_UNLINKAT), -ENOENT),
        ("RENAMEAT", two(IORING_OP_RENAMEAT), -ENOENT),
        ("LINKAT", two(IORING_OP_LINKAT), -ENOENT),
        ("SYMLINKAT", two(IORING_OP_SYMLINKAT).set(|s| s.len = 0), -ENOENT),
        ("STATX", named(IORING_OP_STATX), -ENOENT),
        ("FTRUNCATE", sqe::op(IORING_OP_FTRUNCATE, file), -EINVAL),
        ("FSYNC", sqe::op(IORING_OP_FSYNC, pipe), -EINVAL),
        ("SYNC_FILE_RANGE", sqe::op(IORING_OP_SYNC_FILE_RANGE, pipe), -ESPIPE),
        ("FALLOCATE", sqe::op(IORING_OP_FALLOCATE, file).set(|s| s.addr = 8), -EBADF),
        ("MADVISE", sqe::op(IORING_OP_MADVISE, 0).set(|s| (s.addr, s.len) = (1, 8)), -EINVAL),
        ("GETXATTR", xattr(IORING_OP_GETXATTR, 0), -ENOENT),
        ("SETXATTR", xattr(IORING_OP_SETXATTR, 0), -ENOENT),
    ]
}

fn chain_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"data")?;
    let pipe = ends_of(cx)?;
    rustix::io::ioctl_fionbio(&pipe[0], true)?;
    let mut buf = [0; 4];
    let mut read = || sqe::read(pipe[0].as_raw_fd(), &mut buf, sqe::HERE);
    ring.push(read().ud(1).link());
    cx.is("submit a chain that is cut off", ring.submit(), 1);
    cx.reap(&mut ring, "it does not wait", &[(1, -EAGAIN)]);
    ring.push(sqe::op(IORING_OP_FSYNC, file.as_raw_fd()).ud(1).link()).push(read().ud(2));
    cx.is("submit", ring.submit(), 2);
    cx.reap(&mut ring, "nor does what follows a worker's", &[(1, 0), (2, -EAGAIN)]);
    Ok(())
}

fn files_without_read_iter(cx: &mut Cx) -> Outcome {
    const RWF_DSYNC: u32 = 2;
    let mut ring = cx.ring(4, 0)?;
    let event = cx.eventfd(0)?;
    let dir = std::fs::File::open(cx.dir()?)?;
    let (event, dir) = (event.as_raw_fd(), dir.as_raw_fd());
    let mut buf = [0; 4];
    let flag = |s: &mut io_uring_sqe| s.op_flags = RWF_DSYNC;
    cx.each(&mut ring, &[
        ("too short a write", sqe::write(event, b"x", 0).set(flag), -EINVAL),
        ("a directory", sqe::read(dir, &mut buf, 0).set(flag), -EISDIR),
        ("a read of nothing", sqe::op(IORING_OP_READV, event), -EINVAL),
        ("a write of nothing", sqe::op(IORING_OP_WRITEV, event), 0),
    ]);
    use rustix::fs::inotify::{CreateFlags, init};
    let (waits, asks) = (init(CreateFlags::CLOEXEC)?, init(CreateFlags::NONBLOCK)?);
    cx.one(&mut ring, "nothing of none", sqe::op(IORING_OP_READ, asks.as_raw_fd()), 0);
    cx.start(&mut ring, &[sqe::op(IORING_OP_READ, waits.as_raw_fd()).ud(1)]);
    cx.quiet(&ring, "waits for one", 10);
    cx.start(&mut ring, &[sqe::cancel(1, 0).ud(2)]);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, 0)]);
    Ok(())
}

fn write_without_pwrite(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let name = std::fs::read("/proc/self/comm")?;
    let comm = std::fs::File::options().read(true).write(true).open("/proc/self/comm")?;
    let only = std::fs::File::open("/proc/self/comm")?;
    let (fd, only) = (comm.as_raw_fd(), only.as_raw_fd());
    cx.each(&mut ring, &[
        ("at the start", sqe::write(fd, b"one", 0), 3),
        ("at a position", sqe::write(fd, b"three", 7), 5),
        ("in a worker", sqe::write(fd, b"four", 0).with(IOSQE_ASYNC), 4),
        ("of nothing", sqe::write(fd, b"", 0), 0),
        ("too far", sqe::write(fd, b"x", i64::MAX as u64), -EINVAL),
        ("to what is open for reading", sqe::write(only, b"x", 0), -EBADF),
    ]);
    cx.is("position", rustix::fs::tell(&comm)?, 0u64);
    cx.eq("name", std::fs::read("/proc/self/comm")?, b"four\n".to_vec());
    let name = name.trim_ascii_end();
    cx.one(&mut ring, "as it was", sqe::write(fd, name, 0), name.len() as i32);
    Ok(())
}

fn then_nop(cx: &mut Cx, ring: &mut Ring, what: &str, sqe: io_uring_sqe, want: [i32; 2]) {
    ring.push(sqe.ud(1).link()).push(sqe::nop().ud(2));
    let _ = ring.submit();
    cx.reap(ring, what, &[(1, want[0]), (2, want[1])]);
}

fn read_only(cx: &mut Cx) -> Result<std::fs::File, Stop> {
    cx.file("f", b"data")?;
    Ok(std::fs::File::open(cx.dir()?.join("f"))?)
}

fn chain_goes_on(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (pipe, file) = (ends_of(cx)?, read_only(cx)?);
    for (what, sqe, want) in lenient(&pipe[0], &file) {
        then_nop(cx, &mut ring, what, sqe, [want, 0]);
    }
    Ok(())
}

fn chain_breaks(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (pipe, file) = (ends_of(cx)?, read_only(cx)?);
    let path = rustix::fs::open(cx.dir()?, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    let advice = |fd: i32, advice| sqe::op(IORING_OP_FADVISE, fd).op_flags(advice);
    let rows = [
        ("OPENAT", named(IORING_OP_OPENAT), -ENOENT),
        ("CLOSE", sqe::op(IORING_OP_CLOSE, 1234), -EBADF),
        ("FADVISE", advice(pipe[0].as_raw_fd(), 0), -ESPIPE),
        ("FADVISE in a worker", advice(file.as_raw_fd(), 99), -EINVAL),
        ("FILES_UPDATE", sqe::op(IORING_OP_FILES_UPDATE, -1).set(|s| s.len = 1), -ENXIO),
        ("FSYNC of no file", sqe::op(IORING_OP_FSYNC, 1234), -EBADF),
        ("FSYNC of a path", sqe::op(IORING_OP_FSYNC, path.as_raw_fd()), -EBADF),
        ("refused MKDIRAT", named(IORING_OP_MKDIRAT).op_flags(1), -EINVAL),
        ("unmapped name", named(IORING_OP_MKDIRAT).set(|s| s.addr = BAD as u64), -EFAULT),
        ("SPLICE", sqe::op(IORING_OP_SPLICE, 1234).set(|s| s.len = 1), -EBADF),
    ];
    for (what, sqe, want) in rows {
        then_nop(cx, &mut ring, what, sqe, [want, -ECANCELED]);
    }
    Ok(())
}

fn skip_hides_failure(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let skip = |s: io_uring_sqe| s.with(IOSQE_CQE_SKIP_SUCCESS).link().ud(1);
    ring.push(skip(named(IORING_OP_MKDIRAT))).push(sqe::nop().ud(2));
    cx.is("submit", ring.submit(), 2);
    cx.reap(&mut ring, "MKDIRAT", &[(2, 0)]);
    ring.push(skip(named(IORING_OP_OPENAT))).push(sqe::nop().ud(2));
    cx.is("submit", ring.submit(), 2);
    cx.reap(&mut ring, "OPENAT", &[(1, -ENOENT)]);
    cx.quiet(&ring, "no more", 5);
    Ok(())
}

fn make_fifo(cx: &mut Cx) -> Result<std::ffi::CString, Stop> {
    let path = cx.path("fifo")?;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0)?;
    Ok(path)
}

fn fifo(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let path = make_fifo(cx)?;
    let open = |flags: i32| {
        let sqe = sqe::op(IORING_OP_OPENAT, HERE).op_flags(flags.cast_unsigned());
        sqe.set(|s| s.addr = addr(path.as_c_str()) as u64)
    };
    cx.one(&mut ring, "to write, nobody reads", open(libc::O_WRONLY), -libc::ENXIO);
    let r = cx.one_fd(&mut ring, "to read", open(libc::O_RDONLY))?;
    let w = cx.one_fd(&mut ring, "to write", open(libc::O_WRONLY))?;
    let quick = cx.one_fd(&mut ring, "O_NONBLOCK", open(libc::O_RDONLY | libc::O_NONBLOCK))?;
    for (what, fd, want) in [("reader", &r, 0), ("writer", &w, 0), ("quick", &quick, 1)] {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        cx.is(what, i32::from(flags.contains(rustix::fs::OFlags::NONBLOCK)), want);
    }
    Ok(())
}

/// Starts `sqe`, which waits in a worker, and cancels it there.
fn interrupt(cx: &mut Cx, ring: &mut Ring, what: &str, sqe: io_uring_sqe) {
    const ERESTARTSYS: i32 = 512;
    ring.push(sqe.ud(1));
    cx.is("submit", ring.submit(), 1);
    cx.quiet(ring, "waits", 50);
    ring.push(sqe::cancel(1, 0).ud(2));
    cx.is("submit", ring.submit(), 1);
    cx.reap(ring, what, &[(1, -ERESTARTSYS), (2, -EALREADY)]);
}

fn interrupted_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (from, to, path) = (ends_of(cx)?, ends_of(cx)?, make_fifo(cx)?);
    let both = |op| {
        sqe::op(op, to[1].as_raw_fd()).set(|s| {
            (s.len, s.file_index) = (8, from[0].as_raw_fd().cast_unsigned());
        })
    };
    let splice = both(IORING_OP_SPLICE).set(|s| (s.off, s.addr) = (u64::MAX, u64::MAX));
    interrupt(cx, &mut ring, "SPLICE", splice);
    interrupt(cx, &mut ring, "TEE", both(IORING_OP_TEE));
    let open = sqe::op(IORING_OP_OPENAT, HERE).with(IOSQE_ASYNC);
    let open = open.set(|s| s.addr = addr(path.as_c_str()) as u64);
    interrupt(cx, &mut ring, "OPENAT of a FIFO", open);
    Ok(())
}

fn longest_names(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    for (len, want) in [(4095, 0), (4096, -libc::ENAMETOOLONG), (9000, -libc::ENAMETOOLONG)] {
        let path = std::ffi::CString::new(vec![b'/'; len]).map_err(|_| EINVAL)?;
        let stat = sqe::op(IORING_OP_STATX, HERE).set(|s| {
            (s.addr, s.off) = (addr(path.as_c_str()) as u64, os::page(3) as u64);
        });
        cx.one(&mut ring, &format!("path of {len}"), stat, want);
    }
    let fd = file.as_raw_fd();
    for (len, want) in [(0, -libc::ERANGE), (255, -libc::ENODATA), (256, -libc::ERANGE)] {
        let name: Vec<u8> = b"user.".iter().copied().chain([b'x'; 300]).take(len).collect();
        let name = std::ffi::CString::new(name).map_err(|_| EINVAL)?;
        let get = sqe::op(IORING_OP_FGETXATTR, fd);
        let get = get.set(|s| s.addr = addr(name.as_c_str()) as u64);
        cx.one(&mut ring, &format!("attribute of {len}"), get, want);
    }
    Ok(())
}

fn large_open_how(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.file("f", b"")?;
    let path = cx.path("f")?;
    let mut how = vec![0u64; 1024];
    let open = |how: &[u64]| {
        let sqe = sqe::op(IORING_OP_OPENAT2, HERE).set(|s| s.addr = addr(path.as_c_str()) as u64);
        sqe.set(|s| (s.off, s.len) = (addr(how) as u64, 8 * how.len() as u32))
    };
    cx.one_fd(&mut ring, "8192 bytes", open(&how))?;
    how[1023] = 1 << 56;
    cx.one(&mut ring, "the last is not zero", open(&how), -libc::E2BIG);
    let half = os::border() - 32;
    let past = open(&how[..8]).set(|s| s.off = half as u64);
    cx.one(&mut ring, "half of it unmapped", past, -EFAULT);
    Ok(())
}

fn install(slot: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_FIXED_FD_INSTALL, slot).fixed()
}

fn open_into(path: &CStr, flags: i32, slot: u32) -> io_uring_sqe {
    let sqe = sqe::op(IORING_OP_OPENAT, HERE).op_flags(flags.cast_unsigned());
    sqe.set(|s| (s.addr, s.file_index) = (addr(path) as u64, slot + 1))
}

fn path_only(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.file("f", b"data")?;
    let name = cx.path("f")?;
    cx.sparse_files(&ring, 2);
    cx.one(&mut ring, "open into a slot", open_into(&name, libc::O_PATH, 0), 0);
    let fd = cx.one_fd(&mut ring, "as an fd", install(0))?;
    let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
    cx.holds("O_PATH", flags.contains(rustix::fs::OFlags::PATH));
    let fds = [fd.as_raw_fd()];
    let update = sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&fds), 1, 1);
    cx.one(&mut ring, "register it", update, -EBADF);
    cx.one(&mut ring, "close it", sqe::op(IORING_OP_CLOSE, os::dup(fds[0])), 0);
    Ok(())
}

fn pipe_slot_numbers(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut fds = [-1; 2];
    cx.sparse_files(&ring, 4);
    let pipe = |to: usize, slot: u32| {
        sqe::op(IORING_OP_PIPE, 0).set(|s| (s.addr, s.file_index) = (to as u64, slot + 1))
    };
    let to = addr_mut(&mut fds);
    cx.one(&mut ring, "slots 1 and 2", pipe(to, 1), 0);
    cx.eq("slots", *std::hint::black_box(&fds), [1, 2]);
    cx.one(&mut ring, "the second has no slot", pipe(to, 3), -EINVAL);
    cx.one(&mut ring, "the first is empty again", install(3), -EBADF);
    cx.one(&mut ring, "nowhere to tell", pipe(BAD, 0), -EFAULT);
    cx.one(&mut ring, "both are empty", install(0), -EBADF);
    cx.one(&mut ring, "the other, too", install(1), -EBADF);
    let cloexec = pipe(to, 0).op_flags(libc::O_CLOEXEC as u32);
    cx.one(&mut ring, "close-on-exec", cloexec, -EINVAL);
    Ok(())
}

fn broken_pipe(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    os::catch(libc::SIGPIPE, 0);
    let ([from, more], [gone, to]) = (ends_of(cx)?, ends_of(cx)?);
    drop(gone);
    rustix::io::write(&more, b"data")?;
    let splice = sqe::op(IORING_OP_SPLICE, to.as_raw_fd()).set(|s| {
        (s.off, s.addr, s.len) = (u64::MAX, u64::MAX, 4);
        s.file_index = from.as_raw_fd().cast_unsigned();
    });
    cx.one(&mut ring, "splice", splice, -EPIPE);
    cx.is("SIGPIPEs", os::caught(), 0);
    Ok(())
}

fn slots_use_no_descriptors(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.file("f", b"data")?;
    let name = cx.path("f")?;
    cx.sparse_files(&ring, 4);
    let before = os::open_fds();
    for slot in 0..4 {
        cx.one(&mut ring, "open", open_into(&name, 0, slot), 0);
    }
    cx.note("fds more", (os::open_fds() - before).min(9));
    Ok(())
}
