//! The file that a trace goes to. An older one in it stays until the new one is whole.

use crate::{fail, signals};
use anyhow::Context;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// File that a trace goes to.
#[derive(Debug)]
pub struct Output {
    /// Path as the user named it.
    path: PathBuf,
    file: File,
    /// Flag, true if the file was not there before.
    new: bool,
}

impl Output {
    /// Opens the file, and leaves its contents.
    pub fn open(path: &Path) -> anyhow::Result<Output> {
        let made = File::create_new(path);
        let new = made.is_ok();
        let file = match made {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                File::options().write(true).create(true).truncate(false).open(path)
            }
            made => made,
        };
        let file = file.map_err(|e| {
            let hint = "name a file that you may write: softring trace -o FILE";
            fail::usage(format!("cannot write {}: {e}", path.display()), hint)
        })?;
        Ok(Output { path: path.to_owned(), file, new })
    }

    /// Leaves what was there, as nothing is to be written.
    pub fn discard(self) {
        if self.new {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Has `write` write a new file, and puts it in the place of the old one.
    pub fn write<T>(self, write: impl FnOnce(File) -> anyhow::Result<T>) -> anyhow::Result<T> {
        signals::ignore_file_size();
        let cannot = || format!("cannot write {}", self.path.display());
        let about = self.file.metadata().with_context(cannot)?;
        // A pipe or a terminal has nothing to keep.
        if !about.is_file() {
            return write(self.file).with_context(cannot);
        }
        // The path of the file itself, and not of a link to it.
        let path = fs::canonicalize(&self.path).with_context(cannot)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = path.with_file_name(name);
        let Ok(file) = File::create_new(&beside) else {
            // The folder is not ours to write to.
            self.file.set_len(0).with_context(cannot)?;
            return write(self.file).with_context(cannot);
        };
        let _ = file.set_permissions(about.permissions());
        let _ = fchown(&file, Some(about.uid()), Some(about.gid()));
        let done = write(file).and_then(|written| {
            fs::rename(&beside, &path)?;
            Ok(written)
        });
        if done.is_err() {
            let _ = fs::remove_file(&beside);
        }
        done.with_context(cannot)
    }
}
