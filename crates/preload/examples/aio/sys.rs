//! The six system calls through libc's `syscall()`, and what the cases need of files and buffers.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::{null, null_mut};

pub const PREAD: u16 = 0;
pub const PWRITE: u16 = 1;
pub const FSYNC: u16 = 2;
pub const POLL: u16 = 5;
pub const PREADV: u16 = 7;
pub const PWRITEV: u16 = 8;
pub const RESFD: u32 = 1;
pub const HIPRI: u32 = 4;
pub const BLOCK: usize = 4096;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Iocb {
    pub data: u64,
    pub key: u32,
    pub rw_flags: i32,
    pub opcode: u16,
    pub reqprio: i16,
    pub fd: i32,
    pub buf: u64,
    pub nbytes: u64,
    pub offset: i64,
    pub reserved2: u64,
    pub flags: u32,
    pub resfd: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Event {
    pub data: u64,
    pub obj: u64,
    pub res: i64,
    pub res2: i64,
}

/// A context, ended with its owner.
pub struct Aio(pub u64);

fn answer(ret: i64) -> i64 {
    // SAFETY: libc's own pointer.
    if ret < 0 { -i64::from(unsafe { *libc::__errno_location() }) } else { ret }
}

impl Aio {
    pub fn new(nr: u32) -> Aio {
        let mut id = 0u64;
        assert_eq!(setup(nr, &mut id), 0);
        Aio(id)
    }

    pub fn submit(&self, iocbs: &[&Iocb]) -> i64 {
        self.submit_at(iocbs.len() as i64, iocbs.as_ptr().cast())
    }

    pub fn submit_at(&self, nr: i64, list: *const *const Iocb) -> i64 {
        // SAFETY: as a program does it; the kernel checks the addresses.
        answer(unsafe { libc::syscall(libc::SYS_io_submit, self.0, nr, list) })
    }

    pub fn wait(&self, min: i64, events: &mut [Event], ms: Option<i64>) -> i64 {
        self.wait_at(min, events.len() as i64, events.as_mut_ptr(), ms)
    }

    pub fn wait_at(&self, min: i64, nr: i64, events: *mut Event, ms: Option<i64>) -> i64 {
        let ts = ms.map(|ms| [ms / 1000, ms % 1000 * 1_000_000]);
        let ts = ts.as_ref().map_or(null(), |t| t.as_ptr());
        // SAFETY: as above.
        answer(unsafe { libc::syscall(libc::SYS_io_getevents, self.0, min, nr, events, ts) })
    }

    /// io_pgetevents with a mask that lets everything through.
    pub fn pwait(&self, min: i64, events: &mut [Event]) -> i64 {
        let mask = 0u64;
        let set = [(&raw const mask).expose_provenance(), 8];
        let (nr, at) = (events.len(), events.as_mut_ptr());
        // SAFETY: as above.
        answer(unsafe {
            libc::syscall(333, self.0, min, nr, at, null::<u8>(), (&raw const set).addr())
        })
    }

    pub fn all(&self, n: usize) -> Vec<Event> {
        let mut events = vec![Event::default(); n];
        assert_eq!(self.wait(n as i64, &mut events, Some(10_000)), n as i64);
        events.sort_by_key(|e| e.data);
        events
    }

    pub fn cancel(&self, iocb: &Iocb) -> i64 {
        let mut e = Event::default();
        // SAFETY: as above.
        answer(unsafe { libc::syscall(libc::SYS_io_cancel, self.0, &raw const *iocb, &raw mut e) })
    }

    pub fn destroy(&self) -> i64 {
        // SAFETY: as above.
        answer(unsafe { libc::syscall(libc::SYS_io_destroy, self.0) })
    }

    /// Words of the ring that is mapped for the program: head, tail, magic.
    pub fn ring(&self) -> [u32; 3] {
        let at = std::ptr::with_exposed_provenance::<u32>(self.0 as usize);
        // SAFETY: the context's id is the ring's address, by the kernel's ABI.
        [2, 3, 4].map(|i| unsafe { at.add(i).read_volatile() })
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        self.destroy();
    }
}

pub fn setup(nr: u32, id: *mut u64) -> i64 {
    // SAFETY: the kernel writes one word, or refuses the address.
    answer(unsafe { libc::syscall(libc::SYS_io_setup, nr, id) })
}

/// A file of this process's own without a name, of `blocks` blocks of zeroes.
pub fn file(direct: bool, blocks: usize) -> File {
    let dir = std::env::var("AIO_DIR").unwrap_or_else(|_| ".".into());
    let name = format!("{dir}/aio-{}-{direct}", std::process::id());
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(true);
    how.custom_flags(if direct { libc::O_DIRECT } else { 0 });
    let file = how.open(&name).unwrap();
    std::fs::remove_file(name).unwrap();
    file.set_len((blocks * BLOCK) as u64).unwrap();
    file
}

/// Aligned as O_DIRECT wants it; leaked.
pub fn buffer(blocks: usize, fill: u8) -> &'static mut [u8] {
    let mut at = null_mut();
    // SAFETY: `at` is ours; the memory is initialised before a reference to it exists.
    unsafe {
        assert_eq!(libc::posix_memalign(&raw mut at, BLOCK, blocks * BLOCK), 0);
        at.cast::<u8>().write_bytes(fill, blocks * BLOCK);
        std::slice::from_raw_parts_mut(at.cast(), blocks * BLOCK)
    }
}

pub fn rw(opcode: u16, file: &File, buf: &mut [u8], block: i64, data: u64) -> Iocb {
    Iocb {
        data,
        opcode,
        fd: file.as_raw_fd(),
        buf: buf.as_mut_ptr().expose_provenance() as u64,
        nbytes: buf.len() as u64,
        offset: block * BLOCK as i64,
        ..Iocb::default()
    }
}

pub fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of).expose_provenance() as u64
}

pub fn err(errno: i32) -> i64 {
    -i64::from(errno)
}
