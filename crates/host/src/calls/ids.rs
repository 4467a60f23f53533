//! Calls of a thread's credentials.
#![allow(unsafe_code)]

use super::calls;
use crate::sys::sys;
use softring_uapi::errno::{Result, check};

calls! {
    /// Calls setfsuid(2); returns the previous id.
    fn setfsuid(id: u32) = __NR_setfsuid;
    /// Calls setfsgid(2); returns the previous id.
    fn setfsgid(id: u32) = __NR_setfsgid;
    /// Calls setresuid(2) for the calling thread.
    fn setresuid(real: u32, effective: u32, saved: u32) = __NR_setresuid;
    /// Calls setresgid(2) for the calling thread.
    fn setresgid(real: u32, effective: u32, saved: u32) = __NR_setresgid;
    /// Calls geteuid(2).
    fn geteuid() = __NR_geteuid;
    /// Calls getegid(2).
    fn getegid() = __NR_getegid;
    /// Calls ioprio_set(2).
    fn ioprio_set(which: u32, who: i32, priority: u16) = __NR_ioprio_set;
}

/// Returns an attribute by prctl(2).
///
/// # Errors
/// As the call.
pub(crate) fn attribute(what: Attribute) -> Result<usize> {
    // SAFETY: numbers.
    check(unsafe { sys!(__NR_prctl, what as u32, 0, 0, 0, 0) })
}

/// Attribute that [`attribute`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Attribute {
    /// `PR_GET_DUMPABLE`
    Dumpable = 3,
    /// `PR_GET_SECCOMP`
    Seccomp = 21,
    /// `PR_GET_NO_NEW_PRIVS`
    NoNewPrivs = 39,
}

/// Lets the thread keep its capabilities when its users change (`PR_SET_KEEPCAPS`).
pub(crate) fn keep_capabilities() {
    const PR_SET_KEEPCAPS: u32 = 8;
    // SAFETY: numbers.
    unsafe { sys!(__NR_prctl, PR_SET_KEEPCAPS, 1, 0, 0, 0) };
}

/// Makes the process dumpable (`PR_SET_DUMPABLE`).
pub(crate) fn set_dumpable() {
    const PR_SET_DUMPABLE: u32 = 4;
    // SAFETY: numbers.
    unsafe { sys!(__NR_prctl, PR_SET_DUMPABLE, 1) };
}

/// Calls setgroups(2) for the calling thread.
///
/// # Errors
/// As the call.
pub fn setgroups(groups: &[u32]) -> Result<usize> {
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_setgroups, groups.len(), groups.as_ptr().expose_provenance()) })
}

/// Calls getgroups(2); returns the number of groups. An empty slice gets none of them.
///
/// # Errors
/// As the call: `EINVAL` where there is too little room.
pub(crate) fn getgroups(to: &mut [u32]) -> Result<usize> {
    // SAFETY: the slice is the caller's, and the kernel is told its length.
    check(unsafe { sys!(__NR_getgroups, to.len(), to.as_mut_ptr().expose_provenance()) })
}

/// Calls getresuid(2) or getresgid(2): real, effective, saved.
///
/// # Errors
/// As the call; `ENOSYS`.
pub fn three(of_group: bool) -> Result<[u32; 3]> {
    let mut ids = [0u32; 3];
    let [r, e, s] = ids.each_mut().map(|id| core::ptr::from_mut(id).expose_provenance());
    // SAFETY: the three words are ours.
    check(unsafe {
        match of_group {
            false => sys!(__NR_getresuid, r, e, s),
            true => sys!(__NR_getresgid, r, e, s),
        }
    })?;
    Ok(ids)
}

/// Header of capget(2): `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
const CAPABILITIES: [u32; 2] = [0x2008_0522, 0];
/// Sets of version 3: effective, permitted, inheritable; the lower halves first.
pub type Capabilities = [[u32; 3]; 2];

/// Calls capget(2) for the calling thread; returns zeroes if it is refused.
pub fn capabilities() -> Capabilities {
    let mut all = Capabilities::default();
    let (of, to) = (CAPABILITIES.as_ptr().expose_provenance(), (&raw mut all).expose_provenance());
    // SAFETY: two structures of three words each are ours. The kernel writes the header only where
    // it does not know the version, which it does since Linux 2.6.26.
    unsafe { sys!(__NR_capget, of, to) };
    all
}

/// Calls capset(2) for the calling thread.
///
/// # Errors
/// As the call.
pub(crate) fn set_capabilities(all: &Capabilities) -> Result<()> {
    let (of, from) = (CAPABILITIES.as_ptr().expose_provenance(), all.as_ptr().expose_provenance());
    // SAFETY: the kernel reads there.
    check(unsafe { sys!(__NR_capset, of, from) }).map(drop)
}
