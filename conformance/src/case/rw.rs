//! Reads and writes of files: plain, vectored, with flags, positions and bad input.

use super::prelude::*;
use libc::iovec;
use std::os::unix::fs::OpenOptionsExt;

pub const CASES: &[Case] = &[
    any_order!("rw", read, [Op(IORING_OP_READ)], "READ reads at its offset, short at the end, 0 beyond"),
    any_order!("rw", write, [Op(IORING_OP_WRITE)], "WRITE writes at its offset and grows the file"),
    any_order!("rw", readv, [Op(IORING_OP_READV)], "READV fills its parts in turn"),
    any_order!("rw", writev, [Op(IORING_OP_WRITEV)], "WRITEV takes its parts in turn"),
    any_order!("rw", current_position, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "offset -1 uses and moves the file's position"),
    any_order!("rw", position_at_memory_end, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "the file position after a transfer that memory ends"),
    legal!("rw", position_direct, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "an O_DIRECT request in flight does not move the file position"),
    legal!("rw", bad_offsets, [Op(IORING_OP_READ)], "negative and huge offsets"),
    legal!("rw", bad_fds, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "closed fds, fds without the access mode, and wrong kinds of files"),
    any_order!("rw", bad_pointers, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "a bad buffer fails with EFAULT, or returns the bytes before it"),
    any_order!("rw", bad_vectors, [Op(IORING_OP_READV), Op(IORING_OP_WRITEV)], "bad counts, pointers and lengths of vectors"),
    any_order!("rw", rw_flags, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "RWF flags are honoured or refused"),
    any_order!("rw", append, [Op(IORING_OP_WRITE)], "O_APPEND and RWF_APPEND write at the end"),
    any_order!("rw", ioprio, [Op(IORING_OP_READ)], "priorities are checked"),
    any_order!("rw", attributes, [Op(IORING_OP_READ)], "unknown attributes fail with EINVAL"),
    legal!("rw", lengths, [Op(IORING_OP_READ)], "zero and huge lengths"),
    any_order!("rw", fixed_files, [Sqe(IOSQE_FIXED_FILE), Op(IORING_OP_READV), Op(IORING_OP_WRITEV)], "each opcode on a registered file"),
    any_order!("rw", in_worker, [Sqe(IOSQE_ASYNC), Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "each opcode in a worker"),
    any_order!("rw", fd_reused, [Op(IORING_OP_READ)], "a request keeps its file when the fd is closed and reused"),
];

fn read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [b'-'; 8];
    let at = addr_mut(&mut buf);
    let read = |len, off| sqe::rw(IORING_OP_READ, fd, at, len, off);
    cx.one(&mut ring, "at 0", read(4, 0), 4);
    cx.eq("data", *std::hint::black_box(&buf), *b"0123----");
    cx.one(&mut ring, "short at the end", read(8, 7), 3);
    cx.eq("data", *std::hint::black_box(&buf), *b"7893----");
    cx.one(&mut ring, "at the end", read(8, 10), 0);
    cx.one(&mut ring, "far beyond", read(8, 1 << 40), 0);
    cx.one(&mut ring, "nothing", read(0, 0), 0);
    Ok(())
}

fn write(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    cx.each(&mut ring, &[
        ("inside", sqe::write(fd, b"abc", 2), 3),
        ("over the end", sqe::write(fd, b"XYZ", 9), 3),
        ("beyond the end", sqe::write(fd, b"!", 14), 1),
        ("nothing", sqe::write(fd, b"", 0), 0),
    ]);
    let found = cx.content("f")?;
    cx.eq("file", found, b"01abc5678XYZ\0\0!".to_vec());
    Ok(())
}

fn part(buf: &mut [u8]) -> iovec {
    iovec { iov_base: std::ptr::with_exposed_provenance_mut(addr_mut(buf)), iov_len: buf.len() }
}

fn vector(opcode: u8, fd: i32, iov: &[iovec], off: u64) -> io_uring_sqe {
    sqe::rw(opcode, fd, addr(iov), iov.len(), off)
}

fn readv(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let (mut a, mut b, mut c) = ([b'-'; 3], [b'-'; 0], [b'-'; 5]);
    let iov = [part(&mut a), part(&mut b), part(&mut c)];
    cx.one(&mut ring, "three parts", vector(IORING_OP_READV, fd, &iov, 1), 8);
    cx.eq("data", (*std::hint::black_box(&a), *std::hint::black_box(&c)), (*b"123", *b"45678"));
    cx.one(&mut ring, "short", vector(IORING_OP_READV, fd, &iov, 6), 4);
    cx.eq("data", (*std::hint::black_box(&a), *std::hint::black_box(&c)), (*b"678", *b"95678"));
    Ok(())
}

fn writev(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let (mut a, mut b) = (*b"abc", *b"XY");
    let iov = [part(&mut a), part(&mut b)];
    cx.one(&mut ring, "two parts", vector(IORING_OP_WRITEV, file.as_raw_fd(), &iov, 4), 5);
    let found = cx.content("f")?;
    cx.eq("file", found, b"0123abcXY9".to_vec());
    Ok(())
}

fn current_position(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [b'-'; 4];
    cx.one(&mut ring, "first", sqe::read(fd, &mut buf, sqe::HERE), 4);
    cx.one(&mut ring, "next", sqe::read(fd, &mut buf, sqe::HERE), 4);
    cx.eq("data", *std::hint::black_box(&buf), *b"4567");
    cx.one(&mut ring, "write", sqe::write(fd, b"X", sqe::HERE), 1);
    cx.one(&mut ring, "elsewhere", sqe::read(fd, &mut buf, 0), 4);
    cx.one(&mut ring, "in a worker", sqe::read(fd, &mut buf, sqe::HERE).with(IOSQE_ASYNC), 1);
    cx.eq("position", rustix::fs::tell(&file)?, 10);
    let found = cx.content("f")?;
    cx.eq("file", found, b"01234567X9".to_vec());
    Ok(())
}

/// Checks that a failed retry leaves the position alone; a worker reads only once.
fn position_at_memory_end(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut in_memory = std::fs::File::options();
    in_memory.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let files = [("disk", cx.file("f", &[0; 4096])?), ("memory", in_memory.open("/dev/shm")?)];
    let at = os::border() - 100;
    for (what, file) in files {
        rustix::fs::ftruncate(&file, 4096)?;
        let chain = (IOSQE_IO_LINK, "in a worker's chain");
        for (flags, how) in [(0, "inline"), (IOSQE_ASYNC, "by a worker"), chain] {
            for op in [IORING_OP_READ, IORING_OP_WRITE] {
                rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
                let sqe = sqe::rw(op, file.as_raw_fd(), at, 1000, u64::MAX).with(flags);
                cx.one(&mut ring, &format!("{op}, {what}, {how}"), sqe, 100);
                let position = rustix::fs::tell(&file)?;
                cx.note(&format!("{op}, {what}, {how}: position"), position);
            }
        }
    }
    Ok(())
}

fn position_direct(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let content: Vec<u8> = (0..8).flat_map(|n| [n; 4096]).collect();
    let file = cx.direct_file("f", &content)?;
    let fd = file.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    for (how, flags) in [("inline", 0), ("in a worker", IOSQE_ASYNC)] {
        for op in [IORING_OP_READ, IORING_OP_WRITE] {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(4096))?;
            let sqe = sqe::rw(op, fd, page, 4096, sqe::HERE).with(flags);
            cx.one(&mut ring, how, sqe, 4096);
            cx.note("read", os::load(page) & 0xff);
            cx.note("position", format_args!("{op} {how}: {}", rustix::fs::tell(&file)?));
            cx.batch(&mut ring, "two", &[sqe.ud(1), sqe.ud(2)], &[(1, 4096), (2, 4096)]);
            cx.note("position", format_args!("{op} {how}, two: {}", rustix::fs::tell(&file)?));
        }
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
    let end = sqe::rw(IORING_OP_READ, fd, page, 4096, sqe::HERE);
    cx.one(&mut ring, "the end", end, 0);
    cx.note("position", rustix::fs::tell(&file)?);
    cx.one(&mut ring, "it grows", end.set(|s| s.opcode = IORING_OP_WRITE), 4096);
    cx.note("position", rustix::fs::tell(&file)?);
    Ok(())
}

fn bad_offsets(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [0; 4];
    cx.each(&mut ring, &[
        ("read at -2", sqe::read(fd, &mut buf, u64::MAX - 1), -EINVAL),
        ("read at the least", sqe::read(fd, &mut buf, 1 << 63), -EINVAL),
        ("write at -2", sqe::write(fd, b"data", u64::MAX - 1), -EINVAL),
        ("write at the most", sqe::write(fd, b"data", i64::MAX as u64), -EINVAL),
    ]);
    let last = sqe::read(fd, &mut buf, i64::MAX as u64);
    ring.push(last.ud(1)).submit_wait(1);
    let res = ring.take(1)?[0].res;
    cx.note_answer("read at the most", res);
    Ok(())
}

fn bad_fds(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let dir = std::fs::File::open(cx.dir()?)?;
    cx.file("f", b"data")?;
    let path = cx.dir()?.join("f");
    let readonly = std::fs::File::open(&path)?;
    let writeonly = std::fs::File::options().write(true).open(&path)?;
    let by_path = rustix::fs::open(&path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty())?;
    let mut buf = [0; 4];
    let mut read = |fd: i32| sqe::read(fd, &mut buf, 0);
    let rows = [
        ("read of -1", read(-1), -EBADF),
        ("read of one not open", read(1234), -EBADF),
        ("read of the greatest", read(i32::MAX), -EBADF),
        ("read of a directory", read(dir.as_raw_fd()), -EISDIR),
        ("read of O_WRONLY", read(writeonly.as_raw_fd()), -EBADF),
        ("read of O_PATH", read(by_path.as_raw_fd()), -EBADF),
        ("without a buffer", read(by_path.as_raw_fd()).with(IOSQE_BUFFER_SELECT), -EBADF),
        ("nor a file", read(1234).with(IOSQE_BUFFER_SELECT), -EBADF),
        ("write to O_RDONLY", sqe::write(readonly.as_raw_fd(), b"x", 0), -EBADF),
        ("write to -1", sqe::write(-1, b"x", 0), -EBADF),
        ("write to a directory", sqe::write(dir.as_raw_fd(), b"x", 0), -EBADF),
    ];
    cx.each(&mut ring, &rows);
    Ok(())
}

fn bad_pointers(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let readonly = os::page(libc::PROT_READ);
    let none = os::page(libc::PROT_NONE);
    let border = os::border();
    for (name, op) in [("read", IORING_OP_READ), ("write", IORING_OP_WRITE)] {
        let mut row = |what: &str, at: usize, len: usize, want: i32| {
            cx.one(&mut ring, &format!("{name} {what}"), sqe::rw(op, fd, at, len, 0), want);
        };
        row("null", 0, 4, -EFAULT);
        row("unmapped", BAD, 4, -EFAULT);
        row("kernel", KERNEL, 4, -EFAULT);
        row("protected", none, 4, -EFAULT);
        row("null, nothing", 0, 0, 0);
        row("partly mapped", border - 4, 8, 4);
    }
    cx.one(&mut ring, "read to read-only", sqe::rw(IORING_OP_READ, fd, readonly, 4, 0), -EFAULT);
    let worker = sqe::rw(IORING_OP_READ, fd, BAD, 4, 0).with(IOSQE_ASYNC);
    cx.one(&mut ring, "in a worker", worker, -EFAULT);
    Ok(())
}

fn bad_vectors(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [b'x'; 4];
    let good = part(&mut buf);
    let at = |base: usize, len: usize| iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(base),
        iov_len: len,
    };
    let bad_second = [good, at(BAD, 4)];
    let huge = [at(addr(&buf), usize::MAX)];
    let many = [good; 1024];
    for op in [IORING_OP_READV, IORING_OP_WRITEV] {
        cx.each(&mut ring, &[
            ("null", sqe::rw(op, fd, 0, 1, 0), -EFAULT),
            ("unmapped", sqe::rw(op, fd, BAD, 1, 0), -EFAULT),
            ("none", sqe::rw(op, fd, addr(&good), 0, 0), 0),
            ("null, none", sqe::rw(op, fd, 0, 0, 0), 0),
            ("1025", sqe::rw(op, fd, addr(&many), 1025, 0), -EINVAL),
            ("all bits", sqe::rw(op, fd, addr(&many), u32::MAX as usize, 0), -EINVAL),
            ("second part bad", vector(op, fd, &bad_second, 0), 4),
            ("first part bad", vector(op, fd, &bad_second[1..], 0), -EFAULT),
            ("negative length", vector(op, fd, &huge, 0), -EINVAL),
        ]);
    }
    cx.one(&mut ring, "1024 writes", vector(IORING_OP_WRITEV, fd, &many, 0), 4096);
    cx.one(&mut ring, "1024 reads", vector(IORING_OP_READV, fd, &many, 0), 4096);
    Ok(())
}

fn rw_flags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [0; 4];
    let read = sqe::read(fd, &mut buf, 0);
    let write = sqe::write(fd, b"data", 0);
    let flag = |s: io_uring_sqe, f: i32| s.op_flags(f.cast_unsigned());
    cx.each(&mut ring, &[
        ("cached read, NOWAIT", flag(read, libc::RWF_NOWAIT), 4),
        ("read, HIPRI", flag(read, libc::RWF_HIPRI), -EINVAL),
        ("read, SYNC", flag(read, libc::RWF_SYNC), 4),
        ("read, APPEND", flag(read, libc::RWF_APPEND), 4),
        ("read, NOAPPEND", flag(read, 0x20), 4),
        ("write, DSYNC", flag(write, libc::RWF_DSYNC), 4),
        ("write, SYNC", flag(write, libc::RWF_SYNC), 4),
        ("write, HIPRI", flag(write, libc::RWF_HIPRI), -EINVAL),
        ("write, APPEND and NOAPPEND", write.op_flags(0x30), -EINVAL),
        ("write, HIPRI and ATOMIC", flag(write, libc::RWF_HIPRI | 0x40), -EOPNOTSUPP),
        ("read, ATOMIC", flag(read, 0x40), -EOPNOTSUPP),
        ("read, an unknown flag", flag(read, 1 << 20), -EOPNOTSUPP),
        ("write, an unknown flag", flag(write, 1 << 30), -EOPNOTSUPP),
    ]);
    let zero = std::fs::File::open("/dev/zero")?;
    let nowait = flag(sqe::read(zero.as_raw_fd(), &mut buf, 0), libc::RWF_NOWAIT);
    cx.one(&mut ring, "zero, NOWAIT", nowait, 4);
    let ev = cx.eventfd(0)?;
    let short = flag(sqe::write(ev.as_raw_fd(), b"1", 0), 0x100);
    cx.one(&mut ring, "too short for an eventfd, NOSIGNAL", short, -EINVAL);
    let (a, b) = std::os::unix::net::UnixDatagram::pair()?;
    let nothing = sqe::rw(IORING_OP_WRITEV, a.as_raw_fd(), 0, 0, 7).op_flags(0x30);
    cx.one(&mut ring, "nothing to a socket, APPEND and NOAPPEND", nothing, -EINVAL);
    b.set_nonblocking(true)?;
    cx.holds("no message", b.recv(&mut buf).is_err());
    Ok(())
}

fn append(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"01")?;
    let append = std::fs::File::options().append(true).open(cx.dir()?.join("f"))?;
    let by_flag = sqe::write(file.as_raw_fd(), b"ab", 0);
    cx.each(&mut ring, &[
        ("O_APPEND", sqe::write(append.as_raw_fd(), b"XY", 0), 2),
        ("RWF_APPEND", by_flag.op_flags(libc::RWF_APPEND.cast_unsigned()), 2),
        ("O_APPEND at the position", sqe::write(append.as_raw_fd(), b"Z", sqe::HERE), 1),
        ("neither", sqe::write(file.as_raw_fd(), b"_", 0), 1),
    ]);
    let found = cx.content("f")?;
    cx.eq("file", found, b"_1XYabZ".to_vec());
    Ok(())
}

fn ioprio(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0; 4];
    let read = sqe::read(file.as_raw_fd(), &mut buf, 0);
    let class = |class: u16, level: u16| read.set(|s| s.ioprio = class << 13 | level);
    cx.each(&mut ring, &[
        ("best effort 4", class(2, 4), 4),
        ("idle", class(3, 0), 4),
        ("none, level 1", class(0, 1), -EINVAL),
        ("class 4", class(4, 0), -EINVAL),
        ("class 7", class(7, 7), -EINVAL),
    ]);
    Ok(())
}

fn attributes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0; 4];
    let read = sqe::read(file.as_raw_fd(), &mut buf, 0);
    cx.each(&mut ring, &[
        ("unknown type", read.set(|s| s.pad2 = 2), -EINVAL),
        ("all types", read.set(|s| s.pad2 = u64::MAX), -EINVAL),
        ("integrity, bad pointer", read.set(|s| (s.pad2, s.addr3) = (1, BAD as u64)), -EFAULT),
        ("pointer without a type", read.set(|s| s.addr3 = BAD as u64), 4),
    ]);
    Ok(())
}

fn lengths(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    // A length beyond the mapping is no fault while the file is short.
    cx.one(&mut ring, "2 GiB", sqe::rw(IORING_OP_READ, fd, page, 1 << 31, 0), 10);
    cx.one(
        &mut ring,
        "4 GiB less one",
        sqe::rw(IORING_OP_READ, fd, page, u32::MAX as usize, 0),
        10,
    );
    cx.one(&mut ring, "write of nothing to null", sqe::rw(IORING_OP_WRITE, fd, 0, 0, 0), 0);
    Ok(())
}

fn fixed_files(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, file.as_raw_fd()]), 0);
    drop(file);
    let (mut buf, mut out) = ([0; 4], *b"ab");
    let (iov, wiov) = ([part(&mut buf)], [part(&mut out)]);
    cx.each(&mut ring, &[
        ("write", sqe::write(1, b"XY", 0).fixed(), 2),
        ("writev", vector(IORING_OP_WRITEV, 1, &wiov, 2).fixed(), 2),
        ("readv", vector(IORING_OP_READV, 1, &iov, 0).fixed(), 4),
        ("readv of a free slot", vector(IORING_OP_READV, 0, &iov, 0).fixed(), -EBADF),
    ]);
    cx.eq("data", *std::hint::black_box(&buf), *b"XYab");
    Ok(())
}

fn in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let (mut a, mut b, mut none) = ([0; 4], [0; 3], [0; 1]);
    let iov = [part(&mut b)];
    let sqes = [
        sqe::read(fd, &mut a, 0).ud(1).with(IOSQE_ASYNC),
        vector(IORING_OP_READV, fd, &iov, 4).ud(2).with(IOSQE_ASYNC),
        sqe::write(fd, b"XY", 20).ud(3).with(IOSQE_ASYNC),
        sqe::read(-1, &mut none, 0).ud(4).with(IOSQE_ASYNC),
    ];
    cx.batch(&mut ring, "four", &sqes, &[(1, 4), (2, 3), (3, 2), (4, -EBADF)]);
    cx.eq("data", (*std::hint::black_box(&a), *std::hint::black_box(&b)), (*b"0123", *b"456"));
    let found = cx.content("f")?;
    cx.is("file size", found.len(), 22);
    Ok(())
}

fn fd_reused(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let other = cx.file("f", b"from the file")?;
    let mut buf = [0; 4];
    let number = r.as_raw_fd();
    cx.start(&mut ring, &[sqe::read(number, &mut buf, 0).ud(1)]);
    drop(r);
    let reused = rustix::io::dup(&other)?;
    cx.holds("the number is reused", reused.as_raw_fd() == number);
    rustix::io::write(&w, b"pipe")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    cx.eq("data", *std::hint::black_box(&buf), *b"pipe");
    Ok(())
}
