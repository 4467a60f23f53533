//! The file or device that a measurement uses.

use super::buf;
use crate::fail;
use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Requirements of a measurement on its file.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub size: u64,
    pub bs: u64,
    pub writes: bool,
    pub verify: bool,
    pub direct: bool,
    pub seed: u64,
}

/// A file ready to be measured on.
#[derive(Debug)]
pub struct Target {
    /// Path that workers open. A temporary file has no name, so that nothing can leave it behind;
    /// workers inherit its descriptor and open that.
    pub path: String,
    pub size: u64,
    /// The file, open for as long as the measurement lasts.
    pub file: File,
}

/// Makes a temporary file of `need.size` in `dir`, filled with the pattern and written back.
pub fn temporary(dir: Option<&Path>, need: &Need) -> anyhow::Result<Target> {
    crate::sys::ignore_file_limit_signal();
    let dir: PathBuf = dir.map_or_else(std::env::temp_dir, Path::to_owned);
    let shown = dir.display();
    let mut file = tempfile::tempfile_in(&dir).map_err(|e| {
        fail::usage(format!("cannot make a file in {shown}: {e}"), "name another folder: --dir")
    })?;
    let size = need.size - need.size % need.bs;
    if size == 0 {
        return Err(fail::usage("--size is less than one block (--bs)", "use a larger --size"));
    }
    fill(&mut file, size, need.seed).map_err(|e| {
        let hint = match e.raw_os_error() {
            Some(libc::EFBIG) => {
                "raise RLIMIT_FSIZE (ulimit -f unlimited), or use a smaller --size"
            }
            _ => "name a folder with more free space (--dir), or use a smaller --size",
        };
        fail::usage(
            format!("cannot fill a temporary file of {} MiB in {shown}: {e}", size >> 20),
            hint,
        )
    })?;
    rustix::io::fcntl_setfd(&file, FdFlags::empty())
        .context("cannot pass the file to the worker processes")?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if !Path::new(&path).exists() {
        return Err(fail::usage(
            "/proc is not mounted here, and worker processes open the temporary file through it",
            "mount /proc (mount -t proc proc /proc), or name a file: softring bench --file FILE",
        ));
    }
    let target = Target { path, size, file };
    if need.direct && !target.can_direct() {
        return Err(fail::usage(
            format!("the file system of {shown} does not support O_DIRECT"),
            "name a folder on a disk: --dir",
        ));
    }
    Ok(target)
}

/// Opens an existing file or device.
pub fn existing(path: &Path, device: bool, overwrite: bool, need: &Need) -> anyhow::Result<Target> {
    crate::sys::ignore_file_limit_signal();
    let shown = path.display();
    let writes = need.writes || need.verify;
    if writes && !overwrite {
        return Err(fail::usage(
            format!("the measurement would overwrite {shown}"),
            "add --overwrite if its contents may be lost",
        ));
    }
    let direct = if need.direct { OFlags::DIRECT } else { OFlags::empty() };
    let access = if writes { OFlags::RDWR } else { OFlags::RDONLY };
    let opened = rustix::fs::open(path, access | direct | OFlags::CLOEXEC, Mode::empty());
    let mut file = File::from(opened.map_err(|e| {
        let hint =
            "check the path and its permissions; O_DIRECT needs a file system that supports it";
        fail::usage(format!("cannot open {shown}: {e}"), hint)
    })?);
    let kind = file.metadata()?.file_type();
    if device && !kind.is_block_device() {
        let hint = "use --file for a regular file";
        return Err(fail::usage(format!("{shown} is not a block device"), hint));
    }
    if !kind.is_file() && !kind.is_block_device() {
        let hint = "name a file that holds data, or leave --file out to use a temporary file";
        return Err(fail::usage(
            format!("{shown} is neither a regular file nor a block device"),
            hint,
        ));
    }
    let length =
        file.seek(SeekFrom::End(0)).with_context(|| format!("cannot find the size of {shown}"))?;
    let size = length.min(need.size);
    let size = size - size % need.bs;
    if size == 0 {
        let what = format!("{shown} holds {length} bytes, less than one block of {}", need.bs);
        return Err(fail::usage(what, "use a larger file or a smaller --bs"));
    }
    if need.verify {
        let mut buffered = File::options().write(true).open(path)?;
        fill(&mut buffered, size, need.seed).with_context(|| format!("cannot fill {shown}"))?;
    }
    Ok(Target { path: path.canonicalize()?.display().to_string(), size, file })
}

/// Writes the pattern by plain writes, and waits until it is on the disk, so that no write-back
/// disturbs the measurement.
fn fill(file: &mut File, size: u64, seed: u64) -> std::io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    let mut chunk = Vec::with_capacity(CHUNK as usize);
    file.seek(SeekFrom::Start(0))?;
    let mut at = 0;
    while at < size {
        chunk.clear();
        let len = CHUNK.min(size - at);
        chunk.extend((0..len.div_ceil(8)).flat_map(|i| buf::word(at + 8 * i, seed).to_le_bytes()));
        file.write_all(&chunk[..len as usize])?;
        at += len;
    }
    file.sync_all()
}

impl Target {
    /// Returns whether the file can be opened past the page cache.
    pub fn can_direct(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        rustix::fs::open(&self.path, flags, Mode::empty()).is_ok()
    }

    /// Reads the file once, so that as much of it as fits is in the page cache.
    pub fn warm(&self) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        std::io::copy(&mut std::io::Read::take(&mut file, self.size), &mut std::io::sink())?;
        Ok(())
    }

    /// Returns the offset of the first word that differs from the pattern of `seed`, read by plain
    /// reads.
    pub fn mismatch(&self, seed: u64) -> std::io::Result<Option<u64>> {
        let file = File::open(&self.path)?;
        let mut chunk = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.size {
            let len = (self.size - at).min(1 << 20) as usize;
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut chunk[..len], at)?;
            let words = chunk[..len].chunks_exact(8).zip((at..).step_by(8));
            for (found, offset) in words {
                if found != buf::word(offset, seed).to_le_bytes() {
                    return Ok(Some(offset));
                }
            }
            at += len as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Need =
        Need { size: 3 << 20, bs: 4096, writes: false, verify: false, direct: false, seed: 5 };

    #[test]
    fn a_temporary_file_holds_the_pattern() {
        let t = temporary(None, &NEED).unwrap();
        assert_eq!(t.mismatch(5).unwrap(), None);
        assert_eq!(t.mismatch(6).unwrap(), Some(0));
        t.warm().unwrap();
    }

    #[test]
    fn files_are_not_overwritten_without_permission() {
        let f = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(f.path(), vec![1; 8192]).unwrap();
        let need = Need { writes: true, ..NEED };
        let e = existing(f.path(), false, false, &need).unwrap_err();
        assert!(e.to_string().contains("overwrite"));
        assert_eq!(existing(f.path(), false, true, &need).unwrap().size, 8192);
        assert!(existing(f.path(), true, false, &NEED).is_err());
        assert!(existing(Path::new("/"), false, false, &NEED).is_err());
    }
}
