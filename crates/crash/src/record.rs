//! The record of all that is not durable yet.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::dice::{Dice, Fate};
use crate::file::{File, Left};
use crate::names::{Change, Inode, Names, Place, Sync};
use crate::spec::Model;

/// Changes below a directory that a power cut could undo. Numbers of requests grow.
#[derive(Clone, Debug)]
pub struct Record {
    model: Model,
    files: BTreeMap<Inode, File>,
    names: Names,
}

/// State that a power cut leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub files: BTreeMap<Inode, Left>,
    /// Meaning of each name that a change has touched.
    pub names: BTreeMap<Place, Option<Inode>>,
    /// Requests whose changes are not there as a whole.
    pub fates: BTreeMap<u64, Fate>,
}

impl Record {
    pub fn new(model: Model) -> Record {
        Record { model, files: BTreeMap::new(), names: Names::default() }
    }

    /// Returns the bytes of a file that must be saved before a range of it changes. `size` is the
    /// size of the file now.
    pub fn unsaved(&mut self, file: Inode, size: u64, range: &Range<u64>) -> Vec<Range<u64>> {
        self.file(file, size).unsaved(range)
    }

    fn file(&mut self, file: Inode, size: u64) -> &mut File {
        self.files.entry(file).or_insert_with(|| File::new(size))
    }

    /// Saves durable bytes of a file, from the beginning of a sector.
    pub fn save(&mut self, file: Inode, at: u64, bytes: &[u8]) {
        if let Some(file) = self.files.get_mut(&file) {
            file.save(at, bytes);
        }
    }

    /// Notes a write; `size` was the file's size before it.
    pub fn write(&mut self, n: u64, file: Inode, size: u64, at: u64, data: &[u8]) {
        self.file(file, size).write(n, at, data);
    }

    /// Notes that a file has got another size, which was `size`.
    pub fn truncate(&mut self, n: u64, file: Inode, size: u64, to: u64) {
        self.file(file, size).truncate(n, to);
        if self.model == Model::Ext4Ordered {
            self.names.truncation(n, file);
        }
    }

    /// Notes that names have changed; `made` says that a file was.
    pub fn rename(&mut self, n: u64, changes: Vec<Change>, made: bool) {
        self.names.change(self.model, n, changes, made);
    }

    /// fsync(2) or fdatasync(2).
    pub fn sync(&mut self, inode: Inode, how: Sync) {
        self.files.remove(&inode);
        self.names.sync(self.model, inode, how);
    }

    /// A synchronous write, or msync(2).
    pub fn sync_range(&mut self, file: Inode, range: &Range<u64>) {
        if let Some(changed) = self.files.get_mut(&file) {
            changed.sync_range(range);
            if changed.is_clean() {
                self.files.remove(&file);
            }
        }
        if self.model == Model::Ext4Ordered {
            self.names.sync(self.model, file, Sync::Data);
        }
    }

    /// sync(2) and syncfs(2).
    pub fn sync_all(&mut self) {
        self.files.clear();
        self.names.settle(usize::MAX);
    }

    /// Notes that the kernel has written a file's data back, as it does by and by.
    pub fn written_back(&mut self, file: Inode) {
        self.files.remove(&file);
    }

    /// Returns how much is held.
    pub fn bytes(&self) -> usize {
        self.files.values().map(File::bytes).sum()
    }

    /// Returns how much is held of one file.
    pub fn bytes_of(&self, file: Inode) -> usize {
        self.files.get(&file).map_or(0, File::bytes)
    }

    /// Makes the oldest changes of names durable but for so many.
    pub fn keep_names(&mut self, most: usize) {
        self.names.settle(self.names.len().saturating_sub(most));
    }

    /// Returns the files and directories that a power cut could bring back, or change.
    pub fn needed(&self) -> impl Iterator<Item = Inode> + '_ {
        self.files.keys().copied().chain(self.names.needed())
    }

    /// Returns what is left if the power fails now.
    pub fn cut(&self, dice: &Dice<'_>) -> Cut {
        let names = self.names.cut(self.model, dice);
        let mut cut = Cut { names: names.names, ..Cut::default() };
        let mut fates = names.fates;
        for (&inode, file) in &self.files {
            let flushed = names.replaced.iter().filter(|r| r.0 == inode).map(|r| r.1).max();
            let (left, own) = file.cut(self.model, dice, names.journal, flushed.unwrap_or(0));
            cut.files.insert(inode, left);
            fates.extend(own);
        }
        for (n, fate) in fates {
            cut.fates.entry(n).and_modify(|f| *f = (*f).max(fate)).or_insert(fate);
        }
        cut
    }
}
