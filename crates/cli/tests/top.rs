//! Tests of `softring top` in a pipe, and on a terminal that is tmux; without tmux, or without the
//! library next to the executable, a test says that it was skipped.

mod common;

use common::load::{Load, at_work};
use common::{ME, library, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn once_prints_one_refresh() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    let o = softring(&["top", "--once", "-d", "0.3", "-p", &load.pid()]);
    let shown = text(&o.stdout);
    assert!(o.status.success(), "{}", text(&o.stderr));
    for part in [&*format!("{} softring", load.pid()), "  ring 1", "inline 100%", "nop "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let o = softring(&["top", "--once", "--json", "-d", "0.3"]);
    let all: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let pid: u64 = load.pid().parse().unwrap();
    let mine = |p: &&Value| p["pid"].as_u64() == Some(pid);
    let process = all["processes"].as_array().and_then(|all| all.iter().find(mine)).expect("there");
    assert!(process["iops"].as_f64() > Some(0.0), "{process}");
    assert!(process["p99_ns"].as_u64() >= process["p50_ns"].as_u64(), "{process}");
    assert_eq!(process["rings"][0]["routes"][0][0], "inline");
}

#[test]
fn a_pipe_gets_one_table_per_refresh_and_may_close() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    let args = ["top", "-d", "0.1", "-p", &load.pid()];
    let mut child = Command::new(ME).args(args).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let headers = lines.map_while(Result::ok).filter(|l| l.starts_with("PROCESS")).take(3).count();
    assert_eq!(headers, 3);
    // The reader is gone, which is no error.
    assert!(ended(&mut child).success());
}

#[test]
fn an_ended_process_disappears() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    let args = ["top", "--json", "-d", "0.1", "-p", &load.pid()];
    let mut child = Command::new(ME).args(args).stdout(Stdio::piped()).spawn().unwrap();
    let (mut out, mut from) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
    from.read_line(&mut out).unwrap();
    drop(load);
    from.read_to_string(&mut out).unwrap();
    assert!(ended(&mut child).success());
    let refreshes: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(refreshes.last().unwrap()["processes"], serde_json::json!([]));
}

#[test]
fn a_killed_process_is_not_shown() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    // The page is held open here, as by a forked child: it outlives its process.
    let pid = load.pid();
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let named = |p: &std::path::PathBuf| {
        let link = std::fs::read_link(p).unwrap_or_default();
        link.to_string_lossy().contains("softring-stats")
    };
    let page = fds.map(|e| e.unwrap().path()).find(named).expect("a page");
    let page = File::open(page).unwrap();
    let processes = || {
        let o = softring(&["top", "--once", "--json", "-d", "0.1"]);
        assert!(o.status.success(), "{}", text(&o.stderr));
        let all: Value = serde_json::from_slice(&o.stdout).expect("JSON");
        let all = all["processes"].as_array().unwrap().clone();
        all.iter().map(|p| p["pid"].to_string()).collect::<Vec<_>>()
    };
    assert!(processes().contains(&pid));
    // `Load` ends with SIGKILL.
    drop(load);
    let left = processes();
    assert!(!left.contains(&pid) && !left.contains(&std::process::id().to_string()), "{left:?}");
    assert_eq!(softring(&["top", "-p", &pid, "--once"]).status.code(), Some(1));
    drop(page);
}

fn ended(child: &mut Child) -> std::process::ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A terminal of its own tmux server; it ends with this value.
struct Terminal {
    server: String,
}

impl Terminal {
    /// Runs a shell command on a terminal of that size; `None` if there is no tmux.
    fn run(name: &str, [width, height]: [u32; 2], command: &str) -> Option<Terminal> {
        let server = format!("softring-{name}-{}", std::process::id());
        let made = Command::new("tmux")
            .args(["-L", &server, "-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &width.to_string(), "-y", &height.to_string(), command])
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .status();
        match made {
            Ok(status) => {
                assert!(status.success(), "tmux: {status}");
                Some(Terminal { server })
            }
            Err(e) => {
                skipped!("tmux does not start: {e}");
                None
            }
        }
    }

    fn tmux(&self, args: &[&str]) -> String {
        let o = Command::new("tmux").args(["-L", &self.server]).args(args).output().unwrap();
        text(&o.stdout)
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Returns the screen, once it is as wished.
    fn shows(&self, what: &str, wished: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if wished(&screen) {
                return screen;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn eighty_columns_suffice_and_keys_work() {
    if !library() {
        return;
    }
    const SQPOLL: u32 = 1 << 1;
    let load = Load::with_flags(&[], SQPOLL);
    at_work(&load);
    let command = format!("{ME} top -d 0.2 -p {}; echo ended with $?; sleep 60", load.pid());
    let Some(t) = Terminal::run("keys", [80, 24], &command) else { return };
    let screen = t.shows("a ring", |s| s.contains("ring 1") && s.contains("sq thread"));
    assert_eq!(screen.lines().count(), 24, "{screen}");
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].contains("by iops, every 0.2 s  1 process(es), 1 ring(s)"), "{screen}");
    assert!(lines[1].starts_with("PROCESS") && lines[1].contains("WORK%"), "{screen}");
    assert!(lines[23].contains("q quit") && lines[23].contains("p pid"), "{screen}");
    t.press("Space");
    t.shows("no ring", |s| !s.contains("ring 1"));
    t.press("Enter");
    t.shows("the ring again", |s| s.contains("ring 1"));
    t.press("l");
    t.shows("another order", |s| s.contains("by p99"));
    t.press("r");
    t.shows("the reverse", |s| s.contains("by p99 reversed"));
    t.press("h");
    t.shows("help", |s| s.contains("requests in flight now"));
    t.press("h");
    t.shows("the table", |s| s.contains("ring 1"));
    t.press("q");
    // The screen is the shell's again, with the cursor shown.
    t.shows("the end", |s| s.starts_with("ended with 0"));
    assert_eq!(t.tmux(&["display-message", "-p", "#{alternate_on}#{cursor_flag}"]).trim(), "01");
}

#[test]
fn top_ends_with_its_terminal() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    let command = format!("exec {ME} top -d 0.2 -p {}", load.pid());
    let Some(t) = Terminal::run("gone", [80, 24], &command) else { return };
    t.shows("a ring", |s| s.contains("ring 1"));
    let pid = t.tmux(&["display-message", "-p", "#{pane_pid}"]);
    drop(t);
    let there = format!("/proc/{}/fd/1", pid.trim());
    let start = Instant::now();
    while std::fs::read_link(&there).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "{pid} runs on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn wide_terminals_show_operations_too() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    let Some(t) = Terminal::run("wide", [180, 40], &format!("{ME} top -d 0.2")) else { return };
    let screen = t.shows("operations", |s| s.contains("nop "));
    assert!(screen.lines().nth(1).unwrap().contains("OPERATIONS"), "{screen}");
    assert!(screen.contains("inline 100%"), "{screen}");
    t.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    t.shows("fewer lines", |s| s.lines().count() == 10 && s.contains("q quit"));
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let command = format!("sh -c 'echo $$ >&2; exec {ME} top' ; echo ended with $?; sleep 60");
    // The signals are SIGTERM, SIGUSR1, SIGALRM, SIGIO and SIGRTMIN.
    for signal in [15, 10, 14, 29, 34] {
        let name = format!("signal{signal}");
        let Some(t) = Terminal::run(&name, [80, 24], &command) else { return };
        t.shows("the table", |s| s.contains("q quit"));
        let pane = t.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", pane.trim());
        let top = std::fs::read_to_string(children).unwrap();
        let number = format!("-{signal}");
        let kill = Command::new("kill").args([&number, top.trim()]).status().unwrap();
        assert!(kill.success());
        let ended = format!("ended with {}", 128 + signal);
        t.shows("the end", |s| s.contains(&ended));
        let modes = t.tmux(&["display-message", "-p", "#{alternate_on}#{cursor_flag}"]);
        assert_eq!(modes.trim(), "01", "{signal}");
    }
}

#[test]
fn a_stop_restores_the_terminal() {
    // The shell has job control: it goes on when a job was stopped, and continues the job.
    let shell = format!("bash --norc -i -c 'set -m; {ME} top; echo back; read x; fg; sleep 60'");
    let Some(t) = Terminal::run("stop", [80, 24], &shell) else { return };
    let modes = || t.tmux(&["display-message", "-p", "#{alternate_on}#{cursor_flag}"]);
    t.shows("the table", |s| s.contains("q quit"));
    assert_eq!(modes().trim(), "10");
    let pane = t.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let kill = |signal: &str| {
        let children = format!("/proc/{0}/task/{0}/children", pane.trim());
        let top = std::fs::read_to_string(children).unwrap();
        assert!(Command::new("kill").args([signal, top.trim()]).status().unwrap().success());
    };
    kill("-TSTP");
    t.shows("the shell's screen", |s| s.contains("back"));
    assert_eq!(modes().trim(), "01", "the cursor is the shell's");
    t.press("Enter");
    t.shows("the table again", |s| s.contains("q quit"));
    assert_eq!(modes().trim(), "10");
    kill("-TERM");
    t.shows("the end", |s| s.contains("back") && s.contains("top"));
    assert_eq!(modes().trim(), "01");
}
