//! Completion queue entries.

/// One completion; 32-byte ones are followed by `big_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct io_uring_cqe {
    pub user_data: u64,
    pub res: i32,
    pub flags: u32,
}

pub const IORING_CQE_F_BUFFER: u32 = 1 << 0;
pub const IORING_CQE_F_MORE: u32 = 1 << 1;
pub const IORING_CQE_F_SOCK_NONEMPTY: u32 = 1 << 2;
pub const IORING_CQE_F_NOTIF: u32 = 1 << 3;
pub const IORING_CQE_F_BUF_MORE: u32 = 1 << 4;
pub const IORING_CQE_F_SKIP: u32 = 1 << 5;
pub const IORING_CQE_F_32: u32 = 1 << 15;
/// A bit in `res` of a notification: the data was copied.
pub const IORING_NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;
pub const IORING_CQE_BUFFER_SHIFT: u32 = 16;
/// Bit: the network card took a packet's time. The bits above are the type of the timestamp.
pub const IORING_CQE_F_TSTAMP_HW: u32 = 1 << 16;
pub const IORING_TIMESTAMP_TYPE_SHIFT: u32 = 17;

/// CQ ring flag: eventfd notification is off while set (written by the program).
pub const IORING_CQ_EVENTFD_DISABLED: u32 = 1 << 0;
