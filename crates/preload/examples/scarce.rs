//! A program that makes rings until there is no memory for one more: `scarce KIB` may map so much
//! more. It exits with 0 if each ring works and the last setup answers ENOMEM.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, types};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: a live limit.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// Reads a field of proc_pid_status(5), in bytes.
fn status(name: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = all.lines().find(|l| l.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Makes a read by a worker, and one that waits.
fn work(ring: &mut IoUring, file: i32) {
    let (mut a, mut b) = ([0u8; 8], [0u8; 8]);
    let (reader, writer) = std::io::pipe().unwrap();
    let read =
        |fd, buf: &mut [u8; 8]| opcode::Read::new(types::Fd(fd), buf.as_mut_ptr(), 8).build();
    let by_worker = read(file, &mut a).flags(io_uring::squeue::Flags::ASYNC);
    // SAFETY: the buffers live until both have completed.
    unsafe {
        ring.submission().push_multiple(&[by_worker, read(reader.as_raw_fd(), &mut b)]).unwrap()
    };
    ring.submit().unwrap();
    std::io::Write::write_all(&mut &writer, &[1; 8]).unwrap();
    ring.submit_and_wait(2).unwrap();
    assert!(ring.completion().all(|cqe| cqe.result() == 8));
}

fn main() -> ExitCode {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let mut rings = Vec::with_capacity(4096);
    let kib: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).expect("KiB");
    limit(libc::RLIMIT_AS, status("VmSize:") + (kib << 10));
    let error = loop {
        match IoUring::new(256) {
            Ok(mut ring) => {
                work(&mut ring, file.as_raw_fd());
                rings.push(ring);
            }
            Err(error) => break error,
        }
    };
    let errno = error.raw_os_error().unwrap_or(0);
    eprintln!("{} rings, then {error}", rings.len());
    if errno == libc::ENOMEM { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
