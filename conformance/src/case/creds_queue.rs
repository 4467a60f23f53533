//! The credentials of a request that waits for others: in a chain, behind a barrier.

use super::creds::{file_of_root, mkdir, open, unix_address, unlink};
use super::prelude::*;
use crate::rights::{self, NOBODY};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;

pub const CASES: &[Case] = &[
    any_order!("creds_queue", chain_of_other_thread, [
        Sqe(IOSQE_IO_LINK),
    ], "a chain keeps the rights of its submitter when another thread continues it"),
    any_order!("creds_queue", drained_of_other_thread, [
        Sqe(IOSQE_IO_DRAIN),
    ], "a drained request keeps the rights of its submitter"),
    legal!("creds_queue", drained_before_rights_change, [
        Sqe(IOSQE_IO_DRAIN),
    ], "a drained request keeps the rights from its submission although its thread changes them"),
    any_order!("creds_queue", chain_landlock_domain, [Sqe(IOSQE_IO_LINK)], "a chain keeps its Landlock domain when another thread continues it"),
];

/// Starts a thread that gives up rights, submits `sqes` and sleeps. Then makes the pipe readable
/// that the requests wait for, and waits for their CQEs.
fn by_another(
    cx: &mut Cx,
    give_up: fn() -> bool,
    sqes: Vec<io_uring_sqe>,
    pipe: std::os::fd::OwnedFd,
    results: &[(u64, i32)],
) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (tell, told) = channel();
    let (go, wait) = channel::<()>();
    let want = sqes.len();
    let other = std::thread::spawn(move || {
        let given_up = give_up();
        sqes.iter().for_each(|sqe| _ = ring.push(*sqe));
        let submitted = ring.submit();
        let told = tell.send((ring, given_up, submitted));
        // The thread waits until the sender is dropped.
        told.is_ok() && wait.recv().is_err()
    });
    let (mut ring, given_up, submitted) = told.recv().map_err(|e| Stop::Fail(e.to_string()))?;
    cx.holds("given up", given_up);
    cx.is("submitted", submitted, want);
    rustix::io::write(&pipe, b"x")?;
    cx.reap(&mut ring, "answers", results);
    drop(go);
    cx.holds("the thread ends", other.join().unwrap_or_default());
    Ok(())
}

fn chain_of_other_thread(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    for sqe in [unlink(&path), open(&path)] {
        let ((r, w), mut buf) = (cx.pipe()?, [0u8; 1]);
        let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
        let chain = vec![read.link().ud(1), sqe.ud(2)];
        by_another(cx, rights::become_nobody, chain, w, &[(1, 1), (2, -EACCES)])?;
    }
    Ok(())
}

fn drained_of_other_thread(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    for sqe in [unlink(&path), open(&path)] {
        let ((r, w), mut buf) = (cx.pipe()?, [0u8; 1]);
        let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
        let sqes = vec![read.ud(1), sqe.with(IOSQE_IO_DRAIN).ud(2)];
        by_another(cx, rights::become_nobody, sqes, w, &[(1, 1), (2, -EACCES)])?;
    }
    Ok(())
}

/// Submits as nobody behind a barrier that ends when the thread is root again, and the other way
/// round.
fn drained_before_rights_change(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let dir = cx.dir()?;
    let _listener = UnixListener::bind(dir.join("at"))?;
    std::fs::set_permissions(dir.join("at"), PermissionsExt::from_mode(0o600))?;
    let at = unix_address(&cx.path("at")?);
    let mut ring = cx.ring(4, 0)?;
    let make = sqe::rw(IORING_OP_SOCKET, libc::AF_UNIX, 0, 0, libc::SOCK_STREAM as u64);
    for (before, after, want) in [(NOBODY, 0, -EACCES), (0, NOBODY, 0)] {
        let sock = cx.one_fd(&mut ring, "socket", make)?;
        let connect = sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, 110);
        for (what, sqe) in [("connect", connect), ("open", open(&path))] {
            let ((r, w), mut buf) = (cx.pipe()?, [0u8; 1]);
            os::file_ids(before);
            ring.push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1));
            let got = ring.push(sqe.with(IOSQE_IO_DRAIN).ud(2)).submit();
            os::file_ids(after);
            rustix::io::write(&w, b"x")?;
            let results = ring.take(2);
            os::file_ids(0);
            cx.is("submitted", got, 2);
            let res = results?.iter().find(|c| c.user_data == 2).map_or(1, |c| c.res);
            if what == "open" && res >= 0 {
                drop(os::own(res));
            }
            cx.is(&format!("{what}, submitted as {before}"), res.min(0), want);
        }
    }
    Ok(())
}

fn chain_landlock_domain(cx: &mut Cx) -> Outcome {
    let (path, new) = (cx.path("f")?, cx.path("new")?);
    cx.file("f", b"")?;
    if !std::thread::spawn(rights::no_removal).join().unwrap_or_default() {
        return Err(Stop::Skip("this kernel has no Landlock".into()));
    }
    let ((r, w), mut buf) = (cx.pipe()?, [0u8; 1]);
    let read = sqe::read(r.as_raw_fd(), &mut buf, 0);
    let chain = vec![read.link().ud(1), mkdir(&new).link().ud(2), unlink(&path).ud(3)];
    by_another(cx, rights::no_removal, chain, w, &[(1, 1), (2, 0), (3, -EACCES)])
}
