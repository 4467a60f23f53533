//! SQEs that are with the kernel's aio and never became requests: plain reads and writes of files
//! that are known to be O_DIRECT (`submit::fast_direct`).

use crate::io::aio;
use crate::resources::files::FileNode;
use crate::resources::plain::Plain;
use softring_host::fd::history::History;
use softring_uapi::errno::Errno;
use softring_uapi::*;

/// The lower half of event data that names such an SQE: no request's slot is so high.
const TAG: u64 = 0xffff_fffe;

/// What is kept of an SQE.
#[derive(Debug)]
pub(crate) struct DirectSqe {
    pub(crate) sqe: io_uring_sqe,
    /// It writes; else it reads.
    pub(crate) writes: bool,
    /// The registered file that it names.
    pub(crate) file: Option<Plain<FileNode>>,
    /// Its number in the trace; 0: there is no trace.
    pub(crate) trace: u32,
    /// Which file the number of one that is not registered meant (`History::file`).
    pub(crate) meant: u16,
    /// Since when it is there (`ring::clat`).
    pub(crate) start: u64,
}

/// SQEs that are with the kernel's aio, for those that it gives back.
#[derive(Debug, Default)]
pub(crate) struct DirectSqes {
    kept: Vec<DirectSqe>,
    free: Vec<u32>,
}

impl DirectSqes {
    /// Keeps a copy; answers the event data that names it.
    #[inline]
    pub(crate) fn put(&mut self, kept: DirectSqe) -> u64 {
        let at = match self.free.pop() {
            Some(at) => {
                self.kept[at as usize] = kept;
                at
            }
            None => {
                self.kept.push(kept);
                self.kept.len() as u32 - 1
            }
        };
        u64::from(at) << 32 | TAG
    }

    /// Lets go of a copy, if `data` names one.
    #[inline]
    pub(crate) fn take(&mut self, data: u64) -> Option<DirectSqe> {
        if data & 0xffff_ffff != TAG {
            return None;
        }
        let at = (data >> 32) as u32;
        let kept = self.kept.get_mut(at as usize)?;
        self.free.push(at);
        Some(DirectSqe { file: kept.file.take(), ..*kept })
    }
}

impl DirectSqe {
    /// What is remembered of its file; nothing, if its number means another one now.
    pub(crate) fn history(&self) -> Option<&History> {
        match &self.file {
            Some(node) => Some(&node.history),
            None => crate::io::kinds::history(self.sqe.fd)
                .filter(|history| history.file() == self.meant),
        }
    }

    /// Its file has refused it.
    pub(crate) fn refused(&self, e: Errno) {
        if let Some(history) = self.history() {
            history.refusals.refused(e, self.writes);
        }
    }

    /// Does its number mean the file that it meant, as far as that is known?
    fn has_file(&self) -> bool {
        self.history().is_some() || crate::io::kinds::history(self.sqe.fd).is_none()
    }

    /// Is the result that the kernel's aio has for it not the last word, as it was asked not to
    /// wait? What it has done so far.
    #[inline]
    pub(crate) fn goes_on(&self, res: i64) -> Option<u64> {
        let len = i64::from(self.sqe.len);
        if res == len || res < 0 && res != i64::from(Errno::EAGAIN.res()) || !self.has_file() {
            return None;
        }
        let done = u64::try_from(res).unwrap_or_else(|_| {
            self.refused(Errno::EAGAIN);
            0
        });
        let fd = self.file.as_ref().map_or(self.sqe.fd, |node| node.fd());
        let more = res < 0 || !self.writes && !aio::nowait::ends_at(fd, self.sqe.off + done);
        more.then_some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::request::Req;
    use crate::ring::slab::Slab;

    #[test]
    fn names_are_no_requests_and_are_used_again() {
        let mut sqes = DirectSqes::default();
        let named = |user_data| {
            let sqe = io_uring_sqe { user_data, ..Default::default() };
            DirectSqe { sqe, writes: false, file: None, trace: 7, meant: 0, start: 9 }
        };
        let (a, b) = (sqes.put(named(1)), sqes.put(named(2)));
        assert_eq!(sqes.take(a).map(|k| (k.sqe.user_data, k.trace, k.start)), Some((1, 7, 9)));
        assert_eq!(sqes.put(named(3)), a);
        assert_eq!(sqes.take(b).map(|k| k.sqe.user_data), Some(2));
        let id = Slab::default().add(Req::default());
        assert!(sqes.take(id.to_u64()).is_none());
    }
}
