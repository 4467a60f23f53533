//! Pages that processes hand over when they make them (`softring_engine::stats::hand`), so that
//! none is missed, however short its process lives.
#![allow(unsafe_code)]

use crate::sys;
use anyhow::Context;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recvmsg, socket_with,
};
use softring_engine::stats::clean::printable;
use softring_engine::stats::hand::{COMM, KEY, name};
use std::fs::File;
use std::io::{IoSliceMut, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Processes that may be about to be listened to, that is, have connected; the kernel's own limit,
/// where nobody has changed it.
const BACKLOG: i32 = 4096;
/// Those of them that may say nothing for long: a stranger does not take all our descriptors.
const SILENT: usize = 256;

/// A page, and whose it is.
#[derive(Debug)]
pub struct Handed {
    /// As this process knows it.
    pub pid: i32,
    pub command: String,
    pub file: File,
}

/// Where they come in.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    key: [u8; KEY],
    /// Who has connected, and said nothing yet.
    silent: Vec<OwnedFd>,
    /// Of those, how many there may be.
    most: usize,
    /// Gives its number to a page that comes: none is lost for want of one.
    spare: Option<OwnedFd>,
}

/// What waits.
#[derive(Debug)]
pub enum Come {
    Page(Handed),
    Nobody,
    /// Somebody may, for whom no descriptor is free.
    NoDescriptor,
}

impl Door {
    /// One with a key of its own: anybody on the machine can find the socket, only who was told
    /// the key is listened to.
    pub fn open() -> anyhow::Result<Door> {
        let mut random = [0u8; KEY / 2];
        File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut random))
            .context("cannot read /dev/urandom")?;
        let mut key = [0u8; KEY];
        for (pair, byte) in key.chunks_exact_mut(2).zip(random) {
            pair.copy_from_slice(format!("{byte:02x}").as_bytes());
        }
        let socket = Door::bound(&key).context("cannot make the socket that pages come to")?;
        let most = SILENT.min(sys::descriptors() / 4);
        Ok(Door { socket, key, silent: Vec::new(), most, spare: None })
    }

    fn bound(key: &[u8; KEY]) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(&name(key))?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// What the environment of the program is to say.
    pub fn key(&self) -> &str {
        std::str::from_utf8(&self.key).unwrap_or_default()
    }

    /// Where something can be read when a page may have come.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.socket).chain(&self.silent).map(AsFd::as_fd)
    }

    /// The next page that waits.
    pub fn next(&mut self) -> Come {
        loop {
            if self.spare.is_none() {
                self.spare = self.socket.try_clone().ok();
            }
            if self.spare.is_none() {
                return Come::NoDescriptor;
            }
            if let Some(handed) = self.heard() {
                return Come::Page(handed);
            }
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(who) => {
                    if self.silent.len() >= self.most {
                        self.silent.remove(0);
                    }
                    self.silent.push(who);
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return Come::Nobody,
                Err(_) => return Come::NoDescriptor,
            }
        }
    }

    /// The page of one that has connected and now says whose it is.
    fn heard(&mut self) -> Option<Handed> {
        let mut at = 0;
        while at < self.silent.len() {
            self.spare = None;
            let said = self.receive(&self.silent[at]);
            if matches!(said, Err(Errno::AGAIN | Errno::INTR)) {
                at += 1;
            } else {
                self.silent.remove(at);
            }
            self.spare = self.socket.try_clone().ok();
            // None: some stranger's.
            if let Ok(Some(handed)) = said {
                return Some(handed);
            }
        }
        None
    }

    /// What `who` has said; none if that is not from a process that was told the key.
    fn receive(&self, who: &OwnedFd) -> Result<Option<Handed>, Errno> {
        let mut text = [0u8; KEY + COMM];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(who, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let proves = got.bytes == text.len() && text[..KEY] == self.key;
        let Some(file) = file.filter(|_| proves).map(File::from) else { return Ok(None) };
        let command = printable(&text[KEY..]);
        let is_file = file.metadata().is_ok_and(|m| m.is_file());
        Ok(is_file.then(|| Handed { pid: process(who), command, file }))
    }
}

/// Who has connected; 0 if it is not to be seen from here.
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
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, connect, sendmsg};
    use std::io::IoSlice;

    fn visitor(door: &Door) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let visitor = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        connect(&visitor, &SocketAddrUnix::new_abstract_name(&name(&door.key)).unwrap()).unwrap();
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
    fn strangers_are_not_listened_to() {
        let mut door = Door::open().unwrap();
        let (page, key) = (tempfile::tempfile().unwrap(), door.key);
        say(&visitor(&door), b"x", None);
        say(&visitor(&door), &[b'0'; KEY + COMM], Some(page.as_fd()));
        say(&visitor(&door), &[&key[..], &[0; COMM]].concat(), None);
        drop(visitor(&door));
        assert!(matches!(door.next(), Come::Nobody));
        assert_eq!(door.fds().count(), 1, "all have gone");
    }

    #[test]
    fn who_says_nothing_is_waited_for_and_holds_up_nobody() {
        let mut door = Door::open().unwrap();
        let (page, key) = (tempfile::tempfile().unwrap(), door.key);
        let text = [&key[..], b"name", &[0; COMM - 4]].concat();
        let silent = visitor(&door);
        assert!(matches!(door.next(), Come::Nobody));
        say(&visitor(&door), &text, Some(page.as_fd()));
        let Come::Page(handed) = door.next() else { panic!("no page") };
        assert_eq!((handed.command.as_str(), handed.pid), ("name", std::process::id() as i32));
        assert!(matches!(door.next(), Come::Nobody));
        say(&silent, &text, Some(page.as_fd()));
        assert!(matches!(door.next(), Come::Page(_)));
        let crowd: Vec<OwnedFd> = (0..door.most + 2).map(|_| visitor(&door)).collect();
        assert!(matches!(door.next(), Come::Nobody));
        assert_eq!(door.fds().count(), 1 + door.most);
        drop(crowd);
    }
}
