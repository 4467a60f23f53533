//! Lines for people, on stderr. Each is written by one raw `write(2)`, so that it comes out whole
//! in any state of the program's stdio.

use crate::config::{self, Intercept};
use crate::gate::Why;
use crate::intercept::{Gaps, NoTrap};
use crate::stderr;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, Ordering};
use softring_host::refused::{self, Refusal};

/// Prints one line on stderr, unless the user asked for silence.
pub fn say(text: &str) {
    if !config::quiet() {
        line(text);
    }
}

/// Prints one line on stderr.
pub fn line(text: &str) {
    stderr::write(format!("softring: {text}\n").as_bytes());
}

/// Says once per process tree that the program gets our rings, and why.
pub fn engine_runs(why: Why) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) || config::quiet() || !crate::proc::first_in_family() {
        return;
    }
    if !config::claim_notice() {
        return;
    }
    match why {
        Why::Asked => say("this program's io_uring runs in user space (SOFTRING_ENGINE=user)"),
        Why::Denied(e) => say(&format!(
            "this program's io_uring runs in user space: the kernel denies it here ({})",
            errno_name(e)
        )),
        Why::Trapped => {
            say("this program's io_uring runs in user space: it has inherited softring's SIGSYS \
                 trap from a program with --intercept=sigsys, or with call sites that could not be \
                 patched, and cannot remove the trap. To use the kernel's rings, start this \
                 program by a separate softring run --intercept=auto")
        }
        Why::Kills if refused::rings_are_unasked() => say(
            "this program's io_uring runs in user space: the seccomp policy may kill a program \
             that asks the kernel for io_uring, and softring cannot start a process to try",
        ),
        Why::Kills => say(
            "this program's io_uring runs in user space: a policy kills a program that asks the \
             kernel for io_uring",
        ),
        Why::Broken(what) => say(&format!(
            "this program's io_uring runs in user space: the kernel's rings do not work here \
             ({what})"
        )),
        Why::Unpolled => say(
            "this program's polled rings (IOPOLL) run in user space: no disk here has poll queues, \
             so the kernel would refuse their I/O",
        ),
        Why::NoFlag(name) => say(&format!(
            "this program's rings with IORING_SETUP_{name} run in user space: the kernel, {}, does \
             not know it",
            release()
        )),
        Why::TooOld => say(&format!(
            "this program's io_uring runs in user space: the kernel's, {}, lacks {}",
            release(),
            few(crate::old::lacking().unwrap_or_default())
        )),
    }
}

fn release() -> String {
    format!("Linux {}", softring_host::substitute::release())
}

/// Returns the first of many names, and the number of the others.
fn few(names: &[String]) -> String {
    match names {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        all => all.join(", "),
    }
}

/// Says that the kernel does not know these flags and refuses the ring. Many programs ask again
/// without them.
#[cold]
pub fn hint(flags: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let release = release();
        say(&format!(
            "the kernel, {release}, does not know IORING_SETUP_{flags}, and returns EINVAL. If \
             this program stops for this reason, use softring run --engine=user"
        ));
    }
}

/// Says at exit what the program asked of the kernel's rings that they do not have.
#[cold]
pub fn old_kernel(what: &str) {
    let release = release();
    say(&format!(
        "the kernel's rings, {release}, lack {what}, which this program asked for. softring's \
         rings have them: use softring run --engine=user"
    ));
}

/// Says that a program needs our rings, and that a call site of it would bypass us.
pub fn refused(gaps: &Gaps) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(&format!("io_uring stays denied: {}", unreached(gaps)));
    }
}

/// Says that call sites of the program bypass us and may make rings.
pub fn past_us(gaps: &Gaps) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let unreached = unreached(gaps);
        say(&format!(
            "if this program uses io_uring, it gets the kernel's rings or errors: {unreached}"
        ));
    }
}

/// Returns the number of call sites that bypass us, the reason, and a remedy.
fn unreached(Gaps { sites, no_trap }: &Gaps) -> String {
    if config::intercept() == Intercept::None {
        return format!(
            "SOFTRING_INTERCEPT=none leaves {sites} call site(s) of this program unpatched. Unset \
             SOFTRING_INTERCEPT"
        );
    }
    let why = match no_trap {
        NoTrap::NotAsked => "SOFTRING_INTERCEPT=patch sets no SIGSYS trap for them. `softring run \
                             --intercept=auto` sets the trap"
            .into(),
        NoTrap::Blocked(threads) => format!(
            "{threads} thread(s) block SIGSYS, so the trap would kill them. `softring run \
             --intercept=sigsys` sets the trap at start and keeps threads from blocking SIGSYS"
        ),
        NoTrap::Kills => "a seccomp policy kills a program for these calls, before the SIGSYS \
             trap can act. Let the policy return EPERM instead"
            .into(),
        NoTrap::NotToBeHad => "the SIGSYS trap is not available. See `softring doctor`".to_owned(),
    };
    format!("{sites} call site(s) of this program could not be patched, and {why}")
}

/// Says that the program is to have the kernel's rings, and that there are none.
#[cold]
pub fn kernel_denies(errno: i32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(&format!(
            "the kernel denies io_uring here ({}), and SOFTRING_ENGINE=kernel forbids softring's \
             rings. To use them: softring run --engine=auto",
            errno_name(errno)
        ));
    }
}

/// Says that no ring of ours can be had under this policy.
pub fn missing(call: &str, how: Refusal) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    say(&format!("io_uring stays denied: {}", refusal(call, how)));
}

/// Says that a request may fail for want of a call that a policy has come to refuse.
#[cold]
pub fn wanting(call: &str, how: Refusal) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    say(&format!("a request of this program's io_uring may fail: {}", refusal(call, how)));
}

/// Returns what a policy does with a call, and what would help.
fn refusal(call: &str, how: Refusal) -> String {
    let how = match how {
        Refusal::Kills => "kills a program for this call".to_owned(),
        Refusal::Answers(e) => format!("returns {} for this call", errno_name(e.0)),
    };
    let hint = match call {
        "clone3" => ", or let the policy return ENOSYS",
        "memfd_create" => ", or set TMPDIR to a writable directory",
        _ => "",
    };
    format!(
        "softring needs {call}(2), and a seccomp policy {how}. Allow {call}(2) in the \
         policy{hint}: docs/INTERCEPTION.md lists the calls"
    )
}

/// Says that no ring of ours could be made, for a call that is not known to be refused.
#[cold]
pub fn failed(errno: i32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(&format!(
            "io_uring stays denied: a system call that softring needs for a ring fails ({}), most \
             likely by a seccomp policy. docs/INTERCEPTION.md lists these calls; strace(1) shows \
             which one fails",
            errno_name(errno)
        ));
    }
}

/// Says that no ring of ours could be made, if a limit is the reason that the kernel's rings do not
/// have.
#[cold]
pub fn no_memory() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(limit) = softring_engine::no_ring() else { return };
    if !SAID.swap(true, Ordering::Relaxed) {
        say(&format!(
            "no io_uring in user space: the memory of a ring is a (sparse) file of 256 MiB and \
             some pages, but the hard limit on the size of files is {limit} bytes. Raise the \
             limit: ulimit -f unlimited"
        ));
    }
}

fn errno_name(e: i32) -> &'static str {
    match e {
        libc::EPERM => "EPERM",
        libc::ENOSYS => "ENOSYS",
        libc::EACCES => "EACCES",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENOMEM => "ENOMEM",
        _ => "even the simplest ring is refused",
    }
}
