//! Reads and writes of disks and devices: O_DIRECT, many at once, limits.

use super::prelude::*;

pub const CASES: &[Case] = &[
    any_order!("disk", direct, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)],
        "O_DIRECT reads and writes, aligned and unaligned"),
    any_order!("disk", direct_vectors, [Op(IORING_OP_READV), Op(IORING_OP_WRITEV)],
        "vectors of one part on O_DIRECT, good and bad, alone and in batches"),
    any_order!("disk", cached_vectors, [Op(IORING_OP_READV)],
        "vectors of one part on cached files, good and bad, also in the memory that is read to"),
    any_order!("disk", cancel_in_flight, [Op(IORING_OP_READ), Op(IORING_OP_ASYNC_CANCEL)],
        "a request in flight on a disk cannot be cancelled"),
    legal!("disk", extending_writes, [Op(IORING_OP_WRITE)],
        "writes that extend a file do not block the submitter"),
    legal!("disk", reads_of_dirty_pages, [Op(IORING_OP_READ)],
        "reads of dirty pages do not block the submitter"),
    any_order!("disk", many_at_once, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)],
        "a full queue of writes, then of reads, verified"),
    legal!("disk", devices, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "I/O on /dev/null, /dev/zero and /dev/full"),
    case!("disk", file_size_limit, [Op(IORING_OP_WRITE)], "writes beyond RLIMIT_FSIZE"),
    any_order!("disk", short_writes, [Op(IORING_OP_WRITE)],
        "short writes in order, refused, and beyond RLIMIT_FSIZE, after many that did not wait"),
];

fn direct(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.direct_file("f", &[7; 16384])?;
    let fd = file.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::store(page, &[9u8; 4096]);
    let io = |op, at, len, off| sqe::rw(op, fd, at, len, off);
    cx.one(&mut ring, "write", io(IORING_OP_WRITE, page, 4096, 4096), 4096);
    cx.one(&mut ring, "read", io(IORING_OP_READ, page, 4096, 0), 4096);
    cx.is("data", os::load(page), 0x0707_0707);
    cx.one(&mut ring, "read what was written", io(IORING_OP_READ, page, 4096, 4096), 4096);
    cx.is("data", os::load(page), 0x0909_0909);
    cx.one(&mut ring, "at the end", io(IORING_OP_READ, page, 4096, 16384), 0);
    cx.one(&mut ring, "bad pointer", io(IORING_OP_READ, 0x1000, 4096, 0), -EFAULT);
    cx.one(&mut ring, "odd offset", io(IORING_OP_READ, page, 4096, 1), -EINVAL);
    cx.one(&mut ring, "odd length", io(IORING_OP_READ, page, 100, 0), -EINVAL);
    cx.one(&mut ring, "in a worker", io(IORING_OP_READ, page, 4096, 0).with(IOSQE_ASYNC), 4096);
    Ok(())
}

fn direct_vectors(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.direct_file("f", &[7; 16384])?;
    let fd = file.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::store(page, &[9u8; 4096]);
    let part = |base, len| libc::iovec { iov_base: base as *mut _, iov_len: len };
    let io = |op, vector: &libc::iovec, off| sqe::rw(op, fd, addr(vector), 1, off);
    let (whole, nothing) = (part(page, 4096), part(page, 0));
    // The file is known to be O_DIRECT from the first request on.
    for _ in 0..2 {
        cx.one(&mut ring, "write", io(IORING_OP_WRITEV, &whole, 4096), 4096);
        cx.one(&mut ring, "read", io(IORING_OP_READV, &whole, 0), 4096);
        cx.is("data", os::load(page), 0x0707_0707);
        cx.one(&mut ring, "at the end", io(IORING_OP_READV, &whole, 16384), 0);
        cx.one(&mut ring, "over the end", io(IORING_OP_READV, &part(page, 8192), 12288), 4096);
        cx.one(&mut ring, "nothing", io(IORING_OP_READV, &nothing, 0), 0);
        cx.one(&mut ring, "odd length", io(IORING_OP_READV, &part(page, 100), 0), -EINVAL);
        cx.one(&mut ring, "negative", io(IORING_OP_READV, &part(page, usize::MAX), 0), -EINVAL);
        cx.one(&mut ring, "bad part", io(IORING_OP_READV, &part(BAD, 4096), 0), -EFAULT);
        cx.one(&mut ring, "kernel's part", io(IORING_OP_READV, &part(KERNEL, 4096), 0), -EFAULT);
        for (what, at) in [("null", 0), ("unmapped", BAD), ("kernel", KERNEL)] {
            cx.one(&mut ring, what, sqe::rw(IORING_OP_READV, fd, at, 1, 0), -EFAULT);
            cx.one(&mut ring, what, sqe::rw(IORING_OP_WRITEV, fd, at, 1, 0), -EFAULT);
        }
        let bad = sqe::rw(IORING_OP_READV, fd, BAD, 1, 0);
        let good = io(IORING_OP_READV, &whole, 0);
        cx.batch(&mut ring, "last", &[good.ud(1), bad.ud(2)], &[(1, 4096), (2, -EFAULT)]);
        ring.push(bad.ud(1));
        ring.push(good.ud(2));
        cx.is("a bad vector ends the batch", ring.submit(), 1);
        cx.reap(&mut ring, "first", &[(1, -EFAULT)]);
        cx.is("the rest", ring.submit(), 1);
        cx.reap(&mut ring, "second", &[(2, 4096)]);
        os::store(page, &[9u8; 4096]);
    }
    Ok(())
}

fn cached_vectors(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", &[7; 6000])?;
    let fd = file.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let base = std::ptr::with_exposed_provenance_mut;
    let one = |at: usize, len: usize| libc::iovec { iov_base: base(at), iov_len: len };
    let read = |vector: &libc::iovec, off| sqe::rw(IORING_OP_READV, fd, addr(vector), 1, off);
    // The file is known from the first request on.
    for _ in 0..2 {
        let whole = one(page, 4096);
        cx.one(&mut ring, "whole", read(&whole, 0), 4096);
        cx.is("data", os::load(page), 0x0707_0707);
        cx.one(&mut ring, "short", read(&whole, 4096), 1904);
        cx.one(&mut ring, "at the end", read(&whole, 6000), 0);
        cx.one(&mut ring, "nothing", read(&one(page, 0), 0), 0);
        cx.one(&mut ring, "negative", read(&one(page, usize::MAX), 0), -EINVAL);
        cx.one(&mut ring, "bad part", read(&one(BAD, 8), 0), -EFAULT);
        let at = |at: usize| read(&whole, 0).set(|s| s.addr = at as u64);
        for (what, bad) in [("null", 0), ("unmapped", BAD), ("kernel", KERNEL)] {
            cx.one(&mut ring, what, at(bad), -EFAULT);
        }
        cx.one(&mut ring, "not open", read(&whole, 0).set(|s| s.fd = 9999), -EBADF);
        for (what, off, want) in [("over itself", 0, 4096), ("and short", 5096, 904)] {
            os::store(page, &[one(page, 4096)]);
            cx.one(&mut ring, what, at(page).set(|s| s.off = off), want);
        }
    }
    Ok(())
}

/// Reads and cancels in one batch: the disk has the read in flight.
fn cancel_in_flight(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.direct_file("f", &[7; 16384])?;
    // Dirty pages would have to be written first, on a worker.
    rustix::fs::fsync(&file).map_err(std::io::Error::from)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let read = sqe::rw(IORING_OP_READ, file.as_raw_fd(), page, 4096, 0).ud(1);
    let fd = sqe::cancel(0, IORING_ASYNC_CANCEL_FD);
    let by_fd = io_uring_sqe { fd: file.as_raw_fd(), ..fd };
    for cancel in [sqe::cancel(1, 0), sqe::cancel(0, IORING_ASYNC_CANCEL_ANY), by_fd] {
        let none = if cancel.op_flags & IORING_ASYNC_CANCEL_ANY != 0 { 0 } else { -ENOENT };
        cx.batch(&mut ring, "both", &[read, cancel.ud(2)], &[(1, 4096), (2, none)]);
    }
    Ok(())
}

/// Checks that submitting rarely slept. A thread may also sleep for memory or another thread.
fn awake(cx: &mut Cx, slept: u64, submitted: u64) {
    cx.holds("submitted without waiting for the disk", slept < submitted / 3);
}

/// Writes twice each way: softring may remember a refusal of RWF_NOWAIT.
fn extending_writes(cx: &mut Cx) -> Outcome {
    const N: u64 = 64;
    let mut ring = cx.ring(N as u32, 0)?;
    let file = cx.direct_file("f", b"")?;
    let fd = file.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::store(page, &[9u8; 4096]);
    let table = [fd];
    let got = ring.register(IORING_REGISTER_FILES, addr(&table), 1);
    cx.is("register", got, 0);
    let ways = [("by number", false), ("more", false), ("by slot", true), ("more", true)];
    for (at, (what, slot)) in (0..).zip(ways) {
        let write = |i: u64| {
            let from = (at * N + i) * 4096;
            match slot {
                false => sqe::rw(IORING_OP_WRITE, fd, page, 4096, from).ud(i),
                true => sqe::rw(IORING_OP_WRITE, 0, page, 4096, from).ud(i).with(IOSQE_FIXED_FILE),
            }
        };
        let before = os::sleeps();
        cx.start(&mut ring, &(0..N).map(write).collect::<Vec<_>>());
        awake(cx, os::sleeps() - before, N);
        let want: Vec<_> = (0..N).map(|i| (i, 4096)).collect();
        cx.reap(&mut ring, what, &want);
    }
    let content = cx.content("f")?;
    cx.is("length", content.len(), 4 * N as usize * 4096);
    cx.holds("all as written", content.iter().all(|&b| b == 9));
    Ok(())
}

/// Reads one dirty page after the other: the kernel writes back all pages that are dirty at a time.
fn reads_of_dirty_pages(cx: &mut Cx) -> Outcome {
    const N: u64 = 64;
    let mut ring = cx.ring(4, 0)?;
    let direct = cx.direct_file("f", &[7; N as usize * 4096])?;
    let buffered = std::fs::File::options().write(true).open(cx.dir()?.join("f"))?;
    let fd = direct.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let (mut slept, mut right) = (0, true);
    for i in 0..N {
        rustix::io::pwrite(&buffered, &[i as u8; 4096], i * 4096)?;
        ring.push(sqe::rw(IORING_OP_READ, fd, page, 4096, i * 4096));
        let before = os::sleeps();
        right &= ring.submit() == 1;
        slept += os::sleeps() - before;
        right &= ring.take(1)?[0].res == 4096 && os::load(page) == i as u32 * 0x0101_0101;
    }
    awake(cx, slept, N);
    cx.holds("all as written", right);
    Ok(())
}

fn many_at_once(cx: &mut Cx) -> Outcome {
    const N: u64 = 64;
    let mut ring = cx.ring(N as u32, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    let blocks: Vec<[u8; 512]> = (0..N).map(|i| [i as u8 + 1; 512]).collect();
    let want: Vec<_> = (0..N).map(|i| (i, 512)).collect();
    let write = |i| sqe::write(fd, &blocks[i as usize], i * 512).ud(i);
    let writes: Vec<_> = (0..N).map(write).collect();
    cx.batch(&mut ring, "writes", &writes, &want);
    let mut back = vec![[0u8; 512]; N as usize];
    let reads: Vec<_> =
        (0..).zip(&mut back).map(|(i, b)| sqe::read(fd, b, i * 512).ud(i)).collect();
    cx.batch(&mut ring, "reads", &reads, &want);
    cx.holds("all as written", *std::hint::black_box(&back) == blocks);
    Ok(())
}

fn devices(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let open = |p: &str| std::fs::File::options().read(true).write(true).open(p);
    let (null, zero, full) = (open("/dev/null")?, open("/dev/zero")?, open("/dev/full")?);
    let mut buf = [1; 4];
    cx.one(&mut ring, "read of zero", sqe::read(zero.as_raw_fd(), &mut buf, 0), 4);
    cx.eq("data", *std::hint::black_box(&buf), [0; 4]);
    cx.each(&mut ring, &[
        ("read of null", sqe::read(null.as_raw_fd(), &mut buf, 0), 0),
        ("write to null", sqe::write(null.as_raw_fd(), b"data", 0), 4),
        ("write to full", sqe::write(full.as_raw_fd(), b"data", 0), -libc::ENOSPC),
        ("at the position", sqe::write(null.as_raw_fd(), b"data", sqe::HERE), 4),
    ]);
    Ok(())
}

fn file_size_limit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    os::catch(libc::SIGXFSZ, 0);
    let was = os::set_limit(libc::RLIMIT_FSIZE, 6);
    cx.one(&mut ring, "over the limit", sqe::write(fd, b"0123456789", 0), 6);
    cx.one(&mut ring, "beyond it", sqe::write(fd, b"0123456789", 6), -libc::EFBIG);
    os::set_limit(libc::RLIMIT_FSIZE, was);
    Ok(())
}

/// Writes so often before that softring may make short writes on the submitter's thread.
fn short_writes(cx: &mut Cx) -> Outcome {
    const N: u64 = 600;
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    let mut right = 0;
    for i in 0..N {
        let data = i.to_ne_bytes();
        let wrote = ring.push(sqe::write(fd, &data, i * 8).ud(1)).submit_wait(1) == 1;
        right += u64::from(wrote && ring.take(1)?[0].res == 8);
    }
    cx.is("whole writes", right, N);
    let content = cx.content("f")?;
    let all: Vec<u8> = (0..N).flat_map(u64::to_ne_bytes).collect();
    cx.holds("all as written", content == all);
    let reads = std::fs::File::open(cx.dir()?.join("f"))?;
    let bad = sqe::rw(IORING_OP_WRITE, fd, 0x1000, 4096, 0);
    cx.each(&mut ring, &[
        ("open for reading", sqe::write(reads.as_raw_fd(), b"data", 0), -libc::EBADF),
        ("bad pointer", bad, -EFAULT),
        ("in a worker", sqe::write(fd, b"data", 0).with(IOSQE_ASYNC), 4),
    ]);
    let twice = [sqe::write(fd, b"first", 0).ud(1), sqe::write(fd, b"last!", 0).ud(2)];
    cx.batch(&mut ring, "to one place", &twice, &[(1, 5), (2, 5)]);
    let content = cx.content("f")?;
    cx.holds("in order", content.starts_with(b"last!"));
    os::catch(libc::SIGXFSZ, 0);
    let was = os::set_limit(libc::RLIMIT_FSIZE, N * 8 + 6);
    cx.one(&mut ring, "over the limit", sqe::write(fd, b"0123456789", N * 8), 6);
    cx.one(&mut ring, "beyond it", sqe::write(fd, b"0123456789", N * 8 + 6), -libc::EFBIG);
    os::set_limit(libc::RLIMIT_FSIZE, was);
    Ok(())
}
