//! The memory for events of a running process.

use crate::{fail, memfd};
use softring_engine::stats::trace::NAME;
use softring_engine::stats::trace::read::Reader;
use std::fs::OpenOptions;

/// The memory of `pid`, to be turned on.
pub fn open(pid: i32) -> anyhow::Result<Reader> {
    memfd::need_proc("finds what it traces")?;
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    let files = memfd::of(pid, NAME, &how).map_err(|e| memfd::refused(pid, &e, "trace"))?;
    let mut readers = files.filter_map(|file| Reader::open(file.into()).ok());
    readers.find(|reader| reader.pid().cast_signed() == pid).ok_or_else(|| {
        fail::work_hint(
            format!("process {pid} cannot be traced: no ring of softring's, or another version"),
            "softring trace -- CMD starts a program and traces it",
        )
    })
}
