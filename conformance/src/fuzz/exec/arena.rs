//! The executor's memory: at fixed addresses, so that both runs of a program pass the same numbers,
//! with unmapped pages behind every buffer. Programs with other seeds use other addresses. The
//! reason: when a process with a WAITID in flight ends, Linux 6.18 writes the empty siginfo_t into
//! whichever address space the processor used last, often another executor's.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::fuzz::program::{Bad, Cell, Fd, Out, Val};

const LOWEST: u64 = 0x1000_0000_0000;
/// Distance between two programs' memory.
const APART: u64 = 0x1000_0000;
/// Number of programs before an address is used again.
const PLACES: u64 = 4096;
static BASE: AtomicU64 = AtomicU64::new(LOWEST);
const STRIDE: u64 = 0x1_0000;
const AUX: u64 = 0x20_0000;
const AUX_LEN: usize = 1 << 20;
const READ_ONLY: u64 = 0x10_0000;
/// Number of buffers of a program.
pub const BUFFERS: u8 = 12;
/// Index of the first provided buffer: one for each group.
pub const PROVIDED: u8 = 8;
/// Index of the buffer with futexes.
pub const FUTEXES: u8 = 7;
/// Memory for buffer rings: their number, and the entries of each.
pub const RINGS: u8 = 4;
pub const RING_ENTRIES: u16 = 256;
const RING: u64 = 0x18_0000;
/// Mapped bytes of each buffer.
pub const BUFFER_LEN: usize = 8192;
const LONG: usize = 5000;

/// Bytes that a request or a register call was given.
#[derive(Debug)]
pub struct Placed {
    addr: u64,
    before: Vec<u8>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Mem(Vec<Cell>),
    Out(Out),
}

/// The memory, and the used length of its structure area.
#[derive(Debug)]
pub struct Arena {
    next: u64,
    placed: Vec<Placed>,
}

fn map(addr: u64, len: usize, prot: i32) -> std::io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = std::ptr::with_exposed_provenance_mut(addr as usize);
    // SAFETY: MAP_FIXED_NOREPLACE never takes memory that is in use.
    let got = unsafe { libc::mmap(at, len, prot, flags, -1, 0) };
    if got == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn at(off: u64) -> u64 {
    BASE.load(Relaxed) + off
}

/// Returns the address of byte `off` of buffer `i`.
pub fn buffer(i: u8, off: u32) -> u64 {
    at(u64::from(i % BUFFERS) * STRIDE + u64::from(off))
}

/// Returns the address of a buffer ring's memory.
pub fn ring(i: u8) -> u64 {
    at(RING + u64::from(i % RINGS) * STRIDE)
}

impl Arena {
    /// Maps the memory of the program with this seed.
    pub fn new(seed: u64) -> std::io::Result<Self> {
        BASE.store(LOWEST + seed % PLACES * APART, Relaxed);
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        for i in 0..BUFFERS {
            map(buffer(i, 0), BUFFER_LEN, rw)?;
            let fill = vec![b'A' + i; BUFFER_LEN];
            write(buffer(i, 0), &fill);
        }
        for i in 0..RINGS {
            map(ring(i), 4096, rw)?;
        }
        map(at(READ_ONLY), 4096, libc::PROT_READ)?;
        map(at(AUX), AUX_LEN, rw)?;
        write(at(AUX), &[b'x'; LONG]);
        Ok(Self { next: at(AUX + 8192), placed: Vec::new() })
    }

    /// Returns the number that the kernel is given for `val`; first writes the bytes that it points
    /// at.
    pub fn lower(&mut self, val: &Val, fd: &dyn Fn(&Fd) -> i32) -> u64 {
        match val {
            Val::Num(n) => *n,
            Val::Buf(i, off) => buffer(*i, *off),
            Val::Bad(bad) => address(*bad),
            Val::Str(s) => {
                let mut bytes = s.as_bytes().to_vec();
                bytes.push(0);
                self.put(&bytes)
            }
            Val::Mem(cells) => {
                let bytes = self.bytes(cells, fd);
                let addr = self.put(&bytes);
                let kind = Kind::Mem(cells.clone());
                self.placed.push(Placed { addr, before: bytes, kind });
                addr
            }
            Val::Out(out) => {
                let before = vec![0; size(*out)];
                let addr = self.put(&before);
                self.placed.push(Placed { addr, before, kind: Kind::Out(*out) });
                addr
            }
            Val::Fd(f) => i64::from(fd(f)).cast_unsigned(),
            Val::Addr(slot) => self.put(&super::net::name(fd(&Fd::Slot(*slot)))),
            Val::Ring(i) => ring(*i),
        }
    }

    fn bytes(&mut self, cells: &[Cell], fd: &dyn Fn(&Fd) -> i32) -> Vec<u8> {
        let mut out = Vec::new();
        for cell in cells {
            match cell {
                Cell::U8(v) => out.push(*v),
                Cell::U16(v) => out.extend(v.to_le_bytes()),
                Cell::U32(v) => out.extend(v.to_le_bytes()),
                Cell::U64(v) => out.extend(self.lower(v, fd).to_le_bytes()),
                Cell::Fd(v) => out.extend(fd(v).to_le_bytes()),
            }
        }
        out
    }

    fn put(&mut self, bytes: &[u8]) -> u64 {
        let addr = self.next;
        let end = addr + (bytes.len() as u64).next_multiple_of(64);
        if end > at(AUX) + AUX_LEN as u64 {
            return address(Bad::Unmapped);
        }
        self.next = end;
        write(addr, bytes);
        addr
    }

    /// Returns the bytes placed since the last call.
    pub fn take_placed(&mut self) -> Vec<Placed> {
        std::mem::take(&mut self.placed)
    }
}

fn address(bad: Bad) -> u64 {
    match bad {
        Bad::Null => 0,
        Bad::Unmapped => at(0x800_0000),
        Bad::Kernel => 0xffff_8880_0000_1000,
        Bad::NonCanonical => 0x8000_0000_0000_0000,
        Bad::ReadOnly => at(READ_ONLY),
        Bad::Edge => buffer(0, BUFFER_LEN as u32 - 1),
        Bad::LongStr => at(AUX),
    }
}

const fn size(out: Out) -> usize {
    match out {
        Out::Statx => 256,
        Out::Pipe => 8,
        Out::Probe => 16 + 256 * 8,
        Out::Name | Out::Child => 128,
        Out::Raw(n) => n as usize,
    }
}

/// Writes into the arena; ignores other addresses.
pub fn write(addr: u64, bytes: &[u8]) {
    let end = addr + bytes.len() as u64;
    assert!(addr >= at(0) && end <= at(AUX) + AUX_LEN as u64);
    let at = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
    // SAFETY: callers pass addresses of the arena's writable maps, which live as long as the
    // process; no Rust reference points into them.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
}

/// Reads from the arena.
pub fn read(addr: u64, len: usize) -> Vec<u8> {
    assert!(addr >= at(0) && addr + len as u64 <= at(AUX) + AUX_LEN as u64);
    let at = std::ptr::with_exposed_provenance::<u8>(addr as usize);
    let mut out = vec![0; len];
    // SAFETY: as in `write`.
    unsafe { std::ptr::copy_nonoverlapping(at, out.as_mut_ptr(), len) };
    out
}

impl Placed {
    /// Describes the bytes that were written into this memory; `None` if it is unchanged.
    pub fn change(&self) -> Option<String> {
        let now = read(self.addr, self.before.len());
        if now == self.before {
            return None;
        }
        Some(match &self.kind {
            Kind::Mem(cells) => mem_change(cells, &self.before, &now),
            Kind::Out(Out::Statx) => statx(&now),
            Kind::Out(Out::Pipe) => "pipe fds written".to_owned(),
            Kind::Out(Out::Probe) => probe(&now),
            Kind::Out(Out::Name) => super::net::show_name(&now),
            Kind::Out(Out::Child) => super::child::show(&now),
            Kind::Out(Out::Raw(_)) => format!("bytes {}", super::digest::short(&now)),
        })
    }
}

fn mem_change(cells: &[Cell], before: &[u8], now: &[u8]) -> String {
    let mut at = 0;
    let mut out = Vec::new();
    for (i, cell) in cells.iter().enumerate() {
        let n = match cell {
            Cell::U8(_) => 1,
            Cell::U16(_) => 2,
            Cell::U32(_) | Cell::Fd(_) => 4,
            Cell::U64(_) => 8,
        };
        if before[at..at + n] != now[at..at + n] {
            let mut word = [0u8; 8];
            word[..n].copy_from_slice(&now[at..at + n]);
            out.push(format!("[{i}]={:#x}", u64::from_le_bytes(word)));
        }
        at += n;
    }
    format!("memory {}", out.join(" "))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Describes the members of `struct statx` that do not depend on time, inode or allocation; a
/// directory's size does.
fn statx(b: &[u8]) -> String {
    let mode = u32::from(u16::from_le_bytes([b[28], b[29]]));
    let regular = mode & libc::S_IFMT == libc::S_IFREG;
    let size = if regular { u64::from(u32_at(b, 40)) } else { 0 };
    let (mask, nlink) = (u32_at(b, 0) & 0x7ff, if regular { u32_at(b, 16) } else { 0 });
    format!("statx mask {mask:#x} nlink {nlink} mode {mode:o} size {size}")
}

/// Describes a probe's answer for the opcodes that softring supports in full; those of sockets and
/// provided buffers may differ.
fn probe(b: &[u8]) -> String {
    let flags: Vec<String> = crate::fuzz::make::OPS
        .iter()
        .map(|&op| format!("{op}:{}", u16::from_le_bytes([b[18 + 8 * op as usize], 0])))
        .collect();
    format!("probe last {} len {} {}", b[0], b[1], flags.join(" "))
}
