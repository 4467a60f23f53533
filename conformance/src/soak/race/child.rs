//! Requests that wait for the end of a child.

use rustix::process::{Pid, setpgid};

use super::super::{Check, ensure};
use super::make::{Waiting, one_of, page, wrong};
use crate::os;
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

/// Makes a WAITID for one child, or for any of a group of one child.
pub(super) fn waitid(group: bool) -> Check<Waiting> {
    let page = page()?;
    let pid = os::spawn_child(|| os::poll(-1, 0, -1));
    ensure(pid > 0, || format!("fork: {pid}"))?;
    let child = Pid::from_raw(pid);
    setpgid(child, child).map_err(wrong)?;
    let (name, kind) =
        if group { ("WAITID of a group", libc::P_PGID) } else { ("WAITID", libc::P_PID) };
    Ok(Waiting {
        name,
        sqes: vec![sqe::op(IORING_OP_WAITID, pid).set(|s| {
            (s.len, s.file_index) = (kind, libc::WEXITED.cast_unsigned());
            s.off = page.addr as u64;
        })],
        fd: -1,
        happen: Box::new(move || os::signal(pid, libc::SIGKILL)),
        account: Box::new(move |cqes, _| {
            one_of(&cqes[0], |res| res == 0)?;
            let want = if cqes[0][0].res == 0 { -libc::ECHILD } else { 128 + libc::SIGKILL };
            let got = os::wait_for(pid);
            ensure(got == want, || format!("waitpid {got}, not {want}"))
        }),
        page,
    })
}
