//! A connection, or a pipe: one end sends a stream, the other checks it and may send it back. On
//! the way an end may reset, half-close, or stop reading until the sender is held up.

mod breaks;
mod bytes;

use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::super::ledger::End;
use super::super::pbuf::Offer;
use super::super::{Check, ensure, sys};
use super::stage::{LONGEST, OFFERS, Scene, Stage, Step, Token};
use super::transfer::{self, Name, RECEIVES};
use crate::os;
use crate::ring::Map;
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Tcp,
    Unix,
    Pipe,
}

/// Disturbance on the way, when the reader has got so much.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Plain,
    /// A reset by this end.
    Reset(usize, u64),
    /// A pause of the reader.
    Stop(u64),
}

/// One direction, as one of its ends sees it.
#[derive(Debug, Default)]
struct Half {
    /// Number of bytes transferred.
    bytes: u64,
    /// Number of due completions, and the number of the request that heads them.
    open: u32,
    number: u64,
    /// Flag, true if a cancel is in flight.
    cancelled: bool,
    /// Flag, true if no byte will follow.
    over: bool,
    group: u16,
    /// Number of times in a row that there was no buffer.
    starved: u32,
    /// The request's opcode, its own flags and the SQE's.
    how: (u8, u16, u8),
}

#[derive(Debug)]
struct Peer {
    fd: RawFd,
    ring: usize,
    slot: Option<usize>,
    out: Half,
    inn: Half,
    /// The slot's change, the shutdown and the close that are in flight.
    open: u32,
    offer: Option<Offer>,
    closing: bool,
    closed: bool,
}

/// A scene of one connection.
#[derive(Debug)]
pub struct Conn {
    kind: Kind,
    scene: usize,
    peers: [Peer; 2],
    total: u64,
    echo: bool,
    plan: Plan,
    /// Time since when the reader has stopped, and the bytes sent by then.
    stopped: Option<(Instant, u64)>,
    /// Time since when one end is closed, though the other did not expect it.
    gone: Option<Instant>,
    /// The connection's place in the pattern.
    stream: usize,
    memory: Map,
}

/// Memory of each end: two pages for headers, the rest for received data.
const EACH: usize = 8192 + LARGEST;
const LARGEST: usize = 16 << 10;
/// Limit of the bytes that sockets and pipes hold of a stream while its reader has stopped.
const HELD: u64 = 300 << 10;
/// Failures in a row for want of a buffer, after which a receive uses memory of its own.
const STARVED: u32 = 500;
const STILL: Duration = Duration::from_millis(5);
/// Time after which an end that does not see its peer's reset resets as well: TCP ignores a reset
/// beyond the window, and small buffers close the window at times.
const UNREPORTED: Duration = Duration::from_millis(100);

fn wrong(e: impl std::fmt::Display) -> String {
    format!("making a connection: {e}")
}

fn ends(stage: &Stage, kind: Kind) -> Check<[RawFd; 2]> {
    let (one, two) = match kind {
        Kind::Tcp => {
            let to = stage.listener.local_addr().map_err(wrong)?;
            let one = std::net::TcpStream::connect(to).map_err(wrong)?;
            let (two, _) = stage.listener.accept().map_err(wrong)?;
            one.set_nodelay(true).and(two.set_nodelay(true)).map_err(wrong)?;
            (one.into_raw_fd(), two.into_raw_fd())
        }
        Kind::Unix => {
            let (one, two) = UnixStream::pair().map_err(wrong)?;
            (one.into_raw_fd(), two.into_raw_fd())
        }
        Kind::Pipe => {
            let flags = rustix::pipe::PipeFlags::CLOEXEC;
            let (r, w) = rustix::pipe::pipe_with(flags).map_err(wrong)?;
            (w.into_raw_fd(), r.into_raw_fd())
        }
    };
    if kind != Kind::Pipe {
        [one, two].into_iter().for_each(sys::small_buffers);
    }
    Ok([one, two])
}

impl Conn {
    pub fn new(stage: &mut Stage, scene: usize) -> Check<Self> {
        let kind = [Kind::Tcp, Kind::Unix, Kind::Pipe][stage.rng.usize(..3)];
        let fds = ends(stage, kind)?;
        let (mut total, mut plan) = (stage.rng.u64(1..200_000), Plan::Plain);
        match stage.rng.u32(..10) {
            0..2 => total = stage.rng.u64(1..2000),
            2..4 => plan = Plan::Reset(stage.rng.usize(..2), stage.rng.u64(..=total)),
            4 => (total, plan) = (stage.rng.u64(400_000..800_000), Plan::Stop(20_000)),
            _ => {}
        }
        let mut peer = |fd| Peer {
            fd,
            ring: stage.any_ring(),
            slot: None,
            out: Half::default(),
            inn: Half::default(),
            open: 0,
            offer: None,
            closing: false,
            closed: false,
        };
        let mut peers = fds.map(&mut peer);
        if kind == Kind::Pipe {
            (peers[0].inn.over, peers[1].out.over) = (true, true);
        }
        stage.count(["TCP", "unix", "pipes"][kind as usize], 1);
        let echo = kind != Kind::Pipe && stage.rng.bool();
        let memory = Map::anonymous(2 * EACH).map_err(wrong)?;
        let stream = stage.rng.usize(..60_000);
        let (stopped, gone) = (None, None);
        let mut new = Conn { kind, scene, peers, total, echo, plan, stopped, gone, stream, memory };
        for who in 0..2 {
            if stage.one_in(3) {
                new.set_slot(stage, who, Some(2 * scene + who))?;
            }
        }
        Ok(new)
    }

    fn token(&self, who: usize, step: Step) -> Token {
        Token { scene: self.scene, who, step }
    }

    fn page(&self, who: usize) -> usize {
        self.memory.addr + who * EACH
    }

    fn name(&self, who: usize) -> Name {
        Name { fd: self.peers[who].fd, slot: self.peers[who].slot }
    }

    /// Puts the end into a slot, or another file, after which the slot is not used any more.
    fn set_slot(&mut self, stage: &mut Stage, who: usize, slot: Option<usize>) -> Check {
        // Either update may be in flight while the other is asked for.
        let at = self.page(who) + if slot.is_some() { 512 } else { 520 };
        let index = 2 * self.scene + who;
        let fd = match slot {
            Some(_) => self.peers[who].fd,
            None if stage.rng.bool() => stage.null(),
            None => -1,
        };
        let sqe = Stage::slot_sqe(index, fd, at);
        self.peers[who].slot = slot;
        self.own(stage, who, sqe, Step::Slot)
    }

    fn own(&mut self, stage: &mut Stage, who: usize, sqe: io_uring_sqe, step: Step) -> Check {
        self.peers[who].open += 1;
        stage.push(self.peers[who].ring, &[(sqe, self.token(who, step))]).map(drop)
    }

    /// Queues a request of one half, at times with a time limit.
    fn start(&mut self, stage: &mut Stage, who: usize, sqe: io_uring_sqe, step: Step) -> Check {
        let limited = !transfer::many(&sqe) && stage.one_in(6);
        let (offset, limit) = match step {
            Step::Send => (768, Step::SendTimeout),
            _ => (4096 + 768, Step::RecvTimeout),
        };
        let at = self.page(who) + offset;
        let mut chain = vec![(sqe, self.token(who, step))];
        if limited {
            sys::store(at, [0, stage.rng.i64(10..3000) * 1000]);
            chain[0].0.flags |= IOSQE_IO_LINK;
            let timeout = sqe::rw(IORING_OP_LINK_TIMEOUT, -1, at, 1, 0);
            chain.push((timeout, self.token(who, limit)));
        }
        let number = stage.push(self.peers[who].ring, &chain)?;
        let half = self.half(who, step);
        (half.open, half.number, half.cancelled) = (chain.len() as u32, number, false);
        half.how = (sqe.opcode, sqe.ioprio, chain[0].0.flags);
        Ok(())
    }

    fn half(&mut self, who: usize, step: Step) -> &mut Half {
        let peer = &mut self.peers[who];
        if matches!(step, Step::Send | Step::SendTimeout) { &mut peer.out } else { &mut peer.inn }
    }

    fn send(&mut self, stage: &mut Stage, who: usize, room: u64) -> Check {
        let most = if stage.one_in(3) { 1000 } else { LONGEST as u64 };
        let len = stage.rng.u64(1..=room.min(most)) as usize;
        let at = stage.pattern.at(self.stream, self.peers[who].out.bytes);
        let (page, name, ring) = (self.page(who), self.name(who), self.peers[who].ring);
        let sqe = if self.kind != Kind::Pipe && len > 16 && stage.one_in(8) {
            let group = OFFERS + 2 * self.scene as u16 + who as u16;
            let each = len / 16;
            let pieces: Vec<_> = (0..16).map(|i| (at + i * each, each)).collect();
            let offer = Offer::new(&stage.hands[ring].ledger.ring, group, &pieces)?;
            self.peers[who].offer = Some(offer);
            transfer::bundle(name, group)
        } else {
            let ways = stage.sends;
            transfer::any(&mut stage.rng, ways, (self.kind, name), page, (at, len))
        };
        self.start(stage, who, sqe, Step::Send)
    }

    fn receive(&mut self, stage: &mut Stage, who: usize) -> Check {
        let len = stage.rng.usize(1..=LARGEST);
        let (page, name) = (self.page(who) + 4096, self.name(who));
        let fed = self.peers[who].inn.starved < STARVED;
        let to = (page + 4096, len);
        let sqe = transfer::any(&mut stage.rng, RECEIVES, (self.kind, name), page, to);
        let sqe = if fed { sqe } else { transfer::plain(name, page + 4096, len) };
        self.peers[who].inn.group = sqe.buf_index;
        self.start(stage, who, sqe, Step::Recv)
    }

    /// Starts the next requests.
    fn go(&mut self, stage: &mut Stage) -> Check {
        self.stop_reading(stage)?;
        self.reset_by_plan();
        for who in 0..2 {
            if self.peers[who].closed {
                continue;
            }
            if self.peers[who].closing {
                self.reset(stage, who)?;
                continue;
            }
            self.go_on_sending(stage, who)?;
            let inn = &self.peers[who].inn;
            if inn.open == 0 && !inn.over && (who == 0 || self.stopped.is_none()) {
                self.receive(stage, who)?;
            }
            let peer = &self.peers[who];
            if peer.out.over && peer.inn.over && peer.out.open + peer.inn.open + peer.open == 0 {
                self.close(stage, who)?;
            }
        }
        Ok(())
    }

    fn go_on_sending(&mut self, stage: &mut Stage, who: usize) -> Check {
        let [first, second] = &self.peers;
        let (room, all) = match who {
            0 => (self.total - first.out.bytes, true),
            _ if self.echo => (second.inn.bytes - second.out.bytes, second.inn.over),
            // The end shuts down its half before anything else.
            _ => (0, true),
        };
        let peer = &self.peers[who];
        if peer.out.over || peer.out.open > 0 {
            return Ok(());
        }
        if room > 0 {
            return self.send(stage, who, room);
        }
        if !all {
            return Ok(());
        }
        self.peers[who].out.over = true;
        if self.kind == Kind::Pipe {
            return Ok(());
        }
        let end = sqe::op(IORING_OP_SHUTDOWN, self.peers[who].fd);
        self.own(stage, who, end.set(|s| s.len = libc::SHUT_WR as u32), Step::Shutdown)
    }
}

impl Scene for Conn {
    fn on(&mut self, stage: &mut Stage, end: &End<Token>) -> Check {
        let Token { who, step, .. } = end.token;
        let (res, reset) = (end.cqe.res, matches!(self.plan, Plan::Reset(..)));
        match step {
            Step::Send => self.sent(who, end)?,
            Step::Recv => self.received(stage, who, end)?,
            Step::Slot => ensure(res == 1, || "an odd result".into())?,
            Step::Shutdown => {
                let fine = res == 0 || reset && res == -libc::ENOTCONN;
                ensure(fine, || "an odd result".into())?;
            }
            Step::Close => ensure(res == 0, || "an odd result".into())?,
            _ => {
                // The kernel itself gives EINVAL if the head ends before its timeout is armed.
                let fine =
                    [libc::ETIME, libc::EALREADY, libc::ENOENT, libc::EINVAL, libc::ECANCELED];
                ensure(fine.contains(&-res), || "an odd result".into())?;
            }
        }
        if end.last {
            match step {
                Step::Slot | Step::Shutdown | Step::Close => self.peers[who].open -= 1,
                _ => self.half(who, step).open -= 1,
            }
        }
        let peer = &mut self.peers[who];
        if peer.out.open == 0
            && let Some(offer) = peer.offer.take()
        {
            offer.withdraw(&stage.hands[peer.ring].ledger.ring)?;
        }
        self.go(stage)?;
        if self.over() { self.account(stage) } else { Ok(()) }
    }

    fn tick(&mut self, stage: &mut Stage) -> Check {
        let who = stage.rng.usize(..2);
        match stage.rng.u32(..40) {
            0 => self.cancel(stage, who, Step::Send),
            1 => self.cancel(stage, who, Step::Recv),
            2 if self.peers[who].slot.is_some() && !self.peers[who].closed => {
                self.set_slot(stage, who, None)?;
            }
            _ => {}
        }
        self.go(stage)
    }

    fn abort(&mut self) {
        for peer in self.peers.iter_mut().filter(|p| !p.closed) {
            sys::reset_on_close(peer.fd);
            os::close(peer.fd);
        }
    }

    fn over(&self) -> bool {
        self.peers.iter().all(|p| p.closed && p.out.open + p.inn.open + p.open == 0)
    }
}
