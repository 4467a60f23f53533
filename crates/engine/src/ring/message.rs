//! What a request that sends or receives keeps of its message. Kernel counterpart:
//! `struct io_async_msghdr`.

use crate::resources::bundle::Head;
use alloc::vec::Vec;
use softring_uapi::{iovec, msghdr};

/// A message to send, or where one goes.
#[derive(Debug, Default)]
pub(crate) struct Msg {
    /// The address to send to.
    pub(crate) name: Option<Vec<u8>>,
    /// The vector.
    pub(crate) iov: Vec<iovec>,
    /// The provided buffers that a bundle may take.
    pub(crate) head: Head,
    /// The last receive of a multishot bundle left something in the socket.
    pub(crate) more: bool,
    /// What it has transferred is the last of a multishot request.
    pub(crate) last: bool,
    /// A bundle ends in front of a buffer that its length would have cut short.
    pub(crate) cut: bool,
    /// The request has brought as much as a multishot receive may at a time: others come first.
    pub(crate) turn_over: bool,
    /// Where the program's header lies.
    pub(crate) at: u64,
    /// The program's header.
    pub(crate) hdr: msghdr,
}
