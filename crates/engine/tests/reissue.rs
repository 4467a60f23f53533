//! What became of attempts that would block, by the counters: who was ready at arm, who was tried
//! how often, and that no file that can be polled reaches a worker below the cap.
#![allow(unsafe_code)]

mod client;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{Client, sqe};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softring_engine::abi::*;
use softring_engine::fds;
use softring_engine::req::route::MAX_ARMS;

const MSG_WAITALL: u32 = 0x100;

fn transfer(opcode: u8, fd: i32, buf: &mut [u8], ud: u64) -> io_uring_sqe {
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    io_uring_sqe { fd, addr, len: buf.len() as u32, ..sqe(opcode, ud) }
}

/// One test at a time: one of them lets the process have no descriptors.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counters, in the order of the page; and requests with workers.
fn counts(c: &Client) -> ([u64; 6], u32) {
    let ring = fds::ring(c.fd).unwrap();
    let ctx = ring.lock();
    let r = &ctx.stats.reissue;
    let all = [&r.at_once, &r.armed, &r.ready_at_arm, &r.reissued, &r.aborted, &r.capped];
    (all.map(softring_engine::stats::Count::get), ctx.transports.workers)
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
    let _alone = alone();
    let c = Client::new(8, 0);
    let (mut one, two) = UnixStream::pair().unwrap();
    let (r, w) = rustix::pipe::pipe().unwrap();
    let (mut a, mut b, mut x) = ([0; 1], [0; 1], *b"x");
    one.write_all(b"1").unwrap();
    c.push(transfer(IORING_OP_RECV, two.as_raw_fd(), &mut a, 1));
    submit(&c, 1);
    assert_eq!(results(&c), [(1, 1)]);
    assert_eq!(counts(&c), ([1, 0, 0, 0, 0, 0], 0));

    // The data come between the attempt and the look behind the arming.
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
fn a_busy_socket_keeps_nobody_waiting_and_is_capped() {
    let _alone = alone();
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
    let _alone = alone();
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
    let _alone = alone();
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
