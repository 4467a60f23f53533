//! Files in memory that processes under softring keep for others to read, found through `/proc`.

use crate::{container, fail, files};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Returns an error if there is no `/proc` to search; `what` is what cannot be done then.
pub fn need_proc(what: &str) -> anyhow::Result<()> {
    if Path::new("/proc/self").exists() {
        return Ok(());
    }
    let hint = "mount /proc: mount -t proc proc /proc";
    Err(fail::work_hint(format!("/proc is not mounted here; softring needs it to {what}"), hint))
}

/// Returns the files in memory called `name` that process `pid` holds, opened as `how` says. A
/// forked child may hold its parent's.
///
/// A file that cannot be opened for want of a descriptor is an error in its place.
///
/// The process may put another file under a number between any two calls of ours, and we may be
/// root. So the file is first taken without opening it (O_PATH), checked, and only then opened,
/// through our own descriptor.
///
/// # Errors
/// Those of reading `/proc/PID/fd`: NotFound if there is no such process, PermissionDenied if it is
/// another user's.
pub fn of(
    pid: i32,
    name: &str,
    how: &OpenOptions,
) -> io::Result<impl Iterator<Item = io::Result<File>> + use<>> {
    let dir = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let begins = format!("/memfd:{name}");
    let named = move |link: &Path| {
        fs::read_link(link).is_ok_and(|to: PathBuf| to.to_string_lossy().starts_with(&begins))
    };
    let mut how = how.clone();
    how.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let lacking = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    Ok(dir.filter_map(Result::ok).map(|entry| entry.path()).filter_map(move |link| {
        // Most descriptors are of other files, which the link tells at once.
        if !named(&link) {
            return None;
        }
        let opened = rustix::fs::open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let file = match opened.map_err(io::Error::from) {
            Ok(file) => file,
            Err(e) => return lacking(&e).then_some(Err(e)),
        };
        let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // A file in memory has no name in any directory, whatever its link says.
        let stat = rustix::fs::fstat(&file).ok()?;
        let in_memory =
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 0;
        if !in_memory || !named(&own) {
            return None;
        }
        Some(how.open(&own)).filter(|opened| opened.as_ref().err().is_none_or(lacking))
    }))
}

/// Makes the error to end with if `of` had one; `what` is what was to be done to the process.
pub fn refused(pid: i32, e: &io::Error, what: &str) -> anyhow::Error {
    match e.kind() {
        io::ErrorKind::NotFound => {
            let hint = "softring metrics lists the processes that have rings";
            fail::work_hint(format!("there is no process {pid}"), hint)
        }
        io::ErrorKind::PermissionDenied => {
            let (why, hint) = not_yours(pid);
            let place = container::words_of(pid);
            fail::work_hint(format!("you may not {what} process {pid}{place}{why}"), hint)
        }
        _ => fail::work(format!("cannot inspect process {pid}: {e}")),
    }
}

/// Returns why a process is refused, and who may read it. The kernel keeps a process that has
/// changed its user, or runs a file that may not be read, from all but root, also from the user
/// that it runs as now (`dumpable` of prctl(2)): its files in /proc are root's then.
fn not_yours(pid: i32) -> (String, &'static str) {
    let status = files::proc_text(&format!("/proc/{pid}/status")).unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = user.and_then(|ids| ids.split_whitespace().nth(1)?.parse::<u32>().ok());
    let owner = fs::metadata(format!("/proc/{pid}/fd")).ok().map(|meta| meta.uid());
    match (user, owner) {
        (Some(user), Some(owner)) if user != owner => (
            format!(": the process has changed its user (to {user}), or its program is unreadable"),
            "run softring as root of the host, or as root of the container of the process",
        ),
        _ => (String::new(), "run softring as the same user, or as root"),
    }
}
