//! SQEs that are with the kernel's aio and never became requests: plain reads and writes of files
//! that are known to be O_DIRECT (`submit::fast_direct`).

use alloc::rc::Rc;

use crate::io::aio;
use crate::memory::sqe::Sqe;
use crate::resources::files::FileNode;
use softring_host::calls::Part;
use softring_host::fd::history::History;
use softring_uapi::errno::Errno;

/// Record of an SQE with the kernel's aio.
#[derive(Debug)]
pub(crate) struct DirectSqe {
    pub(crate) sqe: Sqe,
    /// The memory that it names, or the one part of its vector; `None` as long as only the kernel
    /// has read the vector.
    pub(crate) part: Option<Part>,
    /// Flag, true if the SQE writes; false if it reads.
    pub(crate) writes: bool,
    /// The registered file that it names.
    pub(crate) file: Option<Rc<FileNode>>,
    /// The SQE's number in the trace; 0: there is no trace.
    pub(crate) trace: u32,
    /// Id of the file that an unregistered number meant (`History::file`).
    pub(crate) meant: u16,
    /// Time at which the SQE was taken (`ring::clat`).
    pub(crate) start: u64,
}

impl DirectSqe {
    /// Returns the history of the SQE's file; `None` if its number means another file now.
    pub(crate) fn history(&self) -> Option<&History> {
        match &self.file {
            Some(node) => Some(&node.history),
            None => crate::io::kinds::history(self.sqe.fd)
                .filter(|history| history.file() == self.meant),
        }
    }

    /// Records that the SQE's file has refused it.
    pub(crate) fn refused(&self, e: Errno) {
        if let Some(history) = self.history() {
            history.refusals.refused(e, self.writes);
        }
    }

    /// Returns whether the number still means the same file, as far as known.
    fn has_file(&self) -> bool {
        self.history().is_some() || crate::io::kinds::history(self.sqe.fd).is_none()
    }

    /// Returns the memory, and the bytes done so far, if the result of the kernel's aio is not
    /// final, because the aio was told not to wait.
    #[inline]
    pub(crate) fn goes_on(&self, res: i64) -> Option<(Part, u64)> {
        let part = self.part?;
        if res == part.len.cast_signed()
            || res < 0 && res != i64::from(Errno::EAGAIN.res())
            || !self.has_file()
        {
            return None;
        }
        let done = u64::try_from(res).unwrap_or_else(|_| {
            self.refused(Errno::EAGAIN);
            0
        });
        let fd = self.file.as_ref().map_or(self.sqe.fd, |node| node.fd());
        let more = res < 0 || !self.writes && !aio::nowait::ends_at(fd, self.sqe.off + done);
        more.then_some((part, done))
    }
}
