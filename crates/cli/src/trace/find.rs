//! The memory for events of a running process.

use crate::fail;
use softring_engine::stats::trace::NAME;
use softring_engine::stats::trace::read::Reader;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The memory of `pid`, to be turned on.
pub fn open(pid: i32) -> anyhow::Result<Reader> {
    match look(pid) {
        Ok(Some(reader)) => Ok(reader),
        Ok(None) => Err(fail::work_hint(
            format!("process {pid} cannot be traced: no ring of softring's, or another version"),
            "softring trace -- CMD starts a program and traces it",
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let hint = "softring stats lists the processes that have rings";
            Err(fail::work_hint(format!("there is no process {pid}"), hint))
        }
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let hint = "run softring trace as the same user, or as root";
            Err(fail::work_hint(format!("process {pid} is not yours to trace"), hint))
        }
        Err(e) => Err(fail::work(format!("cannot look at process {pid}: {e}"))),
    }
}

fn look(pid: i32) -> io::Result<Option<Reader>> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd"))?;
    for fd in fds.filter_map(Result::ok).map(|e| e.path()).filter(|p| is_trace(p)) {
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let Ok(file) = how.open(&fd) else { continue };
        // A forked child may hold its parent's before it has one.
        if let Ok(reader) = Reader::open(file.into())
            && reader.pid().cast_signed() == pid
        {
            return Ok(Some(reader));
        }
    }
    Ok(None)
}

fn is_trace(fd: &Path) -> bool {
    let named =
        |link: std::path::PathBuf| link.to_string_lossy().starts_with(&format!("/memfd:{NAME} "));
    fs::read_link(fd).is_ok_and(named)
}
