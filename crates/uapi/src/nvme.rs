//! Commands passed through to NVMe devices: `linux/nvme_ioctl.h`.

/// One command and its result. A URING_CMD has all fields but the result, from byte 48 of its SQE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvme_passthru_cmd64 {
    pub opcode: u8,
    pub flags: u8,
    pub rsvd1: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub addr: u64,
    pub metadata_len: u32,
    /// Bytes, or parts of a vector.
    pub data_len: u32,
    pub cdw10: [u32; 6],
    pub timeout_ms: u32,
    pub rsvd2: u32,
    pub result: u64,
}

const fn iowr(nr: u32, size: u32) -> u32 {
    3 << 30 | size << 16 | (b'N' as u32) << 8 | nr
}

pub const NVME_IOCTL_ADMIN64_CMD: u32 = iowr(0x47, 80);
pub const NVME_IOCTL_IO64_CMD: u32 = iowr(0x48, 80);
pub const NVME_IOCTL_IO64_CMD_VEC: u32 = iowr(0x49, 80);
pub const NVME_URING_CMD_IO: u32 = iowr(0x80, 72);
pub const NVME_URING_CMD_IO_VEC: u32 = iowr(0x81, 72);
pub const NVME_URING_CMD_ADMIN: u32 = iowr(0x82, 72);
pub const NVME_URING_CMD_ADMIN_VEC: u32 = iowr(0x83, 72);
