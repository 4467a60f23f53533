//! Calls of sockets.
#![allow(unsafe_code)]

use super::{ReadPtr, UserPtr, calls};
use crate::os::fd::OwnedFd;
use crate::refused;
use crate::sys::{nr, owned, sys};
use crate::user::Plain;
use softring_uapi::errno::{Result, check};

/// Bytes of the longest address (`struct sockaddr_storage`).
pub const ADDRESS: usize = 128;

calls! {
    /// Calls listen(2).
    fn listen(fd: i32, backlog: u32) = __NR_listen;
    /// Calls shutdown(2).
    fn shutdown(fd: i32, how: u32) = __NR_shutdown;
    /// Calls recvfrom(2) without asking for an address.
    fn receive(fd: i32, to: UserPtr, len: usize, flags: u32) = __NR_recvfrom;
    /// Calls getsockname(2) for the program.
    fn getsockname(fd: i32, to: UserPtr, len: UserPtr) = __NR_getsockname;
    /// Calls getpeername(2) for the program.
    fn getpeername(fd: i32, to: UserPtr, len: UserPtr) = __NR_getpeername;
    /// Calls setsockopt(2) for the program.
    fn setsockopt(fd: i32, level: u32, name: u32, value: ReadPtr, len: u32) =
        __NR_setsockopt;
}

/// Returns whether the known filters let getsockopt(2) be called. Makes no call.
pub fn options_are_spared() -> bool {
    refused::spares(nr::__NR_getsockopt.into())
}

/// Calls socket(2).
///
/// # Errors
/// As the call.
pub fn socket(domain: i32, kind: u32, protocol: u32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor.
    unsafe { owned(sys!(__NR_socket, domain, kind, protocol)) }
}

/// Calls accept4(2); the address is for the program.
///
/// # Errors
/// As the call.
pub fn accept(fd: i32, to: UserPtr, len: UserPtr, flags: u32) -> Result<OwnedFd> {
    // SAFETY: the program's memory; the answer is a descriptor.
    unsafe { owned(sys!(__NR_accept4, fd, to.0, len.0, flags)) }
}

/// Calls bind(2).
///
/// # Errors
/// As the call.
pub fn bind(fd: i32, name: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_bind, fd, name.as_ptr().expose_provenance(), name.len()) })
}

/// Calls connect(2).
///
/// # Errors
/// As the call.
pub fn connect(fd: i32, name: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_connect, fd, name.as_ptr().expose_provenance(), name.len()) })
}

/// Calls sendto(2), or send(2) without a name.
///
/// # Errors
/// As the call.
#[inline]
pub fn send(fd: i32, from: ReadPtr, len: usize, flags: u32, name: Option<&[u8]>) -> Result<usize> {
    let at = name.map_or(0, |name| name.as_ptr().expose_provenance());
    let size = name.map_or(0, <[u8]>::len);
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_sendto, fd, from.0, len, flags, at, size) })
}

/// Drops one message of a socket of packets, or one byte of a stream, if there is one.
pub fn drop_message(fd: i32) {
    const MSG_DONTWAIT: u32 = 0x40;
    let mut byte = 0u8;
    let to = (&raw mut byte).expose_provenance();
    // SAFETY: a byte of ours.
    unsafe { sys!(__NR_recvfrom, fd, to, 1, MSG_DONTWAIT, 0, 0) };
}

/// Returns the address of a socket or of its peer, as far as it fits, and its length: 0 if there is
/// none.
pub fn address(fd: i32, of_peer: bool) -> ([u8; ADDRESS], usize) {
    let (mut bytes, mut len) = ([0u8; ADDRESS], ADDRESS as u32);
    let (to, size) = (bytes.as_mut_ptr().expose_provenance(), (&raw mut len).expose_provenance());
    // SAFETY: the array and its length are ours.
    let done = unsafe {
        match of_peer {
            false => sys!(__NR_getsockname, fd, to, size),
            true => sys!(__NR_getpeername, fd, to, size),
        }
    };
    if done < 0 { (bytes, 0) } else { (bytes, ADDRESS.min(len as usize)) }
}

/// Calls getsockopt(2) for the program; returns the length of the value.
///
/// # Errors
/// As the call.
pub fn getsockopt(fd: i32, level: u32, name: u32, to: UserPtr, len: i32) -> Result<i32> {
    let mut len = len;
    let size = (&raw mut len).expose_provenance();
    // SAFETY: the length is ours, the value the program's.
    check(unsafe { sys!(__NR_getsockopt, fd, level, name, to.0, size) }).map(|_| len)
}

/// Sets a socket's option.
///
/// # Errors
/// As setsockopt(2).
pub fn set_option<T: Plain>(fd: i32, level: u32, name: u32, value: &T) -> Result<()> {
    let from = core::ptr::from_ref(value).expose_provenance();
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_setsockopt, fd, level, name, from, size_of::<T>()) }).map(drop)
}
