//! Interface between the load loop and the ways of doing I/O, so that all get the same load.

use super::buf::Slots;
use super::job::Job;
use super::{calls, libaio, pool, posix_aio, uring};
use crate::cli::Driver;
use std::io;
use std::os::fd::BorrowedFd;

/// One read or write of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    pub slot: u32,
    pub len: u32,
    pub offset: u64,
    pub write: bool,
}

/// One completion: bytes, or a negative error number.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub slot: u32,
    pub res: i32,
}

/// A way of having many I/Os in flight from one thread.
pub trait Client {
    /// Starts every I/O of `batch`.
    fn submit(&mut self, batch: &[Io]) -> io::Result<()>;

    /// Waits until at least `want` I/Os are complete, and appends all complete ones. The caller
    /// knows that `want` I/Os are in flight.
    fn wait(&mut self, want: u32, done: &mut Vec<Done>) -> io::Result<()>;

    /// Submits and waits, in one system call if the client has one.
    fn turn(&mut self, batch: &[Io], want: u32, done: &mut Vec<Done>) -> io::Result<()> {
        self.submit(batch)?;
        self.wait(want, done)
    }

    /// Returns the side whose ring the client uses; None without a ring.
    fn ring(&self) -> Option<String> {
        None
    }
}

/// Opens the client that `job` asks for.
pub fn open<'a>(job: &Job, fd: BorrowedFd<'a>, slots: Slots) -> io::Result<Box<dyn Client + 'a>> {
    Ok(match job.driver {
        Driver::Kernel | Driver::Softring => Box::new(uring::Uring::new(job, fd, slots)?),
        Driver::Pool => Box::new(pool::Pool::new(job.pool_threads, fd, slots)?),
        Driver::PosixAio => Box::new(posix_aio::PosixAio::new(job.depth, fd, slots)),
        Driver::Libaio => Box::new(libaio::Libaio::new(job.depth, fd, slots)?),
        Driver::Calls => Box::new(calls::Calls::new(fd, slots)),
        Driver::Epoll => return Err(io::ErrorKind::Unsupported.into()),
    })
}
