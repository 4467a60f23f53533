//! Surroundings of a check: its rings, its files, its expectations.

use super::{Checked, Fault};
use crate::entry::EntryPoint;
use crate::ring::Ring;
use crate::sqe::SqeExt;
use softring_uapi::io_uring_sqe;
use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::path::PathBuf;

/// State that all checks share.
#[derive(Debug)]
pub struct Fixture {
    pub entry: EntryPoint,
    dir: tempfile::TempDir,
}

impl Fixture {
    pub fn new(entry: EntryPoint) -> Result<Self, Fault> {
        let dir = tempfile::tempdir().map_err(|e| format!("no directory for files: {e}"))?;
        Ok(Self { entry, dir })
    }

    pub fn ring(&self, entries: u32, flags: u32) -> Result<Ring, Fault> {
        Ring::new(self.entry, entries, flags).map_err(|e| format!("io_uring_setup: {}", name(e)))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a file with `data`, open for reading and writing.
    pub fn file(&self, name: &str, data: &[u8]) -> Result<File, Fault> {
        let path = self.path(name);
        fine("writing a file", std::fs::write(&path, data))?;
        fine("opening a file", File::options().read(true).write(true).open(path))
    }
}

/// Returns the result of a call of the check's own, which the policy does not concern.
pub fn fine<T>(what: &str, answer: std::io::Result<T>) -> Result<T, Fault> {
    answer.map_err(|e| format!("{what}: {e}"))
}

pub fn pipe() -> Result<(PipeReader, PipeWriter), Fault> {
    fine("pipe", std::io::pipe())
}

/// Compares two values.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Checked {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?} in place of {want:?}")) }
}

/// Returns an errno's name, for people.
pub fn name(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os").next().unwrap_or_default().to_owned()
}

fn res_name(res: i32) -> String {
    if res < 0 { name(-res) } else { res.to_string() }
}

/// Submits all, without waiting.
pub fn start(ring: &mut Ring, all: &[io_uring_sqe]) -> Checked {
    for sqe in all {
        ring.push(*sqe);
    }
    let submitted = ring.submit();
    same("submitted", submitted, all.len() as isize)
}

/// Waits for completions and compares their results, sorted by `user_data`.
pub fn reap(ring: &mut Ring, what: &str, want: &[(u64, i32)]) -> Checked {
    let mut got = ring.take(want.len()).map_err(|e| format!("{what}: enter: {}", name(e)))?;
    got.sort_by_key(|c| c.user_data);
    let got: Vec<_> = got.iter().map(|c| (c.user_data, res_name(c.res))).collect();
    let want: Vec<_> = want.iter().map(|(ud, res)| (*ud, res_name(*res))).collect();
    same(what, got, want)
}

/// Submits requests numbered from 0 and compares their results.
pub fn batch(ring: &mut Ring, what: &str, all: &[(io_uring_sqe, i32)]) -> Checked {
    let numbered = |(ud, (sqe, _)): (usize, &(io_uring_sqe, i32))| sqe.ud(ud as u64);
    let sqes: Vec<_> = all.iter().enumerate().map(numbered).collect();
    start(ring, &sqes).map_err(|e| format!("{what}: {e}"))?;
    let want: Vec<_> = all.iter().enumerate().map(|(ud, (_, res))| (ud as u64, *res)).collect();
    reap(ring, what, &want)
}

/// Submits one request and returns its result.
pub fn one(ring: &mut Ring, what: &str, sqe: io_uring_sqe) -> Result<i32, Fault> {
    start(ring, &[sqe]).map_err(|e| format!("{what}: {e}"))?;
    let got = ring.take(1).map_err(|e| format!("{what}: enter: {}", name(e)))?;
    Ok(got[0].res)
}

/// Submits one request and compares its result.
pub fn expect(ring: &mut Ring, what: &str, sqe: io_uring_sqe, want: i32) -> Checked {
    let got = one(ring, what, sqe)?;
    same(what, res_name(got), res_name(want))
}
