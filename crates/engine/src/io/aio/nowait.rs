//! Requests that must not wait inside io_submit(2).
//!
//! io_submit(2) waits for the disk inside the call where a file system does not do a request
//! asynchronously: a write that extends the file or needs blocks, a read of pages that must be
//! written back first, files of network file systems. So every iocb has `RWF_NOWAIT`, as the
//! kernel's io_uring tries each request first without waiting. A request refused for `RWF_NOWAIT`
//! goes to a worker.
//!
//! A file that grows refuses one write after the other. Its refusals are counted, so that most such
//! writes go to a worker without being tried (`host::fd::refusals`). Kernel counterpart:
//! `io_write`, `io_file_supports_nowait`.

use softring_host::os::fs::FileType;

use softring_host::sys;
use softring_uapi::errno::Errno;

/// Returns whether `e` is a refusal of an iocb for its `RWF_NOWAIT`, or for want of room. A worker
/// can still do the request; if the worker fails, too, its errno is the result.
pub(crate) fn is_for_worker(e: Errno) -> bool {
    matches!(e, Errno::EAGAIN | Errno::ENOSYS | Errno::EINVAL | Errno::EOPNOTSUPP)
}

/// Returns whether the file ends at `end` or before; false if unknown. A short read with
/// `RWF_NOWAIT` means end of file only if this holds.
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
    fn only_a_short_read_at_the_end_is_final() {
        let file = softring_host::substitute::memfd("end", false).unwrap();
        let fd = softring_host::os::fd::AsRawFd::as_raw_fd(&file);
        softring_host::calls::files::ftruncate(fd, 100).unwrap();
        assert!(ends_at(fd, 100) && ends_at(fd, 4096) && !ends_at(fd, 99));
        assert!(!ends_at(-1, 0));
    }
}
