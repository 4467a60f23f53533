//! Programs with a sanitizer's shared runtime start under `softring run`.

use std::path::Path;
use std::process::Command;

/// Makes a ring; with an argument, reads memory that it has freed.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned params[30];

int main(int argc, char **argv)
{
    (void)argv;
    char *memory = malloc(10);
    int ring = syscall(425, 4, params);
    free(memory);
    return argc > 1 ? memory[0] : ring < 0;
}
"#;

fn compile(sanitizer: &str, dir: &Path) -> Option<std::path::PathBuf> {
    let (source, program) = (dir.join("san.c"), dir.join(sanitizer));
    std::fs::write(&source, PROGRAM).unwrap();
    let flag = format!("-fsanitize={sanitizer}");
    let built = Command::new("cc").args(["-g", &flag, "-o"]).args([&program, &source]).output();
    built.is_ok_and(|out| out.status.success()).then_some(program)
}

#[test]
fn their_runtimes_start_and_still_find_faults() {
    let dir = tempfile::tempdir().unwrap();
    for (sanitizer, name) in [("address", "AddressSanitizer"), ("thread", "ThreadSanitizer")] {
        let Some(program) = compile(sanitizer, dir.path()) else {
            eprintln!("skipped: cc has no {name}");
            continue;
        };
        let run = |args: &[&str]| {
            let mut softring = Command::new(env!("CARGO_BIN_EXE_softring"));
            softring.args(["run", "--quiet", "--deny", "--"]).arg(&program).args(args);
            let out = softring.output().unwrap();
            (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
        };
        assert_eq!(run(&[]), (true, String::new()), "{name}");
        let (well, said) = run(&["freed"]);
        assert!(!well && said.contains("heap-use-after-free"), "{name}: {said}");
    }
}
