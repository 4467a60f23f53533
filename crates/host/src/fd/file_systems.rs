//! Buffered writes, by file system: whether they know `RWF_NOWAIT`, and whether they have waited
//! lately. Some file systems of disks (ext4, f2fs) refuse every buffered write that must not wait,
//! whatever the file, though nearly all such writes only copy to the page cache: `ops::rw_quick`.
//!
//! Programs write to new files all the time, so this is no record of one file's ([`History`]). A
//! file has its file system's record ([`find`]) while its kind is known.
//!
//! [`History`]: crate::fd::history::History

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};

use crate::fd::directories::Directories;
use crate::waited::{timed, watched};

/// File systems that are remembered.
pub(crate) const ENTRIES: usize = 8;
/// Files after which a file system that has refused is asked again: a device number without a disk
/// may have come to mean another one.
const TRUSTED: u16 = 256;
/// Calls without a wait that earn trust at first. Each loss of trust doubles the number, up to
/// [`MOST`].
const FIRST: u16 = 256;
const MOST: u16 = 1 << 15;
/// Calls that make up for one that waited.
const PRICE: u16 = 32;
/// Calls of workers of which one is watched while they keep waiting.
const SAMPLED: u16 = 16;
/// Calls of submitters that are watched after a slow one.
const DOUBTED: u16 = 256;

/// Record of a file system. Several threads may write it: a lost update only moves the moment at
/// which something is asked, or trust is given or taken.
#[derive(Debug)]
pub struct Record {
    /// Device number; 0: the record is free.
    device: AtomicU32,
    files: AtomicU16,
    /// Flag, true if buffered writes know no `RWF_NOWAIT`.
    refuses: AtomicBool,
    /// Trust in short buffered writes.
    writes: Trust,
    /// Trust in opens that may create or truncate a file.
    opens: Trust,
}

/// Trust that calls of one sort hardly ever wait: workers' calls earn it, and two waits among the
/// submitters' end it.
#[derive(Debug)]
pub struct Trust {
    /// Calls of workers that did not wait, less the price of those that did.
    quick: AtomicU16,
    /// Number of them that earns trust.
    needed: AtomicU16,
    given: AtomicBool,
    /// Calls of submitters that are to be watched, since one was slow.
    doubted: AtomicU16,
    /// Calls of workers since one was watched.
    passed: AtomicU16,
}

/// Knowledge of file systems.
pub(crate) struct Known {
    /// Kinds of file systems (`fd::mounts`).
    pub(crate) mounts: [AtomicU64; ENTRIES],
    records: [Record; ENTRIES],
    pub(crate) directories: Directories,
}

pub(crate) static KNOWN: Known = Known {
    mounts: [const { AtomicU64::new(0) }; ENTRIES],
    records: [const { Record::new() }; ENTRIES],
    directories: [const { AtomicU64::new(0) }; _],
};

/// File system of a buffered write, or of a file that is opened for writing, in a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenOn(u8);

/// Bit that says that the submitter may make the call.
const MAY_WAIT: u8 = 1 << 7;

impl WrittenOn {
    /// Returns the record; `None` if there is none.
    #[inline]
    pub fn record(self) -> Option<&'static Record> {
        KNOWN.records.get(usize::from(self.0 & !MAY_WAIT).checked_sub(1)?)
    }

    /// Returns the same, marked that the submitter may make the call itself, and wait.
    #[must_use]
    pub fn with_waits(self) -> Self {
        WrittenOn(self.0 | MAY_WAIT)
    }

    #[inline]
    pub fn may_wait(self) -> bool {
        self.0 & MAY_WAIT != 0
    }

    pub(crate) const fn code(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_code(code: u8) -> Self {
        WrittenOn(code)
    }
}

/// Returns the file system of a device number, for a file that was found on it; none if the number
/// cannot be recorded.
pub fn find(device: u64) -> WrittenOn {
    record(device).map_or_else(WrittenOn::default, |at| WrittenOn(at + 1))
}

fn record(device: u64) -> Option<u8> {
    let number = u32::try_from(device).ok().filter(|&number| number != 0)?;
    let is = |of: u32| move |r: &Record| r.device.load(Relaxed) == of;
    let known = KNOWN.records.iter().position(is(number));
    let at = known.or_else(|| KNOWN.records.iter().position(is(0)));
    let at = at.unwrap_or(number as usize % ENTRIES);
    if known.is_none() {
        KNOWN.records[at].begin(number);
    }
    KNOWN.records[at].count_file();
    Some(at as u8)
}

impl Record {
    const fn new() -> Self {
        Record {
            device: AtomicU32::new(0),
            files: AtomicU16::new(0),
            refuses: AtomicBool::new(false),
            writes: Trust::new(),
            opens: Trust::new(),
        }
    }

    fn begin(&self, device: u32) {
        self.device.store(device, Relaxed);
        self.refuses.store(false, Relaxed);
        self.writes.begin();
        self.opens.begin();
    }

    fn count_file(&self) {
        let n = self.files.load(Relaxed).wrapping_add(1) % TRUSTED;
        self.files.store(n, Relaxed);
        if n == 0 {
            self.refuses.store(false, Relaxed);
        }
    }

    /// Notes that a buffered write was refused only because it must not wait.
    pub fn refused(&self) {
        self.refuses.store(true, Relaxed);
    }

    /// Returns whether buffered writes are refused for that reason.
    pub fn refuses(&self) -> bool {
        self.refuses.load(Relaxed)
    }

    /// Returns whether submitters may write: the file system refuses buffered writes that must not
    /// wait, and its last short ones, made by workers, hardly ever waited.
    #[inline]
    pub fn trusts_writes(&self) -> bool {
        self.writes.is_given() && self.refuses()
    }

    /// Returns the trust in short buffered writes.
    pub fn writes(&self) -> &Trust {
        &self.writes
    }

    /// Returns the trust in opens that may create or truncate a file.
    pub fn opens(&self) -> &Trust {
        &self.opens
    }
}

impl Trust {
    const fn new() -> Self {
        Trust {
            quick: AtomicU16::new(0),
            needed: AtomicU16::new(FIRST),
            given: AtomicBool::new(false),
            doubted: AtomicU16::new(0),
            passed: AtomicU16::new(0),
        }
    }

    fn begin(&self) {
        self.needed.store(FIRST, Relaxed);
        self.end();
    }

    #[inline]
    pub fn is_given(&self) -> bool {
        self.given.load(Relaxed)
    }

    /// Makes a worker's call, and counts it if it `succeeds`. While such calls keep waiting, one of
    /// [`SAMPLED`] is watched, which takes a system call or two.
    pub fn earn<T>(&self, call: impl FnOnce() -> T, succeeds: impl FnOnce(&T) -> bool) -> T {
        let passed = self.passed.load(Relaxed);
        if self.quick.load(Relaxed) == 0 && passed + 1 < SAMPLED {
            self.passed.store(passed + 1, Relaxed);
            return call();
        }
        self.passed.store(0, Relaxed);
        let (done, waited) = watched(call);
        if succeeds(&done) {
            self.count(waited);
        }
        done
    }

    fn count(&self, waited: bool) {
        let n = self.quick.load(Relaxed);
        let n = if waited { n.saturating_sub(PRICE) } else { n.saturating_add(1) };
        self.quick.store(n, Relaxed);
        if n >= self.needed.load(Relaxed) {
            self.given.store(true, Relaxed);
        }
    }

    /// Makes a submitter's call. The clock tells a slow one, after which the next ones are watched,
    /// by a system call more: if one of [`DOUBTED`] waits, trust ends.
    pub fn spend<T>(&self, call: impl FnOnce() -> T) -> T {
        let Some(rest) = self.doubted.load(Relaxed).checked_sub(1) else {
            let (done, slow) = timed(call);
            if slow {
                self.doubted.store(DOUBTED, Relaxed);
            }
            return done;
        };
        let (done, waited) = watched(call);
        self.doubted.store(rest, Relaxed);
        if waited {
            self.lose();
        }
        done
    }

    fn lose(&self) {
        let needed = self.needed.load(Relaxed).saturating_mul(2).min(MOST);
        self.needed.store(needed, Relaxed);
        self.end();
    }

    fn end(&self) {
        self.quick.store(0, Relaxed);
        self.given.store(false, Relaxed);
        self.doubted.store(0, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_keeps_its_record_and_is_asked_again() {
        let index = record(0x1234_5678).unwrap();
        let own = find(0x1234_5678).record().unwrap();
        own.refused();
        for _ in 0..TRUSTED - 3 {
            assert_eq!(record(0x1234_5678), Some(index));
            assert!(own.refuses());
        }
        record(0x1234_5678).unwrap();
        assert!(!own.refuses());
        assert!(find(0).record().is_none());
        assert!(find(u64::MAX).record().is_none());
    }

    #[test]
    fn calls_without_a_wait_earn_trust_and_a_wait_ends_it() {
        let trust = Trust::new();
        let earned = || {
            (0..u16::MAX).position(|_| {
                trust.count(false);
                trust.is_given()
            })
        };
        trust.count(true);
        assert_eq!(earned(), Some(255));
        trust.lose();
        (0..10).for_each(|_| trust.count(false));
        trust.count(true);
        assert_eq!(earned(), Some(511));
        (0..20).for_each(|_| trust.lose());
        assert_eq!(earned(), Some(usize::from(MOST) - 1));
    }

    #[test]
    fn two_waits_among_the_calls_of_submitters_end_trust() {
        let trust = Trust::new();
        let sleep = || std::thread::sleep(core::time::Duration::from_millis(1));
        trust.given.store(true, Relaxed);
        trust.spend(sleep);
        assert!(trust.is_given());
        (0..DOUBTED - 1).for_each(|_| trust.spend(|| ()));
        assert!(trust.is_given());
        trust.spend(sleep);
        assert!(!trust.is_given());
    }
}
