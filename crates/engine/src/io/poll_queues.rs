//! Disks that have poll queues: the kernel's own polled rings work on no other.
//!
//! Since Linux 6.11 a polled read or write of a disk without them is EOPNOTSUPP; that shows only
//! when the ring is in use, and no setup refuses it. A disk gets its queues when its driver is
//! loaded (`nvme.poll_queues=N`), so most have none.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use softring_host::files::names_in;
use softring_host::sys::proc_text;
use softring_uapi::version::Release;

/// Each disk of this machine, by name, and whether it has poll queues (`queue/io_poll`). Empty
/// where sysfs does not tell.
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

/// Is it known that no disk here can be polled by the kernel?
pub(crate) fn nothing_polls() -> bool {
    none_polls(&disks())
}

/// Does the kernel refuse to poll every disk here? Before Linux 6.11 it does polled I/O on any.
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

    /// A folder as sysfs has it, with what each disk tells of its queues; none: it does not.
    fn told(polls: &[(&str, Option<&str>)]) -> Vec<(String, bool)> {
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
    fn one_that_polls_is_enough_to_leave_rings_to_the_kernel() {
        assert_eq!(told(&[]), []);
        assert!(!none_polls(&told(&[])), "nothing is known");
        assert!(!none_polls(&told(&[("loop0", None)])), "nor is it here");
        let none = told(&[("vdb", Some("0")), ("vda", Some("0")), ("loop0", None)]);
        assert_eq!(none, [("vda".into(), false), ("vdb".into(), false)]);
        assert!(none_polls(&none));
        let one = told(&[("vda", Some("0")), ("nvme0n1", Some("1"))]);
        assert_eq!(one, [("nvme0n1".into(), true), ("vda".into(), false)]);
        assert!(!none_polls(&one));
    }
}
