//! Memory that a forked child pays for rings that it inherits and does not use: `inherited N` makes
//! N rings, forks twice, and prints how many KiB the first child has for itself a moment later.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const IO_URING_SETUP: i64 = 425;

/// Returns the part of this process's memory, in KiB, that no other process shares.
fn private() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let field = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    field("Private_Dirty:") + field("Private_Clean:")
}

fn main() {
    let rings = std::env::args().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: system calls; the parameters are 120 bytes.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        for _ in 0..rings {
            let mut params = [0u64; 15];
            let fd = libc::syscall(IO_URING_SETUP, 8, params.as_mut_ptr());
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        }
    }
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    // SAFETY: the child has one thread.
    if unsafe { libc::fork() } == 0 {
        theirs.read_exact(&mut [0]).unwrap();
        println!("{}", private());
        std::process::exit(0);
    }
    // The parent's work on the rings meanwhile counts, too: the old pages become the child's own.
    std::thread::sleep(Duration::from_millis(1500));
    // SAFETY: as above.
    if unsafe { libc::fork() } == 0 {
        std::process::exit(0);
    }
    ours.write_all(b"x").unwrap();
    // SAFETY: waits for both.
    unsafe { while libc::wait(core::ptr::null_mut()) > 0 {} }
}
