//! Requests of an independent client, the `io-uring` crate, which calls through libc's `syscall()`.
#![allow(unsafe_code)]

use super::prelude::*;
use io_uring::{IoUring, opcode, types};
use softring_uapi::version;

pub const CASES: &[Case] = &[
    any_order!("client", read_write, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)], "the crate writes a file and reads it back"),
    case!("client", probe, [Reg(IORING_REGISTER_PROBE)], "the crate's probe finds the supported operations"),
    case!("client", timeout, [Op(IORING_OP_TIMEOUT)], "the crate submits a timeout, and waits with a timeout"),
    any_order!("client", fixed, [Op(IORING_OP_READ_FIXED), Reg(IORING_REGISTER_BUFFERS)], "the crate uses registered buffers and files"),
    any_order!("client", builders, [], "the crate's builder makes rings"),
];

fn failed(e: std::io::Error) -> Stop {
    Stop::Fail(format!("the crate's call failed: {e}"))
}

fn push(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> Outcome {
    // SAFETY: every caller keeps what the entry points to until its completion is reaped.
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.map_err(|_| Stop::Fail("the submission queue is full".into()))
}

fn results(ring: &mut IoUring) -> Vec<(u64, i32)> {
    let mut all: Vec<_> = ring.completion().map(|c| (c.user_data(), c.result())).collect();
    all.sort_unstable();
    all
}

fn read_write(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"")?;
    let fd = types::Fd(file.as_raw_fd());
    let mut ring = IoUring::new(8).map_err(failed)?;
    let data = *b"the crate's data";
    push(&mut ring, &opcode::Write::new(fd, data.as_ptr(), 16).build().user_data(1))?;
    cx.is("submitted", ring.submit_and_wait(1).map_err(failed)?, 1);
    cx.eq("write", results(&mut ring), vec![(1, 16)]);
    let mut buf = [0u8; 16];
    push(&mut ring, &opcode::Read::new(fd, buf.as_mut_ptr(), 16).build().user_data(2))?;
    cx.is("submitted", ring.submit_and_wait(1).map_err(failed)?, 1);
    cx.eq("read", results(&mut ring), vec![(2, 16)]);
    cx.eq("data", *std::hint::black_box(&buf), data);
    Ok(())
}

fn probe(cx: &mut Cx) -> Outcome {
    let ring = IoUring::new(8).map_err(failed)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(failed)?;
    let known = crate::coverage::ops().filter(|op| *op < version::VERSIONS[0].ops);
    let missing: Vec<_> = known.filter(|op| !probe.is_supported(*op)).collect();
    cx.eq("missing", missing, vec![]);
    Ok(())
}

fn timeout(cx: &mut Cx) -> Outcome {
    let mut ring = IoUring::new(8).map_err(failed)?;
    let ts = types::Timespec::new().nsec(5_000_000);
    push(&mut ring, &opcode::Timeout::new(&ts).build().user_data(1))?;
    cx.is("submitted", ring.submit_and_wait(1).map_err(failed)?, 1);
    cx.eq("time-out", results(&mut ring), vec![(1, -ETIME)]);
    let args = types::SubmitArgs::new().timespec(&ts);
    let waited = ring.submitter().submit_with_args(1, &args);
    cx.eq("wait", waited.map_err(|e| e.raw_os_error()), Err(Some(ETIME)));
    Ok(())
}

fn fixed(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"data")?;
    let mut ring = IoUring::new(8).map_err(failed)?;
    let mut buf = [0u8; 8];
    let iov = [libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: 8 }];
    // SAFETY: the buffer outlives the ring's use of it, which ends before this function does.
    unsafe { ring.submitter().register_buffers(&iov) }.map_err(failed)?;
    ring.submitter().register_files(&[file.as_raw_fd()]).map_err(failed)?;
    let read = opcode::ReadFixed::new(types::Fixed(0), buf.as_mut_ptr(), 4, 0);
    push(&mut ring, &read.build().user_data(1))?;
    cx.is("submitted", ring.submit_and_wait(1).map_err(failed)?, 1);
    cx.eq("read", results(&mut ring), vec![(1, 4)]);
    ring.submitter().unregister_buffers().map_err(failed)?;
    ring.submitter().unregister_files().map_err(failed)?;
    Ok(())
}

fn builders(cx: &mut Cx) -> Outcome {
    type Make = fn(&mut io_uring::Builder) -> &mut io_uring::Builder;
    let makes: [(&str, Make); 5] = [
        ("cqsize", |b| b.setup_cqsize(64)),
        ("clamp", |b| b.setup_clamp()),
        ("coop", |b| b.setup_coop_taskrun().setup_taskrun_flag()),
        ("single issuer", |b| b.setup_single_issuer().setup_defer_taskrun()),
        ("submit all", |b| b.setup_submit_all()),
    ];
    for (what, make) in makes {
        let mut ring: IoUring = make(&mut IoUring::builder()).build(8).map_err(failed)?;
        push(&mut ring, &opcode::Nop::new().build().user_data(3))?;
        cx.is(what, ring.submit_and_wait(1).map_err(failed)?, 1);
        cx.eq("nop", results(&mut ring), vec![(3, 0)]);
    }
    Ok(())
}
