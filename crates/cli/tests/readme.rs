//! The marked blocks of README.md do what they show. Behind the language of a block stand words.
//! `test`: the block is run; `denied`: io_uring is denied to it; `needs=PROGRAM`: it is skipped
//! without the program; `recipe=PLACE`: it is part of what `softring doctor --for PLACE` prints.
//!
//! In a `console` block a line with `$ ` at its front is a command; below it stands its output,
//! with `…` for what varies. A `sh` block is a script that succeeds.

mod common;

use common::{ME, library, softring, text};
use softring_testing::skipped;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

struct Block {
    info: Vec<String>,
    text: String,
}

impl Block {
    fn has(&self, word: &str) -> bool {
        self.info.iter().any(|w| w == word)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

fn blocks() -> Vec<Block> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let fenced = readme.split("\n```").skip(1).step_by(2);
    let block = |fenced: &str| {
        let (info, text) = fenced.split_once('\n').unwrap_or((fenced, ""));
        Block { info: info.split(' ').map(str::to_owned).collect(), text: text.to_owned() }
    };
    fenced.map(block).collect()
}

/// Runs a script in a folder with an empty disk image; returns what it prints.
fn run(script: &str, denied: bool, dir: &Path) -> (bool, String) {
    let bin = Path::new(ME).parent().unwrap().display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let mut c = Command::new(ME);
    let deny: &[&str] = if denied { &["deny", "--"] } else { &["run", "--engine=kernel", "--"] };
    c.args(deny).args(["timeout", "60", "sh", "-c", &format!("exec 2>&1\n{script}")]);
    c.env("PATH", path).env_remove("LD_PRELOAD").current_dir(dir);
    let o = c.output().expect("softring starts");
    (o.status.success(), text(&o.stdout))
}

/// Returns whether `shown` is what was printed, if each `…` stands for something.
fn matches(shown: &str, printed: &str) -> bool {
    let mut parts = shown.trim().split('…');
    let Some(mut rest) = printed.trim().strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || shown.trim().ends_with('…')
}

fn try_block(block: &Block) {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("disk.img")).unwrap().set_len(64 << 20).unwrap();
    let denied = block.has("denied");
    if block.has("sh") {
        let (done, printed) = run(&format!("set -e\n{}", block.text), denied, dir.path());
        assert!(done, "{}: {printed}", block.text);
        return;
    }
    for step in block.text.split("$ ").skip(1) {
        let (command, shown) = step.split_once('\n').unwrap_or((step, ""));
        let (_, printed) = run(command, denied, dir.path());
        assert!(matches(shown, &printed), "{command} shows:\n{shown}\nand prints:\n{printed}");
    }
}

#[test]
fn marked_blocks_print_their_output() {
    if !library() {
        return;
    }
    let blocks = blocks();
    let marked: Vec<&Block> = blocks.iter().filter(|block| block.has("test")).collect();
    assert!(marked.len() >= 2, "{} blocks are marked", marked.len());
    for block in marked {
        match block.value("needs") {
            Some(program) if Command::new(program).arg("--version").output().is_err() => {
                skipped!("{program} is not installed: a block of README.md was not run");
            }
            _ => try_block(block),
        }
    }
}

#[test]
fn recipes_match_doctor() {
    if !library() {
        return;
    }
    let lib = Path::new(ME).with_file_name("libsoftring.so").display().to_string();
    for block in blocks() {
        let Some(place) = block.value("recipe") else { continue };
        let printed = text(&softring(&["doctor", "--for", place]).stdout);
        let printed = printed.replace(&lib, "/usr/local/lib/libsoftring.so");
        assert!(printed.contains(block.text.trim()), "{printed}");
    }
}

#[test]
fn variable_figures_are_not_compared() {
    assert!(matches("in … seconds.\n", "in 0.3 seconds.\n"));
    assert!(!matches("in … seconds", "in 0.3 minutes"));
    assert!(!matches("a", "a b") && matches("a …", "a b"));
}
