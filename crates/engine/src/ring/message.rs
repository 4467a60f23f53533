//! Message of a request that sends or receives. Kernel counterpart: `struct io_async_msghdr`.

use crate::resources::bundle::Head;
use alloc::vec::Vec;
use softring_host::calls::{Part, UserPtr};
use softring_uapi::msghdr;

/// A message to send, or the buffers for one to receive.
#[derive(Debug, Default)]
pub(crate) struct Msg {
    /// The address to send to.
    pub(crate) name: Option<Vec<u8>>,
    /// The vector.
    pub(crate) iov: Vec<Part>,
    /// The provided buffers that a bundle may take.
    pub(crate) head: Head,
    /// Flag, true if the last receive of a multishot bundle left data in the socket.
    pub(crate) more: bool,
    /// Flag, true if the result is the last of a multishot request.
    pub(crate) last: bool,
    /// Flag, true if a bundle ends before a buffer that its length would have cut short.
    pub(crate) cut: bool,
    /// Flag, true if the request has received the most that a multishot receive may at a time:
    /// others run first.
    pub(crate) turn_over: bool,
    /// Address of the program's header.
    pub(crate) at: UserPtr,
    /// The program's header.
    pub(crate) hdr: msghdr,
}
