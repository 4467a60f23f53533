//! Rings, buffers, and the bytes of every stream, on which the scenes act.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use fastrand::Rng;

use super::super::ledger::{End, Ledger};
use super::super::pbuf::Pbufs;
use super::super::{Check, Fault, ensure, sys};
use super::transfer::Ways;
use crate::entry::EntryPoint;
use crate::os;
use crate::ring::Map;
use crate::sqe::addr;
use softring_uapi::*;

/// A worker's rings: the default, DEFER_TASKRUN, and with an SQ thread.
pub const RINGS: [u32; 3] =
    [0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SQPOLL];
/// Number of scenes that a worker has at a time.
pub const MOST: usize = 24;
/// Groups of provided buffers that all scenes of a ring share: plain, and incremental.
pub const WHOLE: u16 = 1;
pub const BIT_BY_BIT: u16 = 2;
/// The first of the groups that one stream sends from.
pub const OFFERS: u16 = 100;
/// Registered buffers: the pattern, and a piece for each scene.
pub const PATTERN: u16 = 0;
pub const PIECES: u16 = 1;
pub const PIECE: usize = 8192;

/// Purpose of a scene's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Send,
    SendTimeout,
    Recv,
    RecvTimeout,
    Shutdown,
    Close,
    Slot,
    /// A purpose that only its scene knows.
    Other(u32),
}

/// A request of a scene; `who` is the scene's own.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub scene: usize,
    pub who: usize,
    pub step: Step,
}

/// The bytes of every stream and file, from a place of its own on.
pub struct Pattern {
    pub map: Map,
}

/// Bytes after which the pattern repeats: a prime, so that no buffer's size divides it.
const PERIOD: usize = 65_521;
/// Bytes of the pattern in one piece, from any place on.
pub const LONGEST: usize = 64 << 10;

impl Pattern {
    pub fn new(rng: &mut Rng) -> Check<Self> {
        let map = Map::anonymous((PERIOD + LONGEST).next_multiple_of(4096))
            .map_err(|e| format!("no memory: errno {e}"))?;
        let bytes: Vec<u8> = (0..PERIOD).map(|_| rng.u8(..)).collect();
        (0..map.len).for_each(|i| sys::store(map.addr + i, bytes[i % PERIOD]));
        Ok(Pattern { map })
    }

    /// Returns the address of the bytes of stream `of` from `offset` on.
    pub fn at(&self, of: usize, offset: u64) -> usize {
        self.map.addr + (of + (offset % PERIOD as u64) as usize) % PERIOD
    }

    /// Checks that these are the bytes of stream `of` from `offset` on.
    pub fn check(&self, of: usize, offset: u64, got: &[u8]) -> Check {
        let mut done = 0;
        for part in got.chunks(LONGEST) {
            let want = sys::bytes(self.at(of, offset + done), part.len());
            if part != want
                && let Some(i) = part.iter().zip(&want).position(|(a, b)| a != b)
            {
                let at = offset + done + i as u64;
                return Err(format!("byte {at} of stream {of}: {}, not {}", part[i], want[i]));
            }
            done += part.len() as u64;
        }
        Ok(())
    }
}

/// A ring and its provided buffers.
pub struct Hand {
    pub ledger: Ledger<Token>,
    pub whole: Pbufs,
    pub bits: Pbufs,
}

/// Counts of actions by name.
pub type Tally = BTreeMap<&'static str, u64>;

/// Resources that a scene may use.
pub struct Stage {
    pub hands: Vec<Hand>,
    pub rng: Rng,
    pub sends: Ways,
    pub pattern: Arc<Pattern>,
    /// One piece per scene, registered with each ring.
    pub pieces: Map,
    pub listener: TcpListener,
    pub null: OwnedFd,
    pub tally: Tally,
}

/// A longer activity with requests of its own.
pub trait Scene: std::fmt::Debug {
    /// Handles a completion of one of its requests.
    fn on(&mut self, stage: &mut Stage, end: &End<Token>) -> Check;
    /// Goes on with time; the first call starts the scene.
    fn tick(&mut self, stage: &mut Stage) -> Check;
    /// Releases after a fault what may keep requests from being cancelled.
    fn abort(&mut self) {}
    /// Returns whether the scene has ended, and has no requests.
    fn over(&self) -> bool;
}

fn wrong(e: impl std::fmt::Display) -> Fault {
    format!("setting the stage: {e}")
}

impl Hand {
    fn new(entry: EntryPoint, flags: u32, pattern: &Map, pieces: &Map) -> Check<Self> {
        let params = io_uring_params { flags, sq_thread_idle: 2, ..Default::default() };
        let ledger = Ledger::new(entry, 256, params)?;
        let whole = Pbufs::new(&ledger.ring, WHOLE, 16, 2048)?;
        let bits = Pbufs::with(&ledger.ring, BIT_BY_BIT, 8, 8192, IOU_PBUF_RING_INC)?;
        let buffers = [pattern, pieces].map(|m| [m.addr as u64, m.len as u64]);
        let got = ledger.ring.register_slice(IORING_REGISTER_BUFFERS, &buffers);
        ensure(got == 0, || format!("BUFFERS: {got}"))?;
        let files = [-1; 2 * MOST];
        let at = addr(&files);
        let got = ledger.ring.register(IORING_REGISTER_FILES, at, files.len() as u32);
        ensure(got == 0, || format!("FILES: {got}"))?;
        Ok(Hand { ledger, whole, bits })
    }
}

impl Stage {
    pub fn new(entry: EntryPoint, sends: Ways, seed: u64, pattern: Arc<Pattern>) -> Check<Self> {
        let pieces = Map::anonymous(MOST * PIECE).map_err(wrong)?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(wrong)?;
        sys::small_segments(&listener);
        let hand = |flags| Hand::new(entry, flags, &pattern.map, &pieces);
        Ok(Stage {
            hands: RINGS.into_iter().map(hand).collect::<Check<_>>()?,
            rng: Rng::with_seed(seed),
            sends,
            pieces,
            listener,
            null: File::open("/dev/null").map_err(wrong)?.into(),
            tally: Tally::new(),
            pattern,
        })
    }

    pub fn count(&mut self, what: &'static str, n: u64) {
        *self.tally.entry(what).or_default() += n;
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    pub fn any_ring(&mut self) -> usize {
        self.rng.usize(..RINGS.len())
    }

    /// Queues a chain of requests on ring `ring`, and returns its head's number.
    pub fn push(&mut self, ring: usize, chain: &[(io_uring_sqe, Token)]) -> Check<u64> {
        self.hands[ring].ledger.push(chain)
    }

    /// Makes a request that puts file `fd` (-1: none) into a slot of a ring's table, in the order
    /// of submission; `at` is memory for its number.
    pub fn slot_sqe(slot: usize, fd: i32, at: usize) -> io_uring_sqe {
        sys::store(at, fd);
        crate::sqe::rw(IORING_OP_FILES_UPDATE, -1, at, 1, slot as u64)
    }

    /// Returns a descriptor of /dev/null.
    pub fn null(&self) -> i32 {
        self.null.as_raw_fd()
    }

    /// Forks a process that polls nothing and keeps descriptors open that are closed meanwhile.
    pub fn child(ms: i32, code: i32) -> i32 {
        os::spawn_child(|| {
            os::poll(-1, 0, ms);
            code
        })
    }
}
