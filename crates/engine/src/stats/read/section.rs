//! The sections of a page, as its header gives them: only those that our own writer makes.

use core::mem::{offset_of, size_of};

use super::super::{Header, Hist, MeterStats, PoolStats, RingStats, Section};
use super::Unreadable;
use softring_host::limits::{STATS_HISTS, STATS_METERS, STATS_POOLS, STATS_RINGS};

/// Bytes that a page has at most, however large a later version makes its slots; our page has a
/// fifth of them.
pub(super) const SIZE_MAX: u64 = 32 << 20;

/// Place of the slots of a section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slots {
    pub(super) at: u64,
    pub(super) size: u64,
    /// Words of each slot that are read: those that are known here.
    pub(super) words: usize,
    pub(super) used: u64,
}

/// Properties of the writer's sections of one kind.
pub(super) struct Kind {
    /// Offset of the section in the header.
    header: usize,
    /// Bytes of a slot: `least` without fields that were added to the layout later, `known` with
    /// them.
    least: usize,
    known: usize,
    /// Greatest number of slots.
    most: usize,
}

impl Kind {
    pub(super) const RINGS: Kind = Kind {
        header: offset_of!(Header, rings),
        least: offset_of!(RingStats, late),
        known: size_of::<RingStats>(),
        most: STATS_RINGS,
    };
    pub(super) const POOLS: Kind = Kind {
        header: offset_of!(Header, pools),
        least: size_of::<PoolStats>(),
        known: size_of::<PoolStats>(),
        most: STATS_POOLS,
    };
    pub(super) const HISTS: Kind = Kind {
        header: offset_of!(Header, hists),
        least: size_of::<Hist>(),
        known: size_of::<Hist>(),
        most: STATS_HISTS,
    };
    pub(super) const METERS: Kind = Kind {
        header: offset_of!(Header, meters),
        least: offset_of!(MeterStats, idle_sleeps),
        known: size_of::<MeterStats>(),
        most: STATS_METERS,
    };

    /// Returns the section, from the words of the header. A section that the header does not reach
    /// has no slots.
    pub(super) fn slots(&self, header: &[u64]) -> Result<Slots, Unreadable> {
        let word = |offset: usize| header[(self.header + offset) / 8];
        let [at, size, used] =
            [offset_of!(Section, at), offset_of!(Section, size), offset_of!(Section, used)]
                .map(word);
        if used == 0 {
            return Ok(Slots::default());
        }
        let sized = size.is_multiple_of(8) && size >= self.least as u64;
        let end = size.checked_mul(used).and_then(|bytes| bytes.checked_add(at));
        let fits = used <= self.most as u64 && end.is_some_and(|end| end <= SIZE_MAX);
        if !sized || !fits {
            return Err(Unreadable::Foreign);
        }
        Ok(Slots { at, size, words: (size as usize).min(self.known) / 8, used })
    }
}
