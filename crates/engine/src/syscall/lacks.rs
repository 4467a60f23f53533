//! Features of the newest kernel that the kernel's rings lack: set-up flags, features, operations,
//! register calls. They are learnt from rings of one entry, not from the kernel's release:
//! distributions backport newer features to old releases, and policies remove some.

use crate::ops::table::OPS;
use crate::syscall::REGISTERS;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use softring_host::calls::{UserPtr, rings};
use softring_host::substitute::release;
use softring_host::sys::EngineFd;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::Release;
use softring_uapi::*;

/// Calls to the kernel: tests replace them.
#[derive(Clone, Copy)]
struct Calls {
    /// io_uring_setup(2) of a ring of one entry.
    setup: fn(&mut io_uring_params) -> Result<EngineFd>,
    /// io_uring_register(2): ring, opcode, argument, count.
    register: fn(&EngineFd, u32, UserPtr, u32) -> Result<usize>,
    /// `IORING_REGISTER_PROBE`.
    probe: fn(&EngineFd) -> Result<[u64; 2 + OPS_ASKED]>,
}

const KERNELS: Calls =
    Calls { setup: rings::setup, register: rings::register, probe: rings::probe };

/// Number of operations that a ring is asked about.
const OPS_ASKED: usize = 128;

/// Parses the release of a row of this crate's tables; a test checks that all parse.
fn since(text: &str) -> Release {
    text.parse().unwrap_or(Release::NEWEST)
}

/// Returns whether a row of this crate's tables is newer than the running kernel's release.
pub fn newer_than_kernel(row: &str) -> bool {
    since(row) > release()
}

/// Names of the features that setup returns, in bit order, with the first release of each.
const FEATURES: [(&str, &str); 18] = [
    ("SINGLE_MMAP", "5.4"),
    ("NODROP", "5.5"),
    ("SUBMIT_STABLE", "5.5"),
    ("RW_CUR_POS", "5.6"),
    ("CUR_PERSONALITY", "5.6"),
    ("FAST_POLL", "5.7"),
    ("POLL_32BITS", "5.9"),
    ("SQPOLL_NONFIXED", "5.11"),
    ("EXT_ARG", "5.11"),
    ("NATIVE_WORKERS", "5.12"),
    ("RSRC_TAGS", "5.13"),
    ("CQE_SKIP", "5.17"),
    ("LINKED_FILE", "5.17"),
    ("REG_REG_RING", "6.3"),
    ("RECVSEND_BUNDLE", "6.10"),
    ("MIN_TIMEOUT", "6.12"),
    ("RW_ATTR", "6.14"),
    ("NO_IOWAIT", "6.15"),
];

/// Set-up flags that are not asked about: they are as old as working rings, and asking would start
/// a thread.
const OLD: u32 = IORING_SETUP_SUBMIT_ALL - 1;

/// Returns the flags that a set-up flag requires.
const fn companions(flag: u32) -> u32 {
    match flag {
        IORING_SETUP_TASKRUN_FLAG => IORING_SETUP_COOP_TASKRUN,
        IORING_SETUP_DEFER_TASKRUN => IORING_SETUP_SINGLE_ISSUER,
        IORING_SETUP_HYBRID_IOPOLL => IORING_SETUP_IOPOLL,
        IORING_SETUP_SQ_REWIND => IORING_SETUP_NO_SQARRAY,
        _ => 0,
    }
}

/// Returns the flags of `asked` that the kernel does not know: each is tried by itself, and fails
/// with EINVAL if unknown.
pub fn setup_flags(asked: u32) -> u32 {
    lacking_flags(KERNELS, asked)
}

fn lacking_flags(calls: Calls, asked: u32) -> u32 {
    let bits = (0..SETUP_SINCE.len()).map(|bit| 1 << bit);
    let asked = bits.filter(|flag| asked & !OLD & flag != 0);
    asked.filter(|flag| lacks_flag(calls, *flag)).fold(0, |all, flag| all | flag)
}

fn lacks_flag(calls: Calls, flag: u32) -> bool {
    match flag {
        // This flag is of the same release; a ring without a descriptor would stay registered in
        // the task.
        IORING_SETUP_REGISTERED_FD_ONLY => lacks_flag(calls, IORING_SETUP_NO_MMAP),
        _ => {
            let made = (calls.setup)(&mut with(flag | companions(flag)));
            matches!(made, Err(Errno::EINVAL))
        }
    }
}

fn with(flags: u32) -> io_uring_params {
    io_uring_params { flags, ..io_uring_params::default() }
}

/// Register calls of Linux 5.10 and newer, each with an argument that a kernel which knows the call
/// refuses with an error other than EINVAL: unreadable memory or NULL, and a count.
const REGISTER_CALLS: &[(u32, UserPtr, u32)] = &[
    (IORING_REGISTER_RESTRICTIONS, UserPtr::BAD, 1),
    (IORING_REGISTER_ENABLE_RINGS, UserPtr::NULL, 0),
    (IORING_REGISTER_FILES2, UserPtr::BAD, 32),
    (IORING_REGISTER_FILES_UPDATE2, UserPtr::BAD, 32),
    (IORING_REGISTER_BUFFERS2, UserPtr::BAD, 32),
    (IORING_REGISTER_BUFFERS_UPDATE, UserPtr::BAD, 32),
    (IORING_REGISTER_IOWQ_AFF, UserPtr::BAD, 8),
    (IORING_UNREGISTER_IOWQ_AFF, UserPtr::NULL, 0),
    (IORING_REGISTER_IOWQ_MAX_WORKERS, UserPtr::BAD, 2),
    (IORING_REGISTER_RING_FDS, UserPtr::BAD, 1),
    (IORING_UNREGISTER_RING_FDS, UserPtr::BAD, 1),
    (IORING_REGISTER_PBUF_RING, UserPtr::BAD, 1),
    (IORING_UNREGISTER_PBUF_RING, UserPtr::BAD, 1),
    (IORING_REGISTER_SYNC_CANCEL, UserPtr::BAD, 1),
    (IORING_REGISTER_FILE_ALLOC_RANGE, UserPtr::BAD, 0),
    (IORING_REGISTER_PBUF_STATUS, UserPtr::BAD, 1),
    (IORING_REGISTER_NAPI, UserPtr::BAD, 1),
    (IORING_UNREGISTER_NAPI, UserPtr::BAD, 1),
    (IORING_REGISTER_CLOCK, UserPtr::BAD, 0),
    (IORING_REGISTER_CLONE_BUFFERS, UserPtr::BAD, 1),
    (IORING_REGISTER_RESIZE_RINGS, UserPtr::BAD, 1),
    (IORING_REGISTER_MEM_REGION, UserPtr::BAD, 1),
    (IORING_REGISTER_QUERY, UserPtr::NULL, 0),
    (IORING_REGISTER_BPF_FILTER, UserPtr::BAD, 1),
];

/// Features that the kernel's rings lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    pub(crate) setup: u32,
    pub(crate) features: u32,
    /// Bit set of operations.
    pub(crate) ops: u128,
    /// Bit set of register calls.
    pub(crate) registers: u64,
}

impl Lacking {
    /// Asks the kernel for all features of `release`.
    ///
    /// # Errors
    /// The kernel's error if it gives no ring.
    pub fn of(release: Release) -> Result<Lacking> {
        Lacking::ask(release, KERNELS)
    }

    fn ask(release: Release, calls: Calls) -> Result<Lacking> {
        let has = |text: &str| since(text) <= release;
        let bits = |known: &mut dyn Iterator<Item = bool>| {
            known.enumerate().fold(0u128, |all, (bit, has)| all | u128::from(has) << bit)
        };
        let setup = bits(&mut SETUP_SINCE.iter().map(|s| has(s))) as u32;
        let setup = lacking_flags(calls, setup);
        let features = bits(&mut FEATURES.iter().map(|(_, s)| has(s))) as u32;
        let ops = bits(&mut OPS.iter().map(|op| has(op.since) && op.supported()));
        // Some calls are for rings of this kind only.
        let defers = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
        let mut params = with(defers);
        let ring = (calls.setup)(&mut params).or_else(|_| {
            params = with(0);
            (calls.setup)(&mut params)
        })?;
        let has_call = |opcode: u32| has(REGISTERS[opcode as usize].since);
        let answer = |(opcode, arg, nr)| (calls.register)(&ring, opcode, arg, nr);
        let unknown =
            |call: &&(u32, UserPtr, u32)| has_call(call.0) && answer(**call) == Err(Errno::EINVAL);
        let registers =
            REGISTER_CALLS.iter().filter(unknown).fold(0, |all, call| all | 1 << call.0);
        let known = probed(calls, &ring);
        Ok(Lacking { setup, features: features & !params.features, ops: ops & !known, registers })
    }

    pub fn is_empty(&self) -> bool {
        *self == Lacking::default()
    }

    /// Returns the names of all, operations first.
    pub fn names(&self) -> Vec<String> {
        let named = |bits: u128, names: &mut dyn Iterator<Item = (&str, &str)>| {
            let there = names.enumerate().filter(|(bit, _)| bits >> bit & 1 != 0);
            there.map(|(_, (prefix, name))| format!("{prefix}{name}")).collect::<Vec<_>>()
        };
        let mut all = named(self.ops, &mut OPS.iter().map(|op| ("", op.name)));
        all.extend(named(self.setup.into(), &mut SETUP_NAMES.iter().map(|n| ("SETUP_", *n))));
        all.extend(named(self.registers.into(), &mut REGISTERS.iter().map(|r| ("", r.name))));
        all.extend(named(self.features.into(), &mut FEATURES.iter().map(|(n, _)| ("FEAT_", *n))));
        all.into_iter().map(|name| name.trim_start_matches("IORING_").to_owned()).collect()
    }
}

/// Returns the operations that a ring supports, one bit each.
fn probed(calls: Calls, ring: &EngineFd) -> u128 {
    // The probe is a head of two words, then a word for each operation.
    let probe = (calls.probe)(ring).unwrap_or([0; 2 + OPS_ASKED]);
    let supported = |word: &u64| word.to_ne_bytes()[2] & IO_URING_OP_SUPPORTED as u8 != 0;
    probe[2..].iter().map(supported).enumerate().fold(0, |all, (i, s)| all | u128::from(s) << i)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!("6.1".parse(), Ok(Release(6, 1)));
        assert!(Release(5, 19) < Release(6, 1));
        for bad in ["6", "6.x", "5.0", "9.1", "6.1.2", ""] {
            assert!(bad.parse::<Release>().is_err(), "{bad}");
        }
        let rows = SETUP_SINCE.iter().chain(FEATURES.iter().map(|(_, s)| s));
        let rows = rows.copied().chain(OPS.iter().map(|op| op.since));
        for row in rows.chain(REGISTERS.iter().map(|r| r.since)) {
            assert!(row.parse::<Release>().is_ok(), "{row}");
        }
    }

    /// Checks that the kernel has all rows of its release and of older ones.
    #[test]
    fn this_kernel_has_what_its_release_has() {
        let release = release().min(Release::NEWEST);
        let lacking = match Lacking::of(release) {
            Ok(lacking) => lacking,
            Err(e) => return softring_testing::skipped!("the kernel gives no rings here: {e:?}"),
        };
        assert_eq!(lacking.names(), [] as [String; 0], "Linux {release}");
    }

    #[test]
    fn an_unknown_register_call_is_reported_as_lacking() {
        let nothing = Calls {
            register: |_, _, _, _| Err(Errno::EINVAL),
            probe: |_| Err(Errno::EINVAL),
            ..KERNELS
        };
        let lacking = match Lacking::ask(Release(6, 18), nothing) {
            Ok(lacking) => lacking,
            Err(e) => return softring_testing::skipped!("the kernel gives no rings here: {e:?}"),
        };
        let calls = REGISTER_CALLS
            .iter()
            .filter(|c| since(REGISTERS[c.0 as usize].since) <= Release(6, 18));
        assert_eq!(lacking.registers.count_ones() as usize, calls.count());
        let there = OPS.iter().filter(|op| op.supported() && since(op.since) <= Release(6, 18));
        assert_eq!(lacking.ops.count_ones() as usize, there.count());
        assert!(lacking.names().iter().any(|n| n == "REGISTER_PBUF_RING"));
    }
}
