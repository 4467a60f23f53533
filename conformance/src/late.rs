//! A page whose first access, even by the kernel, lasts until somebody serves the page:
//! userfaultfd(2). So a call can be made to sleep for exactly as long as a case needs.
#![allow(unsafe_code)]

use crate::os;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Time after which a stall ends by itself, so that a fault shows as a wrong answer instead of a
/// hang.
const LIMIT: Duration = Duration::from_secs(5);
/// Time after which a step counts as having waited for the stall.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Action beside a stall, and its name.
pub type Step<S> = (&'static str, fn(&mut S));

/// A page that is served late; see the module.
#[derive(Debug)]
pub struct LatePage {
    fd: OwnedFd,
    addr: usize,
}

fn ioctl<const N: usize>(fd: &OwnedFd, request: u64, mut words: [u64; N]) -> bool {
    // SAFETY: userfaultfd's requests read and write as many words as their numbers say, which are
    // ours.
    unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, words.as_mut_ptr()) == 0 }
}

impl LatePage {
    /// Creates a page; `None` if userfaultfd(2) is denied.
    pub fn new() -> Option<LatePage> {
        // SAFETY: the call only makes a descriptor.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        let fd = os::own(i32::try_from(fd).ok().filter(|fd| *fd >= 0)?);
        let addr = os::page(libc::PROT_READ | libc::PROT_WRITE);
        let page = LatePage { fd, addr };
        let ready = ioctl(&page.fd, 0xc018_aa3f, [0xaa, 0, 0])
            && ioctl(&page.fd, 0xc020_aa00, [addr as u64, PAGE as u64, 1, 0]);
        ready.then_some(page)
    }

    pub fn addr(&self) -> usize {
        self.addr
    }

    /// Waits until somebody accesses the page; false if nobody does.
    pub fn is_touched(&self) -> bool {
        os::poll(self.fd.as_raw_fd(), libc::POLLIN, 5000) == 1
    }

    /// Ends the stall.
    pub fn serve(&self) {
        ioctl(&self.fd, 0xc020_aa04, [self.addr as u64, PAGE as u64, 0, 0]);
    }

    /// Runs `stall`, which accesses the page, in a thread of its own; while it sleeps there, runs
    /// each of `meanwhile` with `state`. Returns the result of `stall`, and the names of the steps
    /// that waited for it.
    pub fn while_stalled<S, T: Send>(
        &self,
        stall: impl FnOnce() -> T + Send,
        state: &mut S,
        meanwhile: &[Step<S>],
    ) -> (Option<T>, Vec<&'static str>) {
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            let stalled = s.spawn(stall);
            let mut late = Vec::new();
            if !self.is_touched() {
                self.serve();
                return (None, vec!["nothing stalls"]);
            }
            s.spawn(|| {
                let end = Instant::now() + LIMIT;
                while Instant::now() < end && !over.load(std::sync::atomic::Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                self.serve();
            });
            for (name, run) in meanwhile {
                let start = Instant::now();
                run(state);
                if start.elapsed() > AT_ONCE {
                    late.push(*name);
                }
            }
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            (stalled.join().ok(), late)
        })
    }
}

impl Drop for LatePage {
    fn drop(&mut self) {
        os::unmap(self.addr);
    }
}
