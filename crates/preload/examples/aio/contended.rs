//! Single reads while others want every processor: how many, and how often the thread slept.

use super::Case;
use super::sys::*;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[("contended", contended)];

const TIME: Duration = Duration::from_millis(1500);

fn contended() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let others: Vec<i32> = (0..2 * processors).map(|_| busy()).collect();
    let (aio, file) = (Aio::new(4), file(true, 16));
    // A read of a hole would not wait for anything.
    file.write_all_at(buffer(16, 1), 0).unwrap();
    file.sync_all().unwrap();
    let (buf, begun, before, mut reads) = (buffer(1, 0), Instant::now(), sleeps(), 0u64);
    while begun.elapsed() < TIME {
        let read = rw(PREAD, &file, buf, (reads % 16) as i64, reads);
        assert_eq!((aio.submit(&[&read]), aio.all(1)[0].data), (1, reads));
        reads += 1;
    }
    println!("reads {reads} slept {}", sleeps() - before);
    for pid in others {
        // SAFETY: children of ours.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

/// Starts a child that always wants a processor, and ends with us.
fn busy() -> i32 {
    // SAFETY: one thread; the child makes one system call and computes.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                std::hint::spin_loop();
            }
        }
        pid
    }
}

/// Returns the voluntary context switches of this thread.
fn sleeps() -> i64 {
    // SAFETY: zero is a valid rusage; it is filled in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}
