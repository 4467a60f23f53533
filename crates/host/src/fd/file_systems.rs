//! Buffered writes, by file system: whether they know `RWF_NOWAIT`. Some file systems of disks
//! (ext4, f2fs) refuse every buffered write that must not wait, whatever the file.
//!
//! Programs write to new files all the time, so this is no record of one file's ([`History`]). A
//! file has its file system's record ([`find`]) while its kind is known.
//!
//! [`History`]: crate::fd::history::History

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};

/// File systems that are remembered.
pub(crate) const ENTRIES: usize = 8;
/// Files after which a file system that has refused is asked again: a device number without a disk
/// may have come to mean another one.
const TRUSTED: u16 = 256;

/// Record of a file system. Several threads may write it: a lost update only moves the moment at
/// which the file system is asked again.
#[derive(Debug)]
pub struct Record {
    /// Device number; 0: the record is free.
    device: AtomicU32,
    files: AtomicU16,
    /// Flag, true if buffered writes know no `RWF_NOWAIT`.
    refuses: AtomicBool,
}

/// Knowledge of file systems.
pub(crate) struct Known {
    /// Kinds of file systems (`fd::mounts`).
    pub(crate) mounts: [AtomicU64; ENTRIES],
    records: [Record; ENTRIES],
}

pub(crate) static KNOWN: Known = Known {
    mounts: [const { AtomicU64::new(0) }; ENTRIES],
    records: [const { Record::new() }; ENTRIES],
};

/// File system of a buffered write, in a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenOn(u8);

impl WrittenOn {
    /// Returns the record; `None` if there is none.
    #[inline]
    pub fn record(self) -> Option<&'static Record> {
        KNOWN.records.get(usize::from(self.0).checked_sub(1)?)
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
        }
    }

    fn begin(&self, device: u32) {
        self.device.store(device, Relaxed);
        self.refuses.store(false, Relaxed);
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
}
