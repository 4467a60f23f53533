//! Arguments of system calls.

use core::marker::PhantomData;

use crate::user::{self, ReadPtr, UserPtr};
use softring_uapi::errno::Result;
use softring_uapi::iovec;

/// Vector for readv(2) and the like: parts of the program's memory (bases are as [`UserPtr`] says),
/// listed by the program itself or by us.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub(crate) at: usize,
    pub(crate) count: usize,
    _list: PhantomData<&'a [iovec]>,
}

impl<'a> Parts<'a> {
    /// Wraps a list of ours.
    pub fn of(list: &'a [iovec]) -> Parts<'a> {
        Parts { at: list.as_ptr().expose_provenance(), count: list.len(), _list: PhantomData }
    }

    /// Wraps a list of one part.
    pub fn one(part: &'a iovec) -> Parts<'a> {
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
    pub fn copied(&self) -> Result<Vec<iovec>> {
        let mut list = vec![iovec::default(); self.count];
        user::read_slice(self.at as u64, &mut list)?;
        Ok(list)
    }

    /// Copies the part of the list that is readable from the start.
    pub(crate) fn copied_prefix(&self) -> Vec<iovec> {
        user::read_prefix(self.at as u64, self.count)
    }

    /// Wraps the program's own list, which the kernel reads.
    pub fn of_program(list: ReadPtr, count: usize) -> Parts<'static> {
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
