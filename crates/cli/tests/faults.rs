//! Injected faults (`softring run --faults`) in a program that makes requests one by one, with
//! io_uring denied: each fault shows, the same ones in each run, and a replay injects them again.

mod common;

use common::{ME, library, softring, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a program: an example of the client's crate.
fn example(name: &str) -> PathBuf {
    Path::new(ME).with_file_name("examples").join(name)
}

fn transfers() -> PathBuf {
    example("transfers")
}

/// A run of the program.
struct Run {
    out: String,
    /// Lines of the log behind the first, without what differs between runs.
    log: Vec<String>,
}

impl Run {
    /// Returns the values of a fault in the log.
    fn values(&self, fault: &str) -> Vec<u64> {
        let of = |line: &String| {
            let line = softring_faults::log::Line::parse(line).expect("a line");
            (line.fault == fault).then_some(line.value)
        };
        self.log.iter().filter_map(of).collect()
    }

    /// Returns the number of lines that the program has printed.
    fn count(&self, line: &str) -> usize {
        self.out.lines().filter(|l| *l == line).count()
    }
}

fn run_with(dir: &Path, options: &[&str], what: &str) -> Run {
    run_program(&transfers(), dir, options, what)
}

fn run_program(program: &Path, dir: &Path, options: &[&str], what: &str) -> Run {
    let log = dir.join("log");
    let mut c = Command::new(ME);
    c.args(["run", "--deny", "--quiet", "--faults-log"]).arg(&log).args(options).arg("--");
    c.arg(program).arg(what);
    if ["file", "order", "others", "vectors"].contains(&what) {
        c.arg(dir);
    }
    let o = c.output().expect("softring starts");
    assert!(o.status.success(), "{options:?} {what}: {}", text(&o.stderr));
    let log = fs::read_to_string(&log).expect("a log");
    assert!(log.starts_with("{\"softring-faults\":1,\"spec\":\"seed="), "{log}");
    let without_pid = |line: &str| {
        let (before, after) = line.split_once(",\"pid\":").expect("a process");
        let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        format!("{before}{rest}")
    };
    let lines = log.lines().skip(1).map(without_pid).collect();
    Run { out: text(&o.stdout), log: lines }
}

/// Fails unless two runs had the same faults, and the program printed the same.
fn assert_same(one: &Run, other: &Run) {
    let different = one.log.iter().zip(&other.log).find(|(a, b)| a != b);
    assert_eq!(different, None);
    assert_eq!(one.log.len(), other.log.len());
    assert_eq!(one.out, other.out);
}

fn run(spec: &str, what: &str) -> Run {
    let dir = tempfile::tempdir().expect("a folder");
    run_with(dir.path(), &["--faults", spec], what)
}

fn run_example(name: &str, spec: &str, what: &str) -> Run {
    let dir = tempfile::tempdir().expect("a folder");
    run_program(&example(name), dir.path(), &["--faults", spec], what)
}

#[test]
fn the_same_seed_gives_the_same_faults_and_a_replay_gives_them_again() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let spec = "legal,seed=7,short-read=0.5,short-write=0.5,eio=0.1,delay=0.5:100us,eintr=0";
    let first = run_with(dir.path(), &["--faults", spec], "file");
    assert!(first.log.len() > 10, "{:?}", first.log);
    let second = run_with(dir.path(), &["--faults", spec], "file");
    assert_same(&second, &first);
    let other = run_with(dir.path(), &["--faults", &spec.replace("=7", "=8")], "file");
    assert_ne!(other.log, first.log);
    // The log of the first run again, and then a replay of it.
    run_with(dir.path(), &["--faults", spec], "file");
    let old = dir.path().join("old");
    fs::rename(dir.path().join("log"), &old).expect("a log");
    let old = old.to_str().expect("a name");
    let replayed = run_with(dir.path(), &["--faults-replay", old], "file");
    assert_same(&replayed, &first);
    // A replay of fewer faults injects only those.
    let log = fs::read_to_string(old).expect("a log");
    let few: Vec<&str> = log.lines().take(3).collect();
    fs::write(old, few.join("\n")).expect("a log");
    let replayed = run_with(dir.path(), &["--faults-replay", old], "file");
    assert_eq!(replayed.log, first.log[..2]);
}

#[test]
fn without_a_hit_nothing_changes() {
    if !library() {
        return;
    }
    for what in ["file", "tcp", "unix", "multishot", "zero-copy", "eventfd", "sq-thread"] {
        let faulted = run("seed=1", what);
        assert!(faulted.log.is_empty(), "{:?}", faulted.log);
        let dir = tempfile::tempdir().expect("a folder");
        let mut c = Command::new(ME);
        c.args(["run", "--deny", "--quiet", "--"]).arg(transfers()).arg(what);
        if what == "file" {
            c.arg(dir.path());
        }
        let plain = c.output().expect("softring starts");
        // A notification may come with its request or after it.
        let lines = |out: &str| {
            let all = out.lines().filter(|line| !line.starts_with("at once"));
            all.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(&text(&plain.stdout)), lines(&faulted.out), "{what}");
    }
}

/// The program itself checks that a short count is a prefix, that nothing else of a buffer
/// changes, that a stream stays in order, and that a link behind a short read breaks.
#[test]
fn short_counts_are_prefixes() {
    if !library() {
        return;
    }
    let files = run("seed=1,short-read=0.5,short-write=0.5", "file");
    for fault in ["short-read", "short-write"] {
        let values = files.values(fault);
        assert!(values.len() > 2 && values.iter().all(|n| (1..8192).contains(n)), "{values:?}");
        for value in values {
            let of = |data: u8| files.count(&format!("{data} {value} 0x0"));
            assert!(of(0) + of(2) > 0, "{value}: {}", files.out);
        }
    }
    let vectors = run("seed=1,short-read=0.5,short-write=0.5", "vectors");
    for op in ["READV", "WRITEV", "SENDMSG", "RECVMSG"] {
        let named = format!("\"op\":\"{op}\"");
        assert!(vectors.log.iter().any(|line| line.contains(&named)), "{op}: {}", vectors.out);
    }
    for what in ["tcp", "unix"] {
        let stream = run("seed=3,short-read=0.5,short-write=0.5", what);
        assert!(stream.out.ends_with("end 1000 1000\n"), "{}", stream.out);
        assert!(
            !stream.values("short-read").is_empty() || !stream.values("short-write").is_empty()
        );
    }
}

#[test]
fn errors_come_instead_of_the_operation() {
    if !library() {
        return;
    }
    for (fault, errno, what) in [
        ("eio", 5, "file"),
        ("enomem", 12, "file"),
        ("enospc", 28, "others"),
        ("edquot", 122, "others"),
        ("eagain", 11, "others"),
        ("eintr", 4, "unix"),
        ("econnreset", 104, "tcp"),
        ("econnreset", 104, "unix"),
    ] {
        let spec = format!("seed=5,{fault}=0.5");
        let all = run(&spec, what);
        let requests = all.log.iter().filter(|line| !line.contains("ENTER")).count();
        assert!(requests > 0, "{fault} {what}: {}", all.out);
        let failed = [0, 1, 2].map(|data| all.count(&format!("{data} -{errno} 0x0")));
        assert_eq!(failed.iter().sum::<usize>(), requests, "{fault} {what}: {}", all.out);
        let refused = all.count(&format!("enter -{errno}"));
        assert_eq!(refused + requests, all.log.len(), "{fault} {what}: {}", all.out);
    }
    // A reset connection is gone.
    let reset = run("econnreset=1@nth=3", "tcp");
    assert!(reset.out.contains("0 -104 0x0"), "{}", reset.out);
    assert!(!reset.out.ends_with("end 1000 1000\n") || reset.log.len() == 1, "{}", reset.out);
    let dropped = run("drop-connection=1@op=recv,nth=1", "tcp");
    assert_eq!(dropped.log.len(), 1, "{:?}", dropped.log);
}

#[test]
fn completions_come_late_and_in_another_order() {
    if !library() {
        return;
    }
    let delayed = run("seed=1,delay=20ms@nth=3", "file");
    assert_eq!(delayed.values("delay"), [20_000_000]);
    let order = run("seed=1,reorder=1", "order");
    assert_eq!(order.log.len(), 32);
    let ended: Vec<&str> = order.out.lines().filter(|l| !l.starts_with("enter")).collect();
    let sorted: Vec<String> = (0..32).map(|i| format!("{i} 16 0x0")).collect();
    assert_ne!(ended, sorted, "the order is another");
    let burst = run("seed=1,overflow=1", "burst");
    assert!(burst.out.ends_with("overflowed true\n"), "{}", burst.out);
    let calm = run("seed=1", "burst");
    assert!(calm.out.ends_with("overflowed false\n"), "{}", calm.out);
    let cancelled = run("cancel-late=1", "cancel");
    // On a busy machine the program itself may be late.
    assert_eq!(cancelled.log.len(), 4);
    assert!(cancelled.count("at once 1") > 0, "{}", cancelled.out);
    let notified = run("notif-late=1", "zero-copy");
    assert_eq!(notified.log.len(), 4);
    assert!(notified.count("at once 0") > 0, "{}", notified.out);
}

#[test]
fn multishot_requests_end_and_buffers_run_out() {
    if !library() {
        return;
    }
    let ended = run("seed=1,multishot-end=1", "multishot");
    let shots = ended.values("multishot-end")[0];
    assert!(ended.out.ends_with(&format!("ended after {} with 64\n", shots * 64)), "{}", ended.out);
    for what in ["poll", "timeout"] {
        let ended = run_example("multishots", "seed=1,multishot-end=1", what);
        let shots = ended.values("multishot-end")[0];
        assert_eq!(ended.out, format!("ended after {shots}\n"), "{what}");
        let goes_on = run_example("multishots", "seed=1", what);
        assert_eq!(goes_on.out, "goes on after 16\n", "{what}");
    }
    let dry = run("seed=1,buffers-out=1", "multishot");
    assert!(dry.out.ends_with("with -105\n"), "{}", dry.out);
}

#[test]
fn wake_ups_are_spurious_and_the_sq_thread_late() {
    if !library() {
        return;
    }
    let woken = run("spurious-wake=1", "eventfd");
    assert!(woken.log.len() == 15 && woken.out.ends_with("signals 31\n"), "{}", woken.out);
    let late = run("sq-late=1", "sq-thread");
    assert_eq!(late.log.len(), 16);
}

#[test]
fn filters_choose_the_requests() {
    if !library() {
        return;
    }
    let third = run("eio=1@op=write,path=dat?,kind=file,ring=0,nth=3", "file");
    let only = "{\"ring\":0,\"request\":2,\"op\":\"WRITE\",\"fault\":\"eio\",\"value\":5,\"path\":";
    assert!(third.log.len() == 1 && third.log[0].starts_with(only), "{:?}", third.log);
    assert_eq!(run("eio=1@path=*.wal", "file").log.len(), 0);
    assert_eq!(run("eio=1@kind=pipe", "file").log.len(), 0);
    assert_eq!(run("eio=1@ring=1", "file").log.len(), 0);
}

#[test]
fn a_wrong_spec_is_pointed_at() {
    let o = softring(&["run", "--faults", "seed=1,shrt-read=0.5", "--", "true"]);
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2));
    let want = "--faults: column 8: there is no fault shrt-read; did you mean short-read?\n  \
                seed=1,shrt-read=0.5\n         ^\n";
    assert!(said.contains(want) && said.contains("FAULT=[OP:]CHANCE[FILTER]"), "{said}");
    for (options, want) in [
        (&["--faults-log", "x"][..], "--faults-log needs --faults or --faults-replay"),
        (&["--faults", "legal", "--engine=kernel"], "--faults needs softring's rings"),
        (&["--faults", "/nowhere.toml"], "--faults: cannot read /nowhere.toml"),
        (
            &["--faults-replay", "/dev/null"],
            "--faults-replay /dev/null: the log is empty\nsoftring: hint: give a file",
        ),
        (&["--faults", "legal", "--faults-log", "/nowhere/x"], "--faults-log: cannot write"),
    ] {
        let o = softring(&[&["run"], options, &["--", "true"]].concat());
        assert_eq!(o.status.code(), Some(2), "{options:?}");
        assert!(text(&o.stderr).contains(want), "{options:?}: {}", text(&o.stderr));
    }
}

#[test]
fn a_toml_file_is_a_spec() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("faults.toml");
    let toml = "seed = 7\neio = { chance = 1, op = [\"read\", \"FSYNC\"], nth = 2 }\n";
    fs::write(&file, toml).expect("a file");
    let file = file.to_str().expect("a name");
    let run = run_with(dir.path(), &["--faults", file], "file");
    assert_eq!(run.values("eio"), [5]);
    let at = format!("@{file}");
    let again = run_with(dir.path(), &["--faults", &at], "file");
    assert_eq!(again.log, run.log);
}

#[test]
fn traces_mark_injected_faults() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("trace.json");
    let program = transfers();
    let options = ["--deny", "--quiet", "--faults", "eio=1@op=write,nth=2", "-o"];
    let mut c = Command::new(ME);
    c.arg("trace").args(options).arg(&out).arg("--").arg(&program).arg("file").arg(dir.path());
    let o = c.output().expect("softring starts");
    assert!(o.status.success(), "{}", text(&o.stderr));
    let trace = fs::read_to_string(&out).expect("a trace");
    assert_eq!(trace.matches("\"name\":\"fault eio\"").count(), 1, "{trace}");
    assert_eq!(trace.matches("\"faults\":[\"eio\"]").count(), 1, "{trace}");
    let mut c = Command::new(ME);
    c.arg("strace").args(&options[..4]).arg("--").arg(&program).arg("file").arg(dir.path());
    let o = c.output().expect("softring starts");
    let lines = text(&o.stderr) + &text(&o.stdout);
    assert_eq!(lines.matches("(injected: eio)").count(), 1, "{lines}");
}
