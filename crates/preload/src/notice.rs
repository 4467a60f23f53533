//! Lines for people, on stderr. Each is written by one raw `write(2)`, so that it comes out whole
//! in any state of the program's stdio.

use crate::config::{self, Intercept};
use crate::gate::Why;
use crate::intercept::{Gaps, NoTrap};
use crate::stderr;
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
            say("this program's io_uring runs in user space: it has inherited a SIGSYS trap, \
             softring's own (--intercept=sigsys, or of a program whose call sites could not be \
             patched), which stays for all that such a program starts. For the kernel's rings, \
             start it by a softring run of its own, with --intercept=auto")
        }
        Why::Kills if refused::rings_are_unasked() => say(
            "this program's io_uring runs in user space: there is no process to be had that could \
             try whether the seccomp policy kills who asks the kernel for it",
        ),
        Why::Kills => say(
            "this program's io_uring runs in user space: a policy kills who asks the kernel for it",
        ),
        Why::Broken(what) => say(&format!(
            "this program's io_uring runs in user space: the kernel gives rings here that do not \
             work ({what})"
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
            "the kernel, {release}, does not know IORING_SETUP_{flags}, and answers EINVAL. If \
             this program stops for that: softring run --engine=user"
        ));
    }
}

/// Says at exit what the program asked of the kernel's rings that they do not have.
#[cold]
pub fn old_kernel(what: &str) {
    let release = release();
    say(&format!(
        "the kernel's rings, {release}, lack {what}, which this program asked for. softring's have \
         them: softring run --engine=user"
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
        say(&format!("if this program uses io_uring, the kernel answers it: {unreached}"));
    }
}

/// Returns the number of call sites that bypass us, the reason, and a remedy.
fn unreached(Gaps { sites, no_trap }: &Gaps) -> String {
    if config::intercept() == Intercept::None {
        return format!(
            "SOFTRING_INTERCEPT=none leaves {sites} call site(s) of this program alone. Unset it"
        );
    }
    let why = match no_trap {
        NoTrap::NotAsked => "SOFTRING_INTERCEPT=patch sets no SIGSYS trap for them. With \
             `softring run --intercept=auto` it is set"
            .into(),
        NoTrap::Blocked(threads) => format!(
            "{threads} thread(s) block SIGSYS, so that the trap would kill them. With `softring \
             run --intercept=sigsys` it is set at start, and SIGSYS kept out of what threads block"
        ),
        NoTrap::Kills => "a seccomp policy kills who makes them, which outranks the SIGSYS trap. \
             Have the policy answer EPERM in place of killing"
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
            "the kernel denies io_uring here ({}), and SOFTRING_ENGINE=kernel asks for no other \
             rings. softring's: softring run --engine=auto",
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
    say(&format!("a request of io_uring may fail: {}", refusal(call, how)));
}

/// Returns what a policy does with a call, and what would help.
fn refusal(call: &str, how: Refusal) -> String {
    let how = match how {
        Refusal::Kills => "kills who calls it".to_owned(),
        Refusal::Answers(e) => format!("answers {}", errno_name(e.0)),
    };
    let hint = match call {
        "clone3" => ", or have it answer ENOSYS",
        "memfd_create" => ", or let TMPDIR name a directory that can be written to",
        _ => "",
    };
    format!(
        "softring cannot do without {call}(2), and a seccomp policy {how}. \
         Allow it in the policy{hint}: docs/INTERCEPTION.md lists the calls"
    )
}

/// Says that no ring of ours could be made, for a call that is not known to be refused.
#[cold]
pub fn failed(errno: i32) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say(&format!(
            "io_uring stays denied: a call that softring needs for a ring answers {}, most likely \
             by a seccomp policy. docs/INTERCEPTION.md lists them; strace(1) tells which it is",
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
             some pages, and the hard limit on the size of files is {limit} bytes. Raise it: \
             ulimit -f unlimited"
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
        _ => "it refuses even the simplest ring",
    }
}
