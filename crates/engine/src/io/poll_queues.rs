//! Disks that have poll queues: the kernel's own polled rings work only on these.
//!
//! Since Linux 6.11 a polled read or write of a disk without poll queues fails with EOPNOTSUPP;
//! setup does not refuse it, so a program sees this only in use. A disk gets poll queues when its
//! driver is loaded (`nvme.poll_queues=N`), so most disks have none.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use softring_host::files::names_in;
use softring_host::files::proc_text;
use softring_uapi::version::Release;

/// Returns the disks of this machine by name, and whether each has poll queues (`queue/io_poll`).
/// Empty if sysfs does not tell.
pub fn disks() -> Vec<(String, bool)> {
    disks_in("/sys/block")
}

fn disks_in(folder: &str) -> Vec<(String, bool)> {
    let disk = |name: String| {
        let poll = proc_text(&format!("{folder}/{name}/queue/io_poll"))?;
        Some((name, poll.trim() == "1"))
    };
    let mut disks: Vec<_> = names_in(folder).into_iter().filter_map(disk).collect();
    disks.sort();
    disks
}

/// Returns whether sysfs lists disks here, and the kernel can poll none of them.
pub(crate) fn nothing_polls() -> bool {
    none_polls(&disks())
}

/// Returns whether the kernel refuses to poll every disk here. Before Linux 6.11 it polls any.
pub fn refuses() -> bool {
    softring_host::substitute::release() >= Release(6, 11) && nothing_polls()
}

fn none_polls(disks: &[(String, bool)]) -> bool {
    !disks.is_empty() && disks.iter().all(|(_, polls)| !polls)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the disks of a folder like sysfs's, with the text of each disk's `io_poll`; `None`:
    /// no such file.
    fn disks_with(polls: &[(&str, Option<&str>)]) -> Vec<(String, bool)> {
        let sys = std::env::temp_dir().join(format!("poll-queues-{}", std::process::id()));
        for (name, io_poll) in polls {
            fs::create_dir_all(sys.join(name).join("queue")).unwrap();
            if let Some(word) = io_poll {
                fs::write(sys.join(name).join("queue/io_poll"), format!("{word}\n")).unwrap();
            }
        }
        let disks = disks_in(sys.to_str().unwrap());
        let _ = fs::remove_dir_all(&sys);
        disks
    }

    #[test]
    fn one_disk_with_poll_queues_suffices() {
        assert_eq!(disks_with(&[]), []);
        assert!(!none_polls(&disks_with(&[])), "nothing is known");
        assert!(!none_polls(&disks_with(&[("loop0", None)])), "nor is it here");
        let none = disks_with(&[("vdb", Some("0")), ("vda", Some("0")), ("loop0", None)]);
        assert_eq!(none, [("vda".into(), false), ("vdb".into(), false)]);
        assert!(none_polls(&none));
        let one = disks_with(&[("vda", Some("0")), ("nvme0n1", Some("1"))]);
        assert_eq!(one, [("nvme0n1".into(), true), ("vda".into(), false)]);
        assert!(!none_polls(&one));
    }
}
