//! Cache-hit predictor of a file, which `ops::rw_cached` reads, and the file's refusals.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32};

use crate::fd::file_systems::{self, Record, WrittenOn};
use crate::fd::refusals::Refusals;
use crate::sys;

/// Consecutive reads from the cache that earn trust.
const TRUSTED_AFTER: u16 = 512;

/// Record of a file. Several threads may write it: a lost update only moves the moment at which
/// trust is given or taken.
#[derive(Debug, Default)]
pub struct History {
    hits: AtomicU16,
    /// Voluntary context switches of the reading thread when they were last read.
    switches: AtomicU32,
    /// Flag, true if the file's buffered writes know no `RWF_NOWAIT`: they go to workers untried.
    punts: AtomicBool,
    /// Code of the file system of buffered writes.
    file_system: AtomicU8,
    /// Refusals of requests that bypass the page cache.
    pub refusals: Refusals,
    /// Count of times that the number has come to mean another file.
    files: AtomicU16,
}

impl History {
    pub const fn new() -> Self {
        History {
            hits: AtomicU16::new(0),
            switches: AtomicU32::new(0),
            punts: AtomicBool::new(false),
            file_system: AtomicU8::new(0),
            refusals: Refusals::new(),
            files: AtomicU16::new(0),
        }
    }

    /// Returns a count that tells the present file of a number from later ones.
    #[inline]
    pub fn file(&self) -> u16 {
        self.files.load(Relaxed)
    }

    /// Resets the record: the number may mean another file.
    pub fn forget(&self) {
        self.reset();
        self.punts.store(false, Relaxed);
        self.file_system.store(0, Relaxed);
        self.refusals.forget();
        self.files.fetch_add(1, Relaxed);
    }

    /// Returns whether the last reads were all answered from the cache.
    #[inline]
    pub fn is_trusted(&self) -> bool {
        self.hits.load(Relaxed) == TRUSTED_AFTER
    }

    /// Notes that a buffered write was refused only because it must not wait.
    pub fn writes_punt(&self) {
        self.punts.store(true, Relaxed);
        if let Some(record) = self.file_system().record() {
            record.refused();
        }
    }

    /// Returns whether a buffered write was refused for that reason, to this file or to another of
    /// its file system.
    pub fn write_punts(&self) -> bool {
        self.punts.load(Relaxed) || self.file_system().record().is_some_and(Record::refuses)
    }

    /// Notes on which file system the file is, by its device number. The file is open for writing:
    /// a write to one that is not is refused before a worker sees it.
    pub fn is_on(&self, device: u64) {
        self.file_system.store(file_systems::find(device).code(), Relaxed);
    }

    /// Returns the file system that the file is on, if writes to it need not reach a disk.
    #[inline]
    pub fn file_system(&self) -> WrittenOn {
        WrittenOn::from_code(self.file_system.load(Relaxed))
    }

    /// Ends the trust.
    pub fn reset(&self) {
        self.hits.store(0, Relaxed);
    }

    /// Counts a careful read that was answered from the cache.
    pub fn hit(&self) {
        let n = self.hits.load(Relaxed);
        if n < TRUSTED_AFTER {
            self.hits.store(n + 1, Relaxed);
            if n + 1 == TRUSTED_AFTER {
                self.switches.store(sys::voluntary_switches(), Relaxed);
            }
        }
    }

    /// Returns whether the thread has waited since the last call, as far as is known. Then trust
    /// ends.
    pub fn slow(&self) -> bool {
        let now = sys::voluntary_switches();
        let waited = self.switches.swap(now, Relaxed) != now;
        if waited {
            self.reset();
        }
        waited
    }
}
