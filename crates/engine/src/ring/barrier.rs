//! Barrier state of a ring (IOSQE_IO_DRAIN); `drain` acts on it.

use alloc::collections::VecDeque;

use crate::io::token::ReqId;

/// The barrier's state.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Flag, true while requests queue behind a barrier.
    pub(crate) active: bool,
    /// Flag, true if the request or chain after the current chain is a barrier too.
    pub(crate) next: bool,
    /// Flag, set once IOSQE_CQE_SKIP_SUCCESS was seen: draining is refused from then on.
    pub(crate) disabled: bool,
    pub(super) list: VecDeque<ReqId>,
    /// Number of requests on the list, with the chains linked behind them.
    pub(super) drained: u32,
}
