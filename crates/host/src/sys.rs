//! Raw system calls of the host. They use no libc name that an entry point interposes, so there is
//! no recursion. Those of [`crate::os`] serve for our own objects. These calls serve
//! where the program's pointers go to the kernel unchecked: a bad one is `-EFAULT` and never a
//! SIGSEGV.
#![allow(unsafe_code)]

use alloc::string::String;
use core::arch::asm;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::time::Duration;

use crate::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::refused;
use crate::user::Plain;
use softring_uapi::errno::{Errno, Result, check};

pub(crate) use crate::raw::set_sigmask;
pub use crate::raw::{args, nr, syscall, thread};
pub use waits::*;

mod waits;

/// Makes a [`syscall`] by a number of [`nr`].
///
/// # Safety
/// As [`syscall`].
#[inline(always)]
pub(crate) unsafe fn syscall6(n: u32, a: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { syscall(n as usize, &a) }
}

/// Makes a [`syscall6`] whose number is known only then. One site serves all callers: inline, some
/// had no room for a patch, and then a copy in a program counts as a call that may make a ring.
///
/// # Safety
/// As [`syscall`].
#[inline(never)]
pub(crate) unsafe fn any_syscall(n: u32, a: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { syscall6(n, a) }
}

/// Makes a [`syscall6`] that a policy may refuse; returns `ENOSYS` then, whatever the policy
/// answers.
///
/// # Safety
/// As [`syscall6`].
#[inline(always)]
pub(crate) unsafe fn call<const NR: u32>(name: &'static str, a: [usize; 6]) -> isize {
    if refused::withheld::<NR>() {
        return refused::answer_without::<NR>(name);
    }
    // SAFETY: the caller's.
    refused::again::<NR>(unsafe { syscall6(NR, a) })
}

/// Makes a [`call`] that may sleep.
///
/// # Safety
/// As [`syscall6`].
#[inline(always)]
pub(crate) unsafe fn sleeping_call<const NR: u32>(name: &'static str, a: [usize; 6]) -> isize {
    if refused::withheld::<NR>() {
        return refused::answer_without::<NR>(name);
    }
    // SAFETY: the caller's.
    refused::again::<NR>(unsafe { crate::handlers::interruptible(NR, a) })
}

/// System call by the name of its number in [`nr`], with up to six arguments, which `as` makes
/// words; unsafe as [`syscall6`] is.
macro_rules! sys {
    ($n:ident $(, $a:expr)* $(,)?) => {
        $crate::sys::call::<{ $crate::sys::nr::$n }>(
            stringify!($n),
            $crate::sys::args([$($a as usize),*]),
        )
    };
}
pub(crate) use sys;

/// System call like that of `sys!` that may sleep: a signal whose handler waits for the end of our
/// call ends it, however early the signal comes.
macro_rules! sleeps {
    ($n:ident $(, $a:expr)* $(,)?) => {
        $crate::sys::sleeping_call::<{ $crate::sys::nr::$n }>(
            stringify!($n),
            $crate::sys::args([$($a as usize),*]),
        )
    };
}
pub(crate) use sleeps;

/// Calls `FUTEX_WAIT` on a word shared between processes. Returns true if the time ran out.
pub fn futex_wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) -> bool {
    let ts = timeout.map(|d| [d.as_secs(), u64::from(d.subsec_nanos())]);
    let ts = ts.as_ref().map_or(0, |t| t.as_ptr().expose_provenance());
    let word = word.as_ptr().expose_provenance();
    // SAFETY: the word and the time are ours, and only read.
    unsafe { sys!(__NR_futex, word, 0, seen, ts) == -110 }
}

/// Calls `FUTEX_WAKE` on a word shared between processes.
pub fn futex_wake(word: &AtomicU32, n: u32) {
    // SAFETY: nothing is read there, nor written.
    unsafe { sys!(__NR_futex, word.as_ptr().expose_provenance(), 1, n) };
}

/// Takes over a descriptor that a system call has just made.
///
/// # Safety
/// The number is open, and the caller is the only one to answer for it.
pub(crate) unsafe fn own(fd: i32) -> OwnedFd {
    // SAFETY: the caller's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Returns the descriptor that a system call has answered, or its error.
///
/// # Safety
/// The answer is that of a call which makes a descriptor for us.
pub(crate) unsafe fn owned(answer: isize) -> Result<OwnedFd> {
    // SAFETY: the caller's.
    check(answer).map(|fd| unsafe { own(fd as i32) })
}

/// Descriptor of the engine's own. A raw system call closes it: a libc close would come back in
/// through the entry points, under whatever lock is held.
#[derive(Debug)]
pub struct EngineFd {
    fd: ManuallyDrop<OwnedFd>,
    stays: bool,
}

impl EngineFd {
    /// Returns another owner of the number, and takes this owner's right to close it; `None` if
    /// that was done before.
    pub(crate) fn take(&mut self) -> Option<EngineFd> {
        let taken = core::mem::replace(&mut self.stays, true);
        // SAFETY: the number was `self`'s, and is the new one's alone: `stays` is never taken back.
        (!taken).then(|| unsafe { own(self.as_raw_fd()) }.into())
    }
}

impl From<OwnedFd> for EngineFd {
    fn from(fd: OwnedFd) -> EngineFd {
        EngineFd { fd: ManuallyDrop::new(fd), stays: false }
    }
}

impl AsFd for EngineFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EngineFd {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for EngineFd {
    fn drop(&mut self) {
        if !self.stays {
            // SAFETY: ours, and nobody uses it past this.
            unsafe { sys!(__NR_close, self.as_raw_fd()) };
        }
    }
}

/// Returns a socket's option, as `getsockopt(2)` reports it; bytes that the call does not fill stay
/// 0.
///
/// # Errors
/// As getsockopt(2).
pub fn socket_option<T: Plain>(fd: i32, level: u32, name: u32) -> Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as u32);
    let (to, size) = ((&raw mut value).expose_provenance(), (&raw mut len).expose_provenance());
    // SAFETY: both are ours, and the kernel is told how long the value is; any bytes are one.
    check(unsafe { sys!(__NR_getsockopt, fd, level, name, to, size) }).map(|_| value)
}

pub use nr::{EPOLLET, EPOLLIN};

/// The C library's own signals: 32 and 33 of glibc (cancel, setxid).
const GLIBCS: u64 = 0b11 << 31;
/// Signals of glibc, and 34 of musl (synccall), which in glibc is the program's first (SIGRTMIN).
const MUSLS: u64 = 0b111 << 31;
static LIBC_SIGNALS: AtomicU64 =
    AtomicU64::new(if cfg!(target_env = "musl") { MUSLS } else { GLIBCS });

/// Notes that the program's C library is musl, whatever this crate was built for. Call this before
/// the first ring is made.
pub fn runs_on_musl() {
    LIBC_SIGNALS.store(MUSLS, Relaxed);
}

/// Returns the C library's own signals, as a mask.
pub(crate) fn libc_signals() -> u64 {
    // Relaxed: set before there are threads of ours.
    LIBC_SIGNALS.load(Relaxed)
}

/// Returns every signal but the C library's own: the mask for a thread of ours. If a thread blocked
/// glibc's 33 or musl's 34, `setuid(3)` of the program would wait for that thread for ever.
pub(crate) fn all_signals() -> u64 {
    !libc_signals()
}

crate::per_thread! {
    /// Process in which this thread's id was read, and that id.
    static TID: core::cell::Cell<(u32, i32)> = const { core::cell::Cell::new((0, 0)) };
}

/// Returns the thread's id (`gettid(2)`), read once per thread and again in a forked child.
pub fn gettid() -> i32 {
    let pid = crate::fork::pid();
    let (asked_in, tid) = TID.get();
    if asked_in == pid && pid != 0 { tid } else { read_tid(pid) }
}

#[cold]
#[inline(never)]
fn read_tid(pid: u32) -> i32 {
    // SAFETY: takes nothing.
    let tid = unsafe { sys!(__NR_gettid) } as i32;
    TID.set((pid, tid));
    crate::per_thread::numbered(tid.cast_unsigned());
    tid
}

/// Returns the processor's time-stamp counter.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it; user space may read it unless prctl(PR_SET_TSC) says
    // otherwise, which a program that does so to itself would feel in its vdso clock as well.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns the stack pointer.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let at: usize;
    // SAFETY: only reads the register.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// Calls `FUTEX_WAIT`, and tells why it returned.
///
/// # Errors
/// `EINTR` (a handler ran, or the process was stopped), `ETIMEDOUT`, `EAGAIN` (the word had
/// changed).
pub fn futex_wait_sig(word: &AtomicU32, seen: u32, timeout: Option<Duration>) -> Result<()> {
    let ts = timeout.map(|d| [d.as_secs(), u64::from(d.subsec_nanos())]);
    let ts = ts.as_ref().map_or(0, |t| t.as_ptr().expose_provenance());
    ends_by_stop(|| {
        let word = word.as_ptr().expose_provenance();
        // SAFETY: the word and the time are ours, and only read.
        check(unsafe { sleeps!(__NR_futex, word, 0, seen, ts) }).map(|_| ())
    })
}

/// Runs a sleep that the kernel begins anew when the process was stopped and goes on: `EINTR` then.
fn ends_by_stop(sleep: impl FnOnce() -> Result<()>) -> Result<()> {
    let stops = crate::handlers::stops();
    let slept = sleep();
    if crate::handlers::stops() == stops { slept } else { Err(Errno::EINTR) }
}

/// Number of a descriptor that another may close at any time, for calls that query or use whatever
/// it means then. A borrow of the descriptor ends with the value; a number that is closed by then
/// answers `EBADF`.
#[derive(Clone, Copy, Debug)]
pub struct Number(i32);

impl AsFd for Number {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not -1 (`borrow`). Whoever owns the descriptor may close it meanwhile: a system
        // call on the number is all that is done with it, and the kernel checks the number.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

/// Wraps a number of the program's for system calls at once; `None` for a negative one.
pub fn borrow(fd: i32) -> Option<Number> {
    (fd >= 0).then_some(Number(fd))
}

/// Returns the flags of the program's open file `fd` (`F_GETFL`); `None` if it is not open.
#[inline]
pub fn file_flags(fd: i32) -> Option<crate::os::fs::OFlags> {
    crate::os::fs::fcntl_getfl(borrow(fd)?).ok()
}

/// Returns whether the program's file `fd` blocks; true if it is not open.
pub fn blocks(fd: i32) -> bool {
    file_flags(fd).is_none_or(|flags| !flags.contains(crate::os::fs::OFlags::NONBLOCK))
}

/// Returns whether two numbers mean the same open file; `None` if the kernel does not tell: before
/// Linux 6.10 fcntl(2) cannot, and kcmp(2) may be denied. False if one of them is closed.
pub fn same_open_file(a: i32, b: i32) -> Option<bool> {
    const F_DUPFD_QUERY: u32 = 1027;
    static OLD: AtomicBool = AtomicBool::new(false);
    if !OLD.load(Relaxed) {
        // SAFETY: numbers.
        match check(unsafe { sys!(__NR_fcntl, a, F_DUPFD_QUERY, b) }) {
            Ok(same) => return Some(same == 1),
            Err(Errno::EBADF) => return Some(false),
            Err(_) => OLD.store(true, Relaxed),
        }
    }
    // The process's own id names its first thread, which may have ended.
    let me = gettid();
    // SAFETY: numbers.
    match check(unsafe { sys!(__NR_kcmp, me, me, 0, a, b) }) {
        Ok(order) => Some(order == 0),
        Err(Errno::EBADF) => Some(false),
        Err(_) => None,
    }
}

/// Lets the calling thread's sleeps end as close to their time as the kernel can. Otherwise they
/// may end up to 50 µs later, so that the kernel wakes a processor less often
/// (`PR_SET_TIMERSLACK`).
pub fn exact_timers() {
    crate::per_thread! {
        static EXACT: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    }
    if !EXACT.replace(true) {
        set_timer_slack(1);
    }
}

/// Returns the blocked signals that are pending for the calling thread (`rt_sigpending(2)`).
pub fn pending_signals() -> u64 {
    let mut set = 0u64;
    // SAFETY: the set is ours, of eight bytes.
    unsafe { sys!(__NR_rt_sigpending, (&raw mut set).expose_provenance(), 8) };
    set
}

/// Takes a pending signal of `set`, if there is one, so that nothing handles it:
/// `rt_sigtimedwait(2)` without waiting.
pub fn take_signal(set: u64) {
    let (set, now) = (core::ptr::from_ref(&set), [0u64; 2]);
    let (set, now) = (set.expose_provenance(), now.as_ptr().expose_provenance());
    // SAFETY: both are only read.
    unsafe { sys!(__NR_rt_sigtimedwait, set, 0, now, 8) };
}

/// Returns how late the calling thread's timers may fire, in ns (`PR_GET_TIMERSLACK`).
pub fn timer_slack() -> usize {
    const PR_GET_TIMERSLACK: usize = 30;
    // SAFETY: numbers.
    unsafe { sys!(__NR_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0) }.max(1).cast_unsigned()
}

/// Sets how late the calling thread's timers may fire, in ns (`PR_SET_TIMERSLACK`).
pub fn set_timer_slack(ns: usize) {
    const PR_SET_TIMERSLACK: usize = 29;
    // SAFETY: numbers.
    unsafe { sys!(__NR_prctl, PR_SET_TIMERSLACK, ns, 0, 0, 0) };
}

/// Names the calling thread; the kernel takes 15 bytes.
pub(crate) fn name_thread(name: &str) {
    set_name(name.as_bytes());
}

/// Names the calling thread by any bytes; see [`name_thread`].
pub fn set_name(name: &[u8]) {
    const PR_SET_NAME: usize = 15;
    let mut comm = [0u8; 16];
    let len = name.len().min(comm.len() - 1);
    comm[..len].copy_from_slice(&name[..len]);
    // SAFETY: the kernel reads there, up to a zero.
    unsafe { sys!(__NR_prctl, PR_SET_NAME, comm.as_ptr().expose_provenance(), 0, 0, 0) };
}

/// Returns the process's name, as in proc_pid_comm(5), ended by zeroes; all zeroes without /proc.
pub fn process_name() -> [u8; 16] {
    use crate::os::fs::{Mode, OFlags, open};
    let mut name = [0u8; 16];
    if let Ok(fd) = open(c"/proc/self/comm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        let n = crate::os::io::read(EngineFd::from(fd), &mut name).unwrap_or(0);
        name[n.saturating_sub(1)..].fill(0);
    }
    name
}

/// Returns the user and group for the calling thread's file access, as in proc_pid_status(5).
pub fn file_ids_by_proc() -> Option<(u32, u32)> {
    use crate::os::fs::{Mode, OFlags, open};
    let mut text = [0u8; 1024];
    let path = c"/proc/thread-self/status";
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let n = crate::os::io::read(EngineFd::from(fd), &mut text).ok()?;
    // The first line has a name, which may be any bytes.
    let text = String::from_utf8_lossy(&text[..n]);
    // The ids are real, effective, saved, and for file access.
    let of = |what| text.lines().find_map(|l| l.strip_prefix(what))?.split('\t').next_back();
    Some((of("Uid:")?.parse().ok()?, of("Gid:")?.parse().ok()?))
}

/// Returns the voluntary context switches of the calling thread, as `getrusage(2)` counts them.
pub(crate) fn voluntary_switches() -> u32 {
    const RUSAGE_THREAD: usize = 1;
    /// Index of `ru_nvcsw` among the words of `struct rusage` (two times of two words, then
    /// fourteen counts).
    const NVCSW: usize = 16;
    let mut usage = [0u64; 18];
    // SAFETY: a `struct rusage` is that long, and these words are ours.
    unsafe { sys!(__NR_getrusage, RUSAGE_THREAD, usage.as_mut_ptr().expose_provenance()) };
    usage[NVCSW] as u32
}
