//! Processes of other users and of other namespaces: who may read them, and how they are named.
//! Without the library next to the executable the tests say that they were skipped.

mod common;

use common::traced::{Dir, check, events, wait};
use common::{ME, for_everybody, library, nops, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Command that runs a program with the rights of nobody.
const NOBODY: [&str; 5] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];

/// A program that ends with this value.
struct Running(Child);

impl Running {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that has one NOP done as root, and then is nobody.
fn served() -> Running {
    let mut c = Command::new(ME);
    c.args(["run", "--engine=user", "--quiet", "--"])
        .arg(nops())
        .arg("nobody")
        .stdout(Stdio::piped());
    let mut child = c.spawn().expect("softring starts");
    let mut told = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut told).expect("a line");
    assert_eq!(told, "ready\n");
    Running(child)
}

/// Runs the command as nobody.
fn as_nobody(me: &Path, args: &[&str]) -> Output {
    let mut c = Command::new(NOBODY[0]);
    c.args(&NOBODY[1..]).arg("--").arg(me).args(args).current_dir("/");
    c.output().expect("it runs")
}

/// A server that has changed its user is closed even to the user that it is now. Each command says
/// what is wrong and who may read it; root may.
#[test]
fn a_server_that_changed_its_user_is_shown_to_root_only() {
    let root = fs::metadata("/proc/self").expect("proc").uid() == 0;
    let (Some(own), true) = (for_everybody().filter(|_| library()), root) else {
        return skipped!("takes root, and the library");
    };
    let me = own.path().join("softring");
    if !as_nobody(&me, &["--version"]).status.success() {
        return skipped!("{} does not work here", NOBODY.join(" "));
    }
    let server = served();
    let pid = server.pid();
    for (command, what) in [
        (&["metrics", "-p", &pid][..], "inspect"),
        (&["stats", "-p", &pid], "inspect"),
        (&["top", "--once", "-p", &pid], "inspect"),
        (&["stat", "--seconds", "0.1", "-p", &pid], "inspect"),
        (&["trace", "-o", "/nowhere/x", "-p", &pid], "trace"),
        (&["strace", "--seconds", "0.1", "-p", &pid], "trace"),
    ] {
        let o = as_nobody(&me, command);
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(1), "{command:?}: {said}");
        let why = format!(
            "you may not {what} process {pid}: the process has changed its user (to 65534)"
        );
        assert!(said.contains(&why), "{command:?}: {said}");
        assert!(said.contains("hint: run softring as root of the host"), "{command:?}: {said}");
    }
    for command in [&["metrics"][..], &["top", "--once", "-d", "0.1"]] {
        let o = as_nobody(&me, command);
        let said = text(&o.stdout);
        assert!(o.status.success() && said.contains("root may inspect all processes"), "{said}");
    }
    let o = softring(&["metrics", "-p", &pid, "--json"]);
    let page: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(page[0]["rings"][0]["submitted"], 1, "{page}");
    let o = softring(&["strace", "--seconds", "0.1", "-p", &pid]);
    assert!(o.status.success(), "{}", text(&o.stderr));
}

/// Starts a program in a pid namespace below this one; returns it by its number here.
fn in_a_namespace(dir: &Dir) -> Option<(Running, String)> {
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut works = Command::new(unshare[0]);
    works.args(&unshare[1..]).arg("true").stderr(Stdio::null());
    if !works.status().is_ok_and(|s| s.success()) {
        return None;
    }
    let mut c = Command::new(unshare[0]);
    c.args(&unshare[1..]).args([ME, "run", "--engine=user", "--quiet", "--", ME, "worker"]);
    c.stdin(fs::File::open(dir.job("nop", 60.0)).expect("a job")).stdout(Stdio::null());
    let running = Running(c.spawn().expect("unshare starts"));
    let (outer, began) = (running.pid(), Instant::now());
    loop {
        let at = format!("/proc/{outer}/task/{outer}/children");
        let child = fs::read_to_string(at).unwrap_or_default().trim().to_owned();
        if text(&softring(&["metrics", "-p", &child]).stdout).contains("ring ") {
            return Some((running, child));
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no ring in {child}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A container's process has the host's number on the host, and each command names its place.
#[test]
fn processes_of_other_namespaces_are_distinguished() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let Some((running, pid)) = in_a_namespace(&dir) else {
        return skipped!("no pid namespaces here");
    };
    assert_ne!(pid, running.pid());
    let place = "in another pid namespace";
    let o = softring(&["metrics", "-p", &pid]);
    let named = format!("{pid} (softring) {place}: ");
    assert!(text(&o.stdout).starts_with(&named), "{}", text(&o.stdout));
    let o = softring(&["metrics", "-p", &pid, "--json"]);
    let page: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(page[0]["container"], "other", "{page}");
    let o = softring(&["top", "--once", "-d", "0.1"]);
    let table = text(&o.stdout);
    let row = table.lines().find(|l| l.starts_with(&format!("{pid} softring")));
    assert!(table.contains(" CONTAINER ") && row.is_some_and(|l| l.contains(" other ")), "{table}");

    let o = softring(&["strace", "--seconds", "0.2", "-e", "NOP", "-p", &pid]);
    let told = text(&o.stderr);
    assert!(told.starts_with(&format!("--- process {pid} (softring) {place} ---\n")), "{told}");
    // Threads have the numbers that they know themselves.
    assert!(told.contains(&format!("[pid {pid} tid 2] ")), "{told}");
    assert_eq!(told.matches("--- process").count(), 1, "{told}");
    let (code, told) = wait(dir.start(None, &["--seconds", "0.2", "-p", &pid]));
    assert_eq!(code, Some(0), "{told}");
    let trace = dir.trace();
    check(&trace);
    let process = events(&trace).iter().find(|e| e["name"] == "process_name").expect("a process");
    assert_eq!(process["args"]["name"], format!("softring {place}"), "{process}");
    assert_eq!(process["pid"].to_string(), pid);
}

#[test]
fn a_program_that_may_not_be_read_is_named() {
    let root = fs::metadata("/proc/self").expect("proc").uid() == 0;
    let (Some(own), true) = (for_everybody().filter(|_| library()), root) else {
        return skipped!("takes root, and the library");
    };
    let (me, program) = (own.path().join("softring"), own.path().join("program"));
    if !as_nobody(&me, &["--version"]).status.success() {
        return skipped!("{} does not work here", NOBODY.join(" "));
    }
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o711)).unwrap();
    let o = as_nobody(&me, &["run", "--engine=user", "--", program.to_str().unwrap()]);
    let said = text(&o.stderr);
    assert!(o.status.success(), "{said}");
    assert!(said.contains("may not be read: if it is statically linked"), "{said}");
    assert!(said.contains("hint: make it readable: chmod +r"), "{said}");
}
