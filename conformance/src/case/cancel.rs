//! Cancelling requests, by SQE and by call.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("cancel", sync_cancel, [Reg(IORING_REGISTER_SYNC_CANCEL)], "requests are cancelled by a call that waits for it"),
    case!("cancel", sync_cancel_refusals, [Reg(IORING_REGISTER_SYNC_CANCEL)], "no match, bad flags, pointers and times"),
];

fn forever() -> kernel_timespec {
    kernel_timespec { tv_sec: -1, tv_nsec: -1 }
}

fn sync_cancel(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, _w) = cx.pipe()?;
    for ud in [1, 2, 3] {
        ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(ud));
    }
    cx.is("submit", ring.submit(), 3);
    let call = |c: io_uring_sync_cancel_reg| {
        ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&c), 1)
    };
    let timeout = forever();
    let one = io_uring_sync_cancel_reg { addr: 1, timeout, ..Default::default() };
    let all = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
    let by_fd = io_uring_sync_cancel_reg { fd: r.as_raw_fd(), flags: all, ..one };
    let results = [call(one), call(by_fd), call(by_fd)];
    cx.is("one by user_data", results[0], 0);
    cx.is("the rest by fd", results[1], 2);
    cx.note_answer("none left", results[2]);
    cx.reap(&mut ring, "cancelled", &[(1, -ECANCELED), (2, -ECANCELED), (3, -ECANCELED)]);
    Ok(())
}

fn sync_cancel_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let good = io_uring_sync_cancel_reg { addr: 5, timeout: forever(), ..Default::default() };
    let mut call = |what: &str, c: io_uring_sync_cancel_reg, want: i32| {
        let got = ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&c), 1);
        cx.is(what, got, want);
    };
    call("no match", good, -ENOENT);
    call("unknown flag", io_uring_sync_cancel_reg { flags: 1 << 6, ..good }, -EINVAL);
    call("reserved", io_uring_sync_cancel_reg { pad2: [0, 1, 0], ..good }, -EINVAL);
    call("reserved bytes", io_uring_sync_cancel_reg { pad: [1; 7], ..good }, -EINVAL);
    let fixed = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED;
    call("fixed fd without a table", io_uring_sync_cancel_reg { flags: fixed, ..good }, -EBADF);
    let fd = io_uring_sync_cancel_reg { flags: IORING_ASYNC_CANCEL_FD, fd: 1234, ..good };
    call("bad fd", fd, -EBADF);
    let op = IORING_REGISTER_SYNC_CANCEL;
    cx.registers(&ring, &[
        ("null", op, 0, 1, -EINVAL),
        ("unmapped", op, BAD, 1, -EFAULT),
        ("count 0", op, addr(&good), 0, -EINVAL),
        ("count 2", op, addr(&good), 2, -EINVAL),
    ]);
    Ok(())
}
