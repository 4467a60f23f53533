//! Handlers that are installed, and queried, by rt_sigaction itself instead of the C library's
//! sigaction(2).
#![allow(unsafe_code)]

use super::jumps::{keep_entry, nop, round, wait};
use super::prelude::*;
use crate::jump::{self, JUMPED};
use crate::stack::Stack;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicIsize, AtomicPtr};
use std::time::Duration;

pub const CASES: &[Case] = &[
    case!("handlers", sigaction_by_number, [Trap("SIGSYS")], "rt_sigaction(2) by its number shows the program's own handlers and flags"),
    any_order!("handlers", longjmp_from_wait, [Trap("SIGSYS")], "a handler installed so may jump out of a wait"),
    any_order!("handlers", small_stack, [Op(IORING_OP_READ), Sqe(IOSQE_ASYNC)], "a signal handler on a small alternate stack submits requests"),
    case!("handlers", refused, [], "bad signals, sizes and pointers"),
];

/// `struct sigaction` of the kernel: handler, flags, restorer, mask.
type Action = [usize; 4];
const RESTORER: i32 = 0x0400_0000;

fn rt_sigaction(signal: i32, new: usize, old: usize, size: usize) -> isize {
    // SAFETY: the pointers are to a case's own action, or for the kernel to refuse.
    match unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, size) } {
        -1 => -(entry::errno() as isize),
        ret => ret as isize,
    }
}

fn installed(signal: i32) -> Action {
    let mut old = Action::default();
    rt_sigaction(signal, 0, addr_mut(&mut old), 8);
    old
}

/// Installs a handler as the C library does, with its restorer.
fn install(signal: i32, handler: extern "C" fn(i32), flags: i32, mask: u64) -> Action {
    let [_, _, restorer, _] = installed(libc::SIGUSR1);
    let flags = (flags | RESTORER) as usize;
    let new: Action = [handler as *const () as usize, flags, restorer, mask as usize];
    let mut old = Action::default();
    rt_sigaction(signal, addr(&new), addr_mut(&mut old), 8);
    old
}

// The handlers have different bodies: functions with equal bodies may share one address.
extern "C" fn one(_: i32) {
    std::hint::black_box(1);
}
extern "C" fn other(_: i32) {
    std::hint::black_box(2);
}

fn tell(cx: &mut Cx, what: &str, [handler, flags, restorer, mask]: Action) {
    let known = [(0, "default"), (1, "ignored"), (one as *const () as usize, "one")];
    let known = [&known[..], &[(other as *const () as usize, "other")]].concat();
    let name = known.iter().find(|k| k.0 == handler).map_or("unknown", |k| k.1);
    let back = if restorer == 0 { "no restorer" } else { "a restorer" };
    cx.note(what, format_args!("{name}, flags {flags:#x}, {back}, mask {mask:#x}"));
}

fn sigaction_by_number(cx: &mut Cx) -> Outcome {
    os::handle(libc::SIGUSR1, one, 0);
    os::handle(libc::SIGUSR2, one, libc::SA_NODEFER | libc::SA_RESTART);
    let ring = cx.ring(4, 0)?;
    tell(cx, "from before the ring", installed(libc::SIGUSR1));
    tell(cx, "one that nests", installed(libc::SIGUSR2));
    os::handle(libc::SIGUSR2, other, 0);
    tell(cx, "of the C library's", installed(libc::SIGUSR2));
    let once = libc::SA_RESETHAND | libc::SA_NODEFER;
    let hup = os::mask_of(libc::SIGHUP);
    tell(cx, "replaced by number", install(libc::SIGUSR2, one, once, hup));
    tell(cx, "that one", installed(libc::SIGUSR2));
    os::raise(libc::SIGUSR2);
    tell(cx, "once it has run", installed(libc::SIGUSR2));
    install(libc::SIGUSR2, other, libc::SA_SIGINFO | libc::SA_RESTART, 0);
    // SAFETY: the handler is the program's.
    let before = unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
    cx.holds("signal(2) answers it", before == other as *const () as usize);
    tell(cx, "ignored", installed(libc::SIGUSR2));
    let every = usize::MAX & !(1 << (libc::SIGKILL - 1));
    let [handler, flags, restorer, _] = installed(libc::SIGUSR1);
    let wide: Action = [handler, flags, restorer, every];
    cx.is("every signal in its mask", rt_sigaction(libc::SIGUSR1, addr(&wide), 0, 8), 0);
    os::raise(libc::SIGUSR1);
    drop(ring);
    Ok(())
}

fn longjmp_from_wait(cx: &mut Cx) -> Outcome {
    const ROUNDS: u64 = 100;
    os::handle(libc::SIGUSR1, one, 0);
    let mut ring = cx.ring(8, 0)?;
    keep_entry(ring.calls);
    install(libc::SIGUSR2, jump::handler, libc::SA_NODEFER, 0);
    let (mut jumped, mut here, mut there) = (0, 0, 0);
    for n in 0..ROUNDS {
        let late = Duration::from_micros(7 * n % 400);
        let (got, works) = round(wait, ring.fd, late, || nop(&mut ring));
        jumped += u64::from(got == JUMPED);
        here += u64::from(works);
        there += u64::from(nop(&mut ring));
    }
    cx.eq("calls left by a jump", jumped, ROUNDS);
    cx.eq("the same thread goes on", here, ROUNDS);
    cx.eq("another one, too", there, ROUNDS);
    Ok(())
}

fn refused(cx: &mut Cx) -> Outcome {
    os::handle(libc::SIGUSR1, one, 0);
    let _ring = cx.ring(4, 0)?;
    let good = installed(libc::SIGUSR1);
    let new = addr(&good);
    for (what, signal, new, old, size, want) in [
        ("nothing asked", libc::SIGUSR1, 0, 0, 8, 0),
        ("a small set", libc::SIGUSR1, new, 0, 4, -EINVAL),
        ("a bad action", libc::SIGUSR1, BAD, 0, 8, -EFAULT),
        ("no place for the old one", libc::SIGUSR1, 0, BAD, 8, -EFAULT),
        ("SIGKILL", libc::SIGKILL, new, 0, 8, -EINVAL),
        ("SIGKILL, and a bad action", libc::SIGKILL, BAD, 0, 8, -EFAULT),
        ("SIGKILL, looked at", libc::SIGKILL, 0, 0, 8, 0),
        ("0", 0, new, 0, 8, -EINVAL),
        ("65", 65, new, 0, 8, -EINVAL),
        ("the C library's", 33, 0, 0, 8, 0),
    ] {
        cx.is(what, rt_sigaction(signal, new, old, size), want);
    }
    let ignore: Action = [libc::SIG_IGN, 0, 0, 0];
    let fault = rt_sigaction(libc::SIGUSR1, addr(&ignore), BAD, 8);
    cx.is("installed, and no place for the old one", fault, -EFAULT);
    tell(cx, "it is installed", installed(libc::SIGUSR1));
    Ok(())
}

/// The ring that a handler enters.
static RING: AtomicPtr<Ring> = AtomicPtr::new(core::ptr::null_mut());
static SUBMITTED: AtomicIsize = AtomicIsize::new(0);

extern "C" fn submits(_: i32) {
    // SAFETY: the ring is the case's own, lives while signals are raised, and is not used
    // meanwhile.
    let ring = unsafe { &*RING.load(Relaxed) };
    SUBMITTED.fetch_add(ring.enter(3, 0, 0), Relaxed);
}

fn small_stack(cx: &mut Cx) -> Outcome {
    // The old SIGSTKSZ. (A trap's frame goes on the same stack.)
    const SIZE: usize = 8 << 10;
    let (mut ring, (r, w)) = (cx.ring(4, 0)?, cx.pipe()?);
    let (mut buf, ts) = ([0u8; 1], [0u64, 1000]);
    let _stack = Stack::new(SIZE).map_err(Stop::from)?;
    os::handle(libc::SIGUSR1, submits, libc::SA_ONSTACK);
    let path = cx.path("f")?;
    drop(cx.file("f", b"")?);
    for _ in 0..3 {
        ring.push(sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1));
        ring.push(sqe::rw(IORING_OP_TIMEOUT, -1, addr(&ts), 1, 0).ud(2));
        let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(path.as_c_str()), 0, 0);
        ring.push(open.with(IOSQE_ASYNC).ud(3));
        RING.store(&raw mut ring, Relaxed);
        os::raise(libc::SIGUSR1);
        rustix::io::write(&w, b"x")?;
        let mut results = ring.take(3)?;
        results.sort_by_key(|c| c.user_data);
        cx.is("read", results[0].res, 1);
        cx.is("timeout", results[1].res, -ETIME);
        cx.holds("opened", results[2].res >= 0);
        drop(os::own(results[2].res));
    }
    cx.is("submitted", SUBMITTED.load(Relaxed), 9);
    Ok(())
}
