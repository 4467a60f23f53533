//! Token of a request, the only thing that a transport knows of it.

use core::num::NonZeroU32;

/// Name of a waiting request. Never 0, so that 0 can mean "the ring itself" in event data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReqId {
    pub(crate) slot: u32,
    pub(crate) generation: NonZeroU32,
}

impl ReqId {
    /// Returns the name as event data (epoll, aio).
    pub(crate) const fn to_u64(self) -> u64 {
        (self.generation.get() as u64) << 32 | self.slot as u64
    }

    /// Returns the name in event data. Data that names no request becomes a name that none has.
    pub(crate) const fn from_u64(v: u64) -> Self {
        let generation = match NonZeroU32::new((v >> 32) as u32) {
            Some(generation) => generation,
            None => NonZeroU32::MAX,
        };
        ReqId { slot: v as u32, generation }
    }

    /// Returns the name of the next request in the same slot.
    pub(crate) const fn next(self) -> Self {
        let generation = match self.generation.checked_add(1) {
            Some(NonZeroU32::MAX) | None => NonZeroU32::MIN,
            Some(generation) => generation,
        };
        ReqId { slot: self.slot, generation }
    }
}
