//! Signals reach the program that `softring stat`, `trace` and `strace` run, and end these commands
//! as they end the program. What was seen until then is reported.

mod common;

use common::{ME, text};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Returns the arguments of `stat`, `trace` and `strace`, with the file that they write to.
fn ways(file: &str) -> [Vec<String>; 3] {
    let words = |w: &[&str]| w.iter().map(ToString::to_string).collect();
    [words(&["stat", "-o", file]), words(&["trace", "-o", file]), words(&["strace", "-o", file])]
}

/// Starts a script under a command. No signal is ignored there, as SIGINT is in programs that a
/// shell's script puts into the background.
fn start(way: &[String], script: &str) -> Child {
    let mut c = Command::new("env");
    c.args(["--default-signal", ME])
        .args(way)
        .args(["--", "bash", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c.spawn().unwrap()
}

/// Sends signals to a child, one at each line that it says. Returns its lines, how it ended, and
/// what softring said.
fn signalled(mut child: Child, signals: &[&str]) -> (Vec<String>, ExitStatus, String) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    for signal in signals {
        said.extend(lines.next());
        let id = child.id().to_string();
        assert!(Command::new("kill").args([*signal, &id]).status().unwrap().success());
    }
    said.extend(lines);
    let o = child.wait_with_output().unwrap();
    (said, o.status, text(&o.stderr))
}

#[test]
fn softring_ends_with_the_programs_signal() {
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready");
    std::fs::write(&ready, "ready\n").unwrap();
    // The program that says it is ready is no shell: a shell does not die of SIGINT as long as the
    // program that it runs does not, and Bash ignores SIGQUIT.
    let script = format!("ulimit -c 0; exec tail -f {}", ready.display());
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1), ("-QUIT", 3)] {
        let file = dir.path().join(signal);
        for way in ways(file.to_str().unwrap()) {
            let (said, status, stderr) = signalled(start(&way, &script), &[signal]);
            assert_eq!((said.len(), status.signal()), (1, Some(number)), "{way:?}: {stderr}");
            let written = std::fs::metadata(&file).unwrap().len();
            assert!(written > 0, "{way:?} {signal}: {stderr}");
            if way[0] == "trace" {
                let trace = std::fs::read(&file).unwrap();
                serde_json::from_slice::<serde_json::Value>(&trace).expect("a whole trace");
            }
        }
    }
}

#[test]
fn signals_reach_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    let script = "n=0\n\
                  for s in INT HUP USR1 USR2 TERM; do trap \"echo $s; n=\\$((n + 1))\" $s; done\n\
                  echo ready; while [ $n -lt 5 ]; do sleep 0.05; done; exit 7";
    for way in ways(file.to_str().unwrap()) {
        let all = ["-USR1", "-USR2", "-HUP", "-INT", "-TERM"];
        let (said, status, stderr) = signalled(start(&way, script), &all);
        assert_eq!(said, ["ready", "USR1", "USR2", "HUP", "INT", "TERM"], "{way:?}: {stderr}");
        assert_eq!(status.code(), Some(7), "{way:?}: {stderr}");
    }
}

#[test]
fn ignored_signals_stay_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out").display().to_string();
    let show = "grep -E '^Sig(Ign|Blk)' /proc/self/status";
    let from_shell = |command: &str| {
        let script = format!("trap '' INT HUP TERM PIPE; exec {command}");
        text(&Command::new("bash").args(["-c", &script]).output().unwrap().stdout)
    };
    let plain = from_shell(show);
    assert!(plain.lines().count() == 2);
    for way in ways(&file) {
        assert_eq!(from_shell(&format!("{ME} {} -- {show}", way.join(" "))), plain, "{way:?}");
    }
}

/// Timers' and real-time signals reach the program, too: a signal that is sent to us is meant for
/// it.
#[test]
fn other_signals_reach_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    // The signals are SIGPIPE, SIGALRM, SIGVTALRM, SIGXCPU, SIGIO, SIGSTKFLT, SIGWINCH, SIGURG,
    // SIGRTMIN and SIGRTMAX: not every kill(1) knows the names.
    for signal in [13, 14, 26, 24, 29, 16, 28, 23, 34, 64] {
        let script = format!(
            "trap 'echo got; exit 7' {signal}; echo ready; \
                              for i in $(seq 200); do sleep 0.05; done"
        );
        for way in ways(file.to_str().unwrap()) {
            let signal = format!("-{signal}");
            let (said, status, stderr) = signalled(start(&way, &script), &[&signal]);
            assert_eq!((said.len(), status.code()), (2, Some(7)), "{way:?} {signal}: {stderr}");
        }
    }
}

/// A pipe of our own without a reader is no signal for the program, and an error all the same.
#[test]
fn a_broken_output_pipe_is_an_error() {
    let script = "trap 'echo got >&2' PIPE; echo ready; for i in $(seq 4); do sleep 0.05; done";
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut c = Command::new(ME);
    // The pipe is its standard input, as standard output is the program's.
    c.args(["trace", "-o", "/dev/stdin", "--", "bash", "-c", script]);
    let o = c.stdin(writer).output().unwrap();
    let stderr = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write") && !stderr.contains("got"), "{stderr}");
}

/// The kernel forgets how the children of a process end that ignores SIGCHLD; we must know how
/// ours ended.
#[test]
fn the_end_is_seen_with_sigchld_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    for way in ways(file.to_str().unwrap()) {
        let ask = "import signal,sys; sys.exit(5 + (signal.getsignal(17) != signal.SIG_IGN))";
        let mut c = Command::new("python3");
        c.args(["-c", IGNORING, ME]).args(&way).args(["--", "python3", "-c", ask]);
        let o = c.output().unwrap();
        assert_eq!(o.status.code(), Some(5), "{way:?}: {}", text(&o.stderr));
    }
}

/// Script that ignores SIGCHLD, and becomes the program that its arguments name.
const IGNORING: &str = "import os,signal,sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
                        os.execv(sys.argv[1], sys.argv[1:])";
