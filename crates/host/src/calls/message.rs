//! Messages, for sendmsg(2) and recvmsg(2).
#![allow(unsafe_code)]

use super::{Part, ReadPtr, UserPtr};
use crate::sys::sys;
use core::marker::PhantomData;
use softring_uapi::errno::{Result, check};
use softring_uapi::msghdr;

/// Message to send.
#[derive(Debug)]
pub struct Outgoing<'a> {
    hdr: msghdr,
    _of: PhantomData<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    /// Makes a message of these parts.
    #[inline]
    pub fn new(parts: &'a [Part]) -> Outgoing<'a> {
        Outgoing { hdr: header(parts), _of: PhantomData }
    }

    /// Sets the address; an empty one is none.
    #[inline]
    pub fn to(mut self, name: &'a [u8]) -> Outgoing<'a> {
        self.hdr.name = name.as_ptr().expose_provenance() as u64;
        self.hdr.namelen = name.len() as u32;
        self
    }

    /// Sets control data of the program's.
    #[inline]
    pub fn with_control(mut self, at: ReadPtr, len: u64) -> Outgoing<'a> {
        (self.hdr.control, self.hdr.controllen) = (at.0, len);
        self
    }

    /// Calls sendmsg(2).
    ///
    /// # Errors
    /// As the call.
    #[inline]
    pub fn send(self, fd: i32, flags: u32) -> Result<usize> {
        // SAFETY: the kernel reads at all of these addresses, those of ours are borrowed.
        check(unsafe { sys!(__NR_sendmsg, fd, (&raw const self.hdr).expose_provenance(), flags) })
    }
}

/// Room for a message to receive.
#[derive(Debug)]
pub struct Incoming<'a> {
    hdr: msghdr,
    _of: PhantomData<&'a mut [u8]>,
}

impl<'a> Incoming<'a> {
    /// Makes room in these parts of the program's memory.
    #[inline]
    pub fn new(parts: &'a [Part]) -> Incoming<'a> {
        Incoming { hdr: header(parts), _of: PhantomData }
    }

    /// Asks for the sender's address in memory of ours.
    #[inline]
    pub fn with_name(mut self, room: &'a mut [u8]) -> Incoming<'a> {
        self.hdr.name = room.as_mut_ptr().expose_provenance() as u64;
        self.hdr.namelen = room.len() as u32;
        self
    }

    /// Asks for the sender's address in the program's memory. Without an address, the kernel gets
    /// only `len`.
    #[inline]
    pub fn with_programs_name(mut self, at: UserPtr, len: u32) -> Incoming<'a> {
        (self.hdr.name, self.hdr.namelen) = (at.0, len);
        self
    }

    /// Asks for control data in memory of ours.
    #[inline]
    pub fn with_control(mut self, room: &'a mut [u64]) -> Incoming<'a> {
        self.hdr.control = room.as_mut_ptr().expose_provenance() as u64;
        self.hdr.controllen = size_of_val(room) as u64;
        self
    }

    /// Asks for control data in the program's memory.
    #[inline]
    pub fn with_programs_control(mut self, at: UserPtr, len: u64) -> Incoming<'a> {
        (self.hdr.control, self.hdr.controllen) = (at.0, len);
        self
    }

    /// Calls recvmsg(2); returns the length, and the header as the kernel has filled it in.
    ///
    /// # Errors
    /// As the call.
    #[inline]
    pub fn receive(mut self, fd: i32, flags: u32) -> Result<(usize, msghdr)> {
        let to = (&raw mut self.hdr).expose_provenance();
        // SAFETY: the header is ours; so is what it names, borrowed for writing, or else it is the
        // program's (`Part`, `UserPtr`).
        let n = check(unsafe { sys!(__NR_recvmsg, fd, to, flags) })?;
        Ok((n, self.hdr))
    }
}

#[inline]
fn header(parts: &[Part]) -> msghdr {
    msghdr {
        iov: parts.as_ptr().expose_provenance() as u64,
        iovlen: parts.len() as u64,
        ..msghdr::default()
    }
}
