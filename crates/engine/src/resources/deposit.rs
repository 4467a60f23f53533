//! Registered files of a process that forks. On the kernel the ring owns them, and parent and child
//! share the ring. Here the child would have copies of our duplicates: they would keep a pipe's
//! reader from seeing the end, and a port from being bound again, though the parent has
//! unregistered and closed both.
//!
//! So a child closes its copies at once. Before the fork the parent sends its registered files to
//! itself over a socket pair, and leaves them there. The files are then in no descriptor table, and
//! the pair holds them, as the ring does on the kernel, until the parent receives them, or until
//! all have closed the pair. A child that uses the ring peeks at the message (`MSG_PEEK`): that
//! gives it descriptors and leaves the message for its siblings, even after its parent has ended.
//! When the parent empties a slot, the file is removed from its message.
//!
//! A message holds 253 files. Files that cannot be sent (`RLIMIT_NOFILE` bounds a user's files in
//! flight, see unix(7)) remain open in the child.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::Relaxed;
use softring_host::os::io::{IoSlice, IoSliceMut};

use softring_host::os::fd::{AsRawFd, BorrowedFd};
use softring_host::os::net::{
    RecvFlags, SCM_MAX_FD as MOST, SendFlags, SocketFlags, packet_socketpair, receive_with,
    send_with,
};

use super::files::{FileNode, FileTable};
use softring_host::fd::{InternalFd, make_internal_opened};
use softring_uapi::errno::Result;

/// Message with some files of a table, sent from this process to itself.
#[derive(Debug)]
pub(crate) struct Deposit {
    from: InternalFd,
    to: InternalFd,
    /// Slots of the files.
    slots: Vec<u32>,
}

impl Deposit {
    fn new(slots: Vec<u32>, files: &[Option<Rc<FileNode>>]) -> Result<Deposit> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let [from, to] = packet_socketpair(flags)?.map(softring_host::fd::make_internal);
        let deposit = Deposit { from, to, slots };
        deposit.send(files).map(|()| deposit)
    }

    fn send(&self, files: &[Option<Rc<FileNode>>]) -> Result<()> {
        let nodes = self.slots.iter().filter_map(|&s| files.get(s as usize)?.as_ref());
        let fds: Vec<BorrowedFd<'_>> = nodes.map(|node| node.as_fd()).collect();
        let slots: Vec<u8> = self.slots.iter().flat_map(|s| s.to_ne_bytes()).collect();
        send_with(&self.to, &[IoSlice::new(&slots)], &fds, SendFlags::NOSIGNAL).map(drop)
    }

    /// Receives one message, and drops its files.
    fn take_out(&self) {
        softring_host::calls::sockets::drop_message(self.from.as_raw_fd());
    }

    /// Returns the files, with their slots, and leaves the message.
    fn peek(&self) -> Vec<(u32, InternalFd)> {
        let mut slots = [0u8; MOST * 4];
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut room = [IoSliceMut::new(&mut slots)];
        let Ok((n, fds)) = receive_with(&self.from, &mut room, flags) else { return Vec::new() };
        let words = slots[..n].chunks_exact(4);
        let slots = words.map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        slots.zip(fds.into_iter().map(make_internal_opened)).collect()
    }
}

impl FileTable {
    /// Returns whether a fork has to call [`Self::deposit`] first.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh && !self.away
    }

    pub(crate) fn is_deposited(&self) -> bool {
        !self.deposits.is_empty() && !self.away
    }

    /// Deposits the files before a fork, for children. Called under the ring's lock.
    pub(crate) fn deposit(&mut self) {
        if !core::mem::take(&mut self.fresh) || self.away {
            return;
        }
        let mine = |node: &Rc<FileNode>| !node.deposited.load(Relaxed);
        let slots = (0..).zip(&self.slots).filter(|(_, n)| n.as_ref().is_some_and(mine));
        let slots: Vec<u32> = slots.map(|(slot, _)| slot).collect();
        for some in slots.chunks(MOST) {
            let Ok(deposit) = Deposit::new(some.to_vec(), &self.slots) else {
                self.fresh = true;
                return;
            };
            self.mark(some);
            self.deposits.push(deposit);
        }
    }

    fn mark(&self, slots: &[u32]) {
        for node in slots.iter().filter_map(|&slot| self.peek(slot)) {
            node.deposited.store(true, Relaxed);
        }
    }

    /// Removes the deposited file of an emptied slot: sends its message again without it. The new
    /// message is sent first, so that a child that peeks finds one.
    pub(super) fn withdraw(&mut self, slot: u32) {
        let Some(at) = self.deposits.iter().position(|d| d.slots.contains(&slot)) else { return };
        let deposit = &mut self.deposits[at];
        deposit.slots.retain(|&s| s != slot);
        let none = deposit.slots.is_empty() || deposit.send(&self.slots).is_err();
        deposit.take_out();
        if none {
            self.deposits.swap_remove(at);
        }
        softring_host::fd::wait_for_closes();
    }

    /// Withdraws all deposits because the table is given up. (Where the ring ends, children may
    /// still have the table and its files.)
    pub(super) fn withdraw_all(&mut self) {
        if !self.deposits.is_empty() {
            self.deposits.drain(..).for_each(|deposit| deposit.take_out());
            softring_host::fd::wait_for_closes();
        }
    }

    /// Closes the deposited files in a forked child, until the child uses the ring.
    pub(crate) fn fork_child(&mut self) {
        if !self.deposits.is_empty() && !self.away {
            self.close_deposited();
        }
    }

    /// Gets the files back when a child first uses the ring, except for those that the parent has
    /// given up.
    #[inline]
    pub(crate) fn fetch_if_away(&mut self) {
        if self.away {
            self.fetch();
        }
    }

    #[cold]
    fn fetch(&mut self) {
        self.away = false;
        let mut found: Vec<_> = self.deposits.drain(..).flat_map(|d| d.peek()).collect();
        for (slot, place) in (0..).zip(&mut self.slots) {
            let Some(old) = place.take_if(|node| node.deposited.load(Relaxed)) else { continue };
            // The number of its descriptor means another file by now.
            let old = ManuallyDrop::new(old);
            let at = found.iter().position(|(s, _)| *s == slot);
            let fd = at.map(|at| found.swap_remove(at).1);
            *place = fd.map(|fd| old.again(fd));
            self.used -= usize::from(place.is_none());
        }
        self.fresh = true;
    }

    /// Drops the table, because the ring ends.
    pub(crate) fn end(mut self) {
        if self.away {
            let closed = |node: &Rc<FileNode>| node.deposited.load(Relaxed);
            let gone = self.slots.iter_mut().filter_map(|place| place.take_if(|n| closed(n)));
            gone.map(ManuallyDrop::new).for_each(drop);
        }
    }
}
