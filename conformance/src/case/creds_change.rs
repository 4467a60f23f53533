//! Credentials that the process changes while its requests are in flight.

use super::creds::{file_of_root, need_root, open, opens, thread_opens, unix_address};
use super::prelude::*;
use crate::rights::{self, NOBODY};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::ffi::CStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("creds_change", ids_change_during_open, [
        Sqe(IOSQE_ASYNC),
        Reg(IORING_REGISTER_PERSONALITY),
    ], "the process changes its ids while a request with other ids is in progress"),
    case!("creds_change", ids_change_repeatedly, [
        Sqe(IOSQE_ASYNC),
        Setup(IORING_SETUP_SQPOLL),
    ], "ids change repeatedly while files are opened, by the old rights or the new"),
    legal!("creds_change", fsuid_follows_euid, [
        Op(IORING_OP_OPENAT),
        Reg(IORING_REGISTER_PERSONALITY),
    ], "the filesystem ids follow the effective ids back and forth"),
    legal!("creds_change", peer_credentials, [
        Setup(IORING_SETUP_SQPOLL),
        Op(IORING_OP_CONNECT),
    ], "a peer sees the credentials of the ring's creator"),
    legal!("creds_change", sq_thread_after_unshare, [
        Setup(IORING_SETUP_SQPOLL),
    ], "an SQ thread continues after a thread unshares its files"),
    legal!("creds_change", personality_after_unshare, [
        Reg(IORING_REGISTER_PERSONALITY),
    ], "a personality works after a thread unshares its files"),
];

fn ids_change_during_open(cx: &mut Cx) -> Outcome {
    let of_root = file_of_root(cx)?;
    let fifo = cx.path("fifo")?;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666))?;
    std::fs::set_permissions(cx.dir()?.join("fifo"), PermissionsExt::from_mode(0o666))?;
    let mut ring = cx.ring(4, 0)?;
    cx.holds("as nobody", rights::effective_user(NOBODY));
    let nobody = ring.register(IORING_REGISTER_PERSONALITY, 0, 0);
    cx.holds("as root", rights::effective_user(0));
    cx.is("personality", nobody, 1);
    // The open waits for a writer of the FIFO.
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

fn ids_change_repeatedly(cx: &mut Cx) -> Outcome {
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
            let odd = unexpected_answers(&mut ring, &path, flags);
            done.store(true, Relaxed);
            (changes.join().unwrap_or_default(), odd)
        });
        cx.holds("as root", rights::effective_user(0));
        cx.holds("all changes are made", changed);
        cx.is("other answers", odd, 0);
    }
    Ok(())
}

/// Counts the opens among many whose answer is neither root's nor nobody's. For an SQ thread the
/// credentials of the ring's creator decide, here root's.
fn unexpected_answers(ring: &mut Ring, path: &CStr, flags: u32) -> usize {
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

/// Makes an open that a worker runs, because it may create a file.
fn make(path: &CStr) -> io_uring_sqe {
    let flags = (libc::O_RDWR | libc::O_CREAT).cast_unsigned();
    sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(path), 0o666, 0).op_flags(flags)
}

/// Registers the personality of a process whose effective user is nobody.
fn personality_of_nobody(cx: &mut Cx, ring: &Ring) -> Result<u16, Stop> {
    cx.holds("as nobody", rights::effective_user(NOBODY));
    let nobody = ring.register(IORING_REGISTER_PERSONALITY, 0, 0);
    cx.holds("as root", rights::effective_user(0));
    cx.is("personality", nobody, 1);
    Ok(nobody as u16)
}

fn fsuid_follows_euid(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    std::fs::set_permissions(cx.dir()?, PermissionsExt::from_mode(0o777))?;
    let (one, two) = (cx.path("one")?, cx.path("two")?);
    let mut ring = cx.ring(8, 0)?;
    rights::file_user(NOBODY);
    let made = opens(&mut ring, make(&one));
    rights::file_user(0);
    cx.is("made as nobody", made, 0);
    cx.holds("the thread is nobody", rights::effective_user_of_thread(NOBODY));
    cx.holds("and root again", rights::effective_user_of_thread(0));
    cx.is("made as root", opens(&mut ring, make(&two)), 0);
    let personality = personality_of_nobody(cx, &ring)?;
    let open = io_uring_sqe { personality, ..open(&path) };
    cx.is("as nobody", opens(&mut ring, open), -EACCES);
    cx.is("by a worker", opens(&mut ring, open.with(IOSQE_ASYNC)), -EACCES);
    Ok(())
}

/// Returns the user that a peer sees (SO_PEERCRED) when an SQ thread connects.
fn connects_as(cx: &mut Cx, ring: &mut Ring, name: &str) -> Result<u32, Stop> {
    let listener = UnixListener::bind(cx.dir()?.join(name))?;
    std::fs::set_permissions(cx.dir()?.join(name), PermissionsExt::from_mode(0o666))?;
    let at = unix_address(&cx.path(name)?);
    let make = sqe::rw(IORING_OP_SOCKET, libc::AF_UNIX, 0, 0, libc::SOCK_STREAM as u64);
    let mut plain = cx.ring(4, 0)?;
    let sock = cx.one_fd(&mut plain, "socket", make)?;
    ring.push(sqe::rw(IORING_OP_CONNECT, sock.as_raw_fd(), addr(&at), 0, at.len() as u64));
    super::sqpoll::go(ring);
    ring.enter(0, 1, IORING_ENTER_GETEVENTS);
    cx.is("connected", ring.take(1)?[0].res, 0);
    let (peer, _) = listener.accept()?;
    Ok(rustix::net::sockopt::socket_peercred(&peer)?.uid.as_raw())
}

fn peer_credentials(cx: &mut Cx) -> Outcome {
    need_root()?;
    std::fs::set_permissions(cx.dir()?, PermissionsExt::from_mode(0o777))?;
    let mut of_root = cx.ring(4, IORING_SETUP_SQPOLL)?;
    cx.holds("as nobody", rights::effective_user(NOBODY));
    let of_nobody = cx.ring(4, IORING_SETUP_SQPOLL);
    let got = connects_as(cx, &mut of_root, "one");
    cx.holds("as root", rights::effective_user(0));
    cx.is("root's ring, as nobody", got? as i32, 0);
    let got = connects_as(cx, &mut of_nobody?, "two")?;
    cx.is("nobody's ring, as root", got as i32, NOBODY as i32);
    Ok(())
}

fn sq_thread_after_unshare(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut before = cx.ring(4, IORING_SETUP_SQPOLL)?;
    let mut after = cx.ring(4, IORING_SETUP_SQPOLL)?;
    let mut made = std::thread::scope(|s| {
        let other = s.spawn(|| {
            let own = rights::own_files();
            let made = cx.ring(4, IORING_SETUP_SQPOLL);
            (own, thread_opens(&mut before, open(&path)), made)
        });
        other.join().map_err(|_| Stop::Fail("the other thread".into()))
    })?;
    cx.holds("files of its own", made.0);
    cx.is("by a ring made before", made.1, 0);
    cx.is("by the other thread", thread_opens(&mut after, open(&path)), 0);
    let made = made.2.as_mut().map_err(|_| Stop::Fail("no ring".into()))?;
    cx.is("by a ring made after", thread_opens(made, open(&path)), 0);
    Ok(())
}

fn personality_after_unshare(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut ring = cx.ring(4, 0)?;
    let personality = personality_of_nobody(cx, &ring)?;
    let open = io_uring_sqe { personality, ..open(&path) };
    cx.is("by a worker", opens(&mut ring, open.with(IOSQE_ASYNC)), -EACCES);
    let other = std::thread::spawn(move || {
        let own = rights::own_files();
        (own, opens(&mut ring, open), opens(&mut ring, open.with(IOSQE_ASYNC)), path)
    });
    let (own, at_once, by_worker, _) =
        other.join().map_err(|_| Stop::Fail("the other thread".into()))?;
    cx.holds("files of its own", own);
    cx.is("with files of its own", at_once, -EACCES);
    cx.is("with them, by a worker", by_worker, -EACCES);
    Ok(())
}
