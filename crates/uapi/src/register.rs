//! Opcodes and arguments of `io_uring_register(2)`.

macro_rules! regs {
    ($($name:ident = $v:literal),* $(,)?) => {
        $(pub const $name: u32 = $v;)*
        /// Register opcode names, in opcode order.
        pub const REGISTER_NAMES: [&str; IORING_REGISTER_LAST as usize] = [$(stringify!($name)),*];
    };
}

regs! {
    IORING_REGISTER_BUFFERS = 0, IORING_UNREGISTER_BUFFERS = 1, IORING_REGISTER_FILES = 2,
    IORING_UNREGISTER_FILES = 3, IORING_REGISTER_EVENTFD = 4, IORING_UNREGISTER_EVENTFD = 5,
    IORING_REGISTER_FILES_UPDATE = 6, IORING_REGISTER_EVENTFD_ASYNC = 7,
    IORING_REGISTER_PROBE = 8, IORING_REGISTER_PERSONALITY = 9,
    IORING_UNREGISTER_PERSONALITY = 10, IORING_REGISTER_RESTRICTIONS = 11,
    IORING_REGISTER_ENABLE_RINGS = 12, IORING_REGISTER_FILES2 = 13,
    IORING_REGISTER_FILES_UPDATE2 = 14, IORING_REGISTER_BUFFERS2 = 15,
    IORING_REGISTER_BUFFERS_UPDATE = 16, IORING_REGISTER_IOWQ_AFF = 17,
    IORING_UNREGISTER_IOWQ_AFF = 18, IORING_REGISTER_IOWQ_MAX_WORKERS = 19,
    IORING_REGISTER_RING_FDS = 20, IORING_UNREGISTER_RING_FDS = 21,
    IORING_REGISTER_PBUF_RING = 22, IORING_UNREGISTER_PBUF_RING = 23,
    IORING_REGISTER_SYNC_CANCEL = 24, IORING_REGISTER_FILE_ALLOC_RANGE = 25,
    IORING_REGISTER_PBUF_STATUS = 26, IORING_REGISTER_NAPI = 27, IORING_UNREGISTER_NAPI = 28,
    IORING_REGISTER_CLOCK = 29, IORING_REGISTER_CLONE_BUFFERS = 30,
    IORING_REGISTER_SEND_MSG_RING = 31, IORING_REGISTER_ZCRX_IFQ = 32,
    IORING_REGISTER_RESIZE_RINGS = 33, IORING_REGISTER_MEM_REGION = 34,
    IORING_REGISTER_QUERY = 35, IORING_REGISTER_ZCRX_CTRL = 36, IORING_REGISTER_BPF_FILTER = 37,
}

/// One past the last register opcode of the newest kernel that can be played.
pub const IORING_REGISTER_LAST: u32 = 38;
/// Bit of an opcode: the fd is an index into the task's registered rings.
pub const IORING_REGISTER_USE_REGISTERED_RING: u32 = 1 << 31;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_files_update {
    pub offset: u32,
    pub resv: u32,
    pub fds: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_rsrc_register {
    pub nr: u32,
    pub flags: u32,
    pub resv2: u64,
    pub data: u64,
    pub tags: u64,
}

/// One entry of a buffer ring. In the first one `resv` is the ring's tail.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_buf {
    pub addr: u64,
    pub len: u32,
    pub bid: u16,
    pub resv: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_buf_reg {
    pub ring_addr: u64,
    pub ring_entries: u32,
    pub bgid: u16,
    pub flags: u16,
    /// Least bytes left of a buffer: one with less left is used up.
    pub min_left: u32,
    pub resv: [u32; 5],
}
pub const IOU_PBUF_RING_MMAP: u16 = 1 << 0;
pub const IOU_PBUF_RING_INC: u16 = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_buf_status {
    pub buf_group: u32,
    pub head: u32,
    pub resv: [u32; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_napi {
    pub busy_poll_to: u32,
    pub prefer_busy_poll: u8,
    pub opcode: u8,
    pub pad: [u8; 2],
    /// A tracking strategy, or a queue's number.
    pub op_param: u32,
    pub resv: u32,
}
pub const IO_URING_NAPI_REGISTER_OP: u8 = 0;
pub const IO_URING_NAPI_STATIC_ADD_ID: u8 = 1;
pub const IO_URING_NAPI_STATIC_DEL_ID: u8 = 2;
pub const IO_URING_NAPI_TRACKING_DYNAMIC: u32 = 0;
pub const IO_URING_NAPI_TRACKING_STATIC: u32 = 1;
pub const IO_URING_NAPI_TRACKING_INACTIVE: u32 = 255;

pub const IORING_RSRC_REGISTER_SPARSE: u32 = 1 << 0;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_rsrc_update {
    pub offset: u32,
    pub resv: u32,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_rsrc_update2 {
    pub offset: u32,
    pub resv: u32,
    pub data: u64,
    pub tags: u64,
    pub nr: u32,
    pub resv2: u32,
}
pub const IORING_REGISTER_FILES_SKIP: i32 = -2;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_probe_op {
    pub op: u8,
    pub resv: u8,
    pub flags: u16,
    pub resv2: u32,
}
pub const IO_URING_OP_SUPPORTED: u16 = 1 << 0;

/// Head of a probe; `ops_len` of [`io_uring_probe_op`] follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_probe {
    pub last_op: u8,
    pub ops_len: u8,
    pub resv: u16,
    pub resv2: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_restriction {
    pub opcode: u16,
    /// `register_op`, `sqe_op` or `sqe_flags`.
    pub arg: u8,
    pub resv: u8,
    pub resv2: [u32; 3],
}
pub const IORING_RESTRICTION_REGISTER_OP: u16 = 0;
pub const IORING_RESTRICTION_SQE_OP: u16 = 1;
pub const IORING_RESTRICTION_SQE_FLAGS_ALLOWED: u16 = 2;
pub const IORING_RESTRICTION_SQE_FLAGS_REQUIRED: u16 = 3;
pub const IORING_RESTRICTION_LAST: u16 = 4;

/// Restrictions of a task; `nr_res` of [`io_uring_restriction`] follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_task_restriction {
    pub flags: u16,
    pub nr_res: u16,
    pub resv: [u32; 3],
}

/// A filter to be registered.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_bpf {
    pub cmd_type: u16,
    pub cmd_flags: u16,
    pub resv: u32,
    pub opcode: u32,
    pub flags: u32,
    pub filter_len: u32,
    /// Opcode's own bytes beyond the common ones: those that the program knows; in the answer,
    /// those that there are.
    pub pdu_size: u8,
    pub resv1: [u8; 3],
    pub filter_ptr: u64,
    pub resv2: [u64; 5],
}
pub const IO_URING_BPF_CMD_FILTER: u16 = 1;
pub const IO_URING_BPF_FILTER_DENY_REST: u32 = 1 << 0;
pub const IO_URING_BPF_FILTER_SZ_STRICT: u32 = 1 << 1;

/// One instruction of classic BPF.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct sock_filter {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_sync_cancel_reg {
    pub addr: u64,
    pub fd: i32,
    pub flags: u32,
    pub timeout: super::kernel_timespec,
    pub opcode: u8,
    pub pad: [u8; 7],
    pub pad2: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_file_index_range {
    pub off: u32,
    pub len: u32,
    pub resv: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_clock_register {
    pub clockid: u32,
    pub resv: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_clone_buffers {
    pub src_fd: u32,
    pub flags: u32,
    pub src_off: u32,
    pub dst_off: u32,
    pub nr: u32,
    pub pad: [u32; 3],
}
pub const IORING_REGISTER_SRC_REGISTERED: u32 = 1 << 0;
pub const IORING_REGISTER_DST_REPLACE: u32 = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_region_desc {
    pub user_addr: u64,
    pub size: u64,
    pub flags: u32,
    pub id: u32,
    pub mmap_offset: u64,
    pub resv: [u64; 4],
}
pub const IORING_MEM_REGION_TYPE_USER: u32 = 1;
/// Mmap offset of the registered memory region.
pub const IORING_MAP_OFF_PARAM_REGION: u64 = 0x2000_0000;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_mem_region_reg {
    pub region_uptr: u64,
    pub flags: u64,
    pub resv: [u64; 2],
}
pub const IORING_MEM_REGION_REG_WAIT_ARG: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_query_hdr {
    pub next_entry: u64,
    pub query_data: u64,
    pub query_op: u32,
    pub size: u32,
    pub result: i32,
    pub resv: [u32; 3],
}
pub const IO_URING_QUERY_OPCODES: u32 = 0;
pub const IO_URING_QUERY_ZCRX: u32 = 1;
pub const IO_URING_QUERY_SCQ: u32 = 2;
pub const IO_URING_QUERY_ZCRX_EVENT: u32 = 3;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct io_uring_query_opcode {
    pub nr_request_opcodes: u32,
    pub nr_register_opcodes: u32,
    pub feature_flags: u64,
    pub ring_setup_flags: u64,
    pub enter_flags: u64,
    pub sqe_flags: u64,
    pub nr_query_opcodes: u32,
    pub pad: u32,
}
