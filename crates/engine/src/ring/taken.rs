//! POLL_ADDs whose data another request takes before epoll polls their file. The kernel's POLL_ADD
//! posts the events of the wake-up, whatever is left (`io_poll_check_events`). Nothing was there
//! when the poll was armed, so an attempt that takes data from its file tells of the wake-up.

use crate::io::persistent::IN;
use crate::io::token::ReqId;
use crate::ring::cancel::same_file;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{self, Outcome};
use crate::ring::request::{FileRef, Phase, Poll, Req, ReqFlags};
use crate::ring::turn::Drives;
use softring_host::os::fs::FileType;
use softring_host::substitute::file_type;
use softring_host::sys::nr::EPOLLONESHOT;
use softring_uapi::epoll_event;

/// Limit of the number of polls: further ones are told by epoll alone.
const MOST: usize = 8;

/// Returns whether the request is a single poll that waits for data.
fn awaits_data(req: &Req) -> bool {
    let awaits = |p: Poll| p.waits && p.events & IN != 0 && p.events & EPOLLONESHOT != 0;
    req.row.has(opdef::POLLS) && matches!(req.phase, Phase::Polling(p) if awaits(p))
}

impl Ctx {
    /// Records a poll that was just armed; whether it waits for data is checked later.
    pub(crate) fn record_data_poll(&mut self, id: ReqId) {
        let transports = &mut self.drive.transports;
        let polls = &mut transports.data_polls;
        // Few end between two passes.
        if polls.len() >= MOST && transports.data_polls_pass != transports.passes {
            let slab = &self.reqs.slab;
            polls.retain(|&id| slab.get(id).is_some_and(awaits_data));
            transports.data_polls_pass = transports.passes;
        }
        if polls.len() < MOST {
            polls.push(id);
        }
    }

    /// Reports data to polls if the attempt at a request has taken any.
    #[inline]
    pub(crate) fn report_taken_by(&mut self, req: &Req, outcome: Outcome) {
        if !self.drive.transports.data_polls.is_empty()
            && req.row.has(opdef::POLLIN)
            && let (FileRef::Plain(fd), Outcome::Done(1..)) = (&req.call.file, outcome)
        {
            self.report_taken(*fd);
        }
    }

    /// Reports data that an attempt has taken from `fd` to the polls of that file.
    #[cold]
    pub(crate) fn report_taken(&mut self, fd: i32) {
        let slab = &self.reqs.slab;
        let here = |req: &Req| {
            let named = req.call.sqe().fd == fd && !req.flags.contains(ReqFlags::FIXED_FILE);
            named && same_file(req.call.file.poll_fd(), fd)
        };
        let transports = &mut self.drive.transports;
        transports.data_polls.retain(|&id| slab.get(id).is_some_and(awaits_data));
        let polls = transports.data_polls.iter().filter(|&&id| slab.get(id).is_some_and(here));
        let mut woken = polls.map(|id| epoll_event { events: IN, data: id.to_u64() }).peekable();
        // Other files wake without events, or with fewer.
        let tells = || matches!(file_type(fd), Some(FileType::Fifo | FileType::Socket));
        if woken.peek().is_none() || !tells() {
            return;
        }
        transports.stash.extend(woken);
        if !self.submit.collects {
            // Task work of the wake-up precedes that of the link which has taken the data.
            self.take_stash();
        }
    }
}
