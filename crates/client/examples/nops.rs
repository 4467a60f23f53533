//! Programs of other tests, on the one client: `nops rings N`, `nops forks`, `nops nobody`.
//!
//! `rings` makes N rings, has a NOP on the first, and waits for the end of its input. `forks` has
//! NOPs in itself and in child after child. `nobody` has a NOP as root, becomes nobody, and stays.
#![allow(unsafe_code)]

mod calls;

use calls::Libc;
use softring_client::Ring;
use softring_uapi::io_uring_sqe;
use std::io::{Read, Write};
use std::time::Duration;

const NOBODY: libc::id_t = 65534;

fn ring() -> Ring<Libc> {
    Ring::new(Libc, 8, 0).expect("a ring")
}

fn nop(ring: &mut Ring<Libc>) {
    assert_eq!(ring.push(io_uring_sqe::default()).submit_wait(1), 1);
    assert_eq!(ring.pop().map(|cqe| cqe.res), Some(0));
}

fn nops() {
    let mut ring = ring();
    for _ in 0..20 {
        nop(&mut ring);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn forks() -> ! {
    loop {
        nops();
        // SAFETY: the process has one thread of its own; the child ends by _exit.
        unsafe {
            if libc::fork() == 0 {
                nops();
                libc::_exit(0);
            }
            libc::wait(std::ptr::null_mut());
        }
    }
}

fn nobody() -> ! {
    let mut ring = ring();
    nop(&mut ring);
    // SAFETY: numbers only.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) + libc::setgid(NOBODY) + libc::setuid(NOBODY)
    };
    assert_eq!(done, 0);
    println!("ready");
    std::io::stdout().flush().expect("an output");
    loop {
        std::thread::park();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rings", n] => {
            let mut rings: Vec<Ring<Libc>> =
                (0..n.parse().expect("a number")).map(|_| ring()).collect();
            nop(&mut rings[0]);
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        ["forks"] => forks(),
        ["nobody"] => nobody(),
        _ => panic!("usage: nops rings N | forks | nobody"),
    }
}
