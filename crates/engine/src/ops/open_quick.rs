//! Opens by the submitter that take fewer calls, or no worker.
//!
//! **Of a path that the directory cache knows.** Prep opens it by the program's own copy of the
//! path, which the kernel reads: a copy of ours would take a system call that checks the memory.
//! If that fails, for whatever reason, the request goes on as any other, so a bad address or a name
//! that is too long fails prep as ever.
//!
//! **That may create or truncate a file**, on file systems where they hardly ever wait. The
//! kernel's ring gives each to a worker (`io_openat_force_async`), and so does this one at first:
//! the way there and back takes 15 µs, the open 5. The submitter makes them itself by the rule for
//! short writes (`ops::rw_quick`), with a record of their own: once those of workers hardly ever
//! had to wait, and until two of some 256 of the submitter's have to.
//!
//! The open names only a path, so the file system is that of the last file that a worker opened in
//! the same directory. Only disks of this machine and memory count: another one may be served by
//! the submitter itself. As in an open without a worker, O_NONBLOCK is on meanwhile, for FIFOs.

use softring_host::os::fd::{AsRawFd, OwnedFd};

use crate::ops::open_how::{AT_FDCWD, How};
use crate::ring::ctx::Ctx;
use crate::ring::request::{Req, ReqFlags};
use softring_host::fd::directories::Directory;
use softring_host::fd::file_systems::WrittenOn;
use softring_host::fd::visible;
use softring_uapi::errno::{Errno, Result};

/// Returns the directory of an open for which there is a record. A FIFO that is opened for reading
/// would be open before its writer has come; a number may mean another directory each time.
fn directory(how: How, dir: i32, path: &[u8]) -> Option<Directory> {
    let by_path = dir == AT_FDCWD || path.starts_with(b"/");
    (by_path && how.needs_worker() && how.writes() && !how.is_unnamed())
        .then(|| Directory::of(path))
}

/// Returns whether the submitter tries the request as soon as it is prepped.
fn is_submitters(ctx: &Ctx, req: &Req) -> bool {
    let apart = ReqFlags::LINKS | ReqFlags::FORCE_ASYNC | ReqFlags::FIXED_FILE;
    // A filter sees the flag of a worker's request.
    ctx.submit.open
        && !req.flags.intersects(apart)
        && ctx.submit.head.is_none()
        && !req.names_personality()
        && !ctx.setup.filters.any()
}

/// Opens a file for the program in prep, if its path is in the directory cache.
pub(crate) fn open_in_prep(ctx: &mut Ctx, req: &Req, how: How) -> Option<OwnedFd> {
    let sqe = req.call.sqe();
    let direct = sqe.file_index != 0;
    // A fault may come in place of the open, and a trace tells the path.
    let told = req.flags.contains(ReqFlags::FAULTED) || req.trace != 0;
    if direct || told || how.needs_worker() || !is_submitters(ctx, req) || ctx.runs_elsewhere(req) {
        return None;
    }
    let (dir, path) = (visible(sqe.fd), sqe.addr);
    ctx.unlocked(|| how.open_cached(dir, path)).ok()
}

/// Returns where a new file goes, if the submitter may open it itself: the file system trusts
/// submitters, and nobody can tell.
pub(crate) fn file_system(ctx: &Ctx, req: &Req, how: How, path: &[u8]) -> WrittenOn {
    if !is_submitters(ctx, req) || ctx.eventfd_tells_workers() {
        return WrittenOn::default();
    }
    let dir = directory(how, req.call.sqe().fd, path);
    let on = dir.and_then(Directory::file_system).unwrap_or_default();
    let trusted = on.record().is_some_and(|record| record.opens().is_given());
    if trusted { on.with_waits() } else { WrittenOn::default() }
}

/// Opens on the submitter's thread, which may have to wait.
///
/// # Errors
/// `EAGAIN` if a worker has to open it.
pub(crate) fn open(
    on: WrittenOn,
    how: How,
    open: impl FnOnce(How) -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let opened = how.open_nonblocking(|how| match on.record() {
        Some(record) => record.opens().spend(|| open(how)),
        None => open(how),
    });
    // A FIFO without a reader, a lease, a signal.
    let by_worker = |e| if matches!(e, Errno::ENXIO | Errno::EINTR) { Errno::EAGAIN } else { e };
    opened.map_err(by_worker)
}

/// Makes a worker's open, and counts it as long as the file system does not trust submitters.
pub(crate) fn by_worker(
    how: How,
    (dir, path): (i32, &[u8]),
    open: impl FnOnce() -> Result<OwnedFd>,
) -> Result<OwnedFd> {
    let Some(at) = directory(how, dir, path) else { return open() };
    let Some(on) = at.file_system() else {
        return open().inspect(|fd| at.learn(fd.as_raw_fd()));
    };
    match on.record() {
        Some(record) if !record.opens().is_given() => record.opens().earn(open, Result::is_ok),
        _ => open(),
    }
}
