//! Every bound, with its reason.

/// SQ entries of one ring (kernel: `IORING_MAX_ENTRIES`).
pub const MAX_ENTRIES: u32 = 32_768;
/// CQ entries of one ring (kernel: `IORING_MAX_CQ_ENTRIES`).
pub const MAX_CQ_ENTRIES: u32 = 2 * MAX_ENTRIES;
/// Rings a task may register (kernel: `IO_RINGFD_REG_MAX`).
pub const RING_FDS_MAX: u32 = 16;
