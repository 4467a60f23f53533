//! Names: entries of directories, and the order in which they become durable.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::dice::{Dice, Fate};
use crate::spec::Model;

/// A file or a directory, by the number that the recorder has given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

/// A call that makes one file or directory durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// fdatasync(2) of a file.
    Data,
    /// fsync(2) of a file.
    File,
    /// Either of a directory, or of another file that has no data.
    Directory,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub dir: Inode,
    pub name: Vec<u8>,
}

/// An entry that has changed: what the name meant before, and what it means now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub place: Place,
    pub was: Option<Inode>,
    pub is: Option<Inode>,
}

/// A change of names, or one that a journal orders with them.
#[derive(Clone, Debug)]
struct Op {
    n: u64,
    /// Number of this part: a rename between two directories has two, if nothing orders them.
    part: u64,
    changes: Vec<Change>,
    touched: Vec<Inode>,
    /// Flag, true if fdatasync(2) needs it: the file was made, or truncated.
    for_data: bool,
    /// File that replaces another one.
    replacing: Option<Inode>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Durable meaning of each name that has changed since.
    base: BTreeMap<Place, Option<Inode>>,
    ops: Vec<Op>,
    /// Number of the newest change of a journal that is durable.
    durable: u64,
}

/// Names after the power cut.
pub(crate) struct NamesLeft {
    pub(crate) names: BTreeMap<Place, Option<Inode>>,
    pub(crate) fates: Vec<(u64, Fate)>,
    /// Number of the newest change of a journal that is there.
    pub(crate) journal: u64,
    /// Files that have replaced others, and the number of the replacement.
    pub(crate) replaced: Vec<(Inode, u64)>,
}

impl Names {
    pub(crate) fn change(&mut self, model: Model, n: u64, changes: Vec<Change>, made: bool) {
        let replaces = |c: &Change| c.was.is_some() && c.is.is_some() && changes.len() > 1;
        let replacing = changes.iter().find(|c| replaces(c)).and_then(|c| c.is);
        for change in &changes {
            self.base.entry(change.place.clone()).or_insert(change.was);
        }
        let mut parts: Vec<Vec<Change>> = Vec::new();
        // What a name is given comes before what another one loses.
        let (gains, losses): (Vec<_>, Vec<_>) = changes.into_iter().partition(|c| c.is.is_some());
        for change in gains.into_iter().chain(losses) {
            let together = |part: &&mut Vec<Change>| {
                model == Model::Ext4Ordered || part[0].place.dir == change.place.dir
            };
            match parts.iter_mut().find(together) {
                Some(part) => part.push(change),
                None => parts.push(Vec::from([change])),
            }
        }
        for (part, changes) in (0..).zip(parts) {
            let of = |c: &Change| [Some(c.place.dir), c.was, c.is];
            let touched = changes.iter().flat_map(of).flatten().collect();
            self.ops.push(Op { n, part, changes, touched, for_data: made, replacing });
        }
    }

    /// Notes a truncation, which a journal has in order with changes of names.
    pub(crate) fn truncation(&mut self, n: u64, file: Inode) {
        let touched = Vec::from([file]);
        let (changes, replacing) = (Vec::new(), None);
        self.ops.push(Op { n, part: 0, changes, touched, for_data: true, replacing });
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Makes durable what a call for one file or directory does.
    pub(crate) fn sync(&mut self, model: Model, inode: Inode, how: Sync) {
        match model {
            // The whole journal is committed.
            Model::Ext4Ordered if how == Sync::Directory => self.settle(usize::MAX),
            Model::Ext4Ordered => {
                let all = how == Sync::File;
                let is = |op: &Op| op.touched.contains(&inode) && (op.for_data || all);
                let last = self.ops.iter().rposition(is);
                self.settle(last.map_or(0, |last| last + 1));
            }
            Model::PosixMinimal => {
                self.settle_those(|op| op.changes.first().is_some_and(|c| c.place.dir == inode))
            }
        }
    }

    /// Makes the oldest changes durable.
    pub(crate) fn settle(&mut self, count: usize) {
        let mut at = 0;
        self.settle_those(|_| {
            at += 1;
            at <= count
        });
    }

    fn settle_those(&mut self, mut those: impl FnMut(&Op) -> bool) {
        let ops = core::mem::take(&mut self.ops);
        for op in ops {
            if !those(&op) {
                self.ops.push(op);
                continue;
            }
            self.durable = self.durable.max(op.n);
            for change in op.changes {
                self.base.insert(change.place, change.is);
            }
        }
        let pending: BTreeSet<&Place> =
            self.ops.iter().flat_map(|op| &op.changes).map(|c| &c.place).collect();
        self.base.retain(|place, _| pending.contains(place));
    }

    /// Returns the files and directories that a power cut could bring back.
    pub(crate) fn needed(&self) -> impl Iterator<Item = Inode> + '_ {
        let changed = self.ops.iter().flat_map(|op| &op.changes).flat_map(|c| [c.was, c.is]);
        self.base.values().copied().chain(changed).flatten()
    }

    pub(crate) fn cut(&self, model: Model, dice: &Dice<'_>) -> NamesLeft {
        let kept = match model {
            Model::Ext4Ordered => self.prefix(dice),
            Model::PosixMinimal => self.any(dice),
        };
        let mut left = NamesLeft {
            names: self.base.clone(),
            fates: Vec::new(),
            journal: self.durable,
            replaced: Vec::new(),
        };
        for (op, kept) in self.ops.iter().zip(kept) {
            if !kept {
                left.fates.push((op.n, Fate::Lost));
                continue;
            }
            left.journal = left.journal.max(op.n);
            left.replaced.extend(op.replacing.map(|file| (file, op.n)));
            for change in &op.changes {
                left.names.insert(change.place.clone(), change.is);
            }
        }
        left
    }

    /// A journal: the newest changes are lost.
    fn prefix(&self, dice: &Dice<'_>) -> Vec<bool> {
        let lost = dice.behind(self.ops.len());
        let first = self.ops.len() - lost;
        // If the oldest of them may not be lost, a later one is the first.
        let may = |op: &Op| dice.may_lose(op.n);
        let first = self.ops[first..].iter().position(may).map_or(self.ops.len(), |at| first + at);
        (0..self.ops.len()).map(|at| at < first).collect()
    }

    /// No order but that of the changes of one name.
    fn any(&self, dice: &Dice<'_>) -> Vec<bool> {
        let mut kept: Vec<bool> = Vec::new();
        for (at, op) in self.ops.iter().enumerate() {
            let blocked = (0..at).any(|i| {
                let other = &self.ops[i];
                let same = |c: &Change| op.changes.iter().any(|own| own.place == c.place);
                !kept[i] && (other.changes.iter().any(same) || other.n == op.n)
            });
            kept.push(!blocked && (op.changes.is_empty() || dice.name(op.n, op.part)));
        }
        kept
    }
}
