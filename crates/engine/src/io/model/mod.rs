//! Modelled disks: I/O on the files under a path completes when it would on a device that is
//! described in numbers, with the real data.
//!
//! ```text
//! submission: when would the device be done? (device: pure)   move the data now, cheaply (files)
//!             └──────────────▶ a queue of the ring's, by that time ◀──────┘ with the result
//! completion: the driver takes due entries (reap); a waiting thread sleeps until the next is due
//! ```
//!
//! Runs on: the submitter, and the thread that drives the ring; always under the uring lock. May
//! block: a write, as long as the page cache makes it wait. A read that may wait for a disk goes to
//! a worker, and its completion is withheld until its time.
//!
//! All rings of a process share a device; its state is guarded by a leaf lock, held for a few
//! instructions. A forked child continues with a copy. Data moves through the page cache
//! ([`files`]), also for files opened with O_DIRECT.

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

/// A device and the path of its files.
#[derive(Debug)]
pub(crate) struct Device {
    path: Vec<u8>,
    pub(crate) spec: Spec,
    state: Mutex<State>,
}

/// Sets the models of this process, for good. Called before the first ring is created.
pub fn set(models: Vec<Model>) {
    let made = models.into_iter().take(parse::MOST).map(|m| Device {
        state: Mutex::new(State::new(&m.spec)),
        path: m.path,
        spec: m.spec,
    });
    let any = PROCESS.devices.set(made.collect()).is_ok() && !devices().is_empty();
    PROCESS.flags.modelled.fetch_or(any, Relaxed);
}

/// Returns whether there is any model.
#[inline]
pub(crate) fn any() -> bool {
    PROCESS.flags.modelled.load(Relaxed)
}

fn devices() -> &'static [Device] {
    PROCESS.devices.get().map_or(&[], |d| d)
}

/// Returns the device with a number.
pub(crate) fn device(number: u8) -> Option<&'static Device> {
    devices().get(usize::from(number))
}

/// Returns the number of the device that the file at `path` is on: the one with the longest
/// matching path.
fn of_path(path: &[u8]) -> Option<u8> {
    let on = |d: &Device| is_below(path, &d.path).then_some(d.path.len());
    let found = (0u8..).zip(devices()).filter_map(|(i, d)| Some((on(d)?, i)));
    found.max_by_key(|&(len, _)| len).map(|(_, i)| i)
}

/// Returns whether `path` is `top`, or lies in the folder `top`. Both are absolute, without `.` and
/// `..`.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    path.strip_prefix(top).is_some_and(|rest| rest.first().is_none_or(|&b| b == b'/'))
}

/// Returns the number of the device that an open file is on.
pub(crate) fn of_fd(fd: i32) -> Option<u8> {
    if !any() {
        return None;
    }
    let path = softring_host::files::path_of(fd)?;
    // The kernel's mark of a file that has no name any more.
    let named = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    of_path(named).or_else(|| of_path(&path))
}

impl Device {
    /// Returns the completion times of a request that comes at `now`, `behind` ns late.
    pub(crate) fn due(&self, now: u64, behind: u64, io: Io) -> Due {
        self.state.lock().due(&self.spec, now, behind, io)
    }
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_folder_contains_paths_below_its_name() {
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
