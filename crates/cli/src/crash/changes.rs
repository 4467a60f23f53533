//! A system call before and after it is made: what it changes, and what is durable with it.

use super::calls::{At, Kind, Of};
use super::recorder::{Cut, Label, Recorder};
use super::tracee::{self, Named, Tracee};
use softring_crash::{Change, Inode, Place, Sync};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

/// A call that is being made.
#[derive(Debug)]
pub struct Pending {
    n: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Data { inode: Inode, size: u64, range: Range<u64>, counted: bool, synced: bool },
    Open { made: bool, emptied: Option<(Inode, u64)> },
    Names(Vec<Change>),
    Make { place: Place, named: Named },
    Sync { inode: Inode, how: Sync },
    SyncAll,
    Msync(Vec<(Inode, Range<u64>)>),
    Map(OwnedFd),
}

/// A call that is to be passed on, or to be followed.
pub type Before = Result<Option<Pending>, Cut>;

impl Pending {
    fn is_sync(&self) -> bool {
        match self.what {
            What::Data { synced, .. } => synced,
            What::Sync { .. } | What::SyncAll | What::Msync(_) => true,
            _ => false,
        }
    }
}

/// Number of requests after which what is durable is forgotten, without a sync.
const PRUNED: u64 = 256;

/// Flags with which each write is durable when it returns.
const SYNCED: i32 = libc::O_SYNC | libc::O_DSYNC;
const RWF_SYNCED: i32 = libc::RWF_SYNC | libc::RWF_DSYNC;

impl Recorder {
    /// Prepares for a call. Calls on other directories are passed on.
    ///
    /// # Errors
    /// The power fails before it.
    pub fn before(&mut self, tracee: Tracee, op: &'static str, kind: Kind) -> Before {
        match kind {
            Kind::Change { of, from, len, counted, flags } => {
                self.before_change(tracee, op, of, (from, len, counted, flags))
            }
            Kind::Open { path, flags } => self.before_open(tracee, op, path, flags),
            Kind::Make { path } => {
                let Some((named, place)) = self.place(tracee, path) else { return Ok(None) };
                let n = self.count(false, label(tracee, op, &named))?;
                pending(n, What::Make { place, named })
            }
            Kind::Rename { from, to, exchange } => {
                self.before_rename(tracee, op, from, (to, exchange))
            }
            Kind::Remove { path } => {
                let Some((named, place)) = self.place(tracee, path) else { return Ok(None) };
                let Some(was) = named.hold() else { return Ok(None) };
                let n = self.count(false, label(tracee, op, &named))?;
                let was = self.keep(was);
                pending(n, What::Names(vec![Change { place, was, is: None }]))
            }
            Kind::Link { from, to, follow } => {
                let Some((named, place)) = self.place(tracee, to) else { return Ok(None) };
                let Some(file) = tracee.hold_path(from.0, from.1, follow) else {
                    return Ok(None);
                };
                let n = self.count(false, label(tracee, op, &named))?;
                let is = self.keep(file);
                pending(n, What::Names(vec![Change { place, was: None, is }]))
            }
            Kind::Sync { fd, data_only } => {
                let Some(file) = tracee.hold(fd).filter(|file| self.has(file)) else {
                    return Ok(None);
                };
                let how = match tracee::is_regular(&file) {
                    false => Sync::Directory,
                    true if data_only => Sync::Data,
                    true => Sync::File,
                };
                let n = self.count(true, of_file(tracee, op, &file, 0))?;
                let Some(inode) = self.keep(file) else { return Ok(None) };
                pending(n, What::Sync { inode, how })
            }
            Kind::SyncAll => {
                let (path, pid) = (self.root.clone(), tracee.0);
                let n = self.count(true, Label { op, path, pid, bytes: 0 })?;
                pending(n, What::SyncAll)
            }
            Kind::Msync { at, len } => self.before_msync(tracee, op, &(at..at.saturating_add(len))),
            Kind::Map { fd } => {
                let writable = |c: tracee::Cursor| c.flags & libc::O_ACCMODE == libc::O_RDWR;
                let file = tracee.hold(fd).filter(|file| self.has(file));
                let file = file.filter(|_| tracee.cursor(fd).is_some_and(writable));
                Ok(file.map(|file| Pending { n: 0, what: What::Map(file) }))
            }
        }
    }

    /// Finds the place of a name; None: it is not below the directory.
    fn place(&mut self, tracee: Tracee, path: At) -> Option<(Named, Place)> {
        let named = tracee.named(path.0, path.1).filter(|named| self.has(&named.dir))?;
        let dir = self.keep(named.dir.try_clone().ok()?)?;
        let name = named.name.as_encoded_bytes().to_vec();
        Some((named, Place { dir, name }))
    }

    fn before_change(
        &mut self,
        tracee: Tracee,
        op: &'static str,
        of: Of,
        (from, len, counted, flags): (Option<u64>, u64, bool, i32),
    ) -> Before {
        let file = match of {
            Of::Fd(fd) => tracee.hold(fd),
            Of::Path(At(dir, path)) => tracee.hold_path(dir, path, true),
        };
        let Some(file) = file.filter(|file| self.has(file)) else { return Ok(None) };
        let cursor = if let Of::Fd(fd) = of { tracee.cursor(fd) } else { None };
        let opened = cursor.map_or(0, |c| c.flags);
        let synced = counted && (opened & SYNCED != 0 || flags & RWF_SYNCED != 0);
        let label = of_file(tracee, op, &file, if counted { len } else { 0 });
        let Some(inode) = self.keep(file) else { return Ok(None) };
        let Some(size) = self.size(inode) else { return Ok(None) };
        let appends = opened & libc::O_APPEND != 0 && flags & libc::RWF_NOAPPEND == 0;
        let at = match from {
            _ if counted && (appends || flags & libc::RWF_APPEND != 0) => size,
            Some(at) => at,
            None => cursor.map_or(0, |c| c.at),
        };
        let range = at..at.saturating_add(len);
        let n = self.count(synced, label)?;
        if let Err(e) = self.save(inode, size, &range) {
            unheard(&e);
        }
        pending(n, What::Data { inode, size, range, counted, synced })
    }

    fn before_open(&mut self, tracee: Tracee, op: &'static str, path: At, flags: i32) -> Before {
        let follow = flags & (libc::O_NOFOLLOW | libc::O_EXCL) == 0;
        let Some(file) = tracee.hold_path(path.0, path.1, follow) else {
            let Some(named) = tracee.named(path.0, path.1).filter(|n| self.has(&n.dir)) else {
                return Ok(None);
            };
            if flags & libc::O_CREAT == 0 {
                return Ok(None);
            }
            let n = self.count(false, label(tracee, op, &named))?;
            return pending(n, What::Open { made: true, emptied: None });
        };
        if flags & libc::O_TRUNC == 0 || !self.has(&file) {
            return Ok(None);
        }
        let label = of_file(tracee, op, &file, 0);
        let Some(inode) = self.keep(file) else { return Ok(None) };
        let Some(size) = self.size(inode).filter(|&size| size > 0) else { return Ok(None) };
        let n = self.count(false, label)?;
        if let Err(e) = self.save(inode, size, &(0..u64::MAX)) {
            unheard(&e);
        }
        pending(n, What::Open { made: false, emptied: Some((inode, size)) })
    }

    fn before_rename(
        &mut self,
        tracee: Tracee,
        op: &'static str,
        from: At,
        (to, exchange): (At, bool),
    ) -> Before {
        let (from, to) = (self.place(tracee, from), self.place(tracee, to));
        let Some(either) = to.as_ref().or(from.as_ref()) else { return Ok(None) };
        let n = self.count(false, label(tracee, op, &either.0))?;
        let moved = from.as_ref().and_then(|from| from.0.hold());
        let moved = moved.and_then(|file| self.keep(file));
        let replaced = to.as_ref().and_then(|to| to.0.hold());
        let replaced = replaced.and_then(|file| self.keep(file));
        if moved.is_some() && moved == replaced {
            return Ok(None);
        }
        let left = if exchange { replaced } else { None };
        let mut changes = Vec::new();
        changes.extend(from.map(|(_, place)| Change { place, was: moved, is: left }));
        // What comes from elsewhere is found after the call.
        changes.extend(to.map(|(_, place)| Change { place, was: replaced, is: moved }));
        pending(n, What::Names(changes))
    }

    fn before_msync(&mut self, tracee: Tracee, op: &'static str, range: &Range<u64>) -> Before {
        let mut parts = Vec::new();
        let mut path = None;
        for (memory, offset, file) in tracee.mapped(range) {
            let Some(held) = tracee::open(&file).filter(|held| self.has(held)) else { continue };
            let Some(inode) = self.keep(held) else { continue };
            let from = range.start.max(memory.start) - memory.start + offset;
            let to = range.end.min(memory.end) - memory.start + offset;
            path.get_or_insert(file);
            parts.push((inode, from..to));
        }
        let Some(path) = path else { return Ok(None) };
        let n = self.count(true, Label { op, path, pid: tracee.0, bytes: 0 })?;
        pending(n, What::Msync(parts))
    }

    /// Notes what a call has done, by its result. None: nobody knows it, as the thread is dead.
    pub fn after(&mut self, tracee: Tracee, pending: Pending, result: Option<i64>) {
        let (n, synced) = (pending.n, pending.is_sync());
        if result.is_some_and(|result| result < 0) {
            return self.uncount(n, synced);
        }
        let done = self.note(tracee, pending, result);
        if let Err(e) = done {
            unheard(&e);
        }
        if n.is_multiple_of(PRUNED) {
            self.prune();
        }
    }

    fn note(&mut self, tracee: Tracee, pending: Pending, result: Option<i64>) -> io::Result<()> {
        let n = pending.n;
        match pending.what {
            What::Data { inode, size, range, counted, synced } => {
                let end = match result {
                    Some(bytes) if counted => range.start + bytes.cast_unsigned(),
                    _ => range.end,
                };
                let range = range.start..end;
                self.changed(n, inode, size, &range)?;
                if synced && result.is_some() {
                    self.record.sync_range(inode, &range);
                    self.prune();
                }
            }
            What::Open { made, emptied } => {
                if let Some((inode, size)) = emptied {
                    self.changed(n, inode, size, &(0..0))?;
                }
                if let Some(fd) = result.filter(|_| made) {
                    self.made(n, tracee, fd as i32);
                }
            }
            What::Names(changes) => self.renamed(n, changes),
            What::Make { place, named } => {
                let is = named.hold().and_then(|fd| self.keep(fd));
                if is.is_some() {
                    self.record.rename(n, vec![Change { place, was: None, is }], true);
                }
            }
            // Nobody has seen the end of a call that was killed: nothing has become durable.
            What::Sync { .. } | What::SyncAll | What::Msync(_) if result.is_none() => {}
            What::Sync { inode, how } => {
                self.record.sync(inode, how);
                self.durable(inode)?;
                self.prune();
            }
            What::SyncAll => {
                self.record.sync_all();
                self.mapped().into_iter().try_for_each(|inode| self.durable(inode))?;
                self.prune();
            }
            What::Msync(parts) => {
                for (inode, range) in parts {
                    self.absorb(n, inode)?;
                    self.record.sync_range(inode, &range);
                }
                self.prune();
            }
            What::Map(file) => {
                if let Some(inode) = self.keep(file) {
                    self.map(inode)?;
                }
            }
        }
        Ok(())
    }

    /// Notes a file that open(2) has made.
    fn made(&mut self, n: u64, tracee: Tracee, fd: i32) {
        let Some(path) = tracee.path_of(fd) else { return };
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return };
        let Some(dir) = tracee::open(dir).filter(|dir| self.has(dir)) else { return };
        let Some(dir) = self.keep(dir) else { return };
        let is = tracee.hold(fd).and_then(|file| self.keep(file));
        let place = Place { dir, name: name.as_encoded_bytes().to_vec() };
        self.record.rename(n, vec![Change { place, was: None, is }], true);
    }

    /// Notes changes of names as far as they have happened.
    fn renamed(&mut self, n: u64, changes: Vec<Change>) {
        let mut real = Vec::new();
        for mut change in changes {
            let Some(dir) = self.held(change.place.dir) else { continue };
            let now = Named {
                dir: match dir.try_clone() {
                    Ok(dir) => dir,
                    Err(_) => continue,
                },
                name: tracee::name(&change.place.name),
            };
            change.is = now.hold().and_then(|file| self.keep(file));
            if change.is != change.was {
                real.push(change);
            }
        }
        if !real.is_empty() {
            self.record.rename(n, real, false);
        }
    }
}

fn pending(n: u64, what: What) -> Before {
    Ok(Some(Pending { n, what }))
}

fn label(tracee: Tracee, op: &'static str, named: &Named) -> Label {
    let dir = tracee::path(named.dir.as_fd()).unwrap_or_default();
    Label { op, path: dir.join(&named.name), pid: tracee.0, bytes: 0 }
}

fn of_file(tracee: Tracee, op: &'static str, file: &OwnedFd, bytes: u64) -> Label {
    let path = tracee::path(file.as_fd()).unwrap_or_default();
    Label { op, path, pid: tracee.0, bytes }
}

/// Reports a change that could not be recorded: it counts as durable.
fn unheard(e: &io::Error) {
    crate::out::note(&format!("warning: --crash: a change could not be recorded: {e}"));
}
