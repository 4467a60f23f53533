//! The order of the CQEs of a batch that sends to sockets and receives from them: a receive whose
//! data are there when it is submitted ends before what follows it in the batch, others end behind
//! the batch.

use super::net::{pair, recv, send};
use super::prelude::*;
use std::io::Write as _;
use std::net::{Shutdown, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub const CASES: &[Case] = &[
    case!("net_order", sent_in_batch, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "a receive ends at once if an earlier send of its batch filled its socket"),
    case!("net_order", sent_before, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "so does one whose data the program sent before the batch, or another process"),
    case!("net_order", ended_before, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "so does one whose peer was shut down or closed before the batch"),
    case!("net_order", other_numbers, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "duplicates, and numbers that mean other sockets than before"),
    case!("net_order", later_sockets, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "sockets that join when the others have been in use"),
    case!("net_order", other_ways, [Op(IORING_OP_RECV), Op(IORING_OP_WRITE), Op(IORING_OP_SENDMSG)], "what is sent by other requests"),
    case!("net_order", datagrams, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "datagrams"),
    case!("net_order", tcp, [Op(IORING_OP_RECV), Op(IORING_OP_SEND)], "connections of TCP, by the loopback"),
];

/// Pairs in use.
const PAIRS: usize = 3;
/// Rounds that make a pair's use known.
const ROUNDS: usize = 8;
/// The name of the last request of a batch.
const LAST: u64 = 99;

const TEXT: [u8; 8] = *b"abcdefgh";

/// Sockets, and memory for each to receive in.
struct Use {
    ring: Ring,
    ends: Vec<[OwnedFd; 2]>,
    bufs: Vec<[u8; 8]>,
    defers: bool,
}

impl Use {
    /// Makes connections, and has each used for some rounds: a receive, and a send to it.
    fn of(cx: &mut Cx, setup: u32, ends: Vec<[OwnedFd; 2]>) -> Result<Use, Stop> {
        let (ring, bufs) = (cx.ring(64, setup)?, vec![[0; 8]; 2 * ends.len() + 8]);
        let mut all = Use { ring, ends, bufs, defers: setup & DEFER == DEFER };
        all.use_them(0)?;
        Ok(all)
    }

    fn use_them(&mut self, from: usize) -> Outcome {
        for _ in 0..ROUNDS {
            for i in from..self.ends.len() {
                let (recv, send) = (self.recv(i), self.send(i));
                self.ring.push(recv).push(send);
            }
            self.ring.submit();
            self.ring.take(2 * (self.ends.len() - from))?;
        }
        Ok(())
    }

    fn fd(&self, i: usize, end: usize) -> i32 {
        self.ends[i][end].as_raw_fd()
    }

    /// Receives from connection `i`; named by twice its number.
    fn recv(&mut self, i: usize) -> io_uring_sqe {
        recv(self.fd(i, 0), &mut self.bufs[i]).ud(2 * i as u64 + 10)
    }

    /// Sends to it; named by one more.
    fn send(&self, i: usize) -> io_uring_sqe {
        send(self.fd(i, 1), &TEXT).ud(2 * i as u64 + 11)
    }

    /// Submits a batch with a NOP at its end, and records its CQEs in their order.
    fn batch(&mut self, cx: &mut Cx, what: &str, sqes: &[io_uring_sqe]) {
        for sqe in sqes {
            self.ring.push(*sqe);
        }
        self.ring.push(sqe::nop().ud(LAST));
        let all = sqes.len() as u32 + 1;
        if self.defers { self.ring.submit_wait(all) } else { self.ring.submit() };
        note(cx, what, &mut self.ring);
    }
}

/// Records CQEs with their flags.
fn note(cx: &mut Cx, what: &str, ring: &mut Ring) {
    let each = |c: &Cqe| format!("{}={}/{:x}", c.user_data, c.res, c.flags);
    let all: Vec<_> = ring.pop_all().iter().map(each).collect();
    cx.note(what, all.join(" "));
}

fn unix() -> Result<[OwnedFd; 2], Stop> {
    let (one, two) = UnixStream::pair()?;
    Ok([one.into(), two.into()])
}

fn unix_pairs() -> Result<Vec<[OwnedFd; 2]>, Stop> {
    (0..PAIRS).map(|_| unix()).collect()
}

fn sent_in_batch(cx: &mut Cx) -> Outcome {
    for setup in [0, DEFER] {
        let mut all = Use::of(cx, setup, unix_pairs()?)?;
        let (r, s) = ([0, 1, 2].map(|i| all.recv(i)), [0, 1, 2].map(|i| all.send(i)));
        all.batch(cx, "each to its own", &[r[0], s[0], r[1], s[1], r[2], s[2]]);
        all.batch(cx, "to the next", &[r[0], s[1], r[1], s[2], r[2], s[0]]);
        all.batch(cx, "to the last", &[r[0], s[2], r[1], s[1], r[2], s[0]]);
        all.batch(cx, "twice to one", &[r[0], s[1], s[1], r[1], r[1], s[0]]);
        all.batch(cx, "all before", &[s[0], s[1], s[2], r[2], r[1], r[0]]);
        let more = [s[0], r[0], r[1], s[1]];
        let sqes = [&[r[0], s[0], r[1], s[1], r[2], s[2]][..], &more].concat();
        all.batch(cx, "again from one", &sqes);
        all.batch(cx, "and again", &[r[1], s[1], s[1], r[2], r[1], s[2], r[0], s[0]]);
    }
    Ok(())
}

fn sent_before(cx: &mut Cx) -> Outcome {
    let mut all = Use::of(cx, 0, unix_pairs()?)?;
    let (r, s) = ([0, 1, 2].map(|i| all.recv(i)), [0, 1, 2].map(|i| all.send(i)));
    for (what, i) in [("first", 0), ("second", 1), ("third", 2)] {
        rustix::io::write(&all.ends[i][1], &TEXT)?;
        all.batch(cx, what, &[r[0], s[(i + 1) % 3], r[1], s[(i + 2) % 3], r[2]]);
    }
    for i in 0..PAIRS {
        let end = &all.ends[i][1];
        let status = os::in_child(|| i32::from(rustix::io::write(end, &TEXT) != Ok(TEXT.len())));
        cx.is("a child", status, 0);
        all.batch(cx, "sent by it", &[r[0], s[(i + 1) % 3], r[1], s[(i + 2) % 3], r[2]]);
    }
    for i in 0..PAIRS {
        rustix::io::write(&all.ends[i][1], &TEXT[..4])?;
        all.batch(cx, "some of it", &[r[(i + 1) % 3], s[(i + 1) % 3], r[i], s[i], r[i]]);
    }
    Ok(())
}

fn ended_before(cx: &mut Cx) -> Outcome {
    for close in [true, false] {
        let mut all = Use::of(cx, 0, unix_pairs()?)?;
        let (r, s) = ([0, 1, 2].map(|i| all.recv(i)), [0, 1, 2].map(|i| all.send(i)));
        let end = UnixStream::from(std::mem::replace(&mut all.ends[1][1], unix()?[0].try_clone()?));
        if !close {
            end.shutdown(Shutdown::Write)?;
        }
        let open = (!close).then_some(end);
        let what = if close { "closed" } else { "shut down" };
        all.batch(cx, what, &[r[0], s[0], r[1], s[2], r[2]]);
        all.batch(cx, what, &[s[0], r[1], r[2], r[0], s[2]]);
        drop(open);
    }
    Ok(())
}

fn other_numbers(cx: &mut Cx) -> Outcome {
    let mut all = Use::of(cx, 0, unix_pairs()?)?;
    let (r, s) = ([0, 1, 2].map(|i| all.recv(i)), [0, 1, 2].map(|i| all.send(i)));
    let (ours, theirs) = (all.ends[1][0].try_clone()?, all.ends[1][1].try_clone()?);
    let (r1, s1) = (r[1].set(|r| r.fd = ours.as_raw_fd()), s[1].set(|s| s.fd = theirs.as_raw_fd()));
    for round in 0..3 {
        cx.note("round", round);
        all.batch(cx, "sent by a duplicate", &[r[0], s1, r[1], s[0]]);
        all.batch(cx, "received by one", &[r[0], s[1], r1, s[0]]);
        all.batch(cx, "both", &[r[0], s1, r1, s[0]]);
        all.batch(cx, "by both", &[r1, s1, r[1], s[1], r[0], s[0]]);
    }
    // The number of the sender means a socket whose peer is another.
    let new = unix()?;
    let taken = rustix::io::dup(&new[1])?;
    cx.is("taken", os::dup2(taken.as_raw_fd(), all.fd(1, 1)), all.fd(1, 1));
    let old = r[0].set(|r| r.fd = new[0].as_raw_fd()).ud(40);
    for round in 0..3 {
        cx.note("round", round);
        all.batch(cx, "another peer", &[r[0], s[1], old, s[0]]);
        all.batch(cx, "and another", &[old, s[1], r[0], s[0], s[1], old]);
    }
    // So does that of the receiver.
    cx.is("given", os::dup2(new[0].as_raw_fd(), all.fd(2, 0)), all.fd(2, 0));
    for round in 0..3 {
        cx.note("round", round);
        all.batch(cx, "another receiver", &[r[0], s[1], r[2], s[0]]);
        all.batch(cx, "used anew", &[r[0], s[0], r[2], s[1]]);
    }
    Ok(())
}

fn later_sockets(cx: &mut Cx) -> Outcome {
    // Of the last pair nothing was received when its sender was last used.
    let mut ends = unix_pairs()?;
    let last = ends.pop();
    let mut all = Use::of(cx, 0, ends)?;
    all.ends.extend(last);
    let (r, s) = ([0, 1, 2].map(|i| all.recv(i)), [0, 1, 2].map(|i| all.send(i)));
    for _ in 0..ROUNDS {
        all.batch(cx, "only sent", &[r[0], s[2], r[1], s[1], s[0]]);
    }
    all.batch(cx, "all that was sent", &[r[2]; ROUNDS]);
    all.batch(cx, "the first wait", &[r[0], s[0], r[2], s[2]]);
    all.batch(cx, "sent before", &[r[0], s[2], r[2], s[0]]);
    for round in 0..4 {
        cx.note("round", round);
        all.ends.push(unix()?);
        let (r3, s3) = (all.recv(3 + round), all.send(3 + round));
        all.batch(cx, "one more waits", &[r[0], s[0], r3, s[1], r[1], s3]);
        all.batch(cx, "is sent to", &[r[0], s3, r3, s[0], r[1], s[1]]);
        all.batch(cx, "is sent to again", &[r[0], s[0], r[1], s3, s[1], r3]);
    }
    Ok(())
}

fn other_ways(cx: &mut Cx) -> Outcome {
    for op in [IORING_OP_WRITE, IORING_OP_SENDMSG] {
        let mut all = Use::of(cx, 0, unix_pairs()?)?;
        let r = [0, 1, 2].map(|i| all.recv(i));
        let parts = [super::net_msg::part(&TEXT)];
        let header = super::net_msg::hdr(&parts);
        let s = [0, 1, 2].map(|i| match op {
            IORING_OP_SENDMSG => {
 let sqe = sqe::rw(op, all.fd(i, 1), addr(&header), 1, 0);
 sqe.ud(2 * i as u64 + 11) }
            _ => all.send(i).set(|s| s.opcode = op),
        });
        for _ in 0..3 {
            all.batch(cx, "each to its own", &[r[0], s[0], r[1], s[1], r[2], s[2]]);
            all.batch(cx, "to the next", &[r[0], s[1], r[1], s[2], r[2], s[0]]);
            let plain = all.send(1);
            all.batch(cx, "both ways", &[r[0], s[0], plain, r[1], s[2], r[2]]);
        }
    }
    Ok(())
}

/// Sends to each of three pairs in three orders; returns the requests that receive and send.
fn in_three_orders(cx: &mut Cx, all: &mut Use) -> ([io_uring_sqe; 3], [io_uring_sqe; 3]) {
    let (r, s) = ([0, 1, 2].map(|i| all.recv(i)), [0, 1, 2].map(|i| all.send(i)));
    all.batch(cx, "each to its own", &[r[0], s[0], r[1], s[1], r[2], s[2]]);
    all.batch(cx, "to the next", &[r[0], s[1], r[1], s[2], r[2], s[0]]);
    all.batch(cx, "all before", &[s[0], s[1], s[2], r[2], r[1], r[0]]);
    (r, s)
}

fn datagrams(cx: &mut Cx) -> Outcome {
    let mut ends = Vec::new();
    for _ in 0..PAIRS {
        let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        one.connect(two.local_addr()?)?;
        two.connect(one.local_addr()?)?;
        ends.push([one.into(), two.into()]);
    }
    let mut all = Use::of(cx, 0, ends)?;
    in_three_orders(cx, &mut all);
    Ok(())
}

fn tcp(cx: &mut Cx) -> Outcome {
    let mut ends = Vec::new();
    for _ in 0..PAIRS {
        let (one, two) = pair()?;
        ends.push([one.into(), two.into()]);
    }
    let mut all = Use::of(cx, 0, ends)?;
    let (r, s) = in_three_orders(cx, &mut all);
    let mut peer = std::net::TcpStream::from(all.ends[1][1].try_clone()?);
    peer.write_all(&TEXT)?;
    super::net::arrived(all.fd(1, 0), TEXT.len());
    all.batch(cx, "sent before", &[r[0], s[0], r[1], s[2], r[2]]);
    Ok(())
}
