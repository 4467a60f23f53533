//! Rings of an old kernel: which of what a program asks for they lack, and who answers it then.
//!
//! At EINVAL from setup the flags are asked about, one by one. One that shapes the ring (the size
//! of its entries, where its memory lies) has no substitute in the program: it gets a ring of ours.
//! One that is a hint many programs ask again without, and do well on the kernel's ring: they keep
//! its EINVAL, and a line says what to do if they stop for it. NO_SQARRAY is such a hint of
//! liburing's own, for every ring: nothing is said of it.

use crate::{config, notice};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use softring_engine::syscall::REGISTERS;
use softring_engine::syscall::lacks::{self, Lacking};
use softring_host::user;
use softring_uapi::{version, *};
use std::sync::OnceLock;

/// What a program cannot ask again without.
const SHAPE: u32 = IORING_SETUP_SQE128
    | IORING_SETUP_CQE32
    | IORING_SETUP_NO_MMAP
    | IORING_SETUP_REGISTERED_FD_ONLY
    | IORING_SETUP_CQE_MIXED
    | IORING_SETUP_SQE_MIXED
    | IORING_SETUP_SQ_REWIND;

/// What the kernel's rings lack of those of the release that the user wants at least, found out
/// once; `None`: nothing, or no release was named, or the kernel gives no ring.
pub fn lacking() -> Option<&'static [String]> {
    static NAMES: OnceLock<Option<Vec<String>>> = OnceLock::new();
    let learn = || {
        let lacking = Lacking::of(config::at_least()?).ok()?;
        (!lacking.is_empty()).then(|| lacking.names())
    };
    NAMES.get_or_init(learn).as_deref()
}

/// The kernel refuses a ring: is it for a flag that gives it a shape, and that this kernel does not
/// know? Its name. Of one that is a hint, says so.
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

/// The flags of these that the kernel does not know. Each is asked about once.
fn lacking_flags(flags: u32) -> u32 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    static LACKING: AtomicU32 = AtomicU32::new(0);
    // Two that ask at once find the same; what was asked is told after what is lacking.
    let new = flags & !ASKED.load(core::sync::atomic::Ordering::Acquire);
    if new != 0 {
        LACKING.fetch_or(lacks::setup_flags(new), Relaxed);
        ASKED.fetch_or(new, core::sync::atomic::Ordering::Release);
    }
    flags & LACKING.load(Relaxed)
}

/// Register calls that the kernel's rings refused, and that its release does not have; a bit each.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Has a probe left operations out?
static PROBED: AtomicBool = AtomicBool::new(false);

/// Notes what a register call to a ring of the kernel's came to.
pub fn note_register(opcode: usize, arg: usize, ret: isize) {
    let refused = ret == -(libc::EINVAL as isize) && opcode < version::played().registers as usize;
    if refused && REGISTERS.get(opcode).is_some_and(|r| lacks::newer_than_kernel(r.since)) {
        REFUSED.fetch_or(1 << opcode, Relaxed);
    }
    if opcode == IORING_REGISTER_PROBE as usize && ret == 0 {
        // What came later are SQEs of 128 bytes, in rings that are asked for by a flag.
        let wanted = version::VERSIONS[0].ops;
        let last = user::read::<u8>(arg as u64).unwrap_or(u8::MAX);
        PROBED.fetch_or(last < wanted - 1, Relaxed);
    }
}

/// One line of what was noted.
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
