//! SQEs by name: one constructor per opcode, and the few setters that most of them share.

use softring_uapi::*;

/// Setters on an SQE, to be chained.
pub trait SqeExt: Sized {
    /// Sets `user_data`.
    #[must_use]
    fn ud(self, user_data: u64) -> Self;
    /// Adds SQE flags (`IOSQE_*`).
    #[must_use]
    fn with(self, flags: u8) -> Self;
    /// Sets the opcode's own flags (`rw_flags`, `fsync_flags`, …).
    #[must_use]
    fn op_flags(self, flags: u32) -> Self;
    /// Makes any other change.
    #[must_use]
    fn set(self, f: impl FnOnce(&mut Self)) -> Self;
    /// Adds `IOSQE_FIXED_FILE`.
    #[must_use]
    fn fixed(self) -> Self {
        self.with(IOSQE_FIXED_FILE)
    }
    /// Adds `IOSQE_IO_LINK`.
    #[must_use]
    fn link(self) -> Self {
        self.with(IOSQE_IO_LINK)
    }
}

impl SqeExt for io_uring_sqe {
    fn ud(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }

    fn with(mut self, flags: u8) -> Self {
        self.flags |= flags;
        self
    }

    fn op_flags(mut self, flags: u32) -> Self {
        self.op_flags = flags;
        self
    }

    fn set(mut self, f: impl FnOnce(&mut Self)) -> Self {
        f(&mut self);
        self
    }
}

/// Makes an SQE of `opcode` on `fd`, all else zero.
pub fn op(opcode: u8, fd: i32) -> io_uring_sqe {
    io_uring_sqe { opcode, fd, ..Default::default() }
}

/// Makes an SQE with the fields that most opcodes use.
pub fn rw(opcode: u8, fd: i32, addr: usize, len: usize, off: u64) -> io_uring_sqe {
    io_uring_sqe { opcode, fd, addr: addr as u64, len: len as u32, off, ..Default::default() }
}

pub fn nop() -> io_uring_sqe {
    op(IORING_OP_NOP, -1)
}

pub fn read(fd: i32, buf: &mut [u8], off: u64) -> io_uring_sqe {
    rw(IORING_OP_READ, fd, buf.as_mut_ptr().expose_provenance(), buf.len(), off)
}

pub fn write(fd: i32, buf: &[u8], off: u64) -> io_uring_sqe {
    rw(IORING_OP_WRITE, fd, buf.as_ptr().expose_provenance(), buf.len(), off)
}

pub fn poll_add(fd: i32, events: i16) -> io_uring_sqe {
    op(IORING_OP_POLL_ADD, fd).op_flags(events.cast_unsigned().into())
}

/// Makes a TIMEOUT; `ts` is read at submission.
pub fn timeout(ts: &kernel_timespec, count: u64, flags: u32) -> io_uring_sqe {
    rw(IORING_OP_TIMEOUT, -1, std::ptr::from_ref(ts).expose_provenance(), 1, count).op_flags(flags)
}

pub fn link_timeout(ts: &kernel_timespec, flags: u32) -> io_uring_sqe {
    rw(IORING_OP_LINK_TIMEOUT, -1, std::ptr::from_ref(ts).expose_provenance(), 1, 0).op_flags(flags)
}

pub fn cancel(user_data: u64, flags: u32) -> io_uring_sqe {
    io_uring_sqe { addr: user_data, ..op(IORING_OP_ASYNC_CANCEL, -1) }.op_flags(flags)
}

/// Returns the address of memory that the kernel will read.
pub fn addr<T: ?Sized>(v: &T) -> usize {
    std::ptr::from_ref(v).cast::<u8>().expose_provenance()
}

/// Returns the address of memory that the kernel will write.
pub fn addr_mut<T: ?Sized>(v: &mut T) -> usize {
    std::ptr::from_mut(v).cast::<u8>().expose_provenance()
}

/// Returns the point in time that is `millis` milliseconds from now.
pub fn in_millis(clock: rustix::time::ClockId, millis: i64) -> kernel_timespec {
    let now = rustix::time::clock_gettime(clock);
    let nsec = now.tv_nsec + millis * 1_000_000;
    kernel_timespec { tv_sec: now.tv_sec + nsec / 1_000_000_000, tv_nsec: nsec % 1_000_000_000 }
}

/// Returns a time span.
pub const fn millis(ms: i64) -> kernel_timespec {
    kernel_timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

/// Sets the slot of an operation that opens or closes a registered file: its index plus one.
pub fn in_slot(sqe: io_uring_sqe, slot: u32) -> io_uring_sqe {
    sqe.set(|s| s.file_index = slot + 1)
}

/// The offset that means a file's own position.
pub const HERE: u64 = u64::MAX;
