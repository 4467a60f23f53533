//! Client of aio(7): aio_read and aio_write of the C library.
#![allow(unsafe_code)]

use super::buf::Slots;
use super::client::{Client, Done, Io};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub struct PosixAio<'a> {
    fd: BorrowedFd<'a>,
    slots: Slots,
    /// One control block per slot. The library keeps pointers to the blocks in flight, so the slice
    /// never grows or moves.
    control: Box<[libc::aiocb]>,
    /// Slots in flight.
    flying: Vec<u32>,
}

impl<'a> PosixAio<'a> {
    pub fn new(depth: u32, fd: BorrowedFd<'a>, slots: Slots) -> Self {
        // SAFETY: an aiocb of zeroes is a valid one: integers, and pointers that are null.
        let empty = || unsafe { std::mem::zeroed::<libc::aiocb>() };
        PosixAio { fd, slots, control: (0..depth).map(|_| empty()).collect(), flying: Vec::new() }
    }

    /// Moves completed I/Os to `done`.
    fn collect(&mut self, done: &mut Vec<Done>) {
        let control = &mut self.control;
        self.flying.retain(|&slot| {
            let cb = &raw mut control[slot as usize];
            // SAFETY: `cb` was given to aio_read or aio_write; aio_return is called once, after it
            // is complete.
            let res = unsafe {
                match libc::aio_error(cb) {
                    libc::EINPROGRESS => return true,
                    0 => libc::aio_return(cb) as i32,
                    e => {
                        libc::aio_return(cb);
                        -e
                    }
                }
            };
            done.push(Done { slot, res });
            false
        });
    }
}

impl Client for PosixAio<'_> {
    fn submit(&mut self, batch: &[Io]) -> io::Result<()> {
        for io in batch {
            let cb = &mut self.control[io.slot as usize];
            cb.aio_fildes = self.fd.as_raw_fd();
            cb.aio_offset = io.offset.cast_signed();
            cb.aio_nbytes = io.len as usize;
            cb.aio_buf = std::ptr::with_exposed_provenance_mut(self.slots.addr(io.slot));
            cb.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
            let cb = std::ptr::from_mut(cb);
            // SAFETY: the control block stays where it is; the slot lives for good.
            let ret = unsafe { if io.write { libc::aio_write(cb) } else { libc::aio_read(cb) } };
            if ret != 0 {
                return Err(io::Error::last_os_error());
            }
            self.flying.push(io.slot);
        }
        Ok(())
    }

    fn wait(&mut self, want: u32, done: &mut Vec<Done>) -> io::Result<()> {
        let before = done.len();
        loop {
            self.collect(done);
            if (done.len() - before) as u32 >= want {
                return Ok(());
            }
            let list: Vec<*const libc::aiocb> =
                self.flying.iter().map(|&s| &raw const self.control[s as usize]).collect();
            // SAFETY: `list` holds pointers to live control blocks; a null timeout waits for ever.
            let ret =
                unsafe { libc::aio_suspend(list.as_ptr(), list.len() as i32, std::ptr::null()) };
            if ret != 0 {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
}
