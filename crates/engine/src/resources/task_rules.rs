//! Rules that a task sets for the rings that it creates: restrictions and filters. Kernel
//! counterpart: `struct io_uring_task`'s restrictions, `io_register_restrictions_task`,
//! `io_register_bpf_filter_task`.
//!
//! A task is a thread. A new thread inherits its creator's rules, but the engine is not told of new
//! threads and their creators. So a thread that sets rules records which threads exist, and a
//! thread that is not recorded has these rules. Over exec(2) rules are passed as text in an
//! environment variable.

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::format;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::CStr;
use core::fmt;
use core::str::FromStr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use softring_host::sync::real::Mutex;

use super::filters::Filters;
use super::of_process::PROCESS;
use super::restrictions::Restrictions;
use softring_host::{creds, sys};
use softring_uapi::errno::{Errno, Result};

/// Rules of a task. They are never removed.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) restrictions: Restrictions,
    pub(crate) filters: Filters,
    /// The environment variable and its value, once the rules are set.
    assignment: CString,
}

impl Rules {
    /// Creates rules of only these restrictions.
    pub(crate) fn only(restrictions: Restrictions) -> Self {
        Rules { restrictions, ..Rules::default() }
    }

    /// Returns the variable for the environment of a program that this task execs, or starts.
    pub fn assignment(&self) -> &CStr {
        &self.assignment
    }
}

/// Text form: that of the restrictions, followed by that of the filters.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.restrictions, self.filters)
    }
}

impl FromStr for Rules {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Rules> {
        let (restrictions, filters) = text.split_at(text.find(';').unwrap_or(text.len()));
        let (restrictions, filters) = (restrictions.parse()?, filters.parse()?);
        Ok(Rules { restrictions, filters, ..Rules::default() })
    }
}

/// Environment variable that passes rules over exec(2).
pub const VARIABLE: &CStr = c"SOFTRING_RULES";

/// Rules, and the threads that existed before them.
type Laid = (&'static Rules, Vec<i32>);

/// Rules set in a process.
#[derive(Debug)]
pub(super) struct OfProcess {
    laid: Mutex<Vec<Laid>>,
    /// Flag, set once any thread has set rules.
    any: AtomicBool,
}

impl OfProcess {
    pub(super) const fn new() -> Self {
        OfProcess { laid: Mutex::new(Vec::new()), any: AtomicBool::new(false) }
    }

    /// Keeps, in a forked child, the rules of the thread that forked.
    pub(super) fn in_child(&self) {
        let Self { laid, any } = self;
        if !any.load(Acquire) {
            return;
        }
        let rules = MINE.get().flatten();
        if let Some(mut laid) = laid.try_lock() {
            *laid = rules.into_iter().map(|rules| (rules, Vec::new())).collect();
        }
        any.store(rules.is_some(), Release);
    }
}

softring_host::per_thread! {
    /// Rules of this thread, once looked up.
    static MINE: Cell<Option<Option<&'static Rules>>> = const { Cell::new(None) };
}

/// Returns the calling task's rules.
pub fn mine() -> Option<&'static Rules> {
    if !PROCESS.rules.any.load(Acquire) {
        return None;
    }
    if let Some(known) = MINE.get() {
        return known;
    }
    let me = sys::gettid();
    let laid = PROCESS.rules.laid.lock();
    let inherited = laid.iter().rev().find(|(_, before)| !before.contains(&me));
    let rules = inherited.map(|(rules, _)| *rules);
    drop(laid);
    MINE.set(Some(rules));
    rules
}

/// Looks up the rules before a fork: the child's thread has another number.
pub(crate) fn before_fork() {
    mine();
}

/// Sets the rules that the previous program passed in `value`.
///
/// # Errors
/// `EINVAL` if `value` holds no rules.
pub fn inherit(value: &CStr) -> Result<()> {
    lay(value.to_str().map_err(|_| Errno::EINVAL)?.parse()?);
    Ok(())
}

/// Sets rules for the calling thread, and for those that it creates from now on.
pub(crate) fn lay(mut rules: Rules) {
    let me = sys::gettid();
    let assignment = format!("{}={rules}", VARIABLE.to_str().unwrap_or_default());
    rules.assignment = CString::new(assignment).unwrap_or_default();
    // Leaked: any thread may look them up later.
    let rules: &'static Rules = Box::leak(Box::new(rules));
    let threads = softring_host::files::names_in("/proc/self/task");
    let tids = threads.iter().filter_map(|name| name.parse().ok());
    let others = tids.filter(|&tid| tid != me).collect();
    PROCESS.rules.laid.lock().push((rules, others));
    MINE.set(Some(Some(rules)));
    PROCESS.rules.any.store(true, Release);
}

/// Checks that the calling task may set rules: it cannot gain rights by exec, or has them anyway
/// (as with seccomp(2)).
///
/// # Errors
/// `EACCES` if not.
pub(crate) fn may_lay() -> Result<()> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    if creds::no_new_privs() || creds::capabilities() & CAP_SYS_ADMIN != 0 {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}
