//! Submission queue entries.

/// One submission. Accessors name the members of the uapi's unions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct io_uring_sqe {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    /// `off`, `addr2`, or `cmd_op` (low half) with its pad.
    pub off: u64,
    /// `addr`, or `splice_off_in`.
    pub addr: u64,
    pub len: u32,
    /// `rw_flags`, `fsync_flags`, `poll32_events`, `timeout_flags`, `open_flags` … : every
    /// `*_flags` of the union.
    pub op_flags: u32,
    pub user_data: u64,
    /// `buf_index` or `buf_group`.
    pub buf_index: u16,
    pub personality: u16,
    /// `splice_fd_in`, `file_index`, `optlen`, `addr_len`.
    pub file_index: u32,
    /// `addr3`, `attr_ptr`, `optval`.
    pub addr3: u64,
    /// `attr_type_mask`, or padding.
    pub pad2: u64,
}

impl io_uring_sqe {
    /// Returns `splice_fd_in`: the same word as `file_index`, signed.
    pub const fn splice_fd_in(&self) -> i32 {
        self.file_index.cast_signed()
    }
}

pub const IOSQE_FIXED_FILE: u8 = 1 << 0;
pub const IOSQE_IO_DRAIN: u8 = 1 << 1;
pub const IOSQE_IO_LINK: u8 = 1 << 2;
pub const IOSQE_IO_HARDLINK: u8 = 1 << 3;
pub const IOSQE_ASYNC: u8 = 1 << 4;
pub const IOSQE_BUFFER_SELECT: u8 = 1 << 5;
pub const IOSQE_CQE_SKIP_SUCCESS: u8 = 1 << 6;
/// All SQE flags of kernels 6.18 to 7.2.
pub const IOSQE_ALL: u8 = 0x7f;

/// SQE flags with their bit's name, in bit order.
pub const SQE_NAMES: [&str; 7] = [
    "FIXED_FILE",
    "IO_DRAIN",
    "IO_LINK",
    "IO_HARDLINK",
    "ASYNC",
    "BUFFER_SELECT",
    "CQE_SKIP_SUCCESS",
];

/// Kernels that introduced the SQE flags, in bit order.
pub const SQE_SINCE: [&str; 7] = ["5.1", "5.2", "5.3", "5.5", "5.6", "5.7", "5.17"];
