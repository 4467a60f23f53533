//! Kinds of requests that wait, each with the event that it waits for and with a check whether its
//! completion agrees with the state that is left.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use fastrand::Rng;
use rustix::io::ioctl_fionread;

use super::super::pbuf::Pbufs;
use super::super::{Check, Fault, ensure, sys};
use super::child::waitid;
use super::data::{READERS, WATCHERS, WRITERS, direct, reader, watcher, writer};
use super::tcp::{SENDERS, sender};
use crate::os;
use crate::ring::{Cqe, Map};
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

/// The group of provided buffers that the multishot kinds use.
pub const GROUP: u16 = 7;

/// Internal errno that no program should see, and that the kernel's workers return from OPENAT and
/// SPLICE.
const ERESTARTSYS: i32 = 512;

type Account = Box<dyn Fn(&[Vec<Cqe>], &mut Pbufs) -> Check + Sync>;

/// A request that waits, or a chain headed by one.
pub struct Waiting {
    pub name: &'static str,
    pub sqes: Vec<io_uring_sqe>,
    /// The file that it waits on, -1 if none.
    pub fd: RawFd,
    /// Function that causes the awaited event.
    pub happen: Box<dyn Fn() + Sync>,
    /// Check whether its completions, one list for each SQE, agree with the state that is left.
    pub account: Account,
    /// Memory that its SQEs name.
    pub(super) page: Map,
}

impl Waiting {
    /// Makes the kind's own removal request, if its opcode has one.
    pub fn removal(&self, number: u64) -> io_uring_sqe {
        let op = match self.sqes[0].opcode {
            IORING_OP_POLL_ADD => IORING_OP_POLL_REMOVE,
            IORING_OP_TIMEOUT => IORING_OP_TIMEOUT_REMOVE,
            _ => return sqe::cancel(number, 0),
        };
        sqe::op(op, -1).set(|s| s.addr = number)
    }
}

pub(super) fn wrong(e: impl std::fmt::Display) -> Fault {
    format!("making a request: {e}")
}

/// Ignores the result of an event that may come too late.
pub(super) fn ignore<T>(_: T) {}

pub(super) fn page() -> Check<Map> {
    Map::anonymous(4096).map_err(wrong)
}

/// Returns the number of bytes that completions brought.
pub(super) fn took(cqes: &[Cqe]) -> usize {
    cqes.iter().map(|c| c.res.max(0) as usize).sum()
}

pub(super) fn unread(fd: &impl std::os::fd::AsFd) -> usize {
    ioctl_fionread(fd).unwrap_or(0) as usize
}

/// Returns whether a cancelled or interrupted request may have this result.
pub(super) fn ended(res: i32) -> bool {
    [-libc::ECANCELED, -libc::EINTR, -ERESTARTSYS].contains(&res)
}

pub(super) fn one_of(cqes: &[Cqe], fine: impl Fn(i32) -> bool) -> Check {
    let odd = cqes.iter().find(|c| !fine(c.res) && !ended(c.res));
    ensure(odd.is_none(), || "an odd result".into())
}

pub(super) fn balance(took: usize, left: usize, sum: usize) -> Check {
    ensure(took + left == sum, || format!("{took} taken, {left} left, of {sum}"))
}

pub(super) fn pipe() -> Check<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(wrong)
}

fn epoll_wait() -> Check<Waiting> {
    let page = page()?;
    let (r, w) = pipe()?;
    let set = os::edge_set(r.as_raw_fd());
    let fd = set.as_raw_fd();
    Ok(Waiting {
        name: "EPOLL_WAIT",
        sqes: vec![sqe::rw(IORING_OP_EPOLL_WAIT, fd, page.addr, 4, 0)],
        fd,
        happen: Box::new(move || ignore(rustix::io::write(&w, b"x"))),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res == 1)?;
            let left = usize::from(os::events_now(&set) != 0);
            balance(took(&cqes[0]), left, unread(&r))
        }),
        page,
    })
}

fn eventfd() -> Check<Waiting> {
    let page = page()?;
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let event = Arc::new(rustix::event::eventfd(0, flags).map_err(wrong)?);
    let (fd, to) = (event.as_raw_fd(), event.clone());
    Ok(Waiting {
        name: "READ of an eventfd",
        sqes: vec![sqe::rw(IORING_OP_READ, fd, page.addr, 8, u64::MAX)],
        fd,
        happen: Box::new(move || ignore(rustix::io::write(&to, &1u64.to_ne_bytes()))),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res == 8)?;
            let left = usize::from(os::poll(event.as_raw_fd(), libc::POLLIN, 0) > 0);
            balance(took(&cqes[0]) / 8, left, 1)
        }),
        page,
    })
}

/// Counts the connections that nobody has accepted yet.
fn pending(listener: &UnixListener) -> usize {
    let _ = listener.set_nonblocking(true);
    std::iter::from_fn(|| listener.accept().ok()).count()
}

fn accept(name: &'static str, ioprio: u16, flags: u8) -> Check<Waiting> {
    let page = page()?;
    let (sock, len) = sys::abstract_listener(page.addr, 0)?;
    let (client, to) = (sys::unix_socket()?, page.addr);
    let fd = sock.as_raw_fd();
    let listener = UnixListener::from(sock);
    let accept = sqe::op(IORING_OP_ACCEPT, fd).op_flags(libc::SOCK_CLOEXEC as u32);
    Ok(Waiting {
        name,
        sqes: vec![accept.set(|s| s.ioprio = ioprio).with(flags)],
        fd,
        happen: Box::new(move || sys::connect_to(client.as_raw_fd(), to, len)),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res >= 0)?;
            let taken: Vec<_> =
                cqes[0].iter().filter(|c| c.res >= 0).map(|c| os::own(c.res)).collect();
            balance(taken.len(), pending(&listener), 1)
        }),
        page,
    })
}

/// Makes a connection to a listener with a full backlog, until one of its connections is accepted.
fn connect() -> Check<Waiting> {
    let page = page()?;
    let (sock, len) = sys::abstract_listener(page.addr, 0)?;
    let (first, second) = (sys::unix_socket()?, sys::unix_socket()?);
    sys::connect_to(first.as_raw_fd(), page.addr, len);
    let fd = second.as_raw_fd();
    let listener = Arc::new(UnixListener::from(sock));
    let from = listener.clone();
    Ok(Waiting {
        name: "CONNECT",
        sqes: vec![sqe::rw(IORING_OP_CONNECT, fd, page.addr, 0, len)],
        fd,
        happen: Box::new(move || drop(from.accept())),
        account: Box::new(move |cqes, _| {
            let _open = (&first, &second);
            // A socket that must not block does not wait for a full listener.
            one_of(&cqes[0], |res| res == 0 || res == -libc::EAGAIN)?;
            balance(pending(&listener), 0, usize::from(cqes[0][0].res == 0))
        }),
        page,
    })
}

fn futex(several: bool) -> Check<Waiting> {
    let page = page()?;
    let woke = Arc::new(AtomicI64::new(0));
    let (told, at) = (woke.clone(), page.addr);
    let one = sqe::rw(IORING_OP_FUTEX_WAIT, 2, at, 0, 0).set(|s| s.addr3 = u32::MAX.into());
    for i in 0..2 {
        sys::store(at + 64 + i * 24, [0u64, (at + i * 4) as u64, 2]);
    }
    let any = sqe::rw(IORING_OP_FUTEX_WAITV, 0, at + 64, 2, 0);
    Ok(Waiting {
        name: if several { "FUTEX_WAITV" } else { "FUTEX_WAIT" },
        sqes: vec![if several { any } else { one }],
        fd: -1,
        happen: Box::new(move || {
            told.store(os::futex_wake(sys::word32(at), 9, u32::MAX), SeqCst);
        }),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res == 0)?;
            let woken = i64::from(cqes[0][0].res == 0);
            let told = woke.load(SeqCst);
            // On the kernel a wake is lost if it meets the cancel of a wait for several.
            let lost = several && told == 1 && ended(cqes[0][0].res);
            ensure(lost || told == woken, || {
                format!("{told} told that they were woken, {woken} were")
            })
        }),
        page,
    })
}

/// Writes a time of up to `most` microseconds to `at`.
fn put_time(rng: &mut Rng, at: usize, most: i64) -> u64 {
    sys::store(at, [0, rng.i64(1..most) * 1000]);
    at as u64
}

fn timeout(rng: &mut Rng, multishot: bool) -> Check<Waiting> {
    let page = page()?;
    let at = put_time(rng, page.addr, 150);
    let (flags, count) = if multishot { (IORING_TIMEOUT_MULTISHOT, 3) } else { (0, 0) };
    let sqe = sqe::rw(IORING_OP_TIMEOUT, -1, at as usize, 1, count).op_flags(flags);
    Ok(Waiting {
        name: if multishot { "TIMEOUT multishot" } else { "TIMEOUT" },
        sqes: vec![sqe],
        fd: -1,
        happen: Box::new(|| ()),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res == -libc::ETIME)?;
            ensure(cqes[0].len() <= 1.max(count as usize), || "too many shots".into())
        }),
        page,
    })
}

fn link_timeout(rng: &mut Rng) -> Check<Waiting> {
    let mut w = reader("RECV with a LINK_TIMEOUT", true, READERS[0].2)?;
    let at = put_time(rng, w.page.addr + 256, 1000);
    w.sqes[0].flags |= IOSQE_IO_LINK;
    w.sqes.push(sqe::rw(IORING_OP_LINK_TIMEOUT, -1, at as usize, 1, 0));
    let recv = w.account;
    w.account = Box::new(move |cqes, pbufs| {
        // The kernel itself gives EINVAL if the head ends before its timeout is armed.
        let odd = [-libc::ETIME, -libc::EALREADY, -libc::ENOENT, -libc::EINVAL];
        one_of(&cqes[1], |res| odd.contains(&res))?;
        recv(cqes, pbufs)
    });
    Ok(w)
}

/// Makes an open of a FIFO that nobody writes to.
fn fifo() -> Check<Waiting> {
    let page = page()?;
    let path = std::env::temp_dir().join(sys::new_name());
    let path = path.into_os_string().into_encoded_bytes();
    (0..path.len()).for_each(|i| sys::store(page.addr + i, path[i]));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path[..], mode).map_err(wrong)?;
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, page.addr, 0, 0);
    let writer = Arc::new(std::sync::Mutex::new(None));
    let kept = writer.clone();
    Ok(Waiting {
        name: "OPENAT of a FIFO",
        sqes: vec![open.op_flags(libc::O_CLOEXEC as u32).with(IOSQE_ASYNC)],
        fd: -1,
        happen: {
            let path = path.clone();
            Box::new(move || {
                let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NONBLOCK;
                let flags = flags | rustix::fs::OFlags::CLOEXEC;
                let open = rustix::fs::open(&path[..], flags, rustix::fs::Mode::empty());
                *kept.lock().expect("nobody panics with it") = open.ok();
            })
        },
        account: Box::new(move |cqes, _| {
            drop(writer.lock().expect("nobody panics with it").take());
            let _ = rustix::fs::unlink(&path[..]);
            one_of(&cqes[0], |res| res >= 0)?;
            cqes[0].iter().filter(|c| c.res >= 0).for_each(|c| drop(os::own(c.res)));
            Ok(())
        }),
        page,
    })
}

fn splice() -> Check<Waiting> {
    let ((r, w), (r2, w2)) = (pipe()?, pipe()?);
    let none = u64::MAX;
    let splice = sqe::rw(IORING_OP_SPLICE, w2.as_raw_fd(), 0, 1, none).set(|s| {
        (s.addr, s.file_index) = (none, r.as_raw_fd().cast_unsigned());
    });
    Ok(Waiting {
        name: "SPLICE",
        sqes: vec![splice],
        fd: -1,
        happen: Box::new(move || ignore(rustix::io::write(&w, b"x"))),
        account: Box::new(move |cqes, _| {
            let _open = &w2;
            one_of(&cqes[0], |res| res == 1)?;
            balance(unread(&r2), 0, took(&cqes[0]))?;
            balance(unread(&r2), unread(&r), 1)
        }),
        page: page()?,
    })
}

/// Kinds that are made only now and then.
const SELDOM: [&str; 4] =
    ["WAITID", "WAITID of a group", "OPENAT of a FIFO", "READ of an O_DIRECT file"];

/// Makes one of each kind, except for some that are left out.
pub fn some_of_each(rng: &mut Rng) -> Check<Vec<Waiting>> {
    let mut all = Vec::new();
    let left_out = rng.u32(..4);
    let mut add = |rng: &mut Rng, w: Check<Waiting>| -> Check {
        let w = w?;
        if rng.u32(..4) >= left_out || SELDOM.contains(&w.name) {
            all.push(w);
        }
        Ok(())
    };
    for &(name, socket, sqe) in READERS {
        add(rng, reader(name, socket, sqe))?;
    }
    for &(name, socket, sqe) in WRITERS {
        add(rng, writer(name, socket, sqe))?;
    }
    for &(name, sqe) in SENDERS {
        add(rng, sender(name, sqe))?;
    }
    for &(name, sqe) in WATCHERS {
        add(rng, watcher(name, sqe))?;
    }
    add(rng, epoll_wait())?;
    add(rng, eventfd())?;
    add(rng, accept("ACCEPT", 0, 0))?;
    add(rng, accept("ACCEPT multishot", IORING_ACCEPT_MULTISHOT, 0))?;
    add(rng, accept("ACCEPT in a worker", 0, IOSQE_ASYNC))?;
    add(rng, connect())?;
    add(rng, futex(false))?;
    add(rng, futex(true))?;
    let (once, many) = (timeout(rng, false), timeout(rng, true));
    add(rng, once)?;
    add(rng, many)?;
    let linked = link_timeout(rng);
    add(rng, linked)?;
    add(rng, splice())?;
    if rng.bool() {
        add(rng, fifo())?;
    }
    // These take time to make.
    match rng.u32(..8) {
        0 | 1 => add(rng, waitid(false))?,
        2 | 3 => add(rng, waitid(true))?,
        4 => add(rng, direct())?,
        _ => {}
    }
    Ok(all)
}
