//! Several threads that make rings at once, and the soft RLIMIT_FSIZE afterwards.
#![allow(unsafe_code)]

use io_uring::IoUring;
use std::process::ExitCode;

fn soft_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills what it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

fn main() -> ExitCode {
    let before = soft_limit();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| drop(IoUring::new(4).expect("a ring"))));
        }
    });
    let after = soft_limit();
    if after != before {
        eprintln!("the limit was {before}, is {after}");
    }
    ExitCode::from(u8::from(after != before))
}
