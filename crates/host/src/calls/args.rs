//! Arguments of system calls.
#![allow(unsafe_code)]

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::Deref;

use crate::user::{self, ReadPtr, UserPtr};
use softring_uapi::errno::Result;
use softring_uapi::iovec;

/// Part of a vector: memory of the program's, of which [`UserPtr`] says what it says of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Part(iovec);

impl Part {
    /// Makes a part of what the program has offered at an address.
    #[inline(always)]
    pub const fn new(base: UserPtr, len: u64) -> Part {
        Part(iovec { base: base.addr(), len })
    }

    /// Wraps a part that the program's vector names.
    ///
    /// # Safety
    /// Its base is an address for [`UserPtr::of_program`].
    #[inline(always)]
    pub const unsafe fn of_program(part: iovec) -> Part {
        Part(part)
    }

    /// Returns the address of the first byte.
    #[inline(always)]
    pub const fn base(self) -> UserPtr {
        UserPtr(self.0.base)
    }

    /// Returns the part without its first `bytes`, or without any if it is not longer.
    #[inline(always)]
    #[must_use]
    pub fn skip(self, bytes: u64) -> Part {
        let bytes = bytes.min(self.0.len);
        Part::new(self.base().add(bytes), self.0.len - bytes)
    }

    /// Returns the first `bytes` of the part, or all if it is not longer.
    #[must_use]
    pub fn first(self, bytes: u64) -> Part {
        Part::new(self.base(), self.0.len.min(bytes))
    }

    /// Returns the part, moved to address 0 if it is outside of all memory. A system call refuses a
    /// vector with such a part before it asks the socket. The kernel's request finds the bad part
    /// in the transfer, as this one does at address 0, where no memory is.
    #[must_use]
    pub fn nowhere_is_null(self) -> Part {
        let iovec { base, len } = self.0;
        if user::in_user(base, len).is_err() { Part(iovec { base: 0, len }) } else { self }
    }
}

impl Deref for Part {
    type Target = iovec;

    #[inline(always)]
    fn deref(&self) -> &iovec {
        &self.0
    }
}

/// Vector for readv(2) and the like: parts of the program's memory, listed by the program itself or
/// by us.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub(crate) at: usize,
    pub(crate) count: usize,
    _list: PhantomData<&'a [Part]>,
}

impl<'a> Parts<'a> {
    /// Wraps a list of ours.
    pub fn of(list: &'a [Part]) -> Parts<'a> {
        Parts { at: list.as_ptr().expose_provenance(), count: list.len(), _list: PhantomData }
    }

    /// Wraps a list of one part.
    pub fn one(part: &'a Part) -> Parts<'a> {
        Parts::of(core::slice::from_ref(part))
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Copies the list.
    ///
    /// # Errors
    /// `EFAULT` if the program's list is not readable.
    pub fn copied(&self) -> Result<Vec<Part>> {
        let mut list = vec![iovec::default(); self.count];
        user::read_slice(self.at as u64, &mut list)?;
        // `Part`s, or the program's own list, whose parts it names by that.
        Ok(list.into_iter().map(Part).collect())
    }

    /// Copies the part of the list that is readable from the start.
    pub(crate) fn copied_prefix(&self) -> Vec<Part> {
        let list = user::read_prefix(self.at as u64, self.count);
        list.into_iter().map(Part).collect()
    }

    /// Wraps the program's own list, which the kernel reads.
    pub fn of_program(list: UserPtr, count: usize) -> Parts<'static> {
        Parts { at: list.0 as usize, count, _list: PhantomData }
    }
}

/// An argument of a system call, as the word that its register takes.
pub trait Arg {
    fn word(self) -> usize;
}

macro_rules! args {
    ($($t:ty),*) => {$(
        impl Arg for $t {
            #[inline(always)]
            fn word(self) -> usize {
                self as usize
            }
        }
    )*};
}
args!(u16, i32, u32, i64, u64, isize, usize);

impl Arg for UserPtr {
    #[inline(always)]
    fn word(self) -> usize {
        self.0 as usize
    }
}

impl Arg for ReadPtr {
    #[inline(always)]
    fn word(self) -> usize {
        self.0 as usize
    }
}
