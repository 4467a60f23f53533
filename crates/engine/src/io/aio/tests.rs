#![allow(unsafe_code)]

use super::*;
use softring_host::calls::UserPtr;
use softring_host::os::fd::{AsRawFd, OwnedFd};
use softring_host::os::fs::{Mode, OFlags};
use softring_host::os::pipe::{PipeFlags, pipe_with};
use softring_uapi::aio::*;
use std::collections::BTreeMap;

fn file(dir: &str, name: &str) -> OwnedFd {
    let path = format!("{dir}/softring-aio-{name}-{}", std::process::id());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let fd = softring_host::os::fs::open(&path, flags, Mode::from_raw_mode(0o600)).unwrap();
    std::fs::remove_file(&path).unwrap();
    fd
}

/// Returns the iocb of fsync(2) or fdatasync(2).
fn fsync(fd: i32, datasync: bool, data: u64) -> Prepared {
    rw(if datasync { IOCB_CMD_FDSYNC } else { IOCB_CMD_FSYNC }, fd, UserPtr::NULL, 0, 0, 0, data)
}

fn addr<T>(p: &mut [T]) -> UserPtr {
    // SAFETY: each test keeps its memory until the iocb is done.
    unsafe { UserPtr::of_program(p.as_mut_ptr().expose_provenance() as u64) }
}

fn reap(ctx: &mut AioCtx, mut f: impl FnMut(u64, i64)) -> usize {
    ctx.begin_reap();
    let done: Vec<_> = core::iter::from_fn(|| ctx.next()).collect();
    done.iter().for_each(|c| f(c.token, c.res));
    done.len()
}

fn all(ctx: &mut AioCtx) -> BTreeMap<u64, i64> {
    let mut got = BTreeMap::new();
    while ctx.in_flight() > 0 {
        ctx.take_events(1, Some(Duration::from_secs(10)), None).unwrap();
        reap(ctx, |d, r| assert!(got.insert(d, r).is_none()));
    }
    got
}

/// Creates a context; retries while another test has taken all contexts.
fn context(depth: u32) -> AioCtx {
    loop {
        match AioCtx::new(depth) {
            Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(1)),
            made => return made.unwrap(),
        }
    }
}

#[test]
fn a_batch_of_reads_and_writes_is_reaped_from_user_memory() {
    let fd = file(".", "rw");
    let fd = fd.as_raw_fd();
    let mut ctx = context(32);
    assert!(ctx.user_mapped());
    // More rounds than the ring is long: the indices wrap.
    for round in 0..40u64 {
        let mut bufs: Vec<[u8; 512]> = (0..32).map(|i| [(round + i) as u8; 512]).collect();
        for (i, b) in bufs.iter_mut().enumerate() {
            ctx.prep(rw(IOCB_CMD_PWRITE, fd, addr(b), 512, i as i64 * 512, 0, i as u64)).unwrap();
        }
        assert_eq!((ctx.room(), ctx.prep(fsync(fd, true, 0))), (0, None));
        assert_eq!(ctx.submit(|_, e| panic!("{e:?}")), 32);
        let mut n = 0;
        while n < 32 {
            n += reap(&mut ctx, |_, r| assert_eq!(r, 512));
        }
        let mut back = [0u8; 512];
        ctx.prep(rw(IOCB_CMD_PREAD, fd, addr(&mut back), 512, 31 * 512, 0, 7)).unwrap();
        ctx.prep(fsync(fd, false, 8)).unwrap();
        assert_eq!(ctx.submit(|_, e| panic!("{e:?}")), 2);
        assert_eq!(all(&mut ctx), BTreeMap::from([(7, 512), (8, 0)]));
        assert_eq!(back, bufs[31]);
    }
    assert_eq!((ctx.room(), ctx.in_flight()), (32, 0));
}

#[test]
fn a_refused_iocb_does_not_stop_the_batch() {
    let fd = file(".", "refused");
    let fd = fd.as_raw_fd();
    let mut ctx = context(8);
    let mut b = [1u8; 64];
    let ok = |i, b: &mut [u8]| rw(IOCB_CMD_PWRITE, fd, addr(b), 64, 0, 0, i);
    ctx.prep(rw(99, fd, addr(&mut b), 64, 0, 0, 0)).unwrap();
    ctx.prep(ok(1, &mut b)).unwrap();
    ctx.prep(rw(IOCB_CMD_PREAD, -1, addr(&mut b), 64, 0, 0, 2)).unwrap();
    ctx.prep(rw(IOCB_CMD_PREADV, fd, UserPtr::BAD, 1, 0, 0, 3)).unwrap();
    ctx.prep(ok(4, &mut b)).unwrap();
    let mut bad = Vec::new();
    assert_eq!(ctx.submit(|d, e| bad.push((d, e))), 2);
    assert_eq!(bad, [(0, Errno::EINVAL), (2, Errno::EBADF), (3, Errno::EFAULT)]);
    assert_eq!(all(&mut ctx), BTreeMap::from([(1, 64), (4, 64)]));
    assert_eq!(ctx.room(), 8);
}

#[test]
fn polls_fire_and_waits_time_out() {
    let mut ctx = context(8);
    let (r, w) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    ctx.prep(poll(r.as_raw_fd(), 1, 5)).unwrap();
    assert_eq!(ctx.submit(|_, e| panic!("{e:?}")), 1);
    assert!(!ctx.ready());
    assert_eq!(ctx.take_events(1, Some(Duration::from_millis(5)), None), Ok(0));
    softring_host::os::io::write(&w, b"x").unwrap();
    assert_eq!(ctx.take_events(1, None, Some(0)), Ok(1));
    assert!(ctx.ready());
    assert_eq!(reap(&mut ctx, |d, r| assert_eq!((d, r & 1), (5, 1))), 1);
    // An armed poll is left: drop must not wait for it.
    let (r, _w2) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    ctx.prep(poll(r.as_raw_fd(), 1, 7)).unwrap();
    ctx.submit(|_, e| panic!("{e:?}"));
}

#[test]
fn depth_beyond_aio_max_nr_is_eagain_or_fits() {
    let mut held = Vec::new();
    let end = loop {
        match AioCtx::new(AIO_DEPTH_MAX) {
            Ok(c) if held.len() < 64 => held.push(c),
            Ok(_) => break Errno::EAGAIN, // a machine with a high aio-max-nr
            Err(e) => break e,
        }
    };
    assert_eq!(end, Errno::EAGAIN);
}

#[test]
fn a_forked_child_drops_the_aio_context() {
    unsafe extern "C" {
        safe fn fork() -> i32;
    }
    let fd = file(".", "fork");
    let mut ctx = context(8);
    let mut b = [1u8; 64];
    ctx.prep(rw(IOCB_CMD_PWRITE, fd.as_raw_fd(), addr(&mut b), 64, 0, 0, 1)).unwrap();
    let pid = fork();
    if pid == 0 {
        let mapped = softring_host::user::read::<u32>(ctx.id as u64 + 16) == Ok(AIO_RING_MAGIC);
        let foreign = ctx.submit(|_, e| assert_eq!(e, Errno::EINVAL)) == 0;
        let at = ctx.id as u64;
        ctx.fork_child();
        let gone = softring_host::user::read::<u32>(at + 16) == Err(Errno::EFAULT);
        let fresh = AioCtx::new(8).is_ok();
        let bits = [mapped, foreign, gone, fresh].map(|b| u32::from(!b));
        let code = bits.iter().enumerate().fold(0, |c, (i, b)| c | b << i);
        loop {
            let _ = softring_host::calls::process::exit_group(code.cast_signed());
        }
    }
    const P_PID: u32 = 1;
    const WEXITED: u32 = 4;
    let mut info = [u32::MAX; 32];
    let waited = softring_host::calls::process::waitid(P_PID, pid, Some(&mut info), WEXITED);
    // CLD_* code and exit status.
    const CLD_EXITED: u32 = 1;
    assert_eq!((waited, info[2], info[6]), (Ok(0), CLD_EXITED, 0));
    assert_eq!(ctx.submit(|_, e| panic!("{e:?}")), 1);
    assert_eq!(all(&mut ctx), BTreeMap::from([(1, 64)]));
}
