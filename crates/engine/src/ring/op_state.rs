//! State of an operation, by family: the data that prep has copied from the program, as the request
//! may outlive the program's copy, and the progress. Kernel counterpart: the `cmd` of
//! `struct io_kiocb`, and its `async_data`.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use crate::io::futex_waiter::Job;
use crate::memory::sqe::Sqe;
use crate::resources::kbuf::Pick;
use crate::ring::file_ref::{FileRef, is_send};
use crate::ring::message::Msg;
use crate::ring::phase::TimerArgs;
use softring_host::calls::{Part, UserPtr};
use softring_host::fd::InternalFd;
use softring_host::fd::file_systems::WrittenOn;
use softring_host::os::fd::OwnedFd;
use softring_host::os::fs::OFlags;
use softring_uapi::{epoll_event, io_uring_sqe, nvme_passthru_cmd64};

/// Offset that stands for the file's own position.
pub(crate) const CURRENT: u64 = u64::MAX;

/// The state of an operation.
#[derive(Debug, Default)]
pub(crate) enum OpState {
    #[default]
    None,
    /// A read or a write.
    Rw(Rw),
    /// A send or a receive.
    Net(Net),
    /// The path of an operation on one path.
    Path(CString),
    /// The paths of an operation on two paths.
    Paths(Box<[CString; 2]>),
    /// OPENAT and OPENAT2: the path, `struct open_how`, and where the file goes if the submitter
    /// may open it itself (`ops::open_quick`).
    Open(Box<(CString, Vec<u8>, WrittenOn)>),
    /// OPENAT and OPENAT2: the file that prep has opened, and its flags.
    Opened(OwnedFd, OFlags),
    /// An operation on an extended attribute.
    Attribute(Box<Attribute>),
    /// BIND: the address.
    Bind(Vec<u8>),
    Connect(Connect),
    /// ACCEPT: the connection, which is to have a slot.
    Accepted(InternalFd),
    /// SPLICE and TEE: the file that they read from.
    Source(FileRef),
    /// POLL_ADD: `EPOLL*` events.
    Poll(u32),
    /// TIMEOUT and LINK_TIMEOUT, and updates of one.
    Timeout(TimerArgs),
    /// The wait of a futex waiter, or the wake-up of FUTEX_WAKE.
    Sleep(Job),
    /// EPOLL_CTL.
    Epoll(epoll_event),
    /// URING_CMD.
    Command(Command),
}

impl OpState {
    /// Returns the transfer of the operation; an empty one if it transfers nothing.
    #[inline]
    pub(crate) const fn io(&self) -> &Transfer {
        const NOTHING: &Transfer = &Transfer::NOTHING;
        match self {
            OpState::Rw(Rw { io, .. }) | OpState::Net(Net { io, .. }) => io,
            _ => NOTHING,
        }
    }

    /// Returns the transfer of the operation, if it transfers something.
    #[inline]
    pub(crate) const fn io_mut(&mut self) -> Option<&mut Transfer> {
        match self {
            OpState::Rw(Rw { io, .. }) | OpState::Net(Net { io, .. }) => Some(io),
            _ => None,
        }
    }

    /// Returns the vector of a vectored read or write.
    #[inline]
    pub(crate) fn vector(&self) -> Option<&[Part]> {
        match self {
            OpState::Rw(Rw { vector, .. }) => vector.as_deref(),
            _ => None,
        }
    }

    /// Returns the message of a send or receive of more than one buffer.
    #[inline]
    pub(crate) fn message(&self) -> Option<&Msg> {
        match self {
            OpState::Net(Net { msg, .. }) => msg.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the state may leave the uring lock: it owns no node of a registered file.
    pub(crate) fn may_leave(&self) -> bool {
        match self {
            OpState::Source(file) => file.may_leave(),
            OpState::None => true,
            OpState::Rw(rw) => is_send(rw),
            OpState::Net(net) => is_send(net),
            OpState::Path(path) => is_send(path),
            OpState::Paths(paths) => is_send(paths),
            OpState::Open(open) => is_send(open),
            OpState::Opened(fd, flags) => is_send(fd) && is_send(flags),
            OpState::Attribute(attribute) => is_send(attribute),
            OpState::Bind(name) => is_send(name),
            OpState::Connect(connect) => is_send(connect),
            OpState::Accepted(fd) => is_send(fd),
            OpState::Poll(events) => is_send(events),
            OpState::Timeout(args) => is_send(args),
            OpState::Sleep(job) => is_send(job),
            OpState::Epoll(event) => is_send(event),
            OpState::Command(command) => is_send(command),
        }
    }

    /// Takes the file that prep has opened.
    pub(crate) fn take_opened(&mut self) -> Option<(OwnedFd, OFlags)> {
        match core::mem::take(self) {
            OpState::Opened(fd, flags) => Some((fd, flags)),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Drops the state of an ended request.
    #[inline]
    pub(crate) fn clear(&mut self) {
        match self {
            OpState::None => {}
            // These have nothing to drop, and checking for it would cost calls.
            OpState::Rw(Rw { vector: None, .. }) | OpState::Net(Net { msg: None, .. }) => {
                let _nothing = ManuallyDrop::new(core::mem::take(self));
            }
            _ => *self = OpState::None,
        }
    }
}

/// A READ, a WRITE, or a similar operation. (Its transfer has the same offset as that of [`Net`],
/// so that [`OpState::io`] need not check the variant.)
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Rw {
    pub(crate) io: Transfer,
    /// The parts of a vector.
    pub(crate) vector: Option<Box<[Part]>>,
    /// Flag, true once the request was queued for a worker, whose writes send no signals.
    pub(crate) by_worker: bool,
}

/// A SEND, a RECV, or a similar operation.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Net {
    pub(crate) io: Transfer,
    /// The message of a send or receive of more than one buffer.
    pub(crate) msg: Option<Box<Msg>>,
    /// Events of the poll set when the socket was found ready, with the end of the stream if there
    /// is one; 0: not known.
    pub(crate) seen: u32,
    /// Flag, true if the request has waited for readiness, or was to (`REQ_F_POLLED`).
    pub(crate) polled: bool,
}

/// Transfer of a read, a write, a send or a receive, and its progress. Prep fills it in; the
/// selection of a buffer sets the address, and attempts advance it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// Address of the bytes, or of the program's vector.
    pub(crate) addr: UserPtr,
    /// Number of bytes, or of parts of the vector.
    pub(crate) len: u32,
    /// `RWF_*` or `MSG_*`.
    pub(crate) flags: u32,
    /// The position in a file; the bytes after which a multishot RECV ends (0: no end).
    pub(crate) off: u64,
    /// Bytes transferred by earlier attempts.
    pub(crate) done: u64,
    pub(crate) select: Selection,
}

impl Transfer {
    const NOTHING: Transfer = Transfer {
        addr: UserPtr::NULL,
        len: 0,
        flags: 0,
        off: 0,
        done: 0,
        select: Selection::NOTHING,
    };

    #[inline]
    pub(crate) fn of(sqe: &Sqe) -> Self {
        let &io_uring_sqe { len, op_flags, off, .. } = &**sqe;
        Transfer { addr: sqe.addr(), len, flags: op_flags, off, ..Transfer::NOTHING }
    }

    /// Returns what is left of the one buffer.
    #[inline(always)]
    pub(crate) fn rest(&self) -> Part {
        Part::new(self.addr, self.len.into()).skip(self.done)
    }
}

/// The provided buffer of a read, a send or a receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selection {
    /// Group that buffers are picked from.
    pub(crate) group: u16,
    /// Number of bytes asked for; 0: as many as fit.
    pub(crate) want: u32,
    /// Length of the buffer for which the last attempt found nothing; 0: there was none.
    pub(crate) most: u32,
    /// The buffer picked.
    pub(crate) pick: Option<Pick>,
}

impl Selection {
    const NOTHING: Selection = Selection { group: 0, want: 0, most: 0, pick: None };
}

/// Copies of an extended-attribute operation.
#[derive(Debug, Default)]
pub(crate) struct Attribute {
    pub(crate) name: CString,
    /// The path of the file; empty if a descriptor names the file.
    pub(crate) path: CString,
    /// The value to set.
    pub(crate) value: Vec<u8>,
}

/// A CONNECT.
#[derive(Debug, Default)]
pub(crate) struct Connect {
    pub(crate) addr: Vec<u8>,
    /// Flag, true while the connection is under way.
    pub(crate) pending: bool,
    /// Flag, set once the socket has reported that its last connection was aborted.
    pub(crate) aborted: bool,
}

/// A file-specific command.
#[derive(Debug, Default)]
pub(crate) struct Command {
    /// Flag, true if CQEs are of 32 bytes.
    pub(crate) wide_cqe: bool,
    /// Flag, true if the request's SQE is of 128 bytes.
    pub(crate) big_sqe: bool,
    /// The command for an NVMe device.
    pub(crate) nvme: Option<Box<nvme_passthru_cmd64>>,
}
