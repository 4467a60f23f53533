//! `softring run --crash` and rings: each point at which the power fails, and a SPEC in a file.
//! What `softring crash explore` keeps of a failure.

mod common;

use common::{ME, build, library, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Makes all requests by a ring: writes and syncs `a`, tells so, and does the same with `b`. With
/// an argument it then waits for what does not come, unless there is no seed.
const PROGRAM: &str = r#"
#include "ring.h"
int main(int argc, char **argv)
{
	struct ring ring;
	int pipes[2];
	char byte;

	ring_init(&ring, 4, 0);
	for (const char *name = "a"; *name <= 'b'; name = "b") {
		int fd = new_file(name);
		const char *told = *name == 'a' ? "a is there\n" : "b is there\n";

		ring_write_all(&ring, fd, "twelve bytes", 12, 0);
		ring_do(&ring, OP_FSYNC, fd, NULL, 0, 0);
		ring_do(&ring, OP_WRITE, 1, told, 11, 0);
		if (*name == 'b')
			break;
	}
	if (argc > 1 && getenv("SOFTRING_SEED")) {
		need(pipe2(pipes, O_CLOEXEC), "pipe2");
		ring_do(&ring, OP_READ, pipes[0], &byte, 1, 0);
	}
	return 0;
}
"#;

fn program(dir: &Path) -> Option<PathBuf> {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy");
    build(dir, "program", &["-I", header.to_str().unwrap()], PROGRAM).filter(|_| library())
}

/// Runs the program with a power cut in a new folder; returns what it told, and the lengths of its
/// files.
fn cut(program: &Path, spec: &str, words: &[&str]) -> (Output, Vec<(String, u64)>) {
    let dir = tempfile::tempdir().unwrap();
    let mut c = Command::new(ME);
    c.args(["run", "--quiet", "--crash", spec, "--"]).arg(program).args(words);
    let o = c.current_dir(dir.path()).env("SOFTRING_SEED", "0").output().unwrap();
    let entries = fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let name = |e: &fs::DirEntry| e.file_name().into_string().unwrap();
    let mut files: Vec<_> = entries.map(|e| (name(&e), e.metadata().unwrap().len())).collect();
    files.sort();
    (o, files)
}

#[test]
fn the_power_fails_at_requests_of_rings() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    let all = "a is there\nb is there\n";
    let (a, b) = (("a".to_owned(), 12), ("b".to_owned(), 12));
    for (point, told, files) in [
        // The requests: a is made, written and synced, b is made, written and synced.
        ("request=1", "", vec![]),
        ("request=2", "", vec![("a".to_owned(), 0)]),
        ("request=3", "", vec![a.clone()]),
        ("request=4", "a is there\n", vec![a.clone()]),
        ("fsync=1", "", vec![a.clone()]),
        ("fsync=2", "a is there\n", vec![a.clone(), b.clone()]),
        ("marker=is there", "a is there\n", vec![a.clone()]),
        ("marker=b is", all, vec![a.clone(), b.clone()]),
        ("time=1s", all, vec![a.clone(), b.clone()]),
        ("end", all, vec![a.clone(), b.clone()]),
    ] {
        let words = if point.starts_with("time") { &["wait"][..] } else { &[] };
        let (o, found) = cut(&program, &format!("{point},only=0"), words);
        assert_eq!(o.status.code(), Some(0), "{point}: {}", text(&o.stderr));
        assert_eq!((text(&o.stdout).as_str(), found), (told, files), "{point}");
    }
}

#[test]
fn a_toml_file_is_a_spec() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    let file = dir.path().join("cut.toml");
    fs::write(&file, "marker = \"a is there\"\nmodel = \"ext4-ordered\"\nonly = 0\n").unwrap();
    let file = file.to_str().unwrap();
    for spec in [file, &format!("@{file}")] {
        let (o, files) = cut(&program, spec, &[]);
        assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
        assert_eq!((text(&o.stdout).as_str(), files.len()), ("a is there\n", 1));
    }
    fs::write(file, "request = 0\n").unwrap();
    let o = cut(&program, file, &[]).0;
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{said}");
    assert!(said.contains("request: a request is counted from 1") && said.contains("POINT"));
}

/// Explores power cuts, and keeps what failed in `kept`; returns what was printed.
fn explore(dir: &Path, options: &[&str], command: &[&str]) -> String {
    fs::create_dir_all(dir.join("empty")).unwrap();
    let mut c = Command::new(ME);
    c.args(["crash", "explore", "--with"]).arg(dir.join("empty"));
    c.arg("--keep").arg(dir.join("kept")).args(options).arg("--").args(command);
    let o = c.output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
    text(&o.stdout)
}

#[test]
fn a_hang_tells_what_is_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    let options = ["--seeds=8", "--timeout=1s"];
    let out = explore(dir.path(), &options, &[program.to_str().unwrap(), "wait"]);
    let line = out.lines().find(|line| line.contains("in flight: ")).unwrap_or_default();
    for part in ["ring ", "READ(", "<pipe:"] {
        assert!(line.contains(part), "{part}: {out}");
    }
    // The limit of 1 s, less what comes before the request.
    let time = line.split(", poll, for ").nth(1).and_then(|rest| rest.split(' ').next());
    let time: f64 = time.and_then(|t| t.parse().ok()).unwrap_or(f64::NAN);
    assert!(time > 0.0 && time < 1.5, "{out}");
}

/// Writes a file without a ring, and syncs it or not.
const STATIC: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int fd = open("a", O_WRONLY | O_CREAT, 0600), folder = open(".", O_RDONLY);

	write(fd, "twelve bytes", 12);
	if (argc > 1)
		return fsync(fd) || fsync(folder);
	return 0;
}
"#;

#[test]
fn static_programs_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "static", &["-static"], STATIC).filter(|_| library())
    else {
        return;
    };
    let kept = |words: &[&str]| {
        let cuts = (0..8).map(|seed| cut(&program, &format!("seed={seed},end"), words));
        cuts.filter(|(o, files)| {
            assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
            files.as_slice() == [("a".to_owned(), 12)]
        })
        .count()
    };
    assert_eq!(kept(&["synced"]), 8);
    assert!(kept(&[]) < 8);
}

#[test]
fn a_moment_holds_for_all_seeds() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    let program = program.to_str().unwrap();
    // The checker fails where the program has not come to its end.
    let early = ["--seeds=16", "--no-minimise", "--check", "grep -q 'b is'"];
    let out = explore(dir.path(), &early, &[program]);
    assert!(out.contains("16 runs"), "{out}");
    let mut c = Command::new(ME);
    c.args(["crash", "explore", "--crash", "end"]).args(early).arg("--with");
    let o = c.arg(dir.path().join("empty")).args(["--", program]).output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stdout));
    let mut c = Command::new(ME);
    let o = c.args(["crash", "explore", "--crash", "seed=3", "--", "true"]).output().unwrap();
    let said = text(&o.stderr);
    assert!(said.contains("--crash: the campaign counts the seeds"), "{said}");
}

#[test]
fn what_the_power_cut_left_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    // The name of a file that is synced is not durable without its folder.
    let check = "grep -q 'a is' || exit 0; test -e a && : > checked";
    let options = ["--crash", "fsync=2", "--seeds=8", "--check", check];
    let out = explore(dir.path(), &options, &[program.to_str().unwrap()]);
    assert!(out.contains("openat lost"), "{out}");
    let kept = fs::read_dir(dir.path().join("kept")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read_to_string(kept.join("out")).unwrap(), "a is there\n");
    let (spec, log) = (kept.join("spec"), fs::read_to_string(kept.join("log")).unwrap());
    assert!(fs::read_to_string(spec).unwrap().contains(",fsync=2,only="));
    assert!(log.contains("\"op\":\"openat\",\"fault\":\"lost\""), "{log}");
    let left = kept.join("left");
    assert!(left.is_dir() && !left.join("a").exists() && !left.join("checked").exists());
    assert!(kept.join("trace.json.gz").metadata().unwrap().len() > 100);
}
