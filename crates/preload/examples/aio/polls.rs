//! Events of an IOCB_CMD_POLL. For a file that is ready at once they are those asked for; for a
//! file that was waited for, all that woke the waiter.

use super::Case;
use super::sys::*;
use libc::{EINVAL, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("polls_pipe", pipe),
    ("polls_unix", unix),
    ("polls_tcp", tcp),
    ("polls_udp", udp),
    ("polls_eventfd", eventfd),
    ("polls_files", files),
    ("polls_end_at_once", end_at_once),
    ("polls_used_again", used_again),
];

/// Events of sockets with data: POLLIN, POLLPRI, POLLRDNORM, POLLRDBAND.
const DATA: i64 = 0xc3;
/// Events of sockets with room: POLLOUT, POLLWRNORM, POLLWRBAND.
const ROOM: i64 = 0x304;
const ALL: i16 = 0x7fff;

fn poll_of(fd: RawFd, events: i16) -> Iocb {
    Iocb { opcode: POLL, fd, buf: events as u64, ..Iocb::default() }
}

fn at_once(fd: RawFd, events: i16, want: i64) {
    let aio = Aio::new(4);
    assert_eq!(aio.submit(&[&poll_of(fd, events)]), 1);
    assert_eq!(aio.all(1)[0].res, want, "{events:#x} at once");
}

/// Polls a file that is not ready until `act`.
fn later(fd: RawFd, events: i16, act: impl FnOnce(), want: i64) {
    let aio = Aio::new(4);
    assert_eq!(aio.submit(&[&poll_of(fd, events)]), 1);
    assert_eq!(aio.wait(1, &mut [Event::default()], Some(10)), 0, "{events:#x} waits");
    act();
    assert_eq!(aio.all(1)[0].res, want, "{events:#x} later");
}

/// Submits one iocb again and again: it is the program's again as soon as it is submitted. A
/// cancellation finds each earlier poll, the oldest first, whether the event of the last was taken
/// or not.
fn used_again() {
    const ROUNDS: usize = 20;
    let aio = Aio::new(4 * ROUNDS as u32);
    let (reader, _writer) = std::io::pipe().unwrap();
    let poll = poll_of(reader.as_raw_fd(), POLLIN);
    for polls in [1, 3] {
        for _ in 0..ROUNDS {
            for _ in 0..polls {
                assert_eq!(aio.submit(&[&poll]), 1);
            }
            for _ in 0..polls {
                assert_eq!(aio.cancel(&poll), err(libc::EINPROGRESS));
            }
            assert_eq!(aio.cancel(&poll), err(EINVAL));
        }
        assert_eq!(aio.all(polls * ROUNDS).len(), polls * ROUNDS);
    }
}

/// A context with many polls ends soon. This holds for most rounds only, as others may want the
/// processor.
fn end_at_once() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let poll = poll_of(reader.as_raw_fd(), POLLIN);
    let round = |_| {
        let aio = std::mem::ManuallyDrop::new(Aio::new(240));
        for _ in 0..240 {
            assert_eq!(aio.submit(&[&poll]), 1);
        }
        let begun = Instant::now();
        assert_eq!(aio.destroy(), 0);
        begun.elapsed()
    };
    let mut times: Vec<_> = (0..9).map(round).collect();
    times.sort();
    assert!(times[4] < Duration::from_millis(60), "{times:?}");
}

/// Writes until there is no room.
fn fill(fd: RawFd) {
    // SAFETY: a number, and bytes of ours.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        while libc::write(fd, [0u8; 4096].as_ptr().cast(), 4096) > 0 {}
    }
}

fn empty(mut from: impl Read) {
    let mut some = [0; 65536];
    while from.read(&mut some).is_ok_and(|n| n > 0) {}
}

fn pipe() {
    let hup = i64::from(POLLHUP);
    let make = || std::io::pipe().unwrap();
    for events in [POLLIN, POLLRDNORM, POLLIN | POLLOUT, ALL] {
        let (r, mut w) = make();
        let both = i64::from(POLLIN | POLLRDNORM);
        later(r.as_raw_fd(), events, || w.write_all(b"xy").unwrap(), both);
        at_once(r.as_raw_fd(), events, both & i64::from(events));
        let (r, w) = make();
        later(r.as_raw_fd(), events, || drop(w), hup);
        at_once(r.as_raw_fd(), events, hup);
    }
    for events in [POLLOUT, POLLWRNORM, ALL] {
        let ((mut r, w), both) = (make(), i64::from(POLLOUT | POLLWRNORM));
        fill(w.as_raw_fd());
        let read = || assert!(r.read(&mut [0; 65536]).unwrap() > 0);
        later(w.as_raw_fd(), events, read, both);
        at_once(w.as_raw_fd(), events, both & i64::from(events));
    }
    let (r, w) = make();
    fill(w.as_raw_fd());
    later(w.as_raw_fd(), POLLIN, || drop(r), POLLERR.into());
}

fn unix() {
    let hup = i64::from(POLLHUP);
    let make = || UnixStream::pair().unwrap();
    for events in [POLLIN, POLLRDNORM, POLLPRI, POLLIN | POLLRDHUP] {
        let (s, mut peer) = make();
        later(s.as_raw_fd(), events, || peer.write_all(b"xy").unwrap(), DATA);
        let (s, peer) = make();
        let asked = i64::from(events & (POLLIN | POLLRDNORM | POLLRDHUP));
        later(s.as_raw_fd(), events, || drop(peer), asked | hup);
        at_once(s.as_raw_fd(), events, asked | hup);
    }
    let (s, peer) = make();
    let shut = || peer.shutdown(std::net::Shutdown::Write).unwrap();
    later(s.as_raw_fd(), POLLIN, shut, POLLIN.into());
    let (s, peer) = make();
    fill(s.as_raw_fd());
    peer.set_nonblocking(true).unwrap();
    later(s.as_raw_fd(), POLLIN | POLLOUT, || empty(&peer), ROOM);
    at_once(s.as_raw_fd(), POLLIN | POLLOUT, POLLOUT.into());
}

fn tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let make = || {
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, peer)
    };
    let (s, mut peer) = make();
    later(s.as_raw_fd(), POLLIN, || peer.write_all(b"xy").unwrap(), DATA);
    at_once(s.as_raw_fd(), POLLIN | POLLOUT, (POLLIN | POLLOUT).into());
    let (s, peer) = make();
    later(s.as_raw_fd(), POLLIN, || drop(peer), POLLIN.into());
    let (s, peer) = make();
    let both = POLLIN | POLLRDHUP;
    later(s.as_raw_fd(), both, || peer.shutdown(std::net::Shutdown::Write).unwrap(), both.into());
}

fn udp() {
    let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let send = || assert_eq!(b.send_to(b"xy", a.local_addr().unwrap()).unwrap(), 2);
    later(a.as_raw_fd(), POLLIN, send, DATA);
    at_once(a.as_raw_fd(), POLLIN, POLLIN.into());
}

fn eventfd() {
    // SAFETY: a fresh descriptor.
    let mut e = unsafe { std::fs::File::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
    let fd = e.as_raw_fd();
    later(fd, POLLIN | POLLRDNORM, || e.write_all(&7u64.to_ne_bytes()).unwrap(), POLLIN.into());
    at_once(fd, ALL, (POLLIN | POLLOUT).into());
}

/// Polls files that nobody can wait for, or only in two places: they are ready at once, or refused.
fn files() {
    let (terminal, _other) = terminal();
    let (fifo, mut writer) = fifo();
    for fd in [terminal.as_raw_fd(), fifo.as_raw_fd()] {
        assert_eq!(Aio::new(4).submit(&[&poll_of(fd, POLLIN)]), err(EINVAL));
        at_once(fd, POLLIN | POLLOUT, POLLOUT.into());
    }
    writer.write_all(b"x").unwrap();
    at_once(fifo.as_raw_fd(), POLLIN, POLLIN.into());

    let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let dir = std::fs::File::open("/").unwrap();
    for fd in [file(false, 1), file(true, 1), null, dir].map(OwnedFd::from) {
        let fd = fd.as_raw_fd();
        at_once(fd, POLLIN, POLLIN.into());
        at_once(fd, ALL, (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM).into());
        for events in [0, POLLPRI, POLLRDHUP] {
            assert_eq!(Aio::new(4).submit(&[&poll_of(fd, events)]), err(EINVAL), "{events:#x}");
        }
    }
}

/// Opens a pseudo-terminal; returns the master's end and the terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave, none) = (-1, -1, std::ptr::null_mut());
    // SAFETY: two live ints, which become fresh descriptors; the rest is not asked for.
    unsafe {
        let size = std::ptr::null_mut();
        let done = libc::openpty(&raw mut master, &raw mut slave, none, std::ptr::null_mut(), size);
        assert_eq!(done, 0);
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// Opens a FIFO for both reading and writing; returns it and its end to write.
fn fifo() -> (std::fs::File, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let name = format!("/proc/self/fd/{}", reader.as_raw_fd());
    (std::fs::File::options().read(true).write(true).open(name).unwrap(), writer)
}
