//! TCP echo servers: on a ring (RECV and SEND in turn, or multishot RECV into provided buffers),
//! and on epoll. One thread serves. It measures only itself, as the client is another process.

use super::buf::Slots;
use super::job::{Job, Waiting};
use super::pbuf::BufRing;
use super::peer::{EVENTS, Peer};
use super::phase::{Counts, Phase, Stage, Usage};
use super::rings::Footprint;
use super::uring::Ring;
use crate::cli::Driver;
use anyhow::{Context, bail};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use softring_uapi::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Least bytes of a receive buffer: more than one message, so that a receive seldom fills it.
const ROOM: u32 = 8192;
/// Largest number of provided buffers.
const MAX_BUFS: u32 = 4096;

const RECV: u64 = 1 << 56;
const SEND: u64 = 2 << 56;

fn room(job: &Job) -> u32 {
    ROOM.max(job.bs.saturating_mul(2))
}

/// Serves until the measurement is over.
pub fn serve(job: &Job, stage: &Stage) -> anyhow::Result<Counts> {
    let started = Peer::start(job, true);
    stage.ready();
    let (peer, streams) = started?;
    let mut counts = match job.driver {
        Driver::Epoll => on_epoll(job, stage, &streams)?,
        _ if job.multishot => Server::new(job, &streams)?.multishot(stage)?,
        _ => Server::new(job, &streams)?.single(stage)?,
    };
    counts.ios = counts.bytes / u64::from(job.bs);
    hang_up(&streams);
    counts.client = Some(peer.finish()?);
    Ok(counts)
}

/// Shuts the connections down, which ends the client.
fn hang_up(streams: &[TcpStream]) {
    for s in streams {
        let _ = s.shutdown(Shutdown::Both);
    }
}

/// Serves with level-triggered epoll: each event is one recv(2) and one send(2).
fn on_epoll(job: &Job, stage: &Stage, streams: &[TcpStream]) -> anyhow::Result<Counts> {
    let mut counts = Counts::new(false)?;
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for (i, s) in streams.iter().enumerate() {
        epoll::add(&set, s, EventData::new_u64(i as u64), EventFlags::IN)?;
    }
    let mut buf = vec![0u8; room(job) as usize];
    let mut events = Vec::with_capacity(EVENTS);
    while stage.phase() != Phase::Over {
        events.clear();
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let mut stream = &streams[event.data.u64() as usize];
            let n = stream.read(&mut buf)?;
            if n == 0 {
                bail!("the client closed the connection");
            }
            if stage.phase() == Phase::Measure {
                counts.bytes += n as u64;
            }
            stream.write_all(&buf[..n])?;
        }
    }
    Ok(counts)
}

/// A server on a ring.
struct Server<'a> {
    ring: Ring,
    streams: &'a [TcpStream],
    room: u32,
    counts: Counts,
}

impl<'a> Server<'a> {
    fn new(job: &Job, streams: &'a [TcpStream]) -> anyhow::Result<Server<'a>> {
        let entries = (2 * job.connections).next_power_of_two().clamp(8, 32_768);
        let ring = Ring::new(entries, job.setup_flags).context("io_uring_setup")?;
        let counts = Counts { ring: ring.kind(), ..Counts::new(false)? };
        Ok(Server { ring, streams, room: room(job), counts })
    }

    fn push(&mut self, opcode: u8, conn: u32, sqe: io_uring_sqe) -> anyhow::Result<()> {
        let fd = self.streams[conn as usize].as_raw_fd();
        let sqe = io_uring_sqe { opcode, fd, ..sqe };
        if !self.ring.push(sqe) {
            self.ring.enter(0).context("io_uring_enter")?;
            if !self.ring.push(sqe) {
                bail!("the submission queue is full");
            }
        }
        Ok(())
    }

    fn received(&mut self, stage: &Stage, res: i32) -> anyhow::Result<u32> {
        if res <= 0 {
            bail!("RECV returned {res}");
        }
        if stage.phase() == Phase::Measure {
            self.counts.bytes += u64::from(res.unsigned_abs());
        }
        Ok(res.unsigned_abs())
    }

    /// Waits for at least one completion, and takes all that are there.
    fn turn(&mut self, cqes: &mut Vec<io_uring_cqe>) -> anyhow::Result<()> {
        self.ring.enter(1).context("io_uring_enter")?;
        cqes.clear();
        self.ring.reap(|c| cqes.push(*c));
        Ok(())
    }

    /// Serves with RECV and SEND in turn, each connection in its own slot.
    fn single(mut self, stage: &Stage) -> anyhow::Result<Counts> {
        let n = self.streams.len() as u32;
        let slots = Slots::new(n, self.room)?;
        // Start and end of the bytes left to send, by connection.
        let mut left = vec![(0u32, 0u32); n as usize];
        for conn in 0..n {
            self.recv(conn, &slots)?;
        }
        let mut cqes = Vec::new();
        while stage.phase() != Phase::Over {
            self.turn(&mut cqes)?;
            for c in &cqes {
                let conn = c.user_data as u32;
                let (from, to) = &mut left[conn as usize];
                if c.user_data & SEND == 0 {
                    (*from, *to) = (0, self.received(stage, c.res)?);
                } else if c.res > 0 {
                    *from += c.res.unsigned_abs();
                } else {
                    bail!("SEND returned {}", c.res);
                }
                let (from, to) = (*from, *to);
                if from == to {
                    self.recv(conn, &slots)?;
                } else {
                    let addr = slots.addr(conn) as u64 + u64::from(from);
                    self.send(conn, 0, addr, to - from)?;
                }
            }
        }
        Ok(self.counts)
    }

    fn recv(&mut self, conn: u32, slots: &Slots) -> anyhow::Result<()> {
        let (addr, len) = (slots.addr(conn) as u64, self.room);
        let user_data = RECV | u64::from(conn);
        self.push(IORING_OP_RECV, conn, io_uring_sqe { addr, len, user_data, ..Default::default() })
    }

    fn send(&mut self, conn: u32, bid: u16, addr: u64, len: u32) -> anyhow::Result<()> {
        let user_data = SEND | u64::from(bid) << 32 | u64::from(conn);
        let op_flags = libc::MSG_WAITALL.cast_unsigned();
        let sqe = io_uring_sqe { addr, len, op_flags, user_data, ..Default::default() };
        self.push(IORING_OP_SEND, conn, sqe)
    }

    /// Serves with a multishot RECV per connection; a buffer goes back once its SEND is complete.
    fn multishot(mut self, stage: &Stage) -> anyhow::Result<Counts> {
        let n = self.streams.len() as u32;
        let count = (2 * n).next_power_of_two().clamp(16, MAX_BUFS) as u16;
        let mut bufs = BufRing::new(&self.ring, count, self.room).context("buffer ring")?;
        for conn in 0..n {
            self.recv_many(conn)?;
        }
        let mut cqes = Vec::new();
        while stage.phase() != Phase::Over {
            self.turn(&mut cqes)?;
            for c in &cqes {
                let conn = c.user_data as u32;
                if c.user_data & SEND != 0 {
                    if c.res <= 0 {
                        bail!("SEND returned {}", c.res);
                    }
                    bufs.give((c.user_data >> 32) as u16);
                    continue;
                }
                if c.flags & IORING_CQE_F_BUFFER != 0 {
                    let len = self.received(stage, c.res)?;
                    let bid = (c.flags >> IORING_CQE_BUFFER_SHIFT) as u16;
                    self.send(conn, bid, bufs.addr(bid), len)?;
                } else if c.res != -libc::ENOBUFS {
                    bail!("RECV returned {}", c.res);
                }
                if c.flags & IORING_CQE_F_MORE == 0 {
                    self.recv_many(conn)?;
                }
            }
            bufs.publish();
        }
        Ok(self.counts)
    }

    fn recv_many(&mut self, conn: u32) -> anyhow::Result<()> {
        let sqe = io_uring_sqe {
            flags: IOSQE_BUFFER_SELECT,
            ioprio: IORING_RECV_MULTISHOT,
            user_data: RECV | u64::from(conn),
            ..Default::default()
        };
        self.push(IORING_OP_RECV, conn, sqe)
    }
}

/// Arms a RECV on each connection, and measures the cost while no data comes.
pub fn idle(job: &Job) -> anyhow::Result<(Waiting, Option<String>)> {
    let (peer, streams) = Peer::start(job, false)?;
    let mut server = Server::new(job, &streams)?;
    // All requests share one buffer: no data will come.
    let slots = Slots::new(1, server.room)?;
    let arm = |server: &mut Server<'_>, conn: u32| {
        let (addr, len) = (slots.addr(0) as u64, server.room);
        let sqe = io_uring_sqe { addr, len, user_data: RECV, ..Default::default() };
        server.push(IORING_OP_RECV, conn, sqe)
    };
    // The first request pays for what all share.
    arm(&mut server, 0)?;
    server.ring.enter(0).context("io_uring_enter")?;
    let (before, slab) = (Footprint::now(), unreclaimable());
    let requests = job.connections - 1;
    for conn in 1..job.connections {
        arm(&mut server, conn)?;
    }
    server.ring.enter(0).context("io_uring_enter")?;
    let (after, kernel) = (Footprint::now(), unreclaimable().saturating_sub(slab));
    // Requests that go to worker threads have got there by then.
    std::thread::sleep(Duration::from_millis(200));
    let start = (Usage::now(), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs_f64(job.seconds));
    let used = Usage::now().since(start.0);
    let per = |bytes: u64| bytes / u64::from(requests.max(1));
    let waiting = Waiting {
        requests,
        memory: per((after.private + after.shared).saturating_sub(before.private + before.shared)),
        kernel: per(kernel),
        fds: after.fds.saturating_sub(before.fds),
        threads: after.threads.saturating_sub(before.threads),
        cpu_us: used.user + used.system,
        waited_us: start.1.elapsed().as_micros() as u64,
    };
    let ring = server.counts.ring;
    hang_up(&streams);
    drop(peer);
    Ok((waiting, ring))
}

/// Returns the memory of the kernel's own objects, machine-wide, in bytes.
fn unreclaimable() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|l| l.strip_prefix("SUnreclaim:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
