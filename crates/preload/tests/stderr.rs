//! Lines for people go to the file that was stderr when the program started, and nowhere else.

mod common;

use common::{succeed, under};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Source of a program that puts argv[1], if given, at descriptor 2, and makes a ring.
const PROGRAM: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    static unsigned params[30];
    if (argc > 1) {
        close(2);
        if (open(argv[1], O_RDWR | O_CREAT, 0600) != 2)
            return 1;
    }
    return syscall(425, 4, params) < 0;
}
"#;

fn build(dir: &Path) -> std::path::PathBuf {
    let (source, to) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    succeed(Command::new("cc").args(["-O1", "-o"]).arg(&to).arg(&source));
    to
}

#[test]
fn nothing_is_written_into_a_file_of_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, data) = (build(dir.path()), dir.path().join("data"));
    std::fs::write(&data, "data").unwrap();
    let run = |data: Option<&Path>| {
        let mut c = under(&program, "user", "auto");
        let said = succeed(c.env_remove("SOFTRING_QUIET").args(data)).stderr;
        String::from_utf8(said).unwrap()
    };
    let said = run(None);
    assert!(said.contains("runs in user space") && said.contains("report:"), "{said}");
    assert_eq!(run(Some(&data)), "");
    assert_eq!(std::fs::read_to_string(&data).unwrap(), "data");
}

#[test]
fn a_program_without_stderr_stays_without() {
    let dir = tempfile::tempdir().unwrap();
    let (program, data) = (build(dir.path()), dir.path().join("data"));
    let mut shell = under("sh", "user", "auto");
    shell.args(["-c", "exec 2>&-; exec \"$0\" \"$1\""]).arg(&program).arg(&data);
    succeed(shell.env_remove("SOFTRING_QUIET"));
    assert_eq!(std::fs::read(&data).unwrap(), b"");
}

/// A line that nobody can read, or that has no room, is lost; the program goes on.
#[test]
fn a_line_sends_no_signal_and_does_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (build(dir.path()), dir.path().join("err"));
    let (reader, broken) = std::io::pipe().unwrap();
    drop(reader);
    let (_unread, mut full) = std::io::pipe().unwrap();
    // A pipe holds this much.
    full.write_all(&[0; 1 << 16]).unwrap();
    let run = |c: &mut Command| {
        let status = c.env_remove("SOFTRING_QUIET").env_remove("SOFTRING_REPORT").status().unwrap();
        assert!(status.success(), "{c:?}: {status}");
    };
    run(under(&program, "user", "auto").stderr(broken));
    run(under(&program, "user", "auto").stderr(full));
    let mut limited = under("prlimit", "user", "auto");
    limited.arg("--fsize=0:unlimited").arg(&program);
    run(limited.stderr(std::fs::File::create(&file).unwrap()));
    assert_eq!(std::fs::read(&file).unwrap(), b"");
}
