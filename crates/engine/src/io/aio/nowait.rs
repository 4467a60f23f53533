//! Requests that kernel aio may not wait for.
//!
//! io_submit(2) waits for the disk inside the call where a file system does not do a request
//! asynchronously: a write that makes the file longer or needs blocks, a read of pages that must be
//! written back first, files of network file systems. So every iocb has `RWF_NOWAIT`, as the
//! kernel's io_uring tries each request first, and what is refused for that goes to a worker.
//!
//! A file that grows refuses one write after the other. Its refusals are counted, so that most
//! such writes go to a worker without having been tried (`host::fd::refusals`). Kernel counterpart:
//! `io_write`, `io_file_supports_nowait`.

use softring_host::os::fs::FileType;

use softring_host::sys;
use softring_uapi::errno::Errno;

/// Did io_submit(2) refuse an iocb for its `RWF_NOWAIT`, or for want of room? Then a worker can
/// still do it; what fails there, too, gets its errno there.
pub(crate) fn is_for_worker(e: Errno) -> bool {
    matches!(e, Errno::EAGAIN | Errno::ENOSYS | Errno::EINVAL | Errno::EOPNOTSUPP)
}

/// Does the file end at `end`, or before? A short read that was not to wait says so only where
/// this holds. False where it is not known.
pub(crate) fn ends_at(fd: i32, end: u64) -> bool {
    let stat = sys::borrow(fd).and_then(|fd| softring_host::substitute::fstat(fd).ok());
    stat.is_some_and(|s| {
        FileType::from_raw_mode(s.st_mode) == FileType::RegularFile && s.st_size as u64 <= end
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_is_the_end_of_a_file_only_there() {
        let file = rustix::fs::memfd_create("end", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 100).unwrap();
        let fd = rustix::fd::AsRawFd::as_raw_fd(&file);
        assert!(ends_at(fd, 100) && ends_at(fd, 4096) && !ends_at(fd, 99));
        assert!(!ends_at(-1, 0));
    }
}
