//! Waits that are older than the process's first ring, which nobody has counted: by poll(2) and
//! select(2), and by inline system calls. Such a wait may be without end, and a set that it waits
//! for must tell of each ring that is added to it. The kernel says in /proc which system call a
//! thread is in; where /proc cannot be read, no wait is found.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_int;
use softring_host::files::proc_text;
use softring_host::{files, user};

/// Descriptors of one call that are read.
const MOST: usize = 4096;

/// Returns the descriptors that the process's threads wait for now.
#[cold]
pub(super) fn waited_for() -> Vec<c_int> {
    let threads = files::names_in("/proc/self/task");
    let call = |thread: String| parse(&proc_text(&format!("/proc/self/task/{thread}/syscall"))?);
    threads.into_iter().filter_map(call).flat_map(|(number, args)| of_call(number, args)).collect()
}

/// Reads a line such as `7 0x7f… 0x2 …`: the number of the system call, then its arguments. A
/// thread that runs is `running`.
fn parse(text: &str) -> Option<(i64, [u64; 4])> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut args = [0; 4];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, args))
}

/// Returns the descriptors that a system call waits for.
fn of_call(number: i64, args: [u64; 4]) -> Vec<c_int> {
    match number {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            vec![args[0] as c_int]
        }
        libc::SYS_poll | libc::SYS_ppoll => polled(args[0], args[1] as usize),
        libc::SYS_select | libc::SYS_pselect6 => {
            let sets = args[1..].iter().filter(|&&at| at != 0);
            sets.flat_map(|&at| selected(at, args[0] as usize)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the descriptors of an array of struct pollfd.
fn polled(at: u64, n: usize) -> Vec<c_int> {
    let mut bytes = vec![0u8; n.min(MOST) * size_of::<libc::pollfd>()];
    if user::read_slice(at, &mut bytes).is_err() {
        return Vec::new();
    }
    let entries = bytes.chunks_exact(size_of::<libc::pollfd>());
    let fds = entries.map(|entry| c_int::from_ne_bytes(entry[..4].try_into().unwrap_or_default()));
    fds.filter(|&fd| fd >= 0).collect()
}

/// Returns the descriptors of a set of bits.
fn selected(at: u64, n: usize) -> Vec<c_int> {
    let mut bytes = vec![0u8; n.min(MOST).div_ceil(64) * 8];
    if user::read_slice(at, &mut bytes).is_err() {
        return Vec::new();
    }
    let has = |&fd: &usize| bytes[fd / 8] & 1 << (fd % 8) != 0;
    (0..n.min(MOST)).filter(has).map(|fd| fd as c_int).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_call_and_its_arguments() {
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse("-1 0x7ffd 0x0\n"), None);
        let line = "232 0x3 0x7ffd00 0x40 0xffffffff 0x0 0x8 0x7ffd 0x7f\n";
        let (number, args) = parse(line).unwrap();
        assert_eq!((number, args), (libc::SYS_epoll_wait, [3, 0x7f_fd00, 64, 0xffff_ffff]));
        assert_eq!(of_call(number, args), [3]);
    }

    #[test]
    fn poll_and_select_name_their_descriptors_in_memory() {
        let fds = [5, -1, 9].map(|fd| libc::pollfd { fd, events: 1, revents: 0 });
        let at = fds.as_ptr().expose_provenance() as u64;
        assert_eq!(of_call(libc::SYS_poll, [at, 3, 0, 0]), [5, 9]);
        let bits = [1u64 << 4 | 1 << 40, 1 << 1];
        let at = bits.as_ptr().expose_provenance() as u64;
        assert_eq!(of_call(libc::SYS_select, [66, at, 0, 0]), [4, 40, 65]);
        assert_eq!(of_call(libc::SYS_select, [41, at, 0, at]), [4, 40, 4, 40]);
        assert_eq!(of_call(libc::SYS_ppoll, [0, 3, 0, 0]), [0; 0]);
    }
}
