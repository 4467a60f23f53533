//! Buffer rings that another thread overwrites with nonsense while requests pick from them.

use super::net::pair;
use super::pbuf::{GROUP, reg, register};
use super::prelude::*;
use libc::ENOBUFS;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

pub const CASES: &[Case] = &[
    case!("scribble", own_memory, [Reg(IORING_REGISTER_PBUF_RING)], "every word of a buffer ring changes while requests pick from it"),
    case!("scribble", kernel_memory, [Reg(IORING_REGISTER_PBUF_RING)], "every word of a buffer ring mapped from the ring's file changes while requests pick from it"),
    case!("scribble", incremental_buffers, [Reg(IORING_REGISTER_PBUF_RING)], "every word of a ring of incremental buffers changes while requests pick from it"),
];

const ENTRIES: u16 = 8;
/// Number of requests, of all sorts in turn.
const N: u64 = 4000;
/// Limit of the bytes in the socket: no buffer takes more, whatever its length says.
const MOST: usize = 1024;
const PAGE: usize = 4096;
const GUARD: u8 = 0xa5;

/// Makes memory to receive into between two guard pages. Plain buffers begin in the first page and
/// take less than a page; incremental buffers, of any length, may take all that is sent.
fn arena(flags: u16) -> Vec<u8> {
    let room = if flags & IOU_PBUF_RING_INC == 0 { 2 * PAGE } else { PAGE + MOST * N as usize };
    let mut all = vec![0; room + 2 * PAGE];
    all[..PAGE].fill(GUARD);
    all[room + PAGE..].fill(GUARD);
    all
}

/// Returns the number of changed bytes in the guards.
fn changed(arena: &[u8]) -> usize {
    let (first, last) = (&arena[..PAGE], &arena[arena.len() - PAGE..]);
    first.iter().chain(last).filter(|b| **b != GUARD).count()
}

/// Writes nonsense until `stop` is set: good, bad and read-only addresses, lengths, ids and tails.
fn scribble(page: usize, good: u64, seed: u64, stop: &AtomicBool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let read_only = os::page(libc::PROT_READ) as u64;
    let bad = [BAD as u64, KERNEL as u64, 0, u64::MAX - 4, 1 << 63, read_only];
    let long = [0, 1 << 30, i32::MAX as u32, 1 << 31, u32::MAX];
    while !stop.load(Ordering::Relaxed) {
        let entry = page + 16 * usize::from(rng.u16(..ENTRIES));
        let well = rng.u32(..4) > 0;
        let at = if well { good + rng.u64(..4096) } else { bad[rng.usize(..bad.len())] };
        let len = if rng.u32(..8) > 0 { rng.u32(1..64) } else { long[rng.usize(..long.len())] };
        os::store(entry, &[at]);
        os::store(entry + 8, &[len]);
        // The last half-word of the first entry is the tail.
        os::store(entry + 12, &[rng.u16(..)]);
        os::store(page + 14, &[rng.u16(..)]);
    }
}

/// Results of the requests over such a ring.
struct Seen {
    ring: Ring,
    peer: TcpStream,
    socket: TcpStream,
    unread: usize,
    /// Errors, and 0 for success.
    results: BTreeSet<i32>,
    bytes: usize,
    /// CQEs that are not allowed.
    wrong: Vec<Cqe>,
}

impl Seen {
    /// Submits one request, and waits for or cancels it.
    fn one(&mut self, ioprio: u16, number: u64) -> Result<(), Stop> {
        if self.unread < MOST / 2 {
            self.peer.write_all(&[b'x'; MOST / 2])?;
            self.unread += MOST / 2;
        }
        let sqe = sqe::op(IORING_OP_RECV, self.socket.as_raw_fd()).with(IOSQE_BUFFER_SELECT);
        let sqe = sqe.set(|s| (s.buf_index, s.ioprio) = (GROUP, ioprio));
        self.ring.push(sqe.ud(number)).submit();
        while !self.ended(number) {
            // A request that has taken all data waits for more.
            self.ring.push(sqe::cancel(number, 0).ud(u64::MAX)).submit_wait(1);
        }
        Ok(())
    }

    /// Checks the posted CQEs; returns whether request `number` ended.
    fn ended(&mut self, number: u64) -> bool {
        let mut ended = false;
        for c in self.ring.pop_all() {
            if c.user_data == u64::MAX {
                continue;
            }
            let holds = c.res <= 0 || c.flags & IORING_CQE_F_BUFFER != 0;
            if ended || c.user_data != number || !holds || c.res.max(0) as usize > self.unread {
                self.wrong.push(c);
                continue;
            }
            ended = c.flags & IORING_CQE_F_MORE == 0;
            self.unread -= c.res.max(0) as usize;
            self.bytes += c.res.max(0) as usize;
            self.results.insert(c.res.min(0));
        }
        ended
    }
}

fn scribbled(cx: &mut Cx, flags: u16) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let page = if flags & IOU_PBUF_RING_MMAP == 0 {
        let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
        cx.is("register", register(&ring, &reg(page, ENTRIES.into(), flags)), 0isize);
        page
    } else {
        cx.is("register", register(&ring, &reg(0, ENTRIES.into(), flags)), 0isize);
        let offset = (IORING_OFF_PBUF_RING | u64::from(GROUP) << 16) as i64;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = os::mmap_fd(ring.fd, 4096, prot, libc::MAP_SHARED, offset);
        cx.holds("mapped", at > 0);
        at as usize
    };
    let (peer, socket) = pair()?;
    let (results, wrong) = (BTreeSet::new(), Vec::new());
    let mut seen = Seen { ring, peer, socket, unread: 0, results, bytes: 0, wrong };
    let mut memory = arena(flags);
    let (at, stop) = (addr_mut(&mut memory[PAGE..]) as u64, AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| scribble(page, at, u64::from(flags) + 1, &stop));
        let many = IORING_RECV_MULTISHOT;
        let bundle = IORING_RECVSEND_BUNDLE;
        let sorts = [0, bundle, many, many | bundle];
        let (mut number, mut told) = (0, Ok(()));
        // The loop goes on until some data came: on a busy machine the other thread may start late.
        while told.is_ok() && (number < N || seen.bytes == 0) {
            told = seen.one(sorts[number as usize % sorts.len()], number);
            number += 1;
        }
        stop.store(true, Ordering::Relaxed);
        told
    });
    told?;
    let known = [0, -EFAULT, -ENOBUFS, -ECANCELED];
    cx.holds("results as they may be", seen.results.iter().all(|r| known.contains(r)));
    cx.eq("CQEs that may not be", std::mem::take(&mut seen.wrong), Vec::new());
    cx.holds("some data came", seen.bytes > 0);
    cx.quiet(&seen.ring, "no more than one end each", 5);
    cx.eq("bytes of the guards that changed", changed(std::hint::black_box(&memory)), 0);
    cx.one(&mut seen.ring, "the ring goes on", sqe::nop(), 0);
    Ok(())
}

fn own_memory(cx: &mut Cx) -> Outcome {
    scribbled(cx, 0)
}

fn kernel_memory(cx: &mut Cx) -> Outcome {
    scribbled(cx, IOU_PBUF_RING_MMAP)
}

fn incremental_buffers(cx: &mut Cx) -> Outcome {
    scribbled(cx, IOU_PBUF_RING_INC)?;
    scribbled(cx, IOU_PBUF_RING_INC | IOU_PBUF_RING_MMAP)
}
