//! A memory region that the program and the ring share. Kernel counterpart:
//! `io_register_mem_region`, `io_uring/memmap.c`.

use super::memlock::Locked;
use crate::memory::region::Region;
use softring_host::os::fd::AsFd;
use softring_host::sys;
use softring_host::user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

const PAGE: u64 = 4096;

/// Location of a region.
#[derive(Debug)]
enum Memory {
    /// Memory of the program's, which it may unmap: read by system calls only.
    User { addr: u64, len: u64 },
    /// Memory in the ring's file.
    Ours(Region),
}

/// A registered region, and its pages counted against RLIMIT_MEMLOCK.
#[derive(Debug)]
pub(crate) struct ParamRegion {
    /// Flag, true if the region holds wait arguments (`IORING_MEM_REGION_REG_WAIT_ARG`).
    wait_args: bool,
    memory: Memory,
    _locked: Locked,
}

impl ParamRegion {
    /// Creates the region that `desc` asks for. If the ring provides the memory, it lies in the
    /// ring's file `fd`, and its offset is stored in `desc`. `wait_args`: the region may hold wait
    /// arguments. `unlimited`: see [`Locked::range`].
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`, `E2BIG`, `EOVERFLOW`; `ENOMEM` past RLIMIT_MEMLOCK.
    pub(crate) fn create(
        desc: &mut io_uring_region_desc,
        fd: i32,
        wait_args: bool,
        unlimited: bool,
    ) -> Result<Self> {
        let (memory, locked) = create(desc, fd, unlimited)?;
        Ok(ParamRegion { wait_args, memory, _locked: locked })
    }

    /// Reads the wait arguments at byte `off`.
    ///
    /// # Errors
    /// `EFAULT` if there are none.
    pub(crate) fn wait_arg(&self, off: u64) -> Result<io_uring_reg_wait> {
        let end = off.checked_add(size_of::<io_uring_reg_wait>() as u64).ok_or(Errno::EFAULT)?;
        let len = match &self.memory {
            Memory::User { len, .. } => *len,
            Memory::Ours(region) => region.len() as u64,
        };
        if !self.wait_args || !off.is_multiple_of(8) || end > len {
            return Err(Errno::EFAULT);
        }
        match &self.memory {
            Memory::User { addr, .. } => user::read(addr + off),
            Memory::Ours(region) => Ok(region.load(off as usize)),
        }
    }
}

/// Checks `desc` and creates its memory (`io_create_region`).
fn create(desc: &mut io_uring_region_desc, fd: i32, unlimited: bool) -> Result<(Memory, Locked)> {
    if desc.resv != [0; 4] || desc.flags & !IORING_MEM_REGION_TYPE_USER != 0 {
        return Err(Errno::EINVAL);
    }
    let users = desc.flags & IORING_MEM_REGION_TYPE_USER != 0;
    if users != (desc.user_addr != 0) {
        return Err(Errno::EFAULT);
    }
    if desc.size == 0 || desc.mmap_offset != 0 || desc.id != 0 {
        return Err(Errno::EINVAL);
    }
    if desc.size / PAGE > i32::MAX as u64 {
        return Err(Errno::E2BIG);
    }
    if !(desc.user_addr | desc.size).is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    desc.user_addr.checked_add(desc.size).ok_or(Errno::EOVERFLOW)?;
    let locked = Locked::range(desc.user_addr, desc.size, unlimited)?;
    let memory = if users {
        let (addr, len) = (desc.user_addr, desc.size);
        crate::memory::mappings::populate(&(addr..addr + len))?;
        Memory::User { addr, len }
    } else {
        desc.mmap_offset = IORING_MAP_OFF_PARAM_REGION;
        Memory::Ours(in_file(fd, IORING_MAP_OFF_PARAM_REGION, desc.size)?)
    };
    Ok((memory, locked))
}

/// Grows the ring's file by the region, which the program maps like the rings.
///
/// # Errors
/// `EBADF`, `ENOMEM`.
pub(crate) fn in_file(fd: i32, offset: u64, size: u64) -> Result<Region> {
    let file = sys::borrow(fd).ok_or(Errno::EBADF)?;
    crate::memory::file::grow(file, offset + size)?;
    Region::map(file.as_fd(), offset, size as usize).map_err(|_| Errno::ENOMEM)
}
