//! Call sites that issue `syscall` inline: liburing's, dynamic and static, fio's, rustix's.
//!
//! ```text
//! modules   the loaded modules, and notice of new ones
//! resident  drops pages of text that were resident only for the scan
//! scan      offsets of 425..=427 and of `syscall` in text, at the speed of memory
//! frames    the function around such an offset, from .eh_frame
//! unsorted  the same in a static program, whose .eh_frame no table leads to
//! unframed  recognises `syscall` where there are no frames
//! ins       decoded instructions
//! quick     those that need no tables, by the meaning of their opcodes
//! opcodes   that meaning
//! flow      the decoded function: which numbers may reach its `syscall`
//! site      chooses the code to replace, on decoded instructions
//! windows   proves that nothing jumps into that code
//! execs     calls that start another program, in a static one
//! springboard  padding for a jump to which a short one leads
//! stub      the code that is jumped to instead, near its site
//! text      writes to text
//! libcs     libc's own `syscall()`, which programs reach past our name
//! entry     from a stub to `gate::call`, with every register kept
//! ```
//!
//! **What is replaced.** A site is `mov $nr,%eax … syscall` in a straight line. Only the `mov` is
//! overwritten, by a jump of its own length. No instruction boundary vanishes, so a branch to
//! anywhere still finds what it expects, and a thread between the two instructions just makes its
//! call. If the number reaches eax otherwise (GCC hoists it into a register before a loop), the
//! window around `syscall` itself moves into the stub, which then checks eax. This needs proof that
//! nothing jumps into the window, and that no thread is in it. A site without such a window (a
//! jump leads to `syscall`, `ret` follows) becomes a short jump to padding between functions, from
//! where a long one leads to the stub.
//!
//! **When.** At start, from our constructor; later, for each library as the dynamic loader maps it,
//! before its first instruction runs: [`modules::watch`] makes the loader's debugger hook call us.
//! A wrapper of `dlopen` would run after the library's constructors, and would make us the caller
//! whose RUNPATH the loader consults.
//!
//! Programs also close a ring inline, and may map it inline. Such sites are patched with a module's
//! other sites; in a module that has no others, only once there is a ring of ours. A missed site is
//! no gap: the engine notices closed rings by itself.
//!
//! Sites of kernel aio (libaio before 0.3.113, programs linked with it) are patched at start, in
//! any module. A missed site only means that no context can be polled.
//!
//! A site of io_uring that cannot be replaced is a gap: `intercept::close_gaps` sets the trap for
//! it, or refuses our rings.
#![allow(unsafe_code)]

pub mod entry;
mod execs;
mod flow;
mod frames;
mod ins;
mod libcs;
mod modules;
mod opcodes;
mod quick;
mod resident;
mod scan;
mod site;
mod springboard;
pub mod straddle;
pub mod stub;
mod text;
mod unframed;
mod unsorted;
mod windows;

use crate::raw::raw;
use crate::{config, report};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use modules::Module;
use resident::PageMap;
use softring_host::sync::real::{Mutex, OnceLock};
use softring_host::{initial, refused};

/// A module that was scanned, and its sites that could not be patched.
#[derive(Default)]
struct Seen {
    base: usize,
    text: usize,
    gaps: usize,
    /// Number of `gaps` that may make a ring.
    setups: usize,
    /// Flag, true once the module's sites of `mmap` and `close` were searched.
    others: bool,
    /// Addresses of `syscall` in the module, kept until that search.
    syscalls: Vec<usize>,
    /// Sites of `mmap` and `close` that were left.
    missed: usize,
    /// Sites of kernel aio that were left.
    aio: usize,
}

/// Call sites that may make a ring and could not be patched.
static SETUPS_LEFT: AtomicUsize = AtomicUsize::new(0);
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
/// Sites of `mmap` and `close` that were found and left.
static MISSED: AtomicUsize = AtomicUsize::new(0);
/// Flag, set once rings of ours exist, as `mmap` and `close` then matter in every module.
static RINGS: AtomicBool = AtomicBool::new(false);

/// Flag, set once there are modules that could not be read.
static UNREAD: AtomicBool = AtomicBool::new(false);
/// Flag, true if libc's own `syscall()` bypasses us.
static LIBC_LEFT: AtomicBool = AtomicBool::new(false);

/// Patches the loaded modules, and arranges for later ones.
pub fn open() {
    let patched = libcs::patch();
    report::SITES.add_many(patched.into());
    // Relaxed: before there are threads.
    LIBC_LEFT.store(!patched, Ordering::Relaxed);
    update(false);
    modules::watch();
}

/// Counts the sites of the loaded modules, all of which bypass us.
pub fn count() {
    update(false);
}

/// Returns whether nothing is to be patched.
fn counts_only() -> bool {
    config::intercept() == config::Intercept::None
}

/// System calls needed to read a module and to patch it.
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

/// Patches new modules after the loader has mapped or unmapped something; they have not run yet.
pub fn changed() {
    if !CALLS.into_iter().all(refused::spares) {
        // A filter of the program's may kill for the calls needed to read the new modules. Their
        // sites stay unknown, and one may make a ring.
        if !UNREAD.swap(true, Ordering::Relaxed) {
            report::GAPS.set(report::GAPS.get() as usize + 1);
            SETUPS_LEFT.fetch_add(1, Ordering::Relaxed);
        }
    } else if modules::consistent() {
        update(true);
        super::see_to_setups();
    }
}

/// Patches inline `mmap` and `close` before the engine makes a ring.
pub fn before_ring() {
    // Relaxed: a thread that sees this late patches a module late.
    if !RINGS.load(Ordering::Relaxed) && !RINGS.swap(true, Ordering::Relaxed) {
        update(false);
    }
}

/// Returns whether every inline `close` that was found reaches us.
pub fn reports_closes() -> bool {
    missed() == 0
}

/// Returns the number of inline `close` and `mmap` sites that were found and left.
pub fn missed() -> usize {
    MISSED.load(Ordering::Relaxed)
}

/// Returns the number of call sites that may make a ring and bypass us.
pub fn setups_left() -> usize {
    SETUPS_LEFT.load(Ordering::Relaxed)
}

/// Returns this library's own text. The first call is at start: the loader's lock may be held for
/// ever in a forked child.
pub fn own_text() -> Option<core::ops::Range<usize>> {
    static OWN: OnceLock<Option<core::ops::Range<usize>>> = OnceLock::new();
    OWN.get_or_init(|| modules::own_text().map(|t| t.start..t.start + t.len)).clone()
}

/// Scans and patches new modules. `fresh`: no thread can be in the text of a new module.
fn update(fresh: bool) {
    // Never waits: the caller has the loader's own lock. The list is free unless a fork caught
    // another thread in this function.
    let Some(mut seen) = SEEN.try_lock() else { return };
    let started = cpu_time();
    let modules = modules::loaded();
    if !fresh && seen.is_empty() {
        let segments = modules.iter().flat_map(|m| m.read_only.iter().cloned());
        softring_host::user::constants_are(segments.collect());
    }
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
    // Before anything is written, as this decodes the text.
    let (mut aio, left) = match counts_only() {
        true => (Vec::new(), 0),
        false => site::aio(m, &text.syscalls),
    };
    let mut execs = match initial::is_known() && !counts_only() {
        true => execs::find(m, &text.syscalls),
        false => Vec::new(),
    };
    let (rings, mut seen) = patch_rings(m, &text, fresh);
    aio.retain(|s| rings.iter().all(|r| !s.overlaps(r)));
    execs.retain(|s| rings.iter().chain(&aio).all(|r| !s.overlaps(r)));
    seen.aio = left;
    if !seen.others {
        seen.syscalls = text.syscalls;
    }
    if !aio.is_empty() {
        let done = text::replace(m, &aio, fresh).len();
        report::SITES.add_many(done);
        seen.aio += aio.len() - done;
    }
    if !execs.is_empty() {
        report::SITES.add_many(text::replace(m, &execs, fresh).len());
    }
    seen
}

/// Patches the sites of io_uring's calls, and in a module that has some, those of `mmap` and
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

/// Returns the processor time of this thread in nanoseconds.
fn cpu_time() -> usize {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let to = (&raw mut now).expose_provenance();
    // SAFETY: writes the structure given.
    unsafe { raw!(libc::SYS_clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID, to) };
    now.tv_sec as usize * 1_000_000_000 + now.tv_nsec as usize
}
