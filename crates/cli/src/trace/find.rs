//! The memory for events of a running process.

use crate::{fail, memfd, sys};
use softring_engine::stats::trace::NAME;
use softring_engine::stats::trace::read::Reader;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};

/// Opens the memory of `pid`, to be turned on; None if it has none of its own.
///
/// # Errors
/// `Unsupported` if it is of another version; those of reading `/proc/PID/fd`.
pub fn memory(pid: i32) -> io::Result<Option<Reader>> {
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    let mut other = false;
    for file in memfd::of(pid, NAME, &how)? {
        match Reader::open(sys::to_engine(file?), Some(pid.cast_unsigned())) {
            // A forked child may hold its parent's as well.
            Ok(reader) => {
                let inner = sys::inner_pid(&format!("/proc/{pid}"));
                if Some(reader.inner_pid().cast_signed()) == inner {
                    return Ok(Some(reader));
                }
            }
            Err(_) => other = true,
        }
    }
    let why = "the process runs another version of softring";
    if other { Err(io::Error::new(ErrorKind::Unsupported, why)) } else { Ok(None) }
}

/// Opens the memory, or returns an error that says why there is none.
pub fn open(pid: i32) -> anyhow::Result<Reader> {
    memfd::need_proc("find the processes to trace")?;
    let hint = "start the program with softring trace -- CMD, or softring strace -- CMD";
    match memory(pid) {
        Ok(Some(reader)) => Ok(reader),
        Ok(None) => {
            let what = format!("process {pid} cannot be traced: it has no ring of softring");
            Err(fail::work_hint(what, hint))
        }
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            Err(fail::work_hint(format!("process {pid} cannot be traced: {e}"), hint))
        }
        Err(e) => Err(memfd::refused(pid, &e, "trace")),
    }
}
