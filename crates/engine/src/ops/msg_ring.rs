//! MSG_RING: a CQE or a registered file for another ring. Kernel counterpart: `io_uring/msg_ring.c`.

use std::sync::Arc;

use crate::ctx::Ring;

/// Something for another ring, delivered when our own lock is free.
#[derive(Debug)]
pub struct Parcel {
    pub target: Arc<Ring>,
}

/// Delivers what a ring has for others.
pub fn deliver(_ring: &Arc<Ring>) {}
