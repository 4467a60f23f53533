//! The end of the process where the library's own state cannot be trusted any more: one line, then
//! SIGABRT. Nothing unwinds: the frames above an entry point are the program's.
#![allow(unsafe_code)]

use core::fmt::{self, Write};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use crate::raw::raw;

/// Flag, set once a thread has begun to write such a line.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// A line in memory of its own, because the allocator may be what has failed. What does not fit is
/// left out.
struct Line {
    text: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.text[self.len..];
        let n = text.len().min(room.len());
        room[..n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

fn line(fault: &dyn fmt::Display) -> Line {
    let mut line = Line { text: [0; 512], len: 0 };
    let _ = write!(
        line,
        "softring: a fault of softring's own ends this process, please report it: {fault}"
    );
    let len = line.len.min(line.text.len() - 1);
    line.text[..len].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    line.text[len] = b'\n';
    line.len = len + 1;
    line
}

/// Ends the process by SIGABRT, however the program handles that.
pub fn abort() -> ! {
    let set = 1u64 << (libc::SIGABRT - 1);
    // SAFETY: numbers, a signal set of ours, and the default action (a `sigaction` of zeroes): the
    // process ends.
    unsafe {
        let set = (&raw const set).expose_provenance();
        raw!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, set, 0, 8);
        let (process, thread) = (raw!(libc::SYS_getpid), raw!(libc::SYS_gettid));
        raw!(libc::SYS_tgkill, process, thread, libc::SIGABRT);
        let default = [0usize; 4];
        raw!(libc::SYS_rt_sigaction, libc::SIGABRT, default.as_ptr().expose_provenance(), 0, 8);
        raw!(libc::SYS_tgkill, process, thread, libc::SIGABRT);
    }
    loop {
        core::hint::spin_loop();
    }
}

/// Says what is wrong, and ends the process. A second thread, or a fault in saying it, ends the
/// process at once.
fn end(fault: &dyn fmt::Display) -> ! {
    // Relaxed: nothing else is ordered by it.
    if !BEGUN.swap(true, Relaxed) {
        let line = line(fault);
        crate::stderr::write(&line.text[..line.len]);
    }
    abort()
}

#[cfg(not(test))]
#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    end(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_fault_is_one_line() {
        let text = |fault: &str| {
            let line = line(&fault);
            std::str::from_utf8(&line.text[..line.len]).unwrap().to_owned()
        };
        let short = text("panicked at a.rs:1:2:\nno such thing");
        assert!(short.ends_with("report it: panicked at a.rs:1:2: no such thing\n"), "{short}");
        let long = text(&"x".repeat(1000));
        assert!(long.len() == 512 && long.ends_with("xx\n"), "{long}");
    }

    /// The process ends by the signal though the program ignores and blocks it.
    #[test]
    fn a_fault_ends_the_process() {
        if std::env::var_os("SOFTRING_TEST_FAULT").is_some() {
            // SAFETY: numbers, and a set of ours.
            unsafe {
                libc::signal(libc::SIGABRT, libc::SIG_IGN);
                let mut set: libc::sigset_t = core::mem::zeroed();
                libc::sigaddset(&raw mut set, libc::SIGABRT);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
            }
            crate::stderr::start();
            end(&"panicked");
        }
        let own = "panic::tests::a_fault_ends_the_process";
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", own, "--nocapture"]).env("SOFTRING_TEST_FAULT", "1");
        let out = child.output().unwrap();
        assert_eq!(out.status.signal(), Some(libc::SIGABRT));
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(text.contains("softring: a fault of softring's own ends this process"), "{text}");
    }
}
