//! What a task lays down for the rings that it makes: restrictions and filters. Kernel counterpart:
//! `struct io_uring_task`'s restrictions, `io_register_restrictions_task`,
//! `io_register_bpf_filter_task`.
//!
//! A task is a thread. One that is made later has its maker's rules; nobody tells the engine who
//! that is, nor when. So whoever lays rules down writes down which threads there are, and a thread
//! that is not among them has these rules. Over exec(2) they go as text in a variable of the
//! environment.

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

/// What a task has laid down. It is never taken back.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) restrictions: Restrictions,
    pub(crate) filters: Filters,
    /// The variable and its value, once they are laid down.
    assignment: CString,
}

impl Rules {
    /// Rules that are only these restrictions.
    pub(crate) fn only(restrictions: Restrictions) -> Self {
        Rules { restrictions, ..Rules::default() }
    }

    /// What the environment of a program has to say that this task turns into, or starts.
    pub fn assignment(&self) -> &CStr {
        &self.assignment
    }
}

/// The text of the restrictions, and that of the filters.
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

/// The variable that tells rules over exec(2).
pub const VARIABLE: &CStr = c"SOFTRING_RULES";

/// Rules, and the threads that there were before them.
type Laid = (&'static Rules, Vec<i32>);

/// What a process has once of them.
#[derive(Debug)]
pub(super) struct OfProcess {
    laid: Mutex<Vec<Laid>>,
    /// Has any thread laid some down?
    any: AtomicBool,
}

impl OfProcess {
    pub(super) const fn new() -> Self {
        OfProcess { laid: Mutex::new(Vec::new()), any: AtomicBool::new(false) }
    }

    /// A child goes on with the rules of the thread that made it.
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
    /// This thread's rules, once it has asked for them.
    static MINE: Cell<Option<Option<&'static Rules>>> = const { Cell::new(None) };
}

/// The calling task's rules.
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

/// A fork is about to be made: the child's thread has another number.
pub(crate) fn before_fork() {
    mine();
}

/// The program starts with the rules that the one before has told by `value`.
///
/// # Errors
/// `EINVAL` if that are none.
pub fn inherit(value: &CStr) -> Result<()> {
    lay(value.to_str().map_err(|_| Errno::EINVAL)?.parse()?);
    Ok(())
}

/// Lays rules down for the calling thread, and those that it makes from now on.
pub(crate) fn lay(mut rules: Rules) {
    let me = sys::gettid();
    let assignment = format!("{}={rules}", VARIABLE.to_str().unwrap_or_default());
    rules.assignment = CString::new(assignment).unwrap_or_default();
    // They stay for as long as a thread may ask for them.
    let rules: &'static Rules = Box::leak(Box::new(rules));
    let threads = softring_host::files::names_in("/proc/self/task");
    let tids = threads.iter().filter_map(|name| name.parse().ok());
    let others = tids.filter(|&tid| tid != me).collect();
    PROCESS.rules.laid.lock().push((rules, others));
    MINE.set(Some(Some(rules)));
    PROCESS.rules.any.store(true, Release);
}

/// May the calling task lay rules down? Only who cannot gain rights by exec, or has them anyway (as
/// with seccomp(2)).
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
