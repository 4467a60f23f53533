//! Requests of threads with seccomp filters of their own, beside requests of a thread without one.
//! Prints the result of each. The argument is a directory with a file `f` in it.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, squeue, types};
use std::ffi::{CStr, CString};
use std::sync::Mutex;

const HERE: types::Fd = types::Fd(libc::AT_FDCWD);

/// Returns the result of a request on a ring that other threads use as well.
fn answer(ring: &Mutex<IoUring>, sqe: squeue::Entry) -> i32 {
    let mut ring = ring.lock().unwrap();
    // SAFETY: the names outlive the request, which is waited for.
    unsafe { ring.submission().push(&sqe).unwrap() };
    ring.submit_and_wait(1).unwrap();
    ring.completion().next().unwrap().result()
}

fn unlink(path: &CStr) -> squeue::Entry {
    opcode::UnlinkAt::new(HERE, path.as_ptr()).build()
}

/// Denies this thread one system call, by EPERM.
fn deny(number: i64, by_prctl: bool) -> bool {
    let row = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut rows = [
        row(0x20, 0, 0, 0),
        row(0x15, 0, 1, number as u32),
        row(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        row(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: rows.as_mut_ptr() };
    // SAFETY: a filter of four rows, copied by the kernel.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && if by_prctl {
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
            } else {
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &filter) == 0
            }
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let path = |name: &str| CString::new(format!("{dir}/{name}")).unwrap();
    let (file, new, missing) = (path("f"), path("new"), path("missing"));
    let ring = Mutex::new(IoUring::new(4).expect("a ring"));
    let mkdir = || opcode::MkDirAt::new(HERE, new.as_ptr()).build();
    println!("a worker is there: {}", answer(&ring, unlink(&missing)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(deny(libc::SYS_mkdirat, true));
            println!("mkdir denied: {}", answer(&ring, mkdir()));
            println!("unlink allowed: {}", answer(&ring, unlink(&missing)));
            assert!(deny(libc::SYS_unlinkat, false));
            println!("unlink denied: {}", answer(&ring, unlink(&file)));
            let by_child = || println!("and to its threads: {}", answer(&ring, unlink(&file)));
            std::thread::scope(|scope| _ = scope.spawn(by_child));
        });
    });
    println!("mkdir by another: {}", answer(&ring, mkdir()));
    println!("unlink by another: {}", answer(&ring, unlink(&file)));
}
