//! The record of a running program: files and directories by their numbers, requests by theirs.

use super::tracee;
use rustix::fs::{FileType, Stat};
use softring_crash::{At, Inode, Record, Spec};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most bytes and names that are held back. The kernel does not hold back more for long.
const MOST_BYTES: usize = 256 << 20;
const MOST_NAMES: usize = 1000;
/// Largest file whose mapping is followed.
const LARGEST_MAPPED: u64 = 256 << 20;
const SECTOR: usize = softring_crash::SECTOR as usize;

/// Description of a request for the log.
#[derive(Clone, Debug)]
pub struct Label {
    pub op: &'static str,
    pub path: PathBuf,
    pub pid: i32,
    pub bytes: u64,
}

/// The moment of the power cut has come.
#[derive(Debug)]
pub struct Cut;

pub struct Recorder {
    pub spec: Spec,
    pub root: PathBuf,
    pub record: Record,
    numbers: HashMap<(u64, u64), Inode>,
    next: u64,
    held: HashMap<Inode, OwnedFd>,
    pub requests: u64,
    pub syncs: u64,
    labels: BTreeMap<u64, Label>,
    /// Contents of mapped files as far as they were heard of.
    mapped: HashMap<Inode, Vec<u8>>,
}

impl Recorder {
    pub fn new(spec: Spec, root: PathBuf) -> Recorder {
        Recorder {
            record: Record::new(spec.model),
            spec,
            root,
            numbers: HashMap::new(),
            next: 1,
            held: HashMap::new(),
            requests: 0,
            syncs: 0,
            labels: BTreeMap::new(),
            mapped: HashMap::new(),
        }
    }

    /// Returns whether a held file or directory is below the directory whose power is cut.
    pub fn has(&self, fd: &OwnedFd) -> bool {
        tracee::path(fd.as_fd()).is_some_and(|path| tracee::is_below(&path, &self.root))
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The power fails before it.
    pub fn count(&mut self, syncs: bool, label: Label) -> Result<u64, Cut> {
        let (n, sync) = (self.requests + 1, self.syncs + u64::from(syncs));
        match *self.spec.moment() {
            At::Request(at) if at == n => return Err(Cut),
            At::Sync(at) if syncs && at == sync => return Err(Cut),
            _ => {}
        }
        (self.requests, self.syncs) = (n, sync);
        self.labels.insert(n, label);
        Ok(n)
    }

    /// Takes back the count of the newest request, which has failed: whether it is tried, as with
    /// RWF_NOWAIT, may depend on time.
    pub fn uncount(&mut self, n: u64, syncs: bool) {
        if n > 0 && n == self.requests {
            self.requests -= 1;
            self.syncs -= u64::from(syncs);
            self.labels.remove(&n);
        }
    }

    pub fn label(&self, n: u64) -> Option<&Label> {
        self.labels.get(&n)
    }

    fn number(&mut self, stat: &Stat) -> Inode {
        let next = Inode(self.next);
        let inode = *self.numbers.entry((stat.st_dev, stat.st_ino)).or_insert(next);
        self.next += u64::from(inode == next);
        inode
    }

    /// Returns the number of a file, if it has one.
    pub fn known(&self, stat: &Stat) -> Option<Inode> {
        self.numbers.get(&(stat.st_dev, stat.st_ino)).copied()
    }

    /// Takes what is held under its number.
    pub fn keep(&mut self, fd: OwnedFd) -> Option<Inode> {
        let inode = self.number(&tracee::stat(&fd)?);
        self.held.entry(inode).or_insert(fd);
        Some(inode)
    }

    pub fn held(&self, inode: Inode) -> Option<&OwnedFd> {
        self.held.get(&inode)
    }

    /// Returns the size of a regular file.
    pub fn size(&self, inode: Inode) -> Option<u64> {
        let stat = tracee::stat(self.held(inode)?)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        regular.then_some(stat.st_size.cast_unsigned())
    }

    /// Reads a file as it is now.
    pub fn read(&self, inode: Inode, range: &Range<u64>) -> io::Result<Vec<u8>> {
        let gone = || io::Error::from_raw_os_error(libc::EBADF);
        let file = File::open(tracee::own(self.held(inode).ok_or_else(gone)?.as_fd()))?;
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], range.start + done as u64)? {
                0 => break,
                n => done += n,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// Saves what a change of a range of a file would destroy.
    pub fn save(&mut self, inode: Inode, size: u64, range: &Range<u64>) -> io::Result<()> {
        for part in self.record.unsaved(inode, size, range) {
            let bytes = match self.mapped.get(&inode) {
                Some(mirror) => {
                    let mut bytes = mirror.get(part.start as usize..).unwrap_or(&[]).to_vec();
                    bytes.resize((part.end - part.start) as usize, 0);
                    bytes
                }
                None => self.read(inode, &part)?,
            };
            self.record.save(inode, part.start, &bytes);
        }
        Ok(())
    }

    /// Notes that a range has other bytes now.
    pub fn changed(
        &mut self,
        n: u64,
        inode: Inode,
        size: u64,
        range: &Range<u64>,
    ) -> io::Result<()> {
        let now = self.size(inode).unwrap_or(0);
        if now < size {
            self.record.truncate(n, inode, size, now);
        }
        let range = range.start..range.end.min(now);
        let mut end = size;
        if range.start < range.end {
            let data = self.read(inode, &range)?;
            if let Some(mirror) = self.mapped.get_mut(&inode) {
                mirror.resize(now as usize, 0);
                mirror[range.start as usize..][..data.len()].copy_from_slice(&data);
            }
            self.record.write(n, inode, size.min(now), range.start, &data);
            end = end.max(range.end);
        }
        if now > end {
            self.record.truncate(n, inode, size, now);
        }
        if self.record.bytes_of(inode) > MOST_BYTES {
            self.record.written_back(inode);
        }
        Ok(())
    }

    /// Follows a file that the program maps.
    pub fn map(&mut self, inode: Inode) -> io::Result<()> {
        match self.size(inode) {
            Some(size) if size <= LARGEST_MAPPED && !self.mapped.contains_key(&inode) => {
                let bytes = self.read(inode, &(0..size))?;
                self.mapped.insert(inode, bytes);
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes what the program has written to a file by its mapping.
    pub fn absorb(&mut self, n: u64, inode: Inode) -> io::Result<()> {
        let Some(mut mirror) = self.mapped.remove(&inode) else { return Ok(()) };
        let size = self.size(inode).unwrap_or(0);
        let live = self.read(inode, &(0..size))?;
        mirror.resize(live.len(), 0);
        self.mapped.insert(inode, mirror);
        let mut at = 0;
        while at < live.len() {
            let end = (at + SECTOR).min(live.len());
            let range = at as u64..end as u64;
            if self.mapped.get(&inode).is_some_and(|mirror| mirror[at..end] != live[at..end]) {
                self.save(inode, size, &range)?;
                self.record.write(n, inode, size, range.start, &live[at..end]);
            }
            at = end;
        }
        self.mapped.insert(inode, live);
        Ok(())
    }

    /// Notes what was written by mappings until the power failed.
    pub fn cut_mappings(&mut self) {
        for inode in self.mapped() {
            // A file that cannot be read any more stays as it is.
            let _ = self.absorb(self.requests + 1, inode);
        }
    }

    pub fn mapped(&self) -> Vec<Inode> {
        self.mapped.keys().copied().collect()
    }

    /// Forgets what is durable.
    pub fn prune(&mut self) {
        self.record.keep_names(MOST_NAMES);
        let needed: BTreeSet<Inode> =
            self.record.needed().chain(self.mapped.keys().copied()).collect();
        let mut gone = Vec::new();
        self.held.retain(|inode, fd| {
            let keep = needed.contains(inode);
            // Another file may be given the number of one that nobody has.
            if !keep && tracee::stat(fd).is_none_or(|stat| stat.st_nlink == 0) {
                gone.push(*inode);
            }
            keep
        });
        self.numbers.retain(|_, inode| !gone.contains(inode));
    }

    /// Follows again, from here, a file that has become durable.
    pub fn durable(&mut self, inode: Inode) -> io::Result<()> {
        if self.mapped.remove(&inode).is_some() {
            self.map(inode)?;
        }
        Ok(())
    }

    pub fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_path_buf()
    }
}
