//! Rings of an old kernel: features that a program asks for and they lack, and who answers then.
//!
//! If setup fails with EINVAL, the kernel is asked about the flags, one by one. A flag that shapes
//! the ring (the size of its entries, the location of its memory) has no substitute in the program,
//! which gets a ring of ours. A flag that is a hint can be left out: many programs ask again
//! without it, and do well on the kernel's ring. They keep the kernel's EINVAL, and a line says
//! what to do if they stop for it. NO_SQARRAY is such a hint, which liburing sets for every ring:
//! nothing is said of it.

use crate::{config, notice};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use softring_engine::syscall::REGISTERS;
use softring_engine::syscall::lacks::{self, Lacking};
use softring_host::sync::real::OnceLock;
use softring_host::user;
use softring_uapi::{version, *};

/// Flags that a program cannot ask again without.
const SHAPE: u32 = IORING_SETUP_SQE128
    | IORING_SETUP_CQE32
    | IORING_SETUP_NO_MMAP
    | IORING_SETUP_REGISTERED_FD_ONLY
    | IORING_SETUP_CQE_MIXED
    | IORING_SETUP_SQE_MIXED
    | IORING_SETUP_SQ_REWIND;

/// Returns what the kernel's rings lack of the release that the user demands, found out once;
/// `None`: nothing, or no release was named, or the kernel gives no ring.
pub fn lacking() -> Option<&'static [String]> {
    static NAMES: OnceLock<Option<Vec<String>>> = OnceLock::new();
    let learn = || {
        let lacking = Lacking::of(config::at_least()?).ok()?;
        (!lacking.is_empty()).then(|| lacking.names())
    };
    NAMES.get_or_init(learn).as_deref()
}

/// Returns the name of a flag that gives the ring a shape and that this kernel does not know, if
/// the kernel refuses a ring for one. Says so if it refuses only hints.
pub fn shape(ret: isize, params: usize) -> Option<&'static str> {
    if ret != -(libc::EINVAL as isize) {
        return None;
    }
    let flags = user::read::<u32>((params + offset_of!(io_uring_params, flags)) as u64).ok()?;
    let known = version::played().setup_flags & !IORING_SETUP_NO_SQARRAY;
    let lacking = lacking_flags(flags & known);
    let name = |flags: u32| SETUP_NAMES.get(flags.trailing_zeros() as usize).copied();
    if lacking & SHAPE != 0 {
        return name(lacking & SHAPE);
    }
    if lacking != 0 {
        let names = names_of(lacking, &SETUP_NAMES).collect::<Vec<_>>();
        notice::hint(&names.join(", IORING_SETUP_"));
    }
    None
}

/// Returns those of `flags` that the kernel does not know. It is asked about each flag once.
fn lacking_flags(flags: u32) -> u32 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    static LACKING: AtomicU32 = AtomicU32::new(0);
    // Threads that ask at once find the same; ASKED is set after LACKING.
    let new = flags & !ASKED.load(core::sync::atomic::Ordering::Acquire);
    if new != 0 {
        LACKING.fetch_or(lacks::setup_flags(new), Relaxed);
        ASKED.fetch_or(new, core::sync::atomic::Ordering::Release);
    }
    flags & LACKING.load(Relaxed)
}

/// Register calls, a bit each, that the kernel's rings refused and that its release does not have.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Flag, set once a probe has left operations out.
static PROBED: AtomicBool = AtomicBool::new(false);

/// Records the result of a register call on a ring of the kernel's.
pub fn record_register(opcode: usize, arg: usize, ret: isize) {
    let refused = ret == -(libc::EINVAL as isize) && opcode < version::played().registers as usize;
    if refused && REGISTERS.get(opcode).is_some_and(|r| lacks::newer_than_kernel(r.since)) {
        REFUSED.fetch_or(1 << opcode, Relaxed);
    }
    if opcode == IORING_REGISTER_PROBE as usize && ret == 0 {
        // Later operations are SQEs of 128 bytes, in rings that are asked for by a flag.
        let wanted = version::VERSIONS[0].ops;
        let last = user::read::<u8>(arg as u64).unwrap_or(u8::MAX);
        PROBED.fetch_or(last < wanted - 1, Relaxed);
    }
}

/// Prints one line about what was recorded.
pub fn at_exit() {
    let refused = REFUSED.load(Relaxed);
    let names = REGISTERS.iter().enumerate().filter(|(i, _)| refused >> i & 1 != 0);
    let mut what: Vec<&str> = names.map(|(_, r)| r.name).collect();
    if PROBED.load(Relaxed) {
        what.push("operations that a probe asked about");
    }
    if !what.is_empty() {
        notice::old_kernel(&what.join(", "));
    }
}
