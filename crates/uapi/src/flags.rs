//! Flag words: setup, enter, features, ring flags, and per-opcode flags.

pub const IORING_SETUP_IOPOLL: u32 = 1 << 0;
pub const IORING_SETUP_SQPOLL: u32 = 1 << 1;
pub const IORING_SETUP_SQ_AFF: u32 = 1 << 2;
pub const IORING_SETUP_CQSIZE: u32 = 1 << 3;
pub const IORING_SETUP_CLAMP: u32 = 1 << 4;
pub const IORING_SETUP_ATTACH_WQ: u32 = 1 << 5;
pub const IORING_SETUP_R_DISABLED: u32 = 1 << 6;
pub const IORING_SETUP_SUBMIT_ALL: u32 = 1 << 7;
pub const IORING_SETUP_COOP_TASKRUN: u32 = 1 << 8;
pub const IORING_SETUP_TASKRUN_FLAG: u32 = 1 << 9;
pub const IORING_SETUP_SQE128: u32 = 1 << 10;
pub const IORING_SETUP_CQE32: u32 = 1 << 11;
pub const IORING_SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub const IORING_SETUP_DEFER_TASKRUN: u32 = 1 << 13;
pub const IORING_SETUP_NO_MMAP: u32 = 1 << 14;
pub const IORING_SETUP_REGISTERED_FD_ONLY: u32 = 1 << 15;
pub const IORING_SETUP_NO_SQARRAY: u32 = 1 << 16;
pub const IORING_SETUP_HYBRID_IOPOLL: u32 = 1 << 17;
pub const IORING_SETUP_CQE_MIXED: u32 = 1 << 18;
pub const IORING_SETUP_SQE_MIXED: u32 = 1 << 19;
pub const IORING_SETUP_SQ_REWIND: u32 = 1 << 20;

/// Setup flags with their bit's name, in bit order.
pub const SETUP_NAMES: [&str; 21] = [
    "IOPOLL",
    "SQPOLL",
    "SQ_AFF",
    "CQSIZE",
    "CLAMP",
    "ATTACH_WQ",
    "R_DISABLED",
    "SUBMIT_ALL",
    "COOP_TASKRUN",
    "TASKRUN_FLAG",
    "SQE128",
    "CQE32",
    "SINGLE_ISSUER",
    "DEFER_TASKRUN",
    "NO_MMAP",
    "REGISTERED_FD_ONLY",
    "NO_SQARRAY",
    "HYBRID_IOPOLL",
    "CQE_MIXED",
    "SQE_MIXED",
    "SQ_REWIND",
];

/// Kernels that introduced the setup flags, in bit order.
pub const SETUP_SINCE: [&str; 21] = [
    "5.1", "5.1", "5.1", "5.5", "5.6", "5.6", "5.10", "5.18", "5.19", "5.19", "5.19", "5.19",
    "6.0", "6.1", "6.5", "6.5", "6.6", "6.13", "6.18", "6.19", "7.0",
];

pub const IORING_ENTER_GETEVENTS: u32 = 1 << 0;
pub const IORING_ENTER_SQ_WAKEUP: u32 = 1 << 1;
pub const IORING_ENTER_SQ_WAIT: u32 = 1 << 2;
pub const IORING_ENTER_EXT_ARG: u32 = 1 << 3;
pub const IORING_ENTER_REGISTERED_RING: u32 = 1 << 4;
pub const IORING_ENTER_ABS_TIMER: u32 = 1 << 5;
pub const IORING_ENTER_EXT_ARG_REG: u32 = 1 << 6;
pub const IORING_ENTER_NO_IOWAIT: u32 = 1 << 7;
/// All enter flags of kernels 6.18 to 7.2.
pub const IORING_ENTER_ALL: u32 = 0xff;

/// Returns the names of the bits that are set, in bit order.
pub fn names_of(
    bits: impl Into<u64>,
    names: &[&'static str],
) -> impl Iterator<Item = &'static str> {
    let bits = bits.into();
    names.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name)
}

/// Enter flags with their bit's name, in bit order.
pub const ENTER_NAMES: [&str; 8] = [
    "GETEVENTS",
    "SQ_WAKEUP",
    "SQ_WAIT",
    "EXT_ARG",
    "REGISTERED_RING",
    "ABS_TIMER",
    "EXT_ARG_REG",
    "NO_IOWAIT",
];

/// Kernels that introduced the enter flags, in bit order.
pub const ENTER_SINCE: [&str; 8] = ["5.1", "5.1", "5.10", "5.11", "5.18", "6.12", "6.13", "6.15"];

pub const IORING_FEAT_SINGLE_MMAP: u32 = 1 << 0;
pub const IORING_FEAT_NODROP: u32 = 1 << 1;
pub const IORING_FEAT_SUBMIT_STABLE: u32 = 1 << 2;
pub const IORING_FEAT_RW_CUR_POS: u32 = 1 << 3;
pub const IORING_FEAT_CUR_PERSONALITY: u32 = 1 << 4;
pub const IORING_FEAT_FAST_POLL: u32 = 1 << 5;
pub const IORING_FEAT_POLL_32BITS: u32 = 1 << 6;
pub const IORING_FEAT_SQPOLL_NONFIXED: u32 = 1 << 7;
pub const IORING_FEAT_EXT_ARG: u32 = 1 << 8;
pub const IORING_FEAT_NATIVE_WORKERS: u32 = 1 << 9;
pub const IORING_FEAT_RSRC_TAGS: u32 = 1 << 10;
pub const IORING_FEAT_CQE_SKIP: u32 = 1 << 11;
pub const IORING_FEAT_LINKED_FILE: u32 = 1 << 12;
pub const IORING_FEAT_REG_REG_RING: u32 = 1 << 13;
pub const IORING_FEAT_RECVSEND_BUNDLE: u32 = 1 << 14;
pub const IORING_FEAT_MIN_TIMEOUT: u32 = 1 << 15;
pub const IORING_FEAT_RW_ATTR: u32 = 1 << 16;
pub const IORING_FEAT_NO_IOWAIT: u32 = 1 << 17;

pub const IORING_SQ_NEED_WAKEUP: u32 = 1 << 0;
pub const IORING_SQ_CQ_OVERFLOW: u32 = 1 << 1;
pub const IORING_SQ_TASKRUN: u32 = 1 << 2;

pub const IORING_FSYNC_DATASYNC: u32 = 1 << 0;

pub const IORING_TIMEOUT_ABS: u32 = 1 << 0;
pub const IORING_TIMEOUT_UPDATE: u32 = 1 << 1;
pub const IORING_TIMEOUT_BOOTTIME: u32 = 1 << 2;
pub const IORING_TIMEOUT_REALTIME: u32 = 1 << 3;
pub const IORING_LINK_TIMEOUT_UPDATE: u32 = 1 << 4;
pub const IORING_TIMEOUT_ETIME_SUCCESS: u32 = 1 << 5;
pub const IORING_TIMEOUT_MULTISHOT: u32 = 1 << 6;
pub const IORING_TIMEOUT_IMMEDIATE_ARG: u32 = 1 << 7;

pub const IORING_POLL_ADD_MULTI: u32 = 1 << 0;
pub const IORING_POLL_UPDATE_EVENTS: u32 = 1 << 1;
pub const IORING_POLL_UPDATE_USER_DATA: u32 = 1 << 2;
pub const IORING_POLL_ADD_LEVEL: u32 = 1 << 3;

pub const IORING_ASYNC_CANCEL_ALL: u32 = 1 << 0;
pub const IORING_ASYNC_CANCEL_FD: u32 = 1 << 1;
pub const IORING_ASYNC_CANCEL_ANY: u32 = 1 << 2;
pub const IORING_ASYNC_CANCEL_FD_FIXED: u32 = 1 << 3;
pub const IORING_ASYNC_CANCEL_USERDATA: u32 = 1 << 4;
pub const IORING_ASYNC_CANCEL_OP: u32 = 1 << 5;

pub const SPLICE_F_FD_IN_FIXED: u32 = 1 << 31;

/// MSG_RING commands (in `addr`).
pub const IORING_MSG_DATA: u64 = 0;
pub const IORING_MSG_SEND_FD: u64 = 1;
pub const IORING_MSG_RING_CQE_SKIP: u32 = 1 << 0;
pub const IORING_MSG_RING_FLAGS_PASS: u32 = 1 << 1;

pub const IORING_FIXED_FD_NO_CLOEXEC: u32 = 1 << 0;

/// A bit in `ioprio` of ACCEPT.
pub const IORING_ACCEPT_MULTISHOT: u16 = 1 << 0;
pub const IORING_ACCEPT_DONTWAIT: u16 = 1 << 1;
pub const IORING_ACCEPT_POLL_FIRST: u16 = 1 << 2;

/// A bit in `ioprio` of SEND, RECV and the like.
pub const IORING_RECVSEND_POLL_FIRST: u16 = 1 << 0;
pub const IORING_RECV_MULTISHOT: u16 = 1 << 1;
pub const IORING_RECVSEND_FIXED_BUF: u16 = 1 << 2;
pub const IORING_SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
pub const IORING_RECVSEND_BUNDLE: u16 = 1 << 4;
pub const IORING_SEND_VECTORIZED: u16 = 1 << 5;

/// Commands of sockets, in `cmd_op` of URING_CMD.
pub const SOCKET_URING_OP_SIOCINQ: u32 = 0;
pub const SOCKET_URING_OP_SIOCOUTQ: u32 = 1;
pub const SOCKET_URING_OP_GETSOCKOPT: u32 = 2;
pub const SOCKET_URING_OP_SETSOCKOPT: u32 = 3;
pub const SOCKET_URING_OP_TX_TIMESTAMP: u32 = 4;
pub const SOCKET_URING_OP_GETSOCKNAME: u32 = 5;
pub const IORING_URING_CMD_FIXED: u32 = 1 << 0;
pub const IORING_URING_CMD_MULTISHOT: u32 = 1 << 1;

pub const IORING_NOP_INJECT_RESULT: u32 = 1 << 0;
pub const IORING_NOP_FILE: u32 = 1 << 1;
pub const IORING_NOP_FIXED_FILE: u32 = 1 << 2;
pub const IORING_NOP_FIXED_BUFFER: u32 = 1 << 3;
pub const IORING_NOP_TW: u32 = 1 << 4;
pub const IORING_NOP_CQE32: u32 = 1 << 5;

/// Value of `file_index`: pick a free slot.
pub const IORING_FILE_INDEX_ALLOC: u32 = u32::MAX;

/// Flag of preadv2(2), pwritev2(2) and the SQEs of reads and writes: poll for completion.
pub const RWF_HIPRI: u32 = 1;
/// Another such flag: fail rather than wait.
pub const RWF_NOWAIT: u32 = 1 << 3;
/// Another such flag: write all or nothing.
pub const RWF_ATOMIC: u32 = 1 << 6;
/// Another such flag: leave nothing in the page cache.
pub const RWF_DONTCACHE: u32 = 1 << 7;
