//! Owned and borrowed descriptors.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::num::NonZero;

use super::kernel;

/// Number of a descriptor that is open as long as the value lives.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a> {
    fd: i32,
    _owner: PhantomData<&'a OwnedFd>,
}

impl BorrowedFd<'_> {
    /// Wraps a number.
    ///
    /// # Safety
    /// It is open for as long as the value lives, or whoever uses it expects that it may not be.
    pub const unsafe fn borrow_raw(fd: i32) -> Self {
        BorrowedFd { fd, _owner: PhantomData }
    }
}

/// Descriptor that nobody else closes; closed on drop by a raw system call. It has the number's
/// complement, which is never 0, so `None` needs no room.
#[derive(Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct OwnedFd(NonZero<i32>);

impl Drop for OwnedFd {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it past this.
        let _ = unsafe { kernel!(__NR_close, self.as_raw_fd()) };
    }
}

/// Value that has a descriptor open.
pub trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// Value that has the number of a descriptor.
pub trait AsRawFd {
    fn as_raw_fd(&self) -> i32;
}

/// Value that gives up its descriptor, which stays open.
pub trait IntoRawFd {
    fn into_raw_fd(self) -> i32;
}

/// Value that takes over a descriptor.
pub trait FromRawFd {
    /// Takes over a number.
    ///
    /// # Safety
    /// It is open, and the caller is the only one to answer for it.
    unsafe fn from_raw_fd(fd: i32) -> Self;
}

impl AsFd for OwnedFd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { fd: self.as_raw_fd(), _owner: PhantomData }
    }
}

impl AsFd for BorrowedFd<'_> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl AsRawFd for OwnedFd {
    #[inline]
    fn as_raw_fd(&self) -> i32 {
        !self.0.get()
    }
}

impl AsRawFd for BorrowedFd<'_> {
    #[inline]
    fn as_raw_fd(&self) -> i32 {
        self.fd
    }
}

impl IntoRawFd for OwnedFd {
    #[inline]
    fn into_raw_fd(self) -> i32 {
        core::mem::ManuallyDrop::new(self).as_raw_fd()
    }
}

impl FromRawFd for OwnedFd {
    #[inline]
    unsafe fn from_raw_fd(fd: i32) -> OwnedFd {
        OwnedFd(NonZero::new(!fd).expect("-1 is no descriptor"))
    }
}

macro_rules! for_pointers {
    ($($pointer:ty),*) => {$(
        impl<T: AsFd + ?Sized> AsFd for $pointer {
            #[inline]
            fn as_fd(&self) -> BorrowedFd<'_> {
                (**self).as_fd()
            }
        }

        impl<T: AsRawFd + ?Sized> AsRawFd for $pointer {
            #[inline]
            fn as_raw_fd(&self) -> i32 {
                (**self).as_raw_fd()
            }
        }
    )*};
}
for_pointers!(&T, &mut T, Box<T>, Rc<T>, Arc<T>);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_descriptor_is_closed() {
        let (read, write) = crate::os::pipe::pipe_with(Default::default()).unwrap();
        assert_eq!(size_of::<Option<OwnedFd>>(), 4);
        drop(read);
        let broken = crate::os::io::write(&write, b"x");
        assert_eq!(broken, Err(softring_uapi::errno::Errno::EPIPE));
        let number = write.into_raw_fd();
        // SAFETY: given up in the line above.
        let write = unsafe { OwnedFd::from_raw_fd(number) };
        assert_eq!((write.as_raw_fd(), write.as_fd().as_raw_fd()), (number, number));
    }
}
