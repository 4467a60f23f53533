//! Rings under policies that refuse single system calls. `ci/environments.sh` tries them all.

mod built;

use softring_testing::skipped;
use std::path::Path;
use std::process::{Command, Output};

const EXE: &str = env!("CARGO_BIN_EXE_softring-environments");

/// Runs the program of checks under a policy, with softring preloaded by its name alone.
fn checks(policy: &[&str]) -> Output {
    let library = built::library(EXE);
    let mut c = Command::new(EXE);
    c.arg("under").args(policy).args(["--", "env"]);
    c.arg(format!("LD_PRELOAD={}", library.display())).args([EXE, "checks"]);
    c.output().expect("the launcher can be started")
}

fn text(o: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", o.status, text(&o.stdout), text(&o.stderr))
}

#[test]
fn calls_with_substitutes_are_not_needed() {
    let calls = [
        "preadv2",
        "pwritev2",
        "epoll_pwait2",
        "epoll_create1",
        "epoll_wait",
        "eventfd2",
        "memfd_create",
        "ftruncate",
        "io_setup",
        "io_submit",
        "madvise",
        "mremap",
        "futex_wake",
        "fstatfs",
        "pidfd_open",
        "prctl",
        "capget",
        "seccomp",
    ];
    for answer in ["EPERM", "EOPNOTSUPP", "kill"] {
        for call in calls.iter().filter(|call| (**call, answer) != ("madvise", "kill")) {
            let o = checks(&["rings=EPERM", &format!("{call}={answer}")]);
            assert!(o.status.success(), "{call} {answer}: {}", text(&o));
        }
    }
}

#[test]
fn a_policy_that_kills_for_rings_kills_no_program() {
    for policy in ["rings=kill", "io_uring_enter=kill", "io_uring_register=kill"] {
        let o = checks(&[policy]);
        let said = text(&o);
        assert!(o.status.success(), "{policy}: {said}");
        assert!(
            said.contains("a policy kills a program that asks the kernel for io_uring"),
            "{said}"
        );
    }
}

#[test]
fn broken_kernel_rings_are_not_used() {
    for policy in ["io_uring_enter=EPERM", "io_uring_register=ENOSYS"] {
        let o = checks(&[policy]);
        let said = text(&o);
        assert!(o.status.success(), "{policy}: {said}");
        assert!(said.contains("runs in user space"), "{said}");
    }
}

#[test]
fn calls_without_substitutes_are_reported() {
    let policies = [
        "clone3=EPERM",
        "clone3=kill",
        "epoll_ctl=EPERM",
        "madvise=kill",
        "lseek=kill",
        "getegid=kill",
        "rt_sigpending=kill",
    ];
    for policy in policies {
        let o = checks(&["rings=EPERM", policy]);
        let said = text(&o);
        assert_eq!(o.status.code(), Some(3), "{policy}: {said}");
        let call = policy.split('=').next().unwrap_or_default();
        assert!(said.contains(&format!("softring needs {call}(2)")), "{said}");
    }
}

/// Runs the command under a policy.
fn softring(policy: &[&str], words: &[&str]) -> Output {
    built::library(EXE);
    let mut c = Command::new(EXE);
    c.arg("under").args(policy).arg("--").arg(built::command(EXE)).args(words);
    c.output().expect("the launcher can be started")
}

/// Runs a program under a policy, without softring.
fn alone(policy: &[&str], program: &str) -> Output {
    let mut c = Command::new(EXE);
    c.arg("under").args(policy).args(["--", program]);
    c.output().expect("the launcher can be started")
}

/// Runs a program with the library preloaded by its name alone.
fn by_name(policy: &[&str], program: &str) -> Output {
    let library = built::library(EXE);
    let mut c = Command::new(EXE);
    c.arg("under").args(policy).args(["--", "env"]);
    c.arg(format!("LD_PRELOAD={}", library.display())).arg(program);
    c.output().expect("the launcher can be started")
}

/// Tests that a program which starts with the library preloaded also starts by `softring run`,
/// whatever calls a policy kills for.
#[test]
fn run_makes_no_call_that_its_program_can_do_without() {
    let calls = [
        "access",
        "clock_gettime",
        "dup2",
        "fcntl",
        "fstat",
        "fstatfs",
        "getdents64",
        "getegid",
        "geteuid",
        "getgid",
        "getpid",
        "getuid",
        "getxattr",
        "ioctl",
        "kill",
        "lseek",
        "pipe2",
        "readlink",
        "statx",
        "uname",
        "wait4",
    ];
    let mut started = 0;
    for call in calls {
        let policy = format!("{call}=kill");
        for rings in [None, Some("rings=EPERM")] {
            let policy: Vec<&str> = rings.into_iter().chain([&*policy]).collect();
            if !by_name(&policy, "true").status.success() {
                continue;
            }
            let o = softring(&policy, &["run", "--", "true"]);
            assert!(o.status.success(), "{policy:?}: {}", text(&o));
            started += 1;
        }
    }
    assert!(started > calls.len(), "{started} of those started at all");
}

/// Tests that a program runs untouched, or is refused in one sentence, where a policy kills for a
/// call that the library makes as a program starts.
#[test]
fn no_policy_kills_a_program_for_the_start_of_the_library() {
    let calls = [
        ("clock_gettime", "clock_gettime"),
        ("getpid", "getpid"),
        ("rt_sigaction", "rt_sigaction"),
        ("rt_sigprocmask", "rt_sigprocmask"),
        ("mdwe", "mprotect"),
        // Built so, Rust's standard library makes this call for each file that the command closes.
        #[cfg(not(debug_assertions))]
        ("fcntl", "fcntl"),
    ];
    for (word, call) in calls {
        let kills = format!("{word}=kill");
        for policy in [&[&*kills][..], &[&kills, "rings=EPERM"]] {
            assert!(alone(policy, "true").status.success(), "{policy:?}: it fails alone");
            for options in [&["run", "--"][..], &["run", "--engine=user", "--"]] {
                let o = softring(policy, &[options, &["true"]].concat());
                let (said, untouched) = (text(&o), o.status.success());
                let may_run = policy.len() == 1 && options.len() == 2;
                assert!(untouched || o.status.code() == Some(2), "{policy:?}: {said}");
                assert!(may_run || !untouched, "{policy:?} {options:?}: {said}");
                assert!(said.contains(&format!("kills for {call}(2), ")), "{policy:?}: {said}");
                let outcome = said.contains("the program gets the kernel's rings");
                assert_eq!(outcome, untouched, "{policy:?}: {said}");
            }
            let o = softring(policy, &["run", "--engine=kernel", "--", "true"]);
            assert!(o.status.success() && o.stderr.is_empty(), "{policy:?}: {}", text(&o));
        }
    }
    // The library makes another call, which dynamic linkers make, too.
    let o = softring(&["open=kill"], &["run", "--engine=user", "--", "true"]);
    assert!(o.status.success(), "{}", text(&o));
}

/// Tests docs/LIMITATIONS.md: a child asks whether a policy denies rings or kills for a call, and
/// the policy may kill for that child.
#[test]
fn a_policy_that_kills_for_new_processes_kills_the_command() {
    use std::os::unix::process::ExitStatusExt;
    for words in [&["run", "--", "true"][..], &["doctor"]] {
        let o = softring(&["clone=kill"], words);
        assert_eq!(o.status.signal(), Some(31), "{words:?}: {}", text(&o));
    }
    let o = by_name(&["clone=kill"], "true");
    assert!(o.status.success(), "{}", text(&o));
}

/// Returns the report of `softring doctor`, and all its output.
fn doctor(policy: &[&str]) -> (serde_json::Value, String) {
    let o = softring(policy, &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap_or_default();
    let said = format!("{policy:?}: {}: {}", report["verdict"], String::from_utf8_lossy(&o.stderr));
    (report["verdict"].clone(), said)
}

#[test]
fn doctor_says_what_a_program_gets() {
    let rows: [(&[&str], &str, &str); 16] = [
        (&["fcntl=EPERM", "rings=EPERM"], "none", "needs fcntl(2)"),
        (&["fstat=EPERM", "rings=EPERM"], "softring", ""),
        (&["fstat=kill", "rings=EPERM"], "softring", ""),
        (&["dup2=EPERM", "rings=EPERM"], "softring", ""),
        (&["dup2=kill", "rings=EPERM"], "softring", ""),
        (&["statx=kill", "rings=EPERM"], "softring", ""),
        (&["sched_getaffinity=kill", "rings=EPERM"], "softring", ""),
        (&["pwritev=kill", "rings=EPERM"], "softring", ""),
        (&["preadv2=EPERM", "preadv=EPERM", "rings=EPERM"], "softring", ""),
        (&["pwritev2=EPERM", "pwritev=EPERM", "rings=EPERM"], "softring", ""),
        (&["gettid=kill", "rings=EPERM"], "none", "needs gettid(2)"),
        (&["ioctl=kill", "rings=EPERM"], "partly", "killed by signal 31 at a receive"),
        (&["getsockopt=kill", "rings=EPERM"], "partly", "killed by signal 31 at a receive"),
        (&["threads=kill", "rings=EPERM"], "partly", "killed by signal 31 at "),
        (&["wait4=kill", "rings=EPERM"], "softring", ""),
        (
            &["processes=EPERM", "rings=kill"],
            "unknown",
            "cannot start a process with shared memory",
        ),
    ];
    for (policy, rings, why) in rows {
        let (verdict, said) = doctor(policy);
        assert_eq!(verdict["rings"], rings, "{said}");
        let told = verdict["why"].as_str().unwrap_or_default();
        assert!(told.contains(why) && !told.contains("sysctl"), "{said}");
    }
}

/// Tests that files are read and written by whichever of the calls is left.
#[test]
fn reads_and_writes_have_two_substitutes() {
    let calls = ["preadv2", "preadv", "pwritev2", "pwritev"];
    for answer in ["EPERM", "kill"] {
        let mut policy: Vec<String> = calls.iter().map(|c| format!("{c}={answer}")).collect();
        policy.push("rings=EPERM".into());
        let o = checks(&policy.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(o.status.success(), "{answer}: {}", text(&o));
    }
}

/// Tests that no policy makes the command lose its program's output.
#[test]
fn run_leaves_standard_streams_alone() {
    for policy in ["fcntl=EPERM", "fcntl=EACCES"] {
        let o = softring(&[policy, "rings=EPERM"], &["run", "--", "echo", "written"]);
        assert_eq!(String::from_utf8_lossy(&o.stdout), "written\n", "{}", text(&o));
    }
}

/// Tests that a wait for any child gets only the program's own children.
#[test]
fn run_leaves_its_program_no_child() {
    let children = ["run", "--", "cat", "/proc/thread-self/children"];
    for (policy, left) in [
        (&["rings=EPERM"][..], false),
        (&["rings=kill"], false),
        (&["preadv2=kill", "memfd_create=kill"], false),
        (&["rings=EPERM", "wait4=ENOSYS"], true),
    ] {
        let o = softring(policy, &children);
        assert!(o.status.success(), "{policy:?}: {}", text(&o));
        assert_eq!(!o.stdout.is_empty(), left, "{policy:?}: {}", text(&o));
    }
}

/// Tests that the awaited child gets the only processor.
#[test]
fn run_waits_for_a_child_of_a_real_time_thread() {
    let mut c = Command::new("timeout");
    c.args(["-s", "KILL", "20", "chrt", "-f", "1", "taskset", "-c", "0"]);
    c.args([EXE, "under", "rings=EPERM", "--"]);
    let o = c.arg(built::command(EXE)).args(["run", "--", "true"]).output();
    let o = o.expect("timeout can be started");
    let refused = text(&o).contains("failed to set");
    assert!(o.status.success() || refused, "{}", text(&o));
}

/// Tests that the launcher needs no calls that a C program does without.
#[test]
fn run_starts_a_program_where_its_own_calls_are_refused() {
    built::library(EXE);
    for call in ["poll=EPERM", "rt_sigaction=EPERM", "access=EACCES"] {
        let mut c = Command::new(EXE);
        c.args(["under", "rings=EPERM", call, "--"]);
        let o = c.arg(built::command(EXE)).args(["run", "--", "true"]).output();
        let o = o.expect("the launcher can be started");
        assert!(o.status.success(), "{call}: {}", text(&o));
    }
}

/// Tests that a static program runs untouched, or is refused in one sentence, where a policy kills
/// for a call that brings the library to it.
#[test]
fn no_policy_kills_a_static_program_for_the_calls_of_run() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("source.c"), dir.path().join("program"));
    std::fs::write(&source, "int main(void) { return 5; }").unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-static").args([Path::new("-o"), &program, &source]);
    if !cc.status().is_ok_and(|status| status.success()) {
        return skipped!("no static program can be built");
    }
    let program = program.to_str().unwrap();
    for call in ["wait4", "pipe2"] {
        let kills = format!("{call}=kill");
        for (policy, code) in [(&[&*kills][..], 5), (&[&kills, "rings=EPERM"], 2)] {
            let o = softring(policy, &["run", "--", program]);
            let (ended, said) = (o.status.code(), text(&o));
            // Where the kernel gives no rings, the program is refused in any case.
            assert!(ended == Some(code) || ended == Some(2), "{policy:?}: {said}");
            assert!(said.contains(&format!("kills for {call}(2)")), "{policy:?}: {said}");
        }
    }
    // Without these the command cannot go on.
    for call in ["fcntl", "rt_sigaction", "getpid", "madvise", "mremap", "rt_sigprocmask"] {
        for policy in [&[&*format!("{call}=kill")][..], &[&format!("{call}=kill"), "rings=EPERM"]] {
            let o = softring(policy, &["run", "--", program]);
            let said = text(&o);
            assert!(matches!(o.status.code(), Some(2 | 5)), "{policy:?}: {said}");
            assert!(said.contains(&format!("{call}(2)")), "{policy:?}: {said}");
        }
    }
}
