//! The statistics pages of running processes, found through `/proc`.

use crate::{container, fail, memfd, out, sys};
use softring_engine::stats::clean::printable;
use softring_engine::stats::{NAME, read};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;

/// A process's page, open, so that it can be read after the process has ended.
#[derive(Debug)]
pub struct Source {
    pub pid: i32,
    pub command: String,
    container: Option<String>,
    file: File,
}

/// Contents of a page at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    pub pid: i32,
    pub command: String,
    /// Container that the process is in, if any.
    pub container: Option<String>,
    pub page: read::Page,
}

impl Source {
    pub fn new(pid: i32, command: String, file: File) -> Source {
        Source { pid, command, container: container::of(pid), file }
    }

    /// Returns the number that tells the page from all others while it is open.
    pub fn page_number(&self) -> u64 {
        self.file.metadata().map_or(0, |m| m.ino())
    }

    /// Reads the page; None if that is not possible any more.
    pub fn read(&self) -> Option<Reading> {
        let page = read::file(sys::for_engine(&self.file)).ok()?;
        let (command, container) = (self.command.clone(), self.container.clone());
        Some(Reading { pid: self.pid, command, container, page })
    }
}

/// Reason why a process cannot be read.
#[derive(Debug)]
pub enum Trouble {
    Io(io::Error),
    Version(u64),
    /// A page that softring does not make.
    Foreign,
}

/// Most files of one process that are read: its own page, and those that its ancestors have left to
/// it by forks.
const MOST_FILES: usize = 64;

/// Opens the page of a process; None if it has no page of its own.
pub fn open(pid: i32) -> Result<Option<Source>, Trouble> {
    let mut trouble = None;
    let files = memfd::of(pid, NAME, OpenOptions::new().read(true)).map_err(Trouble::Io)?;
    for file in files.take(MOST_FILES) {
        let file = file.map_err(Trouble::Io)?;
        match read::writer(sys::for_engine(&file)) {
            // A forked child may hold its parent's as well.
            Ok(writer) if Some(writer.cast_signed()) == sys::inner_pid(&format!("/proc/{pid}")) => {
                return Ok(Some(Source::new(pid, command_of(pid), file)));
            }
            Err(read::Unreadable::Version(v)) => trouble = Some(Trouble::Version(v)),
            Err(read::Unreadable::Foreign) => trouble = Some(Trouble::Foreign),
            _ => {}
        }
    }
    trouble.map_or(Ok(None), Err)
}

/// Returns the process's name.
fn command_of(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    printable(name.trim_ascii_end())
}

/// Every process with a page. Processes that may not be read, or end meanwhile, are passed over.
#[derive(Debug, Default)]
pub struct All {
    pub readings: Vec<Reading>,
    /// Processes with pages that softring does not make.
    pub foreign: Vec<i32>,
}

impl All {
    pub fn read() -> anyhow::Result<All> {
        let mut all = All::default();
        for pid in pids()? {
            match open(pid) {
                Ok(Some(source)) => all.readings.extend(source.read()),
                Err(Trouble::Foreign) => all.foreign.push(pid),
                _ => {}
            }
        }
        all.readings.sort_by_key(|p| p.pid);
        Ok(all)
    }
}

/// Names the processes with pages that softring does not make, in one line however many they are.
pub fn note_foreign(pids: &[i32]) {
    let Some(first) = pids.first() else { return };
    let more = match pids.len() - 1 {
        0 => String::new(),
        n => format!(" and of {n} more processes"),
    };
    out::note(&format!(
        "not read: the statistics page of process {first}{more}, which softring did not write"
    ));
}

/// Purpose of reading `/proc`.
const FINDS: &str = "find the statistics of programs";

/// Returns all processes.
pub fn pids() -> anyhow::Result<impl Iterator<Item = i32>> {
    memfd::need_proc(FINDS)?;
    let entries = fs::read_dir("/proc")
        .map_err(|e| fail::work_hint(format!("cannot read /proc: {e}"), "mount /proc"))?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok()))
}

/// Opens the page of one process, or returns an error that says why there is none.
pub fn one(pid: i32) -> anyhow::Result<Source> {
    memfd::need_proc(FINDS)?;
    match open(pid) {
        Ok(Some(source)) => Ok(source),
        Ok(None) => Err(fail::work_hint(
            format!(
                "process {pid} keeps no statistics: it has no ring of softring, or has --no-stats"
            ),
            "softring metrics without -p lists the processes that keep statistics",
        )),
        Err(Trouble::Version(v)) => Err(fail::work_hint(
            format!("process {pid} runs another version of softring (page version {v})"),
            "use the softring that started the process",
        )),
        Err(Trouble::Foreign) => Err(fail::work(format!(
            "the statistics page of process {pid} is not read, because softring did not write it"
        ))),
        Err(Trouble::Io(e)) => Err(memfd::refused(pid, &e, "inspect")),
    }
}

/// Returns the name of an operation in the statistics: `nop`, `recv`.
pub fn op_name(op: usize) -> String {
    let name = u8::try_from(op).ok().and_then(softring_uapi::op_name);
    name.unwrap_or("invalid").to_ascii_lowercase()
}
