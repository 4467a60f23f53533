//! Threads by clone(2), for a process that has no pthread_create(3): a static program, or one of
//! glibc before 2.34 without libpthread.
//!
//! Such a thread has a thread pointer of its own, to memory of ours that begins as a C library's
//! control block does, with its own address, and is zero else. So per-thread state is its own, and
//! a function of the C library that reads thread-local storage reads zeroes:
//!
//! ```text
//! guard | stack … | room for thread-local storage | control block, and room behind it
//! ```
//!
//! At its end the thread unmaps all of this, on which nobody else is, with all signals blocked.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr::{null_mut, with_exposed_provenance_mut};

use crate::c_library::Life;
use crate::os::mm::{MapFlags, ProtFlags, mmap_anonymous};
use crate::per_thread;
use crate::raw::{clone, nr, set_sigmask};
use crate::sys::sys;
use softring_uapi::errno::{Result, check};

const GUARD: usize = 4096;
/// Bytes on each side of the thread pointer.
const ROOM: usize = 4096;
/// Size of a page, which lengths are rounded up to.
const PAGE: usize = 4096;

const FLAGS: u32 = nr::CLONE_VM
    | nr::CLONE_FS
    | nr::CLONE_FILES
    | nr::CLONE_SIGHAND
    | nr::CLONE_THREAD
    | nr::CLONE_SYSVSEM
    | nr::CLONE_SETTLS;

/// Block at the thread pointer.
#[repr(C)]
struct Control {
    /// Own address, twice, as in C libraries: `fs:0` and `fs:16`.
    own: usize,
    unused: usize,
    own_too: usize,
    /// Beginning and length of all the memory.
    start: usize,
    len: usize,
    run: Run,
    word: usize,
}

/// Function that a thread runs first, with a word that it is given.
type Run = fn(usize);

/// Starts a detached thread with a stack of at least `stack` bytes.
///
/// # Errors
/// As `mmap(2)` and `clone(2)`: ENOMEM, EAGAIN.
pub(crate) fn start_thread(stack: usize, life: Life) -> Result<()> {
    fn run(life: usize) {
        // SAFETY: made below, for this thread alone.
        let life = unsafe { Box::from_raw(with_exposed_provenance_mut::<Life>(life)) };
        life();
    }
    let life = Box::into_raw(Box::new(life));
    start(stack, run, life.expose_provenance()).inspect_err(|_| {
        // SAFETY: no thread has got it.
        drop(unsafe { Box::from_raw(life) });
    })
}

fn start(stack: usize, run: Run, word: usize) -> Result<()> {
    let len = GUARD + stack.next_multiple_of(PAGE) + 2 * ROOM;
    let (prot, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh anonymous mapping overlays nothing.
    let start = unsafe { mmap_anonymous(null_mut(), len, prot, how) }?.expose_provenance();
    let own = start + len - ROOM;
    let control = Control { own, unused: 0, own_too: own, start, len, run, word };
    // SAFETY: memory of ours, which nobody uses yet; the first page is below the stack.
    unsafe {
        sys!(__NR_mprotect, start, GUARD, 0);
        with_exposed_provenance_mut::<Control>(own).write(control);
        let entry = enter as extern "C" fn(*mut Control) -> ! as usize;
        let made = check(clone([FLAGS as usize, own - ROOM, 0, 0, own], entry, own));
        made.map(drop).inspect_err(|_| {
            sys!(__NR_munmap, start, len);
        })
    }
}

extern "C" fn enter(control: *mut Control) -> ! {
    // SAFETY: `start` has made it for this thread alone, which unmaps it below together with its
    // stack. No instruction uses the stack from then on.
    unsafe {
        ((*control).run)((*control).word);
        set_sigmask(!0);
        per_thread::thread_ends();
        core::arch::asm!(
            "syscall",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "ud2",
            exit = const nr::__NR_exit,
            in("rax") nr::__NR_munmap as usize,
            in("rdi") (*control).start,
            in("rsi") (*control).len,
            options(noreturn),
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::calls::process::gettid;
    use crate::raw::thread;
    use core::cell::Cell;
    use core::ptr::with_exposed_provenance;
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering::{Acquire, Release};

    crate::per_thread! {
        static WORD: Cell<u32> = const { Cell::new(1) };
    }

    /// Values that a thread sees of its own, and a word that is 1 once they are there.
    #[derive(Default)]
    struct Seen([AtomicUsize; 3], AtomicUsize);

    /// Runs in a thread on which the test program's malloc(3) does not work.
    fn look(seen: usize) {
        // SAFETY: the test waits for the last store.
        let seen = unsafe { &*with_exposed_provenance::<Seen>(seen) };
        let values = [thread(), gettid() as usize, WORD.replace(8) as usize];
        for (to, value) in seen.0.iter().zip(values) {
            to.store(value, Release);
        }
        seen.1.store(1, Release);
    }

    fn seen() -> [usize; 3] {
        let seen = Seen::default();
        start(64 << 10, look, core::ptr::from_ref(&seen).expose_provenance()).unwrap();
        while seen.1.load(Acquire) == 0 {
            std::thread::yield_now();
        }
        seen.0.map(AtomicUsize::into_inner)
    }

    #[test]
    fn a_thread_has_state_of_its_own() {
        WORD.set(7);
        for _ in 0..100 {
            let [pointer, tid, word] = seen();
            assert!(pointer != thread() && tid != gettid() as usize && word == 1);
        }
        assert_eq!(WORD.get(), 7);
    }

    /// The kernel has a limit of mappings, and of threads.
    #[test]
    fn a_thread_leaves_nothing_behind() {
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = mappings();
        for _ in 0..1000 {
            seen();
        }
        assert!(mappings() < before + 100);
    }
}
