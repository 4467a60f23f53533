//! `io_uring_register(2)`: the table of register opcodes. `docs/SUPPORT.md` and coverage derive
//! from it. To add an opcode: write its function in its resource's file beside this one, and set
//! its row here. Resources themselves are in `resources`, which does not depend on rings. Kernel
//! counterpart: `__io_uring_register`.

mod buffers;
mod clock;
mod clone;
mod enable;
mod eventfd;
mod files;
mod filters;
mod iowq;
mod kbuf;
mod napi;
mod personality;
mod probe;
mod query;
mod region;
mod restrictions;
mod ring_fds;
mod tagged;

use alloc::sync::Arc;

use crate::process::registered;
use crate::ring::ctx::{Ctx, Ring, Setup};
use crate::ring::opdef::Support;
use softring_host::user::UserPtr;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has, played};
use softring_uapi::*;

/// Form of the argument words, checked before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Args {
    /// The call itself checks them.
    Own,
    /// A pointer: NULL is `EFAULT`.
    Pointer,
    /// Both zero.
    None,
    /// No pointer; the count is a number with a meaning of its own.
    Number,
    /// A pointer, and exactly this count.
    Exactly(u32),
    /// A pointer, and a count of at least one.
    Some,
    /// A pointer, and a count of at most this.
    AtMost(u32),
}

/// Function of a register opcode.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// A call under the ring's lock: the ring's state, pointer, count.
    Ring(fn(&mut Ctx, UserPtr, u32) -> Result<usize>),
    /// A call without the lock, because it takes another ring's lock or waits: the ring, a
    /// descriptor of it, pointer, count.
    Free(fn(&Arc<Ring>, i32, UserPtr, u32) -> Result<usize>),
    /// A call with or without a ring: pointer, count.
    Blind(fn(UserPtr, u32) -> Result<usize>),
    /// A call without a ring only: pointer, count.
    Ringless(fn(UserPtr, u32) -> Result<usize>),
    /// A call under the ring's lock, as `Ring`; without a ring the second applies to the calling
    /// task.
    Task(fn(&mut Ctx, UserPtr, u32) -> Result<usize>, fn(UserPtr, u32) -> Result<usize>),
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct RegDef {
    pub name: &'static str,
    /// Version of the first kernel with the opcode.
    pub since: &'static str,
    pub(crate) args: Args,
    pub(crate) run: Run,
    pub support: Support,
}

impl core::fmt::Debug for RegDef {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RegDef")
            .field("name", &self.name)
            .field("support", &self.support)
            .finish_non_exhaustive()
    }
}

impl RegDef {
    pub const fn supported(&self) -> bool {
        !matches!(self.support, Support::Refused(_))
    }
}

const fn reg(code: u32, since: &'static str, args: Args, run: Run) -> RegDef {
    RegDef { name: REGISTER_NAMES[code as usize], since, args, run, support: Support::Full }
}

const fn but(mut row: RegDef, note: &'static str) -> RegDef {
    row.support = Support::Partial(note);
    row
}

const fn no(mut row: RegDef, answer: Errno) -> RegDef {
    row.support = Support::Refused(answer);
    row
}

use Args::{AtMost, Exactly, None as Zero, Number, Own, Pointer, Some as Many};
use Run::{Blind, Free, Ring as Locked, Ringless, Task};

/// Note on credentials to act under that are not the thread's own.
const CREDS: &str =
    "credentials other than the caller's need the rights of setfsuid(2) and setgroups(2)";

/// Note on settings without an effect.
const NAPI: &str = "the settings are kept, but no network queue is polled; only timing could show \
                    the difference";

/// The table, in opcode order.
pub static REGISTERS: [RegDef; IORING_REGISTER_LAST as usize] = [
    reg(IORING_REGISTER_BUFFERS, "5.1", Pointer, Locked(buffers::register)),
    reg(IORING_UNREGISTER_BUFFERS, "5.1", Zero, Locked(buffers::unregister)),
    reg(IORING_REGISTER_FILES, "5.1", Pointer, Locked(files::register)),
    reg(IORING_UNREGISTER_FILES, "5.1", Zero, Locked(files::unregister)),
    reg(IORING_REGISTER_EVENTFD, "5.2", Own, Locked(eventfd::register)),
    reg(IORING_UNREGISTER_EVENTFD, "5.2", Zero, Locked(eventfd::unregister)),
    reg(IORING_REGISTER_FILES_UPDATE, "5.5", Own, Locked(files::update)),
    reg(IORING_REGISTER_EVENTFD_ASYNC, "5.6", Own, Locked(eventfd::register_async)),
    reg(IORING_REGISTER_PROBE, "5.6", AtMost(256), Locked(probe::probe)),
    but(reg(IORING_REGISTER_PERSONALITY, "5.6", Zero, Locked(personality::register)), CREDS),
    reg(IORING_UNREGISTER_PERSONALITY, "5.6", Number, Locked(personality::unregister)),
    reg(
        IORING_REGISTER_RESTRICTIONS,
        "5.10",
        Own,
        Task(restrictions::register, restrictions::register_for_task),
    ),
    reg(IORING_REGISTER_ENABLE_RINGS, "5.10", Zero, Locked(enable::enable)),
    reg(IORING_REGISTER_FILES2, "5.13", Own, Locked(files::register2)),
    reg(IORING_REGISTER_FILES_UPDATE2, "5.13", Own, Locked(files::update2)),
    reg(IORING_REGISTER_BUFFERS2, "5.13", Own, Locked(buffers::register2)),
    reg(IORING_REGISTER_BUFFERS_UPDATE, "5.13", Own, Locked(buffers::update)),
    reg(IORING_REGISTER_IOWQ_AFF, "5.14", Many, Locked(iowq::affinity)),
    reg(IORING_UNREGISTER_IOWQ_AFF, "5.14", Zero, Locked(iowq::no_affinity)),
    reg(IORING_REGISTER_IOWQ_MAX_WORKERS, "5.15", Exactly(2), Locked(iowq::max_workers)),
    reg(IORING_REGISTER_RING_FDS, "5.18", Own, Free(ring_fds::register)),
    reg(IORING_UNREGISTER_RING_FDS, "5.18", Own, Free(ring_fds::unregister)),
    reg(IORING_REGISTER_PBUF_RING, "5.19", Exactly(1), Free(kbuf::register_ring)),
    reg(IORING_UNREGISTER_PBUF_RING, "5.19", Exactly(1), Locked(kbuf::unregister_ring)),
    reg(IORING_REGISTER_SYNC_CANCEL, "6.0", Exactly(1), Free(sync_cancel)),
    reg(IORING_REGISTER_FILE_ALLOC_RANGE, "6.0", Exactly(0), Locked(files::alloc_range)),
    reg(IORING_REGISTER_PBUF_STATUS, "6.8", Exactly(1), Locked(kbuf::status)),
    but(reg(IORING_REGISTER_NAPI, "6.9", Exactly(1), Locked(napi::register)), NAPI),
    but(reg(IORING_UNREGISTER_NAPI, "6.9", Own, Locked(napi::unregister)), NAPI),
    reg(IORING_REGISTER_CLOCK, "6.12", Exactly(0), Locked(clock::register)),
    reg(IORING_REGISTER_CLONE_BUFFERS, "6.12", Exactly(1), Free(clone::clone_buffers)),
    reg(
        IORING_REGISTER_SEND_MSG_RING,
        "6.13",
        Own,
        Ringless(crate::ops::msg_ring::send_without_ring),
    ),
    no(
        reg(IORING_REGISTER_ZCRX_IFQ, "6.15", Exactly(1), Locked(napi::no_zero_copy)),
        Errno::EOPNOTSUPP,
    ),
    reg(IORING_REGISTER_RESIZE_RINGS, "6.13", Exactly(1), Free(super::resize::resize)),
    reg(IORING_REGISTER_MEM_REGION, "6.13", Exactly(1), Free(region::register)),
    reg(IORING_REGISTER_QUERY, "6.18", Own, Blind(query::query)),
    no(reg(IORING_REGISTER_ZCRX_CTRL, "6.19", Own, Locked(napi::no_control)), Errno::EOPNOTSUPP),
    reg(
        IORING_REGISTER_BPF_FILTER,
        "7.0",
        Own,
        Task(filters::register, filters::register_for_task),
    ),
];

impl Args {
    fn check(self, addr: UserPtr, nr: u32) -> Result<()> {
        let bad = match self {
            Own => false,
            Pointer if addr.is_null() => return Err(Errno::EFAULT),
            Pointer => false,
            Zero => !addr.is_null() || nr != 0,
            Number => !addr.is_null(),
            Exactly(n) => addr.is_null() || nr != n,
            Many => addr.is_null() || nr == 0,
            AtMost(n) => addr.is_null() || nr > n,
        };
        if bad { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Runs a register call; see [`super::register()`].
///
/// # Errors
/// Same as io_uring_register(2).
pub(crate) fn register(fd: i32, opcode: u32, addr: UserPtr, nr: u32) -> Result<usize> {
    let by_index = opcode & IORING_REGISTER_USE_REGISTERED_RING != 0;
    let opcode = opcode & !IORING_REGISTER_USE_REGISTERED_RING;
    if opcode >= played().registers {
        return Err(Errno::EINVAL);
    }
    let def = &REGISTERS[opcode as usize];
    if fd == -1 {
        return match def.run {
            Blind(f) | Ringless(f) => f(addr, nr),
            Task(_, f) if has(Change::TaskRules) => f(addr, nr),
            _ => Err(Errno::EINVAL),
        };
    }
    let (ring, fd) = registered::find(fd, by_index)?;
    let r = call(&ring, fd, opcode, addr, nr);
    crate::drive::leave::leave(&ring, ring.lock());
    r
}

fn call(ring: &Arc<Ring>, fd: i32, opcode: u32, addr: UserPtr, nr: u32) -> Result<usize> {
    let def = &REGISTERS[opcode as usize];
    let mut ctx = ring.lock();
    ctx.resources.files.fetch_if_away();
    ctx.setup.may_register(opcode)?;
    def.args.check(addr, nr)?;
    let r = match def.run {
        Locked(f) | Task(f, _) => f(&mut ctx, addr, nr),
        Blind(f) => ctx.unlocked(|| f(addr, nr)),
        Ringless(_) => Err(Errno::EINVAL),
        Free(f) => {
            drop(ctx);
            let r = f(ring, fd, addr, nr);
            ctx = ring.lock();
            r
        }
    };
    // The call may have dropped the last reference to a tagged resource.
    ctx.post_tags();
    ctx.turn_behind_call();
    r
}

/// `IORING_REGISTER_SYNC_CANCEL`: see [`crate::drive::sync_cancel::sync_cancel`].
fn sync_cancel(ring: &Arc<Ring>, _: i32, addr: UserPtr, _: u32) -> Result<usize> {
    crate::drive::sync_cancel::sync_cancel(ring, &softring_host::user::read(addr.addr())?)
}

impl Setup {
    /// Returns whether the ring belongs to another task (SINGLE_ISSUER).
    pub(crate) fn is_anothers(&self) -> bool {
        self.issuer.is_some_and(|t| t != softring_host::sys::gettid())
    }
}

impl Setup {
    /// Checks SINGLE_ISSUER and restrictions, in the kernel's order.
    fn may_register(&self, opcode: u32) -> Result<()> {
        if self.is_anothers() {
            return Err(Errno::EEXIST);
        }
        if self.restrictions.allows_register(opcode) { Ok(()) } else { Err(Errno::EACCES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_at_their_opcodes() {
        for (row, name) in REGISTERS.iter().zip(REGISTER_NAMES) {
            assert_eq!(row.name, name);
        }
    }

    #[test]
    fn argument_words_are_checked_like_the_kernel() {
        let rows = [
            (Pointer, 0, 1, Err(Errno::EFAULT)),
            (Zero, 0, 0, Ok(())),
            (Zero, 8, 0, Err(Errno::EINVAL)),
            (Zero, 0, 1, Err(Errno::EINVAL)),
            (Number, 0, 7, Ok(())),
            (Exactly(2), 8, 1, Err(Errno::EINVAL)),
            (Many, 8, 0, Err(Errno::EINVAL)),
            (AtMost(256), 8, 256, Ok(())),
            (AtMost(256), 0, 1, Err(Errno::EINVAL)),
        ];
        for (args, addr, nr, want) in rows {
            assert_eq!(
                args.check(if addr == 0 { UserPtr::NULL } else { UserPtr::BAD }, nr),
                want,
                "{args:?} {addr} {nr}"
            );
        }
    }
}
