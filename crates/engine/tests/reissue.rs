//! Outcomes of attempts that would block, by the counters: which were ready at arm, how often each
//! was tried, and that no file that can be polled reaches a worker below the cap.
#![allow(unsafe_code)]

mod client;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{Client, sqe};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softring_engine::fds;
use softring_host::limits::MAX_ARMS;
use softring_uapi::*;

const MSG_WAITALL: u32 = 0x100;

fn transfer(opcode: u8, fd: i32, buf: &mut [u8], ud: u64) -> io_uring_sqe {
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    io_uring_sqe { fd, addr, len: buf.len() as u32, ..sqe(opcode, ud) }
}

/// Lets one test run at a time: one of them lets the process have no descriptors.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the counters, in the order of the page, and the number of requests with workers.
fn counts(c: &Client) -> ([u64; 6], u32) {
    let ring = fds::ring(c.fd).unwrap();
    let ctx = ring.read();
    let r = &ctx.stats.reissue;
    let all = [&r.at_once, &r.armed, &r.ready_at_arm, &r.reissued, &r.aborted, &r.capped];
    (all.map(softring_engine::stats::Count::get), ctx.drive.transports.workers)
}

fn submit(c: &Client, n: u32) {
    assert_eq!(softring_engine::syscall::enter(c.fd, n, 0, 0, 0, 8), n as isize);
}

fn results(c: &Client) -> Vec<(u64, i32)> {
    let mut all: Vec<_> = std::iter::from_fn(|| c.pop()).map(|e| (e.user_data, e.res)).collect();
    all.sort_unstable();
    all
}

#[test]
fn ready_at_once_at_arm_and_later() {
    let _guard = one_at_a_time();
    let c = Client::new(8, 0);
    let (mut one, two) = UnixStream::pair().unwrap();
    let (r, w) = rustix::pipe::pipe().unwrap();
    let (mut a, mut b, mut x) = ([0; 1], [0; 1], *b"x");
    one.write_all(b"1").unwrap();
    c.push(transfer(IORING_OP_RECV, two.as_raw_fd(), &mut a, 1));
    submit(&c, 1);
    assert_eq!(results(&c), [(1, 1)]);
    assert_eq!(counts(&c), ([1, 0, 0, 0, 0, 0], 0));

    // The data come between the attempt and the poll behind the arming.
    c.push(transfer(IORING_OP_READ, r.as_raw_fd(), &mut a, 2));
    c.push(transfer(IORING_OP_WRITE, w.as_raw_fd(), &mut x, 3));
    submit(&c, 2);
    assert_eq!(results(&c), [(2, 1), (3, 1)]);
    assert_eq!(counts(&c), ([2, 1, 1, 1, 0, 0], 0));

    c.push(transfer(IORING_OP_RECV, two.as_raw_fd(), &mut b, 4));
    submit(&c, 1);
    assert_eq!(results(&c), []);
    one.write_all(b"2").unwrap();
    assert!(c.enter(0, 1) >= 0);
    assert_eq!(results(&c), [(4, 1)]);
    assert_eq!(counts(&c), ([2, 2, 1, 2, 0, 0], 0));
}

#[test]
fn a_busy_socket_delays_no_other_request() {
    let _guard = one_at_a_time();
    const LEN: usize = 200;
    const DEFER: u32 = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    for flags in [0, DEFER] {
        let c = Client::new(8, flags);
        let (mut busy, busy_end) = UnixStream::pair().unwrap();
        let (mut calm, calm_end) = UnixStream::pair().unwrap();
        let (mut all, mut one) = ([0; LEN], [0; 1]);
        let recv = transfer(IORING_OP_RECV, busy_end.as_raw_fd(), &mut all, 1);
        c.push(io_uring_sqe { op_flags: MSG_WAITALL, ..recv });
        c.push(transfer(IORING_OP_RECV, calm_end.as_raw_fd(), &mut one, 2));
        submit(&c, 2);
        for i in 1..LEN {
            busy.write_all(b"x").unwrap();
            if i == 50 {
                calm.write_all(b"y").unwrap();
            }
            assert!(c.enter(0, 0) >= 0);
            assert_eq!(results(&c), if i == 50 { vec![(2, 1)] } else { vec![] });
            let ([_, armed, _, reissued, aborted, capped], workers) = counts(&c);
            let (calm_armed, calm_fired) = (1, u64::from(i >= 50));
            let arms = u64::from(MAX_ARMS).min(i as u64 + 1);
            let tries = u64::from(MAX_ARMS).min(i as u64);
            assert_eq!((armed, reissued), (arms + calm_armed, tries + calm_fired), "{i}");
            assert_eq!((aborted, capped), (0, u64::from(i >= usize::from(MAX_ARMS))), "{i}");
            assert_eq!(u64::from(workers), capped, "{i}");
        }
        busy.write_all(b"x").unwrap();
        assert!(c.enter(0, 1) >= 0);
        assert_eq!(results(&c), [(1, LEN as i32)]);
    }
}

#[test]
fn a_request_that_cannot_be_armed_selects_its_buffer_anew() {
    let _guard = one_at_a_time();
    const GROUP: u16 = 3;
    let c = Client::new(8, 0);
    let (mut one, two) = UnixStream::pair().unwrap();
    let mut store = [0u8; 8];
    let give = transfer(IORING_OP_PROVIDE_BUFFERS, 1, &mut store, 1);
    c.push(io_uring_sqe { buf_index: GROUP, ..give });
    submit(&c, 1);
    assert_eq!(results(&c), [(1, 0)]);

    // No number is free for a poll set.
    let was = getrlimit(Resource::Nofile);
    let low = rustix::io::fcntl_dupfd_cloexec(&two, 0).unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(low), ..was }).unwrap();
    let any = sqe(IORING_OP_RECV, 2);
    let flags = IOSQE_BUFFER_SELECT;
    c.push(io_uring_sqe { fd: two.as_raw_fd(), flags, buf_index: GROUP, ..any });
    submit(&c, 1);
    assert_eq!(counts(&c), ([0, 0, 0, 0, 1, 0], 1));
    setrlimit(Resource::Nofile, was).unwrap();
    one.write_all(b"data").unwrap();
    assert!(c.enter(0, 1) >= 0);
    let cqe = c.pop().unwrap();
    assert_eq!((cqe.user_data, cqe.res, cqe.flags & IORING_CQE_F_BUFFER), (2, 4, 1));
    assert_eq!(std::hint::black_box(&store)[..4], *b"data");
}

#[test]
fn listeners_that_had_one_number_each_serve_all_their_waiters() {
    let _guard = one_at_a_time();
    let c = Client::new(8, 0);
    let a = TcpListener::bind("127.0.0.1:0").unwrap();
    let b = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to_a, to_b) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let number = a.into_raw_fd();
    let accept = |ud| c.push(io_uring_sqe { fd: number, ..sqe(IORING_OP_ACCEPT, ud) });
    (1..=2).for_each(accept);
    submit(&c, 2);
    // The number now means the other listener; the requests keep the first one open.
    let closing = fds::before_close(number);
    // SAFETY: the number is ours, and so is what it means from now on.
    let mut other = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::dup2(&b, &mut other).unwrap();
    drop(closing);
    (3..=4).for_each(accept);
    submit(&c, 2);
    for (to, first) in [(to_b, 3), (to_b, 4), (to_a, 1), (to_a, 2)] {
        let _peer = TcpStream::connect(to).unwrap();
        assert_eq!(c.enter(0, 1), 0);
        let cqe = c.pop().unwrap();
        assert_eq!((cqe.user_data, cqe.res >= 0), (first, true));
        // SAFETY: ours since this moment.
        drop(unsafe { OwnedFd::from_raw_fd(cqe.res) });
    }
}

const GROUP: u16 = 3;
const DEFER: u32 = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;

/// Keeps memory that no request outlives.
fn leaked<T: Send + 'static>(value: T) -> u64 {
    static BUFFERS: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());
    let mut value = Box::new(value);
    let addr = std::ptr::from_mut(&mut *value).expose_provenance() as u64;
    BUFFERS.lock().unwrap().push(value);
    addr
}

fn io(opcode: u8, fd: &impl AsRawFd, len: u32) -> io_uring_sqe {
    let addr = leaked([b'x'; 4096]);
    io_uring_sqe { fd: fd.as_raw_fd(), addr, len, ..sqe(opcode, 1) }
}

/// Makes the same request by a vector of one part.
fn vector(opcode: u8, fd: &impl AsRawFd, len: u64) -> io_uring_sqe {
    io_uring_sqe { addr: leaked([leaked([b'x'; 4096]), len]), len: 1, ..io(opcode, fd, 0) }
}

/// Makes the same request by a message: no name, one part, no control data.
fn message(opcode: u8, fd: &impl AsRawFd, len: u64) -> io_uring_sqe {
    let parts = leaked([leaked([b'x'; 4096]), len]);
    io_uring_sqe { addr: leaked([0, 0, parts, 1, 0, 0, 0u64]), len: 1, ..io(opcode, fd, 0) }
}

fn picks(s: io_uring_sqe) -> io_uring_sqe {
    let off = if s.opcode == IORING_OP_READ_MULTISHOT { u64::MAX } else { 0 };
    io_uring_sqe { addr: 0, len: 0, off, buf_index: GROUP, flags: IOSQE_BUFFER_SELECT, ..s }
}

/// Request that has to wait; function that makes it ready, and returns what is to stay open;
/// result.
type Row = (&'static str, io_uring_sqe, Box<dyn FnOnce() -> Box<dyn std::any::Any>>, i32);

fn row<T: 'static>(
    what: &'static str,
    request: io_uring_sqe,
    ready: impl FnOnce() -> T + 'static,
    res: i32,
) -> Row {
    (what, request, Box::new(|| Box::new(ready())), res)
}

/// Opens a terminal: its master's end, and itself.
fn terminal() -> (File, File) {
    const TIOCSPTLCK: rustix::ioctl::Opcode = 0x4004_5431;
    const TIOCGPTN: rustix::ioctl::Opcode = 0x8004_5430;
    const O_NOCTTY: i32 = 0o400;
    let open = |path: &str| {
        OpenOptions::new().read(true).write(true).custom_flags(O_NOCTTY).open(path).unwrap()
    };
    let master = open("/dev/ptmx");
    // SAFETY: the one takes an int, the other gives one.
    let number = unsafe {
        rustix::ioctl::ioctl(&master, rustix::ioctl::Setter::<TIOCSPTLCK, i32>::new(0)).unwrap();
        rustix::ioctl::ioctl(&master, rustix::ioctl::Getter::<TIOCGPTN, i32>::new()).unwrap()
    };
    let slave = open(&format!("/dev/pts/{number}"));
    (master, slave)
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Writes until nothing more fits; returns whether anything was written.
fn fill(to: &impl std::os::fd::AsFd) -> bool {
    rustix::io::ioctl_fionbio(to, true).unwrap();
    let written = std::iter::from_fn(|| rustix::io::write(to, &[0; 4096]).ok()).count();
    rustix::io::ioctl_fionbio(to, false).is_ok() && written > 0
}

/// Reads until nothing more is there: all that `fill` wrote.
fn drain<T: std::os::fd::AsFd>(from: T) -> T {
    rustix::io::ioctl_fionbio(&from, true).unwrap();
    while rustix::io::read(&from, &mut [0; 4096]).is_ok() {}
    from
}

fn files() -> Vec<Row> {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::time::*;
    let write = |w: OwnedFd, bytes: &'static [u8]| {
        rustix::io::write(&w, bytes).unwrap();
        w
    };
    let mut rows = Vec::new();
    for opcode in [IORING_OP_READ, IORING_OP_READV, IORING_OP_READ_MULTISHOT] {
        let (r, w) = rustix::pipe::pipe().unwrap();
        let s = match opcode {
            IORING_OP_READV => vector(opcode, &r, 3),
            IORING_OP_READ_MULTISHOT => picks(io(opcode, &r, 0)),
            _ => io(opcode, &r, 3),
        };
        rows.push(row("a pipe", s, move || (r, write(w, b"abc")), 3));
    }
    let (r, w) = rustix::pipe::pipe().unwrap();
    fill(&w);
    rows.push(row("a full pipe", io(IORING_OP_WRITE, &w, 3), || (drain(r), w), 3));
    let e = eventfd(0, EventfdFlags::empty()).unwrap();
    let s = io(IORING_OP_READ, &e, 8);
    rows.push(row("an eventfd", s, move || write(e, &[1, 0, 0, 0, 0, 0, 0, 0]), 8));
    let t = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).unwrap();
    let s = io(IORING_OP_READ, &t, 8);
    let soon = move || {
        let (it_interval, it_value) =
            (Timespec::default(), Timespec { tv_sec: 0, tv_nsec: 5_000_000 });
        let once = Itimerspec { it_interval, it_value };
        timerfd_settime(&t, TimerfdTimerFlags::empty(), &once).unwrap();
        t
    };
    rows.push(row("a timerfd", s, soon, 8));
    let (master, slave) = terminal();
    let s = io(IORING_OP_READ, &slave, 9);
    rows.push(row("a terminal", s, move || (write(master.into(), b"line\n"), slave), 5));
    rows
}

fn sockets() -> Vec<Row> {
    let mut rows = Vec::new();
    let recv_many =
        |fd| io_uring_sqe { ioprio: IORING_RECV_MULTISHOT, ..picks(io(IORING_OP_RECV, fd, 0)) };
    let mut on_stream = |s: fn(&UnixStream) -> io_uring_sqe| {
        let (mut a, b) = UnixStream::pair().unwrap();
        rows.push(row("AF_UNIX", s(&b), move || (a.write_all(b"abc"), a, b), 3));
    };
    on_stream(|b| io(IORING_OP_RECV, b, 9));
    on_stream(|b| io(IORING_OP_READ, b, 9));
    on_stream(|b| vector(IORING_OP_READV, b, 9));
    on_stream(|b| message(IORING_OP_RECVMSG, b, 9));
    let (mut a, b) = tcp();
    rows.push(row("TCP", io(IORING_OP_RECV, &b, 9), move || (a.write_all(b"abc"), a, b), 3));
    let (mut a, b) = tcp();
    rows.push(row("TCP, many", recv_many(&b), move || (a.write_all(b"abc"), a, b), 3));
    for by_message in [false, true] {
        let any = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (a, b) = (any(), any());
        let to = b.local_addr().unwrap();
        let s = match by_message {
            true => message(IORING_OP_RECVMSG, &b, 9),
            false => io(IORING_OP_RECV, &b, 9),
        };
        rows.push(row("UDP", s, move || (a.send_to(b"abc", to), a, b), 3));
    }
    rows
}

fn full_sockets() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut full = |s: fn(&UnixStream) -> io_uring_sqe| {
        let (a, b) = UnixStream::pair().unwrap();
        fill(&a);
        rows.push(row("AF_UNIX, full", s(&a), move || (a, drain(b)), 3));
    };
    full(|a| message(IORING_OP_SENDMSG, a, 3));
    full(|a| io(IORING_OP_SEND, a, 3));
    full(|a| vector(IORING_OP_WRITEV, a, 3));
    let (a, b) = tcp();
    // Data on its way leaves room when it arrives; a full receiver is asked after 200 ms.
    let full = || (std::thread::sleep(std::time::Duration::from_millis(250)), !fill(&a)).1;
    while !full() {}
    // The last data may still be on its way.
    let drained = move || std::thread::spawn(move || (&b).read_to_end(&mut Vec::new()));
    let s = message(IORING_OP_SENDMSG, &a, 3);
    rows.push(row("TCP, full", s, move || (a, drained()), 3));
    rows
}

fn connections() -> Vec<Row> {
    use rustix::net::{AddressFamily, SocketType, listen, socket};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let s = sqe(IORING_OP_ACCEPT, 1);
    let s = io_uring_sqe { fd: listener.as_raw_fd(), ..s };
    let accept = row("ACCEPT", s, move || (TcpStream::connect(at), listener), i32::MAX);
    // The second connection finds no room, and is tried again after a second.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listen(&listener, 0).unwrap();
    let at = listener.local_addr().unwrap();
    let first = TcpStream::connect(at).unwrap();
    let second = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let [hi, lo] = at.port().to_be_bytes();
    let name = leaked([2, 0, hi, lo, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0u8]);
    let s = sqe(IORING_OP_CONNECT, 1);
    let s = io_uring_sqe { fd: second.as_raw_fd(), addr: name, off: 16, ..s };
    vec![accept, row("CONNECT", s, move || (listener.accept(), listener, first, second), 0)]
}

fn goes_by_the_poll_set(c: &Client, (what, request, ready, res): Row) {
    let by_workers = |c: &Client| {
        let ring = fds::ring(c.fd).unwrap();
        ring.read().stats.routes.worker.get()
    };
    let opcode = OP_NAMES[usize::from(request.opcode)];
    c.push(request);
    assert_eq!(c.enter(1, 0), 1);
    assert_eq!(results(c), [], "{what}, {opcode}");
    let ([_, armed, .., aborted, capped], workers) = counts(c);
    assert_eq!((armed, aborted, capped, workers), (1, 0, 0, 0), "{what}, {opcode}");
    let open = ready();
    assert!(c.enter(0, 1) >= 0);
    let got = results(c);
    if res == i32::MAX {
        assert!(matches!(got[..], [(1, fd)] if fd >= 0), "{what}, {opcode}: {got:?}");
    } else {
        assert_eq!(got, [(1, res)], "{what}, {opcode}");
    }
    let ([.., reissued, aborted, capped], workers) = counts(c);
    assert!(reissued >= 1, "{what}, {opcode}");
    assert_eq!((aborted, capped, workers, by_workers(c)), (0, 0, 0, 0), "{what}, {opcode}");
    drop(open);
}

#[test]
fn pollable_files_use_no_worker() {
    let _guard = one_at_a_time();
    for flags in [0, DEFER] {
        for row in [files(), sockets(), full_sockets(), connections()].into_iter().flatten() {
            let c = Client::new(8, flags);
            if row.1.flags & IOSQE_BUFFER_SELECT != 0 {
                let (addr, group) = (leaked([0u8; 64]), GROUP);
                let give = io_uring_sqe {
                    fd: 1,
                    addr,
                    len: 64,
                    buf_index: group,
                    ..sqe(IORING_OP_PROVIDE_BUFFERS, 9)
                };
                c.push(give);
                assert_eq!(c.enter(1, 1), 1);
                assert_eq!(results(&c), [(9, 0)]);
            }
            goes_by_the_poll_set(&c, row);
        }
    }
}

/// A multishot request gives way after 33 shots, as the kernel's does, whether the data are there
/// when it is submitted or come while it waits.
#[test]
fn a_busy_receiver_yields_to_others() {
    const CALM: usize = 64;
    const BUSY: u64 = 1000;
    const SHOTS: usize = 33;
    let _guard = one_at_a_time();
    for (flags, waits) in [(0, false), (0, true), (DEFER, false), (DEFER, true)] {
        let c = Client::new(128, flags);
        let give = io_uring_sqe { fd: 100, len: 1, ..sqe(IORING_OP_PROVIDE_BUFFERS, 9) };
        c.push(io_uring_sqe { addr: leaked([0u8; 100]), buf_index: GROUP, ..give });
        assert_eq!(c.enter(1, 1), 1);
        assert_eq!(results(&c), [(9, 0)]);
        let (mut busy, busy_end) = UnixStream::pair().unwrap();
        let calm: Vec<_> = (0..CALM).map(|_| UnixStream::pair().unwrap()).collect();
        let many = picks(io(IORING_OP_RECV, &busy_end, 0));
        let submit_all = |min| {
            c.push(io_uring_sqe { ioprio: IORING_RECV_MULTISHOT, user_data: BUSY, ..many });
            for (i, (_, end)) in calm.iter().enumerate() {
                c.push(io_uring_sqe { user_data: i as u64, ..io(IORING_OP_RECV, end, 1) });
            }
            assert_eq!(c.enter(CALM as u32 + 1, min), CALM as isize + 1);
        };
        if waits {
            submit_all(0);
            assert_eq!(results(&c), []);
        }
        busy.write_all(&[b'x'; 100]).unwrap();
        calm.iter().for_each(|(one, _)| drop((&*one).write_all(b"y")));
        if waits {
            assert!(c.enter(0, 1) >= 0);
        } else {
            submit_all(1);
        }
        let order: Vec<_> = std::iter::from_fn(|| c.pop()).map(|e| e.user_data).collect();
        let last_calm = order.iter().rposition(|ud| *ud != BUSY).unwrap();
        let first = order[..last_calm].iter().filter(|ud| **ud == BUSY).count();
        let calm_ones = order.iter().filter(|ud| **ud != BUSY).count();
        assert_eq!((first, calm_ones), (SHOTS, CALM), "{flags:#x}, {waits}: {order:?}");
    }
}
