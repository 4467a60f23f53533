//! READ, WRITE and their vectored and fixed forms on stream sockets of TCP and Unix.
//!
//! A number that was such a socket is read by recv(2) and written by send(2), which do the same as
//! preadv2(2) and pwritev2(2) there. They refuse every other file (`ENOTSOCK`), so nothing needs to
//! be asked first: if the number was closed and reused unseen, the ordinary attempt follows.

use crate::io::socket::MSG_DONTWAIT;
use crate::ops::rw::{finish, vectored, writes};
use crate::ring::opdef::Outcome;
use crate::ring::request::{Call, Finding};
use softring_host::calls::{Incoming, Outgoing, ReadPtr, sockets};
use softring_host::fd::forget_kind;
use softring_uapi::errno::{Errno, Result};

/// Makes an attempt that does not wait; `None` if the file, or a filter of the process, takes no
/// such call.
pub(crate) fn attempt(call: &mut Call) -> Option<Outcome> {
    if vectored(call.opcode) != call.state.vector().is_some() {
        return None;
    }
    match transfer(call) {
        Ok(n) => {
            call.add_done(n as u64);
            let total = call.total();
            Some(finish(call, total))
        }
        Err(Errno::EAGAIN) => {
            call.found = Finding::Nothing;
            Some(Outcome::Retry)
        }
        Err(Errno::ENOTSOCK) => {
            forget_kind(call.file.fd());
            None
        }
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EACCES) => None,
        Err(e) => Some(Outcome::Done(e.res())),
    }
}

fn transfer(call: &Call) -> Result<usize> {
    let (fd, writes) = (call.file.fd(), writes(call.opcode));
    if let Some(parts) = call.state.vector() {
        return match writes {
            true => Outgoing::new(parts).send(fd, MSG_DONTWAIT),
            false => Incoming::new(parts).receive(fd, MSG_DONTWAIT).map(|(n, _)| n),
        };
    }
    let (to, len) = (call.io().addr, call.io().len as usize);
    match writes {
        true => sockets::send(fd, ReadPtr(to.addr()), len, MSG_DONTWAIT, None),
        false => sockets::receive(fd, to, len, MSG_DONTWAIT),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::socket::Socket;
    use crate::memory::sqe::Sqe;
    use crate::ops::rw;
    use crate::ring::opdef::Try;
    use crate::ring::request::{FileRef, OpState, Rw, Transfer};
    use softring_host::os::fd::AsRawFd;
    use softring_uapi::{IORING_OP_READ, io_uring_sqe};

    /// Makes a READ of `fd` into `buf`.
    fn read(fd: i32, buf: &mut [u8]) -> Call {
        let addr = buf.as_mut_ptr().expose_provenance() as u64;
        let (opcode, len) = (IORING_OP_READ, buf.len() as u32);
        let sqe = Sqe::from(io_uring_sqe { opcode, fd, addr, len, ..Default::default() });
        let mut call = Call::new(sqe);
        call.file = FileRef::Plain(fd);
        call.begin(OpState::Rw(Rw { io: Transfer::of(&sqe), vector: None, by_worker: false }));
        call
    }

    #[test]
    fn number_that_was_reused_unseen_is_read_as_a_file() {
        let file = softring_host::substitute::memfd("rw-stream", false).unwrap();
        softring_host::os::io::write(&file, b"content").unwrap();
        let (fd, mut buf) = (file.as_raw_fd(), [0; 8]);
        Socket::Tcp.remember(fd);
        let mut call = read(fd, &mut buf);
        assert!(call.is_of_stream_socket());
        assert_eq!(rw::issue(&mut call, Try::Nonblock), Outcome::Done(7));
        assert_eq!((&buf[..7], call.short), (&b"content"[..], true));
        assert_eq!(Socket::remembered(fd), None);
    }
}
