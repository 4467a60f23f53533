//! Files open with O_DIRECT, on the disk of the build directory.

use softring_testing::skipped;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::client::sqe;
use softring_uapi::*;

pub const BLOCK: usize = 4096;
const O_DIRECT: i32 = 0o40000;

/// Block of its own, aligned for O_DIRECT.
#[derive(Clone)]
#[repr(align(4096))]
pub struct Block(pub [u8; BLOCK]);

impl Block {
    pub fn addr(&mut self) -> u64 {
        self.0.as_mut_ptr().expose_provenance() as u64
    }
}

/// Keeps blocks until the process ends: closing a ring does not wait for the disk, which may still
/// write to them.
#[allow(dead_code)]
pub fn keep(blocks: Vec<Block>) {
    static BUFFERS: std::sync::Mutex<Vec<Vec<Block>>> = std::sync::Mutex::new(Vec::new());
    BUFFERS.lock().unwrap().push(blocks);
}

/// Makes a file of `blocks` blocks, each filled with its number, open with O_DIRECT; `None` if the
/// file system does not support it.
#[allow(dead_code)]
pub fn file(blocks: u8) -> Option<File> {
    file_in(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")), blocks)
}

/// Does the same in a folder.
pub fn file_in(folder: &std::path::Path, blocks: u8) -> Option<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("blocks-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = folder.join(name);
    let mut plain = File::create(&path).unwrap();
    for i in 0..blocks {
        plain.write_all(&[i; BLOCK]).unwrap();
    }
    plain.sync_all().unwrap();
    let open = File::options().read(true).write(true).custom_flags(O_DIRECT).open(&path);
    std::fs::remove_file(&path).unwrap();
    match open {
        Ok(f) => Some(f),
        Err(e) => {
            skipped!("no O_DIRECT here: {e}");
            None
        }
    }
}

pub fn read(f: &File, to: &mut Block, block: u64, ud: u64) -> io_uring_sqe {
    let (fd, off) = (f.as_raw_fd(), block * BLOCK as u64);
    io_uring_sqe { fd, addr: to.addr(), len: BLOCK as u32, off, ..sqe(IORING_OP_READ, ud) }
}
