//! A page handed to whoever started the program in order to count (`softring stat -- CMD`): looking
//! through `/proc` now and then would miss what ends in between.
//!
//! The watcher has a socket with an abstract name, and sends the key to it down by the environment.
//! Each process, when it makes its page, connects and sends the page's descriptor (SCM_RIGHTS), and
//! from then on the watcher can read it whatever becomes of the process. Nothing has a name in any
//! file system, so nothing is left behind, whoever dies.
//!
//! Anybody may take the name once the watcher has gone, so a process looks whom it has reached
//! (SO_PEERCRED), and sends to its own user or root only.
//!
//! Where the socket cannot be reached (another network namespace, a sandbox) nothing is said: the
//! page can still be found through `/proc`.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io::IoSlice;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use rustix::process::{geteuid, getuid};

use crate::errno::{Errno, Result};
use crate::sys::{self, EngineFd};

/// Bytes of a key: the first half names the socket, all of it proves that one was asked to send.
pub const KEY: usize = 32;
/// Behind the key in each message: the process's name.
pub const COMM: usize = 16;
/// What stands before the key's first half in the socket's name.
const PREFIX: &[u8] = b"softring-stat-";
/// A watcher that has stopped must not stop the program for longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long one waits before one tries again.
const NAP: Duration = Duration::from_millis(1);

static WATCHER: OnceLock<[u8; KEY]> = OnceLock::new();

/// The pages of this process, and of its children, go to who has made this key; false if it is
/// none.
pub fn hand_to(key: &[u8]) -> bool {
    let fits = key.iter().all(u8::is_ascii_hexdigit).then(|| key.try_into().ok()).flatten();
    fits.is_some_and(|key| WATCHER.set(key).is_ok())
}

/// The abstract name of the socket of who has made `key`.
pub fn name(key: &[u8; KEY]) -> Vec<u8> {
    [PREFIX, &key[..KEY / 2]].concat()
}

/// Sends a page to the watcher, if there is one.
pub(super) fn hand(page: BorrowedFd<'_>) {
    if let Some(key) = WATCHER.get() {
        let _ = send(page, key);
    }
}

fn send(page: BorrowedFd<'_>, key: &[u8; KEY]) -> Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let socket = EngineFd::from(socket);
    let socket = socket.as_fd();
    reach(socket, &SocketAddrUnix::new_abstract_name(&name(key))?)?;
    if !is_ours(socket) {
        return Err(Errno::EPERM);
    }
    let (comm, pages) = (sys::process_name(), [page]);
    let parts = [IoSlice::new(key), IoSlice::new(&comm)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&pages));
    // The first message of a connection finds room.
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Connects. Tries again and again, and never blocks: a call that does would begin its time anew
/// after each signal.
fn reach(socket: BorrowedFd<'_>, to: &SocketAddrUnix) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match connect(socket, to) {
            Err(rustix::io::Errno::AGAIN) if Instant::now() < end => _ = sys::sleep(NAP),
            done => return done.map_err(Errno::from),
        }
    }
}

/// Is the other end this process's user's, or root's? Not rustix's `socket_peercred`: its type has
/// no word for a process of another pid namespace.
fn is_ours(socket: BorrowedFd<'_>) -> bool {
    const SOL_SOCKET: u32 = 1;
    const SO_PEERCRED: u32 = 17;
    let told = sys::socket_option(socket.as_raw_fd(), SOL_SOCKET, SO_PEERCRED);
    told.is_ok_and(|[_pid, uid, _gid]: [u32; 3]| {
        uid == 0 || uid == getuid().as_raw() && uid == geteuid().as_raw()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::fd::OwnedFd;
    use rustix::net::{RecvFlags, accept, bind, listen, recv};
    use rustix::thread::set_thread_res_uid;

    fn page() -> OwnedFd {
        rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    fn socket() -> OwnedFd {
        let flags = SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// A watcher with room for one who has connected.
    fn watcher(key: &[u8; KEY]) -> OwnedFd {
        let watcher = socket();
        bind(&watcher, &SocketAddrUnix::new_abstract_name(&name(key)).unwrap()).unwrap();
        listen(&watcher, 0).unwrap();
        watcher
    }

    #[test]
    fn who_has_stopped_holds_nobody_up_for_long() {
        let key = b"0123456789abcdef0123456789abcdef";
        let watcher = watcher(key);
        assert_eq!(send(page().as_fd(), key), Ok(()));
        let start = Instant::now();
        assert_eq!(send(page().as_fd(), key), Err(Errno::EAGAIN));
        let took = start.elapsed();
        assert!(PATIENCE <= took && took < 3 * PATIENCE, "{took:?}");
        let mut message = [0u8; 2 * KEY];
        let who = accept(&watcher).unwrap();
        let (_, n) = recv(&who, &mut message, RecvFlags::empty()).unwrap();
        assert_eq!((&message[..KEY], n), (&key[..], KEY + COMM));
    }

    #[test]
    fn a_stranger_with_the_name_gets_nothing() {
        let key = b"1123456789abcdef0123456789abcdef";
        let squat = || {
            let nobody = rustix::process::Uid::from_raw(65534);
            // This thread alone is another user's from now on.
            set_thread_res_uid(nobody, nobody, nobody).is_ok().then(|| watcher(key))
        };
        let Some(stranger) = std::thread::spawn(squat).join().unwrap() else {
            println!("skipped: only root can be another user");
            return;
        };
        assert_eq!(send(page().as_fd(), key), Err(Errno::EPERM));
        let who = accept(&stranger).unwrap();
        let (_, n) = recv(&who, &mut [0u8; 1], RecvFlags::empty()).unwrap();
        assert_eq!(n, 0, "closed, with nothing said");
    }
}
