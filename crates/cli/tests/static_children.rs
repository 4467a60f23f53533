//! Static programs that a program under softring starts, and programs that static ones start.

mod common;

use common::{ME, build, build_by, library, text};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PARENT: &str = include_str!("common/parent.c");
const TELLS: &str = include_str!("common/tells.c");
const RING: &str = include_str!("common/static.c");

/// Programs that start others, by compiler and options.
const PARENTS: [(&str, &[&str]); 4] = [
    ("cc", &[]),
    ("cc", &["-static"]),
    ("cc", &["-static-pie", "-fPIE"]),
    ("musl-gcc", &["-static"]),
];

fn under(options: &[&str], command: &[&str]) -> Command {
    let mut c = Command::new(ME);
    c.arg("run").args(options).arg("--").args(command);
    c
}

fn output(c: &mut Command) -> Output {
    let mut child =
        c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that does not read is no error.
    let _ = child.stdin.take().unwrap().write_all(b"to be copied");
    child.wait_with_output().unwrap()
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the parents that can be built here.
fn parents(dir: &Path) -> Vec<PathBuf> {
    let parent = |(compiler, how): (&str, &[&str])| {
        let name = format!("{}{}", how.first().unwrap_or(&"-dynamic"), compiler);
        build_by(compiler, dir, &name[1..], how, PARENT)
    };
    PARENTS.into_iter().filter_map(parent).collect()
}

#[test]
fn children_get_rings() {
    let dir = tempfile::tempdir().unwrap();
    let parents = parents(dir.path());
    let child = build(dir.path(), "child", &["-static"], RING);
    let dynamic = build(dir.path(), "dynamic", &[], RING);
    let (true, Some(child), Some(dynamic)) = (library(), child, dynamic) else { return };
    let ways = ["fork", "vfork", "spawn", "exec", "at", "memory", "none fork", "none exec"];
    for parent in &parents {
        for way in ways {
            for child in [&child, &dynamic] {
                let words = way.split(' ').chain([str(child), "a", "b"]);
                let command: Vec<&str> = [str(parent)].into_iter().chain(words).collect();
                let o = output(&mut under(&["--deny", "--quiet"], &command));
                let want = "3 arguments, a NOP with 77\nto be copied";
                assert_eq!(text(&o.stdout), want, "{command:?}: {}", text(&o.stderr));
            }
        }
        let o = output(&mut under(&["--deny", "--quiet"], &[str(parent), "system", str(&child)]));
        assert!(text(&o.stdout).starts_with("1 arguments, a NOP"), "{}", text(&o.stderr));
    }
}

#[test]
fn children_find_what_they_find_without_us() {
    let dir = tempfile::tempdir().unwrap();
    let child = build(dir.path(), "child", &["-static"], TELLS);
    let (true, Some(child)) = (library(), child) else { return };
    let script = dir.path().join("script");
    // Another process writes the script: no child that another test forks has it open.
    let line = format!("echo '#!{} from' >{1}; chmod +x {1}", child.display(), script.display());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    for parent in parents(dir.path()) {
        for way in ["fork", "spawn", "exec", "at", "none vfork", "none exec"] {
            for program in [&child, &script] {
                let words = way.split(' ').chain([str(program), "", "a b"]);
                let command: Vec<&str> = [str(&parent)].into_iter().chain(words).collect();
                let alone = output(Command::new(command[0]).args(&command[1..]));
                let o = output(&mut under(&["--deny", "--quiet"], &command));
                assert_eq!(text(&o.stdout), text(&alone.stdout), "{command:?}");
                assert_eq!(text(&o.stderr), "", "{command:?}");
            }
        }
        // A closed stream stays closed.
        let line = format!("exec {} exec {} <&-", parent.display(), child.display());
        let alone = output(Command::new("sh").args(["-c", &line]));
        let o = output(&mut under(&["--deny", "--quiet"], &["sh", "-c", &line]));
        assert_eq!(text(&o.stdout), text(&alone.stdout));
    }
}

#[test]
fn a_program_that_cannot_be_started_is_the_same_error() {
    let dir = tempfile::tempdir().unwrap();
    if !library() {
        return;
    }
    let no_program = dir.path().join("no-program");
    fs::write(&no_program, "").unwrap();
    let Some(child) = build(dir.path(), "child", &["-static"], TELLS) else { return };
    let cut = dir.path().join("cut");
    let line = format!("head -c 100 {0} >{1}; chmod +x {1}", child.display(), cut.display());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    for parent in parents(dir.path()) {
        let says = |way, program, errno| {
            let o = output(&mut under(&["--deny", "--quiet"], &[str(&parent), way, program]));
            let said = (text(&o.stdout), o.status.code());
            assert_eq!(said, (format!("error {errno}\n"), Some(9)), "{way} {program}");
        };
        for way in ["fork", "vfork", "spawn", "exec"] {
            says(way, "/no/such/program", libc::ENOENT);
            says(way, str(&no_program), libc::EACCES);
            says(way, str(&cut), libc::ENOEXEC);
        }
        says("wrong", str(&child), libc::EFAULT);
    }
}

/// /proc/self/exe means another file once the command has been started.
#[test]
fn a_program_that_starts_itself_again_is_itself() {
    let dir = tempfile::tempdir().unwrap();
    if !library() {
        return;
    }
    for parent in parents(dir.path()) {
        let link = parent.with_extension("link");
        std::os::unix::fs::symlink("/proc/self/exe", &link).unwrap();
        for way in [&["itself"][..], &["exec", str(&link), "again"]] {
            let command = [&[str(&parent)], way].concat();
            let o = output(&mut under(&["--deny", "--quiet"], &command));
            let said = (text(&o.stdout), text(&o.stderr));
            assert_eq!((o.status.code(), said), (Some(6), Default::default()), "{command:?}");
        }
    }
}

/// A policy may allow the program alone.
#[test]
fn a_program_starts_where_the_command_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let child = build(dir.path(), "child", &["-static"], "int main(void) { return 5; }");
    let (true, Some(child)) = (library(), child) else { return };
    let command = dir.path().join("command");
    fs::write(&command, "no program").unwrap();
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    for parent in parents(dir.path()) {
        for way in ["fork", "vfork", "spawn", "exec"] {
            let set = format!("SOFTRING_COMMAND={}", str(&command));
            let shell = ["env", &set, "env", str(&parent), way, str(&child)];
            let o = output(&mut under(&["--deny", "--quiet"], &shell));
            assert_eq!(o.status.code(), Some(5), "{shell:?}: {}", text(&o.stderr));
        }
    }
}

/// Below the limits that the command needs, the program starts without the library.
#[test]
fn limits_of_the_command_do_not_end_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let child = build(dir.path(), "child", &["-static"], "int main(void) { return 5; }");
    let (true, Some(child)) = (library(), child) else { return };
    for parent in parents(dir.path()) {
        for limits in ["-v 10000", "-v 40000", "-v 60000", "-v 80000", "-s 32", "-s 64", "-d 2000"]
        {
            // As a program does that lowers the limit of those that it starts.
            let line = format!("ulimit -S {limits}; exec \"$0\" \"$@\"");
            for way in ["fork", "vfork", "exec"] {
                let command = ["sh", "-c", &line, str(&parent), way, str(&child)];
                let o = output(&mut under(&["--deny", "--quiet"], &command));
                let said = text(&o.stderr);
                // The parent itself may not start within the limit.
                let alone = output(Command::new(command[0]).args(&command[1..]));
                assert_eq!(o.status.code(), alone.status.code(), "{command:?}: {said}");
            }
        }
    }
}

/// posix_spawn(3) and exec(3) need no more of a thread's stack than without the library.
#[test]
fn a_thread_with_a_small_stack_starts_programs() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <spawn.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ;
        static char *none[] = {"A=1", 0}, **args, *how;
        static void *start(void *unused)
        {
            int status = -1;
            pid_t child = 0;
            if (!strcmp(how, "spawn"))
                posix_spawn(&child, args[0], 0, 0, args, environ);
            else if (!strcmp(how, "none"))
                posix_spawn(&child, args[0], 0, 0, args, none);
            else if (!(child = vfork())) {
                execv(args[0], args);
                _exit(9);
            }
            waitpid(child, &status, 0);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 7);
        }
        int main(int argc, char **argv)
        {
            pthread_attr_t small;
            pthread_t thread;
            how = argv[1];
            args = argv + 2;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 16384);
            pthread_create(&thread, &small, start, 0);
            pthread_join(thread, 0);
        }
    "#;
    let dir = tempfile::tempdir().unwrap();
    let child = "int main(void) { return 5; }";
    let children = [&["-static"][..], &[]].map(|how| {
        let name = if how.is_empty() { "dynamic" } else { "static" };
        build(dir.path(), name, how, child)
    });
    for how in [&["-pthread"][..], &["-pthread", "-static"]] {
        let Some(parent) = build(dir.path(), "parent", how, SOURCE) else { continue };
        for child in children.iter().flatten().filter(|_| library()) {
            for way in ["spawn", "none", "vfork"] {
                let o = output(&mut under(&["--deny"], &[str(&parent), way, str(child)]));
                assert_eq!(o.status.code(), Some(5), "{how:?} {way}: {}", text(&o.stderr));
            }
        }
    }
}

/// Mappings that a vfork child has made for its exec are unmapped by the next one.
#[test]
fn children_leave_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let child = build(dir.path(), "child", &["-static"], "int main(void) { return 3; }");
    let (true, Some(child)) = (library(), child) else { return };
    for parent in parents(dir.path()) {
        let command = [str(&parent), "none", "often", str(&child)];
        let o = output(&mut under(&["--deny", "--quiet"], &command));
        assert_eq!(o.status.code(), Some(3), "{}{}", text(&o.stdout), text(&o.stderr));
    }
}

#[test]
fn a_static_child_is_left_alone_if_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let child = build(dir.path(), "child", &["-static"], RING);
    let (true, Some(child)) = (library(), child) else { return };
    let o = output(&mut under(&["--deny", "--no-follow"], &["env", str(&child)]));
    assert!(!o.status.success());
    assert!(text(&o.stderr).contains("starts without softring (it is statically linked)"));
}
