//! What processes under softring keep for others to look at: files in memory, found through
//! `/proc`.

use crate::fail;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// An error where there is no `/proc` to look through; `what` is what cannot be done then.
pub fn need_proc(what: &str) -> anyhow::Result<()> {
    if Path::new("/proc/self").exists() {
        return Ok(());
    }
    let hint = "mount it: mount -t proc proc /proc";
    Err(fail::work_hint(format!("/proc is not mounted here, through which softring {what}"), hint))
}

/// The files in memory that process `pid` holds and that are called `name`, opened as `how` says.
/// A forked child may hold its parent's.
///
/// # Errors
/// Those of reading `/proc/PID/fd`: NotFound where there is no such process, PermissionDenied where
/// it is another user's.
pub fn of(
    pid: i32,
    name: &str,
    how: &OpenOptions,
) -> io::Result<impl Iterator<Item = File> + use<>> {
    let dir = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let begins = format!("/memfd:{name}");
    let named = move |fd: &Path| {
        fs::read_link(fd).is_ok_and(|link: PathBuf| link.to_string_lossy().starts_with(&begins))
    };
    let mut how = how.clone();
    // A stranger may call a FIFO so.
    how.custom_flags(libc::O_NONBLOCK);
    let fds = dir.filter_map(Result::ok).map(|e| e.path()).filter(move |fd| named(fd));
    let files = fds.filter_map(move |fd| how.open(fd).ok());
    Ok(files.filter(|f| f.metadata().is_ok_and(|m| m.is_file())))
}

/// The error to end with where `of` had one; `what` is what was to be done to the process.
pub fn refused(pid: i32, e: &io::Error, what: &str) -> anyhow::Error {
    match e.kind() {
        io::ErrorKind::NotFound => {
            let hint = "softring stats lists the processes that have rings";
            fail::work_hint(format!("there is no process {pid}"), hint)
        }
        io::ErrorKind::PermissionDenied => {
            let hint = "run softring as the same user, or as root";
            fail::work_hint(format!("process {pid} is not yours to {what}"), hint)
        }
        _ => fail::work(format!("cannot look at process {pid}: {e}")),
    }
}
