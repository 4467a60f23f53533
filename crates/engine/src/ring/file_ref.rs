//! The file of a request, and how the request holds it. Kernel counterpart: `req->file` in
//! `struct io_kiocb`, `io_assign_file`.

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::mem::ManuallyDrop;

use softring_host::os::fd::AsRawFd;

use crate::resources::files::FileNode;
use softring_host::fd::InternalFd;
use softring_host::fd::dup_cache::{self, CachedDup};
use softring_host::fd::history::History;
use softring_host::fd::kind::Kind;
use softring_uapi::errno::{Errno, Result};

/// The file that a request works on.
#[derive(Debug, Default)]
pub(crate) enum FileRef {
    /// The row needs no file, or it has not been assigned yet.
    #[default]
    None,
    /// The program's own number, valid only while the submitter is inside `enter`.
    Plain(i32),
    /// A duplicate taken because the request outlives `enter`: the program may close its number and
    /// reuse it.
    Owned(InternalFd, Kind),
    /// An internal duplicate that others use as well: a registered file's, or a modelled file's
    /// second description.
    Shared(Arc<InternalFd>, Kind),
    /// The duplicate that requests on the same number share.
    CachedDup(CachedDup, Kind),
    /// A slot of the registered table.
    Fixed(Rc<FileNode>),
    /// A slot of the registered table, with a duplicate for registration in the poll set.
    FixedDup(Rc<FileNode>, InternalFd),
    /// A number in the list that replaces epoll in tests, with no file behind it.
    #[cfg(all(test, not(loom)))]
    Token(i32),
}

/// Returns true; does not compile for a value that must stay with its thread, or under its lock.
pub(crate) const fn is_send<T: Send>(_: &T) -> bool {
    true
}

/// Returns the kind of a request's file.
pub(crate) fn kind_of(file: &FileRef) -> Kind {
    match file {
        FileRef::Fixed(node) | FileRef::FixedDup(node, _) => node.kind,
        FileRef::Plain(fd) => crate::io::kinds::kind(*fd),
        FileRef::Owned(_, kind) | FileRef::Shared(_, kind) | FileRef::CachedDup(_, kind) => *kind,
        FileRef::None => Kind::Unknown,
        #[cfg(all(test, not(loom)))]
        FileRef::Token(_) => Kind::Pollable,
    }
}

impl FileRef {
    /// Returns the number for system calls; -1 (hence EBADF) if there is no file.
    pub(crate) fn fd(&self) -> i32 {
        match self {
            FileRef::None => -1,
            FileRef::Plain(fd) => *fd,
            FileRef::Owned(fd, _) => fd.as_raw_fd(),
            FileRef::Shared(fd, _) => fd.as_raw_fd(),
            FileRef::CachedDup(fd, _) => fd.as_raw_fd(),
            FileRef::Fixed(node) | FileRef::FixedDup(node, _) => node.fd(),
            // To poll(2), -1 is a file where nothing is ready.
            #[cfg(all(test, not(loom)))]
            FileRef::Token(_) => -1,
        }
    }

    /// Takes a duplicate of a plain descriptor so that the request may outlive `enter`: the cached
    /// duplicate of that number, or else a new one, which is then cached.
    ///
    /// If no descriptor is free, the plain number stays, which is right as long as the program
    /// keeps it open.
    ///
    /// # Errors
    /// `EBADF` if the number is not open.
    pub(crate) fn hold(&mut self) -> Result<()> {
        let FileRef::Plain(fd) = *self else { return Ok(()) };
        if let Some((dup, kind)) = dup_cache::find(fd) {
            *self = FileRef::CachedDup(dup, kind);
            return Ok(());
        }
        self.hold_own()?;
        if let FileRef::Owned(dup, kind) = core::mem::replace(self, FileRef::Plain(fd)) {
            *self = match dup_cache::keep(fd, dup, kind) {
                Ok(dup) => FileRef::CachedDup(dup, kind),
                Err(dup) => FileRef::Owned(dup, kind),
            };
        }
        Ok(())
    }

    /// Takes a duplicate that no other request uses; see [`Self::hold`].
    ///
    /// # Errors
    /// Same as [`Self::hold`].
    pub(crate) fn hold_own(&mut self) -> Result<()> {
        self.hold_as(crate::io::kinds::kind)
    }

    fn hold_as(&mut self, kind: impl FnOnce(i32) -> Kind) -> Result<()> {
        if let FileRef::Plain(fd) = *self {
            match softring_host::fd::dup_internal(fd) {
                Ok(dup) => *self = FileRef::Owned(dup, kind(fd)),
                Err(Errno::EMFILE) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Takes a duplicate of its own, under which the request may be registered. Its kind is assumed
    /// to be pollable; if the poll set refuses it, [`Self::probe_again`] finds out the kind.
    ///
    /// # Errors
    /// `EBADF` if the number is not open.
    pub(crate) fn hold_for_poll(&mut self) -> Result<()> {
        let shared = match self {
            FileRef::Shared(fd, kind) => Some((fd.as_raw_fd(), *kind)),
            FileRef::CachedDup(fd, kind) => Some((fd.as_raw_fd(), *kind)),
            _ => None,
        };
        if let Some((fd, kind)) = shared {
            *self = FileRef::Owned(softring_host::fd::dup_internal(fd)?, kind);
        }
        if let FileRef::Fixed(node) = self {
            let dup = softring_host::fd::dup_internal(node.fd())?;
            *self = FileRef::FixedDup(node.clone(), dup);
        }
        self.hold_as(|_| Kind::Pollable)
    }

    /// Returns the file for a worker, which runs without the ring's lock: a registered file's
    /// descriptor, while its node stays here; any other file moves as it is.
    pub(super) fn detach(&mut self) -> FileRef {
        match self {
            FileRef::Fixed(node) | FileRef::FixedDup(node, _) => {
                FileRef::Shared(node.share(), node.kind)
            }
            other => core::mem::take(other),
        }
    }

    /// Returns whether it may leave the uring lock: it is no node of a registered file, whose count
    /// is not atomic.
    pub(super) fn may_leave(&self) -> bool {
        match self {
            FileRef::Fixed(_) | FileRef::FixedDup(..) => false,
            FileRef::None => true,
            FileRef::Plain(fd) => is_send(fd),
            FileRef::Owned(fd, kind) => is_send(fd) && is_send(kind),
            FileRef::Shared(fd, kind) => is_send(fd) && is_send(kind),
            FileRef::CachedDup(fd, kind) => is_send(fd) && is_send(kind),
            #[cfg(all(test, not(loom)))]
            FileRef::Token(fd) => is_send(fd),
        }
    }

    pub(super) fn is_node(&self) -> bool {
        !self.may_leave()
    }

    /// Restores the node that stayed here.
    pub(super) fn restore(&mut self, stayed: FileRef) {
        if stayed.is_node() {
            *self = stayed;
        }
    }

    /// Finds out the kind of a file that epoll refused.
    pub(crate) fn probe_again(&mut self) {
        if let FileRef::Owned(fd, kind) = self {
            *kind = Kind::of(fd.as_raw_fd());
        }
    }

    /// Returns whether the file was opened with O_PATH by a request that registered it. Under the
    /// program's own numbers the kernel finds no such file.
    pub(crate) fn is_path(&self) -> bool {
        let registered = self.is_node() || matches!(self, FileRef::Shared(..));
        registered && softring_host::fd::is_path_only(self.fd())
    }

    /// Returns whether `fd` is the request's own descriptor, which closes with the request.
    pub(crate) fn owns(&self, fd: i32) -> bool {
        match self {
            FileRef::Owned(own, _) | FileRef::FixedDup(_, own) => own.as_raw_fd() == fd,
            #[cfg(all(test, not(loom)))]
            FileRef::Token(own) => *own == fd,
            _ => false,
        }
    }

    /// Drops the file of an ended request.
    #[inline]
    pub(super) fn clear(&mut self) {
        match self {
            // There is nothing to drop, as in [`OpState::clear`].
            FileRef::None | FileRef::Plain(_) => {
                let _nothing = ManuallyDrop::new(core::mem::take(self));
            }
            _ => *self = FileRef::None,
        }
    }

    /// Returns the number to register in the poll set, if no other will do.
    pub(crate) fn poll_fd(&self) -> i32 {
        match self {
            FileRef::FixedDup(_, dup) => dup.as_raw_fd(),
            #[cfg(all(test, not(loom)))]
            FileRef::Token(own) => *own,
            other => other.fd(),
        }
    }

    /// Makes the substitute of a ring of ours, which is a file in memory and knows how to splice.
    /// An eventfd knows as little of splicing, and of offsets, as the kernel's rings do.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn instead_of_ring() -> Result<FileRef> {
        let file = softring_host::fd::make_internal(softring_host::substitute::eventfd()?);
        Ok(FileRef::Owned(file, Kind::Pollable))
    }

    /// Returns the read history of the file.
    pub(crate) fn history(&self) -> Option<&History> {
        match self {
            FileRef::Plain(fd) => crate::io::kinds::history(*fd),
            FileRef::Fixed(node) => Some(&node.history),
            _ => None,
        }
    }
}
