//! `softring run --crash` and `softring crash explore`.

mod common;

use common::{ME, library, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Builds a program of C, with the ring of the examples; None: there is no compiler.
fn build(dir: &Path, source: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    let program = dir.join(name);
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-I"]).arg(header).args(options).arg("-o").arg(&program).arg(source);
    let Ok(o) = cc.output() else {
        skipped!("no C compiler");
        return None;
    };
    assert!(o.status.success(), "{}", text(&o.stderr));
    Some(program)
}

fn python() -> bool {
    let found = Command::new("python3").args(["-c", "import sqlite3, mmap"]).output();
    let there = found.is_ok_and(|o| o.status.success());
    if !there {
        skipped!("no python3 with sqlite3");
    }
    there
}

/// Explores power cuts of a command in an empty folder; returns the result.
fn explore(options: &[&str], check: &str, command: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let (json, empty) = (dir.path().join("result.json"), dir.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    let mut c = Command::new(ME);
    c.args(["crash", "explore", "--json"]).arg(&json).arg("--with").arg(&empty);
    let o = c.args(options).args(["--check", check, "--"]).args(command).output().unwrap();
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {}", text(&o.stderr)));
    let failed = report["failed"].as_u64().unwrap() > 0;
    assert_eq!(o.status.code(), Some(i32::from(failed)), "{}", text(&o.stderr));
    report
}

/// Runs a shell script with a power cut in a folder.
fn cut(dir: &Path, spec: &str, script: &str) -> Output {
    let mut c = Command::new(ME);
    c.args(["run", "--quiet", "--crash", spec, "--", "sh", "-c", script]);
    c.current_dir(dir).output().unwrap()
}

/// Finds the bug of an example within 200 seeds, has it again by its SPEC, and finds nothing in its
/// twin.
fn found(name: &str, seeds_of_twin: &str) {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy");
    let source = source.join(format!("{name}.c"));
    let Some(program) = build(dir.path(), &source, name, &[]).filter(|_| library()) else { return };
    let program = program.to_str().unwrap();
    let check = format!("{program} check");
    let report = explore(&["--seeds", "200"], &check, &[program]);
    let failure = &report["failures"][0];
    assert_eq!((&failure["reproduced"], &failure["ending"]["check"]), (&true.into(), &1.into()));
    let spec = failure["spec"].as_str().unwrap();
    let replay = failure["replay"].as_str().unwrap();
    assert!(replay.starts_with(&format!("softring run --crash {spec} -- ")), "{replay}");
    let again = dir.path().join("again");
    fs::create_dir(&again).unwrap();
    let o = cut(&again, spec, program);
    let script = format!("printf '%s' '{}' | {check}", text(&o.stdout));
    let o = Command::new("sh").args(["-c", &script]).current_dir(&again).output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{spec}: {}", text(&o.stderr));

    let twin = format!("{name}-fixed");
    let twin = build(dir.path(), &source, &twin, &["-DFIXED"]).unwrap();
    let twin = twin.to_str().unwrap();
    for model in ["posix-minimal", "ext4-ordered"] {
        let options = ["--seeds", seeds_of_twin, "--crash", &format!("model={model}")];
        let report = explore(&options, &format!("{twin} check"), &[twin]);
        assert_eq!(report["failed"], 0, "{model}: {report}");
    }
}

#[test]
fn a_rename_without_an_fsync_is_found() {
    found("fsync-rename", "100");
}

#[test]
fn a_torn_record_is_found() {
    found("torn-wal", "100");
}

#[test]
#[ignore = "takes minutes"]
fn nothing_is_found_in_a_twin_in_2000_seeds() {
    found("fsync-rename", "2000");
    found("torn-wal", "2000");
}

/// Writes by a ring and by pwrite(2), and syncs by the other one.
const MIXED: &str = r#"
#include "ring.h"
int main(int argc, char **argv)
{
	struct ring ring;
	char data[8000];
	int a = new_file("a"), b = new_file("b"), folder = open(".", O_RDONLY);

	fill(data, sizeof(data), 0);
	ring_init(&ring, 4, 0);
	ring_write_all(&ring, a, data, sizeof(data), 0);
	need(pwrite(b, data, sizeof(data), 0), "pwrite");
	if (argc > 1) {
		need(fsync(a), "fsync");
		ring_do(&ring, OP_FSYNC, b, NULL, 0, 0);
		fsync(folder);
	}
	puts("done");
	return 0;
}
"#;

#[test]
fn rings_and_plain_calls_are_one_record() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("mixed.c");
    fs::write(&source, MIXED).unwrap();
    let Some(program) = build(dir.path(), &source, "mixed", &[]).filter(|_| library()) else {
        return;
    };
    let program = program.to_str().unwrap();
    let check = "grep -q done || exit 0; cmp a b && test $(wc -c < a) = 8000";
    let report = explore(&["--seeds", "60"], check, &[program, "synced"]);
    assert_eq!(report["failed"], 0, "{report}");
    let report = explore(&["--seeds", "60"], check, &[program]);
    let sites = report["failures"].to_string();
    assert!(sites.contains("pwrite64"), "{sites}");
    assert!(report["failed"].as_u64().unwrap() > 5, "{report}");
}

#[test]
fn several_processes_are_one_record() {
    if !library() {
        return;
    }
    let script = |sync: &str| {
        format!(
            "for i in 1 2 3; do (echo data $i > f$i; {sync} f$i) & done; wait; {sync} .; echo done"
        )
    };
    let check =
        "grep -q done || exit 0; for i in 1 2 3; do grep -q \"data $i\" f$i || exit 1; done";
    let report = explore(&["--seeds", "60"], check, &["sh", "-c", &script("sync")]);
    assert_eq!(report["failed"], 0, "{report}");
    let report = explore(&["--seeds", "60"], check, &["sh", "-c", &script(": ")]);
    assert!(report["failed"].as_u64().unwrap() > 5, "{report}");
}

const SQLITE: &str = "
import sqlite3, sys, os
c = sqlite3.connect('t.db', isolation_level=None)
c.execute('pragma journal_mode=' + sys.argv[1])
c.execute('pragma synchronous=' + sys.argv[2])
c.execute('create table if not exists t(i integer primary key, v text)')
for i in range(4):
    c.execute('insert into t values(?, ?)', (i, 'x' * 700))
    os.write(1, b'done\\n')
";

const SQLITE_CHECK: &str = "
import sqlite3, sys
told = sum(1 for line in sys.stdin)
c = sqlite3.connect('t.db')
if c.execute('pragma integrity_check').fetchall() != [('ok',)]:
    sys.exit('damaged')
try:
    there = c.execute('select count(*) from t').fetchone()[0]
except sqlite3.OperationalError:
    there = 0
if there < told:
    sys.exit('commits are lost')
";

#[test]
fn a_database_keeps_what_it_has_committed() {
    if !library() || !python() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = dir.path().join("check.py");
    fs::write(&check, SQLITE_CHECK).unwrap();
    let check = format!("python3 {}", check.display());
    for (journal, synchronous, keeps) in
        [("wal", "full", true), ("delete", "extra", true), ("wal", "off", false)]
    {
        let command = ["python3", "-c", SQLITE, journal, synchronous];
        let report = explore(&["--seeds", "20"], &check, &command);
        assert_eq!(report["failed"] == 0, keeps, "{journal} {synchronous}: {report}");
    }
}

/// Changes a mapped file, and syncs that or not.
const MAPPED: &str = "
import mmap, os, sys
f = open('m', 'r+b')
m = mmap.mmap(f.fileno(), 0)
m[5000:5003] = b'new'
if len(sys.argv) > 1:
    m.flush()
os._exit(0)
";

#[test]
fn a_mapped_file_is_durable_at_msync() {
    if !library() || !python() {
        return;
    }
    let mut lost = [0, 0];
    for seed in 0..20 {
        for (n, synced) in ["", " synced"].into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("m"), vec![b'.'; 8192]).unwrap();
            let script = dir.path().join(".mapped.py");
            fs::write(&script, MAPPED).unwrap();
            let o =
                cut(dir.path(), &format!("seed={seed}"), &format!("python3 .mapped.py{synced}"));
            assert!(o.status.success(), "{}", text(&o.stderr));
            let bytes = fs::read(dir.path().join("m")).unwrap();
            assert_eq!(bytes.len(), 8192);
            lost[n] += usize::from(&bytes[5000..5003] != b"new");
        }
    }
    assert!(lost[0] > 0 && lost[1] == 0, "{lost:?}");
}

#[test]
fn names_come_back() {
    if !library() {
        return;
    }
    let mut seen = [0; 4];
    for seed in 0..40 {
        let model = ["posix-minimal", "ext4-ordered"][seed % 2];
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        for name in ["a", "b", "d/e"] {
            fs::write(at(name), name).unwrap();
        }
        let script = "mv a c && rm b && rm d/e && rmdir d && mkdir n && echo x > n/x && ln c l";
        let o = cut(dir.path(), &format!("seed={seed},model={model}"), script);
        assert!(o.status.success(), "{}", text(&o.stderr));
        // A name has changed or not, and a file has its content by either.
        let (old, new) = (fs::read_to_string(at("a")), fs::read_to_string(at("c")));
        assert!(old.is_ok() != new.is_ok(), "seed {seed}: {old:?} {new:?}");
        assert_eq!(old.or(new).unwrap(), "a");
        for name in ["b", "d/e"] {
            assert!(
                fs::read_to_string(at(name)).is_ok_and(|text| text == name) || !at(name).exists()
            );
        }
        let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        assert!(names.iter().all(|name| name.len() == 1), "{names:?}");
        for (n, name) in ["a", "b", "d/e", "n"].into_iter().enumerate() {
            seen[n] += usize::from(at(name).exists());
        }
    }
    assert!(seen.iter().all(|&n| (1..40).contains(&n)), "{seen:?}");
}

#[test]
fn the_power_fails_when_it_is_told_to() {
    if !library() {
        return;
    }
    let script = "echo 1 > a; sync a; echo stop here; echo 2 > b; sleep 1000 & echo $! > p; wait";
    for (spec, there) in [
        ("request=1", &[][..]),
        ("fsync=1", &["a"]),
        ("marker=stop here", &["a"]),
        ("time=700ms", &["a", "b", "p"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let o = cut(dir.path(), &format!("{spec},only=0"), script);
        assert_eq!(o.status.code(), Some(0), "{spec}: {}", text(&o.stderr));
        assert!(start.elapsed() < Duration::from_secs(60), "{spec}");
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, there, "{spec}");
        if let Ok(pid) = fs::read_to_string(dir.path().join("p")) {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            assert!(stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z ")), "{pid} lives");
        }
    }
}

#[test]
fn a_program_that_ends_first_has_its_own_end() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(cut(dir.path(), "request=9", "exit 7").status.code(), Some(7));
    let o = cut(dir.path(), "end", "kill -TERM $$");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&o.status), Some(15));
}

#[test]
fn the_log_says_what_is_lost() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut c = Command::new(ME);
    c.args(["run", "-q", "--crash", "seed=2,dir=work", "--crash-log"]).arg(&log);
    c.args(["--", "sh", "-c", "echo x > work/x; echo y > outside"]).current_dir(dir.path());
    assert!(c.output().unwrap().status.success());
    let log = fs::read_to_string(&log).unwrap();
    let last = "{\"ring\":0,\"request\":2,\"op\":\"cut\",\"fault\":\"cut\",\"value\":0,\"pid\":0}";
    assert_eq!(log.lines().last(), Some(last), "{log}");
    assert!(!log.contains("outside"), "{log}");
    assert!(dir.path().join("outside").exists());
}

#[test]
fn mistakes_are_pointed_at() {
    let o = softring(&["run", "--crash", "seed=1,model=ext5", "--", "true"]);
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{said}");
    for part in ["column 14: there is no model ext5", "\n               ^", "POINT"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for words in [
        &["run", "--crash", "end,dir=/no/such", "--", "true"][..],
        &["run", "--crash", "end", "--engine=kernel", "--", "true"],
        &["run", "--crash-log", "x", "--", "true"],
        &["crash", "explore", "--", "false"],
    ] {
        assert_eq!(softring(words).status.code(), Some(2), "{words:?}");
    }
}
