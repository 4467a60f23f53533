//! Client of kernel aio: io_setup(2), io_submit(2) and io_getevents(2), as libaio uses them.
#![allow(unsafe_code)]

use super::buf::Slots;
use super::client::{Client, Done, Io};
use softring_uapi::aio::{IOCB_CMD_PREAD, IOCB_CMD_PWRITE, io_event, iocb};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub struct Libaio<'a> {
    ctx: usize,
    fd: BorrowedFd<'a>,
    slots: Slots,
    iocbs: Vec<iocb>,
    events: Vec<io_event>,
}

impl<'a> Libaio<'a> {
    pub fn new(depth: u32, fd: BorrowedFd<'a>, slots: Slots) -> io::Result<Self> {
        let mut ctx = 0usize;
        // SAFETY: the kernel writes one word to `ctx`.
        if unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut ctx) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let (iocbs, events) = (Vec::new(), vec![io_event::default(); depth as usize]);
        Ok(Libaio { ctx, fd, slots, iocbs, events })
    }
}

impl Client for Libaio<'_> {
    fn submit(&mut self, batch: &[Io]) -> io::Result<()> {
        self.iocbs.clear();
        self.iocbs.extend(batch.iter().map(|io| iocb {
            aio_data: u64::from(io.slot),
            aio_lio_opcode: if io.write { IOCB_CMD_PWRITE } else { IOCB_CMD_PREAD },
            aio_fildes: self.fd.as_raw_fd() as u32,
            aio_buf: self.slots.addr(io.slot) as u64,
            aio_nbytes: u64::from(io.len),
            aio_offset: io.offset.cast_signed(),
            ..Default::default()
        }));
        let list: Vec<*const iocb> = self.iocbs.iter().map(std::ptr::from_ref).collect();
        let mut sent = 0;
        while sent < list.len() {
            let rest = &list[sent..];
            // SAFETY: the kernel copies the iocbs during the call; the slots that they name live
            // for good.
            let n =
                unsafe { libc::syscall(libc::SYS_io_submit, self.ctx, rest.len(), rest.as_ptr()) };
            match n {
                0.. => sent += n as usize,
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    fn wait(&mut self, want: u32, done: &mut Vec<Done>) -> io::Result<()> {
        let mut got = 0;
        while got < want {
            let (at, max) = (self.events.as_mut_ptr(), self.events.len());
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: the kernel writes at most `max` events to `at`.
            let n = unsafe {
                let min = (want - got) as usize;
                libc::syscall(libc::SYS_io_getevents, self.ctx, min, max, at, forever)
            };
            if n < 0 {
                let e = io::Error::last_os_error();
                if e.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(e);
            }
            let events = &self.events[..n as usize];
            done.extend(events.iter().map(|e| Done { slot: e.data as u32, res: e.res as i32 }));
            got += n as u32;
        }
        Ok(())
    }
}

impl Drop for Libaio<'_> {
    fn drop(&mut self) {
        // SAFETY: a context made by `new`; the kernel waits for what is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.ctx) };
    }
}
