//! A process with a POSIX lock on a registered file calls exec: the lock, the arguments and the
//! environment arrive, on the kernel's rings and on ours.

mod common;

use common::{example, succeed, under};

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
