//! Files that processes keep for viewers and send when they make them
//! (`softring_engine::stats::watcher`), so that none is missed, however short its process lives.
#![allow(unsafe_code)]

use crate::sys;
use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recvmsg, send, socket_with,
};
use softring_engine::stats::clean::printable;
use softring_engine::stats::watcher::{COMM, FIND, KEY, WHY, Watcher};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Most processes that may have connected and wait to be accepted: the kernel's own limit, unless
/// somebody has changed it.
const BACKLOG: i32 = 4096;
/// Most connections that may say nothing for long: a stranger does not take all our descriptors.
const SILENT: usize = 256;

/// A file, and the process that sent it.
#[derive(Debug)]
pub struct Received {
    /// Number of the process, as this process knows it; 0 if it cannot be seen from here.
    pub pid: i32,
    pub command: String,
    /// The file, or why the process could not make it.
    pub file: io::Result<File>,
    sender: OwnedFd,
}

impl Received {
    /// Returns whether there is a file that `/proc` shows, and that the process may send to nobody
    /// whom it does not know.
    pub fn is_to_be_found(&self) -> bool {
        self.file.as_ref().is_err_and(|e| e.raw_os_error() == Some(FIND))
    }

    /// Tells a sender that waits that its file is being read; returns false if the sender waits no
    /// more.
    pub fn answer(&self) -> bool {
        send(&self.sender, b".", SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }
}

/// The socket that processes connect to.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    key: [u8; KEY],
    /// Processes that have connected, and said nothing yet.
    silent: Vec<OwnedFd>,
    /// Most silent processes that there may be.
    most: usize,
    /// Processes that have connected and were disconnected before they said anything, for want of
    /// room.
    turned_away: Vec<i32>,
    /// Descriptor that gives up its number for a file that comes: none is lost for want of one.
    spare: Option<OwnedFd>,
}

/// Result of [`Listener::next`].
#[derive(Debug)]
pub enum Next {
    File(Received),
    Nobody,
    /// A process may be waiting for whom no descriptor is free.
    NoDescriptor,
}

impl Listener {
    /// Opens a socket with a key of its own. Anybody on the machine can find the socket; only a
    /// process that was told the key is listened to.
    pub fn open(watcher: Watcher) -> anyhow::Result<Listener> {
        let mut random = [0u8; KEY / 2];
        File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut random))
            .context("cannot read /dev/urandom")?;
        let mut key = [0u8; KEY];
        for (pair, byte) in key.chunks_exact_mut(2).zip(random) {
            pair.copy_from_slice(format!("{byte:02x}").as_bytes());
        }
        let socket = Listener::bound(&watcher.name(&key))
            .context("cannot make the socket that processes connect to")?;
        let most = SILENT.min(sys::descriptors() / 4);
        let (silent, turned_away) = (Vec::new(), Vec::new());
        Ok(Listener { socket, key, silent, most, turned_away, spare: None })
    }

    fn bound(name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Returns the key, for the environment of the program.
    pub fn key(&self) -> &str {
        std::str::from_utf8(&self.key).unwrap_or_default()
    }

    /// Returns the descriptors that become readable when a file may have come.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.socket).chain(&self.silent).map(AsFd::as_fd)
    }

    /// Returns the processes that were disconnected since the last call before they said anything:
    /// strangers, or processes that were about to send their files.
    pub fn turned_away(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.turned_away)
    }

    /// Returns the next file that waits.
    pub fn next(&mut self) -> Next {
        loop {
            if self.spare.is_none() {
                self.spare = self.socket.try_clone().ok();
            }
            if self.spare.is_none() {
                return Next::NoDescriptor;
            }
            if let Some(received) = self.received() {
                return Next::File(received);
            }
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(who) => {
                    if self.silent.len() >= self.most {
                        let longest = self.silent.remove(0);
                        self.turned_away.push(process(&longest));
                    }
                    self.silent.push(who);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Next::Nobody,
                Err(_) => return Next::NoDescriptor,
            }
        }
    }

    /// Returns the next file that a silent process sends.
    fn received(&mut self) -> Option<Received> {
        let mut at = 0;
        while at < self.silent.len() {
            self.spare = None;
            let said = self.receive(&self.silent[at]);
            let sender = if matches!(said, Err(Errno::AGAIN | Errno::INTR)) {
                at += 1;
                None
            } else {
                Some(self.silent.remove(at))
            };
            self.spare = self.socket.try_clone().ok();
            // A message of None came from a stranger.
            if let (Ok(Some((command, file))), Some(sender)) = (said, sender) {
                return Some(Received { pid: process(&sender), command, file, sender });
            }
        }
        None
    }

    /// Reads the message of `who`; None if it is not from a process that was told the key.
    fn receive(&self, who: &OwnedFd) -> Result<Option<(String, io::Result<File>)>, Errno> {
        const SAID: usize = KEY + COMM + WHY;
        let mut text = [0u8; SAID];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(who, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next().map(File::from),
            _ => None,
        });
        if got.bytes != SAID || text[..KEY] != self.key {
            return Ok(None);
        }
        let command = printable(&text[KEY..KEY + COMM]);
        let why = text[KEY + COMM..].try_into().map_or(0, i32::from_ne_bytes);
        let file = match file {
            Some(file) if file.metadata().is_ok_and(|m| m.is_file()) => Ok(file),
            None if why > 0 => Err(io::Error::from_raw_os_error(why)),
            _ => return Ok(None),
        };
        Ok(Some((command, file)))
    }
}

/// Returns the process that has connected; 0 if it cannot be seen from here.
fn process(who: &OwnedFd) -> i32 {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `size` bytes, which is what there is of `peer`.
    unsafe {
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let to = (&raw mut peer).cast();
        libc::getsockopt(who.as_raw_fd(), level, option, to, &raw mut size);
    }
    peer.pid
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, connect, recv, sendmsg};
    use std::io::IoSlice;

    fn visitor(listener: &Listener) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let visitor = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        connect(
            &visitor,
            &SocketAddrUnix::new_abstract_name(&Watcher::Stat.name(&listener.key)).unwrap(),
        )
        .unwrap();
        visitor
    }

    fn say(who: &OwnedFd, text: &[u8], page: Option<BorrowedFd<'_>>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(page) = &page {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(page)));
        }
        sendmsg(who, &[IoSlice::new(text)], &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn messages_of_strangers_are_ignored() {
        let mut listener = Listener::open(Watcher::Stat).unwrap();
        let (page, key) = (tempfile::tempfile().unwrap(), listener.key);
        say(&visitor(&listener), b"x", None);
        say(&visitor(&listener), &[b'0'; KEY + COMM + WHY], Some(page.as_fd()));
        say(&visitor(&listener), &[&key[..], &[0; COMM + WHY]].concat(), None);
        drop(visitor(&listener));
        assert!(matches!(listener.next(), Next::Nobody));
        assert_eq!(listener.fds().count(), 1, "all have gone");
    }

    #[test]
    fn silent_clients_delay_no_other_client() {
        let mut listener = Listener::open(Watcher::Stat).unwrap();
        let (page, key) = (tempfile::tempfile().unwrap(), listener.key);
        let text = [&key[..], b"name", &[0; COMM - 4 + WHY]].concat();
        let silent = visitor(&listener);
        assert!(matches!(listener.next(), Next::Nobody));
        say(&visitor(&listener), &text, Some(page.as_fd()));
        let Next::File(received) = listener.next() else { panic!("no page") };
        assert_eq!((received.command.as_str(), received.pid), ("name", std::process::id() as i32));
        assert!(received.file.is_ok());
        assert!(matches!(listener.next(), Next::Nobody));
        say(&silent, &text, Some(page.as_fd()));
        assert!(matches!(listener.next(), Next::File(_)));
        let crowd: Vec<OwnedFd> = (0..listener.most + 2).map(|_| visitor(&listener)).collect();
        assert!(matches!(listener.next(), Next::Nobody));
        assert_eq!(listener.fds().count(), 1 + listener.most);
        drop(crowd);
    }

    #[test]
    fn clients_without_a_file_give_a_reason() {
        let mut listener = Listener::open(Watcher::Stat).unwrap();
        let who = visitor(&listener);
        let text = [&listener.key[..], &[0; COMM], &27i32.to_ne_bytes()].concat();
        say(&who, &text, None);
        let Next::File(received) = listener.next() else { panic!("nobody") };
        let why = received.file.as_ref().err().and_then(io::Error::raw_os_error);
        assert_eq!(why, Some(27));
        assert!(received.answer());
        let (_, n) = recv(&who, &mut [0u8; 8], RecvFlags::DONTWAIT).unwrap();
        assert_eq!(n, 1);
        drop(who);
        assert!(!received.answer(), "it has gone");
    }
}
