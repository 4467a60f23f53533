//! Threads that the C library does not know of.
//!
//! A thread that takes on the credentials of a request must not be one that the C library made.
//! setuid(3) and the like have each of those make the same call (nptl(7)), and abort the process if
//! one may not; a thread that may would get back, in the middle of a request, the rights that it
//! has dropped. So [`run`] starts a thread by clone(2), on a stack of its own and with the caller's
//! thread-local storage, and waits until it is gone, as vfork(2) does. The thread's credentials end
//! with it.
//!
//! A signal that interrupts the caller's wait is passed on to that thread.
#![allow(unsafe_code)]

use core::ffi::c_void;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Acquire;

use crate::os::mm::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::limits::WORKER_STACK;
use crate::raw::clone;
use crate::signal;
use crate::sys::sys;
use softring_uapi::errno::{Errno, Result, check};

/// `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
/// CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID`: a thread, which says when it is gone.
const FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x10_0000 | 0x20_0000;
const GUARD: usize = 4096;

/// Memory for a stack, with a page below it that nobody may touch.
struct Stack(*mut c_void);

impl Stack {
    fn new() -> Result<Stack> {
        let (prot, none) = (ProtFlags::READ | ProtFlags::WRITE, ProtFlags::empty());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
        let null = core::ptr::null_mut();
        // SAFETY: a fresh anonymous mapping.
        let stack = Stack(unsafe { mmap_anonymous(null, WORKER_STACK, prot, flags) }?);
        // SAFETY: its own lowest page, which nobody uses.
        unsafe { mprotect(stack.0, GUARD, none) }?;
        Ok(stack)
    }

    /// Returns the address behind the stack, from which it grows down: aligned as the ABI requires
    /// at a call.
    fn top(&self) -> usize {
        self.0.expose_provenance() + WORKER_STACK
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which no thread runs on any more.
        let _ = unsafe { munmap(self.0, WORKER_STACK) };
    }
}

/// Runs `f` in another thread, and waits for its end.
///
/// # Errors
/// `EAGAIN` or `ENOMEM` if no such thread can be made; then `f` has not run.
pub fn run<T>(f: impl FnOnce() -> T) -> Result<T> {
    let stack = Stack::new()?;
    let (mut f, mut answer) = (Some(f), None);
    let mut life = || answer = f.take().map(|f| f());
    let tid = AtomicU32::new(0);
    start(&stack, &tid, &mut life)?;
    wait(&tid);
    answer.ok_or(Errno::EAGAIN)
}

/// Waits until the thread is gone; the kernel clears its number then.
fn wait(tid: &AtomicU32) {
    loop {
        let now = tid.load(Acquire);
        if now == 0 {
            return;
        }
        // SAFETY: the kernel reads the word.
        let waited = unsafe { sys!(__NR_futex, tid.as_ptr().expose_provenance(), 0, now, 0) };
        if waited == Errno::EINTR.res() as isize {
            signal::interrupt(now.cast_signed());
        }
    }
}

extern "C" fn enter<F: FnMut()>(life: *mut F) {
    // SAFETY: `start` was given it by a reference, and its caller waits for this thread to be gone.
    unsafe { (*life)() }
}

/// Starts a thread that runs `life`; `tid` is its number until it is gone.
fn start<F: FnMut()>(stack: &Stack, tid: &AtomicU32, life: &mut F) -> Result<()> {
    let entry = enter::<F> as extern "C" fn(*mut F) as usize;
    let (tid, word) = (tid.as_ptr().expose_provenance(), core::ptr::from_mut(life));
    // SAFETY: the new thread runs on `stack` alone; what it is given lives until `tid` is 0, for
    // which the caller waits. It shares the caller's thread-local storage, which the caller leaves
    // alone meanwhile.
    check(unsafe { clone([FLAGS, stack.top(), tid, tid, 0], entry, word.expose_provenance()) })?;
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn the_unlisted_thread_shares_thread_storage() {
        crate::per_thread! {
            static WORD: Cell<u32> = const { Cell::new(1) };
        }
        let own = crate::calls::process::gettid();
        WORD.set(7);
        for n in 0..100 {
            let seen = run(|| (crate::calls::process::gettid(), WORD.replace(8), vec![n; 1000]));
            let (tid, word, many) = seen.unwrap();
            assert!(tid != own && word == if n == 0 { 7 } else { 8 } && many.len() == 1000);
        }
    }
}
