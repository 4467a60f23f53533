//! The fast lane of O_DIRECT: a plain read or write of a file that is known to be O_DIRECT goes
//! into the aio batch straight from its SQE, without a request. Nothing can ask for it meanwhile:
//! no link, no drain, no buffer of the ring's, and the kernel, too, finds nothing to cancel there.
//! A registered file stays open by the reference that is kept with the SQE.

use crate::ctx::Ctx;
use crate::fds::history::History;
use crate::fds::kind::Kind;
use crate::mem::cq::Cqe;
use crate::ops::table::OPS;
use crate::req::request::{FileRef, Req};
use crate::rsrc::files::FileNode;
use crate::rsrc::plain::Plain;
use crate::stats::trace::Step;
use crate::transport::aio;
use crate::user::in_user;
use softring_uapi::errno::Errno;
use softring_uapi::*;

/// The lower half of event data that names a lane's SQE: no request's slot is so high.
const TAG: u64 = 0xffff_fffe;

/// What is kept of an SQE.
#[derive(Debug)]
pub struct Kept {
    sqe: io_uring_sqe,
    /// The registered file that it names.
    file: Option<Plain<FileNode>>,
    /// Its number in the trace; 0: there is no trace.
    trace: u32,
    /// Which file the number of one that is not registered meant (`History::file`).
    meant: u16,
    /// Since when it is there (`req::clat`).
    start: u64,
}

/// SQEs that are with the kernel's aio, for those that it gives back.
#[derive(Debug, Default)]
pub struct Lane {
    kept: Vec<Kept>,
    free: Vec<u32>,
}

impl Lane {
    /// Keeps a copy; answers the event data that names it.
    fn put(&mut self, kept: Kept) -> u64 {
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
    pub fn take(&mut self, data: u64) -> Option<Kept> {
        if data & 0xffff_ffff != TAG {
            return None;
        }
        let at = (data >> 32) as u32;
        let kept = self.kept.get_mut(at as usize)?;
        self.free.push(at);
        Some(Kept { file: kept.file.take(), ..*kept })
    }
}

impl Kept {
    /// What is remembered of its file; nothing, if its number means another one now.
    fn history(&self) -> Option<&History> {
        match &self.file {
            Some(node) => Some(&node.history),
            None => crate::fds::history(self.sqe.fd).filter(|history| history.file() == self.meant),
        }
    }

    /// Its file has refused it.
    fn refused(&self, e: Errno) {
        if let Some(history) = self.history() {
            history.refusals.refused(e, self.sqe.opcode == IORING_OP_WRITE);
        }
    }

    /// Does its number mean the file that it meant, as far as that is known?
    fn has_file(&self) -> bool {
        self.history().is_some() || crate::fds::history(self.sqe.fd).is_none()
    }

    /// Is the result that the kernel's aio has for it not the last word, as it was asked not to
    /// wait? What it has done so far.
    #[inline]
    pub fn goes_on(&self, res: i64) -> Option<u64> {
        let read = self.sqe.opcode == IORING_OP_READ;
        let len = i64::from(self.sqe.len);
        if res == len || res < 0 && res != i64::from(Errno::EAGAIN.res()) || !self.has_file() {
            return None;
        }
        let done = u64::try_from(res).unwrap_or_else(|_| {
            self.refused(Errno::EAGAIN);
            0
        });
        let fd = self.file.as_ref().map_or(self.sqe.fd, |node| node.fd());
        let more = res < 0 || read && !aio::nowait::ends_at(fd, self.sqe.off + done);
        more.then_some(done)
    }
}

impl Ctx {
    /// The registered file of an SQE, if kernel aio can have it.
    fn lane_file(&self, sqe: &io_uring_sqe) -> Option<Plain<FileNode>> {
        let node = self.files.peek(sqe.fd.cast_unsigned())?;
        (node.kind == Kind::Direct && node.model.is_none()).then(|| node.clone())
    }

    /// Queues a READ or WRITE for the next batch; false if it must go the long way, as all do that
    /// have a flag but FIXED_FILE.
    pub fn lane_queue(&mut self, sqe: &io_uring_sqe) -> bool {
        let registered = sqe.flags == IOSQE_FIXED_FILE;
        let plain = (sqe.flags == 0 || registered) && sqe.op_flags == 0 && sqe.pad2 == 0;
        let ranges = sqe.off.cast_signed() >= 0 && in_user(sqe.addr, u64::from(sqe.len)).is_ok();
        let file = if plain && registered { self.lane_file(sqe) } else { None };
        let direct = file.is_some() || !registered && self.is_direct_in_batch(sqe.fd);
        // What a forked child has in flight must be known.
        if !plain || !ranges || !direct || self.heir.inherited || !self.aio_ready() {
            return false;
        }
        let eventfd = self.aio_signal();
        if eventfd.is_none() && !self.polls() {
            return false;
        }
        let write = sqe.opcode == IORING_OP_WRITE;
        let meant = match file.as_ref().map(|node| &node.history).or(crate::fds::history(sqe.fd)) {
            Some(history) if history.refusals.none() => history.file(),
            Some(history) if history.refusals.expected(write) => return false,
            Some(history) => {
                history.refusals.tried(write);
                history.file()
            }
            None => 0,
        };
        let trace = self.trace_submit(sqe);
        if trace != 0 {
            self.trace_step(Step::Aio, sqe, trace, 0);
        }
        let Some(aio) = &mut self.transports.aio else { return false };
        let op = if write { aio::WRITE } else { aio::READ };
        let fd = file.as_ref().map_or(sqe.fd, |node| node.fd());
        let kept = Kept { sqe: *sqe, file, trace, meant, start: self.slab.now() };
        let data = self.transports.lane.put(kept);
        let (len, off) = (u64::from(sqe.len), sqe.off.cast_signed());
        let iocb = aio::rw(op, fd, sqe.addr, len, off, aio::RWF_NOWAIT, data);
        let _token = aio.prep(match eventfd {
            Some(fd) => iocb.with_resfd(fd),
            None => iocb,
        });
        self.transports.aio_queued = true;
        self.nr_reqs += 1;
        true
    }

    /// A lane's SQE has its result.
    #[inline]
    pub fn lane_done(&mut self, kept: &Kept, res: i32) {
        let Kept { sqe, trace, start, .. } = kept;
        if sqe.opcode == IORING_OP_WRITE
            && let Some(history) = kept.history().filter(|_| res >= 0)
        {
            history.refusals.written();
        }
        if res < 0 {
            self.stats.count_error(sqe.opcode);
        }
        self.count_bytes(&OPS[sqe.opcode as usize], res);
        if *start != 0 {
            self.count_waited(sqe.opcode, *start);
        }
        if *trace != 0 {
            self.trace_step(Step::Done, sqe, *trace, res);
        }
        self.post(Cqe { user_data: sqe.user_data, res, ..Cqe::default() });
        self.nr_ended += 1;
    }

    /// The kernel's aio would not have it, or not all of it: a worker does the rest.
    pub fn lane_instead(&mut self, Kept { sqe, file, trace, start, .. }: Kept, done: u64) {
        let mut req = Req { trace, start, ..Req::new(sqe, &OPS[sqe.opcode as usize]) };
        req.call.file = file.map_or(FileRef::Plain(sqe.fd), FileRef::Fixed);
        req.call.done = done;
        self.punt(&mut req);
    }

    /// A lane's SQE was refused when it was submitted.
    pub fn lane_refused(&mut self, kept: Kept, e: Errno) {
        if !aio::nowait::is_for_worker(e) {
            return self.lane_done(&kept, e.res());
        }
        kept.refused(e);
        self.lane_instead(kept, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::req::slab::Slab;

    #[test]
    fn names_are_no_requests_and_are_used_again() {
        let mut lane = Lane::default();
        let named = |user_data| {
            let sqe = io_uring_sqe { user_data, ..Default::default() };
            Kept { sqe, file: None, trace: 7, meant: 0, start: 9 }
        };
        let (a, b) = (lane.put(named(1)), lane.put(named(2)));
        assert_eq!(lane.take(a).map(|k| (k.sqe.user_data, k.trace, k.start)), Some((1, 7, 9)));
        assert_eq!(lane.put(named(3)), a);
        assert_eq!(lane.take(b).map(|k| k.sqe.user_data), Some(2));
        let id = Slab::default().insert(Req::default());
        assert!(lane.take(id.to_u64()).is_none());
    }
}
