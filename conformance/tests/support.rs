//! `docs/SUPPORT.md` says what the engine's tables say. With `WRITE_SUPPORT=1` (`make support`) it
//! is written anew. And `docs/DOORS.md` names every system call that softring makes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("one level below the top")
}

#[test]
fn support_md_is_fresh() {
    let path = top().join("docs/SUPPORT.md");
    let want = softring_conformance::support::markdown();
    if std::env::var_os("WRITE_SUPPORT").is_some() {
        std::fs::write(&path, &want).expect("docs can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == want, "docs/SUPPORT.md is stale: run `make support`, and commit it");
}

#[test]
fn what_is_partly_there_names_its_case() {
    let text = softring_conformance::support::markdown();
    for row in text.lines().filter(|l| l.contains("| partly")) {
        let told = row.contains("partly (`") || row.contains("only time could show it");
        assert!(told, "no case shows how it differs: add one, and its row in known.rs: {row}");
    }
}

/// The Rust files below a folder.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a folder of sources");
    let paths = entries.map(|e| e.expect("an entry").path());
    let files = |p: PathBuf| if p.is_dir() { sources(&p) } else { vec![p] };
    paths.flat_map(files).filter(|p| p.extension().is_some_and(|e| e == "rs")).collect()
}

#[test]
fn doors_md_names_every_call() {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut made = BTreeSet::new();
    for dir in ["crates/engine/src", "crates/preload/src"] {
        for path in sources(&top().join(dir)) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            made.extend(text.split("__NR_").skip(1).map(word));
        }
    }
    assert!(made.len() > 100, "{made:?}");
    let text = std::fs::read_to_string(top().join("docs/DOORS.md")).expect("a document");
    let section = text.split("\n## ").find(|s| s.starts_with("What softring asks")).expect("it");
    let rows = section.lines().filter(|l| l.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').skip(1).take(2));
    let named: BTreeSet<String> = cells
        .flat_map(|c| c.split(|ch: char| !ch.is_ascii_alphanumeric() && ch != '_'))
        .map(word)
        .collect();
    let left: Vec<_> = made.difference(&named).collect();
    assert!(left.is_empty(), "docs/DOORS.md, \"What softring asks of the system\", lacks {left:?}");
}
