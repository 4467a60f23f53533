//! The manual pages: groff warns of nothing, and the variables that programs read are described.

mod common;

use common::{softring, text};
use softring_testing::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn pages() -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let o = softring(&["gen", "man", dir.path().to_str().unwrap()]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let entries = fs::read_dir(dir.path()).unwrap();
    let pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 12, "{pages:?}");
    (dir, pages)
}

#[test]
fn groff_accepts_every_page() {
    if Command::new("groff").arg("--version").output().is_err() {
        skipped!("groff is not installed: manual pages were not set");
        return;
    }
    let (_dir, pages) = pages();
    for page in pages {
        let o = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output();
        let o = o.unwrap();
        assert!(o.status.success() && o.stderr.is_empty(), "{page:?}: {}", text(&o.stderr));
    }
}

#[test]
fn every_referenced_page_exists() {
    let (dir, pages) = pages();
    for page in &pages {
        let shown = fs::read_to_string(page).unwrap().replace("\\-", "-");
        for word in shown.split(|c: char| c.is_whitespace() || c == ',') {
            if let Some(name) = word.strip_suffix("(1)").filter(|name| name.starts_with("softring"))
            {
                assert!(dir.path().join(format!("{name}.1")).exists(), "{word} in {page:?}");
            }
        }
    }
}

/// Variables of docs/INTERCEPTION.md are described, except those between softring and its command.
#[test]
fn variables_of_programs_are_described() {
    const INTERNAL: [&str; 9] =
        ["ABI", "DOOR", "NOTICE", "STAT", "COMMAND", "RUN", "FOLLOWED", "LOCKED", "RULES"];
    let (dir, _) = pages();
    let run = fs::read_to_string(dir.path().join("softring-run.1")).unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/INTERCEPTION.md");
    let docs = fs::read_to_string(docs).unwrap();
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `SOFTRING_")?.split('`').next());
    let names: Vec<&str> = rows.filter(|name| !INTERNAL.contains(name)).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(run.contains(&format!("\\fBSOFTRING_{name}\\fR")), "SOFTRING_{name}");
    }
}
