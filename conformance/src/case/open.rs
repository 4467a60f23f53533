//! OPENAT, OPENAT2, CLOSE, FIXED_FD_INSTALL, PIPE: fds and slots that come and go.

use super::prelude::*;
use std::ffi::CStr;

pub const CASES: &[Case] = &[
    any_order!("open", openat_case, [Op(IORING_OP_OPENAT)], "files are opened and created, with flags and mode"),
    legal!("open", openat_refusals, [Op(IORING_OP_OPENAT)], "bad names, pointers, directories and words"),
    legal!("open", ends_batch, [Op(IORING_OP_OPENAT)], "a name that cannot be read ends a batch, one that is not there does not"),
    any_order!("open", flags_change, [Op(IORING_OP_OPENAT), Op(IORING_OP_READ)], "a file that a request has opened gets other flags, and its number another file"),
    legal!("open", openat2_case, [Op(IORING_OP_OPENAT2)], "OPENAT2 works as openat2(2), with its resolve flags"),
    legal!("open", openat2_refusals, [Op(IORING_OP_OPENAT2)], "bad sizes, pointers, flags and modes"),
    legal!("open", into_slot, [Op(IORING_OP_OPENAT), Op(IORING_OP_OPENAT2)], "a file is opened into a slot, and replaces the file there"),
    legal!("open", into_bad_slot, [Op(IORING_OP_OPENAT)], "no table, unknown slots, close-on-exec"),
    legal!("open", cloexec, [Op(IORING_OP_OPENAT)], "close-on-exec is set as asked"),
    legal!("open", close, [Op(IORING_OP_CLOSE)], "CLOSE closes fds, once"),
    legal!("open", close_refusals, [Op(IORING_OP_CLOSE)], "bad fds and words"),
    any_order!("open", close_slot, [Op(IORING_OP_CLOSE)], "CLOSE closes slots, once"),
    any_order!("open", close_busy, [Op(IORING_OP_CLOSE)], "closing an fd does not end requests on it"),
    legal!("open", close_rings, [Op(IORING_OP_CLOSE)], "an SQE cannot close a ring"),
    any_order!("open", open_read_close, [Op(IORING_OP_OPENAT), Op(IORING_OP_CLOSE), Sqe(IOSQE_IO_LINK)], "open into a slot, read and close it in one chain"),
    legal!("open", fd_limit, [Op(IORING_OP_OPENAT)], "no free fd fails with EMFILE"),
];

const HERE: i32 = libc::AT_FDCWD;

fn openat(dir: i32, path: &CStr, flags: i32, mode: u32) -> io_uring_sqe {
    sqe::op(IORING_OP_OPENAT, dir)
        .op_flags(flags.cast_unsigned())
        .set(|s| (s.addr, s.len) = (addr(path) as u64, mode))
}

fn openat_case(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (old, new) = (cx.path("old")?, cx.path("new")?);
    cx.file("old", b"data")?;
    let fd = cx.one_fd(&mut ring, "open", openat(HERE, &old, libc::O_RDONLY, 0))?;
    let mut buf = [0; 8];
    cx.one(&mut ring, "read", sqe::read(fd.as_raw_fd(), &mut buf, 0), 4);
    let make = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let fd = cx.one_fd(&mut ring, "make", openat(HERE, &new, make, 0o640))?;
    cx.one(&mut ring, "write", sqe::write(fd.as_raw_fd(), b"new", 0), 3);
    cx.eq("mode", format!("{:o}", rustix::fs::fstat(&fd)?.st_mode & 0o777), "640".into());
    cx.one(&mut ring, "make again", openat(HERE, &new, make, 0o640), -EEXIST);
    let dir = std::fs::File::open(cx.dir()?)?;
    let by_dir = openat(dir.as_raw_fd(), c"old", libc::O_RDWR | libc::O_TRUNC, 0);
    cx.one_fd(&mut ring, "relative, truncated", by_dir)?;
    let found = cx.content("old")?;
    cx.is("size", found.len(), 0);
    cx.one_fd(&mut ring, "in a worker", openat(HERE, &new, 0, 0).with(IOSQE_ASYNC))?;
    let dir = cx.path("")?;
    let nameless = openat(HERE, &dir, libc::O_TMPFILE | libc::O_RDWR, 0o600);
    cx.one_fd(&mut ring, "nameless", nameless)?;
    Ok(())
}

fn openat_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (old, none, below) = (cx.path("old")?, cx.path("none")?, cx.path("old/x")?);
    let file = cx.file("old", b"data")?;
    let long = std::ffi::CString::new(vec![b'x'; 300]).map_err(|_| EINVAL)?;
    let good = openat(HERE, &old, 0, 0);
    let at = |p: usize| good.set(|s| s.addr = p as u64);
    let dir = cx.path("")?;
    cx.each(&mut ring, &[
        ("missing", openat(HERE, &none, 0, 0), -ENOENT),
        ("below a file", openat(HERE, &below, 0, 0), -ENOTDIR),
        ("empty name", openat(HERE, c"", 0, 0), -ENOENT),
        ("long name", openat(HERE, &long, 0, 0), -libc::ENAMETOOLONG),
        ("relative to a bad fd", openat(-1, c"old", 0, 0), -EBADF),
        ("relative to a file", openat(file.as_raw_fd(), c"old", 0, 0), -ENOTDIR),
        ("a directory for writing", openat(HERE, &dir, libc::O_RDWR, 0), -EISDIR),
        ("O_DIRECTORY of a file", openat(HERE, &old, libc::O_DIRECTORY, 0), -ENOTDIR),
        ("null", at(0), -EFAULT),
        ("unmapped", at(BAD), -EFAULT),
        ("kernel", at(KERNEL), -EFAULT),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("fixed directory", good.fixed(), -EBADF),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
    ]);
    Ok(())
}

/// `struct open_how` of openat2(2).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
    more: u64,
}

fn ends_batch(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (old, none) = (cx.path("old")?, cx.path("none")?);
    cx.file("old", b"data")?;
    let long = std::ffi::CString::new(vec![b'x'; 4096]).map_err(|_| EINVAL)?;
    let good = openat(HERE, &old, libc::O_WRONLY | libc::O_DIRECTORY, 0);
    let at = |p: usize| good.set(|s| s.addr = p as u64);
    let all = [
        ("unmapped", at(BAD), -EFAULT, 1),
        ("empty", openat(HERE, c"", 0, 0), -ENOENT, 1),
        ("longer than any", openat(HERE, &long, 0, 0), -libc::ENAMETOOLONG, 1),
        ("missing", openat(HERE, &none, 0, 0), -ENOENT, 2),
        ("not a directory", good, -ENOTDIR, 2),
    ];
    for (what, first, want, taken) in all {
        ring.push(first.ud(1));
        ring.push(good.ud(2));
        cx.is(what, ring.submit(), taken);
        if taken == 1 {
            cx.reap(&mut ring, what, &[(1, want)]);
            cx.is("the rest", ring.submit(), 1);
            cx.reap(&mut ring, "the rest", &[(2, -ENOTDIR)]);
        } else {
            cx.reap(&mut ring, what, &[(1, want), (2, -ENOTDIR)]);
        }
    }
    Ok(())
}

/// An odd read tells whether a file is O_DIRECT.
fn flags_change(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let path = cx.path("f")?;
    let direct = cx.direct_file("f", &[7; 8192])?;
    let mut buf = [0; 8];
    let mut odd = |cx: &mut Cx, what, fd: &std::os::fd::OwnedFd, want| {
        cx.one(&mut ring, what, sqe::read(fd.as_raw_fd(), &mut buf, 1), want);
    };
    let mut other = cx.ring(4, 0)?;
    let flags = rustix::fs::OFlags::RDWR;
    for _ in 0..2 {
        let mut fd = cx.one_fd(&mut other, "open", openat(HERE, &path, libc::O_RDWR, 0))?;
        odd(cx, "buffered", &fd, 8);
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::DIRECT)?;
        odd(cx, "made O_DIRECT", &fd, -EINVAL);
        rustix::fs::fcntl_setfl(&fd, flags)?;
        odd(cx, "buffered again", &fd, 8);
        rustix::io::dup2(&direct, &mut fd)?;
        odd(cx, "another file", &fd, -EINVAL);
        drop(fd);
        let how = libc::O_RDWR | libc::O_DIRECT;
        let fd = cx.one_fd(&mut other, "open O_DIRECT", openat(HERE, &path, how, 0))?;
        odd(cx, "O_DIRECT", &fd, -EINVAL);
        rustix::fs::fcntl_setfl(&fd, flags)?;
        odd(cx, "made buffered", &fd, 8);
        let by_worker = openat(HERE, &path, how, 0).with(IOSQE_ASYNC);
        let fd = cx.one_fd(&mut other, "open by a worker", by_worker)?;
        odd(cx, "O_DIRECT", &fd, -EINVAL);
    }
    Ok(())
}

fn openat2(path: &CStr, how: &How, size: u32) -> io_uring_sqe {
    sqe::op(IORING_OP_OPENAT2, HERE)
        .set(|s| (s.addr, s.off, s.len) = (addr(path) as u64, addr(how) as u64, size))
}

fn openat2_case(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (old, new) = (cx.path("old")?, cx.path("new")?);
    cx.file("old", b"data")?;
    std::os::unix::fs::symlink("old", cx.dir()?.join("link"))?;
    let link = cx.path("link")?;
    let read = How::default();
    let make = How { flags: (libc::O_CREAT | libc::O_WRONLY) as u64, mode: 0o600, ..read };
    let no_links = How { resolve: libc::RESOLVE_NO_SYMLINKS, ..read };
    cx.one_fd(&mut ring, "open", openat2(&old, &read, 24))?;
    cx.one_fd(&mut ring, "make", openat2(&new, &make, 24))?;
    cx.one_fd(&mut ring, "by a link", openat2(&link, &read, 24))?;
    cx.one(&mut ring, "no links", openat2(&link, &no_links, 24), -libc::ELOOP);
    let beneath = How { resolve: libc::RESOLVE_BENEATH, ..read };
    cx.one(&mut ring, "beneath", openat2(&old, &beneath, 24), -libc::EXDEV);
    let cached = How { resolve: libc::RESOLVE_CACHED, ..read };
    cx.one_fd(&mut ring, "cached", openat2(&old, &cached, 24))?;
    cx.one_fd(&mut ring, "larger than known, zeroed", openat2(&old, &read, 32))?;
    cx.one_fd(&mut ring, "in a worker", openat2(&old, &read, 24).with(IOSQE_ASYNC))?;
    Ok(())
}

fn openat2_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (old, none) = (cx.path("old")?, cx.path("none")?);
    cx.file("old", b"data")?;
    let read = How::default();
    let good = openat2(&old, &read, 24);
    let more = How { more: 1, ..read };
    let flags = How { flags: 1 << 40, ..read };
    let mode = How { mode: 0o600, ..read };
    let resolve = How { resolve: 1 << 20, ..read };
    let both = How { resolve: libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT, ..read };
    let made = How { flags: (libc::O_CREAT | libc::O_DIRECTORY) as u64, mode: 0o600, ..read };
    let wide = How { flags: libc::O_CREAT as u64, mode: 0o17_777, ..read };
    let unnamed = How { flags: libc::O_TMPFILE as u64, mode: 0o600, ..read };
    let path_only = How { flags: (libc::O_PATH | libc::O_RDWR) as u64, ..read };
    let cached = libc::RESOLVE_CACHED;
    let cached = How { flags: libc::O_CREAT as u64, mode: 0o600, resolve: cached, ..read };
    cx.each(&mut ring, &[
        ("beneath and in root", openat2(&old, &both, 24), -EINVAL),
        ("make a directory", openat2(&none, &made, 24), -EINVAL),
        ("make a directory by OPENAT", openat(HERE, &none, made.flags as i32, 0), -EINVAL),
        ("a mode of too many bits", openat2(&none, &wide, 24), -EINVAL),
        ("without a name, to be read", openat2(c"/tmp", &unnamed, 24), -EINVAL),
        ("its path, to be written", openat2(&old, &path_only, 24), -EINVAL),
        ("made, if that is cached", openat2(&none, &cached, 24), -EAGAIN),
    ]);
    cx.each(&mut ring, &[
        ("missing", openat2(&none, &read, 24), -ENOENT),
        ("size 0", openat2(&old, &read, 0), -EINVAL),
        ("size 23", openat2(&old, &read, 23), -EINVAL),
        ("larger, not zeroed", openat2(&old, &more, 32), -libc::E2BIG),
        ("unknown flags", openat2(&old, &flags, 24), -EINVAL),
        ("mode without O_CREAT", openat2(&old, &mode, 24), -EINVAL),
        ("unknown resolve", openat2(&old, &resolve, 24), -EINVAL),
        ("null name", good.set(|s| s.addr = 0), -EFAULT),
        ("null how", good.set(|s| s.off = 0), -EFAULT),
        ("unmapped how", good.set(|s| s.off = BAD as u64), -EFAULT),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("fixed directory", good.fixed(), -EBADF),
    ]);
    Ok(())
}

fn read_slot(cx: &mut Cx, ring: &mut Ring, slot: i32, want: i32) {
    let mut buf = [0; 16];
    cx.one(ring, "read of the slot", sqe::read(slot, &mut buf, 0).fixed(), want);
}

fn into_slot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (cx.path("a")?, cx.path("b")?);
    cx.file("a", b"a")?;
    cx.file("b", b"bb")?;
    cx.sparse_files(&ring, 4);
    cx.one(&mut ring, "into slot 2", in_slot(openat(HERE, &a, 0, 0), 2), 0);
    read_slot(cx, &mut ring, 2, 1);
    let how = How::default();
    cx.one(&mut ring, "over it", in_slot(openat2(&b, &how, 24), 2), 0);
    read_slot(cx, &mut ring, 2, 2);
    let alloc = openat(HERE, &a, 0, 0).set(|s| s.file_index = IORING_FILE_INDEX_ALLOC);
    // The search starts after the slot that was allocated last.
    for slot in [3, 0, 1] {
        cx.one(&mut ring, "any slot", alloc, slot);
    }
    cx.one(&mut ring, "none left", alloc, -libc::ENFILE);
    Ok(())
}

fn into_bad_slot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let a = cx.path("a")?;
    cx.file("a", b"a")?;
    let open = openat(HERE, &a, 0, 0);
    cx.one(&mut ring, "no table", in_slot(open, 0), -ENXIO);
    cx.sparse_files(&ring, 2);
    cx.each(&mut ring, &[
        ("unknown slot", in_slot(open, 2), -EINVAL),
        ("far slot", in_slot(open, 1 << 30), -EINVAL),
        ("close-on-exec", in_slot(openat(HERE, &a, libc::O_CLOEXEC, 0), 0), -EINVAL),
        ("missing", in_slot(openat(HERE, c"/no/such", 0, 0), 0), -ENOENT),
    ]);
    read_slot(cx, &mut ring, 0, -EBADF);
    Ok(())
}

fn cloexec(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let a = cx.path("a")?;
    cx.file("a", b"a")?;
    for (what, flags, want) in [("without", 0, 0), ("with", libc::O_CLOEXEC, libc::FD_CLOEXEC)] {
        let fd = cx.one_fd(&mut ring, what, openat(HERE, &a, flags, 0))?;
        cx.is("F_GETFD", os::fcntl(fd.as_raw_fd(), libc::F_GETFD, 0), want);
    }
    Ok(())
}

fn close(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let fd = os::dup(cx.file("f", b"")?.as_raw_fd());
    cx.holds("an fd", fd >= 0);
    let sqe = sqe::op(IORING_OP_CLOSE, fd);
    cx.one(&mut ring, "close", sqe, 0);
    cx.is("F_GETFD", os::fcntl(fd, libc::F_GETFD, 0), -EBADF);
    cx.one(&mut ring, "again", sqe, -EBADF);
    let fd = os::dup(cx.file("f", b"")?.as_raw_fd());
    cx.one(&mut ring, "in a worker", sqe::op(IORING_OP_CLOSE, fd).with(IOSQE_ASYNC), 0);
    cx.is("F_GETFD", os::fcntl(fd, libc::F_GETFD, 0), -EBADF);
    Ok(())
}

fn close_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let good = sqe::op(IORING_OP_CLOSE, file.as_raw_fd());
    cx.each(&mut ring, &[
        ("-1", sqe::op(IORING_OP_CLOSE, -1), -EBADF),
        ("not open", sqe::op(IORING_OP_CLOSE, 1234), -EBADF),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("an address", good.set(|s| s.addr = 1), -EINVAL),
        ("a length", good.set(|s| s.len = 1), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("fixed file", good.fixed(), -EBADF),
        ("fd and slot", good.set(|s| s.file_index = 1), -EINVAL),
    ]);
    cx.is("still open", os::fcntl(file.as_raw_fd(), libc::F_GETFD, 0), libc::FD_CLOEXEC);
    Ok(())
}

fn close_slot(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let close = |slot| in_slot(sqe::op(IORING_OP_CLOSE, 0), slot);
    cx.one(&mut ring, "no table", close(0), -ENXIO);
    let file = cx.file("f", b"data")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd(), -1]), 0);
    read_slot(cx, &mut ring, 0, 4);
    cx.each(&mut ring, &[
        ("close", close(0), 0),
        ("again", close(0), -EBADF),
        ("a free one", close(1), -EBADF),
        ("unknown", close(2), -EINVAL),
    ]);
    read_slot(cx, &mut ring, 0, -EBADF);
    Ok(())
}

fn close_busy(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut bufs = [[0u8; 4]; 2];
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[r.as_raw_fd()]), 0);
    let fd = os::dup(r.as_raw_fd());
    let [a, b] = &mut bufs;
    cx.start(&mut ring, &[sqe::read(fd, a, 0).ud(1), sqe::read(0, b, 0).fixed().ud(2)]);
    cx.one(&mut ring, "close the fd", sqe::op(IORING_OP_CLOSE, fd), 0);
    cx.one(&mut ring, "close the slot", in_slot(sqe::op(IORING_OP_CLOSE, 0), 0), 0);
    drop(r);
    cx.quiet(&ring, "both still wait", 10);
    rustix::io::write(&w, b"12345678")?;
    cx.reap(&mut ring, "reads", &[(1, 4), (2, 4)]);
    Ok(())
}

fn close_rings(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let other = cx.ring(4, 0)?;
    let (own, their) = (ring.fd, other.fd);
    cx.one(&mut ring, "itself", sqe::op(IORING_OP_CLOSE, own), -EBADF);
    cx.one(&mut ring, "another", sqe::op(IORING_OP_CLOSE, their), -EBADF);
    cx.is("both are open", other.enter(0, 0, 0) + ring.enter(0, 0, 0), 0);
    Ok(())
}

fn open_read_close(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let a = cx.path("a")?;
    cx.file("a", b"data")?;
    let mut buf = [0; 8];
    cx.sparse_files(&ring, 1);
    let sqes = [
        in_slot(openat(HERE, &a, 0, 0), 0).ud(1).link(),
        sqe::read(0, &mut buf, 0).fixed().ud(2).link(),
        in_slot(sqe::op(IORING_OP_CLOSE, 0), 0).ud(3),
    ];
    sqes.into_iter().for_each(|s| assert!(ring.try_push(s)));
    cx.is("submit", ring.submit(), 3);
    cx.note("read of less than asked breaks the chain", "");
    cx.reap_in_order(&mut ring, "chain", &[(1, 0), (2, 4), (3, -ECANCELED)]);
    Ok(())
}

fn fd_limit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let a = cx.path("a")?;
    let spare = cx.file("a", b"")?;
    let next = os::dup(spare.as_raw_fd());
    os::close(next);
    let was = os::set_limit(libc::RLIMIT_NOFILE, next as u64);
    cx.one(&mut ring, "open", openat(HERE, &a, 0, 0), -EMFILE);
    cx.one(&mut ring, "in a worker", openat(HERE, &a, 0, 0).with(IOSQE_ASYNC), -EMFILE);
    os::set_limit(libc::RLIMIT_NOFILE, was);
    Ok(())
}
