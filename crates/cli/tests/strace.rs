//! Tests of `softring strace` on programs that run under the library; without that library next to
//! the executable the tests say that they were skipped.

mod common;

use common::traced::{Dir, Load, job, wait};
use common::{ME, library, nops, softring, text};
use softring_testing::skipped;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Starts `softring strace OPTIONS`, with a job on standard input.
fn start(job: Option<&Path>, options: &[&str]) -> Child {
    let mut c = Command::new(ME);
    c.arg("strace").args(options).stdout(Stdio::null()).stderr(Stdio::piped());
    c.stdin(job.map_or_else(Stdio::null, |at| fs::File::open(at).expect("a job").into()));
    c.spawn().expect("softring starts")
}

/// Returns the lines of requests.
fn lines(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|l| l.starts_with("[pid ")).collect()
}

/// The line of a read, of a file that the loads make, has all its parts.
#[test]
fn a_line_for_each_request() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let child = start(Some(&dir.job("rw", 0.05)), &["-y", "--", ME, "worker"]);
    let pid = child.id();
    let (code, stderr) = wait(child);
    assert_eq!(code, Some(0), "{stderr}");
    let reads: Vec<&str> = lines(&stderr).into_iter().filter(|l| l.contains(" READ(")).collect();
    assert!(reads.len() > 100, "{stderr}");
    let file = format!("<{}>, off=", dir.at("data").display());
    for line in reads {
        // [pid N tid N] HH:MM:SS.UUUUUU ring N READ(…
        let (who, rest) = line.split_once("] ").expect("a thread");
        let words: Vec<&str> = rest.split(' ').collect();
        let program: u32 = who.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a process");
        assert!(program != pid && words[0].len() == 15 && words[1] == "ring", "{line}");
        assert!(line.contains(&file) && line.contains(", len=4096) = 4096 <0."), "{line}");
        assert!(line.ends_with("> inline") || line.ends_with("> worker"), "{line}");
    }
    assert!(stderr.ends_with("+++ exited with 0 +++\n"), "{stderr}");
}

#[test]
fn requests_can_be_selected() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let out = dir.at("lines").display().to_string();
    let run = |options: &[&str]| {
        let options = [options, &["-o", &out, "--", ME, "worker"]].concat();
        let (code, stderr) = wait(start(Some(&dir.job("rw", 0.05)), &options));
        assert_eq!(code, Some(0), "{stderr}");
        assert!(lines(&stderr).is_empty(), "they go to the file: {stderr}");
        fs::read_to_string(&out).expect("a file")
    };
    assert!(lines(&run(&["-e", "!read"])).iter().all(|l| !l.contains(" READ(")));
    assert!(lines(&run(&["-e", "NOP,write"])).iter().all(|l| !l.contains(" READ(")));
    assert!(lines(&run(&["--slow", "100s"])).is_empty());
    assert!(lines(&run(&["--failed"])).iter().all(|l| l.contains(" = -1 E")));
    let table = run(&["-c"]);
    assert!(table.starts_with("% time     seconds  usecs/call"), "{table}");
    assert!(table.contains(" READ\n") && table.trim_end().ends_with("total"), "{table}");
    assert!(lines(&table).is_empty());
    let both = run(&["-C", "-f", "-ttt", "-T=ns", "-v"]);
    let line = lines(&both)[0];
    let time = line.split_once("] ").expect("a thread").1.split(' ').next().expect("a time");
    let time = time.split_once('.').expect("microseconds");
    assert!(time.0.parse::<u64>().is_ok_and(|s| s > 1_500_000_000) && time.1.len() == 6, "{line}");
    assert!(line.contains("user_data=0x") && line.contains("addr=0x"), "{line}");
    let took = line.split_once('<').expect("a latency").1.split_once('>').expect("its end").0;
    assert_eq!(took.split_once('.').map(|t| t.1.len()), Some(9), "{line}");
    assert!(both.contains(" total\n"));
    let bad = softring(&["strace", "-e", "raed", "--", "true"]);
    assert!(bad.status.code() == Some(2) && text(&bad.stderr).contains("'RAED'"));
    let bad = softring(&["strace", "-o", "/nowhere/x", "--", "true"]);
    assert!(bad.status.code() == Some(2) && text(&bad.stderr).contains("-o FILE"));
}

/// Errors, paths, links, multishot and routes are shown, by cases of the conformance suite.
#[test]
fn requests_are_decoded() {
    let conformance = Path::new(ME).with_file_name("conformance");
    if !library() {
        return;
    }
    if !conformance.exists() {
        return skipped!("no {}", conformance.display());
    }
    let conformance = conformance.display().to_string();
    let run = |case: &str| {
        let o = start(None, &["-y", "--", &conformance, "one", case]).wait_with_output().unwrap();
        text(&o.stderr)
    };
    let has = |stderr: &str, parts: &[&str]| {
        let found = lines(stderr).iter().any(|l| parts.iter().all(|part| l.contains(part)));
        assert!(found, "{parts:?}: {stderr}");
    };
    let opens = run("open::openat_case");
    has(&opens, &["OPENAT(AT_FDCWD, \"/", "O_RDONLY", " = ", "> "]);
    has(&run("open::openat_refusals"), &["OPENAT(", " = -1 ENOENT (No such file or directory) <"]);
    has(&run("open::openat2_case"), &["OPENAT2(", "{flags=O_", "resolve="]);
    has(&run("sync::fsync"), &["FSYNC(", "> worker"]);
    let net = run("net::tcp");
    has(&net, &["<TCP:[127.0.0.1:", "->127.0.0.1:"]);
    has(&run("net::waits"), &["RECV(", "> poll"]);
    let chains = run("net::chains");
    has(&chains, &["IOSQE_IO_LINK", " link 1"]);
    has(&chains, &[" link 2"]);
    let many = run("net_multi::stream");
    has(&many, &["IORING_RECV_MULTISHOT", "BUFFER(", "MORE"]);
    has(
        &run("timeout::expires"),
        &["TIMEOUT({tv_sec=0, tv_nsec=", " = -1 ETIME (Timer expired) <", "> queued"],
    );
}

#[test]
fn children_are_followed() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let one = format!("{ME} worker < {} > /dev/null", dir.job("rw", 0.05).display());
    let both = format!("{one} & {one}; wait; exit 7");
    let (code, stderr) = wait(start(None, &["--", "sh", "-c", &both]));
    assert_eq!(code, Some(7), "{stderr}");
    let mut pids: Vec<&str> = lines(&stderr).iter().filter_map(|l| l.split(' ').nth(1)).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 2, "{pids:?}");
    assert!(stderr.ends_with("+++ exited with 7 +++\n"), "{stderr}");
    let o = start(None, &["--", "sh", "-c", "kill -9 $$"]).wait_with_output().unwrap();
    assert_eq!(o.status.signal(), Some(9));
    assert!(text(&o.stderr).contains("+++ killed by SIGKILL +++"), "{}", text(&o.stderr));
}

/// A running process is traced by its number. The end of a request that was in flight shows that it
/// began before. A flood loses events, and the trace says so.
#[test]
fn a_running_process() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let load = Load::start(&dir, "poll");
    let (code, stderr) = wait(start(None, &["-p", &load.pid(), "--seconds", "0.3"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        lines(&stderr).iter().any(|l| l.contains("POLL_ADD(") && l.ends_with("poll")),
        "{stderr}"
    );
    // Ctrl-C ends the trace, and the table comes.
    let tracer = start(None, &["-c", "-p", &load.pid()]);
    std::thread::sleep(Duration::from_millis(300));
    let sent = Command::new("kill").args(["-INT", &tracer.id().to_string()]).status();
    assert!(sent.is_ok_and(|s| s.success()));
    let (code, stderr) = wait(tracer);
    assert!(code == Some(0) && stderr.contains(" POLL_ADD\n"), "{stderr}");
    drop(load);
    let flood = Load::start(&dir, "nop");
    // A tracer that is stopped cannot keep up.
    let tracer = start(None, &["-c", "-p", &flood.pid(), "--seconds", "1.5"]);
    std::thread::sleep(Duration::from_millis(300));
    for signal in ["-STOP", "-CONT"] {
        let sent = Command::new("kill").args([signal, &tracer.id().to_string()]).status();
        assert!(sent.is_ok_and(|s| s.success()));
        std::thread::sleep(Duration::from_millis(700));
    }
    let (code, stderr) = wait(tracer);
    assert!(code == Some(0) && stderr.contains(" events lost: they came too fast ---"), "{stderr}");
    for (pid, why) in [("999999999", "no process"), (&std::process::id().to_string(), "no ring")] {
        let o = softring(&["strace", "-p", pid]);
        assert!(o.status.code() == Some(1) && text(&o.stderr).contains(why), "{pid}");
    }
}

/// Children that a running process makes are followed, too.
#[test]
fn children_of_a_running_process() {
    if !library() {
        return;
    }
    let mut c = Command::new(ME);
    c.args(["run", "--engine=user", "-q", "--"]).arg(nops()).arg("forks");
    let mut load = c.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    let pid = load.id().to_string();
    let (code, stderr) = wait(start(None, &["-p", &pid, "--seconds", "2"]));
    load.kill().unwrap();
    load.wait().unwrap();
    assert_eq!(code, Some(0), "{stderr}");
    let own = format!("[pid {pid}]");
    assert!(
        lines(&stderr).iter().any(|l| l.starts_with(&own) && l.contains(" NOP() = 0")),
        "{stderr}"
    );
    assert!(lines(&stderr).iter().any(|l| !l.starts_with(&own)), "{stderr}");
}

/// A program that no library can enter is not started; the error says what is wrong, and what to
/// do.
#[test]
fn unreachable_programs_are_refused() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let mut elf = [0u8; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[18] = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let at = dir.at("static");
    fs::write(&at, elf).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    let at = at.display().to_string();
    for command in ["strace", "trace", "stat"] {
        let o = softring(&[command, "--", &at]);
        let stderr = text(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{command}: {stderr}");
        assert!(
            stderr.contains("is statically linked") && stderr.contains("hint: link the program"),
            "{stderr}"
        );
        assert!(!stderr.contains("+++"), "{stderr}");
    }
    // The kernel's rings cannot be traced.
    let o = softring(&["strace", "--engine=kernel", "--", "true"]);
    assert!(o.status.code() == Some(2) && text(&o.stderr).contains("cannot be traced"));
    let (code, stderr) = wait(start(None, &["--", "true"]));
    assert!(
        code == Some(0) && stderr.contains("softring saw no activity of its rings"),
        "{stderr}"
    );
}

/// The program goes on if the lines cannot be written, and the end is an error.
#[test]
fn lines_that_cannot_be_written_are_an_error() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let at = dir.at("job");
    fs::write(&at, job("rw", 0.05, &dir.at("data")).to_string()).expect("a file");
    let (code, stderr) = wait(start(Some(&at), &["-o", "/dev/full", "--", ME, "worker"]));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot write the trace: No space left"), "{stderr}");
}
