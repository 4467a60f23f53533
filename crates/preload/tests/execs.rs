//! A process with a POSIX lock on a registered file calls exec: the lock, the arguments and the
//! environment arrive, on the kernel's rings and on ours. A library that is a number of the process
//! arrives, too.

mod common;

use common::{example, library, succeed, under};
use softring_testing::skipped;
use std::process::Command;

#[test]
fn locks_outlive_every_exec() {
    for engine in ["kernel", "user"] {
        for way in [
            "execve", "execv", "execvp", "execvpe", "fexecve", "execveat", "execl", "execlp",
            "execle", "syscall", "high",
        ] {
            succeed(under(example("execs"), engine, "auto").arg(way));
        }
    }
}

/// `softring run` leaves the library as a number that programs inherit, if no folder allows a file.
/// Python closes all numbers in a child before exec.
#[test]
fn a_library_by_number_is_kept_by_a_child_that_closes_it() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped!("no python3");
    }
    let start = "exec 700<\"$0\"; export LD_PRELOAD=/proc/self/fd/700; exec python3 -c \"$1\"";
    let script = "import subprocess; subprocess.run(['cat', '/proc/self/maps'], check=True)";
    let mut bash = Command::new("bash");
    let out = succeed(bash.args(["-c", start]).arg(library()).arg(script));
    let maps = String::from_utf8_lossy(&out.stdout);
    assert!(maps.contains("libsoftring.so"), "{maps}{}", String::from_utf8_lossy(&out.stderr));
}
