//! `IORING_OP_NOP` and its flags, and the SQE flags that need no other operation.

use super::prelude::*;

pub const CASES: &[Case] = &[
    legal!("nop", plain, [Op(IORING_OP_NOP)], "a nop completes with 0 and its user_data, all 64 bits of it"),
    case!("nop", batches, [Op(IORING_OP_NOP)], "a batch completes in the order of submission"),
    legal!("nop", inject, [Op(IORING_OP_NOP)], "INJECT_RESULT completes with what the SQE says"),
    legal!("nop", files, [Op(IORING_OP_NOP)], "FILE and FIXED_FILE need an open file"),
    legal!("nop", fixed_by_sqe, [Op(IORING_OP_NOP)], "with FILE, the SQE flag FIXED_FILE counts, too"),
    legal!("nop", buffers, [Op(IORING_OP_NOP)], "FIXED_BUFFER needs a registered buffer"),
    any_order!("nop", task_work, [Op(IORING_OP_NOP)], "TW completes by task work"),
    legal!("nop", big, [Op(IORING_OP_NOP)], "CQE32 posts two more words"),
    case!("nop", unknown_flags, [Op(IORING_OP_NOP)], "unknown NOP flags fail with EINVAL"),
    legal!("nop", in_worker, [Sqe(IOSQE_ASYNC)], "ASYNC runs a NOP in a worker"),
    case!("nop", skip_success, [Sqe(IOSQE_CQE_SKIP_SUCCESS)], "SKIP_SUCCESS posts only failures"),
    legal!("nop", unused_words, [], "unused words of a NOP may hold any value"),
];

fn plain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for ud in [1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
        let cqe = cx.one(&mut ring, "nop", sqe::nop().ud(ud), 0);
        cx.is("flags", cqe.flags, 0);
    }
    cx.start(&mut ring, &[sqe::nop()]);
    cx.reap(&mut ring, "user_data 0", &[(0, 0)]);
    Ok(())
}

fn batches(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(32, 0)?;
    for n in [1u64, 2, 7, 31, 32] {
        (0..n).map(|ud| sqe::nop().ud(ud)).for_each(|nop| assert!(ring.try_push(nop)));
        cx.is("submit", ring.submit(), n);
        let want: Vec<_> = (0..n).map(|ud| (ud, 0)).collect();
        cx.reap_in_order(&mut ring, "in order", &want);
    }
    Ok(())
}

fn inject(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for res in [0, 1, 4096, i32::MAX, -1, -EINVAL, -ECANCELED, i32::MIN] {
        let nop = sqe::nop().op_flags(IORING_NOP_INJECT_RESULT);
        cx.one(&mut ring, "injected", nop.set(|s| s.len = res.cast_unsigned()), res);
        let worker = nop.set(|s| s.len = res.cast_unsigned()).with(IOSQE_ASYNC);
        cx.one(&mut ring, "in a worker", worker, res);
    }
    cx.one(&mut ring, "not without the flag", sqe::nop().set(|s| s.len = 5), 0);
    Ok(())
}

fn fixed_by_sqe(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let nop = |fd: i32| {
        sqe::op(IORING_OP_NOP, fd).op_flags(IORING_NOP_FILE).with(IOSQE_FIXED_FILE)
    };
    cx.one(&mut ring, "no table", nop(0), -EBADF);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, file.as_raw_fd()]), 0);
    cx.each(&mut ring, &[
        ("empty slot", nop(0), -EBADF),
        ("slot", nop(1), 0),
        ("past the table", nop(file.as_raw_fd().max(2)), -EBADF),
    ]);
    Ok(())
}

fn files(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let nop = |fd: i32, flags: u32| sqe::op(IORING_OP_NOP, fd).op_flags(flags);
    let (plain, fixed) = (IORING_NOP_FILE, IORING_NOP_FILE | IORING_NOP_FIXED_FILE);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd(), -1]), 0);
    cx.each(&mut ring, &[
        ("open", nop(file.as_raw_fd(), plain), 0),
        ("not open", nop(1234, plain), -EBADF),
        ("-1", nop(-1, plain), -EBADF),
        ("slot", nop(0, fixed), 0),
        ("free slot", nop(1, fixed), -EBADF),
        ("unknown slot", nop(2, fixed), -EBADF),
        ("FIXED_FILE alone", nop(5, IORING_NOP_FIXED_FILE), 0),
        ("not looked at without FILE", nop(1234, 0), 0),
    ]);
    Ok(())
}

fn buffers(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 8];
    let nop = |index| {
        sqe::nop().op_flags(IORING_NOP_FIXED_BUFFER).set(|s| s.buf_index = index)
    };
    cx.one(&mut ring, "no table", nop(0), -EFAULT);
    let iov = [libc::iovec { iov_base: std::ptr::from_mut(&mut buf).cast(), iov_len: 8 }];
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &iov), 0);
    cx.each(&mut ring, &[
        ("registered", nop(0), 0),
        ("unknown", nop(1), -EFAULT),
        ("not looked at", sqe::nop().set(|s| s.buf_index = 9), 0),
    ]);
    Ok(())
}

fn task_work(cx: &mut Cx) -> Outcome {
    for setup in [0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN] {
        let mut ring = cx.ring(4, setup)?;
        let tw = sqe::nop().op_flags(IORING_NOP_TW | IORING_NOP_INJECT_RESULT);
        cx.one(&mut ring, "by task work", tw.set(|s| s.len = 3), 3);
        cx.start(&mut ring, &[tw.ud(1)]);
        if setup != 0 {
            cx.is("not before GETEVENTS", ring.cq_ready(), 0);
        }
        cx.reap(&mut ring, "completion", &[(1, 0)]);
    }
    // Task work ends the NOP, so no worker tries the linked read, for which O_NONBLOCK would count.
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    rustix::io::ioctl_fionbio(&r, true)?;
    let mut buf = [0; 1];
    let tw = sqe::nop().op_flags(IORING_NOP_TW).with(IOSQE_ASYNC);
    cx.start(&mut ring, &[tw.link().ud(1), sqe::read(r.as_raw_fd(), &mut buf, 0).ud(2)]);
    cx.reap(&mut ring, "by a worker", &[(1, 0)]);
    cx.quiet(&ring, "the read waits", 10);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "and is served", &[(2, 1)]);
    Ok(())
}

fn big(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_CQE32)?;
    let nop = sqe::nop().set(|s| (s.off, s.addr) = (0x1111, 0x2222));
    let plain = cx.one(&mut ring, "without the flag", nop, 0);
    cx.eq("words", plain.big, Some([0, 0]));
    let big = cx.one(&mut ring, "with it", nop.op_flags(IORING_NOP_CQE32), 0);
    cx.note("words", format_args!("{:x?}", big.big));
    Ok(())
}

fn unknown_flags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    for bit in 6..32 {
        cx.one(&mut ring, &format!("bit {bit}"), sqe::nop().op_flags(1 << bit), -EINVAL);
    }
    Ok(())
}

fn in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let sqes: Vec<_> = (0..16).map(|ud| sqe::nop().ud(ud).with(IOSQE_ASYNC)).collect();
    let want: Vec<_> = (0..16).map(|ud| (ud, 0)).collect();
    cx.batch(&mut ring, "nops", &sqes, &want);
    Ok(())
}

fn skip_success(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let skip = |ud| sqe::nop().ud(ud).with(IOSQE_CQE_SKIP_SUCCESS);
    let mut buf = [0; 1];
    let bad = sqe::read(-1, &mut buf, 0).ud(3).with(IOSQE_CQE_SKIP_SUCCESS);
    ring.push(skip(1)).push(sqe::nop().ud(2)).push(bad).push(skip(4)).push(sqe::nop().ud(5));
    cx.is("submit", ring.submit(), 5);
    cx.reap_in_order(&mut ring, "the rest and the failure", &[(2, 0), (3, -EBADF), (5, 0)]);
    let worker = skip(6).with(IOSQE_ASYNC);
    cx.start(&mut ring, &[worker, sqe::nop().ud(7)]);
    cx.reap(&mut ring, "one", &[(7, 0)]);
    cx.quiet(&ring, "nothing more", 10);
    let drained = skip(8).with(IOSQE_IO_DRAIN);
    cx.one(&mut ring, "not together with DRAIN", drained, -EOPNOTSUPP);
    Ok(())
}

fn unused_words(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let nop = sqe::nop().set(|s| {
        (s.addr, s.off, s.addr3, s.pad2) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        (s.file_index, s.buf_index) = (9, 11);
    });
    cx.one(&mut ring, "nop", nop, 0);
    cx.one(&mut ring, "but not a priority", nop.set(|s| s.ioprio = 7), -EINVAL);
    Ok(())
}
