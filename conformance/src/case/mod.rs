//! Cases: what a program may rely on, one small function each.
//!
//! A case is written kernel-first: it states what the manual says, is run on the kernel, and agrees
//! with it. Its transcript must be the same on softring, line for line. So a case records only what
//! is certain: no times, pids, addresses or fd numbers, and completions in order only where order
//! is promised.

mod cx;

use softring_uapi::version::{Release, VERSIONS, Version};

pub use cx::{Cx, Outcome, Stop, rsrc, rsrc_update};

/// A feature that a case covers; the coverage test looks for every row of the engine's tables here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// An `IORING_OP_*`.
    Op(u8),
    /// An `IORING_REGISTER_*`.
    Reg(u32),
    /// An `IORING_SETUP_*` flag.
    Setup(u32),
    /// An `IORING_ENTER_*` flag.
    Enter(u32),
    /// An `IOSQE_*` flag.
    Sqe(u8),
    /// One of the traps at the end of the design.
    Trap(&'static str),
}

/// Conditions under which a case has its transcript, the least first. What a case promises must
/// hold wherever a fault can happen, not only at some seeds: `docs/HACKING.md` has the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// A calm kernel posts completions in its usual order: the case promises which comes first, how
    /// many come together, or that one comes within some time.
    Usual,
    /// Completions come in any order, and late, as by the faults of the preset `order`. The case
    /// promises a whole count of bytes, that a request is not interrupted, or that a multishot
    /// request goes on.
    AnyOrder,
    /// All faults of the preset `legal`: no count of bytes that may be short is in it, no request
    /// that may end with EINTR or EAGAIN, and no multishot request that may end. The client calls
    /// again where `io_uring_enter(2)` itself is interrupted or refused.
    Legal,
}

impl Holds {
    /// Returns the preset of faults.
    pub const fn preset(self) -> Option<&'static str> {
        match self {
            Self::Usual => None,
            Self::AnyOrder => Some("order"),
            Self::Legal => Some("legal"),
        }
    }
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub family: &'static str,
    pub name: &'static str,
    /// Statement that the case checks, in a sentence.
    pub why: &'static str,
    pub covers: &'static [Cover],
    /// Kernel whose ABI the case needs.
    pub abi: Release,
    pub holds: Holds,
    pub run: fn(&mut Cx) -> Outcome,
}

impl Case {
    /// Returns `family::name`.
    pub fn path(&self) -> String {
        format!("{}::{}", self.family, self.name)
    }
}

/// A row of a family's table: the function's name is the case's name.
macro_rules! case {
    ($family:literal, $name:ident, [$($cover:expr),* $(,)?], $why:literal) => {
        $crate::case::Case {
            family: $family,
            name: stringify!($name),
            why: $why,
            covers: &[$($cover),*],
            abi: $crate::case::OLDEST.release,
            holds: $crate::case::Holds::Usual,
            run: $name,
        }
    };
}
pub(crate) use case;

/// A row whose transcript is the same in any order, and however late completions come.
macro_rules! any_order {
    ($($row:tt)*) => {
        $crate::case::Case { holds: $crate::case::Holds::AnyOrder, ..$crate::case::case!($($row)*) }
    };
}
pub(crate) use any_order;

/// A row whose transcript is the same under all faults of the preset `legal`.
macro_rules! legal {
    ($($row:tt)*) => {
        $crate::case::Case { holds: $crate::case::Holds::Legal, ..$crate::case::case!($($row)*) }
    };
}
pub(crate) use legal;

/// A row that needs the newest ABI.
macro_rules! newest {
    ($($row:tt)*) => {
        $crate::case::Case { abi: $crate::case::NEWEST.release, ..$crate::case::case!($($row)*) }
    };
}
pub(crate) use newest;

/// The ABIs that a case can tell apart.
pub const OLDEST: &Version = &VERSIONS[0];
pub const NEWEST: &Version = &VERSIONS[1];

/// Imports that every family uses.
#[allow(unused_imports)]
pub(crate) mod prelude {
    pub(crate) use super::Cover::{Enter, Op, Reg, Setup, Sqe, Trap};
    pub(crate) use super::{
        Case, Cx, Outcome, Stop, any_order, case, legal, newest, rsrc, rsrc_update,
    };
    /// Flags of a ring whose completions wait for its task's GETEVENTS.
    pub(crate) const DEFER: u32 = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    pub(crate) use crate::entry::{self, EntryPoint};
    pub(crate) use crate::os::{self, BAD, KERNEL};
    pub(crate) use crate::ring::{Cqe, Ring};
    pub(crate) use crate::sqe::{self, SqeExt, addr, addr_mut, in_slot};
    pub(crate) use libc::{
        E2BIG, EACCES, EAGAIN, EALREADY, EBADF, EBADFD, EBUSY, ECANCELED, EEXIST, EFAULT, EINTR,
        EINVAL, EISDIR, EMFILE, ENOENT, ENOMEM, ENOSYS, ENOTDIR, ENXIO, EOPNOTSUPP, EOVERFLOW,
        EPERM, EPIPE, ESPIPE, ETIME,
    };
    pub(crate) use softring_uapi::*;
    pub(crate) use std::os::fd::AsRawFd;
}

/// Families, in the order of a life: make a ring, enter it, register things, submit operations.
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        /// Returns every case.
        pub fn all() -> impl Iterator<Item = &'static Case> {
            [$($family::CASES),*].into_iter().flatten()
        }
    };
}
// One family per line, so that two new families do not conflict.
#[rustfmt::skip]
families![
    setup,
    abi,
    changed,
    changed_buffers,
    entries,
    layout,
    no_mmap,
    enter,
    wait,
    signals,
    masks,
    clock,
    files,
    buffers,
    mappings,
    effects,
    register,
    restrict,
    rules,
    filters,
    programs,
    region,
    eventfd,
    worker,
    iowq,
    iowq_deferred,
    tasks,
    creds,
    creds_change,
    creds_queue,
    pbuf,
    pbuf_inc,
    pbuf_waits,
    napi,
    nop,
    no_socket,
    rw,
    rw_streams,
    page_cache,
    blocking,
    stall,
    stall_args,
    disk,
    write_signals,
    sync,
    locks,
    locks_forked,
    open,
    slots,
    paths,
    attrs,
    conn,
    net,
    net_all,
    net_left,
    net_msg,
    net_multi,
    net_order,
    net_polled,
    net_zc,
    net_bundle,
    fair,
    disconnects,
    inherited,
    hostile,
    scribble,
    command,
    nvme,
    timestamp,
    poll,
    poll_ring,
    pollers,
    cancelled,
    poll_arrays,
    poll_numbers,
    fd_reuse,
    kinds,
    reissue,
    task_work,
    epoll,
    epoll_sets,
    futex,
    futexv,
    futex_early,
    futex_stops,
    waitid,
    timeout,
    cancel,
    msg_ring,
    link,
    iopoll,
    sqpoll,
    sq_thread,
    undocumented,
    fuzz_found,
    fuzz_found_conn,
    fuzz_found_net,
    fuzz_found_wait,
    batches,
    bundle_ends,
    cq,
    process,
    jumps,
    handlers,
    thread_exit,
    limits,
    sweep,
    unopened,
    spurious_wakes,
    client,
];

/// Returns the cases whose path matches `pattern`, in which `*` stands for anything.
pub fn matching(pattern: &str) -> Vec<&'static Case> {
    all().filter(|c| glob(pattern, &c.path())).collect()
}

/// Returns whether `text` matches, where `*` is any run of characters; a pattern without `*` may
/// match any part of `text`.
pub fn glob(pattern: &str, text: &str) -> bool {
    if !pattern.contains('*') {
        return text.contains(pattern);
    }
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = "";
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
        last = part;
    }
    last.is_empty() || text.ends_with(last)
}
