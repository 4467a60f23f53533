//! Requests whose thread has ended. The kernel does not search for them: a request that needs its
//! task fails when that need arises. Only the workers end with their task, which waits for them.

use super::prelude::*;
use rustix::fs::Mode;
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("thread_exit", poll, [], "a poll fails when its file is ready after its thread ended"),
    legal!("thread_exit", poll_multi, [], "a multishot poll fails once after its thread ended"),
    case!("thread_exit", poll_changed, [], "other threads find, change and remove a poll of an ended thread"),
    any_order!("thread_exit", read, [], "a read of an ended thread fails when data come, and takes nothing"),
    any_order!("thread_exit", read_in_worker, [], "a worker's read of an ended thread fails when data come"),
    legal!("thread_exit", timeout, [], "timeouts of an ended thread expire as usual, one-shot or multishot"),
    legal!("thread_exit", link_timeout, [], "a linked timeout of an ended thread cancels nothing"),
    case!("thread_exit", chain, [], "requests linked behind a success of an ended thread fail"),
    case!("thread_exit", drained, [], "drained requests of an ended thread fail"),
    case!(
        "thread_exit",
        blocked_worker,
        [],
        "a blocked worker is interrupted before its thread is gone"
    ),
    any_order!(
        "thread_exit",
        busy_worker,
        [],
        "writes in workers complete, or are cancelled, before their thread is gone"
    ),
    any_order!("thread_exit", writes, [], "writes of an ended thread that need no worker complete"),
    legal!("thread_exit", single_issuer, [], "requests of an ended single issuer fail as others do"),
    legal!("thread_exit", deferred, [], "with DEFER_TASKRUN no completion comes after the issuer has ended"),
    any_order!(
        "thread_exit",
        ready_before,
        [],
        "requests that are ready when their thread ends complete"
    ),
    legal!("thread_exit", other_threads_continue, [], "requests of other threads go on"),
    any_order!(
        "thread_exit",
        first_thread,
        [],
        "other threads go on after the first thread ends, and the process ends with the last"
    ),
    any_order!("thread_exit", last_thread, [], "exit(2) of the only thread ends the process, although requests wait"),
];

/// Submits by a thread, which has ended when this returns.
fn by_thread(cx: &mut Cx, ring: &mut Ring, sqes: &[io_uring_sqe]) {
    for sqe in sqes {
        ring.push(*sqe);
    }
    let n = std::thread::scope(|s| s.spawn(|| ring.submit()).join().unwrap_or(-1));
    cx.is("submitted", n, sqes.len());
}

fn ready_before(cx: &mut Cx) -> Outcome {
    const READS: usize = 100;
    for waits in [false, true] {
        let mut ring = cx.ring(128, 0)?;
        let pipes = (0..READS).map(|_| cx.pipe()).collect::<Result<Vec<_>, _>>()?;
        let mut bufs = [[0; 1]; READS];
        for (i, ((r, _), buf)) in pipes.iter().zip(&mut bufs).enumerate() {
            ring.push(sqe::read(r.as_raw_fd(), buf, 0).ud(i as u64));
        }
        let (entry, fd) = (cx.entry, ring.fd);
        let (submitted, written) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let n = std::thread::scope(|s| {
            let thread = s.spawn(|| {
                let n = entry::enter(entry, fd, READS as u32, 0, 0, 0, 0);
                submitted.wait();
                written.wait();
                n
            });
            submitted.wait();
            let all = || entry::enter(entry, fd, 0, READS as u32, IORING_ENTER_GETEVENTS, 0, 0);
            let waiter = waits.then(|| s.spawn(all));
            std::thread::sleep(Duration::from_millis(if waits { 20 } else { 0 }));
            for (_, w) in &pipes {
                let _ = rustix::io::write(w, b"x");
            }
            written.wait();
            let n = thread.join();
            waiter.map(|waiter| waiter.join());
            n.unwrap_or(-1)
        });
        cx.is("submitted", n, READS);
        let want: Vec<_> = (0..READS).map(|i| (i as u64, 1)).collect();
        cx.reap(&mut ring, "ready", &want);
    }
    Ok(())
}

fn poll(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    by_thread(cx, &mut ring, &[poll.ud(1), poll.ud(2).with(IOSQE_CQE_SKIP_SUCCESS)]);
    cx.quiet(&ring, "armed", 20);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(1, -ECANCELED), (2, -ECANCELED)]);
    Ok(())
}

fn poll_multi(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let multi = sqe::poll_add(r.as_raw_fd(), libc::POLLIN)
        .set(|s| s.len = IORING_POLL_ADD_MULTI)
        .ud(1);
    by_thread(cx, &mut ring, &[multi]);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(1, -ECANCELED)]);
    rustix::io::write(&w, b"x")?;
    cx.quiet(&ring, "and no more", 20);
    Ok(())
}

fn poll_changed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    by_thread(cx, &mut ring, &[poll.ud(1), poll.ud(2), poll.ud(3)]);
    cx.one(&mut ring, "remove", sqe::op(IORING_OP_POLL_REMOVE, -1).set(|s| s.addr = 1), 0);
    cx.reap(&mut ring, "removed", &[(1, -ECANCELED)]);
    cx.one(&mut ring, "cancel", sqe::cancel(2, 0), 0);
    cx.reap(&mut ring, "cancelled", &[(2, -ECANCELED)]);
    let rename = sqe::op(IORING_OP_POLL_REMOVE, -1)
        .set(|s| (s.addr, s.off, s.len) = (3, 4, IORING_POLL_UPDATE_USER_DATA));
    cx.one(&mut ring, "rename", rename, 0);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(4, -ECANCELED)]);
    Ok(())
}

fn read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1);
    by_thread(cx, &mut ring, &[read.link(), sqe::nop().ud(2)]);
    cx.quiet(&ring, "waits", 20);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "ready", &[(1, -ECANCELED), (2, -ECANCELED)]);
    cx.is("still there", rustix::io::read(&r, &mut [0; 8])?, 4);
    Ok(())
}

fn read_in_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1).with(IOSQE_ASYNC);
    ring.push(read);
    let n = std::thread::scope(|s| {
        let sender = s.spawn(|| {
            let n = ring.submit();
            // The worker has time to find that there is no data.
            std::thread::sleep(Duration::from_millis(50));
            n
        });
        sender.join().unwrap_or(-1)
    });
    cx.is("submitted", n, 1);
    cx.quiet(&ring, "waits", 20);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "ready", &[(1, -ECANCELED)]);
    cx.is("still there", rustix::io::read(&r, &mut [0; 8])?, 4);
    Ok(())
}

fn timeout(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ts = sqe::millis(30);
    let multi = sqe::timeout(&ts, 2, IORING_TIMEOUT_MULTISHOT);
    let far = sqe::millis(60_000);
    let counts = sqe::timeout(&far, 1, 0).ud(3);
    by_thread(cx, &mut ring, &[sqe::timeout(&ts, 0, 0).ud(1), multi.ud(2)]);
    let got = ring.take(3)?;
    cx.eq("by name", got.iter().filter(|c| c.user_data == 2).count(), 2);
    cx.holds("all ETIME", got.iter().all(|c| c.res == -ETIME));
    by_thread(cx, &mut ring, &[counts]);
    cx.start(&mut ring, &[sqe::nop().ud(4)]);
    cx.reap(&mut ring, "by count", &[(3, 0), (4, 0)]);
    Ok(())
}

fn link_timeout(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let ts = sqe::millis(30);
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1).link();
    by_thread(cx, &mut ring, &[poll, sqe::link_timeout(&ts, 0).ud(2)]);
    cx.reap(&mut ring, "its time comes", &[(2, -ECANCELED)]);
    cx.quiet(&ring, "the poll waits", 20);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(1, -ECANCELED)]);
    Ok(())
}

fn chain(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ts = sqe::millis(200);
    let head = sqe::timeout(&ts, 0, IORING_TIMEOUT_ETIME_SUCCESS).ud(1).link();
    by_thread(cx, &mut ring, &[head, sqe::nop().ud(2).link(), sqe::nop().ud(3)]);
    cx.reap(&mut ring, "its time comes", &[(1, -ETIME), (2, -EFAULT), (3, -ECANCELED)]);
    Ok(())
}

fn drained(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let ts = sqe::millis(200);
    let head = sqe::timeout(&ts, 0, 0).ud(1);
    let behind = sqe::nop().ud(2).with(IOSQE_IO_DRAIN);
    by_thread(cx, &mut ring, &[head, behind, sqe::nop().ud(3)]);
    cx.reap(&mut ring, "its time comes", &[(1, -ETIME), (2, -EFAULT), (3, -EFAULT)]);
    Ok(())
}

/// Result of a request whose call was interrupted and would be restarted.
const ERESTARTSYS: i32 = 512;

/// Makes a FIFO, and an open of it that has no peer: the open blocks, which only a worker may do.
pub(super) fn open_fifo(cx: &mut Cx) -> Result<(std::ffi::CString, io_uring_sqe), Stop> {
    let path = cx.path("fifo")?;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path.as_c_str(),
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )?;
    let at = path.as_ptr().expose_provenance();
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, at, 0, 0).with(IOSQE_ASYNC);
    Ok((path, open))
}

fn blocked_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (_path, open) = open_fifo(cx)?;
    ring.push(open.ud(1).link()).push(sqe::nop().ud(2));
    let n = std::thread::scope(|s| {
        let sender = s.spawn(|| {
            let n = ring.submit();
            std::thread::sleep(Duration::from_millis(50));
            n
        });
        sender.join().unwrap_or(-1)
    });
    cx.is("submitted", n, 2);
    cx.holds("there when it has gone", ring.cq_ready() > 0);
    cx.reap(&mut ring, "interrupted", &[(1, -ERESTARTSYS), (2, -ECANCELED)]);
    Ok(())
}

fn busy_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(64, 0)?;
    let file = cx.file("f", b"")?;
    let data = [7u8; 4096];
    let writes: Vec<_> = (0..64u64)
        .map(|i| sqe::write(file.as_raw_fd(), &data, i * 4096).ud(i).with(IOSQE_ASYNC))
        .collect();
    by_thread(cx, &mut ring, &writes);
    let (got, content) = (ring.take(64)?, cx.content("f")?);
    let told = |c: &Cqe| match c.res {
        // The number of finished writes varies.
        4096 => content[c.user_data as usize * 4096..][..4096] == data,
        res => res == -ECANCELED,
    };
    cx.holds("each wrote or was cancelled", got.iter().all(told));
    Ok(())
}

fn writes(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(64, 0)?;
    let file = cx.file("f", b"")?;
    let data = [7u8; 512];
    for i in 0..8 {
        by_thread(cx, &mut ring, &[sqe::write(file.as_raw_fd(), &data, i * 512).ud(i)]);
    }
    let want: Vec<_> = (0..8).map(|i| (i, 512)).collect();
    cx.reap(&mut ring, "each", &want);
    let content = cx.content("f")?;
    cx.holds("content", content == [7u8; 8 * 512]);
    Ok(())
}

fn single_issuer(cx: &mut Cx) -> Outcome {
    let flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED;
    let params = io_uring_params { flags, ..Default::default() };
    let mut ring = cx.ring_with(8, params)?;
    let (r, w) = cx.pipe()?;
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1));
    let n = std::thread::scope(|s| {
        let sender = s.spawn(|| {
            ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0);
            ring.submit()
        });
        sender.join().unwrap_or(-1)
    });
    cx.is("submitted", n, 1);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(1, -ECANCELED)]);
    ring.push(sqe::nop().ud(2));
    cx.is("another thread submits", ring.submit(), -EEXIST);
    Ok(())
}

fn deferred(cx: &mut Cx) -> Outcome {
    let params = io_uring_params { flags: DEFER | IORING_SETUP_R_DISABLED, ..Default::default() };
    let mut ring = cx.ring_with(8, params)?;
    let (r, w) = cx.pipe()?;
    let ts = sqe::millis(10);
    let file = cx.file("f", b"data")?;
    let mut buf = [0; 4];
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1));
    ring.push(sqe::timeout(&ts, 0, 0).ud(2));
    ring.push(sqe::read(file.as_raw_fd(), &mut buf, 0).ud(3).with(IOSQE_ASYNC));
    let n = std::thread::scope(|s| {
        let sender = s.spawn(|| {
            ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0);
            ring.submit()
        });
        sender.join().unwrap_or(-1)
    });
    cx.is("submitted", n, 3);
    rustix::io::write(&w, b"x")?;
    cx.quiet(&ring, "nothing comes", 50);
    cx.is("another thread waits", ring.enter(0, 1, IORING_ENTER_GETEVENTS), -EEXIST);
    Ok(())
}

fn other_threads_continue(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let poll = sqe::poll_add(r.as_raw_fd(), libc::POLLIN);
    cx.start(&mut ring, &[poll.ud(1)]);
    by_thread(cx, &mut ring, &[poll.ud(2)]);
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "ready", &[(1, 1), (2, -ECANCELED)]);
    cx.one(&mut ring, "the ring goes on", sqe::nop(), 0);
    Ok(())
}

/// Reads by a vector on a new ring, and leaves a read that waits.
fn works_alone(entry: EntryPoint, file: i32, pipe: i32) -> Outcome {
    let ring = Box::leak(Box::new(Ring::new(entry, 8, 0)?));
    let (part, waiting) = (vec![0u8; 4].leak(), vec![0u8; 4].leak());
    let iov = [libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 4 }];
    ring.push(sqe::rw(IORING_OP_READV, file, sqe::addr(&iov), 1, 0).ud(1)).submit_wait(1);
    let got = ring.take(1)?[0].res;
    ring.push(sqe::read(pipe, waiting, 0).ud(2)).submit();
    if got == 4 && part == b"data" { Ok(()) } else { Err(Stop::Fail("no data".into())) }
}

fn first_thread(cx: &mut Cx) -> Outcome {
    let (r, _w) = cx.pipe()?;
    let file = cx.file("f", b"data")?;
    let (entry, file, pipe) = (cx.entry, file.as_raw_fd(), r.as_raw_fd());
    let child = os::in_child(|| {
        std::thread::spawn(move || {
            // The first thread has time to end.
            std::thread::sleep(Duration::from_millis(50));
            if works_alone(entry, file, pipe).is_err() {
                std::process::abort();
            }
        });
        os::exit_thread(0)
    });
    cx.is("works, and ends", child, 0);
    Ok(())
}

fn last_thread(cx: &mut Cx) -> Outcome {
    let (r, _w) = cx.pipe()?;
    let file = cx.file("f", b"data")?;
    let (entry, file, pipe) = (cx.entry, file.as_raw_fd(), r.as_raw_fd());
    let child = os::in_child(|| {
        let works = works_alone(entry, file, pipe).is_ok();
        os::exit_thread(if works { 3 } else { 4 })
    });
    cx.is("ends as its only thread did", child, 3);
    Ok(())
}
