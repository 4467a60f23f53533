//! Operations on names: STATX, RENAMEAT, UNLINKAT, MKDIRAT, SYMLINKAT, LINKAT.

use super::prelude::*;
use std::ffi::CStr;

pub const CASES: &[Case] = &[
    legal!("paths", statx, [Op(IORING_OP_STATX)], "STATX returns what statx(2) returns"),
    case!("paths", statx_queued, [
        Op(IORING_OP_STATX), Op(IORING_OP_ASYNC_CANCEL), Op(IORING_OP_LINK_TIMEOUT),
    ], "STATX of an open file starts after its batch, and the batch can cancel it"),
    legal!("paths", statx_refusals, [Op(IORING_OP_STATX)], "bad names, pointers, masks and flags"),
    legal!("paths", rename, [Op(IORING_OP_RENAMEAT)], "files are renamed, exchanged, and not replaced"),
    legal!("paths", rename_refusals, [Op(IORING_OP_RENAMEAT)], "bad names, pointers, flags and words"),
    legal!("paths", unlink, [Op(IORING_OP_UNLINKAT)], "files and directories are removed"),
    legal!("paths", unlink_refusals, [Op(IORING_OP_UNLINKAT)], "bad names, pointers, flags and words"),
    legal!("paths", mkdir, [Op(IORING_OP_MKDIRAT)], "directories are made"),
    legal!("paths", mkdir_refusals, [Op(IORING_OP_MKDIRAT)], "bad names, pointers and words"),
    legal!("paths", symlink, [Op(IORING_OP_SYMLINKAT)], "symbolic links are made"),
    case!("paths", symlink_refusals, [Op(IORING_OP_SYMLINKAT)], "bad names, pointers and words"),
    legal!("paths", link, [Op(IORING_OP_LINKAT)], "hard links are made, also of open files"),
    legal!("paths", link_refusals, [Op(IORING_OP_LINKAT)], "bad names, pointers, flags and words"),
    legal!("paths", name_stable, [Op(IORING_OP_MKDIRAT)], "a name may be reused once its SQE is taken"),
    legal!("paths", relative, [Op(IORING_OP_MKDIRAT), Op(IORING_OP_UNLINKAT)], "names relative to a directory's fd"),
];

const HERE: i32 = libc::AT_FDCWD;

fn statx_sqe(dir: i32, path: &CStr, buf: &mut libc::statx, mask: u32, flags: i32) -> io_uring_sqe {
    sqe::op(IORING_OP_STATX, dir)
        .op_flags(flags.cast_unsigned())
        .set(|s| (s.addr, s.off, s.len) = (addr(path) as u64, addr_mut(buf) as u64, mask))
}

fn statx(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (path, link) = (cx.path("f")?, cx.path("link")?);
    let file = cx.file("f", b"0123456789")?;
    std::os::unix::fs::symlink("f", cx.dir()?.join("link"))?;
    let mut st = os::zeroed_statx();
    let mask = libc::STATX_BASIC_STATS;
    cx.one(&mut ring, "file", statx_sqe(HERE, &path, &mut st, mask, 0), 0);
    cx.is("size", std::hint::black_box(&st).stx_size, 10);
    cx.holds("mask", st.stx_mask & mask == mask);
    cx.one(&mut ring, "link", statx_sqe(HERE, &link, &mut st, mask, libc::AT_SYMLINK_NOFOLLOW), 0);
    let kind = u32::from(std::hint::black_box(&st).stx_mode) & libc::S_IFMT;
    cx.is("kind", kind, libc::S_IFLNK);
    let empty = libc::AT_EMPTY_PATH;
    let by_fd = statx_sqe(file.as_raw_fd(), c"", &mut st, mask, empty);
    cx.one(&mut ring, "open file", by_fd, 0);
    cx.is("size", std::hint::black_box(&st).stx_size, 10);
    cx.one(&mut ring, "in a worker", by_fd.with(IOSQE_ASYNC), 0);
    Ok(())
}

fn statx_queued(cx: &mut Cx) -> Outcome {
    let _one = super::iowq::OneCpu::new()?;
    let file = cx.file("f", b"0123456789")?;
    let mut st = os::zeroed_statx();
    let (mask, empty) = (libc::STATX_BASIC_STATS, libc::AT_EMPTY_PATH);
    let good = statx_sqe(file.as_raw_fd(), c"", &mut st, mask, empty).ud(1);
    let bad = good.set(|s| s.off = 8);
    let hour = kernel_timespec { tv_sec: 3600, tv_nsec: 0 };
    let (nop, first) = (sqe::nop().ud(2), sqe::nop().ud(3));
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let mut batch = |what: &str, sqes: &[io_uring_sqe], want: &[(u64, i32)]| {
            cx.start(&mut ring, sqes);
            cx.reap_in_order(&mut ring, what, want);
        };
        batch("alone", &[good, nop], &[(2, 0), (1, 0)]);
        batch("linked", &[good.link(), nop], &[(1, 0), (2, 0)]);
        batch("behind another", &[first.link(), good.link(), nop], &[(3, 0), (1, 0), (2, 0)]);
        batch("fails", &[bad, nop], &[(2, 0), (1, -EFAULT)]);
        batch("fails in a chain", &[bad.link(), nop], &[(1, -EFAULT), (2, 0)]);
        batch("cancelled", &[good, sqe::cancel(1, 0).ud(2)], &[(2, 0), (1, -ECANCELED)]);
        let timed = [good.link(), sqe::link_timeout(&hour, 0).ud(3)];
        batch("timed", &timed, &[(1, 0), (3, -ECANCELED)]);
    }
    Ok(())
}

fn statx_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (path, none) = (cx.path("f")?, cx.path("none")?);
    cx.file("f", b"0123456789")?;
    let mut st = os::zeroed_statx();
    let good = statx_sqe(HERE, &path, &mut st, 0x7ff, 0);
    cx.each(&mut ring, &[
        ("missing", statx_sqe(HERE, &none, &mut st, 0x7ff, 0), -ENOENT),
        ("empty", statx_sqe(HERE, c"", &mut st, 0x7ff, 0), -ENOENT),
        ("bad directory", statx_sqe(-1, c"f", &mut st, 0x7ff, 0), -EBADF),
        ("null name", good.set(|s| s.addr = 0), -EFAULT),
        ("unmapped name", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("null buffer", good.set(|s| s.off = 0), -EFAULT),
        ("unmapped buffer", good.set(|s| s.off = BAD as u64), -EFAULT),
        ("reserved mask", good.set(|s| s.len = 1 << 31), -EINVAL),
        ("unknown flag", good.op_flags(1 << 20), -EINVAL),
        ("both sync flags", good.op_flags(0x6000), -EINVAL),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("fixed file", good.fixed(), -EBADF),
    ]);
    Ok(())
}

/// Makes an SQE with two names, `addr` and `addr2`; `len` is the second directory.
fn two(op: u8, from: &CStr, to: &CStr, flags: u32) -> io_uring_sqe {
    sqe::op(op, HERE).op_flags(flags).set(|s| {
        (s.addr, s.off) = (addr(from) as u64, addr(to) as u64);
        s.len = HERE.cast_unsigned();
    })
}

/// Checks the refusals of every operation with names: bad pointers, and a registered file as a
/// directory.
fn bad_names(cx: &mut Cx, ring: &mut Ring, good: io_uring_sqe, second: bool) {
    let mut rows = vec![
        ("null name", good.set(|s| s.addr = 0), -EFAULT),
        ("unmapped name", good.set(|s| s.addr = BAD as u64), -EFAULT),
        ("kernel name", good.set(|s| s.addr = KERNEL as u64), -EFAULT),
        ("a buffer index", good.set(|s| s.buf_index = 1), -EINVAL),
        ("fixed file", good.fixed(), -EBADF),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
    ];
    if second {
        rows.push(("null second name", good.set(|s| s.off = 0), -EFAULT));
        rows.push(("unmapped second name", good.set(|s| s.off = BAD as u64), -EFAULT));
        rows.push(("a file index", good.set(|s| s.file_index = 1), -EINVAL));
    }
    cx.each(ring, &rows);
}

fn rename(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b, c) = (cx.path("a")?, cx.path("b")?, cx.path("c")?);
    cx.file("a", b"was a")?;
    cx.file("b", b"was b")?;
    let op = IORING_OP_RENAMEAT;
    cx.one(&mut ring, "rename", two(op, &a, &c, 0), 0);
    cx.one(&mut ring, "gone", two(op, &a, &c, 0), -ENOENT);
    cx.one(&mut ring, "not replaced", two(op, &b, &c, libc::RENAME_NOREPLACE), -EEXIST);
    cx.one(&mut ring, "exchanged", two(op, &b, &c, libc::RENAME_EXCHANGE), 0);
    let (b, c) = (cx.content("b")?, cx.content("c")?);
    cx.eq("files", (b, c), (b"was a".to_vec(), b"was b".to_vec()));
    Ok(())
}

fn rename_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, below) = (cx.path("a")?, cx.path("a/x")?);
    cx.file("a", b"a")?;
    let op = IORING_OP_RENAMEAT;
    let good = two(op, &a, &a, 0);
    cx.each(&mut ring, &[
        ("onto itself", good, 0),
        ("below a file", two(op, &a, &below, 0), -ENOTDIR),
        ("unknown flag", two(op, &a, &a, 1 << 10), -EINVAL),
        ("flags at odds", two(op, &a, &a, 3), -EINVAL),
        ("bad directory", two(op, c"x", &a, 0).set(|s| s.fd = -1), -EBADF),
        ("bad second directory", two(op, &a, c"x", 0).set(|s| s.len = u32::MAX), -EBADF),
    ]);
    bad_names(cx, &mut ring, good, true);
    Ok(())
}

/// Makes an SQE with one name in `addr`.
fn one(op: u8, path: &CStr) -> io_uring_sqe {
    sqe::op(op, HERE).set(|s| s.addr = addr(path) as u64)
}

fn unlink(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (f, d) = (cx.path("f")?, cx.path("d")?);
    cx.file("f", b"")?;
    std::fs::create_dir(cx.dir()?.join("d"))?;
    let op = IORING_OP_UNLINKAT;
    let dir = libc::AT_REMOVEDIR.cast_unsigned();
    cx.each(&mut ring, &[
        ("a directory as a file", one(op, &d), -EISDIR),
        ("a file as a directory", one(op, &f).op_flags(dir), -ENOTDIR),
        ("file", one(op, &f), 0),
        ("again", one(op, &f), -ENOENT),
        ("directory", one(op, &d).op_flags(dir), 0),
    ]);
    let left = std::fs::read_dir(cx.dir()?)?.count();
    cx.is("left", left, 0);
    Ok(())
}

fn unlink_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let f = cx.path("f")?;
    cx.file("f", b"")?;
    let good = one(IORING_OP_UNLINKAT, &f);
    cx.each(&mut ring, &[
        ("unknown flag", good.op_flags(1), -EINVAL),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("a length", good.set(|s| s.len = 1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
        ("bad directory", one(IORING_OP_UNLINKAT, c"x").set(|s| s.fd = 1234), -EBADF),
    ]);
    bad_names(cx, &mut ring, good, false);
    Ok(())
}

fn mkdir(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let d = cx.path("d")?;
    let make = one(IORING_OP_MKDIRAT, &d).set(|s| s.len = 0o700);
    cx.one(&mut ring, "make", make, 0);
    cx.one(&mut ring, "again", make, -EEXIST);
    let mode = rustix::fs::stat(&*d)?.st_mode;
    cx.eq("mode", format!("{mode:o}"), "40700".into());
    let d = cx.path("d/e")?;
    cx.one(&mut ring, "in a worker", one(IORING_OP_MKDIRAT, &d).with(IOSQE_ASYNC), 0);
    Ok(())
}

fn mkdir_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (d, none) = (cx.path("d")?, cx.path("none/d")?);
    let good = one(IORING_OP_MKDIRAT, &d);
    cx.each(&mut ring, &[
        ("in none", one(IORING_OP_MKDIRAT, &none), -ENOENT),
        ("empty", one(IORING_OP_MKDIRAT, c""), -ENOENT),
        ("an offset", good.set(|s| s.off = 1), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
        ("a file index", good.set(|s| s.file_index = 1), -EINVAL),
    ]);
    bad_names(cx, &mut ring, good, false);
    Ok(())
}

fn symlink(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let l = cx.path("l")?;
    let make = sqe::op(IORING_OP_SYMLINKAT, HERE)
        .set(|s| (s.addr, s.off) = (addr(c"target") as u64, addr(&*l) as u64));
    cx.one(&mut ring, "make", make, 0);
    cx.one(&mut ring, "again", make, -EEXIST);
    let target = std::fs::read_link(cx.dir()?.join("l"))?;
    cx.eq("target", target.display().to_string(), "target".into());
    Ok(())
}

fn symlink_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let l = cx.path("l")?;
    let good = sqe::op(IORING_OP_SYMLINKAT, HERE)
        .set(|s| (s.addr, s.off) = (addr(c"target") as u64, addr(&*l) as u64));
    cx.each(&mut ring, &[
        ("empty target", good.set(|s| s.addr = addr(c"") as u64), -ENOENT),
        ("a length", good.set(|s| s.len = 1), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
    ]);
    bad_names(cx, &mut ring, good, true);
    Ok(())
}

fn link(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b, c, s) = (cx.path("a")?, cx.path("b")?, cx.path("c")?, cx.path("s")?);
    cx.file("a", b"data")?;
    std::os::unix::fs::symlink("a", cx.dir()?.join("s"))?;
    let op = IORING_OP_LINKAT;
    let follow = libc::AT_SYMLINK_FOLLOW.cast_unsigned();
    cx.one(&mut ring, "make", two(op, &a, &b, 0), 0);
    cx.one(&mut ring, "again", two(op, &a, &b, 0), -EEXIST);
    cx.one(&mut ring, "of a link's target", two(op, &s, &c, follow), 0);
    let links = std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(cx.dir()?.join("a"))?);
    cx.is("links", links, 3);
    Ok(())
}

fn link_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b, none) = (cx.path("a")?, cx.path("b")?, cx.path("none")?);
    cx.file("a", b"data")?;
    let op = IORING_OP_LINKAT;
    let good = two(op, &a, &b, 0);
    cx.each(&mut ring, &[
        ("missing", two(op, &none, &b, 0), -ENOENT),
        ("unknown flag", two(op, &a, &b, 1), -EINVAL),
        ("bad directory", two(op, c"x", &b, 0).set(|s| s.fd = -1), -EBADF),
    ]);
    bad_names(cx, &mut ring, good, true);
    Ok(())
}

fn name_stable(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut name = cx.path("first")?.into_bytes_with_nul();
    let make = sqe::op(IORING_OP_MKDIRAT, HERE).set(|s| {
        s.addr = addr_mut(name.as_mut_slice()) as u64;
        s.len = 0o700;
    });
    cx.start(&mut ring, &[make.ud(1).with(IOSQE_ASYNC)]);
    let at = name.len() - 6;
    name[at..at + 5].copy_from_slice(b"other");
    std::hint::black_box(&name);
    cx.reap(&mut ring, "made", &[(1, 0)]);
    let made = cx.dir()?.join("first").exists();
    cx.holds("under its first name", made);
    Ok(())
}

fn relative(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let dir = std::fs::File::open(cx.dir()?)?;
    let fd = dir.as_raw_fd();
    let on = |s: io_uring_sqe| s.set(|s| s.fd = fd);
    cx.one(&mut ring, "make", on(one(IORING_OP_MKDIRAT, c"d")), 0);
    let remove = on(one(IORING_OP_UNLINKAT, c"d"));
    cx.one(&mut ring, "remove", remove.op_flags(libc::AT_REMOVEDIR.cast_unsigned()), 0);
    Ok(())
}
