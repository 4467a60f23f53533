//! What belongs to the process as a whole: forked children, and threads that end.

pub(crate) mod estate;
pub mod exit;
pub(crate) mod relay;
pub(crate) mod worker_side;
