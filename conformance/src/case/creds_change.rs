//! Rights that the process changes while its requests are under way.

use super::creds::{file_of_root, open};
use super::prelude::*;
use crate::rights::{self, NOBODY};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::ffi::CStr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!("creds_change", while_one_opens, [
        Sqe(IOSQE_ASYNC),
        Reg(IORING_REGISTER_PERSONALITY),
    ], "the process changes its ids while a request with others is under way"),
    case!("creds_change", to_and_fro, [
        Sqe(IOSQE_ASYNC),
        Setup(IORING_SETUP_SQPOLL),
    ], "again and again, while files are opened: by the old rights or by the new"),
];

fn while_one_opens(cx: &mut Cx) -> Outcome {
    let of_root = file_of_root(cx)?;
    let fifo = cx.path("fifo")?;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666))?;
    std::fs::set_permissions(cx.dir()?.join("fifo"), PermissionsExt::from_mode(0o666))?;
    let mut ring = cx.ring(4, 0)?;
    cx.holds("as nobody", rights::effective_user(NOBODY));
    let nobody = ring.register(IORING_REGISTER_PERSONALITY, 0, 0);
    cx.holds("as root", rights::effective_user(0));
    cx.is("personality", nobody, 1);
    // It waits for somebody who writes.
    let reader = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(fifo.as_c_str()), 0, 0);
    let reader = io_uring_sqe { personality: 1, ..reader.with(IOSQE_ASYNC).ud(1) };
    cx.is("submitted", ring.push(reader).submit(), 1);
    std::thread::sleep(Duration::from_millis(20));
    cx.holds("as nobody, meanwhile", rights::effective_user(NOBODY));
    let second = ring.push(open(&of_root).ud(2)).submit_wait(1);
    let refused = ring.take(1);
    cx.holds("as root, meanwhile", rights::effective_user(0));
    cx.is("submitted", second, 1);
    let refused = refused?;
    cx.is("refused", refused[0].res, -EACCES);
    cx.is("it is the second", refused[0].user_data as i32, 2);
    let writer = std::fs::File::options().write(true).open(cx.dir()?.join("fifo"))?;
    let opened = ring.take(1)?;
    cx.is("opened", opened[0].res.min(0), 0);
    opened.iter().filter(|c| c.res >= 0).for_each(|c| drop(os::own(c.res)));
    drop(writer);
    Ok(())
}

fn to_and_fro(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    for flags in [0, IORING_SETUP_SQPOLL] {
        let mut ring = cx.ring(4, flags)?;
        let done = AtomicBool::new(false);
        let (changed, odd) = std::thread::scope(|s| {
            let changes = s.spawn(|| {
                let mut all = true;
                while !done.load(Relaxed) {
                    all &= rights::effective_user(NOBODY) && rights::effective_user(0);
                }
                all
            });
            let odd = odd_answers(&mut ring, &path, flags);
            done.store(true, Relaxed);
            (changes.join().unwrap_or_default(), odd)
        });
        cx.holds("as root", rights::effective_user(0));
        cx.holds("all changes are made", changed);
        cx.is("other answers", odd, 0);
    }
    Ok(())
}

/// How many of many opens answer what neither root nor nobody is told. Whoever made the ring
/// decides for an SQ thread, and that was root.
fn odd_answers(ring: &mut Ring, path: &CStr, flags: u32) -> usize {
    let threaded = flags & IORING_SETUP_SQPOLL != 0;
    let mut odd = 0;
    for n in 0..400u32 {
        ring.push(open(path).with(if n % 2 == 0 { IOSQE_ASYNC } else { 0 }));
        if threaded {
            super::sqpoll::go(ring);
        } else {
            ring.submit();
        }
        // Each change interrupts waits.
        let res = loop {
            match ring.pop() {
                Some(cqe) => break cqe.res,
                None => ring.enter(0, 1, IORING_ENTER_GETEVENTS),
            };
        };
        if res >= 0 {
            drop(os::own(res));
        }
        odd += usize::from(res.min(0) != 0 && (threaded || res != -EACCES));
    }
    odd
}
