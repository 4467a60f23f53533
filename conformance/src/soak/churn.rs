//! Short connections: accepted by one multishot request, made, answered and closed on one ring.
//! Each carries a pattern of its own there and back. The client's end resets, so that no port stays
//! in TIME_WAIT.

use std::os::fd::{AsRawFd, RawFd};

use super::health::Health;
use super::ledger::{END_LIMIT, End, Ledger, Totals};
use super::{Check, Fault, ensure, sys};
use crate::entry::EntryPoint;
use crate::os;
use crate::ring::{Cqe, Map};
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

/// Number of connections at a time, and of bytes that each carries there and back.
const AT_ONCE: usize = 64;
const BYTES: usize = 64;
/// Growth allowed to the allocator's free lists between the two readings of memory.
const SLACK_KIB: u64 = 2048;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Accept(usize),
    Socket,
    Connect,
    Send,
    Receive,
    Close,
    Serve,
    Answer,
    Ended,
    ServerClose,
}

/// The step of a client, or of a server's descriptor.
type Token = (Step, usize);

/// Result of the connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub made: u64,
    pub bytes: u64,
    pub totals: Totals,
    pub start: Health,
    pub middle: Health,
    pub end: Health,
}

struct Client {
    fd: RawFd,
    number: u64,
    unix: bool,
}

struct Churn {
    ledger: Ledger<Token>,
    clients: Vec<Client>,
    /// Buffers: one for each client, and one for each server by descriptor.
    memory: Map,
    /// The listeners' addresses: pointer and length.
    names: [(usize, u64); 2],
    listeners: [RawFd; 2],
    wanted: u64,
    started: u64,
    out: Outcome,
}

/// Limit of the descriptor numbers of the servers' ends.
const MOST_FDS: usize = 2048;

fn wrong(e: impl std::fmt::Display) -> Fault {
    format!("making a listener: {e}")
}

/// Returns byte `i` of the data that connection `number` carries.
pub fn pattern(number: u64, i: usize) -> u8 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8 ^ (i as u8).wrapping_mul(31)
}

/// Makes `wanted` connections; `tell` is called with the number that have ended.
pub fn run(entry: EntryPoint, wanted: u64, mut tell: impl FnMut(u64)) -> Check<Outcome> {
    let start = Health::now();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").map_err(wrong)?;
    let port = tcp.local_addr().map_err(wrong)?.port();
    let memory = Map::anonymous((AT_ONCE + MOST_FDS) * BYTES + 4096).map_err(wrong)?;
    let at = memory.addr + (AT_ONCE + MOST_FDS) * BYTES;
    sys::store(at, os::loopback(port));
    let (unix, len) = sys::abstract_listener(at + 64, AT_ONCE as i32)?;
    let params = io_uring_params { flags: IORING_SETUP_COOP_TASKRUN, ..Default::default() };
    let mut churn = Churn {
        ledger: Ledger::new(entry, 256, params)?,
        clients: (0..AT_ONCE).map(|_| Client { fd: -1, number: 0, unix: false }).collect(),
        memory,
        names: [(at, 16), (at + 64, len)],
        listeners: [tcp.as_raw_fd(), unix.as_raw_fd()],
        wanted,
        started: 0,
        out: Outcome { start, ..Outcome::default() },
    };
    (0..2).try_for_each(|i| churn.listen(i))?;
    (0..AT_ONCE).try_for_each(|c| churn.begin(c))?;
    let warm = (wanted / 2).min(50_000);
    // The two listeners' requests stay in flight.
    while churn.out.made < wanted || churn.ledger.open() > 2 {
        churn.ledger.submit(1, END_LIMIT)?;
        let ends = churn.ledger.reap()?;
        ensure(!ends.is_empty(), || format!("{} connections, then none", churn.out.made))?;
        ends.into_iter().try_for_each(|end| churn.go_on(end))?;
        if churn.out.middle.fds == 0 && churn.out.made >= warm {
            churn.out.middle = Health::now();
        }
        tell(churn.out.made);
    }
    let mut open = Vec::new();
    churn.ledger.cancel_all(|end| open.push(end))?;
    open.iter().filter(|e| e.cqe.res >= 0).for_each(left_open);
    churn.out.end = Health::now();
    churn.out.totals = churn.ledger.totals;
    let sum = churn.out.made * BYTES as u64;
    ensure(churn.out.bytes == sum, || format!("{} bytes came, not {sum}", churn.out.bytes))?;
    Ok(churn.out)
}

impl Churn {
    fn buffer(&self, of_server: bool, i: usize) -> usize {
        self.memory.addr + (i + if of_server { AT_ONCE } else { 0 }) * BYTES
    }

    fn push(&mut self, sqe: io_uring_sqe, step: Step, who: usize) -> Check {
        self.ledger.push(&[(sqe, (step, who))]).map(drop)
    }

    fn listen(&mut self, i: usize) -> Check {
        let sqe = sqe::op(IORING_OP_ACCEPT, self.listeners[i]).op_flags(libc::SOCK_CLOEXEC as u32);
        self.push(sqe.set(|s| s.ioprio = IORING_ACCEPT_MULTISHOT), Step::Accept(i), 0)
    }

    /// Starts the client's next connection, unless there are enough.
    fn begin(&mut self, c: usize) -> Check {
        if self.started == self.wanted {
            return Ok(());
        }
        let unix = self.started % 4 == 3;
        let family = if unix { libc::AF_UNIX } else { libc::AF_INET };
        self.clients[c] = Client { fd: -1, number: self.started, unix };
        self.started += 1;
        let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
        let socket = sqe::op(IORING_OP_SOCKET, family).set(|s| s.off = kind);
        self.push(socket, Step::Socket, c)
    }

    fn go_on(&mut self, end: End<Token>) -> Check {
        let (step, who) = end.token;
        let res = end.cqe.res;
        let odd = || format!("{step:?}: {:?}", end.cqe);
        match step {
            Step::Accept(i) => {
                ensure(res >= 0 && (res as usize) < MOST_FDS, odd)?;
                if end.last {
                    self.listen(i)?;
                }
                self.receive(true, res, res as usize, Step::Serve)
            }
            Step::Serve | Step::Ended => self.serve(step, who, res, odd),
            Step::Answer => {
                ensure(res == BYTES as i32, odd)?;
                self.receive(true, who as RawFd, who, Step::Ended)
            }
            Step::ServerClose => ensure(res == 0, odd),
            _ => self.client(step, who, &end.cqe, odd),
        }
    }

    fn receive(&mut self, of_server: bool, fd: RawFd, who: usize, step: Step) -> Check {
        let at = self.buffer(of_server, who);
        let sqe = sqe::rw(IORING_OP_RECV, fd, at, BYTES, 0);
        self.push(sqe.op_flags(libc::MSG_WAITALL as u32), step, who)
    }

    fn send(&mut self, of_server: bool, fd: RawFd, who: usize, step: Step) -> Check {
        let at = self.buffer(of_server, who);
        self.push(sqe::rw(IORING_OP_SEND, fd, at, BYTES, 0), step, who)
    }

    fn serve(&mut self, step: Step, who: usize, res: i32, odd: impl FnOnce() -> Fault) -> Check {
        if step == Step::Serve {
            ensure(res == BYTES as i32, odd)?;
            return self.send(true, who as RawFd, who, Step::Answer);
        }
        ensure(res == 0 || res == -libc::ECONNRESET, odd)?;
        self.push(sqe::op(IORING_OP_CLOSE, who as RawFd), Step::ServerClose, who)
    }

    fn client(&mut self, step: Step, c: usize, cqe: &Cqe, odd: impl FnOnce() -> Fault) -> Check {
        let Client { fd, number, unix } = self.clients[c];
        match step {
            Step::Socket => {
                ensure(cqe.res >= 0, odd)?;
                self.clients[c].fd = cqe.res;
                if !unix {
                    sys::reset_on_close(cqe.res);
                }
                let (at, len) = self.names[usize::from(unix)];
                let connect = sqe::rw(IORING_OP_CONNECT, cqe.res, at, 0, len);
                self.push(connect, Step::Connect, c)
            }
            Step::Connect => {
                ensure(cqe.res == 0, odd)?;
                let at = self.buffer(false, c);
                (0..BYTES).for_each(|i| sys::store(at + i, pattern(number, i)));
                self.send(false, fd, c, Step::Send)
            }
            Step::Send => {
                ensure(cqe.res == BYTES as i32, odd)?;
                let at = self.buffer(false, c);
                (0..BYTES).for_each(|i| sys::store(at + i, 0u8));
                self.receive(false, fd, c, Step::Receive)
            }
            Step::Receive => {
                ensure(cqe.res == BYTES as i32, odd)?;
                let data = sys::bytes(self.buffer(false, c), BYTES);
                let same = data.iter().enumerate().all(|(i, b)| *b == pattern(number, i));
                ensure(same, || format!("connection {number} brought other bytes: {data:?}"))?;
                self.out.bytes += BYTES as u64;
                self.push(sqe::op(IORING_OP_CLOSE, fd), Step::Close, c)
            }
            _ => {
                ensure(cqe.res == 0, odd)?;
                self.out.made += 1;
                self.begin(c)
            }
        }
    }
}

/// Closes a connection that came when no more were wanted.
fn left_open(end: &End<Token>) {
    if matches!(end.token.0, Step::Accept(_)) {
        drop(os::own(end.cqe.res));
    }
}

/// Gives idle workers time to leave, and checks whether descriptors, threads and memory are as
/// before.
pub fn afterwards(out: &Outcome) -> Check<Health> {
    let end = Health::returned_to(out.start)?;
    Health::not_grown(out.middle, out.end, SLACK_KIB)?;
    Ok(end)
}
