//! Cancels against completions, for each kind of request that waits: whichever comes first, each
//! request has exactly one final CQE, and so has each cancel.

mod client;

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;

use client::{Client, sqe};
use rustix::thread::futex;
use softring_uapi::*;

const ROUNDS: u32 = 300;
/// `user_data` of the cancels.
const CANCEL: u64 = 100;
const ECANCELED: i32 = -125;

/// Makes requests of the kinds that wait, by `user_data`: a receive, a poll, a read, a futex, a
/// timeout.
fn waiting(s: &UnixStream, buf: &mut [u8], word: &AtomicU32, ts: &[i64; 2]) -> [io_uring_sqe; 5] {
    let at = |p: *const u8| p.expose_provenance() as u64;
    let (fd, to) = (s.as_raw_fd(), at(buf.as_ptr()));
    let (word, ts) = (at(word.as_ptr().cast()), at(ts.as_ptr().cast()));
    [
        io_uring_sqe { fd, addr: to, len: 1, ..sqe(IORING_OP_RECV, 1) },
        io_uring_sqe { fd, op_flags: 1, ..sqe(IORING_OP_POLL_ADD, 2) },
        io_uring_sqe { fd, addr: to + 1, len: 1, ..sqe(IORING_OP_READ, 3) },
        io_uring_sqe { fd: 2, addr: word, addr3: 1, ..sqe(IORING_OP_FUTEX_WAIT, 4) },
        io_uring_sqe { addr: ts, len: 1, ..sqe(IORING_OP_TIMEOUT, 5) },
    ]
}

#[test]
fn each_request_ends_once() {
    let client = Client::new(32, 0);
    let (mut one, two) = UnixStream::pair().expect("a pair");
    let (mut buf, word) = ([0u8; 8], AtomicU32::new(0));
    let mut won = [0u32; 2];
    for round in 0..ROUNDS {
        let ts = [0, i64::from(round % 50) * 2000];
        let all = waiting(&two, &mut buf, &word, &ts);
        all.iter().for_each(|s| client.push(*s));
        assert_eq!(client.enter(all.len() as u32, 0), all.len() as isize);
        let ends = std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..round % 40 {
                    std::hint::spin_loop();
                }
                one.write_all(b"xy").expect("room");
                let _ = futex::wake(&word, futex::Flags::empty(), 9);
            });
            cancels(&client, all.len() as u64)
        });
        for (user_data, results) in &ends {
            assert_eq!(results.len(), 1, "{user_data} in round {round}: {results:?}");
        }
        assert_eq!(ends.len(), 2 * all.len(), "round {round}: {ends:?}");
        let lost = (1..=5).filter(|ud| ends[ud] == [ECANCELED]).count() as u32;
        won = [won[0] + 5 - lost, won[1] + lost];
        drain(&two);
    }
    eprintln!("completed {}, cancelled {}", won[0], won[1]);
}

/// Cancels requests 1 to `n`, and takes two CQEs for each.
fn cancels(client: &Client, n: u64) -> HashMap<u64, Vec<i32>> {
    for ud in 1..=n {
        client.push(io_uring_sqe { addr: ud, ..sqe(IORING_OP_ASYNC_CANCEL, CANCEL + ud) });
    }
    let mut ends: HashMap<u64, Vec<i32>> = HashMap::new();
    let mut submit = n as u32;
    while ends.len() < 2 * n as usize {
        client.enter(std::mem::take(&mut submit), 1);
        while let Some(cqe) = client.pop() {
            ends.entry(cqe.user_data).or_default().push(cqe.res);
        }
    }
    // A second end of any request would come now.
    client.enter(0, 0);
    while let Some(cqe) = client.pop() {
        ends.entry(cqe.user_data).or_default().push(cqe.res);
    }
    ends
}

fn drain(s: &UnixStream) {
    use std::io::Read;
    let mut s = s;
    s.set_nonblocking(true).expect("a socket");
    let mut buf = [0u8; 16];
    while s.read(&mut buf).is_ok_and(|n| n > 0) {}
    s.set_nonblocking(false).expect("a socket");
}
