//! Call sites that issue `syscall` inline: liburing's, dynamic and static, fio's, rustix's.
//!
//! ```text
//! modules   which text there is, and when there is more
//! resident  that reading it does not leave it resident
//! scan      where 425..=427 and `syscall` occur in it, at the speed of memory
//! frames    the function around such a place, from .eh_frame
//! unframed  whether it stands there, where no frames tell
//! flow      that function, decoded: which numbers may reach its `syscall`
//! site      what to replace there, decided on decoded instructions
//! stub      the code that is jumped to instead, near its site
//! text      the writing
//! libcs     libc's own `syscall()`, which programs reach past our name
//! entry     from a stub to `gate::call`, with every register kept
//! ```
//!
//! **What is replaced.** A site is `mov $nr,%eax … syscall` in a straight line. Only the `mov` is
//! overwritten, by a jump of its own length: no instruction boundary vanishes, so a branch to
//! anywhere still finds what it expects, and a thread between the two instructions just makes its
//! call. Where the number reaches eax otherwise (GCC hoists it into a register before a loop), the
//! window around `syscall` itself is moved into the stub, which then checks eax; that needs proof
//! that nothing jumps into the window, and that no thread is in it.
//!
//! **When.** At start, from our constructor; later, for each library as the dynamic loader maps it,
//! before its first instruction runs: [`modules::watch`] has the loader's debugger hook call us.
//! Wrapping `dlopen` would come after the library's constructors, and would make us the caller
//! whose RUNPATH the loader consults.
//!
//! Programs also close a ring inline, and may map it so. Such sites are patched with a module's
//! others; in modules that have no others, only once there is a ring of ours. To miss one is no
//! gap: the engine notices closed rings by itself.
//!
//! Those of kernel aio (libaio before 0.3.113, programs linked with it) are, in any module, at
//! start. To miss one means that polled contexts are not to be had, and nothing else.
//!
//! What is found but cannot be replaced is a gap: `intercept::close_gaps` puts the trap there, or
//! refuses our rings.
#![allow(unsafe_code)]

pub mod entry;
mod flow;
mod frames;
mod libcs;
mod modules;
mod resident;
mod scan;
mod site;
pub mod straddle;
pub mod stub;
mod text;
mod unframed;

use crate::{config, report};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use modules::Module;
use resident::PageMap;
use softring_host::refused;
use std::sync::{Mutex, OnceLock};

/// A module that was scanned, and how many sites in it could not be patched.
#[derive(Default)]
struct Seen {
    base: usize,
    text: usize,
    gaps: usize,
    /// How many of them may make a ring.
    setups: usize,
    /// The module's sites of `mmap` and `close` were looked for.
    others: bool,
    /// Offsets until then at which `syscall` stands in it.
    syscalls: Vec<usize>,
    /// How many of them were left.
    missed: usize,
    /// How many of kernel aio's were.
    aio: usize,
}

/// Call sites that may make a ring and could not be patched.
static SETUPS_LEFT: AtomicUsize = AtomicUsize::new(0);
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
/// Sites of `mmap` and `close` that were found and left.
static MISSED: AtomicUsize = AtomicUsize::new(0);
/// Rings of ours exist, so `mmap` and `close` matter in every module.
static RINGS: AtomicBool = AtomicBool::new(false);

/// Are there modules that could not be read?
static UNREAD: AtomicBool = AtomicBool::new(false);
/// Is libc's own `syscall()` one that goes past us?
static LIBC_LEFT: AtomicBool = AtomicBool::new(false);

/// Patches what is loaded, and arranges for what will be.
pub fn open() {
    let patched = libcs::patch();
    report::SITES.add_many(patched.into());
    // Relaxed: before there are threads.
    LIBC_LEFT.store(!patched, Ordering::Relaxed);
    update(false);
    modules::watch();
}

/// Only counts what is loaded, as sites that go past us.
pub fn count() {
    update(false);
}

/// Is nothing to be patched?
fn counts_only() -> bool {
    config::intercept() == config::Intercept::None
}

/// What is called to read a module and to patch it.
const CALLS: [i64; 11] = [
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_rt_sigprocmask,
    libc::SYS_clock_gettime,
];

/// The loader has mapped or unmapped something; new modules have not run yet.
pub fn changed() {
    if !CALLS.into_iter().all(refused::spares) {
        // The program's own filter may kill for what it takes to read them: nobody knows their
        // sites, of which one may make a ring.
        if !UNREAD.swap(true, Ordering::Relaxed) {
            report::GAPS.set(report::GAPS.get() as usize + 1);
            SETUPS_LEFT.fetch_add(1, Ordering::Relaxed);
        }
    } else if modules::consistent() {
        update(true);
        super::see_to_setups();
    }
}

/// The engine is about to make a ring.
pub fn before_ring() {
    // Relaxed: whoever sees it late patches a module twice as late.
    if !RINGS.load(Ordering::Relaxed) && !RINGS.swap(true, Ordering::Relaxed) {
        update(false);
    }
}

/// Does every inline `close` that was found reach us?
pub fn reports_closes() -> bool {
    missed() == 0
}

/// Inline `close` and `mmap` sites that were found and left alone.
pub fn missed() -> usize {
    MISSED.load(Ordering::Relaxed)
}

/// Call sites that may make a ring and go past us.
pub fn setups_left() -> usize {
    SETUPS_LEFT.load(Ordering::Relaxed)
}

/// This library's own text. Looked for once, at start: the loader's lock may be held for ever in a
/// forked child.
pub fn own_text() -> Option<core::ops::Range<usize>> {
    static OWN: OnceLock<Option<core::ops::Range<usize>>> = OnceLock::new();
    OWN.get_or_init(|| modules::own_text().map(|t| t.start..t.start + t.len)).clone()
}

/// `fresh`: no thread can be in the text of a module not seen before.
fn update(fresh: bool) {
    // Never waits: the loader's own lock is held here. It is free unless a fork caught another
    // thread inside.
    let Ok(mut seen) = SEEN.try_lock() else { return };
    let started = cpu_time();
    let modules = modules::loaded();
    seen.retain(|s| modules.iter().any(|m| (m.base, m.text_start()) == (s.base, s.text)));
    let pages = PageMap::default();
    for m in &modules {
        let key = (m.base, m.text_start());
        if seen.iter().all(|s| (s.base, s.text) != key) {
            let before = pages.before(m);
            seen.push(patch(m, fresh));
            pages.restore(&before);
        }
    }
    if RINGS.load(Ordering::Relaxed) {
        for s in seen.iter_mut().filter(|s| !s.others) {
            s.others = true;
            let syscalls = core::mem::take(&mut s.syscalls);
            if let Some(m) = modules.iter().find(|m| (m.base, m.text_start()) == (s.base, s.text)) {
                let (sites, left) = site::others(m, &syscalls);
                let done = if sites.is_empty() { 0 } else { text::replace(m, &sites, fresh).len() };
                report::SITES.add_many(done);
                s.missed = left + sites.len() - done;
            }
        }
    }
    MISSED.store(seen.iter().map(|s| s.missed).sum(), Ordering::Relaxed);
    if !reports_closes() {
        softring_host::fd::closes_are_all_reported(false);
    }
    softring_engine::libaio::all_calls_reported(seen.iter().all(|s| s.aio == 0));
    let libcs = usize::from(LIBC_LEFT.load(Ordering::Relaxed))
        + usize::from(UNREAD.load(Ordering::Relaxed));
    report::GAPS.set(seen.iter().map(|s| s.gaps).sum::<usize>() + libcs);
    let setups = seen.iter().map(|s| s.setups).sum::<usize>();
    SETUPS_LEFT.store(setups + libcs, Ordering::Relaxed);
    report::NANOS.add_many(cpu_time() - started);
}

/// Patches one module.
fn patch(m: &Module, fresh: bool) -> Seen {
    let mut text = site::Seen::default();
    for t in &m.text {
        // SAFETY: the loader mapped this segment readable, and the module stays while its list is
        // ours.
        let bytes = unsafe { t.bytes() };
        report::BYTES.add_many(bytes.len());
        let (numbers, syscalls) = (&mut text.numbers, &mut text.syscalls);
        scan::text(bytes, |at| numbers.push(t.start + at), |at| syscalls.push(t.start + at));
    }
    // Before anything is written, for it decodes what is there.
    let (mut aio, left) = match counts_only() {
        true => (Vec::new(), 0),
        false => site::aio(m, &text.syscalls),
    };
    let (rings, mut seen) = patch_rings(m, &text, fresh);
    aio.retain(|s| rings.iter().all(|r| s.at + s.len <= r.at || r.at + r.len <= s.at));
    seen.aio = left;
    if !seen.others {
        seen.syscalls = text.syscalls;
    }
    if !aio.is_empty() {
        let done = text::replace(m, &aio, fresh).len();
        report::SITES.add_many(done);
        seen.aio += aio.len() - done;
    }
    seen
}

/// Patches the sites of io_uring's calls, and in a module that has some those of `mmap` and
/// `close`.
fn patch_rings(m: &Module, text: &site::Seen, fresh: bool) -> (Vec<site::Site>, Seen) {
    let mut seen = Seen { base: m.base, text: m.text_start(), ..Seen::default() };
    if text.syscalls.is_empty() {
        return (Vec::new(), seen);
    }
    let found = site::find(m, text);
    (seen.gaps, seen.setups) = (found.gaps, found.setups);
    if found.sites.is_empty() {
        return (Vec::new(), seen);
    }
    let done = if counts_only() { Vec::new() } else { text::replace(m, &found.sites, fresh) };
    report::SITES.add_many(done.len());
    let left = |ring| {
        let left = found.sites.iter().filter(|s| s.ring == ring && !done.contains(&s.at));
        left.count()
    };
    seen.gaps += left(true);
    seen.setups += left(true);
    (seen.others, seen.missed) = (true, left(false));
    (found.sites, seen)
}

/// Nanoseconds that this thread has run.
fn cpu_time() -> usize {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the structure given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as usize * 1_000_000_000 + now.tv_nsec as usize
}
