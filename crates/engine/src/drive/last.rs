//! The end of a program whose threads end one by one, the first of them by pthread_exit(3).
//!
//! The kernel ends a process with its last thread, and the C library calls `exit(0)` in the last
//! one that it knows. The engine's threads count for both. So the reactor checks whether any other
//! thread is left: about once a second, and more often once the first thread has ended. Before that
//! a check is one file read. Without /proc there is no check.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::mem::MaybeUninit;

use softring_host::os::fs::{Mode, OFlags, RawDir, open};

use softring_host::calls::process;
use softring_host::sys::EngineFd;

/// State of a task, from proc_pid_stat(5).
struct Stat {
    /// The task's name.
    comm: String,
    /// Flag, true if the task runs or waits for a processor.
    runs: bool,
    /// Flag, true if the task has ended, though its number is still taken.
    ended: bool,
    /// Exit status of the task, in the form of wait(2).
    code: i32,
}

fn stat(path: String) -> Option<Stat> {
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0u8; 1024];
    let n = softring_host::os::io::read(EngineFd::from(fd), &mut text).ok()?;
    parse(&String::from_utf8_lossy(&text[..n]))
}

/// Parses `TID (COMM) STATE …`, with the exit code as the last of 52 fields. The name may hold
/// anything.
fn parse(text: &str) -> Option<Stat> {
    let (head, rest) = text.rsplit_once(") ")?;
    let comm = head.split_once(" (")?.1.to_owned();
    let code = rest.split_ascii_whitespace().nth(49).and_then(|w| w.parse().ok()).unwrap_or(0);
    let (runs, ended) = (rest.starts_with('R'), rest.starts_with(['Z', 'X']));
    Some(Stat { comm, runs, ended, code })
}

/// Returns whether a thread of the process runs or waits for a processor, if /proc tells.
pub(super) fn runs(tid: i32) -> bool {
    stat(format!("/proc/self/task/{tid}/stat")).is_some_and(|s| s.runs)
}

/// Returns the exit status of the process's first thread, if it has ended.
pub(super) fn first_ended() -> Option<i32> {
    stat("/proc/self/stat".into()).filter(|s| s.ended).map(|s| s.code)
}

/// Returns whether only the engine's own threads are left; `None` if /proc does not tell.
fn nobody_left() -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = EngineFd::from(open(c"/proc/self/task", flags, Mode::empty()).ok()?);
    let end = format!("-{}", softring_host::fork::pid());
    let mut buf = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&dir, &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        let tid = entry.file_name().to_str().ok()?;
        if tid.starts_with('.') {
            continue;
        }
        // A thread that has gone meanwhile is not left.
        let left = stat(format!("/proc/self/task/{tid}/stat")).is_some_and(|s| {
            let ours = s.comm.starts_with("iou-") && s.comm.ends_with(&end);
            !ours && !s.ended
        });
        if left {
            return Some(false);
        }
    }
    Some(true)
}

/// Ends the process if no thread is left; `code` is the exit status of the first thread, which has
/// ended. With 0 it does as the C library after pthread_exit(3). After a raw exit(2) with another
/// code no exit handler runs.
pub(super) fn end_with(code: i32) {
    if nobody_left() != Some(true) {
        return;
    }
    if code == 0 {
        softring_host::c_library::exit(0);
    }
    let _ = process::exit_group(code >> 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = |comm: &str, state: &str| format!("7 ({comm}) {state}{} 768\n", " 0".repeat(48));
        let s = parse(&line("a) Z (b", "Z")).unwrap();
        assert_eq!((s.comm.as_str(), s.ended, s.code), ("a) Z (b", true, 768));
        assert!(!parse(&line("iou-wrk-7", "S")).unwrap().ended);
        assert!(parse("").is_none());
    }

    #[test]
    fn a_name_need_not_be_text() {
        let name = c"ab\x9b";
        std::thread::spawn(move || {
            softring_host::sys::set_name(name.to_bytes());
            assert!(
                stat("/proc/thread-self/stat".into()).is_some_and(|s| s.comm.starts_with("ab"))
            );
            assert!(softring_host::sys::file_ids_by_proc().is_some());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn this_process_still_runs() {
        assert_eq!(first_ended(), None);
        assert_eq!(nobody_left(), Some(false));
        assert!(runs(softring_host::sys::gettid()) && !runs(i32::MAX));
    }
}
