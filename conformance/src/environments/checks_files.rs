//! Files: reads and writes of every kind, and calls by path.

use super::checks::{Check, check};
use super::fixture::*;
use super::{Checked, Fault};
use crate::sqe::{self, SqeExt, addr, addr_mut};
use softring_uapi::*;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

pub const CHECKS: &[Check] = &[
    check!(read_write),
    check!(vectors),
    check!(position),
    check!(asynchronous),
    check!(cold),
    check!(direct),
    check!(direct_batch),
    check!(sync, "fallocate"),
    check!(open_close),
    check!(open2),
    check!(stat, "statx"),
    check!(names, "renameat2", "mkdirat", "unlinkat"),
    check!(registered_buffers, "memlock"),
    check!(registered_files),
    check!(slots),
];

fn read_write(f: &Fixture) -> Checked {
    let (file, mut ring, mut buf) = (f.file("rw", b"")?, f.ring(8, 0)?, [0; 8]);
    let fd = file.as_raw_fd();
    expect(&mut ring, "write", sqe::write(fd, b"softring", 0), 8)?;
    expect(&mut ring, "read", sqe::read(fd, &mut buf, 0), 8)?;
    same("data", &buf, b"softring")?;
    expect(&mut ring, "read at the end", sqe::read(fd, &mut buf, 8), 0)?;
    expect(&mut ring, "read of a bad descriptor", sqe::read(-1, &mut buf, 0), -libc::EBADF)
}

fn vectors(f: &Fixture) -> Checked {
    let (file, mut ring) = (f.file("vectors", b"")?, f.ring(8, 0)?);
    let (out, mut a, mut b) = ([*b"soft", *b"ring"], [0; 4], [0; 4]);
    let from = [(addr(&out[0]), 4usize), (addr(&out[1]), 4)];
    let to = [(addr_mut(&mut a), 4usize), (addr_mut(&mut b), 4)];
    let writev = sqe::rw(IORING_OP_WRITEV, file.as_raw_fd(), addr(&from), 2, 0);
    expect(&mut ring, "writev", writev, 8)?;
    let readv = sqe::rw(IORING_OP_READV, file.as_raw_fd(), addr(&to), 2, 0);
    expect(&mut ring, "readv", readv, 8)?;
    same("data", [a, b], out)
}

fn position(f: &Fixture) -> Checked {
    let (file, mut ring, mut buf) = (f.file("position", b"softring")?, f.ring(8, 0)?, [0; 4]);
    let fd = file.as_raw_fd();
    for want in [b"soft", b"ring"] {
        expect(&mut ring, "read here", sqe::read(fd, &mut buf, sqe::HERE), 4)?;
        same("data", &buf, want)?;
    }
    Ok(())
}

fn asynchronous(f: &Fixture) -> Checked {
    let (file, mut ring, mut buf) = (f.file("async", b"")?, f.ring(8, 0)?, [0; 8]);
    let fd = file.as_raw_fd();
    let write = sqe::write(fd, b"softring", 0).with(IOSQE_ASYNC);
    expect(&mut ring, "write by a worker", write, 8)?;
    let read = sqe::read(fd, &mut buf, 0).with(IOSQE_ASYNC);
    expect(&mut ring, "read by a worker", read, 8)?;
    same("data", &buf, b"softring")
}

/// Reads a file that no cache holds, many requests at a time and in no order.
fn cold(f: &Fixture) -> Checked {
    const PIECE: usize = 8192;
    const PIECES: usize = 512;
    const DEPTH: usize = 16;
    let data: Vec<u8> = (0..PIECE * PIECES).map(|i| ((i / 61) ^ (i / 4096)) as u8).collect();
    let (file, mut ring) = (f.file("cold", &data)?, f.ring(DEPTH as u32, 0)?);
    fine("fsync", file.sync_all())?;
    let advice = rustix::fs::Advice::DontNeed;
    fine("fadvise", rustix::fs::fadvise(&file, 0, None, advice).map_err(Into::into))?;
    let mut bufs = vec![vec![0; PIECE]; DEPTH];
    for round in 0..PIECES / DEPTH {
        let pieces: Vec<_> = (0..DEPTH).map(|i| (round * DEPTH + i) * 211 % PIECES).collect();
        let read = |(piece, buf): (&usize, &mut Vec<u8>)| {
            sqe::read(file.as_raw_fd(), buf, (piece * PIECE) as u64)
        };
        let reads = pieces.iter().zip(&mut bufs).map(|both| (read(both), PIECE as i32));
        batch(&mut ring, "reads", &reads.collect::<Vec<_>>())?;
        for (piece, buf) in pieces.iter().zip(&bufs) {
            same("data", buf == &data[piece * PIECE..][..PIECE], true)?;
        }
    }
    Ok(())
}

const BLOCK: usize = 4096;

/// An aligned page for O_DIRECT.
#[repr(align(4096))]
struct Page([u8; BLOCK]);

impl Page {
    fn of(byte: u8) -> Box<Page> {
        Box::new(Page([byte; BLOCK]))
    }
}

fn open_direct(f: &Fixture, name: &str) -> Result<std::fs::File, Fault> {
    f.file(name, &vec![0; 8 * BLOCK])?;
    let mut how = std::fs::File::options();
    let how = how.read(true).write(true).custom_flags(libc::O_DIRECT);
    // A file system without O_DIRECT gets the same requests all the same.
    how.open(f.path(name))
        .or_else(|_| f.file(name, &vec![0; 8 * BLOCK]).map_err(std::io::Error::other))
        .map_err(|e| format!("opening a file: {e}"))
}

fn direct(f: &Fixture) -> Checked {
    let (file, mut ring) = (open_direct(f, "direct")?, f.ring(8, 0)?);
    let (out, mut back) = (Page::of(7), Page::of(0));
    let fd = file.as_raw_fd();
    expect(&mut ring, "write", sqe::write(fd, &out.0, BLOCK as u64), BLOCK as i32)?;
    expect(&mut ring, "read", sqe::read(fd, &mut back.0, BLOCK as u64), BLOCK as i32)?;
    same("data", back.0[..] == out.0[..], true)
}

fn direct_batch(f: &Fixture) -> Checked {
    let (file, mut ring) = (open_direct(f, "batch")?, f.ring(16, 0)?);
    let pages: Vec<Page> = (0..8).map(|byte| *Page::of(byte)).collect();
    let mut back: Vec<Page> = (0..8).map(|_| *Page::of(99)).collect();
    let (fd, at) = (file.as_raw_fd(), |i| (i * BLOCK) as u64);
    let write = |(i, p): (usize, &Page)| (sqe::write(fd, &p.0, at(i)), BLOCK as i32);
    batch(&mut ring, "writes", &pages.iter().enumerate().map(write).collect::<Vec<_>>())?;
    let read = |(i, p): (usize, &mut Page)| (sqe::read(fd, &mut p.0, at(i)), BLOCK as i32);
    batch(&mut ring, "reads", &back.iter_mut().enumerate().map(read).collect::<Vec<_>>())?;
    same("data", pages.iter().zip(&back).all(|(a, b)| a.0 == b.0), true)
}

fn sync(f: &Fixture) -> Checked {
    let (file, mut ring) = (f.file("sync", b"softring")?, f.ring(8, 0)?);
    let fd = file.as_raw_fd();
    let more = sqe::op(IORING_OP_FALLOCATE, fd).set(|s| s.addr = 8192);
    expect(&mut ring, "fallocate", more, 0)?;
    let data = sqe::op(IORING_OP_FSYNC, fd).op_flags(IORING_FSYNC_DATASYNC);
    expect(&mut ring, "fdatasync", data, 0)?;
    expect(&mut ring, "fsync", sqe::op(IORING_OP_FSYNC, fd), 0)
}

fn c_path(f: &Fixture, name: &str) -> Result<CString, Fault> {
    CString::new(f.path(name).as_os_str().as_bytes()).map_err(|e| e.to_string())
}

fn open_close(f: &Fixture) -> Checked {
    let (_, path, mut ring) = (f.file("open", b"softring")?, c_path(f, "open")?, f.ring(8, 0)?);
    let at = path.as_ptr().expose_provenance();
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, at, 0, 0);
    let fd = one(&mut ring, "openat", open)?;
    let mut buf = [0; 8];
    expect(&mut ring, "read", sqe::read(fd, &mut buf, 0), 8)?;
    expect(&mut ring, "close", sqe::op(IORING_OP_CLOSE, fd), 0)?;
    expect(&mut ring, "read of the closed", sqe::read(fd, &mut buf, 0), -libc::EBADF)
}

fn open2(f: &Fixture) -> Checked {
    let (_, path, mut ring) = (f.file("open2", b"softring")?, c_path(f, "open2")?, f.ring(8, 0)?);
    let how = [0u64; 3];
    let at = path.as_ptr().expose_provenance();
    let open = sqe::rw(IORING_OP_OPENAT2, libc::AT_FDCWD, at, 24, addr(&how) as u64);
    let fd = one(&mut ring, "openat2", open)?;
    expect(&mut ring, "close", sqe::op(IORING_OP_CLOSE, fd), 0)
}

fn stat(f: &Fixture) -> Checked {
    let (_, path, mut ring) = (f.file("stat", b"softring")?, c_path(f, "stat")?, f.ring(8, 0)?);
    let mut st = crate::os::zeroed_statx();
    let (at, to) = (path.as_ptr().expose_provenance(), addr_mut(&mut st) as u64);
    let mask = libc::STATX_SIZE as usize;
    expect(&mut ring, "statx", sqe::rw(IORING_OP_STATX, libc::AT_FDCWD, at, mask, to), 0)?;
    same("size", st.stx_size, 8)
}

fn names(f: &Fixture) -> Checked {
    let (_, old, new) = (f.file("old", b"")?, c_path(f, "old")?, c_path(f, "new")?);
    let (dir, mut ring) = (c_path(f, "dir")?, f.ring(8, 0)?);
    let path = |p: &CString| p.as_ptr().expose_provenance();
    let here = libc::AT_FDCWD;
    let rename = sqe::rw(IORING_OP_RENAMEAT, here, path(&old), 0, path(&new) as u64);
    expect(&mut ring, "rename", rename.set(|s| s.len = here.cast_unsigned()), 0)?;
    expect(&mut ring, "unlink", sqe::rw(IORING_OP_UNLINKAT, here, path(&new), 0, 0), 0)?;
    same("it is gone", f.path("new").exists(), false)?;
    expect(&mut ring, "mkdir", sqe::rw(IORING_OP_MKDIRAT, here, path(&dir), 0o700, 0), 0)?;
    same("it is there", f.path("dir").is_dir(), true)
}

fn registered_buffers(f: &Fixture) -> Checked {
    let (file, mut ring) = (f.file("fixed", b"")?, f.ring(8, 0)?);
    let mut buf = Page::of(5);
    let iov = [(addr_mut(&mut buf.0), BLOCK)];
    same("register", ring.register_slice(IORING_REGISTER_BUFFERS, &iov), 0)?;
    let (fd, at) = (file.as_raw_fd(), addr_mut(&mut buf.0));
    let write = sqe::rw(IORING_OP_WRITE_FIXED, fd, at, BLOCK, 0);
    expect(&mut ring, "write", write, BLOCK as i32)?;
    let read = sqe::rw(IORING_OP_READ_FIXED, fd, at, 100, 0);
    expect(&mut ring, "read", read, 100)?;
    same("unregister", ring.register(IORING_UNREGISTER_BUFFERS, 0, 0), 0)
}

fn registered_files(f: &Fixture) -> Checked {
    let (file, mut ring, mut buf) = (f.file("files", b"softring")?, f.ring(8, 0)?, [0; 8]);
    let all = [-1, file.as_raw_fd()];
    same("register", ring.register_slice(IORING_REGISTER_FILES, &all), 0)?;
    drop(file);
    expect(&mut ring, "read", sqe::read(1, &mut buf, 0).fixed(), 8)?;
    same("data", &buf, b"softring")?;
    expect(&mut ring, "read of a free slot", sqe::read(0, &mut buf, 0).fixed(), -libc::EBADF)?;
    same("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0)
}

fn slots(f: &Fixture) -> Checked {
    let (_, path, mut ring) = (f.file("slots", b"softring")?, c_path(f, "slots")?, f.ring(8, 0)?);
    same("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, -1]), 0)?;
    let at = path.as_ptr().expose_provenance();
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, at, 0, 0);
    expect(&mut ring, "open into a slot", sqe::in_slot(open, 1), 0)?;
    let mut buf = [0; 8];
    expect(&mut ring, "read", sqe::read(1, &mut buf, 0).fixed(), 8)?;
    expect(&mut ring, "close", sqe::in_slot(sqe::op(IORING_OP_CLOSE, 0), 1), 0)
}
