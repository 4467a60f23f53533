//! The programs of `examples/buggy`: each has a bug that shows only when a fault is injected.

mod common;

use common::{ME, text};
use softring_testing::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Number of runs of each program without faults.
const RUNS: usize = 5;
/// Exit code of a program that finds no ring here.
const NO_RING: i32 = 2;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy")
}

/// Builds all programs into a folder; returns their names, those of the twins left out.
fn build(dir: &Path) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(sources()).expect("the folder of examples") {
        let source = entry.expect("an entry").path();
        if source.extension().is_none_or(|ext| ext != "c") {
            continue;
        }
        let name = source.file_stem().expect("a name").to_string_lossy().into_owned();
        for (define, end) in [("-UFIXED", ""), ("-DFIXED", "-fixed")] {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-Wall", "-Wextra", "-Werror", define, "-o"]);
            let Ok(o) = cc.arg(dir.join(format!("{name}{end}"))).arg(&source).output() else {
                skipped!("no C compiler");
                return None;
            };
            assert!(o.status.success(), "{name}: {}", text(&o.stderr));
        }
        names.push(name);
    }
    assert!(names.len() >= 12, "{names:?}");
    names.sort();
    Some(names)
}

fn run(before: &[&str], program: &Path, dir: &Path) -> Output {
    let mut words = before.iter().map(Path::new).chain([program]);
    let mut c = Command::new(words.next().expect("a program"));
    c.args(words).current_dir(dir).output().expect("it starts")
}

#[test]
fn nothing_is_wrong_without_faults() {
    let dir = tempfile::tempdir().unwrap();
    let Some(names) = build(dir.path()) else { return };
    let softring = [ME, "run", "--engine=user", "--quiet", "--"];
    for name in names.iter().flat_map(|name| [name.clone(), format!("{name}-fixed")]) {
        for before in [&[][..], &softring[..]] {
            for _ in 0..RUNS {
                let o = run(before, &dir.path().join(&name), dir.path());
                if o.status.code() == Some(NO_RING) && before.is_empty() {
                    skipped!("{name}: {}", text(&o.stderr).trim());
                    break;
                }
                assert!(o.status.success(), "{before:?} {name}: {}", text(&o.stderr));
            }
        }
    }
}
