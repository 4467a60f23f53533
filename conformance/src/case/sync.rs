//! FSYNC, SYNC_FILE_RANGE, FALLOCATE, FTRUNCATE.

use super::prelude::*;

pub const CASES: &[Case] = &[
    legal!("sync", fsync, [Op(IORING_OP_FSYNC)], "FSYNC, whole and of data only"),
    legal!("sync", fsync_refusals, [Op(IORING_OP_FSYNC)], "bad flags, fds and kinds of files"),
    any_order!("sync", after_writes, [Op(IORING_OP_FSYNC), Sqe(IOSQE_IO_DRAIN)], "a drained fsync comes after all writes"),
    legal!("sync", sync_file_range, [Op(IORING_OP_SYNC_FILE_RANGE)], "a range of a file is written to disk"),
    legal!("sync", sync_file_range_refusals, [Op(IORING_OP_SYNC_FILE_RANGE)], "bad flags, ranges and fds"),
    legal!("sync", fallocate, [Op(IORING_OP_FALLOCATE)], "space is allocated, zeroed and punched"),
    legal!("sync", fallocate_refusals, [Op(IORING_OP_FALLOCATE)], "bad modes, ranges and fds"),
    legal!("sync", ftruncate, [Op(IORING_OP_FTRUNCATE)], "files are cut and grown"),
    any_order!("sync", ftruncate_refusals, [Op(IORING_OP_FTRUNCATE)], "bad lengths, fds and words"),
];

fn fsync(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    let sync = sqe::op(IORING_OP_FSYNC, file.as_raw_fd());
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd()]), 0);
    let range = |off, len| sync.set(|s| (s.off, s.len) = (off, len));
    cx.each(&mut ring, &[
        ("all", sync, 0),
        ("data only", sync.op_flags(IORING_FSYNC_DATASYNC), 0),
        ("a range", range(1, 2), 0),
        ("a range beyond the end", range(1 << 30, 4096), 0),
        ("fixed file", sqe::op(IORING_OP_FSYNC, 0).fixed(), 0),
        ("in a worker", sync.with(IOSQE_ASYNC), 0),
    ]);
    let dir = std::fs::File::open(cx.dir()?)?;
    cx.one(&mut ring, "an open directory", sqe::op(IORING_OP_FSYNC, dir.as_raw_fd()), 0);
    Ok(())
}

fn fsync_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    let (r, _w) = cx.pipe()?;
    let sync = sqe::op(IORING_OP_FSYNC, file.as_raw_fd());
    cx.each(&mut ring, &[
        ("unknown flag", sync.op_flags(2), -EINVAL),
        ("all flags", sync.op_flags(u32::MAX), -EINVAL),
        ("an address", sync.set(|s| s.addr = 1), -EINVAL),
        ("a buffer index", sync.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", sync.set(|s| s.file_index = 1), -EINVAL),
        ("a priority", sync.set(|s| s.ioprio = 1), -EINVAL),
        ("-1", sqe::op(IORING_OP_FSYNC, -1), -EBADF),
        ("a pipe", sqe::op(IORING_OP_FSYNC, r.as_raw_fd()), -EINVAL),
        ("negative offset", sync.set(|s| (s.off, s.len) = (u64::MAX, 1)), -EINVAL),
    ]);
    Ok(())
}

fn after_writes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    let block = [3u8; 4096];
    for i in 0..8 {
        ring.push(sqe::write(fd, &block, i * 4096).ud(i));
    }
    ring.push(sqe::op(IORING_OP_FSYNC, fd).ud(100).with(IOSQE_IO_DRAIN));
    cx.is("submit", ring.submit(), 9);
    let got = ring.take(9)?;
    cx.is("last", got[8].user_data, 100);
    cx.is("its result", got[8].res, 0);
    cx.holds("writes", got[..8].iter().all(|c| c.res == 4096));
    Ok(())
}

fn range(fd: i32, off: u64, len: u32, flags: u32) -> io_uring_sqe {
    sqe::op(IORING_OP_SYNC_FILE_RANGE, fd).op_flags(flags).set(|s| (s.off, s.len) = (off, len))
}

fn sync_file_range(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", &[1; 8192])?;
    let fd = file.as_raw_fd();
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[fd]), 0);
    cx.each(&mut ring, &[
        ("no flags", range(fd, 0, 8192, 0), 0),
        ("write", range(fd, 0, 4096, 2), 0),
        ("wait, write, wait", range(fd, 0, 4096, 7), 0),
        ("to the end", range(fd, 4096, 0, 2), 0),
        ("fixed file", range(0, 0, 4096, 7).fixed(), 0),
    ]);
    Ok(())
}

fn sync_file_range_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", &[1; 8192])?;
    let fd = file.as_raw_fd();
    let (r, _w) = cx.pipe()?;
    cx.each(&mut ring, &[
        ("unknown flag", range(fd, 0, 4096, 8), -EINVAL),
        ("negative offset", range(fd, u64::MAX, 1, 2), -EINVAL),
        ("-1", range(-1, 0, 1, 2), -EBADF),
        ("a pipe", range(r.as_raw_fd(), 0, 1, 2), -ESPIPE),
        ("an address", range(fd, 0, 1, 2).set(|s| s.addr = 1), -EINVAL),
        ("a buffer index", range(fd, 0, 1, 2).set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", range(fd, 0, 1, 2).set(|s| s.file_index = 1), -EINVAL),
    ]);
    Ok(())
}

/// Makes a FALLOCATE: `len` is the mode, `addr` the length.
fn allocate(fd: i32, mode: i32, off: u64, len: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_FALLOCATE, fd)
        .set(|s| (s.off, s.addr, s.len) = (off, len, mode.cast_unsigned()))
}

fn fallocate(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", &[1; 8192])?;
    let fd = file.as_raw_fd();
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    cx.one(&mut ring, "grow", allocate(fd, 0, 0, 16384), 0);
    let size = |file: &std::fs::File| file.metadata().map(|m| m.len());
    cx.is("size", size(&file)?, 16384);
    cx.one(&mut ring, "keep the size", allocate(fd, keep, 0, 32768), 0);
    cx.is("size", size(&file)?, 16384);
    let punch = allocate(fd, keep | libc::FALLOC_FL_PUNCH_HOLE, 4096, 4096);
    cx.one(&mut ring, "punch", punch, 0);
    let found = cx.content("f")?;
    cx.holds("the hole is zero", found[4096..8192].iter().all(|b| *b == 0) && found[4095] == 1);
    Ok(())
}

fn fallocate_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", &[1; 8192])?;
    let fd = file.as_raw_fd();
    let readonly = std::fs::File::open(cx.dir()?.join("f"))?;
    let (r, _w) = cx.pipe()?;
    cx.each(&mut ring, &[
        ("nothing", allocate(fd, 0, 0, 0), -EINVAL),
        ("negative offset", allocate(fd, 0, u64::MAX, 4096), -EINVAL),
        ("negative length", allocate(fd, 0, 0, u64::MAX), -EINVAL),
        ("too far", allocate(fd, 0, i64::MAX as u64, 4096), -libc::EFBIG),
        ("unknown mode", allocate(fd, 1 << 20, 0, 4096), -EOPNOTSUPP),
        ("punch without keep", allocate(fd, libc::FALLOC_FL_PUNCH_HOLE, 0, 4096), -EOPNOTSUPP),
        ("-1", allocate(-1, 0, 0, 4096), -EBADF),
        ("read-only", allocate(readonly.as_raw_fd(), 0, 0, 4096), -EBADF),
        ("a pipe", allocate(r.as_raw_fd(), 0, 0, 4096), -EBADF),
        ("flags", allocate(fd, 0, 0, 4096).op_flags(1), -EINVAL),
        ("a buffer index", allocate(fd, 0, 0, 4096).set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", allocate(fd, 0, 0, 4096).set(|s| s.file_index = 1), -EINVAL),
    ]);
    Ok(())
}

fn truncate(fd: i32, len: u64) -> io_uring_sqe {
    sqe::op(IORING_OP_FTRUNCATE, fd).set(|s| s.off = len)
}

fn ftruncate(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[fd]), 0);
    cx.one(&mut ring, "cut", truncate(fd, 4), 0);
    let found = cx.content("f")?;
    cx.eq("file", found, b"0123".to_vec());
    cx.one(&mut ring, "grow", truncate(0, 6).fixed(), 0);
    let found = cx.content("f")?;
    cx.eq("file", found, b"0123\0\0".to_vec());
    cx.one(&mut ring, "empty", truncate(fd, 0).with(IOSQE_ASYNC), 0);
    let found = cx.content("f")?;
    cx.is("size", found.len(), 0);
    Ok(())
}

fn ftruncate_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let readonly = std::fs::File::open(cx.dir()?.join("f"))?;
    let (r, _w) = cx.pipe()?;
    let cut = truncate(fd, 1);
    cx.each(&mut ring, &[
        ("negative", truncate(fd, u64::MAX), -EINVAL),
        ("too long", truncate(fd, i64::MAX as u64), -libc::EFBIG),
        ("-1", truncate(-1, 1), -EBADF),
        ("read-only", truncate(readonly.as_raw_fd(), 1), -EINVAL),
        ("a pipe", truncate(r.as_raw_fd(), 1), -EINVAL),
        ("flags", cut.op_flags(1), -EINVAL),
        ("an address", cut.set(|s| s.addr = 1), -EINVAL),
        ("a length", cut.set(|s| s.len = 1), -EINVAL),
        ("a buffer index", cut.set(|s| s.buf_index = 1), -EINVAL),
        ("a file index", cut.set(|s| s.file_index = 1), -EINVAL),
        ("addr3", cut.set(|s| s.addr3 = 1), -EINVAL),
    ]);
    Ok(())
}
