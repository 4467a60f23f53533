//! Messages, for sendmsg(2) and recvmsg(2).
#![allow(unsafe_code)]

use super::{ReadPtr, UserPtr};
use crate::sys::sys;
use core::marker::PhantomData;
use softring_uapi::errno::{Result, check};
use softring_uapi::{iovec, msghdr};

/// A message to send.
#[derive(Debug)]
pub struct Outgoing<'a> {
    hdr: msghdr,
    _of: PhantomData<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    /// A message of these parts.
    #[inline]
    pub fn new(parts: &'a [iovec]) -> Outgoing<'a> {
        Outgoing { hdr: header(parts), _of: PhantomData }
    }

    /// To this address; one of no bytes is none.
    #[inline]
    pub fn to(mut self, name: &'a [u8]) -> Outgoing<'a> {
        self.hdr.name = name.as_ptr().expose_provenance() as u64;
        self.hdr.namelen = name.len() as u32;
        self
    }

    /// With control data of the program's.
    #[inline]
    pub fn with_control(mut self, at: ReadPtr, len: u64) -> Outgoing<'a> {
        (self.hdr.control, self.hdr.controllen) = (at.0, len);
        self
    }

    /// sendmsg(2).
    ///
    /// # Errors
    /// As the call.
    #[inline]
    pub fn send(self, fd: i32, flags: u32) -> Result<usize> {
        // SAFETY: the kernel reads at all of these addresses, those of ours are borrowed.
        check(unsafe { sys!(__NR_sendmsg, fd, (&raw const self.hdr).expose_provenance(), flags) })
    }
}

/// Room for a message.
#[derive(Debug)]
pub struct Incoming<'a> {
    hdr: msghdr,
    _of: PhantomData<&'a mut [u8]>,
}

impl<'a> Incoming<'a> {
    /// Into these parts of the program's memory.
    #[inline]
    pub fn new(parts: &'a [iovec]) -> Incoming<'a> {
        Incoming { hdr: header(parts), _of: PhantomData }
    }

    /// The sender's address goes to memory of ours.
    #[inline]
    pub fn with_name(mut self, room: &'a mut [u8]) -> Incoming<'a> {
        self.hdr.name = room.as_mut_ptr().expose_provenance() as u64;
        self.hdr.namelen = room.len() as u32;
        self
    }

    /// The sender's address goes to the program's memory. Without an address, `len` alone is told.
    #[inline]
    pub fn with_programs_name(mut self, at: UserPtr, len: u32) -> Incoming<'a> {
        (self.hdr.name, self.hdr.namelen) = (at.0, len);
        self
    }

    /// Control data go to memory of ours.
    #[inline]
    pub fn with_control(mut self, room: &'a mut [u64]) -> Incoming<'a> {
        self.hdr.control = room.as_mut_ptr().expose_provenance() as u64;
        self.hdr.controllen = size_of_val(room) as u64;
        self
    }

    /// Control data go to the program's memory.
    #[inline]
    pub fn with_programs_control(mut self, at: UserPtr, len: u64) -> Incoming<'a> {
        (self.hdr.control, self.hdr.controllen) = (at.0, len);
        self
    }

    /// recvmsg(2); answers the length, and the header with what the kernel has told there.
    ///
    /// # Errors
    /// As the call.
    #[inline]
    pub fn receive(mut self, fd: i32, flags: u32) -> Result<(usize, msghdr)> {
        let to = (&raw mut self.hdr).expose_provenance();
        // SAFETY: the header is ours; so is what it names, borrowed for writing, or else it is the
        // program's.
        let n = check(unsafe { sys!(__NR_recvmsg, fd, to, flags) })?;
        Ok((n, self.hdr))
    }
}

#[inline]
fn header(parts: &[iovec]) -> msghdr {
    msghdr {
        iov: parts.as_ptr().expose_provenance() as u64,
        iovlen: parts.len() as u64,
        ..msghdr::default()
    }
}
