//! What system calls take.

use core::marker::PhantomData;

use crate::user;
use softring_uapi::errno::Result;
use softring_uapi::iovec;

/// An address that the program has given for the kernel to read from or write to, `void __user *`
/// in the kernel's source.
///
/// # The invariant
/// The number came from the program: an SQE, an iocb, a structure that one of them names, or an
/// argument of a call. The kernel checks it, and a bad one is `EFAULT`. What lies there is the
/// program's, which has offered it for this call: if it is memory that the program uses otherwise,
/// or the engine's, the program has broken itself, as it could have by read(2). Memory of the
/// engine's goes to the kernel as a slice or a reference, never by this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct UserPtr(pub u64);

impl UserPtr {
    pub const NULL: UserPtr = UserPtr(0);
}

/// An address that the kernel only reads at: the program's, or that of a copy which the caller
/// keeps. Any number is sound: the kernel checks it, and changes nothing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ReadPtr(pub u64);

impl ReadPtr {
    pub const NULL: ReadPtr = ReadPtr(0);

    /// That of `value`, which lives longer than the call.
    pub fn of<T: ?Sized>(value: &T) -> ReadPtr {
        ReadPtr(core::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64)
    }
}

/// A vector for readv(2) and its kin: parts of the program's memory (the bases are as [`UserPtr`]
/// says), listed by the program itself or by us.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub(crate) at: usize,
    pub(crate) count: usize,
    _list: PhantomData<&'a [iovec]>,
}

impl<'a> Parts<'a> {
    /// A list of ours.
    pub fn of(list: &'a [iovec]) -> Parts<'a> {
        Parts { at: list.as_ptr().expose_provenance(), count: list.len(), _list: PhantomData }
    }

    /// A list of one.
    pub fn one(part: &'a iovec) -> Parts<'a> {
        Parts::of(core::slice::from_ref(part))
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A copy of the list.
    ///
    /// # Errors
    /// `EFAULT` where the program's is not readable.
    pub fn copied(&self) -> Result<Vec<iovec>> {
        let mut list = vec![iovec::default(); self.count];
        user::read_slice(self.at as u64, &mut list)?;
        Ok(list)
    }

    /// As much of it as is readable from the start.
    pub fn copied_prefix(&self) -> Vec<iovec> {
        user::read_prefix(self.at as u64, self.count)
    }

    /// The program's own list, which the kernel reads.
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
