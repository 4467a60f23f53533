//! What is remembered of how a file has answered: reads from the page cache in a row, which
//! `ops::rw_cached` trusts, and what it has refused.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};

use crate::fd::refusals::Refusals;
use crate::sys;

/// Reads from the cache in a row that earn trust.
const TRUSTED_AFTER: u16 = 512;

/// What is remembered of a file. Several threads may write it: the worst that a lost update
/// does is to move the moment at which trust is given or taken.
#[derive(Debug, Default)]
pub struct History {
    hits: AtomicU16,
    /// Voluntary context switches of the reading thread when they were last read.
    switches: AtomicU32,
    /// The file's buffered writes know no `RWF_NOWAIT`: they are for workers, untried.
    punts: AtomicBool,
    /// What it has answered to requests past the page cache.
    pub refusals: Refusals,
    /// How often the number has come to mean another file.
    files: AtomicU16,
}

impl History {
    pub const fn new() -> Self {
        History {
            hits: AtomicU16::new(0),
            switches: AtomicU32::new(0),
            punts: AtomicBool::new(false),
            refusals: Refusals::new(),
            files: AtomicU16::new(0),
        }
    }

    /// Tells the file that a number means now from another that it means later.
    #[inline]
    pub fn file(&self) -> u16 {
        self.files.load(Relaxed)
    }

    /// The number may mean another file.
    pub fn forget(&self) {
        self.reset();
        self.punts.store(false, Relaxed);
        self.refusals.forget();
        self.files.fetch_add(1, Relaxed);
    }

    /// Were the last reads all answered from the cache?
    #[inline]
    pub fn is_trusted(&self) -> bool {
        self.hits.load(Relaxed) == TRUSTED_AFTER
    }

    /// A buffered write that may not wait was refused for that alone.
    pub fn writes_punt(&self) {
        self.punts.store(true, Relaxed);
    }

    /// Was one refused so?
    pub fn write_punts(&self) -> bool {
        self.punts.load(Relaxed)
    }

    /// Trust is gone.
    pub fn reset(&self) {
        self.hits.store(0, Relaxed);
    }

    /// A careful read was answered from the cache.
    pub fn hit(&self) {
        let n = self.hits.load(Relaxed);
        if n < TRUSTED_AFTER {
            self.hits.store(n + 1, Relaxed);
            if n + 1 == TRUSTED_AFTER {
                self.switches.store(sys::voluntary_switches(), Relaxed);
            }
        }
    }

    /// Has the thread waited meanwhile, as far as is known? Then trust is gone.
    pub fn slow(&self) -> bool {
        let now = sys::voluntary_switches();
        let waited = self.switches.swap(now, Relaxed) != now;
        if waited {
            self.reset();
        }
        waited
    }
}
