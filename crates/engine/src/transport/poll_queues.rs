//! Which disks have poll queues: the kernel's own polled rings work on no other.
//!
//! Since Linux 6.11 a polled read or write of a disk without them is EOPNOTSUPP; that shows only
//! when the ring is in use, and no setup refuses it. A disk gets its queues when its driver is
//! loaded (`nvme.poll_queues=N`), so most have none.

use std::fs;

/// Each disk of this machine, by name, and whether it has poll queues (`queue/io_poll`). Empty
/// where sysfs does not tell.
pub fn disks() -> Vec<(String, bool)> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    let mut disks: Vec<_> = entries
        .filter_map(|e| {
            let poll = fs::read_to_string(e.path().join("queue/io_poll")).ok()?;
            Some((e.file_name().to_string_lossy().into_owned(), poll.trim() == "1"))
        })
        .collect();
    disks.sort();
    disks
}

/// Is it known that no disk here can be polled by the kernel?
pub fn nothing_polls() -> bool {
    let disks = disks();
    !disks.is_empty() && disks.iter().all(|(_, polls)| !polls)
}
