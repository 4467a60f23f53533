//! The kernel's bounds.

/// SQ entries of one ring (kernel: `IORING_MAX_ENTRIES`).
pub const MAX_ENTRIES: u32 = 32_768;
/// CQ entries of one ring (kernel: `IORING_MAX_CQ_ENTRIES`).
pub const MAX_CQ_ENTRIES: u32 = 2 * MAX_ENTRIES;
/// Rings a task may register (kernel: `IO_RINGFD_REG_MAX`).
pub const RING_FDS_MAX: u32 = 16;

/// Files of one table (kernel: `IORING_MAX_FIXED_FILES`).
pub const FIXED_FILES_MAX: u32 = 1 << 20;
/// Buffers of one table (kernel: `IORING_MAX_REG_BUFFERS`).
pub const REG_BUFFERS_MAX: u32 = 1 << 14;
/// Bytes of one registered buffer (kernel: "arbitrary limit, but we need something").
pub const REG_BUFFER_LEN_MAX: u64 = 1 << 30;
/// Queries of one call (kernel: `IO_MAX_QUERY_ENTRIES`): the bound ends a chain that goes in
/// circles.
pub const QUERIES_MAX: u32 = 1000;
