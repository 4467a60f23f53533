//! The command as a person or a script meets it: help, exit codes, messages, JSON.

mod common;

use common::{ME, text};
use softring_testing::skipped;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn softring(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_softring"));
    c.args(args).stdin(Stdio::null());
    c
}

fn output(args: &[&str]) -> Output {
    softring(args).output().expect("softring starts")
}

/// Checks that the exit code is `code` and standard error holds `part`.
#[track_caller]
fn fails(args: &[&str], code: i32, part: &str) {
    let o = output(args);
    let err = text(&o.stderr);
    assert_eq!(o.status.code(), Some(code), "{args:?}: {err}");
    assert!(err.contains(part), "{args:?}: {err}");
    assert!(o.stdout.is_empty(), "{args:?}: {}", text(&o.stdout));
}

#[test]
fn models_are_checked_before_the_program_starts() {
    for (model, words) in [
        ("/tmp=floppy", "'floppy' is not a preset; known: nvme-gen4"),
        ("/tmp=latency:80", "needs a unit"),
        ("/tmp=speed:3", "'speed' is not a key; known: latency"),
        ("/no/such/folder=null", "/no/such/folder: No such file"),
        ("null", "no '='"),
    ] {
        fails(&["run", "--model", model, "--", "echo", "started"], 2, words);
    }
    fails(&["run", "--engine=kernel", "--model=/tmp=null", "--", "true"], 2, "softring's rings");
}

#[test]
fn help_names_every_public_command() {
    let o = output(&["--help"]);
    assert!(o.status.success());
    let help = text(&o.stdout);
    for command in ["run", "doctor", "metrics", "stat", "trace", "strace", "demo", "bench"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
        assert!(output(&[command, "--help"]).status.success());
    }
    for hidden in ["worker", "deny", "gen", "stats"] {
        assert!(!help.contains(&format!("\n  {hidden} ")), "{hidden} shows");
    }
    assert!(help.contains("Exit codes"));
}

#[test]
fn usage_errors_exit_with_2() {
    fails(&[], 2, "Usage");
    fails(&["nope"], 2, "unrecognized");
    fails(&["run"], 2, "CMD");
    fails(&["run", "--engine", "other", "true"], 2, "possible values");
    fails(&["bench", "--size", "12parsecs"], 2, "unknown unit");
    fails(&["bench", "--depth", "0"], 2, "--depth");
    fails(&["bench", "--seconds", "0"], 2, "more than 0");
    fails(&["bench", "--file", "/tmp"], 2, "neither a regular file nor a block device");
    fails(&["run", "--nope", "--", "true"], 2, "unexpected argument '--nope'");
}

#[test]
fn programs_that_cannot_start() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let run = |file: &str, code: i32, part: &str| {
        fails(&["run", "--engine=kernel", "--", file], code, part);
        fails(&["deny", "--", file], code, "");
        // env(1), nohup(1) and timeout(1) have the same codes.
        let env = Command::new("env").arg(file).output().unwrap();
        assert_eq!(env.status.code(), Some(code), "{file}");
    };
    run(&at("none"), 127, "No such file");
    run("no-such-program-anywhere", 127, "not found in PATH");
    run("", 127, "name is empty");
    run(&"a".repeat(300), 126, "file name too long");
    run(&at(&"a".repeat(300)), 126, "File name too long");
    run(&dir.path().display().to_string(), 126, "is a directory");
    fs::write(at("plain"), "#!/bin/sh\n").unwrap();
    run(&at("plain"), 126, "permission denied");
    run(&at("plain/below"), 126, "Not a directory");
    fs::write(at("lost"), "#!/no/such/interpreter\n").unwrap();
    executable(&at("lost"));
    run(&at("lost"), 127, "/no/such/interpreter");
}

/// Builds a library that `softring run` takes for softring's, and that does nothing.
fn stand_in_library(dir: &Path) -> PathBuf {
    let (source, file) = (dir.join("library.c"), dir.join("libsoftring.so"));
    fs::write(&source, "const char *softring_version(void) { return \"\"; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&file).arg(&source);
    assert!(cc.status().expect("a C compiler").success());
    file
}

/// Checks that `softring run --engine=user` refuses a file: `code`, what is wrong and what to do.
#[track_caller]
fn refused(file: &Path, code: i32, what: &str, hint: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut c = softring(&["run", "--engine=user", "--"]);
    let o = c.arg(file).env("SOFTRING_LIB", stand_in_library(dir.path())).output().unwrap();
    let err = text(&o.stderr);
    assert_eq!(o.status.code(), Some(code), "{err}");
    assert!(err.contains(what) && err.contains("hint: ") && err.contains(hint), "{err}");
}

#[test]
fn programs_of_other_machines_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("foreign");
    let mut bytes = fs::read("/bin/true").unwrap();
    bytes[18..20].copy_from_slice(&183u16.to_le_bytes());
    fs::write(&file, &bytes).unwrap();
    executable(file.to_str().unwrap());
    refused(&file, 2, "is a 64-bit aarch64 program", "a build of the program for this machine");
    bytes[18..20].copy_from_slice(&3u16.to_le_bytes());
    bytes[4] = 1;
    fs::write(&file, &bytes).unwrap();
    refused(&file, 2, "is a 32-bit i386 program", "a build of the program for this machine");
}

#[test]
fn static_programs_are_refused_if_they_need_softring() {
    let dir = tempfile::tempdir().unwrap();
    let (source, file) = (dir.path().join("static.s"), dir.path().join("static"));
    // exit(7)
    let code = ".globl _start\n_start: mov $231, %eax\nmov $7, %edi\nsyscall\n\
                .section .note.GNU-stack, \"\", @progbits\n";
    fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-o"]).arg(&file).arg(&source);
    assert!(cc.status().expect("a C linker").success());
    refused(&file, 2, "is statically linked", "link the program dynamically");
    let o = softring(&["run", "--engine=kernel", "--"]).arg(&file).output().unwrap();
    assert_eq!(o.status.code(), Some(7), "with the kernel's rings it needs no library");
    // A library that cannot be mapped without a loader.
    let other = stand_in_library(dir.path());
    let me = env!("CARGO_BIN_EXE_softring");
    let mut c = softring(&["deny", "--", me, "run", "--"]);
    let o = c.arg(&file).env("SOFTRING_LIB", &other).output().unwrap();
    assert_eq!(o.status.code(), Some(2), "where io_uring is denied: {}", text(&o.stderr));
    let doctor = softring(&["doctor", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    if report["checks"][0]["state"] == "ok" {
        let mut c = softring(&["run", "--"]);
        let o = c.arg(&file).env("SOFTRING_LIB", &other).output().unwrap();
        assert_eq!(o.status.code(), Some(7), "the kernel gives rings: {}", text(&o.stderr));
        let said = text(&o.stderr);
        assert!(said.contains("warning: ") && said.contains("the kernel's rings"), "{said}");
    }
}

#[test]
fn setuid_programs_are_refused_if_they_need_softring() {
    use std::os::unix::fs::{MetadataExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("setuid");
    fs::copy("/bin/true", &copy).unwrap();
    let other = |p: &Path| fs::metadata(p).is_ok_and(|m| m.mode() & 0o4000 != 0);
    let file = if chown(&copy, Some(65534), None).is_ok() {
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
        copy
    } else {
        let known = ["/usr/bin/su", "/usr/bin/mount", "/bin/su", "/usr/bin/passwd"];
        let Some(file) = known.map(Path::new).into_iter().find(|p| other(p)) else {
            return skipped!("no setuid program here, and none can be made");
        };
        file.to_owned()
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.contains("NoNewPrivs:\t1") {
        return skipped!("setuid does nothing here (NoNewPrivs)");
    }
    refused(&file, 2, "is setuid", "without the privilege");
    // The filter comes with no_new_privs, under which such a file gives no rights.
    let mut c = softring(&["run", "--deny", "--"]);
    let o = c.arg(&file).env("SOFTRING_LIB", stand_in_library(dir.path())).output().unwrap();
    assert_ne!(o.status.code(), Some(2), "{}", text(&o.stderr));
    assert!(!text(&o.stderr).contains("is setuid"), "{}", text(&o.stderr));
}

fn executable(path: &str) {
    fs::set_permissions(Path::new(path), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn run_passes_exit_code_and_signal() {
    let o = output(&["run", "--engine=kernel", "--", "sh", "-c", "exit 42"]);
    assert_eq!(o.status.code(), Some(42), "{}", text(&o.stderr));
    let o = output(&["run", "--engine=kernel", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(o.status.signal(), Some(9));
}

#[test]
fn run_keeps_everything_else_unchanged() {
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd";
    let plain = Command::new("sh").args(["-c", script]).output().unwrap();
    for engine in ["--engine=kernel", "--engine=user", "--deny"] {
        let under = output(&["run", engine, "--", "sh", "-c", script]);
        assert_eq!(text(&plain.stdout), text(&under.stdout), "{engine}");
    }
}

#[test]
fn a_missing_library_is_reported() {
    let mut c = softring(&["run", "--", "true"]);
    let o = c.env("SOFTRING_LIB", "/no/such/lib.so").output().unwrap();
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("SOFTRING_LIB"), "{}", text(&o.stderr));
}

#[test]
fn run_extends_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let lib = stand_in_library(dir.path());
    let mut c = softring(&["run", "--engine=user", "--intercept=patch", "-q", "--", "env"]);
    c.env("SOFTRING_LIB", &lib).env("LD_PRELOAD", "/no/such/other.so");
    let env = text(&c.output().unwrap().stdout);
    let expected = format!("LD_PRELOAD={}:/no/such/other.so\n", lib.display());
    for line in
        [&*expected, "SOFTRING_ENGINE=user\n", "SOFTRING_INTERCEPT=patch\n", "SOFTRING_QUIET=1\n"]
    {
        assert!(env.contains(line), "{line} in {env}");
    }
}

#[test]
fn variables_count_without_options() {
    let dir = tempfile::tempdir().unwrap();
    let lib = stand_in_library(dir.path());
    let before =
        [("SOFTRING_ENGINE", "user"), ("SOFTRING_INTERCEPT", "odd"), ("SOFTRING_SQ_IDLE", "sleep")];
    let given = |options: &[&str]| {
        let mut c = softring(&[&["run"], options, &["--", "env"]].concat());
        let o = c.env("SOFTRING_LIB", &lib).envs(before).output().unwrap();
        text(&o.stdout)
    };
    let env = given(&[]);
    for (name, value) in before {
        assert!(env.contains(&format!("{name}={value}\n")), "{name} in {env}");
    }
    let env = given(&["--engine=auto", "--intercept=patch", "--sq-idle=spin"]);
    for line in ["SOFTRING_ENGINE=auto\n", "SOFTRING_INTERCEPT=patch\n", "SOFTRING_SQ_IDLE=spin\n"]
    {
        assert!(env.contains(line), "{line} in {env}");
    }
    // The environment counts as options do.
    let mut c = softring(&["run", "--at-least=6.1", "--", "true"]);
    let o = c.env("SOFTRING_LIB", &lib).env("SOFTRING_ENGINE", "user").output().unwrap();
    assert_eq!(o.status.code(), Some(2), "{}", text(&o.stderr));
    let mut c = softring(&["run", "--poll=spin", "--", "env"]);
    let o = c.env("SOFTRING_LIB", &lib).env("SOFTRING_ENGINE", "odd").output().unwrap();
    assert!(text(&o.stdout).contains("SOFTRING_ENGINE=user\n"), "{}", text(&o.stdout));
}

/// Neither a file of another kind nor another library is put under a program.
#[test]
fn a_wrong_library_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (source, other) = (dir.path().join("other.c"), dir.path().join("other.so"));
    fs::write(&source, "int other;\n").unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&other).arg(&source);
    assert!(cc.status().expect("a C compiler").success());
    for lib in [Path::new("/etc/passwd"), Path::new("/bin/true"), &other] {
        let o = softring(&["run", "--", "true"]).env("SOFTRING_LIB", lib).output().unwrap();
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{said}");
        let what = format!("{} is not softring's library for this machine", lib.display());
        assert!(said.contains(&what) && said.contains("SOFTRING_LIB"), "{said}");
        let o = softring(&["doctor", "--json"]).env("SOFTRING_LIB", lib).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let row = checks.iter().find(|c| c["name"] == "libsoftring.so").unwrap();
        assert_eq!((&row["state"], &row["found"]), (&"denied".into(), &what.into()));
    }
}

/// Everything that starts a program keeps doubled names, entries without `=`, and the order.
#[test]
fn the_environment_arrives_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (source, file) = (dir.path().join("given.c"), dir.path().join("given"));
    let code = "#include <unistd.h>\n\
        int main(int n, char **v) {\n\
        char *e[] = {\"B=2\", \"odd\", \"A=1\", \"=x\", \"A=3\", \"SOFTRING_NOTICE=0\", 0};\n\
        (void)n; return execve(v[1], v + 1, e); }\n";
    fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    assert!(cc.arg("-o").arg(&file).arg(&source).status().expect("a C compiler").success());
    let me = env!("CARGO_BIN_EXE_softring");
    let trace = dir.path().join("trace.json").display().to_string();
    let ways: [&[&str]; 5] =
        [&["run", "--engine=kernel"], &["deny"], &["stat"], &["trace", "-o", &trace], &["strace"]];
    for way in ways {
        let mut c = Command::new(&file);
        let o = c.arg(me).args(way).args(["--", "/usr/bin/env"]).output().unwrap();
        let all = text(&o.stdout);
        let given: Vec<&str> = all.lines().take(6).collect();
        let want = ["B=2", "odd", "A=1", "=x", "A=3", "SOFTRING_NOTICE=0"];
        assert_eq!(given, want, "{way:?}: {all}{}", text(&o.stderr));
    }
}

#[test]
fn deny_makes_setup_fail_with_the_chosen_errno() {
    for errno in ["1", "38"] {
        let me = env!("CARGO_BIN_EXE_softring");
        let o = output(&["deny", "--errno", errno, "--", me, "doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        let found = report["checks"][0]["found"].as_str().unwrap();
        assert_eq!(report["checks"][0]["name"], "io_uring_setup");
        assert!(found.contains(&format!("os error {errno})")), "{found}");
    }
}

#[test]
fn doctor_answers_in_both_forms() {
    let o = output(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() > 15);
    for c in checks {
        for key in ["name", "group", "state", "found", "meaning"] {
            assert!(c[key].is_string(), "{key} in {c}");
        }
    }
    let rings = report["verdict"]["rings"].as_str().unwrap();
    assert!(["kernel", "softring", "partly", "none"].contains(&rings));
    assert_eq!(o.status.code(), Some(i32::from(["partly", "none"].contains(&rings))));
    let shown = text(&output(&["doctor"]).stdout);
    let in_one_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for advice in report["verdict"]["change"].as_array().unwrap() {
        assert!(in_one_line.contains(advice.as_str().unwrap()), "{advice}: {shown}");
    }
    assert_eq!(shown.contains("What to change:"), report["verdict"]["change"][0].is_string());
    assert!(shown.contains("io_uring_disabled") && shown.contains("why:"), "{shown}");
}

/// Longer words are excepted: a path is to be copied.
#[test]
fn doctor_fits_a_terminal_of_80_columns() {
    for args in [&["doctor"][..], &["deny", "--", ME, "doctor", "--iopoll"]] {
        let shown = text(&output(args).stdout);
        let fits = |line: &str| line.chars().count() <= 80 || line.split_whitespace().count() < 4;
        for line in shown.lines() {
            assert!(fits(line), "{line}");
        }
        assert!(shown.lines().count() > 25, "{shown}");
    }
}

#[test]
fn doctor_names_the_rings_of_a_program() {
    let me = env!("CARGO_BIN_EXE_softring");
    for errno in ["1", "22"] {
        let o = output(&["deny", "--errno", errno, "--", me, "doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        assert_eq!(report["verdict"]["rings"], "softring", "{report}");
        let checks = report["checks"].as_array().unwrap();
        let tried = checks.iter().find(|c| c["name"] == "trial program").unwrap();
        assert_eq!(tried["found"], "softring's rings work, through patched call sites");
        let advice = report["verdict"]["change"].to_string();
        assert!(!advice.contains("poll queues"), "nobody asked for IOPOLL: {advice}");
    }
}

#[test]
fn a_closed_reader_is_success() {
    let mut c = softring(&["doctor", "--json"]);
    let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert!(o.status.success(), "{}", text(&o.stderr));
}

#[test]
fn a_closed_stdout_is_an_error_and_stays_closed() {
    let closed = |script: &str| Command::new("sh").args(["-c", script, ME]).output().unwrap();
    let o = closed("exec \"$0\" doctor --json >&-");
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).contains("standard output is closed"), "{}", text(&o.stderr));
    let o = closed("exec \"$0\" run --quiet -- sh -c '[ -e /proc/self/fd/1 ] && exit 7' >&-");
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
}

#[test]
fn man_page_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().display().to_string();
    for what in ["man", "completions"] {
        let o = output(&["gen", what, &to]);
        assert!(o.status.success(), "{}", text(&o.stderr));
    }
    let man = fs::read_to_string(dir.path().join("softring-run.1")).unwrap();
    assert!(man.contains("engine"));
    for file in ["softring.1", "softring.bash", "_softring", "softring.fish"] {
        assert!(dir.path().join(file).exists(), "{file}");
    }
    let bash = fs::read_to_string(dir.path().join("softring.bash")).unwrap();
    assert!(bash.contains("--engine") && !bash.contains("softring__subcmd__worker"));
}
