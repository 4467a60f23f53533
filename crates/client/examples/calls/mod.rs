//! System calls of a client as a program of the C library makes them.

use softring_client::Calls;

/// System calls as a program of the C library makes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Libc;

/// Returns a value, or `-errno`.
fn answer(ret: i64) -> isize {
    if ret >= 0 {
        return ret as isize;
    }
    -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize)
}

impl Calls for Libc {
    fn setup(self, entries: u32, params: usize) -> isize {
        // SAFETY: the client's structure, here and below.
        answer(unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params) })
    }

    fn enter(self, fd: i32, submit: u32, min: u32, flags: u32, arg: usize, size: usize) -> isize {
        let enter = libc::SYS_io_uring_enter;
        // SAFETY: as above.
        answer(unsafe { libc::syscall(enter, fd, submit, min, flags, arg, size) })
    }

    fn register(self, fd: i32, opcode: u32, arg: usize, nr_args: u32) -> isize {
        // SAFETY: as above.
        answer(unsafe { libc::syscall(libc::SYS_io_uring_register, fd, opcode, arg, nr_args) })
    }

    fn mmap(self, fd: i32, len: usize, offset: u64) -> isize {
        const WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
        let at = std::ptr::null_mut();
        // SAFETY: a new mapping.
        let map = unsafe { libc::mmap(at, len, WRITE, libc::MAP_SHARED, fd, offset as i64) };
        if map == libc::MAP_FAILED { answer(-1) } else { map as isize }
    }

    unsafe fn munmap(self, addr: usize, len: usize) -> isize {
        // SAFETY: the caller's.
        answer(i64::from(unsafe { libc::munmap(addr as *mut _, len) }))
    }

    fn close(self, fd: i32) -> isize {
        // SAFETY: the client's own descriptor.
        answer(i64::from(unsafe { libc::close(fd) }))
    }
}
