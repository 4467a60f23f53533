//! What a ring knows of its barriers (IOSQE_IO_DRAIN); what it does with it is for `drain`.

use alloc::collections::VecDeque;

use crate::io::token::ReqId;

/// The barrier's state.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Requests queue behind a barrier.
    pub(crate) active: bool,
    /// The request or chain after the current chain is a barrier too.
    pub(crate) next: bool,
    /// IOSQE_CQE_SKIP_SUCCESS was seen: draining is refused from then on.
    pub(crate) disabled: bool,
    pub(super) list: VecDeque<ReqId>,
    /// Requests on the list, with the chains that hang on them.
    pub(super) drained: u32,
}
