//! Vectors and messages of `readv(2)` and `recvmsg(2)`.

/// `struct iovec`, with the base as a number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct iovec {
    pub base: u64,
    pub len: u64,
}

/// `struct msghdr`, with addresses as numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct msghdr {
    pub name: u64,
    pub namelen: u32,
    pub pad: u32,
    pub iov: u64,
    pub iovlen: u64,
    pub control: u64,
    pub controllen: u64,
    pub flags: u32,
    pub pad2: u32,
}

impl msghdr {
    /// Offset of a word that a receive writes.
    pub const NAMELEN: u64 = core::mem::offset_of!(msghdr, namelen) as u64;
    pub const CONTROLLEN: u64 = core::mem::offset_of!(msghdr, controllen) as u64;
    pub const FLAGS: u64 = core::mem::offset_of!(msghdr, flags) as u64;
}

const _: () = assert!(size_of::<msghdr>() == 56);
