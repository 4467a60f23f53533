//! Kinds of sockets, as far as sending and receiving must know them, and tests for more to receive.

use core::sync::atomic::Ordering::Relaxed;

use softring_host::calls::ioctl::{self, Queue};
use softring_host::calls::sockets;
use softring_host::fd::kind;
use softring_host::fd::numbers::closes_reported;
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
/// TCP_ESTABLISHED, and the states in which only this side has ended its direction.
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
/// The flag for 32-bit programs; only their own system calls may pass it.
pub(crate) const MSG_CMSG_COMPAT: u32 = 0x8000_0000;

pub(crate) const POLLRDHUP: i16 = 0x2000;
pub(crate) const POLLERR: i16 = 8;

/// Returns whether the peer of a TCP socket has not ended its direction (`SOCK_DONE`). A refused
/// connection has no peer that could have.
fn peer_goes_on(fd: i32) -> bool {
    // `struct tcp_info` begins with the state; the last word here is `tcpi_bytes_received`, which
    // counts a FIN.
    let info = sys::socket_option::<[u64; 17]>(fd, IPPROTO_TCP as u32, TCP_INFO);
    info.is_ok_and(|info| {
        let (state, received) = (info[0].to_ne_bytes()[0], info[16]);
        OPEN.contains(&state) || (state == CLOSED && received == 0)
    })
}

/// Returns whether all that was sent has left a stream socket, as far as may be asked.
pub(crate) fn has_sent_all(fd: i32) -> bool {
    match Socket::remembered(fd) {
        Some(Socket::UnixStream) => true,
        Some(Socket::Tcp) if sockets::options_are_spared() => {
            // The last word's lower half is `tcpi_notsent_bytes`.
            let info = sys::socket_option::<[u64; 19]>(fd, IPPROTO_TCP as u32, TCP_INFO);
            info.is_ok_and(|info| info[18] as u32 == 0)
        }
        _ => false,
    }
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

/// Sockets in the order of their remembered values, which start at 1.
const ALL: [Socket; 4] = [Socket::Tcp, Socket::Udp, Socket::UnixStream, Socket::Other];

/// Reads an option of SOL_SOCKET.
pub(crate) fn option(fd: i32, name: u32) -> Option<i32> {
    sys::socket_option(fd, SOL_SOCKET, name).ok()
}

impl Socket {
    /// Returns the kind of `fd`, if it is remembered.
    #[inline]
    pub(crate) fn remembered(fd: i32) -> Option<Socket> {
        let known = slot(fd).map_or(0, |s| s.load(Relaxed));
        usize::from(known).checked_sub(1).and_then(|i| ALL.get(i)).copied()
    }

    /// Returns the kind of `fd`. Remembered if every close of that number is reported.
    pub(crate) fn of(fd: i32) -> Socket {
        if let Some(socket) = Self::remembered(fd) {
            return socket;
        }
        let socket = Self::ask(fd);
        if closes_reported() || softring_host::fd::numbers::is_internal(fd) {
            socket.remember(fd);
        }
        socket
    }

    /// Finds out the kind of `fd`, a socket, if it can be remembered. Options are not asked where a
    /// filter may kill for that.
    pub(crate) fn learn(fd: i32) {
        let asks = closes_reported() && Self::remembered(fd).is_none();
        if asks && sockets::options_are_spared() {
            Self::ask(fd).remember(fd);
        }
    }

    /// Remembers that `fd` is of this kind, until it is closed.
    pub(crate) fn remember(self, fd: i32) {
        if let Some(slot) = slot(fd) {
            slot.store(self as u8 + 1, Relaxed);
        }
    }

    /// Queries the kind of `fd`, ignoring what is remembered.
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

    /// Returns whether there is more after a receive (`msg_inq`); only some sockets tell. The end
    /// of a TCP stream counts as more, unless this side has shut down its receiving; a pending
    /// reset that no call has reported yet is no end. An urgent byte at which a receive stops
    /// counts, too, but makes the socket ready for urgent data only. `ended`: the receive has
    /// returned nothing, as it does at an end, even in front of a reset.
    pub(crate) fn has_more(self, fd: i32, ended: bool) -> Option<bool> {
        match self {
            Socket::Tcp => {
                let ready = sys::poll_now(fd, sys::POLLIN | sys::POLLPRI | POLLRDHUP);
                let some = ready & (sys::POLLIN | sys::POLLPRI) != 0;
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

    /// Returns the number of bytes to receive, if the socket tells.
    pub(crate) fn pending(self, fd: i32) -> Option<u64> {
        if !matches!(self, Socket::Tcp | Socket::UnixStream) {
            return None;
        }
        let bytes = ioctl::queued(fd, Queue::Received).ok()?;
        u64::try_from(bytes).ok()
    }
}

/// Returns whether `fd` announces everything that can be received, each byte by itself. False with
/// a low-water mark, or under another protocol (TLS).
pub(crate) fn tells_all(fd: i32) -> bool {
    option(fd, SO_RCVLOWAT) == Some(1) && !has_upper_layer(fd)
}

fn has_upper_layer(fd: i32) -> bool {
    let name = sys::socket_option(fd, IPPROTO_TCP as u32, TCP_ULP);
    name.is_ok_and(|name: [u8; 16]| name[0] != 0)
}

/// Returns whether the descriptor is a socket of the internet's families.
pub(crate) fn is_internet(fd: i32) -> bool {
    matches!(option(fd, SO_DOMAIN), Some(AF_INET | AF_INET6))
}

/// Returns whether MSG_ERRQUEUE reads a socket's error queue. On other sockets (Unix ones) it reads
/// their data.
pub(crate) fn has_error_queue(fd: i32) -> bool {
    matches!(option(fd, SO_DOMAIN), Some(AF_INET | AF_INET6 | AF_PACKET))
}

/// Returns whether a socket refuses a name of no bytes as too short. Internet sockets check only
/// whether there is a name; all others, and raw ones, check its length.
pub(crate) fn minds_empty_name(fd: i32) -> bool {
    is_internet(fd) && option(fd, SO_TYPE) != Some(SOCK_RAW)
}

/// Checks that memory may be sent to the socket without a copy.
///
/// # Errors
/// `EOPNOTSUPP` if never.
pub(crate) fn check_zero_copy(fd: i32) -> Result<()> {
    let socket = match Socket::of(fd) {
        // Before a refusal, query again: the number may have been reused unseen.
        Socket::UnixStream | Socket::Other => Socket::ask(fd),
        socket => socket,
    };
    let cannot = matches!(socket, Socket::UnixStream | Socket::Other) && kind::is_socket(fd);
    if cannot { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// Returns whether the descriptor is a socket.
pub(crate) fn is_socket(fd: i32) -> bool {
    Socket::of(fd) != Socket::Other || kind::is_socket(fd)
}

/// Returns whether `fd` keeps data in order and whole, so that the rest of a transfer may follow
/// (`io_net_retry`).
pub(crate) fn streams(fd: i32) -> bool {
    matches!(option(fd, SO_TYPE), Some(SOCK_STREAM | SOCK_SEQPACKET))
}

/// Returns whether a stream consists of messages, of which a call takes one.
pub(crate) fn has_messages(fd: i32) -> bool {
    option(fd, SO_TYPE) == Some(SOCK_SEQPACKET)
}

/// Returns whether `fd` is a socket of this machine alone.
pub(crate) fn is_unix(fd: i32) -> bool {
    const AF_UNIX: i32 = 1;
    option(fd, SO_DOMAIN) == Some(AF_UNIX)
}
