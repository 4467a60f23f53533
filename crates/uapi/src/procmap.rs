//! `PROCMAP_QUERY` of `linux/fs.h`: the mapping at an address.

/// `struct procmap_query`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct procmap_query {
    pub size: u64,
    pub flags: u64,
    pub addr: u64,
    pub vma_start: u64,
    pub vma_end: u64,
    pub vma_flags: u64,
    pub page_size: u64,
    pub offset: u64,
    pub inode: u64,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub name_size: u32,
    pub build_id_size: u32,
    pub name_addr: u64,
    pub build_id_addr: u64,
}

/// The ioctl, since Linux 6.11.
pub const PROCMAP_QUERY: u32 = 0xc068_6611;
