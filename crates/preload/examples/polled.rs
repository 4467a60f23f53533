//! A program that reads a block of the given file by polled I/O (IOPOLL), and prints its first
//! byte.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

#[repr(align(4096))]
struct Block([u8; 4096]);

fn run(path: &str) -> Result<u8, String> {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.map_err(|e| format!("{path}: {e}"))?;
    let mut ring: IoUring =
        IoUring::builder().setup_iopoll().build(4).map_err(|e| format!("setup: {e}"))?;
    let mut block = Block([0; 4096]);
    let at = types::Fd(file.as_raw_fd());
    let read = opcode::Read::new(at, block.0.as_mut_ptr(), 4096).build();
    // SAFETY: the block outlives the wait for its read.
    unsafe { ring.submission().push(&read) }.map_err(|e| e.to_string())?;
    ring.submit_and_wait(1).map_err(|e| format!("enter: {e}"))?;
    match ring.completion().next().map(|cqe| cqe.result()) {
        Some(4096) => Ok(block.0[0]),
        Some(res) => Err(format!("read: {}", std::io::Error::from_raw_os_error(-res))),
        None => Err("no completion".into()),
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).map(|path| run(&path)) {
        Some(Ok(byte)) => {
            println!("{byte}");
            ExitCode::SUCCESS
        }
        Some(Err(e)) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
        None => ExitCode::FAILURE,
    }
}
