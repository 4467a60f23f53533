//! The six system calls through libc's `syscall()`, or (`AIO_INLINE`) by this program's own
//! instructions, as in libaio until 0.3.112; and files and buffers for the cases.

use core::arch::{asm, global_asm};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::null_mut;

pub const PREAD: u16 = 0;
pub const PWRITE: u16 = 1;
pub const FSYNC: u16 = 2;
pub const FDSYNC: u16 = 3;
pub const POLL: u16 = 5;
pub const PREADV: u16 = 7;
pub const PWRITEV: u16 = 8;
pub const RESFD: u32 = 1;
pub const HIPRI: u32 = 4;
pub const BLOCK: usize = 4096;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
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

global_asm!(
    ".irp nr, 206, 207, 208, 209, 210, 333",
    ".type inline_\\nr, @function",
    "inline_\\nr:",
    ".cfi_startproc",
    "mov r10, rcx",
    "mov eax, \\nr",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".size inline_\\nr, . - inline_\\nr",
    ".endr",
);

type Call = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> i64;

unsafe extern "C" {
    fn inline_206(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
    fn inline_207(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
    fn inline_208(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
    fn inline_209(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
    fn inline_210(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
    fn inline_333(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
}

/// Returns -1 with `errno`, or the answer. The kernel checks the addresses among the arguments.
fn call(nr: i64, [a, b, c, d, e, f]: [usize; 6]) -> i64 {
    let inline: Call = match nr {
        206 => inline_206,
        207 => inline_207,
        208 => inline_208,
        209 => inline_209,
        210 => inline_210,
        _ => inline_333,
    };
    // SAFETY: a system call, as a program makes it.
    unsafe {
        if std::env::var_os("AIO_INLINE").is_some() {
            return inline(a, b, c, d, e, f);
        }
        let ret = libc::syscall(nr, a, b, c, d, e, f);
        if ret < 0 { -i64::from(*libc::__errno_location()) } else { ret }
    }
}

/// Makes a call by an instruction that no entry point sees: its number is not known until it runs.
fn unreported(nr: i64, [a, b, c, d, e]: [usize; 5]) -> i64 {
    let ret: i64;
    let nr = std::hint::black_box(nr);
    // SAFETY: a system call; the kernel checks what is passed.
    unsafe {
        asm!(
            "syscall",
            inout("rax") nr => ret,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            out("rcx") _,
            out("r11") _,
        );
    }
    ret
}

/// A context that ends with its owner.
pub struct Aio(pub u64);

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
        call(libc::SYS_io_submit, [self.0 as usize, nr as usize, list.addr(), 0, 0, 0])
    }

    pub fn wait(&self, min: i64, events: &mut [Event], ms: Option<i64>) -> i64 {
        self.wait_at(min, events.len() as i64, events.as_mut_ptr(), ms)
    }

    pub fn wait_at(&self, min: i64, nr: i64, events: *mut Event, ms: Option<i64>) -> i64 {
        let ts = ms.map(|ms| [ms / 1000, ms % 1000 * 1_000_000]);
        let ts = ts.as_ref().map_or(0, |t| t.as_ptr().expose_provenance());
        let args = [self.0 as usize, min as usize, nr as usize, events.expose_provenance(), ts, 0];
        call(libc::SYS_io_getevents, args)
    }

    /// Waits for any time in seconds and nanoseconds, valid or not.
    pub fn wait_for(&self, min: i64, events: &mut [Event], time: [i64; 2]) -> i64 {
        let (nr, at) = (events.len(), events.as_mut_ptr().expose_provenance());
        let ts = time.as_ptr().expose_provenance();
        call(libc::SYS_io_getevents, [self.0 as usize, min as usize, nr, at, ts, 0])
    }

    /// Makes io_pgetevents with a mask that blocks nothing.
    pub fn pwait(&self, min: i64, events: &mut [Event]) -> i64 {
        self.pwait_under(min, events, None, 0)
    }

    /// Makes io_pgetevents with a mask.
    pub fn pwait_under(
        &self,
        min: i64,
        events: &mut [Event],
        time: Option<[i64; 2]>,
        mask: u64,
    ) -> i64 {
        let set = [(&raw const mask).expose_provenance(), 8];
        let set = (&raw const set).expose_provenance();
        let ts = time.as_ref().map_or(0, |t| t.as_ptr().expose_provenance());
        self.pwait_at(min, events, ts, set)
    }

    /// Makes io_pgetevents with any addresses of a time and of a sigset with its size.
    pub fn pwait_at(&self, min: i64, events: &mut [Event], ts: usize, set: usize) -> i64 {
        let (nr, at) = (events.len(), events.as_mut_ptr().expose_provenance());
        call(333, [self.0 as usize, min as usize, nr, at, ts, set])
    }

    pub fn submit_unreported(&self, iocbs: &[&Iocb]) -> i64 {
        unreported(libc::SYS_io_submit, [self.0 as usize, iocbs.len(), iocbs.as_ptr().addr(), 0, 0])
    }

    /// Makes io_getevents for one event, without a time limit.
    pub fn wait_unreported(&self, e: &mut Event) -> i64 {
        let at = std::ptr::from_mut(e).expose_provenance();
        unreported(libc::SYS_io_getevents, [self.0 as usize, 1, 1, at, 0])
    }

    pub fn all(&self, n: usize) -> Vec<Event> {
        let mut events = vec![Event::default(); n];
        assert_eq!(self.wait(n as i64, &mut events, Some(10_000)), n as i64);
        events.sort_by_key(|e| e.data);
        events
    }

    pub fn cancel(&self, iocb: &Iocb) -> i64 {
        let mut e = Event::default();
        let (cb, e) = (address(iocb) as usize, (&raw mut e).expose_provenance());
        call(libc::SYS_io_cancel, [self.0 as usize, cb, e, 0, 0, 0])
    }

    pub fn destroy(&self) -> i64 {
        call(libc::SYS_io_destroy, [self.0 as usize, 0, 0, 0, 0, 0])
    }

    /// Returns words of the ring that is mapped for the program: head, tail, magic.
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
    call(libc::SYS_io_setup, [nr as usize, id.expose_provenance(), 0, 0, 0, 0])
}

/// Creates a file of this process without a name, of `blocks` blocks of zeroes.
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

/// Allocates a buffer that is aligned for O_DIRECT and leaked.
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
