//! What kind of socket a descriptor is, as far as sending and receiving must know, and whether
//! there is more to receive.

use core::sync::atomic::Ordering::Relaxed;

use softring_host::calls::ioctl::{self, Queue};
use softring_host::fd::kind;
use softring_host::fd::remembered::socket as slot;
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};

const SOL_SOCKET: u32 = 1;
const SO_TYPE: u32 = 3;
const SO_RCVLOWAT: u32 = 18;
const TCP_ULP: u32 = 31;
const SO_PROTOCOL: u32 = 38;
pub(crate) const SO_DOMAIN: u32 = 39;
const AF_UNIX: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const AF_PACKET: i32 = 17;
const SOCK_STREAM: i32 = 1;
const SOCK_RAW: i32 = 3;
const SOCK_SEQPACKET: i32 = 5;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_UDP: i32 = 17;
const TCP_INFO: u32 = 11;
/// TCP_ESTABLISHED, and the states of who has ended its own direction alone.
const OPEN: [u8; 3] = [1, 4, 5];
const CLOSED: u8 = 7;
/// Flags of send(2) and recv(2).
pub(crate) const MSG_OOB: u32 = 0x1;
pub(crate) const MSG_CTRUNC: u32 = 0x8;
pub(crate) const MSG_TRUNC: u32 = 0x20;
pub(crate) const MSG_DONTWAIT: u32 = 0x40;
pub(crate) const MSG_WAITALL: u32 = 0x100;
pub(crate) const MSG_ERRQUEUE: u32 = 0x2000;
pub(crate) const MSG_NOSIGNAL: u32 = 0x4000;
/// The flag for programs of 32 bits; their system calls alone may be given it.
pub(crate) const MSG_CMSG_COMPAT: u32 = 0x8000_0000;

pub(crate) const POLLRDHUP: i16 = 0x2000;
pub(crate) const POLLERR: i16 = 8;

/// Has the peer of a TCP socket not ended its direction (`SOCK_DONE`)? A connection that was
/// refused has no peer that could have.
fn peer_goes_on(fd: i32) -> bool {
    // `struct tcp_info` begins with the state; the last word here is `tcpi_bytes_received`, which
    // counts a FIN.
    let info = sys::socket_option::<[u64; 17]>(fd, IPPROTO_TCP as u32, TCP_INFO);
    info.is_ok_and(|info| {
        let (state, received) = (info[0].to_ne_bytes()[0], info[16]);
        OPEN.contains(&state) || (state == CLOSED && received == 0)
    })
}

/// A socket's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Tcp,
    Udp,
    UnixStream,
    /// Any other, or none.
    Other,
}

/// The places here, plus one, are what is remembered.
const ALL: [Socket; 4] = [Socket::Tcp, Socket::Udp, Socket::UnixStream, Socket::Other];

/// An option of SOL_SOCKET.
pub(crate) fn option(fd: i32, name: u32) -> Option<i32> {
    sys::socket_option(fd, SOL_SOCKET, name).ok()
}

impl Socket {
    /// What `fd` is. Remembered where every close of that number is reported.
    pub(crate) fn of(fd: i32) -> Socket {
        let known = slot(fd).map_or(0, |s| s.load(Relaxed));
        if let Some(socket) = usize::from(known).checked_sub(1).and_then(|i| ALL.get(i)) {
            return *socket;
        }
        let socket = Self::ask(fd);
        if (softring_host::fd::numbers::closes_reported()
            || softring_host::fd::numbers::is_internal(fd))
            && let Some(slot) = slot(fd)
        {
            slot.store(socket as u8 + 1, Relaxed);
        }
        socket
    }

    /// The same, without what is remembered.
    pub(crate) fn ask(fd: i32) -> Socket {
        match option(fd, SO_DOMAIN) {
            Some(AF_INET | AF_INET6) => match option(fd, SO_PROTOCOL) {
                Some(IPPROTO_TCP) => Socket::Tcp,
                Some(IPPROTO_UDP) => Socket::Udp,
                _ => Socket::Other,
            },
            Some(AF_UNIX) if option(fd, SO_TYPE) == Some(SOCK_STREAM) => Socket::UnixStream,
            _ => Socket::Other,
        }
    }

    /// After a receive: is there more (`msg_inq`)? Only some sockets tell. The end of a TCP stream
    /// counts as something, unless it was this side that would have no more of it; a reset that
    /// nobody was told of yet is no end. `ended`: the receive has brought nothing, which it does at
    /// an end also in front of a reset.
    pub(crate) fn has_more(self, fd: i32, ended: bool) -> Option<bool> {
        match self {
            Socket::Tcp => {
                let ready = sys::poll_now(fd, sys::POLLIN | POLLRDHUP);
                let some = ready & sys::POLLIN != 0;
                Some(
                    some && (ready & POLLRDHUP == 0
                        || ((ready & POLLERR == 0 || ended) && !peer_goes_on(fd))
                        || self.pending(fd) > Some(0)),
                )
            }
            Socket::UnixStream => self.pending(fd).map(|bytes| bytes > 0),
            Socket::Udp | Socket::Other => None,
        }
    }

    /// Bytes that are there to be received, where the socket tells.
    pub(crate) fn pending(self, fd: i32) -> Option<u64> {
        if !matches!(self, Socket::Tcp | Socket::UnixStream) {
            return None;
        }
        let bytes = ioctl::queued(fd, Queue::Received).ok()?;
        u64::try_from(bytes).ok()
    }
}

/// Does `fd` announce everything that can be received, each byte by itself? Not with a low-water
/// mark, and not where another protocol sits on top (TLS).
pub(crate) fn tells_all(fd: i32) -> bool {
    option(fd, SO_RCVLOWAT) == Some(1) && !has_upper_layer(fd)
}

fn has_upper_layer(fd: i32) -> bool {
    let name = sys::socket_option(fd, IPPROTO_TCP as u32, TCP_ULP);
    name.is_ok_and(|name: [u8; 16]| name[0] != 0)
}

/// Is the descriptor a socket of the internet's families?
pub(crate) fn is_internet(fd: i32) -> bool {
    matches!(option(fd, SO_DOMAIN), Some(AF_INET | AF_INET6))
}

/// Does MSG_ERRQUEUE read a socket's error queue? Unix sockets, for one, give their data.
pub(crate) fn has_error_queue(fd: i32) -> bool {
    matches!(option(fd, SO_DOMAIN), Some(AF_INET | AF_INET6 | AF_PACKET))
}

/// Does a socket take a name of no bytes for one that is too short? Internet sockets check whether
/// there is a name; all others, and raw ones, check how long the name is.
pub(crate) fn minds_empty_name(fd: i32) -> bool {
    is_internet(fd) && option(fd, SO_TYPE) != Some(SOCK_RAW)
}

/// May memory be sent to the socket from where it lies?
///
/// # Errors
/// `EOPNOTSUPP` if never.
pub(crate) fn check_zero_copy(fd: i32) -> Result<()> {
    let socket = match Socket::of(fd) {
        // A refusal is worth a second check: the number may have been reused behind our back.
        Socket::UnixStream | Socket::Other => Socket::ask(fd),
        socket => socket,
    };
    let cannot = matches!(socket, Socket::UnixStream | Socket::Other) && kind::is_socket(fd);
    if cannot { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// Is the descriptor a socket?
pub(crate) fn is_socket(fd: i32) -> bool {
    Socket::of(fd) != Socket::Other || kind::is_socket(fd)
}

/// Does `fd` keep what is sent in order and whole, so that the rest of a transfer may follow
/// (`io_net_retry`)?
pub(crate) fn streams(fd: i32) -> bool {
    matches!(option(fd, SO_TYPE), Some(SOCK_STREAM | SOCK_SEQPACKET))
}

/// Does it go on over several messages, of which a call takes one?
pub(crate) fn has_messages(fd: i32) -> bool {
    option(fd, SO_TYPE) == Some(SOCK_SEQPACKET)
}
