//! The data and the size of one file.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::dice::{Dice, Fate};
use crate::spec::Model;

/// Unit in which contents are kept: what every disk writes as a whole.
pub const SECTOR: u64 = 512;
/// Block of a file system, and page of its cache.
const BLOCK: u64 = 4096;

type Sector = [u8; SECTOR as usize];
type Sectors = BTreeMap<u64, Sector>;

const ZEROES: Sector = [0; SECTOR as usize];

#[derive(Clone, Debug)]
enum Op {
    Write { n: u64, at: u64, data: Vec<u8> },
    Truncate { n: u64, to: u64 },
}

/// A file: what is durable of the sectors that have changed since, and the changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    durable_size: u64,
    size: u64,
    /// Durable content of each sector that a change has touched.
    old: Sectors,
    ops: Vec<Op>,
    /// Bytes of all writes.
    written: usize,
}

/// A file after the power cut. Sectors that are not listed are as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub size: u64,
    /// Contents by number of the sector.
    pub sectors: BTreeMap<u64, [u8; SECTOR as usize]>,
}

fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR..range.end.div_ceil(SECTOR).max(range.start / SECTOR)
}

/// Pieces of a write, none of which crosses a boundary of `unit` bytes.
fn pieces(at: u64, data: &[u8], unit: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = at;
    let mut rest = data;
    core::iter::from_fn(move || {
        let len = rest.len().min((unit - at % unit) as usize);
        let (piece, after) = rest.split_at(len);
        let this = (at, piece);
        (at, rest) = (at + len as u64, after);
        (len > 0).then_some(this)
    })
}

fn put(to: &mut Sectors, at: u64, data: &[u8]) {
    for (at, piece) in pieces(at, data, SECTOR) {
        let from = (at % SECTOR) as usize;
        let sector = to.entry(at / SECTOR).or_insert(ZEROES);
        sector[from..from + piece.len()].copy_from_slice(piece);
    }
}

/// Replaces those bytes of a write that are in the range by what the sectors have.
fn renew(from: &Sectors, range: &Range<u64>, at: u64, data: &mut [u8]) {
    for (at, byte) in (at..).zip(data).filter(|(at, _)| range.contains(at)) {
        if let Some(sector) = from.get(&(at / SECTOR)) {
            *byte = sector[(at % SECTOR) as usize];
        }
    }
}

/// Makes zeroes of all that lies behind the end of a file.
fn cut_off(from: &mut Sectors, end: u64) {
    for (number, sector) in from.range_mut(end / SECTOR..) {
        let keep = end.saturating_sub(number * SECTOR).min(SECTOR) as usize;
        sector[keep..].fill(0);
    }
}

impl File {
    pub(crate) fn new(size: u64) -> File {
        File { durable_size: size, size, ..File::default() }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.old.len() * SECTOR as usize + self.written
    }

    /// Returns the bytes, in whole sectors but for the file's end, that have to be saved before a
    /// change of the range.
    pub(crate) fn unsaved(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let end = range.end.min(self.durable_size.min(self.size));
        let mut found: Vec<Range<u64>> = Vec::new();
        // A change behind the end may share its first sector with what is before the end.
        let start = range.start / SECTOR * SECTOR;
        if start >= end {
            return found;
        }
        for number in sectors(&(start..end)).filter(|n| !self.old.contains_key(n)) {
            let (from, to) = (number * SECTOR, ((number + 1) * SECTOR).min(self.size));
            match found.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => found.push(from..to),
            }
        }
        found
    }

    /// Saves what is durable, from the beginning of a sector.
    pub(crate) fn save(&mut self, at: u64, bytes: &[u8]) {
        put(&mut self.old, at, bytes);
    }

    pub(crate) fn write(&mut self, n: u64, at: u64, data: &[u8]) {
        let range = at..at + data.len() as u64;
        for number in sectors(&range) {
            self.old.entry(number).or_insert(ZEROES);
        }
        self.size = self.size.max(range.end);
        self.written += data.len();
        self.ops.push(Op::Write { n, at, data: data.to_vec() });
    }

    pub(crate) fn truncate(&mut self, n: u64, to: u64) {
        self.size = to;
        self.ops.push(Op::Truncate { n, to });
    }

    pub(crate) fn sync(&mut self) {
        *self = File::new(self.size);
    }

    /// Makes a range durable, and as much of the size as it needs.
    pub(crate) fn sync_range(&mut self, range: &Range<u64>) {
        let truncated = self.ops.iter().any(|op| matches!(op, Op::Truncate { .. }));
        let pages = range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK);
        if truncated {
            return self.sync();
        }
        self.durable_size = self.durable_size.max(range.end.min(self.size));
        let mut rest = Vec::new();
        for op in core::mem::take(&mut self.ops) {
            let Op::Write { n, at, data } = op else { continue };
            for (mut at, mut piece) in pieces(at, &data, BLOCK) {
                if pages.contains(&at) {
                    put(&mut self.old, at, piece);
                    // What lies behind the range may still have made the file longer, or not.
                    let inside = self.durable_size.saturating_sub(at).min(piece.len() as u64);
                    (at, piece) = (at + inside, &piece[inside as usize..]);
                }
                if piece.is_empty() {
                    continue;
                }
                match rest.last_mut() {
                    Some(Op::Write { n: last, at: from, data })
                        if *last == n && *from + data.len() as u64 == at =>
                    {
                        data.extend_from_slice(piece);
                    }
                    _ => rest.push(Op::Write { n, at, data: piece.to_vec() }),
                }
            }
        }
        for op in &mut rest {
            let Op::Write { at, data, .. } = op else { continue };
            renew(&self.old, &pages, *at, data);
        }
        self.ops = rest;
    }

    /// Returns what a power cut leaves. Of a journal, all changes up to number `journal` are there,
    /// and the data of all writes before number `flushed`.
    pub(crate) fn cut(
        &self,
        model: Model,
        dice: &Dice<'_>,
        journal: u64,
        flushed: u64,
    ) -> (Left, Vec<(u64, Fate)>) {
        let mut cut = Cutting {
            model,
            dice,
            flushed,
            left: Left { size: self.durable_size, sectors: self.old.clone() },
            later: BTreeMap::new(),
            limit: u64::MAX,
            allocated: self.durable_size.next_multiple_of(BLOCK),
            fates: Vec::new(),
        };
        let mut live = self.durable_size;
        for op in &self.ops {
            match op {
                Op::Truncate { n, to } => {
                    let kept = match model {
                        Model::Ext4Ordered => *n <= journal,
                        Model::PosixMinimal => dice.name(*n, 0),
                    };
                    cut.truncate(*n, *to, *to < live, kept);
                    live = *to;
                }
                Op::Write { n, at, data } => {
                    cut.write(*n, *at, data);
                    live = live.max(at + data.len() as u64);
                }
            }
        }
        (cut.left, cut.fates)
    }
}

/// A file while its changes are decided, in their order.
struct Cutting<'a> {
    model: Model,
    dice: &'a Dice<'a>,
    flushed: u64,
    left: Left,
    /// Lost writes by sector: a later write of the same sector is on top of them.
    later: BTreeMap<u64, Vec<(u64, Vec<u8>)>>,
    /// End of the blocks that are still the file's: those behind it went with a truncation that
    /// was lost, and what was written to their successors went with it.
    limit: u64,
    /// End of the blocks that the durable file has.
    allocated: u64,
    fates: Vec<(u64, Fate)>,
}

impl Cutting<'_> {
    fn truncate(&mut self, n: u64, to: u64, shrinks: bool, kept: bool) {
        if !kept || self.limit < u64::MAX {
            if shrinks {
                self.limit = self.limit.min(to);
            }
            return self.fates.push((n, Fate::Lost));
        }
        if !shrinks {
            self.left.size = self.left.size.max(to);
            return;
        }
        self.left.size = self.left.size.min(to);
        self.allocated = self.allocated.min(to.next_multiple_of(BLOCK));
        cut_off(&mut self.left.sectors, to);
        self.later.retain(|number, _| number * SECTOR < to);
        for piece in self.later.values_mut().flatten() {
            piece.1.truncate(to.saturating_sub(piece.0) as usize);
        }
    }

    fn write(&mut self, n: u64, at: u64, data: &[u8]) {
        let room = self.limit.saturating_sub(at).min(data.len() as u64) as usize;
        let cut = room < data.len();
        let data = &data[..room];
        let end = at + room as u64;
        let fate = self.dice.data(n);
        let (mut some, mut all) = (false, !cut);
        let (old, new) = match self.model {
            Model::PosixMinimal => (data, &data[room..]),
            Model::Ext4Ordered => {
                data.split_at(self.allocated.saturating_sub(at).min(room as u64) as usize)
            }
        };
        let unit = self.dice.unit();
        for (at, piece) in pieces(at, old, SECTOR) {
            let kept = fate == Fate::Kept || fate == Fate::Torn && self.dice.part(n, at / unit);
            self.piece(at, piece, kept);
            (some, all) = (some | kept, all & kept);
        }
        if !old.is_empty() {
            let end = at + old.len() as u64;
            if end > self.left.size && (fate == Fate::Kept || self.dice.size(n, fate)) {
                self.left.size = end;
                some = true;
            }
            all &= end <= self.left.size;
        }
        for (at, piece) in pieces(end - new.len() as u64, new, BLOCK) {
            let part = || fate == Fate::Torn && self.dice.part(n, at / unit);
            let kept = n < self.flushed || fate == Fate::Kept || part();
            for (at, piece) in pieces(at, piece, SECTOR) {
                self.piece(at, piece, kept);
            }
            if kept {
                self.left.size = self.left.size.max(at + piece.len() as u64);
            }
            (some, all) = (some | kept, all & kept);
        }
        if !all {
            self.fates.push((n, if some { Fate::Torn } else { Fate::Lost }));
        }
    }

    /// A sector is on the disk as it was at some time: with a write, all earlier ones of the same
    /// sector are there.
    fn piece(&mut self, at: u64, data: &[u8], kept: bool) {
        let number = at / SECTOR;
        if !kept {
            return self.later.entry(number).or_default().push((at, data.to_vec()));
        }
        for (at, data) in self.later.remove(&number).unwrap_or_default() {
            put(&mut self.left.sectors, at, &data);
        }
        put(&mut self.left.sectors, at, data);
    }
}
