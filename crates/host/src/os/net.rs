//! Unix sockets, and descriptors that are sent over them.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use super::io::{IoSlice, IoSliceMut, made};
use super::kernel;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::flag_set;

const AF_UNIX: u16 = 1;
const SOCK_SEQPACKET: u32 = 5;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;

/// Most descriptors of one message (`SCM_MAX_FD`).
pub const SCM_MAX_FD: usize = 253;

flag_set! {
    /// Flags of socket(2).
    pub struct SocketFlags: u32 {
        const CLOEXEC = 0o2_000_000;
        const NONBLOCK = 0o4000;
    }
}

flag_set! {
    /// Flags of sendmsg(2).
    pub struct SendFlags: u32 {
        const NOSIGNAL = 0x4000;
    }
}

flag_set! {
    /// Flags of recvmsg(2).
    pub struct RecvFlags: u32 {
        const PEEK = 2;
        const DONTWAIT = 0x40;
        const CMSG_CLOEXEC = 0x4000_0000;
    }
}

/// Address of a Unix socket.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct SocketAddrUnix {
    family: u16,
    path: [u8; 108],
    /// Bytes of the address; no part of it.
    len: u32,
}

impl SocketAddrUnix {
    /// Makes an abstract address.
    ///
    /// # Errors
    /// `ENAMETOOLONG`
    pub fn new_abstract_name(name: &[u8]) -> Result<SocketAddrUnix> {
        let mut path = [0; 108];
        path[1..].get_mut(..name.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
        let len = (size_of::<u16>() + 1 + name.len()) as u32;
        Ok(SocketAddrUnix { family: AF_UNIX, path, len })
    }
}

/// Makes a Unix socket of packets in their order.
///
/// # Errors
/// As socket(2).
pub fn packet_socket(flags: SocketFlags) -> Result<OwnedFd> {
    // SAFETY: numbers; the answer is a descriptor for us.
    unsafe { made(kernel!(__NR_socket, AF_UNIX, SOCK_SEQPACKET | flags.bits(), 0)) }
}

/// Makes two such sockets that are connected.
///
/// # Errors
/// As socketpair(2).
pub fn packet_socketpair(flags: SocketFlags) -> Result<[OwnedFd; 2]> {
    let (mut fds, kind) = ([-1i32; 2], SOCK_SEQPACKET | flags.bits());
    // SAFETY: the array is ours, and as long as the kernel takes it to be; the numbers are made
    // for us.
    unsafe {
        kernel!(__NR_socketpair, AF_UNIX, kind, 0, fds.as_mut_ptr().expose_provenance())?;
        Ok(fds.map(|fd| OwnedFd::from_raw_fd(fd)))
    }
}

/// Calls connect(2).
///
/// # Errors
/// As the call.
pub fn connect(socket: impl AsFd, to: &SocketAddrUnix) -> Result<()> {
    let at = core::ptr::from_ref(to).expose_provenance();
    // SAFETY: the kernel reads there.
    unsafe { kernel!(__NR_connect, socket.as_fd().as_raw_fd(), at, to.len) }.map(drop)
}

/// `struct msghdr`
#[repr(C)]
struct Message<'a> {
    name: usize,
    name_len: u32,
    parts: usize,
    parts_len: usize,
    control: usize,
    control_len: usize,
    flags: i32,
    _of: PhantomData<&'a mut Rights>,
}

/// Control message with descriptors: `struct cmsghdr`, and as many as a message may have.
#[derive(Debug)]
#[repr(C)]
struct Rights {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; SCM_MAX_FD],
}

impl Rights {
    /// Bytes in front of the descriptors.
    const HEADER: usize = 16;

    const fn new() -> Rights {
        Rights { len: size_of::<Rights>(), level: SOL_SOCKET, kind: SCM_RIGHTS, fds: [0; 253] }
    }
}

impl Message<'_> {
    fn new(parts: usize, parts_len: usize, control: usize, control_len: usize) -> Self {
        let (name, name_len, flags) = (0, 0, 0);
        Message { name, name_len, parts, parts_len, control, control_len, flags, _of: PhantomData }
    }
}

/// Sends a message with descriptors; none are at least allowed.
///
/// # Errors
/// As sendmsg(2); `EINVAL` for more than [`SCM_MAX_FD`].
pub fn send_with(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize> {
    let mut rights = Rights::new();
    rights.len = Rights::HEADER + size_of_val(fds);
    let room = rights.fds.get_mut(..fds.len()).ok_or(Errno::EINVAL)?;
    room.iter_mut().zip(fds).for_each(|(to, fd)| *to = fd.as_raw_fd());
    let len = if fds.is_empty() { 0 } else { rights.len.next_multiple_of(size_of::<usize>()) };
    let control = (&raw const rights).expose_provenance();
    let message = Message::new(parts.as_ptr().expose_provenance(), parts.len(), control, len);
    let at = (&raw const message).expose_provenance();
    // SAFETY: the kernel reads there.
    unsafe { kernel!(__NR_sendmsg, socket.as_fd().as_raw_fd(), at, flags.bits()) }
}

/// Receives a message: its bytes, and its descriptors.
///
/// # Errors
/// As recvmsg(2).
pub fn receive_with(
    socket: impl AsFd,
    parts: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>)> {
    let mut rights = Rights::new();
    (rights.len, rights.kind) = (0, 0);
    let control = (&raw mut rights).expose_provenance();
    let (at, n) = (parts.as_mut_ptr().expose_provenance(), parts.len());
    let mut message = Message::new(at, n, control, size_of::<Rights>());
    let at = (&raw mut message).expose_provenance();
    // SAFETY: the message, its parts and its control message are ours, and the kernel is told how
    // long they are.
    let n = unsafe { kernel!(__NR_recvmsg, socket.as_fd().as_raw_fd(), at, flags.bits()) }?;
    // SAFETY: written by the kernel, if at all.
    let rights = unsafe { (&raw const rights).read_volatile() };
    let whole = message.control_len >= Rights::HEADER && rights.kind == SCM_RIGHTS;
    let count = if whole { (rights.len - Rights::HEADER) / size_of::<i32>() } else { 0 };
    // SAFETY: the kernel has just made them for us.
    let fds = rights.fds[..count].iter().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((n, fds.collect()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::{io, pipe};

    #[test]
    fn descriptors_are_sent_over_a_pair() {
        let [a, b] = packet_socketpair(SocketFlags::NONBLOCK).unwrap();
        for count in [0, 1, 2, SCM_MAX_FD] {
            let (read, write) = pipe::pipe_with(Default::default()).unwrap();
            let fds = vec![write.as_fd(); count];
            let text = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
            assert_eq!(send_with(&a, &text, &fds, SendFlags::NOSIGNAL), Ok(3));
            for flags in [RecvFlags::PEEK, RecvFlags::empty()] {
                let mut bytes = [0; 8];
                let mut room = [IoSliceMut::new(&mut bytes)];
                let (n, fds) = receive_with(&b, &mut room, flags).unwrap();
                assert_eq!((&bytes[..n], fds.len()), (&b"abc"[..], count));
                for fd in fds {
                    io::write(fd, b"x").unwrap();
                    assert_eq!(io::read(&read, &mut [0; 2]), Ok(1));
                }
            }
            drop(write);
            assert_eq!(io::read(&read, &mut [0; 1]), Ok(0), "no copy is left open");
        }
        let many = vec![a.as_fd(); SCM_MAX_FD + 1];
        let refused = send_with(&a, &[IoSlice::new(b"a")], &many, SendFlags::NOSIGNAL);
        assert_eq!(refused, Err(Errno::EINVAL));
        let mut room = [];
        assert_eq!(receive_with(&b, &mut room, RecvFlags::DONTWAIT).err(), Some(Errno::EAGAIN));
    }

    #[test]
    fn a_name_has_at_most_107_bytes() {
        assert!(SocketAddrUnix::new_abstract_name(&[b'a'; 107]).is_ok());
        let long = SocketAddrUnix::new_abstract_name(&[b'a'; 108]);
        assert_eq!(long.err(), Some(Errno::ENAMETOOLONG));
    }
}
