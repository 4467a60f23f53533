//! Build script for the text of `softring --version`, and for the library inside the command.
//!
//! The text names the commit, and its date or SOURCE_DATE_EPOCH. Both come from the source, so two
//! builds of one source print the same. The library is the file in SOFTRING_CARRIED, if that is
//! set.

use flate2::{Compression, write::GzEncoder};
use std::env;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the file that `git archive` fills in with the commit.
const ARCHIVED: &str = "dist/commit";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo::rerun-if-env-changed=SOFTRING_COMMIT");
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let source = named().or_else(|| archived(&top)).or_else(|| checked_out(&top));
    let (commit, committed) = source.unwrap_or_default();
    let epoch = env::var("SOURCE_DATE_EPOCH").ok().and_then(|s| s.parse().ok());
    let date = epoch.or(committed).map(date);
    let version = env!("CARGO_PKG_VERSION");
    let more: Vec<String> = [commit, date].into_iter().flatten().collect();
    let all = match more.is_empty() {
        true => version.to_owned(),
        false => format!("{version} ({})", more.join(" ")),
    };
    println!("cargo::rustc-env=SOFTRING_VERSION={all}");
    pack();
}

/// Packs the library that the command is to carry inside. Without one, the packed file is empty.
fn pack() {
    println!("cargo::rerun-if-env-changed=SOFTRING_CARRIED");
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut to = File::create(to.join("library.gz")).expect("cargo's folder is there");
    let Some(library) = env::var_os("SOFTRING_CARRIED").filter(|path| !path.is_empty()) else {
        return;
    };
    let library = Path::new(&library);
    println!("cargo::rerun-if-changed={}", library.display());
    let packed = std::fs::read(library).and_then(|bytes| {
        let mut packer = GzEncoder::new(&mut to, Compression::best());
        packer.write_all(&bytes)?;
        packer.finish().map(|_| ())
    });
    if let Err(e) = packed {
        panic!("SOFTRING_CARRIED names {}, which cannot be packed: {e}", library.display());
    }
}

/// A commit and its time, in seconds since 1970.
type Source = (Option<String>, Option<i64>);

/// Returns the commit in SOFTRING_COMMIT, which whoever builds may set.
fn named() -> Option<Source> {
    env::var("SOFTRING_COMMIT").ok().filter(|s| !s.is_empty()).map(|commit| (Some(commit), None))
}

fn archived(top: &Path) -> Option<Source> {
    let text = std::fs::read_to_string(top.join(ARCHIVED)).ok()?;
    println!("cargo::rerun-if-changed={}", top.join(ARCHIVED).display());
    parsed(&text)
}

/// Parses `HASH SECONDS`; returns None for a file that `git archive` has not filled in.
fn parsed(text: &str) -> Option<Source> {
    let (hash, seconds) = text.trim().split_once(' ')?;
    let is_hash = hash.len() >= 8 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| (Some(hash[..8].to_owned()), seconds.parse().ok()))
}

fn checked_out(top: &Path) -> Option<Source> {
    let git = |args: &[&str]| {
        let done = Command::new("git").arg("-C").arg(top).args(args).output().ok()?;
        let text = String::from_utf8(done.stdout).ok()?;
        done.status.success().then(|| text.trim().to_owned())
    };
    // A repository that this source was unpacked into is not its own.
    let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if root.canonicalize().ok()? != top.canonicalize().ok()? {
        return None;
    }
    // A commit moves the branch, not HEAD; the log of HEAD changes with both.
    for file in ["HEAD", "logs/HEAD"] {
        let path = top.join(git(&["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    parsed(&git(&["log", "-1", "--format=%H %ct"])?)
}

/// Formats a second since 1970 as a day, in UTC.
fn date(seconds: i64) -> String {
    // Days are counted from 1 March of the year 0, so that leap days come last, in eras of 400
    // years.
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", year + era * 400 + next)
}
