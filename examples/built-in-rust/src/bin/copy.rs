//! Copies a file on the io-uring crate, which makes its calls by the C library's `syscall`.

use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

const BLOCK: u32 = 65536;

/// Makes one request and waits for its result.
fn result(ring: &mut IoUring, entry: squeue::Entry) -> Result<i32> {
    // SAFETY: file and memory of each request are there until it has completed, below.
    unsafe { ring.submission().push(&entry) }.map_err(Error::other)?;
    ring.submit_and_wait(1)?;
    let completion = ring.completion().next();
    let res =
        completion.as_ref().map(cqueue::Entry::result).ok_or(Error::other("no completion"))?;
    if res < 0 { Err(Error::from_raw_os_error(-res)) } else { Ok(res) }
}

fn main() -> Result<()> {
    if let Err(e) = softring::install() {
        eprintln!("{e}");
    }
    let mut paths = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (paths.next(), paths.next()) else {
        return Err(Error::other("usage: copy FROM TO"));
    };
    let (from, to) = (File::open(from)?, File::create(to)?);
    let mut ring = IoUring::new(8)?;
    let (mut block, mut at) = (vec![0u8; BLOCK as usize], 0);
    loop {
        let read = opcode::Read::new(Fd(from.as_raw_fd()), block.as_mut_ptr(), BLOCK);
        let n = result(&mut ring, read.offset(at).build())?;
        if n == 0 {
            return Ok(());
        }
        let write = opcode::Write::new(Fd(to.as_raw_fd()), block.as_ptr(), n as u32);
        at += result(&mut ring, write.offset(at).build())? as u64;
    }
}
