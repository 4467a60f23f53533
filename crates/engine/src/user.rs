//! The program's memory. An address from the program is never dereferenced by Rust: it is copied in
//! or out by the kernel (`process_vm_readv` on ourselves), so a bad one is `EFAULT`, not SIGSEGV.
#![allow(unsafe_code, non_camel_case_types)]

use crate::errno::{Errno, Result, check};
use crate::limits::AIO_LOOK_BATCH;
use crate::sys::sys;

/// Types whose every bit pattern is valid and that hold no padding to leak.
///
/// # Safety
/// The type is `repr(C)` or primitive, has no padding and no invalid bit pattern.
pub unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {
        // SAFETY: uapi structs (offsets asserted in `abi::layout`) and integers: no padding, every
        // pattern valid.
        $(unsafe impl Plain for $t {})*
    };
}

// SAFETY: its elements are such, and there is nothing in between.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] where [T; N]: Default {}
use crate::abi::*;
plain!(
    u8,
    u16,
    u32,
    u64,
    i32,
    i64,
    io_uring_params,
    io_uring_getevents_arg,
    io_uring_reg_wait,
    kernel_timespec,
    io_uring_files_update,
    io_uring_rsrc_register,
    io_uring_rsrc_update,
    io_uring_rsrc_update2,
    io_uring_probe_op,
    io_uring_probe,
    io_uring_restriction,
    io_uring_sync_cancel_reg,
    io_uring_file_index_range,
    io_uring_clock_register,
    io_uring_clone_buffers,
    io_uring_region_desc,
    io_uring_mem_region_reg,
    io_uring_query_hdr,
    io_uring_query_opcode,
    io_uring_buf,
    io_uring_buf_reg,
    io_uring_buf_status,
    io_uring_napi,
    iovec,
    msghdr,
    io_uring_sqe,
    io_uring_cqe,
    aio::iocb,
    aio::io_event,
);

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
    /// Where the words lie that a receive writes.
    pub const NAMELEN: u64 = core::mem::offset_of!(msghdr, namelen) as u64;
    pub const CONTROLLEN: u64 = core::mem::offset_of!(msghdr, controllen) as u64;
    pub const FLAGS: u64 = core::mem::offset_of!(msghdr, flags) as u64;
}

const _: () = assert!(size_of::<msghdr>() == 56);

fn vm(nr: u32, ours: *mut u8, theirs: u64, len: usize) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let local = iovec { base: ours.expose_provenance() as u64, len: len as u64 };
    let remote = iovec { base: theirs, len: len as u64 };
    let a = [
        task() as usize,
        (&raw const local).expose_provenance(),
        1,
        (&raw const remote).expose_provenance(),
        1,
        0,
    ];
    match check(crate::sys::syscall6(nr, a)) {
        Ok(n) if n == len => Ok(()),
        Err(Errno::EPERM | Errno::ENOSYS) => via_pipe(nr, ours, theirs, len),
        _ => Err(Errno::EFAULT),
    }
}

/// Whose memory it is, as `process_vm_*` wants it: the calling thread's. The process's own id names
/// its first thread, which has none any more once it has ended, though others run on.
fn task() -> i32 {
    match crate::fork::pid() {
        pid if pid == 0 || crate::fork::in_new_child() => sys!(__NR_gettid) as i32,
        _ => crate::sys::gettid(),
    }
}

/// Where `process_vm_*` is denied: through a pipe, whose write and read check addresses just as
/// well.
fn via_pipe(nr: u32, ours: *mut u8, theirs: u64, len: usize) -> Result<()> {
    use rustix::fd::AsRawFd;
    let (r, w) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|_| Errno::ENOMEM)?;
    let reading = nr == crate::sys::nr::__NR_process_vm_readv;
    let ours = ours.expose_provenance() as u64;
    let (from, to) = if reading { (theirs, ours) } else { (ours, theirs) };
    let mut done = 0;
    while done < len {
        let chunk = (len - done).min(4096);
        let n = check(sys!(__NR_write, w.as_raw_fd(), from + done as u64, chunk))
            .map_err(|_| Errno::EFAULT)?;
        let m = check(sys!(__NR_read, r.as_raw_fd(), to + done as u64, n))
            .map_err(|_| Errno::EFAULT)?;
        if m != n || n != chunk {
            return Err(Errno::EFAULT);
        }
        done += n;
    }
    Ok(())
}

/// Copies `dst.len()` values in from the program.
///
/// # Errors
/// `EFAULT` if any byte is not readable.
pub fn read_slice<T: Plain>(addr: u64, dst: &mut [T]) -> Result<()> {
    vm(crate::sys::nr::__NR_process_vm_readv, dst.as_mut_ptr().cast(), addr, size_of_val(dst))
}

/// Copies in as many of `n` values as are readable from the start.
pub fn read_prefix<T: Plain>(addr: u64, n: usize) -> Vec<T> {
    let mut all = vec![T::default(); n];
    if read_slice(addr, &mut all).is_ok() {
        return all;
    }
    let at = |i: usize| addr.wrapping_add((i * size_of::<T>()) as u64);
    (0..n).map_while(|i| read(at(i)).ok()).collect()
}

/// Copies one value in from the program.
///
/// # Errors
/// `EFAULT` if any byte is not readable.
pub fn read<T: Plain>(addr: u64) -> Result<T> {
    let mut v = T::default();
    read_slice(addr, core::slice::from_mut(&mut v))?;
    Ok(v)
}

/// Copies one value in from each address, in order, until one is not readable; answers how many.
/// At most [`AIO_LOOK_BATCH`] of them, by one system call.
pub fn read_each<T: Plain>(from: &[u64], to: &mut [T]) -> usize {
    let n = from.len().min(to.len()).min(AIO_LOOK_BATCH);
    let mut remote = [iovec::default(); AIO_LOOK_BATCH];
    for (r, &base) in remote.iter_mut().zip(&from[..n]) {
        *r = iovec { base, len: size_of::<T>() as u64 };
    }
    let len = n * size_of::<T>();
    let local = iovec { base: to.as_mut_ptr().expose_provenance() as u64, len: len as u64 };
    let local = (&raw const local).expose_provenance();
    let remote = remote.as_ptr().expose_provenance();
    match check(sys!(__NR_process_vm_readv, task(), local, 1, remote, n, 0)) {
        // What is not readable ends the transfer before it, at a whole value.
        Ok(bytes) => bytes / size_of::<T>(),
        Err(Errno::EPERM | Errno::ENOSYS) => {
            let mut each = from[..n].iter().zip(to);
            each.position(|(&at, v)| read(at).map(|r| *v = r).is_err()).unwrap_or(n)
        }
        Err(_) => 0,
    }
}

/// Copies values out to the program.
///
/// # Errors
/// `EFAULT` if any byte is not writable.
pub fn write_slice<T: Plain>(addr: u64, src: &[T]) -> Result<()> {
    vm(
        crate::sys::nr::__NR_process_vm_writev,
        src.as_ptr().cast_mut().cast(),
        addr,
        size_of_val(src),
    )
}

/// Copies one value out to the program.
///
/// # Errors
/// `EFAULT` if any byte is not writable.
pub fn write<T: Plain>(addr: u64, v: &T) -> Result<()> {
    write_slice(addr, core::slice::from_ref(v))
}

/// Copies a NUL-terminated string in, without its NUL; at most `max` bytes.
///
/// # Errors
/// `EFAULT` if it is not readable, `ENAMETOOLONG` if no NUL comes within `max` bytes.
pub fn read_cstr(addr: u64, max: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < max {
        let at = addr + out.len() as u64;
        let chunk = (4096 - (at as usize & 4095)).min(max - out.len()).min(256);
        let mut buf = [0u8; 256];
        read_slice(at, &mut buf[..chunk])?;
        if let Some(n) = buf[..chunk].iter().position(|&b| b == 0) {
            out.extend_from_slice(&buf[..n]);
            return Ok(out);
        }
        out.extend_from_slice(&buf[..chunk]);
    }
    Err(Errno::ENAMETOOLONG)
}
