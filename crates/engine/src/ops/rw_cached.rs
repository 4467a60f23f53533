//! Reads of files that live in the page cache.
//!
//! `preadv2(RWF_NOWAIT)` never blocks, but costs 200 ns more than `pread` (measured: 1,370 against
//! 1,170 ns of CPU for 4 KiB, where a batch of the kernel's own ring takes 1,220). A file whose
//! last reads were all answered from the cache ([`History::is_trusted`]) is therefore read with
//! plain `pread`. If one such read takes longer than [`SLOW_CYCLES`] and the thread has given the
//! processor up meanwhile (its count of voluntary switches moved; being preempted does not move
//! it), it was no hit: trust is gone, and has to be earned again by reads that cannot block. So a
//! submitter waits for the disk at most once in `TRUSTED_AFTER` reads, and a file that is not
//! cached is never read this way.

use crate::io::iov::read_by_vector;
use crate::memory::sqe::Sqe;
use crate::ring::ctx::Ctx;
use crate::ring::request::FileRef;
use softring_host::calls::files;
use softring_host::fd::history::History;
use softring_host::fd::kind::Kind;
use softring_host::sys;
use softring_host::waited::SLOW_CYCLES;
use softring_uapi::{
    IORING_OP_READ, IORING_OP_READ_FIXED, IORING_OP_READV, IORING_OP_WRITE, IORING_OP_WRITE_FIXED,
    IORING_OP_WRITEV, IOSQE_FIXED_FILE,
};

/// Counts a read that could not block: a hit of the cache, or not.
pub(crate) fn count(file: &FileRef, hit: bool) {
    match file.history() {
        Some(s) if hit => s.hit(),
        Some(s) => s.reset(),
        None => {}
    }
}

/// Records that a buffered write was refused only for not waiting: later ones need not ask.
pub(crate) fn writes_punt(file: &FileRef) {
    if let Some(s) = file.history() {
        s.writes_punt();
    }
}

/// Returns whether a buffered write to this file was refused for that.
pub(crate) fn write_punts(file: &FileRef) -> bool {
    file.history().is_some_and(History::write_punts)
}

/// Returns whether the opcode is READ or WRITE.
#[inline(always)]
pub(crate) const fn is_simple(opcode: u8) -> bool {
    matches!(opcode, IORING_OP_READ | IORING_OP_WRITE)
}

/// Returns whether the SQE names one piece of memory: READ and WRITE, READV and WRITEV with one
/// part.
#[inline(always)]
pub(crate) fn is_of_one_part(sqe: &Sqe) -> bool {
    let vector = matches!(sqe.opcode, IORING_OP_READV | IORING_OP_WRITEV);
    is_simple(sqe.opcode) || vector && sqe.len == 1
}

/// Returns whether the opcode is READ_FIXED or WRITE_FIXED.
#[inline(always)]
pub(crate) const fn is_simple_fixed(opcode: u8) -> bool {
    matches!(opcode, IORING_OP_READ_FIXED | IORING_OP_WRITE_FIXED)
}

/// Returns whether [`fast`] is for this opcode.
#[inline(always)]
pub(crate) const fn is_for(opcode: u8) -> bool {
    matches!(opcode, IORING_OP_READ | IORING_OP_READ_FIXED)
}

/// Reads a trusted file, or one in memory, from the page cache: READ and READ_FIXED. Only a read of
/// the whole range counts.
#[inline(always)]
pub(crate) fn fast(ctx: &mut Ctx, sqe: &Sqe) -> Option<i32> {
    if sqe.op_flags != 0 || sqe.off.cast_signed() < 0 || sqe.pad2 != 0 || sqe.len == 0 {
        return None;
    }
    if sqe.opcode == IORING_OP_READ_FIXED {
        ctx.resources.buffers.peek(sqe.buf_index)?.check(sqe.addr, u64::from(sqe.len)).ok()?;
    }
    if sqe.flags & IOSQE_FIXED_FILE != 0 {
        return fast_registered(ctx, sqe);
    }
    let kind = crate::io::kinds::known_kind(sqe.fd)?;
    read(ctx, sqe, sqe.fd, kind, crate::io::kinds::history(sqe.fd)?)
}

/// Reads from the page cache by a vector of one part, which takes no call to check it: READV. Only
/// a read of the whole part counts.
pub(crate) fn fast_vector(ctx: &mut Ctx, sqe: &Sqe) -> Option<i32> {
    let plain = sqe.flags == 0 && sqe.op_flags == 0 && sqe.pad2 == 0 && sqe.len == 1;
    if !plain || sqe.off.cast_signed() < 0 || !crate::io::kinds::known_on_disk(sqe.fd) {
        return None;
    }
    ctx.trace.settle();
    let res = ctx.unlocked(|| read_by_vector(sqe.fd, sqe.addr(), sqe.off))?;
    ctx.stats.read_bytes.add(u64::from(res.unsigned_abs()));
    Some(res)
}

fn fast_registered(ctx: &mut Ctx, sqe: &Sqe) -> Option<i32> {
    let node = ctx.resources.files.peek(sqe.fd.cast_unsigned()).filter(|n| n.model.is_none())?;
    // A message may replace the slot's file while the lock is free.
    let node = node.clone();
    read(ctx, sqe, node.fd(), node.kind, &node.history)
}

#[inline(always)]
fn read(ctx: &mut Ctx, sqe: &Sqe, fd: i32, kind: Kind, history: &History) -> Option<i32> {
    let trusted = match kind {
        // A worker of the kernel's reads the file, and signals an eventfd by itself.
        Kind::Memory => ctx.completion.eventfd.is_none(),
        Kind::Buffered => history.is_trusted(),
        _ => false,
    };
    if !trusted {
        return None;
    }
    ctx.trace.settle();
    // One stamp per read: the end of one read is the start of the next.
    let last = ctx.submit.stamp.get();
    let start = if last == 0 { sys::cycles() } else { last };
    let (n, end) = ctx.unlocked(
        #[inline(always)]
        || (files::pread(fd, sqe.addr(), sqe.len as usize, sqe.off), sys::cycles()),
    );
    ctx.submit.stamp.set(end);
    if end.wrapping_sub(start) > SLOW_CYCLES && history.slow() {
        // A file in memory does not wait: perhaps the number was reused behind our back.
        if kind == Kind::Memory && sqe.flags & IOSQE_FIXED_FILE == 0 {
            softring_host::fd::forget_kind(sqe.fd);
        }
    }
    n.is_ok_and(|n| n == sqe.len as usize).then_some(sqe.len.cast_signed())
}
