//! Signals of writes: SIGPIPE where nobody reads, SIGXFSZ beyond RLIMIT_FSIZE. They come to the
//! thread that makes the write, and a worker takes none.

use super::prelude::*;
use std::os::fd::OwnedFd;

pub const CASES: &[Case] = &[
    any_order!("write_signals", nobody_reads, [Op(IORING_OP_WRITE), Op(IORING_OP_WRITEV)], "a write to a stream without a reader signals unless a worker makes it"),
    any_order!("write_signals", nobody_reads_behind_worker, [Sqe(IOSQE_IO_DRAIN), Sqe(IOSQE_IO_LINK), Op(IORING_OP_WRITE)], "no write signals that waits behind a barrier or follows in a worker's chain"),
    legal!("write_signals", beyond_the_limit, [Op(IORING_OP_WRITE), Op(IORING_OP_WRITEV)], "so does a write beyond RLIMIT_FSIZE, on a disk and in memory"),
];

/// Memory that O_DIRECT takes.
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Writes `data` at `off`, by WRITE and WRITEV, inline and by a worker, and records the result and
/// how many signals came.
fn each_way(cx: &mut Cx, ring: &mut Ring, what: &str, fd: i32, (data, off): (&[u8], u64)) {
    let part = iovec { base: data.as_ptr() as u64, len: data.len() as u64 };
    for (how, flags) in [("inline", 0), ("by a worker", IOSQE_ASYNC)] {
        for vectored in [false, true] {
            let write = match vectored {
                false => sqe::write(fd, data, off),
                true => sqe::rw(IORING_OP_WRITEV, fd, addr(&part), 1, off),
            };
            let before = os::caught();
            let submitted = ring.push(write.ud(1).with(flags)).submit_wait(1);
            let got = ring.take(1).map_or(0, |cqes| cqes[0].res);
            let signals = os::caught() - before;
            let label = format!("{what}, {how}, vectored: {vectored}");
            cx.eq(&label, (submitted, got, signals), (1, got, signals));
        }
    }
}

/// Makes a write that sends no signal.
fn unsignalled(cx: &mut Cx, ring: &mut Ring, what: &str, write: io_uring_sqe, want: i32) {
    let before = os::caught();
    cx.one(ring, what, write, want);
    cx.is("signals", os::caught() - before, 0);
}

fn nobody_reads(cx: &mut Cx) -> Outcome {
    os::catch(libc::SIGPIPE, 0);
    for setup in [0, DEFER] {
        let mut ring = cx.ring(4, setup)?;
        let (r, w) = cx.pipe()?;
        drop(r);
        each_way(cx, &mut ring, "pipe", w.as_raw_fd(), (b"x", sqe::HERE));
        let (a, b) = std::os::unix::net::UnixStream::pair()?;
        drop(b);
        each_way(cx, &mut ring, "socket", a.as_raw_fd(), (b"x", sqe::HERE));
        let part = iovec { base: b"x".as_ptr() as u64, len: 1 };
        let mut ring = cx.ring(4, setup)?;
        let barrier = sqe::write(w.as_raw_fd(), b"x", sqe::HERE).with(IOSQE_IO_DRAIN);
        unsignalled(cx, &mut ring, "as a barrier", barrier, -EPIPE);
        for (what, fd) in [("pipe", w.as_raw_fd()), ("socket", a.as_raw_fd())] {
            let write = sqe::write(fd, b"x", sqe::HERE);
            let open = [IOSQE_IO_LINK, IOSQE_IO_HARDLINK].map(|flag| write.with(flag));
            let vector = sqe::rw(IORING_OP_WRITEV, fd, addr(&part), 1, sqe::HERE);
            for write in [open[0], open[1], vector.with(IOSQE_IO_LINK)] {
                unsignalled(cx, &mut ring, what, write, -EPIPE);
            }
            let before = os::caught();
            ring.push(sqe::nop().ud(1).with(IOSQE_ASYNC).link()).push(write.ud(2)).submit();
            cx.reap(&mut ring, "behind a worker's request", &[(1, 0), (2, -EPIPE)]);
            cx.eq("signals behind it", os::caught() - before, u32::from(setup != 0));
        }
    }
    Ok(())
}

fn nobody_reads_behind_worker(cx: &mut Cx) -> Outcome {
    os::catch(libc::SIGPIPE, 0);
    for setup in [0, DEFER] {
        let (r, pipe) = cx.pipe()?;
        let (a, b) = std::os::unix::net::UnixStream::pair()?;
        drop((r, b));
        for fd in [pipe.as_raw_fd(), a.as_raw_fd()] {
            let write = sqe::write(fd, b"x", sqe::HERE).ud(2);
            let first = sqe::nop().ud(1);
            for (what, first) in [
                ("beside a request", first),
                ("behind a barrier", first.with(IOSQE_IO_DRAIN)),
                ("in a chain", first.link()),
                ("in a worker's chain", first.link().with(IOSQE_ASYNC)),
            ] {
                let mut ring = cx.ring(4, setup)?;
                let before = os::caught();
                ring.push(first).push(write).submit_wait(2);
                cx.reap(&mut ring, what, &[(1, 0), (2, -EPIPE)]);
                cx.note("signals", os::caught() - before);
            }
        }
    }
    Ok(())
}

fn beyond_the_limit(cx: &mut Cx) -> Outcome {
    const LIMIT: u64 = 65536;
    let memory = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::empty())?;
    rustix::fs::ftruncate(&memory, LIMIT)?;
    let disk: OwnedFd = cx.file("f", b"")?.into();
    let direct: OwnedFd = cx.direct_file("d", &[7; LIMIT as usize])?.into();
    os::catch(libc::SIGXFSZ, 0);
    let page = Page([7; 4096]);
    let was = os::set_limit(libc::RLIMIT_FSIZE, LIMIT);
    for setup in [0, DEFER] {
        let mut ring = cx.ring(4, setup)?;
        for (what, file) in [("memory", &memory), ("disk", &disk)] {
            each_way(cx, &mut ring, what, file.as_raw_fd(), (&page.0, LIMIT));
        }
        // Without kernel aio a worker makes an inline one, too.
        let write = sqe::write(direct.as_raw_fd(), &page.0, LIMIT).with(IOSQE_ASYNC);
        unsignalled(cx, &mut ring, "O_DIRECT, by a worker", write, -libc::EFBIG);
    }
    let mut ring = cx.ring(4, 0)?;
    rustix::fs::seek(&memory, rustix::fs::SeekFrom::Start(LIMIT - 100))?;
    let write = sqe::write(memory.as_raw_fd(), &page.0, sqe::HERE);
    unsignalled(cx, &mut ring, "over the limit, at the position", write, 100);
    os::set_limit(libc::RLIMIT_FSIZE, was);
    Ok(())
}
