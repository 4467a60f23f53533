//! What a transport knows of a request: the token that its events carry.

/// Names a waiting request. Never 0, so that 0 can mean "the ring itself" in event data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReqId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ReqId {
    /// As event data (epoll, aio).
    pub(crate) const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// From event data.
    pub(crate) const fn from_u64(v: u64) -> Self {
        ReqId { slot: v as u32, generation: (v >> 32) as u32 }
    }
}
