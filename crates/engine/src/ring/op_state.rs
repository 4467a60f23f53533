//! What an operation has of its own, by family: what prep has copied in from the program, as the
//! request may outlive the program's copy, and how far it has come. Kernel counterpart: the `cmd`
//! of `struct io_kiocb`, and its `async_data`.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;

use crate::io::futex_waiter::Job;
use crate::resources::kbuf::Pick;
use crate::ring::file_ref::FileRef;
use crate::ring::message::Msg;
use crate::ring::phase::TimerArgs;
use softring_host::fd::InternalFd;
use softring_uapi::{epoll_event, io_uring_sqe, iovec, nvme_passthru_cmd64};

/// The state of an operation.
#[derive(Debug, Default)]
pub(crate) enum OpState {
    #[default]
    None,
    /// What reads or writes.
    Rw(Rw),
    /// What sends or receives.
    Net(Net),
    /// The path of an operation on one.
    Path(CString),
    /// The paths of an operation on two.
    Paths(Box<[CString; 2]>),
    /// OPENAT and OPENAT2: the path, and `struct open_how`.
    Open(Box<(CString, Vec<u8>)>),
    /// An operation on an extended attribute.
    Attribute(Box<Attribute>),
    /// BIND: the address.
    Bind(Vec<u8>),
    Connect(Connect),
    /// ACCEPT: the connection, which is to have a slot.
    Accepted(InternalFd),
    /// SPLICE and TEE: what they read from.
    Source(FileRef),
    /// POLL_ADD: `EPOLL*` events.
    Poll(u32),
    /// TIMEOUT and LINK_TIMEOUT, and what updates one.
    Timeout(TimerArgs),
    /// What a futex waiter is to wait for, or FUTEX_WAKE to wake.
    Sleep(Job),
    /// EPOLL_CTL.
    Epoll(epoll_event),
    /// URING_CMD.
    Command(Command),
}

impl OpState {
    /// What is to be transferred; nothing, if the operation transfers nothing.
    #[inline]
    pub(crate) const fn io(&self) -> &Transfer {
        const NOTHING: &Transfer = &Transfer::NOTHING;
        match self {
            OpState::Rw(Rw { io, .. }) | OpState::Net(Net { io, .. }) => io,
            _ => NOTHING,
        }
    }

    /// As [`Self::io`], of an operation that transfers something.
    #[inline]
    pub(crate) const fn io_mut(&mut self) -> Option<&mut Transfer> {
        match self {
            OpState::Rw(Rw { io, .. }) | OpState::Net(Net { io, .. }) => Some(io),
            _ => None,
        }
    }

    /// The vector of what reads or writes one.
    #[inline]
    pub(crate) fn vector(&self) -> Option<&[iovec]> {
        match self {
            OpState::Rw(Rw { vector, .. }) => vector.as_deref(),
            _ => None,
        }
    }

    /// The message of what sends or receives more than one buffer.
    #[inline]
    pub(crate) fn message(&self) -> Option<&Msg> {
        match self {
            OpState::Net(Net { msg, .. }) => msg.as_deref(),
            _ => None,
        }
    }

    /// The request has ended.
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

/// A READ, a WRITE, or one of their kin. (Its transfer lies where that of [`Net`] does, so that
/// [`OpState::io`] need not ask which.)
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Rw {
    pub(crate) io: Transfer,
    /// The parts of a vector.
    pub(crate) vector: Option<Box<[iovec]>>,
}

/// A SEND, a RECV, or one of their kin.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Net {
    pub(crate) io: Transfer,
    /// The message of what sends or receives more than one buffer.
    pub(crate) msg: Option<Box<Msg>>,
    /// What the poll set said when the socket was found ready, with the end of the stream if there
    /// is one; 0: not known.
    pub(crate) seen: u32,
    /// The request has waited for readiness, or was to (`REQ_F_POLLED`).
    pub(crate) polled: bool,
}

/// What a read, a write, a send or a receive is to transfer, and how far it has come. Prep fills it
/// in; who picks a buffer aims it there, and attempts move it on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// Where the bytes are, or the vector.
    pub(crate) addr: u64,
    /// How many bytes, or parts of the vector.
    pub(crate) len: u32,
    /// `RWF_*` or `MSG_*`.
    pub(crate) flags: u32,
    /// The position in a file; the bytes after which a multishot RECV ends (0: no end).
    pub(crate) off: u64,
    /// Bytes already transferred by earlier attempts.
    pub(crate) done: u64,
    pub(crate) select: Selection,
}

impl Transfer {
    const NOTHING: Transfer =
        Transfer { addr: 0, len: 0, flags: 0, off: 0, done: 0, select: Selection::NOTHING };

    #[inline]
    pub(crate) const fn of(sqe: &io_uring_sqe) -> Self {
        let &io_uring_sqe { addr, len, op_flags, off, .. } = sqe;
        Transfer { addr, len, flags: op_flags, off, ..Transfer::NOTHING }
    }
}

/// The provided buffer of what reads, sends or receives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selection {
    /// Where buffers are picked from.
    pub(crate) group: u16,
    /// How many bytes were asked for; 0: as many as fit.
    pub(crate) want: u32,
    /// The length of the buffer that the last attempt found nothing for; 0: there was none.
    pub(crate) most: u32,
    /// The buffer picked.
    pub(crate) pick: Option<Pick>,
}

impl Selection {
    const NOTHING: Selection = Selection { group: 0, want: 0, most: 0, pick: None };
}

/// What an operation on an extended attribute has copied.
#[derive(Debug, Default)]
pub(crate) struct Attribute {
    pub(crate) name: CString,
    /// The path of the file whose it is; empty where a descriptor says so.
    pub(crate) path: CString,
    /// The value to set.
    pub(crate) value: Vec<u8>,
}

/// A CONNECT.
#[derive(Debug, Default)]
pub(crate) struct Connect {
    pub(crate) addr: Vec<u8>,
    /// The connection is under way.
    pub(crate) pending: bool,
    /// The socket has told once that its last connection was aborted.
    pub(crate) aborted: bool,
}

/// A command of a file's own.
#[derive(Debug, Default)]
pub(crate) struct Command {
    /// CQEs are of 32 bytes.
    pub(crate) wide_cqe: bool,
    /// The request's SQE is of 128 bytes.
    pub(crate) big_sqe: bool,
    /// What it is on an NVMe device.
    pub(crate) nvme: Option<Box<nvme_passthru_cmd64>>,
}
