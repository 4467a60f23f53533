//! Test of whether the process that a ring's lock names can still release it.
//!
//! A process cannot release the lock once it has ended, nor once it has called execve(2), which
//! ends its threads wherever they are and drops its memory, while its id lives on. So the test is
//! whether the process still maps the ring's page. If /proc does not tell, the page is taken as
//! mapped.

use core::ffi::CStr;
use core::fmt::Write;

use softring_host::os::fs::{Mode, OFlags, open};

use softring_host::sys;

/// Device and inode of a mapping, adjacent as in /proc/PID/maps.
type File = [u8; 40];

/// A path, padded with zeros.
#[derive(Default)]
struct Path {
    bytes: [u8; 32],
    len: usize,
}

impl Path {
    fn text(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.len + text.len();
        let to = self.bytes.get_mut(self.len..end).ok_or(core::fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Returns whether process `pid` is gone, or has called execve(2) since it mapped the page at
/// `addr`.
pub(super) fn is_gone(pid: u32, addr: usize) -> bool {
    !softring_host::substitute::process_lives(pid)
        || (pid != me() && has_let_go(pid, addr) == Some(true))
}

fn me() -> u32 {
    softring_host::calls::process::getpid()
}

/// Returns whether the process maps nothing of the file that is mapped here at `addr`; `None`:
/// unknown.
fn has_let_go(pid: u32, addr: usize) -> Option<bool> {
    let mut ours = None;
    maps(me(), |range, file| {
        if range.contains(&addr) {
            ours = Some(*file);
        }
    })?;
    let ours = ours?;
    let mut any = false;
    let mut found = false;
    maps(pid, |_, file| {
        any = true;
        found |= *file == ours;
    })?;
    // A process that is exiting, or inside execve, has no memory to show.
    any.then_some(!found)
}

/// Calls `f` with each mapping of a process: its range, and its file. Allocates no memory, as the
/// caller may be a signal handler.
fn maps(pid: u32, mut f: impl FnMut(core::ops::Range<usize>, &File)) -> Option<()> {
    let mut path = Path::default();
    write!(path, "/proc/{pid}/maps").ok()?;
    let list = open(path.text()?, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let list = sys::EngineFd::from(list);
    let mut buf = [0; 4096];
    // Start of the current line, without its path.
    let (mut line, mut len) = ([0; 96], 0);
    loop {
        let n = softring_host::os::io::read(&list, &mut buf).ok()?;
        if n == 0 {
            return Some(());
        }
        for &byte in &buf[..n] {
            if byte == b'\n' {
                let (range, file) = parse(&line[..len])?;
                f(range, &file);
                len = 0;
            } else if len < line.len() {
                line[len] = byte;
                len += 1;
            }
        }
    }
}

/// Parses a line `from-to rwxp offset device inode path`.
fn parse(line: &[u8]) -> Option<(core::ops::Range<usize>, File)> {
    let mut fields = line.split(|&b| b == b' ');
    let (from, to) = core::str::from_utf8(fields.next()?).ok()?.split_once('-')?;
    let hex = |s| usize::from_str_radix(s, 16).ok();
    let mut file = [0; size_of::<File>()];
    let (device, inode) = (fields.nth(2)?, fields.next()?);
    let (first, rest) = file.split_at_mut_checked(device.len())?;
    first.copy_from_slice(device);
    let (space, rest) = rest.split_first_mut()?;
    *space = b' ';
    rest.get_mut(..inode.len())?.copy_from_slice(inode);
    Some((hex(from)?..hex(to)?, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softring_host::os::fd::{AsFd, AsRawFd};

    #[test]
    fn a_line_names_its_range_and_its_file() {
        let line = b"7f00-7f10 rw-s 00000000 00:01 1045    /memfd:[io_uring] (deleted)";
        let (range, file) = parse(line).unwrap();
        assert_eq!(range, 0x7f00..0x7f10);
        assert!(file.starts_with(b"00:01 1045\0"));
        assert!(parse(b"nonsense").is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc")]
    fn mappings_of_the_page_are_found_until_exec() {
        let page = softring_host::substitute::memfd("page", false).unwrap();
        softring_host::calls::files::ftruncate(page.as_raw_fd(), 4096).unwrap();
        let region = crate::memory::region::Region::map(page.as_fd(), 0, 4096).unwrap();
        assert_eq!(has_let_go(me(), region.addr()), Some(false));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_gone(other.id(), region.addr()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(is_gone(other.id(), region.addr()));
    }
}
