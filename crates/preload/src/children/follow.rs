//! Programs that this one starts with an environment of its own making keep the library. What they
//! need is added to the environment behind the strings that they are given; in the new program the
//! library takes it away again before `main`:
//!
//! ```text
//! at exec      A=1  B=2  SOFTRING_FOLLOWED=  LD_PRELOAD=…  SOFTRING_ENGINE=…
//! in the new   A=1  B=2
//! ```
//!
//! The auxiliary vector lies behind the environment, and some runtimes (Go's) search for it there.
//! So the strings that go are of an even number, and become entries that say nothing:
//!
//! ```text
//! at exec      B=2  SOFTRING_FOLLOWED=  LD_PRELOAD=…  NULL       AT_SYSINFO_EHDR  address
//! in the new   B=2  NULL                AT_IGNORE     0          AT_SYSINFO_EHDR  address
//! ```
//!
//! A program that was itself started without LD_PRELOAD (it is linked with the library) is not
//! followed by its children. Nor are programs that would not load the library, or could not: those
//! that gain rights, those of another C library's loader, those in a root or of a user without the
//! library's file, static ones without the command ([`super::launch`]).
#![allow(unsafe_code)]

use super::file::{Fd, File, Kind};
use super::launch;
use super::{OWN, after, byte, preloads};
use crate::intercept::patch::stub;
use crate::{config, loaders, raw};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};
use softring_host::user;

type Path = *const c_char;
type Strings = *const Path;

/// First string of those that are added.
const MARKER: &CStr = c"SOFTRING_FOLLOWED=";
/// String that makes the number of those that are added even.
const LAST: &CStr = c"SOFTRING_FOLLOWED=1";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Variables that the library sets for one exec: they are not settings.
const NOT_KEPT: [&[u8]; 3] = [b"SOFTRING_LOCKED=", b"SOFTRING_RULES=", b"SOFTRING_FOLLOWED="];
const NOTICE: &[u8] = b"SOFTRING_NOTICE=";

/// Strings that a new program needs beside [`MARKER`] and LD_PRELOAD: copies of this program's
/// settings, and a null pointer; null: no program is followed.
static SETTINGS: AtomicPtr<Path> = AtomicPtr::new(core::ptr::null_mut());
/// Value of the copy of SOFTRING_NOTICE.
static NOTICE_COPY: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());

/// Returns the strings of an array that the program passes, as far as they can be read.
fn strings(envp: Strings) -> impl Iterator<Item = u64> {
    let word = move |n: usize| {
        user::read::<u64>(envp.wrapping_add(n).expose_provenance() as u64).unwrap_or(0)
    };
    (0..usize::from(!envp.is_null()) * usize::MAX).map(word).take_while(|at| *at != 0)
}

/// Returns the number of strings before the null pointer; 0 if `strings` is null. `None` if they
/// cannot be read up to there.
pub fn length(strings: Strings) -> Option<usize> {
    let mut n = 0;
    let string = |n| user::read::<u64>(strings.wrapping_add(n).expose_provenance() as u64);
    while !strings.is_null() && string(n).ok()? != 0 {
        n += 1;
    }
    Some(n)
}

/// Returns the strings of an environment that is known to be one.
///
/// # Safety
/// The array and its strings are there, and nobody changes them meanwhile.
unsafe fn known<'a>(array: Strings) -> impl Iterator<Item = &'a CStr> + Clone {
    // SAFETY: the caller's.
    unsafe { addresses(array).map(|string| CStr::from_ptr(string)) }
}

/// Returns the addresses of these strings.
///
/// # Safety
/// As [`known`].
unsafe fn addresses(array: Strings) -> impl Iterator<Item = Path> + Clone {
    // SAFETY: the caller's: the array ends with a null pointer.
    let nth = move |n: usize| unsafe { *array.add(n) };
    let strings = (0..usize::from(!array.is_null()) * usize::MAX).map(nth);
    strings.take_while(|string| !string.is_null())
}

/// Returns those that begin with the first letter of a name of ours or of LD_PRELOAD. The others
/// are not read further: every start of a program comes here.
///
/// # Safety
/// As [`known`].
unsafe fn named<'a>(array: Strings) -> impl Iterator<Item = &'a CStr> + Clone {
    // SAFETY: the caller's.
    unsafe {
        let ours = addresses(array).filter(|at| matches!(at.read() as u8, b'L' | b'S'));
        ours.map(|string| CStr::from_ptr(string))
    }
}

fn is_setting(string: &CStr) -> bool {
    let string = string.to_bytes();
    string.starts_with(b"SOFTRING_") && NOT_KEPT.iter().all(|name| !string.starts_with(name))
}

/// Returns the path of this library; empty if it is not known.
pub fn own() -> &'static CStr {
    let own = OWN.load(Relaxed);
    // SAFETY: the loader's own string, which stays while the library does.
    if own.is_null() { c"" } else { unsafe { CStr::from_ptr(own) } }
}

/// Keeps the settings for programs to come, and takes from the environment what was added to it.
/// Called once, before `main`, when the settings have been read.
///
/// # Safety
/// This is the process's environment, which nobody else uses yet.
pub unsafe fn start(environ: *mut Path) {
    // SAFETY: the caller's.
    let named = unsafe { named(environ) };
    let preload = named.clone().filter_map(|s| s.to_bytes().strip_prefix(PRELOAD)).last();
    let own = own().to_bytes();
    let holds = |list: &[u8]| list.split(|b| b": \t\n".contains(b)).any(|path| path == own);
    if !own.starts_with(b"/") || !config::follows() || !preload.is_some_and(holds) {
        return;
    }
    let is_first = |s: &&CStr| s.to_bytes().starts_with(config::FOLLOWED.to_bytes());
    let first = named.clone().find(is_first).map(CStr::as_ptr);
    if !keep(named.filter(|s| is_setting(s))) {
        return;
    }
    if let Some(first) = first {
        // SAFETY: the caller's.
        let all = unsafe { known(environ) };
        let first = all.clone().take_while(|s| s.as_ptr() != first).count();
        config::move_notice(NOTICE_COPY.load(Relaxed).cast());
        // `/proc/PID/environ` shows the bytes, too.
        let count = all.clone().count() - first;
        for string in all.skip(first) {
            // SAFETY: strings that exec has built for this process.
            unsafe { string.as_ptr().cast_mut().write_bytes(0, string.count_bytes()) };
        }
        // SAFETY: so many entries of the array, and the null pointer behind them.
        unsafe { end_at(environ.add(first), count) };
    }
}

/// Ends an environment at `end`, `count` entries before its end. Those that go become entries of
/// the auxiliary vector, which begins behind them.
///
/// # Safety
/// There are so many entries at `end`, and a null pointer behind them.
unsafe fn end_at(end: *mut Path, count: usize) {
    // SAFETY: the caller's.
    unsafe { end.write(core::ptr::null()) };
    if !count.is_multiple_of(2) {
        return;
    }
    for at in (1..count).step_by(2) {
        // SAFETY: the caller's: the last word is the null pointer's.
        unsafe {
            end.add(at).write(core::ptr::without_provenance(libc::AT_IGNORE as usize));
            end.add(at + 1).write(core::ptr::null());
        }
    }
}

/// Copies the settings; false if there is no memory.
fn keep<'a>(all: impl Iterator<Item = &'a CStr> + Clone) -> bool {
    let pointers = (all.clone().count() + 1) * size_of::<Path>();
    let bytes = all.clone().map(|string| string.to_bytes_with_nul().len()).sum::<usize>();
    let to = raw::map(pointers + bytes, libc::MAP_PRIVATE);
    if to.is_null() {
        return false;
    }
    let (settings, mut text) = (to.cast::<Path>(), to.wrapping_add(pointers));
    for (i, string) in all.enumerate() {
        let string = string.to_bytes_with_nul();
        // SAFETY: a new mapping with room for the pointers to all strings and for their bytes.
        unsafe {
            text.copy_from_nonoverlapping(string.as_ptr(), string.len());
            settings.add(i).write(text.cast());
        }
        if string.starts_with(NOTICE) && NOTICE_COPY.load(Relaxed).is_null() {
            NOTICE_COPY.store(text.wrapping_add(NOTICE.len()).cast(), Relaxed);
        }
        text = text.wrapping_add(string.len());
    }
    SETTINGS.store(settings, Relaxed);
    stub::watch_execs();
    true
}

/// Returns the kept settings.
fn settings() -> impl Iterator<Item = &'static CStr> + Clone {
    // SAFETY: null, or the copies, which stay.
    unsafe { known(SETTINGS.load(Relaxed)) }
}

/// Returns the copy of a setting's value.
pub fn setting(name: &CStr) -> Option<Path> {
    let value = |string: &CStr| {
        let value = string.to_bytes().strip_prefix(name.to_bytes())?.strip_prefix(b"=")?;
        Some(value.as_ptr().cast())
    };
    settings().find_map(value)
}

/// Strings for the environment of a program.
pub struct Added {
    /// Address of the program's own LD_PRELOAD, which does not hold this library.
    given: Option<u64>,
}

/// Returns what a program needs to be followed; `None` if it has the library already, or is not to
/// be followed.
pub fn follow(file: &File, envp: Strings) -> Option<Added> {
    if SETTINGS.load(Relaxed).is_null() || preloads(envp).is_some() {
        return None;
    }
    let value = |name| strings(envp).filter_map(|at| after(at, name)).last();
    let given = value(PRELOAD).filter(|at| byte(*at) != 0);
    // musl's loader takes the first one, and others the last.
    if value(b"SOFTRING_FOLLOW=").is_some_and(|at| byte(at) == b'0')
        || !Fd::reads(OWN.load(Relaxed))
    {
        return None;
    }
    let reached = match file.kind() {
        Kind::Dynamic => !(loaders::runs_on_musl() && value(PRELOAD).is_some()),
        Kind::Static => launch::is_possible(),
        Kind::Other => false,
    };
    if !reached {
        return None;
    }
    if config::notice_is_claimed()
        // SAFETY: the byte of a copy that stays.
        && let Some(copy) = unsafe { NOTICE_COPY.load(Relaxed).as_ref() }
    {
        copy.store(b'0', Relaxed);
    }
    Some(Added { given })
}

impl Added {
    /// Returns the number of the strings that are added.
    pub fn count(&self) -> usize {
        (2 + settings().count()).next_multiple_of(2)
    }

    /// Returns the bytes of LD_PRELOAD's string: this library, and behind a colon what is given.
    fn preload(&self) -> impl Iterator<Item = u8> {
        let given = self.given.into_iter().flat_map(|at| (at..).map(byte).take_while(|b| *b != 0));
        let colon = self.given.map(|_| b':');
        PRELOAD.iter().copied().chain(own().to_bytes().iter().copied()).chain(colon).chain(given)
    }

    /// Returns how many bytes these are, with a NUL.
    pub fn text_len(&self) -> usize {
        self.preload().count() + 1
    }

    /// Writes the strings to `to`, and LD_PRELOAD's bytes to `text`.
    ///
    /// # Safety
    /// There is room for [`Added::count`] pointers and [`Added::text_len`] bytes.
    pub unsafe fn write(&self, to: *mut Path, text: &mut [u8]) {
        // Another thread may change the given string meanwhile.
        let room = text.len() - 1;
        text[..room].iter_mut().zip(self.preload()).for_each(|(to, b)| *to = b);
        text[room] = 0;
        let first = [MARKER.as_ptr(), text.as_ptr().cast()].into_iter();
        let strings = first.chain(settings().map(CStr::as_ptr)).chain([LAST.as_ptr()]);
        for (i, string) in strings.take(self.count()).enumerate() {
            // SAFETY: the caller's.
            unsafe { to.add(i).write(string) };
        }
    }
}

/// Returns whether this string is the first of those that are added.
pub fn is_first(string: Path) -> bool {
    string == MARKER.as_ptr()
}
