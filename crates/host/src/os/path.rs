//! Paths as system calls take them.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;

use softring_uapi::errno::{Errno, Result};

/// Value that names a file. Only a path of 256 bytes or more allocates memory.
pub trait Path {
    /// Calls `f` with the path, with a zero at its end.
    ///
    /// # Errors
    /// That of `f`; `EINVAL` for a path with a zero in it.
    fn with<T>(&self, f: impl FnOnce(&CStr) -> Result<T>) -> Result<T>;
}

impl Path for [u8] {
    fn with<T>(&self, f: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
        let mut room = [0u8; 256];
        if self.len() >= room.len() {
            return f(&CString::new(self).map_err(|_| Errno::EINVAL)?);
        }
        room[..self.len()].copy_from_slice(self);
        f(CStr::from_bytes_with_nul(&room[..=self.len()]).map_err(|_| Errno::EINVAL)?)
    }
}

impl Path for CStr {
    fn with<T>(&self, f: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
        f(self)
    }
}

macro_rules! as_bytes {
    ($($t:ty),*) => {$(
        impl Path for $t {
            fn with<T>(&self, f: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
                let bytes: &[u8] = self.as_ref();
                bytes.with(f)
            }
        }
    )*};
}
as_bytes!(str, String, Vec<u8>);

impl<P: Path + ?Sized> Path for &P {
    fn with<T>(&self, f: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
        (**self).with(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_zero_at_its_end() {
        for len in [0, 1, 255, 256, 257, 5000] {
            let path = "p".repeat(len);
            let same = path.with(|text| Ok(text.to_bytes() == path.as_bytes()));
            assert_eq!(same, Ok(true));
            let inside = path + "\0";
            assert_eq!(inside.with(|_| Ok(())), Err(Errno::EINVAL));
        }
        assert_eq!(c"a".with(|text| Ok(text == c"a")), Ok(true));
    }
}
