//! System calls and memory that no safe library offers.
#![allow(unsafe_code)]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, AtomicU32};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{Check, Fault};
use crate::ring::Map;

/// Writes one value to memory that the caller has mapped, writable, for as long as it is used.
pub fn store<T: Copy>(at: usize, v: T) {
    // SAFETY: the mapping is the caller's; the other side reads entries of a buffer ring only after
    // the tail is stored.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(at).write_volatile(v) };
}

/// Returns a copy of `n` bytes of memory that the caller has mapped.
pub fn bytes(at: usize, n: usize) -> Vec<u8> {
    let mut out = vec![0; n];
    let from = std::ptr::with_exposed_provenance::<u8>(at);
    // SAFETY: the caller's mapping has that many bytes; the copy is fresh.
    unsafe { out.as_mut_ptr().copy_from_nonoverlapping(from, n) };
    out
}

/// Returns a half-word of a mapping.
pub fn word16(map: &Map, off: usize) -> &AtomicU16 {
    assert!(off + 2 <= map.len && off.is_multiple_of(2));
    let p = std::ptr::with_exposed_provenance_mut::<u16>(map.addr + off);
    // SAFETY: the assert checks bounds and alignment; the mapping lives for as long as the borrow.
    unsafe { AtomicU16::from_ptr(p) }
}

/// Returns a word of memory that the caller has mapped, for as long as it is used.
pub fn word32<'a>(at: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's mapping is aligned; both sides use atomics only.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

/// Borrows the descriptor, which the caller keeps open.
fn borrow<'a>(fd: RawFd) -> std::os::fd::BorrowedFd<'a> {
    // SAFETY: the caller owns the descriptor and closes it later.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}

/// Sets SO_LINGER of 0: closing the socket, which the caller owns, resets the connection.
pub fn reset_on_close(fd: RawFd) {
    let at_once = Some(std::time::Duration::ZERO);
    let _ = rustix::net::sockopt::set_socket_linger(borrow(fd), at_once);
}

/// Gives a socket, which the caller owns, small buffers, so that its peer is soon held up.
pub fn small_buffers(fd: RawFd) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(borrow(fd), 8192);
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(borrow(fd), 8192);
}

/// Makes connections of a listener send in small segments: if one segment is as large as the
/// buffers that [`small_buffers`] leaves, TCP waits for timers.
pub fn small_segments(listener: &impl std::os::fd::AsRawFd) {
    let size: libc::c_int = 1400;
    let (at, len) = (std::ptr::from_ref(&size).cast(), size_of_val(&size) as u32);
    // SAFETY: `at` points to a live int of that length.
    unsafe {
        libc::setsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, at, len);
    }
}

/// Creates a unix stream socket.
pub fn unix_socket() -> Check<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let made = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    made.map_err(|e| format!("a socket: {e}"))
}

/// Maps a page that forked children share.
pub fn new_page() -> Check<Map> {
    Map::anonymous(4096).map_err(|e| format!("no memory: errno {e}"))
}

static NAMES: AtomicU32 = AtomicU32::new(0);

/// Returns a name that is unique in this process's life.
pub fn new_name() -> String {
    let n = NAMES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("soak-{}-{n}", std::process::id())
}

/// Creates a listener under an abstract name, writes its `struct sockaddr_un` to `at`, and returns
/// the listener with the length of the name.
pub fn abstract_listener(at: usize, backlog: i32) -> Check<(OwnedFd, u64)> {
    let wrong = |e: rustix::io::Errno| -> Fault { format!("a listener: {e}") };
    let name = new_name().into_bytes();
    let sock = unix_socket()?;
    let to = SocketAddrUnix::new_abstract_name(&name).map_err(wrong)?;
    rustix::net::bind(&sock, &to).map_err(wrong)?;
    rustix::net::listen(&sock, backlog).map_err(wrong)?;
    store(at, libc::AF_UNIX as u16);
    store(at + 2, 0u8);
    name.iter().enumerate().for_each(|(i, b)| store(at + 3 + i, *b));
    Ok((sock, 3 + name.len() as u64))
}

/// Calls `connect(2)` to the name at `at`.
pub fn connect_to(fd: RawFd, at: usize, len: u64) {
    let to = std::ptr::with_exposed_provenance(at);
    // SAFETY: the caller's mapping holds the name.
    unsafe { libc::connect(fd, to, len as u32) };
}
