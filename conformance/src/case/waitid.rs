//! WAITID: state changes of children.

use super::futex::sorted;
use super::prelude::*;
use libc::{P_ALL, P_PGID, P_PID, P_PIDFD, WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WSTOPPED};
use std::os::fd::OwnedFd;
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("waitid", exited, [Op(IORING_OP_WAITID)], "WAITID returns an ended child at once, and reaps it"),
    legal!("waitid", waits_for_exit, [Op(IORING_OP_WAITID)], "WAITID waits for the end of a child"),
    legal!("waitid", any, [Op(IORING_OP_WAITID)], "WAITID of any child, or of any child of a group"),
    legal!("waitid", by_pidfd, [Op(IORING_OP_WAITID)], "WAITID of a child named by its pidfd"),
    legal!("waitid", stopped, [Op(IORING_OP_WAITID)], "WAITID of stopped and continued children"),
    legal!("waitid", killed, [Op(IORING_OP_WAITID)], "WAITID of a child that a signal ended"),
    legal!("waitid", options, [Op(IORING_OP_WAITID)], "WNOHANG does not wait, WNOWAIT does not reap"),
    legal!("waitid", several, [Op(IORING_OP_WAITID)], "several requests wait for any child: each gets one"),
    any_order!("waitid", two_waits_one_child, [Op(IORING_OP_WAITID), Sqe(IOSQE_ASYNC)], "of two requests that wait for one child the later gets its end"),
    legal!("waitid", cancel, [Op(IORING_OP_WAITID), Op(IORING_OP_ASYNC_CANCEL)], "a wait is cancelled, and reaps nothing"),
    legal!("waitid", cancel_many, [Op(IORING_OP_WAITID), Op(IORING_OP_ASYNC_CANCEL)], "many waits are cancelled, and the result counts them"),
    legal!("waitid", linked, [Op(IORING_OP_WAITID), Op(IORING_OP_LINK_TIMEOUT)], "waits in chains and with a linked timeout"),
    legal!("waitid", modes, [Op(IORING_OP_WAITID)], "waits in a worker, with DEFER_TASKRUN, and without a siginfo_t"),
    legal!("waitid", refusals, [Op(IORING_OP_WAITID)], "bad words, kinds, numbers and options"),
    legal!("waitid", no_child, [Op(IORING_OP_WAITID)], "there is no such child"),
    case!("waitid", ring_closed, [Op(IORING_OP_WAITID)], "a ring is closed while its requests wait; the child is not reaped"),
    legal!("waitid", thread_ends, [Op(IORING_OP_WAITID)], "waits of a thread that has ended"),
];

/// Part of `siginfo_t` that the program sees.
type Info = [u32; 32];
/// Content that nothing has been written to.
const BLANK: Info = [0x5a5a_5a5a; 32];

fn wait(which: libc::idtype_t, id: i32, options: i32, info: &mut Info) -> io_uring_sqe {
    sqe::op(IORING_OP_WAITID, id).set(|s| {
        (s.len, s.file_index, s.off) = (which, options.cast_unsigned(), addr_mut(info) as u64);
    })
}

/// Forks a child that ends with `code` once its pipe is closed.
fn child(cx: &mut Cx, code: i32) -> Result<(i32, OwnedFd), Stop> {
    let (r, w) = cx.pipe()?;
    let (held, end) = (w.as_raw_fd(), r.as_raw_fd());
    let pid = os::spawn_child(|| {
        os::close(held);
        os::poll(end, libc::POLLIN, -1);
        code
    });
    Ok((pid, w))
}

/// Forks a child and returns when it has ended with `code`.
fn ended(code: i32) -> i32 {
    let pid = os::spawn_child(|| code);
    os::wait_until_zombie(pid);
    pid
}

/// Records the information about `pid`.
fn note_info(cx: &mut Cx, info: &Info, pid: i32) {
    let info = std::hint::black_box(info);
    let who = match info[4].cast_signed() {
        p if p == pid => "the child".to_owned(),
        0 => "nobody".to_owned(),
        0x5a5a_5a5a => "not written".to_owned(),
        p => format!("another: {p}"),
    };
    let [signo, errno, code, gap, _, uid, status, next, ..] = *info;
    cx.note("told", format_args!("{signo} {errno} {code} {gap:x} {who} {uid} {status} {next:x}"));
}

fn exited(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let pid = ended(7);
    let sqe = wait(P_PID, pid, WEXITED, &mut info);
    cx.one(&mut ring, "ended", sqe, 0);
    note_info(cx, &info, pid);
    cx.one(&mut ring, "gone", sqe, -libc::ECHILD);
    note_info(cx, &info, pid);
    Ok(())
}

fn waits_for_exit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    for round in 0..3 {
        let (pid, w) = child(cx, 3)?;
        info = BLANK;
        cx.start(&mut ring, &[wait(P_PID, pid, WEXITED, &mut info).ud(round)]);
        cx.quiet(&ring, "waits", 20);
        note_info(cx, &info, pid);
        drop(w);
        cx.reap(&mut ring, "ended", &[(round, 0)]);
        note_info(cx, &info, pid);
    }
    let (pid, w) = child(cx, 4)?;
    cx.start(&mut ring, &[wait(P_PID, pid, WEXITED, &mut info).ud(9)]);
    drop(w);
    cx.spin(&ring, "seen without entering", 1);
    cx.reap(&mut ring, "ended", &[(9, 0)]);
    note_info(cx, &info, pid);
    Ok(())
}

fn any(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    for (what, which, id) in [("any", P_ALL, 0), ("any", P_ALL, -1), ("our group", P_PGID, 0)] {
        let (pid, w) = child(cx, 5)?;
        info = BLANK;
        cx.start(&mut ring, &[wait(which, id, WEXITED, &mut info).ud(1)]);
        cx.quiet(&ring, what, 20);
        drop(w);
        cx.reap(&mut ring, "ended", &[(1, 0)]);
        note_info(cx, &info, pid);
    }
    let pid = ended(6);
    cx.one(&mut ring, "ended before", wait(P_ALL, 0, WEXITED, &mut info), 0);
    note_info(cx, &info, pid);
    Ok(())
}

fn by_pidfd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    for flags in [0, libc::O_NONBLOCK] {
        let (pid, w) = child(cx, 3)?;
        let pidfd = os::pidfd(pid, flags)?;
        let sqe = wait(P_PIDFD, pidfd.as_raw_fd(), WEXITED, &mut info);
        if flags != 0 {
            cx.one(&mut ring, "one that does not wait", sqe, 0);
            note_info(cx, &info, pid);
        } else {
            cx.start(&mut ring, &[sqe.ud(1)]);
            cx.quiet(&ring, "waits", 20);
        }
        drop(w);
        os::wait_until_zombie(pid);
        if flags != 0 {
            cx.one(&mut ring, "ended", sqe, 0);
        } else {
            cx.reap(&mut ring, "ended", &[(1, 0)]);
        }
        note_info(cx, &info, pid);
    }
    let file = cx.file("f", b"")?;
    info = BLANK;
    cx.each(&mut ring, &[
        ("no pidfd", wait(P_PIDFD, file.as_raw_fd(), WEXITED, &mut info), -EBADF),
        ("closed", wait(P_PIDFD, 999, WEXITED, &mut info), -EBADF),
        ("-1", wait(P_PIDFD, -1, WEXITED, &mut info), -EINVAL),
    ]);
    note_info(cx, &info, 0);
    Ok(())
}

fn stopped(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let (pid, w) = child(cx, 3)?;
    let steps = [(libc::SIGSTOP, WSTOPPED), (libc::SIGCONT, WCONTINUED)];
    for (signal, options) in steps {
        cx.start(&mut ring, &[wait(P_PID, pid, options, &mut info).ud(1)]);
        cx.quiet(&ring, "waits", 20);
        os::signal(pid, signal);
        cx.reap(&mut ring, "changed", &[(1, 0)]);
        note_info(cx, &info, pid);
    }
    let all = WEXITED | WSTOPPED | WCONTINUED;
    cx.start(&mut ring, &[wait(P_PID, pid, all, &mut info).ud(1)]);
    drop(w);
    cx.reap(&mut ring, "ended", &[(1, 0)]);
    note_info(cx, &info, pid);
    Ok(())
}

fn killed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let (pid, _w) = child(cx, 3)?;
    cx.start(&mut ring, &[wait(P_PID, pid, WEXITED, &mut info).ud(1)]);
    os::signal(pid, libc::SIGKILL);
    cx.reap(&mut ring, "killed", &[(1, 0)]);
    note_info(cx, &info, pid);
    Ok(())
}

fn options(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let (pid, w) = child(cx, 3)?;
    cx.one(&mut ring, "WNOHANG", wait(P_PID, pid, WEXITED | WNOHANG, &mut info), 0);
    note_info(cx, &info, pid);
    for which in [P_PID, P_ALL] {
        cx.start(&mut ring, &[wait(which, pid, WEXITED | WNOWAIT, &mut info).ud(which.into())]);
    }
    cx.quiet(&ring, "two that take nothing", 20);
    drop(w);
    cx.reap(&mut ring, "ended", &[(P_ALL.into(), 0), (P_PID.into(), 0)]);
    note_info(cx, &info, pid);
    info = BLANK;
    cx.one(&mut ring, "still there", wait(P_PID, pid, WEXITED | WNOHANG, &mut info), 0);
    note_info(cx, &info, pid);
    Ok(())
}

fn several(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut infos = [BLANK; 3];
    let sqes = infos.each_mut().map(|i| wait(P_ALL, 0, WEXITED, i));
    let kids = [child(cx, 1)?, child(cx, 2)?, child(cx, 3)?];
    let pids: Vec<_> = kids.iter().map(|k| k.0).collect();
    cx.start(&mut ring, &sqes);
    cx.quiet(&ring, "wait", 20);
    // A child holds the pipes of earlier children, so the children end from the last to the first.
    drop(kids);
    cx.eq("each got one", ring.take(3)?.iter().map(|c| c.res).collect::<Vec<_>>(), vec![0; 3]);
    let mut got: Vec<_> = std::hint::black_box(&infos).iter().map(|i| i[4] as i32).collect();
    got.sort_unstable();
    cx.holds("and each another", got == pids);
    cx.one(&mut ring, "none is left", wait(P_ALL, 0, WEXITED, &mut [0; 32]), -libc::ECHILD);
    Ok(())
}

fn two_waits_one_child(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    for flags in [[0, 0], [0, IOSQE_ASYNC], [IOSQE_ASYNC, 0], [IOSQE_ASYNC, IOSQE_ASYNC]] {
        let mut infos = [BLANK; 2];
        let (pid, w) = child(cx, 1)?;
        for (i, info) in infos.iter_mut().enumerate() {
            let sqe = wait(P_PID, pid, WEXITED, info).with(flags[i]).ud(1 + i as u64);
            cx.start(&mut ring, &[sqe]);
            cx.quiet(&ring, "waits", 5);
        }
        drop(w);
        sorted(cx, &mut ring, &format!("flags {flags:?}"), 2)?;
    }
    Ok(())
}

fn cancel(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let (pid, w) = child(cx, 3)?;
    for (which, options) in [(P_PID, WEXITED), (P_ALL, WEXITED), (P_PID, WSTOPPED)] {
        info = BLANK;
        cx.start(&mut ring, &[wait(which, pid, options, &mut info).link().ud(1), sqe::nop().ud(2)]);
        cx.quiet(&ring, "waits", 10);
        cx.start(&mut ring, &[sqe::cancel(1, 0).ud(3)]);
        sorted(cx, &mut ring, "cancelled", 3)?;
        note_info(cx, &info, pid);
        cx.one(&mut ring, "gone", sqe::cancel(1, 0).ud(3), -ENOENT);
    }
    let bad = wait(P_PID, pid, WEXITED, &mut info).set(|s| s.off = BAD as u64).ud(1);
    let both = [bad, sqe::cancel(1, 0).ud(3)];
    cx.batch(&mut ring, "told to nobody", &both, &[(1, -ECANCELED), (3, 1)]);
    drop(w);
    os::wait_until_zombie(pid);
    cx.is("the child was left alone", os::wait_for(pid), 3);
    Ok(())
}

fn cancel_many(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (pid, w) = child(cx, 3)?;
    let mut infos = [BLANK; 2];
    for flags in [IORING_ASYNC_CANCEL_ALL, IORING_ASYNC_CANCEL_ANY] {
        let [a, b] = infos.each_mut();
        let sqes = [wait(P_PID, pid, WEXITED, a).ud(1), wait(P_ALL, 0, WEXITED, b).ud(1)];
        cx.start(&mut ring, &sqes);
        cx.quiet(&ring, "wait", 10);
        cx.start(&mut ring, &[sqe::cancel(1, flags).ud(3)]);
        sorted(cx, &mut ring, "cancelled", 3)?;
    }
    drop(w);
    cx.is("the child was left alone", os::wait_for(pid), 3);
    Ok(())
}

fn linked(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let (pid, w) = child(cx, 3)?;
    let ts = sqe::millis(10);
    for which in [P_PID, P_ALL] {
        let sqe = wait(which, pid, WEXITED, &mut info);
        cx.start(&mut ring, &[sqe.link().ud(1), sqe::link_timeout(&ts, 0).ud(2)]);
        sorted(cx, &mut ring, "too late", 2)?;
        // The wait starts where the request before it ran, and nobody enters meanwhile.
        let first = sqe::nop().with(IOSQE_ASYNC).link().ud(3);
        cx.start(&mut ring, &[first, sqe.link().ud(1), sqe::link_timeout(&ts, 0).ud(2)]);
        std::thread::sleep(Duration::from_millis(60));
        sorted(cx, &mut ring, "behind a worker", 3)?;
    }
    let far = sqe::millis(60_000);
    let sqe = wait(P_PID, pid, WEXITED, &mut info);
    let chain = [sqe.link().ud(1), sqe::link_timeout(&far, 0).link().ud(2), sqe::nop().ud(3)];
    cx.start(&mut ring, &chain);
    drop(w);
    cx.reap(&mut ring, "in time", &[(1, 0), (2, -ECANCELED), (3, 0)]);
    note_info(cx, &info, pid);
    let broken = [sqe.link().ud(1), sqe::nop().ud(2)];
    cx.batch(&mut ring, "no child", &broken, &[(1, -libc::ECHILD), (2, -ECANCELED)]);
    Ok(())
}

fn modes(cx: &mut Cx) -> Outcome {
    let (mut ring, mut late) = (cx.ring(8, 0)?, cx.ring(8, DEFER)?);
    let mut info = BLANK;
    for which in [P_PID, P_ALL] {
        let (pid, w) = child(cx, 3)?;
        let sqe = wait(which, pid, WEXITED, &mut info);
        cx.start(&mut ring, &[sqe.with(IOSQE_ASYNC).ud(1)]);
        cx.quiet(&ring, "in a worker", 20);
        drop(w);
        cx.reap(&mut ring, "ended", &[(1, 0)]);
        let (pid, w) = child(cx, 3)?;
        cx.start(&mut late, &[wait(which, pid, WEXITED, &mut info).ud(1)]);
        drop(w);
        os::wait_until_zombie(pid);
        cx.quiet(&late, "deferred", 10);
        cx.reap(&mut late, "with GETEVENTS", &[(1, 0)]);
        note_info(cx, &info, pid);
    }
    let pid = ended(1);
    cx.one(&mut ring, "told to nobody", wait(P_PID, pid, WEXITED, &mut info).set(|s| s.off = 0), 0);
    let pid = ended(1);
    let bad = wait(P_PID, pid, WEXITED, &mut info).set(|s| s.off = BAD as u64);
    cx.one(&mut ring, "a bad pointer", bad, -EFAULT);
    cx.one(&mut ring, "has cost the child", bad, -EFAULT);
    cx.one(&mut ring, "which is gone", wait(P_PID, pid, WEXITED, &mut info), -libc::ECHILD);
    Ok(())
}

fn refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let pid = ended(3);
    let good = wait(P_PID, pid, WEXITED | WNOWAIT, &mut info);
    let opts = |o: i32| good.set(|s| s.file_index = o.cast_unsigned());
    let kind = |k: u32, id: i32| good.set(|s| (s.len, s.fd) = (k, id));
    cx.each(&mut ring, &[
        ("an address", good.set(|s| s.addr = 1), -EINVAL),
        ("a buffer", good.set(|s| s.buf_index = 1), -EINVAL),
        ("addr3", good.set(|s| s.addr3 = 1), -EINVAL),
        ("flags", good.op_flags(1), -EINVAL),
        ("a priority", good.set(|s| s.ioprio = 1), -EINVAL),
        ("a buffer group", good.with(IOSQE_BUFFER_SELECT), -EOPNOTSUPP),
        ("no event", opts(0), -EINVAL),
        ("no event, but options", opts(WNOHANG | WNOWAIT), -EINVAL),
        ("an unknown option", opts(WEXITED | 16), -EINVAL),
        ("an unknown kind", kind(4, pid), -EINVAL),
        ("no pid", kind(P_PID, 0), -EINVAL),
        ("a negative pid", kind(P_PID, -pid), -EINVAL),
        ("a negative group", kind(P_PGID, -1), -EINVAL),
    ]);
    note_info(cx, &info, pid);
    cx.one(&mut ring, "IOSQE_FIXED_FILE", good.fixed(), 0);
    cx.one(&mut ring, "__WALL", opts(WEXITED | WNOWAIT | libc::__WALL), 0);
    cx.one(&mut ring, "__WCLONE", opts(WEXITED | WNOWAIT | libc::__WCLONE), -libc::ECHILD);
    cx.one(&mut ring, "__WNOTHREAD", opts(WEXITED | WNOWAIT | libc::__WNOTHREAD), 0);
    Ok(())
}

fn no_child(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut info = BLANK;
    let own = std::process::id() as i32;
    cx.each(&mut ring, &[
        ("none at all", wait(P_ALL, 0, WEXITED, &mut info), -libc::ECHILD),
        ("ourselves", wait(P_PID, own, WEXITED, &mut info), -libc::ECHILD),
        ("not ours", wait(P_PID, 1, WEXITED, &mut info), -libc::ECHILD),
        ("nobody", wait(P_PID, i32::MAX, WEXITED, &mut info), -libc::ECHILD),
        ("no group", wait(P_PGID, i32::MAX, WEXITED, &mut info), -libc::ECHILD),
        ("WNOHANG", wait(P_ALL, 0, WEXITED | WNOHANG, &mut info), -libc::ECHILD),
    ]);
    note_info(cx, &info, 0);
    let (pid, w) = child(cx, 3)?;
    info = BLANK;
    // Another call reaps the child that the request waits for.
    cx.start(&mut ring, &[wait(P_PID, pid, WSTOPPED, &mut info).ud(1)]);
    cx.quiet(&ring, "waits", 20);
    drop(w);
    cx.is("taken", os::wait_for(pid), 3);
    std::thread::sleep(Duration::from_millis(20));
    cx.reap(&mut ring, "there is none any more", &[(1, -libc::ECHILD)]);
    note_info(cx, &info, pid);
    Ok(())
}

fn ring_closed(cx: &mut Cx) -> Outcome {
    let (pid, w) = child(cx, 3)?;
    let before = os::threads();
    let mut infos = [BLANK; 2];
    {
        let mut ring = cx.ring(8, 0)?;
        let [a, b] = infos.each_mut();
        let sqes = [wait(P_PID, pid, WEXITED, a).ud(1), wait(P_ALL, 0, WEXITED, b).ud(1)];
        cx.start(&mut ring, &sqes);
    }
    // With the trap softring may notice a close two seconds late.
    std::thread::sleep(Duration::from_millis(2200));
    drop(w);
    cx.is("the child was left alone", os::wait_for(pid), 3);
    // softring's reactor thread may have started meanwhile.
    let left = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        os::threads() <= before + 1
    });
    cx.holds("no thread is left", left);
    Ok(())
}

pub(super) fn thread_ends(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (pid, w) = child(cx, 3)?;
    let mut infos = [BLANK; 2];
    let [a, b] = infos.each_mut();
    let own = wait(P_PID, pid, WEXITED, a).ud(1);
    let any = wait(P_ALL, 0, WEXITED, b).ud(2);
    ring.push(own).push(any);
    let n = std::thread::scope(|s| s.spawn(|| ring.submit()).join().unwrap_or(-1));
    cx.is("submitted", n, 2);
    cx.quiet(&ring, "they wait", 20);
    drop(w);
    os::wait_until_zombie(pid);
    std::thread::sleep(Duration::from_millis(50));
    let _ = ring.enter(0, 0, IORING_ENTER_GETEVENTS);
    let n = ring.cq_ready() as usize;
    sorted(cx, &mut ring, "the child ends", n)?;
    cx.note_answer("the child", os::wait_for(pid));
    Ok(())
}
