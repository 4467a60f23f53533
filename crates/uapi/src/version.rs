//! Kernel whose ABI is played, and **the table of what later kernels changed**. Linux 6.18 is the
//! oldest that can be played, so that a machine's own kernel of that version can judge.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A kernel's release: version and patch level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u8, pub u8);

impl Release {
    /// First release with rings.
    pub const FIRST: Release = Release(5, 1);
    /// Newest release whose rings are known here.
    pub const NEWEST: Release = VERSIONS[NEWEST as usize].release;
}

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Release, String> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(Release(major.parse().ok()?, minor.parse().ok()?))
        };
        let (first, newest) = (Release::FIRST, Release::NEWEST);
        match parse() {
            Some(release) if (first..=newest).contains(&release) => Ok(release),
            Some(_) => Err(format!("softring knows the releases from {first} to {newest}")),
            None => Err(format!("not a release of Linux; for example {newest}")),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Kernel that can be played, and the bounds of its numbers.
#[derive(Debug, PartialEq, Eq)]
pub struct Version {
    pub name: &'static str,
    pub release: Release,
    /// One past its last opcode.
    pub ops: u8,
    /// One past its last register opcode.
    pub registers: u32,
    pub setup_flags: u32,
    /// One past its last query.
    pub queries: u32,
}

/// The oldest kernel that can be played, and the newest.
pub static VERSIONS: [Version; 2] = [
    Version {
        name: "6.18",
        release: Release(6, 18),
        ops: 63,
        registers: 36,
        setup_flags: (1 << 19) - 1,
        queries: 1,
    },
    Version {
        name: "7.2",
        release: Release(7, 2),
        ops: 65,
        registers: 38,
        setup_flags: (1 << 21) - 1,
        queries: 4,
    },
];

/// Index of the newest kernel in [`VERSIONS`], which is played by default.
pub const NEWEST: u8 = 1;

static PLAYED: AtomicU8 = AtomicU8::new(NEWEST);

/// Returns the kernel that is played.
#[inline]
pub fn played() -> &'static Version {
    // Set once, before any ring.
    &VERSIONS[usize::from(PLAYED.load(Relaxed)) % VERSIONS.len()]
}

/// Plays the kernel at this index of [`VERSIONS`] from now on.
pub fn play(place: u8) {
    PLAYED.store(place, Relaxed);
}

macro_rules! changes {
    ($($name:ident: $release:expr, $what:literal;)*) => {
        /// Change that a kernel after the oldest that can be played has made.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Change {
            $(#[doc = $what] $name),*
        }

        /// All changes: the release of each, and what holds since then.
        pub const CHANGES: &[(Change, Release, &str)] = &[$((Change::$name, $release, $what)),*];
    };
}

changes! {
    MixedSqes: Release(6, 19), "IORING_SETUP_SQE_MIXED, NOP128 and URING_CMD128";
    SocketNames: Release(6, 19), "GETSOCKNAME, a command of sockets";
    RewoundSq: Release(7, 0), "IORING_SETUP_SQ_REWIND: each submission starts at slot 0";
    ImmediateTimes: Release(7, 1), "IORING_TIMEOUT_IMMEDIATE_ARG: the SQE holds the time";
    TaskRules: Release(7, 0), "restrictions and BPF filters of a task, for the rings that the task \
                               creates, and BPF filters of a ring";
    SeparateRestrictions: Release(7, 0), "SQEs and register calls are restricted independently";
    PlainBuffers: Release(7, 2), "SEND and RECV take registered buffers, and SEND_ZC takes a \
                                  vector of parts of a registered buffer";
    NotifData: Release(7, 2), "addr3 of SEND_ZC and SENDMSG_ZC is the notification's user_data";
    MinLeft: Release(7, 2), "min_left of incremental buffer rings";
    CheckedFields: Release(7, 2), "UNLINKAT checks addr3 and the following word; RECV fails at \
                                   once if its file is not a socket; MSG_RING passes a CQE of 32 \
                                   bytes only to rings with such CQEs; commands on files that \
                                   cannot be polled run on polled rings; SENDMSG_ZC checks for a \
                                   socket before it looks up its buffer";
    BufferPlaces: Release(7, 2), "a ring buffer outside of the program's memory counts as no \
                                  buffer, and a bundle of such buffers fails with EFAULT; a bundle \
                                  whose second receive fails has left no room in its buffer";
    TurnsGoOn: Release(7, 2), "with DEFER_TASKRUN, multishot receives that have used up their turn \
                               go on in the same call";
    TimesEnd: Release(7, 2), "a TX_TIMESTAMP ends with ENOBUFS if its time does not fit in the CQ";
    CancelWakes: Release(7, 2), "IORING_REGISTER_SYNC_CANCEL on a ring with DEFER_TASKRUN returns \
                                 when the requests that it cancels have ended";
    OrphanedWaits: Release(7, 2), "a WAITID whose thread has ended is cancelled";
    Queries: Release(7, 2), "queries of zero-copy receive, of its events and of the ring's header; \
                             a query with room for more than a page fails with E2BIG";
}

/// Returns whether the kernel that is played has this change.
#[inline]
pub fn has(change: Change) -> bool {
    CHANGES[change as usize].1 <= played().release
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_in_order_and_part_of_the_newest() {
        for (place, (change, release, what)) in CHANGES.iter().enumerate() {
            assert_eq!(*change as usize, place);
            assert!(*release > VERSIONS[0].release && *release <= VERSIONS[1].release, "{what}");
        }
    }

    #[test]
    fn a_newer_kernel_has_all_older_changes() {
        let [first, newest] = &VERSIONS;
        assert!(first.ops <= newest.ops && first.registers <= newest.registers);
        assert_eq!(first.setup_flags & !newest.setup_flags, 0);
    }
}
