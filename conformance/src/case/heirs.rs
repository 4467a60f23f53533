//! What forked children leave in flight on their parent's ring.

use super::prelude::*;
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!("heirs", child_leaves_requests, [Trap("fork")], "what a child has in flight is the ring's, also when it ends"),
    case!("heirs", child_killed, [Trap("fork")], "a timeout of a child that is killed goes on"),
    case!("heirs", children_leave, [Trap("fork")], "two children share a ring, and each leaves something in flight"),
    case!("heirs", child_leaves_read, [Trap("fork")], "what waits in the name of a child that ends is cancelled"),
];

fn child_leaves_requests(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (at_once, ts) = (ring.fd, sqe::millis(30));
    let child = os::in_child(|| {
        let link = IOSQE_IO_LINK;
        ring.push(sqe::poll_add(at_once, libc::POLLIN).ud(1).with(link));
        ring.push(sqe::timeout(&ts, 0, 0).ud(2));
        ring.push(sqe::timeout(&ts, 0, 0).ud(3).with(link));
        ring.push(sqe::nop().ud(4).with(link));
        ring.push(sqe::nop().ud(5));
        ring.push(sqe::timeout(&ts, 2, IORING_TIMEOUT_MULTISHOT).ud(6));
        ring.push(sqe::timeout(&ts, 0, IORING_TIMEOUT_ETIME_SUCCESS).ud(7).with(link));
        ring.push(sqe::nop().ud(8));
        i32::from(ring.submit() != 8)
    });
    cx.is("child", child, 0);
    std::thread::sleep(Duration::from_millis(100));
    let told = |c: Cqe| (c.user_data, c.res, c.flags);
    let mut seen: Vec<_> = ring.pop_all().into_iter().map(told).collect();
    seen.sort();
    cx.note("ended", format_args!("{seen:?}"));
    Ok(())
}

fn child_killed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let ts = sqe::millis(50);
    let child = os::spawn_child(|| {
        ring.push(sqe::timeout(&ts, 0, 0).ud(1));
        ring.push(sqe::poll_add(ring.fd, libc::POLLIN).ud(2));
        let submitted = ring.submit();
        let _ = rustix::io::write(&w, b"x");
        std::thread::sleep(Duration::from_secs(9));
        i32::from(submitted != 2)
    });
    rustix::io::read(&r, &mut [0; 1])?;
    let pid = rustix::process::Pid::from_raw(child).ok_or(rustix::io::Errno::SRCH)?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    cx.reap(&mut ring, "it goes on", &[(1, -ETIME), (2, -ECANCELED)]);
    os::wait_for(child);
    Ok(())
}

/// The first child's requests end while the second has some in flight, and submits more.
fn children_leave(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let (soon, late) = (sqe::millis(30), sqe::millis(250));
    let first = os::spawn_child(|| {
        ring.push(sqe::timeout(&soon, 0, 0).ud(1));
        ring.push(sqe::timeout(&soon, 0, 0).ud(2));
        let submitted = ring.submit();
        let _ = rustix::io::write(&w, b"x");
        std::thread::sleep(Duration::from_millis(80));
        i32::from(submitted != 2)
    });
    rustix::io::read(&r, &mut [0; 1])?;
    let second = os::spawn_child(|| {
        ring.push(sqe::timeout(&late, 0, 0).ud(3));
        ring.push(sqe::timeout(&late, 0, 0).ud(4));
        let submitted = ring.submit();
        std::thread::sleep(Duration::from_millis(120));
        ring.push(sqe::nop().ud(5));
        i32::from(submitted != 2 || ring.submit() != 1)
    });
    cx.is("the first", os::wait_for(first), 0);
    cx.is("the second", os::wait_for(second), 0);
    std::thread::sleep(Duration::from_millis(300));
    let mut seen: Vec<_> = ring.pop_all().into_iter().map(|c| (c.user_data, c.res)).collect();
    seen.sort_unstable();
    cx.note("each once", format_args!("{seen:?}"));
    Ok(())
}

fn child_leaves_read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let child = os::in_child(|| {
        ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(1));
        i32::from(ring.submit() != 1)
    });
    cx.is("child", child, 0);
    cx.quiet(&ring, "nothing to read", 30);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "too late", &[(1, -ECANCELED)]);
    Ok(())
}
