//! Requests that wait for room on a unix stream that is shut for sending. Its room stays as it is,
//! so epoll reports no event; the kernel's ring hears the wake-up itself. The reactor asks each
//! such socket once a second, since any process that has the socket may shut it.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use crate::io::persistent::{OUT, data};
use crate::io::socket::{MSG_DONTWAIT, MSG_NOSIGNAL, Socket};
use crate::io::token::ReqId;
use crate::ring::arming::sends;
use crate::ring::ctx::Ctx;
use crate::ring::request::{Phase, Req};
use crate::ring::turn::{Drives, Turn};
use softring_host::calls::{ReadPtr, sockets};
use softring_uapi::epoll_event;
use softring_uapi::errno::Errno;

/// Returns whether `fd` is a unix stream on which a send would fail with `EPIPE`. Sends nothing: a
/// stream has no empty messages.
fn is_shut_for_sending(fd: i32) -> bool {
    let send = || sockets::send(fd, ReadPtr(0), 0, MSG_DONTWAIT | MSG_NOSIGNAL, None);
    Socket::ask(fd) == Socket::UnixStream && send() == Err(Errno::EPIPE)
}

/// Returns the event that wakes a request, if it waits for room that it will not get.
fn event_of((id, req): (ReqId, &Req)) -> Option<epoll_event> {
    let Phase::Polling(poll) = req.phase else { return None };
    let waits = sends(req) && is_shut_for_sending(req.call.file.fd());
    let data = if poll.persistent { data(poll.at) } else { id.to_u64() };
    waits.then_some(epoll_event { events: OUT, data })
}

impl Ctx {
    /// Has the reactor check the ring, if the request waits for room to send.
    pub(crate) fn record_send(&self, req: &Req) {
        if sends(req)
            && let Some(ring) = self.ring.upgrade()
        {
            ring.sends_wait.store(true, Relaxed);
        }
    }

    /// Wakes the requests that wait in vain for room to send: their next attempt fails.
    pub(crate) fn wake_shut_senders(&mut self) {
        if !sockets::options_are_spared() {
            return;
        }
        let events: Vec<_> = self.reqs.slab.iter().filter_map(event_of).collect();
        if events.is_empty() {
            return self.forget_sends();
        }
        if self.defers() {
            self.stash_events(&events);
            self.set_taskrun();
            self.drive.wake_driver();
        } else {
            self.turn(Turn::Events { events: &events, early: None });
        }
    }

    /// Spares the ring further checks, if no request waits for room.
    fn forget_sends(&self) {
        if !self.reqs.slab.iter().any(|(_, req)| sends(req))
            && let Some(ring) = self.ring.upgrade()
        {
            ring.sends_wait.store(false, Relaxed);
        }
    }
}
