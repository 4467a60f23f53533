//! Makes of a directory what the power cut has left of it.

use super::recorder::Recorder;
use super::tracee::{self, Named};
use anyhow::Context;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, linkat, mkdirat, openat, readlinkat, renameat,
    symlinkat,
};
use softring_crash::{Cut, Inode, Left, Place, SECTOR};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};

struct Restorer<'a> {
    recorder: &'a Recorder,
    /// Folder for what has no name for now.
    aside: tempfile::TempDir,
    aside_fd: OwnedFd,
    /// Names in that folder.
    set_aside: BTreeMap<Inode, String>,
    /// Directories that were removed, and are made again.
    revived: BTreeMap<Inode, OwnedFd>,
}

/// Makes of the directory what a power cut leaves.
pub fn restore(recorder: &Recorder, cut: &Cut) -> anyhow::Result<()> {
    for (&inode, left) in &cut.files {
        if let Some(file) = recorder.held(inode) {
            data(file, left).context("cannot write back what a file was")?;
        }
    }
    let aside = tempfile::Builder::new().prefix(".softring-crash-").tempdir_in(&recorder.root);
    let aside = aside.context("cannot make a folder in the directory")?;
    let aside_fd = tracee::open(aside.path()).context("cannot open a new folder")?;
    let mut restorer = Restorer {
        recorder,
        aside,
        aside_fd,
        set_aside: BTreeMap::new(),
        revived: BTreeMap::new(),
    };
    restorer.names(cut).context("cannot give names back")
}

/// Writes the sectors of a file, and gives it its size.
fn data(held: &OwnedFd, left: &Left) -> anyhow::Result<()> {
    let path = tracee::own(held.as_fd());
    let mode = fs::metadata(&path)?.permissions();
    let open = || File::options().write(true).open(&path);
    let file = open().or_else(|_| {
        fs::set_permissions(&path, Permissions::from_mode(mode.mode() | 0o200))?;
        let file = open();
        fs::set_permissions(&path, mode)?;
        file
    })?;
    file.set_len(left.size)?;
    for (number, sector) in &left.sectors {
        let at = number * SECTOR;
        let len = left.size.saturating_sub(at).min(SECTOR) as usize;
        file.write_all_at(&sector[..len], at)?;
    }
    Ok(())
}

impl Restorer<'_> {
    fn names(&mut self, cut: &Cut) -> anyhow::Result<()> {
        let wanted = cut.names.values().flatten();
        for &inode in wanted.chain(cut.names.keys().map(|place| &place.dir)) {
            self.revive(inode)?;
        }
        let mut missing: Vec<(&Place, Inode)> = Vec::new();
        for (n, (place, &wanted)) in cut.names.iter().enumerate() {
            let Some(dir) = self.dir(place.dir) else { continue };
            let name = tracee::name(&place.name);
            let named = Named { dir: dir.try_clone()?, name };
            let live = named.hold().and_then(|fd| self.number(&fd));
            if live.is_some_and(|live| live == wanted) {
                continue;
            }
            if let Some(live) = live {
                let aside = format!("{n}");
                renameat(&named.dir, &named.name, &self.aside_fd, &aside)?;
                if let Some(live) = live {
                    self.set_aside.insert(live, aside);
                }
            }
            missing.extend(wanted.map(|wanted| (place, wanted)));
        }
        for (place, inode) in missing {
            self.give(place, inode)?;
        }
        fs::remove_dir_all(self.aside.path())?;
        Ok(())
    }

    fn dir(&self, inode: Inode) -> Option<&OwnedFd> {
        self.revived.get(&inode).or_else(|| self.recorder.held(inode))
    }

    /// Returns the number of a file, if it has one.
    fn number(&self, fd: &OwnedFd) -> Option<Option<Inode>> {
        let stat = tracee::stat(fd)?;
        let revived = self.revived.iter().find(|(_, dir)| {
            tracee::stat(dir).is_some_and(|s| (s.st_dev, s.st_ino) == (stat.st_dev, stat.st_ino))
        });
        Some(revived.map(|(inode, _)| *inode).or_else(|| self.recorder.known(&stat)))
    }

    /// Makes a directory again that has been removed.
    fn revive(&mut self, inode: Inode) -> anyhow::Result<()> {
        let Some(stat) = self.recorder.held(inode).and_then(tracee::stat) else { return Ok(()) };
        if !is(&stat, FileType::Directory) || stat.st_nlink > 0 || self.revived.contains_key(&inode)
        {
            return Ok(());
        }
        let name = format!("dir-{}", inode.0);
        mkdirat(&self.aside_fd, &name, Mode::from_raw_mode(stat.st_mode & 0o7777 | 0o700))?;
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.aside_fd, &name, how, Mode::empty())?;
        self.revived.insert(inode, dir);
        self.set_aside.insert(inode, name);
        Ok(())
    }

    /// Gives a file or directory a name.
    fn give(&self, place: &Place, inode: Inode) -> anyhow::Result<()> {
        let (Some(dir), name) = (self.dir(place.dir), tracee::name(&place.name)) else {
            return Ok(());
        };
        let Some(held) = self.dir(inode) else { return Ok(()) };
        let Some(stat) = tracee::stat(held) else { return Ok(()) };
        if is(&stat, FileType::Directory) {
            if let Some(aside) = self.set_aside.get(&inode) {
                renameat(&self.aside_fd, aside, dir, &name)?;
            }
            return Ok(());
        }
        let own = tracee::own(held.as_fd());
        if stat.st_nlink > 0 {
            linkat(CWD, &own, dir, &name, AtFlags::SYMLINK_FOLLOW)?;
            return Ok(());
        }
        if is(&stat, FileType::Symlink) {
            let target = readlinkat(held, "", Vec::new())?;
            symlinkat(target, dir, &name)?;
        } else if is(&stat, FileType::RegularFile) {
            let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
            let mut to = File::from(openat(dir, &name, how, mode)?);
            std::io::copy(&mut File::open(&own)?, &mut to)?;
            to.set_permissions(Permissions::from_mode(stat.st_mode & 0o7777))?;
        }
        Ok(())
    }
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}
