//! Reads of a file that the page cache has answered many times. softring then reads it by its fast
//! path, and every unusual request must still get the kernel's answer.

use super::prelude::*;

pub const CASES: &[Case] = &[
    any_order!("page_cache", refused_reads, [Op(IORING_OP_READ), Op(IORING_OP_READ_FIXED)], "short and refused reads of a file that is read often"),
    any_order!("page_cache", number_reused, [Op(IORING_OP_READ)], "the number of a file that is read often is closed and used for a pipe"),
    any_order!("page_cache", in_chains, [Op(IORING_OP_READ), Op(IORING_OP_NOP)], "cached reads in chains, with drains, and with a full CQ"),
];

/// Number of reads: more than the fast path asks for.
const MANY: usize = 640;

fn warm(cx: &mut Cx, ring: &mut Ring, fd: i32) {
    let mut buf = [0u8; 4];
    let mut whole = 0;
    for _ in 0..MANY / 4 {
        for _ in 0..4 {
            ring.push(sqe::read(fd, &mut buf, 2));
        }
        ring.submit();
        let got = ring.take(4).unwrap_or_default();
        whole += got.iter().filter(|c| c.res == 4).count();
    }
    cx.eq("whole reads", whole, MANY);
    cx.eq("warm data", *std::hint::black_box(&buf), *b"2345");
}

fn refused_reads(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    warm(cx, &mut ring, fd);
    let mut buf = [b'-'; 8];
    let at = addr_mut(&mut buf);
    let read = |len, off| sqe::rw(IORING_OP_READ, fd, at, len, off);
    cx.each(&mut ring, &[
        ("short at the end", read(8, 7), 3),
        ("at the end", read(8, 10), 0),
        ("nothing", read(0, 0), 0),
        ("negative offset", read(4, 1 << 63), -EINVAL),
        ("bad buffer", sqe::rw(IORING_OP_READ, fd, 1, 4, 0), -EFAULT),
        ("bad flags", read(4, 0).op_flags(1 << 20), -EOPNOTSUPP),
        ("bad attributes", read(4, 0).set(|s| s.pad2 = 2), -EINVAL),
        ("no buffers", read(4, 0).set(|s| s.opcode = IORING_OP_READ_FIXED), -EFAULT),
        ("no slots", read(4, 0).with(IOSQE_FIXED_FILE), -EBADF),
        ("unknown personality", read(4, 0).set(|s| s.personality = 3), -EINVAL),
        ("as ever", read(4, 0), 4),
    ]);
    let grown = sqe::write(fd, b"abcdef", 8);
    cx.each(&mut ring, &[("it grows", grown, 6), ("what came", read(8, 6), 8)]);
    cx.eq("data", *std::hint::black_box(&buf), *b"67abcdef");
    rustix::fs::ftruncate(&file, 4)?;
    cx.one(&mut ring, "it shrinks", read(8, 2), 2);
    Ok(())
}

fn number_reused(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    warm(cx, &mut ring, fd);
    let mut buf = [0u8; 4];
    let (r, w) = cx.pipe()?;
    os::dup2(r.as_raw_fd(), fd);
    cx.start(&mut ring, &[sqe::read(fd, &mut buf, 0).ud(7)]);
    rustix::io::write(&w, b"pipe")?;
    cx.reap(&mut ring, "the pipe's", &[(7, 4)]);
    cx.eq("data", *std::hint::black_box(&buf), *b"pipe");
    cx.close(fd);
    cx.one(&mut ring, "closed", sqe::read(fd, &mut buf, 0), -EBADF);
    // The file's number is closed already.
    let _ = std::os::fd::IntoRawFd::into_raw_fd(file);
    Ok(())
}

fn in_chains(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    warm(cx, &mut ring, fd);
    let mut buf = [0u8; 4];
    let mut read = |len: u64, ud| {
        sqe::rw(IORING_OP_READ, fd, addr_mut(&mut buf), len as usize, 8).ud(ud)
    };
    let short = [read(4, 1).with(IOSQE_IO_LINK), sqe::nop().ud(2), read(2, 3)];
    cx.batch(&mut ring, "a short one breaks its chain", &short, &[(1, 2), (2, -ECANCELED), (3, 2)]);
    let barrier = [read(2, 1), sqe::nop().ud(2).with(IOSQE_IO_DRAIN), read(2, 3), sqe::nop().ud(4)];
    cx.batch(&mut ring, "a barrier", &barrier, &[(1, 2), (2, 0), (3, 2), (4, 0)]);
    for lap in 0..3 {
        (0..8).for_each(|i| assert!(ring.try_push(read(2, lap * 8 + i))));
        cx.is("submit", ring.submit(), 8);
    }
    let want: Vec<_> = (0..24).map(|i| (i, 2)).collect();
    cx.reap(&mut ring, "a full CQ loses none", &want);
    let skip = [read(2, 1).with(IOSQE_CQE_SKIP_SUCCESS), read(2, 2)];
    for sqe in skip {
        ring.push(sqe);
    }
    cx.is("submit", ring.submit(), 2);
    cx.reap(&mut ring, "a skipped one", &[(2, 2)]);
    Ok(())
}
