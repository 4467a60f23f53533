//! Cancellation by a forked child of what its parent has in flight on the ring that they share.
//!
//! A request lives in the process that submitted it. A child asks its parent for a request that it
//! does not find among its own: by a message on the engine's page of the ring, which is written and
//! read under the uring lock, and by the eventfd of the parent's reactor, which the child has
//! inherited. A worker of the child waits for the answer, so that no other thread has to.
//!
//! A child asks only the process that forked it, and only if the reactor ran then. A parent that
//! does not answer is not asked on that ring again: it may have closed the ring, or called exec.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

use crate::drive::reactor;
use crate::drive::sleep::sleep_for_change;
use crate::ring::cancel::Wanted;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::opdef::Outcome;
use crate::ring::request::Call;
use crate::ring::turn::{Drives, Turn};
use softring_host::time::Clock;
use softring_uapi::errno::Errno;
use softring_uapi::*;

/// Time that the parent may take.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Indices of the words of the message.
const STATE: usize = 0;
const ASKER: usize = 1;
const TO: usize = 2;
const FLAGS: usize = 3;
const OPCODE: usize = 4;
const NAME: usize = 5;
const RESULT: usize = 7;
/// Values of the message's first word.
const FREE: u32 = 0;
const ASKED: u32 = 1;
const ANSWERED: u32 = 2;
/// Flags that the parent does not take: a descriptor is a number of one process, and a request to
/// cancel many concerns one's own.
const OWN: u32 = IORING_ASYNC_CANCEL_FD
    | IORING_ASYNC_CANCEL_FD_FIXED
    | IORING_ASYNC_CANCEL_ALL
    | IORING_ASYNC_CANCEL_ANY;

impl Ctx {
    fn cancel_word(&self, word: usize) -> u32 {
        self.mem.control.cancel_word(word).load(Relaxed)
    }

    fn set_cancel_word(&self, word: usize, value: u32) {
        self.mem.control.cancel_word(word).store(value, Relaxed);
    }
}

/// Returns whether the parent may have the request that this cancellation did not find.
pub(super) fn may_ask_parent(ctx: &Ctx, sqe: &io_uring_sqe) -> bool {
    let asks = ctx.setup.inherited.has_parent && !ctx.setup.inherited.parent_is_silent;
    asks && !ctx.defers() && sqe.op_flags & OWN == 0 && reactor::parent().is_some()
}

/// Has the parent cancel a request, on a worker. The outcome is that of an ASYNC_CANCEL.
pub(crate) fn ask(ring: &Arc<Ring>, call: &Call) -> Outcome {
    Outcome::Done(asked(ring, call.sqe()).unwrap_or_else(Errno::res))
}

fn asked(ring: &Arc<Ring>, sqe: &io_uring_sqe) -> Result<i32, Errno> {
    let deadline = Clock::Monotonic.now() + ANSWER_TIME.as_nanos() as u64;
    let me = softring_host::fork::pid();
    loop {
        let ctx = ring.lock();
        let to = reactor::parent().ok_or(Errno::ENOENT)?;
        if ctx.cancel_word(STATE) == FREE
            || !softring_host::substitute::process_lives(ctx.cancel_word(ASKER))
        {
            let name = [sqe.addr as u32, (sqe.addr >> 32) as u32];
            let words = [me, to, sqe.op_flags, sqe.len, name[0], name[1]];
            (ASKER..).zip(words).for_each(|(at, word)| ctx.set_cancel_word(at, word));
            ctx.set_cancel_word(STATE, ASKED);
            break;
        }
        // Another child has its turn.
        if sleep_for_change(ctx, deadline) == Err(Errno::ETIME) {
            return Err(Errno::ENOENT);
        }
    }
    reactor::wake_parent();
    loop {
        let mut ctx = ring.lock();
        if ctx.cancel_word(ASKER) != me {
            return Err(Errno::ENOENT);
        }
        if ctx.cancel_word(STATE) == ANSWERED {
            ctx.set_cancel_word(STATE, FREE);
            return Ok(ctx.cancel_word(RESULT).cast_signed());
        }
        let late = Clock::Monotonic.now() >= deadline || reactor::parent().is_none();
        if late || ring.dead.load(Relaxed) {
            ctx.set_cancel_word(STATE, FREE);
            ctx.setup.inherited.parent_is_silent = true;
            return Err(Errno::ENOENT);
        }
        let _ = sleep_for_change(ctx, deadline);
    }
}

/// Returns whether a child seems to ask something. Reads without the lock: a child calls after it
/// has written.
pub(crate) fn is_asked(ring: &Ring) -> bool {
    let word = |word| ring.control.cancel_word(word).load(Relaxed);
    word(STATE) == ASKED && word(TO) == softring_host::fork::pid()
}

/// Cancels what a child asks for, in the parent, on its reactor; false if no child asks.
pub(crate) fn answer(ring: &Arc<Ring>) -> bool {
    let me = softring_host::fork::pid();
    if !is_asked(ring) {
        return false;
    }
    let mut ctx = ring.lock();
    if ctx.cancel_word(STATE) != ASKED || ctx.cancel_word(TO) != me || ring.dead.load(Relaxed) {
        return false;
    }
    let name = u64::from(ctx.cancel_word(NAME)) | u64::from(ctx.cancel_word(NAME + 1)) << 32;
    let (flags, opcode) = (ctx.cancel_word(FLAGS) & !OWN, ctx.cancel_word(OPCODE) as u8);
    let result = Wanted::new(&ctx, name, flags, -1, opcode).and_then(|w| ctx.cancel(&w));
    ctx.set_cancel_word(RESULT, result.map_or_else(Errno::res, u32::cast_signed).cast_unsigned());
    ctx.set_cancel_word(STATE, ANSWERED);
    ctx.turn(Turn::Memory);
    ctx.wake_waiters();
    true
}
