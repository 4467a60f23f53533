//! The fast path of stream sockets: a plain SEND, WRITE or READ of a number that is remembered as a
//! socket of TCP or a Unix stream is tried straight from its SQE. It becomes a request only if that
//! attempt fails, or is to go on, and then its first attempt has that answer: an error of a socket
//! is told once, and what is sent is sent. A RECV is none of these: its CQE tells whether there is
//! more.

use crate::io::peers::{Peer, Polled};
use crate::io::socket::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_WAITALL, Socket};
use crate::memory::cq::Cqe;
use crate::memory::sqe::Sqe;
use crate::ops::rw;
use crate::ops::table::OPS;
use crate::ring::ctx::Ctx;
use crate::ring::op_state::CURRENT;
use crate::ring::opdef::Outcome;
use crate::ring::request::{Finding, Req};
use softring_host::calls::{ReadPtr, sockets};
use softring_host::user::in_user;
use softring_uapi::errno::Errno;
use softring_uapi::{IORING_OP_READ, IORING_OP_SEND, IORING_OP_WRITE};

/// Returns whether the opcode has this fast path.
#[inline(always)]
pub(crate) const fn is_for(opcode: u8) -> bool {
    matches!(opcode, IORING_OP_READ | IORING_OP_WRITE | IORING_OP_SEND)
}

/// Returns whether the SQE asks for nothing but bytes, of memory that a program may have.
#[inline]
fn is_plain(sqe: &Sqe) -> bool {
    let plain = match sqe.opcode {
        IORING_OP_SEND => {
            let flags = sqe.op_flags & !(MSG_NOSIGNAL | MSG_DONTWAIT | MSG_WAITALL);
            sqe.off == 0 && flags == 0 && sqe.file_index == 0 && sqe.len.cast_signed() > 0
        }
        _ => matches!(sqe.off, 0 | CURRENT) && sqe.op_flags == 0 && sqe.pad2 == 0 && sqe.len > 0,
    };
    plain && sqe.flags == 0 && in_user(sqe.addr, u64::from(sqe.len)).is_ok()
}

/// Returns whether `fd` is remembered as a stream socket of the program's.
#[inline]
fn is_stream(fd: i32) -> bool {
    matches!(Socket::remembered(fd), Some(Socket::Tcp | Socket::UnixStream))
        && !softring_host::fd::is_hidden(fd)
}

impl Ctx {
    /// Completes a request of a stream socket; false if it must take the slow path.
    pub(crate) fn queue_stream(&mut self, sqe: &Sqe) -> bool {
        if !is_stream(sqe.fd) || !is_plain(sqe) || !self.has_plain_streams(sqe.opcode) {
            return false;
        }
        let (polled, peer) = self.before_sending(sqe);
        let (from, len) = (ReadPtr(sqe.addr), sqe.len as usize);
        let answer = self.unlocked(|| match sqe.opcode {
            IORING_OP_READ => sockets::receive(sqe.fd, sqe.addr(), len, MSG_DONTWAIT),
            IORING_OP_WRITE => sockets::send(sqe.fd, from, len, MSG_DONTWAIT, None),
            _ => sockets::send(sqe.fd, from, len, MSG_DONTWAIT | MSG_NOSIGNAL, None),
        });
        let all = sqe.opcode == IORING_OP_SEND && sqe.op_flags & MSG_WAITALL != 0;
        let res = match answer {
            Ok(n) if n == len || !all => n as i32,
            answer => {
                self.submit.tried = Some(answer);
                return false;
            }
        };
        if sqe.opcode == IORING_OP_READ && res > 0 && !self.drive.transports.data_polls.is_empty() {
            self.report_taken(sqe.fd);
        }
        if polled && let Some(set) = &mut self.drive.transports.poll {
            self.submit.polled = set.sent(sqe.fd, peer);
        }
        self.stats.reissue.at_once.add(1);
        self.count_bytes(&OPS[usize::from(sqe.opcode)], res);
        self.post(Cqe { user_data: sqe.user_data, res, ..Cqe::default() });
        true
    }

    /// Returns whether the request sends, and its batch has polled epoll and done nothing since
    /// whose effect is not known; and what is known of the peer. The batch counts as having done
    /// such a thing from here on. Polls epoll if the next poll is to show the peer.
    #[inline]
    fn before_sending(&mut self, sqe: &Sqe) -> (bool, Peer) {
        let polled = core::mem::take(&mut self.submit.polled);
        let set = self.drive.transports.poll.as_ref();
        let Some(set) = set.filter(|_| polled == Polled::Yes && sqe.opcode != IORING_OP_READ)
        else {
            return (false, Peer::default());
        };
        let peer = set.peers.of(sqe.fd);
        if self.submit.left > 0 && set.peers.wants_poll(&peer) {
            self.poll_in_batch(polled);
        }
        (true, peer)
    }

    /// Returns the outcome of the fast path's attempt at the request, if it made one that counts:
    /// a number reused unseen, or a filter of the process, is met by another call.
    #[inline]
    pub(crate) fn outcome_tried(&mut self, req: &mut Req) -> Option<Outcome> {
        match self.submit.tried.take()? {
            Ok(n) => {
                req.call.add_done(n as u64);
                Some(Outcome::Retry)
            }
            Err(Errno::EAGAIN) => {
                req.call.found = Finding::Nothing;
                Some(Outcome::Retry)
            }
            Err(Errno::ENOTSOCK | Errno::ENOSYS | Errno::EPERM | Errno::EACCES) => None,
            Err(e) => Some(rw::left_to_task(&req.call, Outcome::Done(e.res()))),
        }
    }

    /// Returns whether nobody would see that requests of streams are no requests: a trace, an
    /// eventfd that tells who ends them (no worker ends a send), a thread that acts for another.
    #[inline]
    fn has_plain_streams(&self, opcode: u8) -> bool {
        !self.trace.on
            && (opcode == IORING_OP_SEND || self.completion.eventfd.is_none())
            && self.resources.sq_creds.is_none()
            && !self.issue.is_elsewhere()
    }
}
