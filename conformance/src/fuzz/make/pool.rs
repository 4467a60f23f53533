//! Pools that generators pick from, and the keys by which [`super::conflicts`] finds what requests
//! share.

use super::Gen;
use crate::fuzz::program::{Bad, Cell, Fd, Slot, Sqe, Val};
use softring_uapi::*;

/// A thing that requests share, and whether this request changes it.
pub type Key = (u64, bool);

/// A submission with the keys that it touches.
#[derive(Debug, Default)]
pub struct Made {
    pub sqe: Sqe,
    pub keys: Vec<Key>,
    /// Flag, true if it may wait for an event that only a later step brings.
    pub arms: bool,
    /// Flag, true if it goes on waiting after that event.
    pub again: bool,
    /// Flag, true if several things may end its wait.
    pub loud: bool,
    /// Flag, true if a short time may decide when it ends, or another request.
    pub soon: bool,
}

pub const FIXED_TABLE: u64 = 60;
pub const BUFFER_TABLE: u64 = 61;
/// Key of the set of open descriptors.
pub const OPEN: u64 = 62;
/// Key of paths and the files there: renames and links make any of the files of any other.
pub const FILES: u64 = 63;
/// Key of a file that could be any slot's.
pub const WORLD: u64 = 64;
pub const NAMES: [&str; 12] =
    ["a", "b", "ro", "wo", "ap", "n0", "n1", "n2", "sub/e", "sub/n3", "link", "dangling"];

/// Returns the key of a descriptor's file; the two ends of a pipe have one key.
pub const fn slot_key(slot: Slot) -> u64 {
    match slot {
        Slot::A | Slot::Path => 1,
        Slot::B => 2,
        Slot::Ro => 3,
        Slot::Wo => 4,
        Slot::Append => 5,
        Slot::Direct => 6,
        Slot::Dir => 7,
        Slot::Sub => 8,
        Slot::PipeR | Slot::PipeW => 9,
        Slot::NbR | Slot::NbW => 10,
        Slot::FullR | Slot::FullW => 11,
        Slot::Event => 12,
        Slot::Sem => 13,
        Slot::SockA | Slot::SockB => 14,
        Slot::Null => 15,
        Slot::RingEvent => 16,
        Slot::TcpA | Slot::TcpB => 17,
        Slot::UdpA | Slot::UdpB => 18,
        Slot::DgramA | Slot::DgramB => 19,
        Slot::SeqA | Slot::SeqB => 20,
        Slot::EagerA | Slot::EagerB => 21,
        Slot::TightA | Slot::TightB => 22,
        Slot::TcpL => 23,
        Slot::UnixL => 24,
        Slot::TcpN => 25,
        Slot::UnixN => 26,
        Slot::Epoll => 27,
    }
}

pub const fn buf_key(i: u8) -> u64 {
    70 + i as u64
}

pub const fn child_key(i: u8) -> u64 {
    30 + i as u64
}

/// Returns whether it is the key of a child.
pub fn is_child(key: u64) -> bool {
    (child_key(0)..group_key(0)).contains(&key)
}

pub const fn group_key(i: u16) -> u64 {
    40 + i as u64
}

pub const fn ud_key(ud: u64) -> u64 {
    1000 + ud
}

/// Returns whether it is the key of a slot.
pub const fn is_slot(key: u64) -> bool {
    key <= slot_key(Slot::Epoll)
}

/// Returns whether it is the key of a file or directory on disk.
pub const fn is_file(key: u64) -> bool {
    key <= slot_key(Slot::Sub)
}

/// Regular files among the slots.
pub const REGULAR: [Slot; 6] = [Slot::A, Slot::B, Slot::Ro, Slot::Wo, Slot::Append, Slot::Direct];
/// Slots whose reads may have to wait.
pub const STREAMS: [Slot; 11] = [
    Slot::PipeR,
    Slot::PipeW,
    Slot::NbR,
    Slot::NbW,
    Slot::FullR,
    Slot::FullW,
    Slot::Event,
    Slot::Sem,
    Slot::SockA,
    Slot::SockB,
    Slot::Null,
];

/// Returns whether requests on the slot may have to wait.
pub fn waits(slot: Slot) -> bool {
    STREAMS.contains(&slot) || Slot::ENDS.contains(&slot) || Slot::OTHERS.contains(&slot)
}

/// Makes an array of `struct iovec`.
pub fn iovecs(parts: Vec<(Val, u64)>) -> Val {
    let cells =
        parts.into_iter().flat_map(|(base, len)| [Cell::U64(base), Cell::U64(Val::Num(len))]);
    Val::Mem(cells.collect())
}

/// Makes a `struct __kernel_timespec`.
pub fn timespec(sec: i64, nsec: i64) -> Val {
    let word = |v: i64| Cell::U64(Val::Num(v.cast_unsigned()));
    Val::Mem(vec![word(sec), word(nsec)])
}

impl Gen<'_> {
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(0..from.len())]
    }

    /// Picks a file or stream that can mostly be read, or written.
    pub fn data_slot(&mut self, write: bool) -> Slot {
        use Slot::*;
        if self.chance(12) {
            return self.pick(&Slot::ALL);
        }
        if self.net && self.chance(70) {
            return self.pick(&Slot::ENDS);
        }
        if write {
            self.pick(&[
                A, A, B, B, Wo, Append, Direct, PipeW, NbW, FullW, Event, SockA, SockB, Null,
            ])
        } else {
            self.pick(&[A, A, B, Ro, Append, Direct, PipeR, NbR, FullR, Event, Sem, SockA, SockB])
        }
    }

    /// Picks a socket, or the epoll set.
    pub fn socket_slot(&mut self) -> Slot {
        if self.chance(80) { self.pick(&Slot::ENDS) } else { self.pick(&Slot::OTHERS) }
    }

    /// Picks a file or stream, and its key.
    pub fn slot(&mut self, changes: bool) -> (Slot, Key) {
        let slot = match self.rng.u32(0..100) {
            _ if self.net && self.rng.bool() => self.socket_slot(),
            0..55 => self.pick(&REGULAR),
            55..90 => self.pick(&STREAMS),
            _ => self.pick(&Slot::ALL),
        };
        (slot, (slot_key(slot), changes))
    }

    /// Same as [`Self::slot`], sometimes through the table of registered files.
    pub fn file(&mut self, made: &mut Made, changes: bool) {
        if !self.fixed.is_empty() && self.chance(35) {
            let beyond = usize::from(self.chance(12));
            let i = self.rng.usize(0..self.fixed.len() + beyond);
            made.sqe.fd = Fd::Num(i as i64);
            made.sqe.flags |= IOSQE_FIXED_FILE;
            made.keys.push((FIXED_TABLE, false));
            // Only ring 0's table is known.
            match self.fixed.get(i) {
                Some(Some(slot)) if self.ring == 0 => {
                    made.keys.push((slot_key(*slot), changes));
                    made.arms |= waits(*slot);
                }
                _ => made.keys.push((WORLD, true)),
            }
        } else if !self.opened.is_empty() && self.chance(8) {
            let (of, key) = self.opened[self.rng.usize(0..self.opened.len())];
            made.sqe.fd = Fd::Of(of);
            made.keys.extend([(ud_key(of), true), (key, true)]);
        } else {
            let (slot, key) = self.slot(changes);
            made.sqe.fd = Fd::Slot(slot);
            made.keys.push(key);
            made.arms |= waits(slot);
        }
    }

    /// Picks a buffer that a request reads into or writes from.
    pub fn buf(&mut self, made: &mut Made, into: bool) -> Val {
        let i = self.rng.u8(0..7);
        made.keys.push((buf_key(i), into));
        let off = if self.chance(70) { 0 } else { self.rng.u32(0..8192) };
        Val::Buf(i, off)
    }

    pub fn length(&mut self) -> u32 {
        match self.rng.u32(0..100) {
            0..8 => 0,
            8..35 => self.rng.u32(1..64),
            35..60 => self.pick(&[8, 512, 4096, 8192]),
            60..90 => self.rng.u32(1..8192),
            90..96 => self.rng.u32(8192..40_000),
            _ => self.pick(&[u32::MAX, 0x7fff_ffff, 0x7fff_f000, 0x8000_0000]),
        }
    }

    pub fn offset(&mut self) -> u64 {
        match self.rng.u32(0..100) {
            0..40 => 0,
            40..65 => self.rng.u64(0..24_000),
            65..75 => self.pick(&[512, 4096, 8192, 20_480]),
            75..92 => u64::MAX,
            92..95 => self.rng.u64(0..1 << 20),
            _ => self.pick(&[u64::MAX - 1, 1 << 63, (1 << 63) - 1, (1 << 63) - 4096, 1 << 44]),
        }
    }

    /// Picks a path.
    pub fn path(&mut self, made: &mut Made, changes: bool) -> Val {
        let name = self.pick(&NAMES);
        made.keys.push((FILES, changes));
        match self.rng.u32(0..100) {
            0..93 => Val::Str(name.to_owned()),
            93..95 => Val::Str(String::new()),
            95..97 => Val::Str("missing/x".to_owned()),
            97..98 => Val::Str("a/x".to_owned()),
            _ => Val::Bad(Bad::LongStr),
        }
    }

    /// Picks the directory that a path starts from.
    pub fn dirfd(&mut self) -> Fd {
        match self.rng.u32(0..100) {
            0..80 => Fd::Num(i64::from(libc::AT_FDCWD)),
            80..92 => Fd::Slot(Slot::Dir),
            92..97 => Fd::Slot(Slot::A),
            _ => Fd::Num(-1),
        }
    }

    pub fn bad(&mut self) -> Bad {
        self.pick(&[
            Bad::Null,
            Bad::Unmapped,
            Bad::Kernel,
            Bad::NonCanonical,
            Bad::ReadOnly,
            Bad::Edge,
        ])
    }

    /// Sets `file_index` of requests that may open into the table of registered files.
    pub fn direct(&mut self, made: &mut Made) {
        if self.fixed.is_empty() || self.chance(50) {
            return;
        }
        let n = self.fixed.len() as i64;
        made.keys.push((FIXED_TABLE, true));
        let any = self.rng.i64(1..n + 2);
        made.sqe.file = Fd::Num(if self.chance(40) { -1 } else { any });
        if let Some(at) = usize::try_from(any - 1).ok().filter(|&i| i < self.fixed.len()) {
            self.fixed[at] = None;
        }
    }
}
