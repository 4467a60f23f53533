//! Modelled disks: I/O on the files under a path completes when it would on a device that is
//! described in numbers, with the data that are really there.
//!
//! ```text
//! submission: when would the device be done? (device: pure)   move the data now, cheaply (files)
//!             └──────────────▶ a queue of the ring's, by that time ◀──────┘ with the result
//! completion: whoever drives the ring takes what is due (reap); who sleeps, sleeps until the next
//! ```
//!
//! Runs on: the submitter, and whoever drives the ring; always under the uring lock. May block: a
//! write, as long as the page cache makes it wait; what may wait for a disk to be read goes to a
//! worker, and is withheld until its time when it comes back.
//!
//! A device is one for all rings of a process; its state is taken under a lock of a few
//! instructions, a leaf. A forked child goes on with a copy. Data move through the page cache
//! ([`files`]), also those of files opened with O_DIRECT.

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use softring_host::sync::Mutex;

pub(crate) mod device;
pub(crate) mod dist;
pub(crate) mod files;
pub(crate) mod late;
pub mod parse;
pub(crate) mod presets;
pub(crate) mod queue;

use super::of_process::PROCESS;
use device::{Due, Io, Spec, State};
pub(crate) use files::Found;
use parse::Model;

/// A device and where its files are.
#[derive(Debug)]
pub(crate) struct Device {
    path: Vec<u8>,
    pub(crate) spec: Spec,
    state: Mutex<State>,
}

/// The models of this process, for good. Called before the first ring is made.
pub fn set(models: Vec<Model>) {
    let made = models.into_iter().take(parse::MOST).map(|m| Device {
        state: Mutex::new(State::new(&m.spec)),
        path: m.path,
        spec: m.spec,
    });
    let any = PROCESS.devices.set(made.collect()).is_ok() && !devices().is_empty();
    PROCESS.flags.modelled.fetch_or(any, Relaxed);
}

/// Is there any model?
#[inline]
pub(crate) fn any() -> bool {
    PROCESS.flags.modelled.load(Relaxed)
}

fn devices() -> &'static [Device] {
    PROCESS.devices.get().map_or(&[], |d| d)
}

/// The device that has a number.
pub(crate) fn device(number: u8) -> Option<&'static Device> {
    devices().get(usize::from(number))
}

/// The number of the device that the file at `path` is on: of several, the one whose path is the
/// longest.
fn of_path(path: &[u8]) -> Option<u8> {
    let on = |d: &Device| is_below(path, &d.path).then_some(d.path.len());
    let found = (0u8..).zip(devices()).filter_map(|(i, d)| Some((on(d)?, i)));
    found.max_by_key(|&(len, _)| len).map(|(_, i)| i)
}

/// Is `path` the file or the folder `top`, or in that? Both are absolute, without `.` and `..`.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    path.strip_prefix(top).is_some_and(|rest| rest.first().is_none_or(|&b| b == b'/'))
}

/// The number of the device that an open file is on.
pub(crate) fn of_fd(fd: i32) -> Option<u8> {
    if !any() {
        return None;
    }
    let link =
        softring_host::os::fs::readlink(format!("/proc/thread-self/fd/{fd}"), Vec::new()).ok()?;
    let bytes = link.as_bytes();
    // So the kernel writes of a file that has no name any more.
    let named = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    of_path(named).or_else(|| of_path(bytes))
}

impl Device {
    /// A request comes at `now`, `behind` ns late: when is it done?
    pub(crate) fn due(&self, now: u64, behind: u64, io: Io) -> Due {
        self.state.lock().due(&self.spec, now, behind, io)
    }
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_folder_has_what_its_whole_name_begins() {
        for (path, top, want) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
            ("/a/b", "/", true),
            ("pipe:[7]", "/", false),
        ] {
            assert_eq!(is_below(path.as_bytes(), top.as_bytes()), want, "{path} in {top}");
        }
    }
}
