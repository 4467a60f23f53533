//! Words between the library and the command `softring`, which the library starts in the place of
//! static programs.

use core::ffi::CStr;

/// First argument of the command.
pub const WORD: &CStr = c"launch";
/// Letter before the number of a descriptor that the program is not to have.
pub const DUPLICATE: char = 'd';
/// Start of the string of an environment that names the library. The command must not get the
/// library itself: there the string lacks its first letter.
pub const PRELOAD: &str = "LD_PRELOAD=";
