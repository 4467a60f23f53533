//! `softring run` and programs of musl's. The tests need musl-gcc (Debian's musl-tools), and
//! libsoftring.so next to the executable, as `under.rs` does; without them they say that they were
//! skipped.

mod common;

use common::{ME, library, text};
use softring_testing::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Program that makes a ring by an inline call; exits with its error number, or 0.
const RING: &str = r#"
static unsigned params[30];
int main(void)
{
    long ret;
    __asm__ volatile("movl $425, %%eax\n\tsyscall"
                     : "=&a"(ret) : "D"(4L), "S"(params) : "rcx", "r11", "memory");
    return ret < 0 ? (int)-ret : 0;
}
"#;

/// The program and a library that asks for a file of glibc's, in a folder of their own.
struct Programs {
    dir: tempfile::TempDir,
    ring: PathBuf,
    glibcs: PathBuf,
}

fn cc(compiler: &str, options: &[&str], to: &Path, source: &str) {
    let file = to.with_extension("c");
    fs::write(&file, source).unwrap();
    let mut cc = Command::new(compiler);
    let o = cc.args(["-O1", "-o"]).arg(to).arg(&file).args(options).output().unwrap();
    assert!(o.status.success(), "{}", text(&o.stderr));
}

fn programs() -> Option<Programs> {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        skipped!("no musl-gcc");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (ring, glibcs) = (dir.path().join("ring"), dir.path().join("libglibcs.so"));
    cc("musl-gcc", &[], &ring, RING);
    // The compiler links the same if nobody asks for anything else.
    let source = "extern char *program_invocation_name; extern void _Unwind_Resume(void *);\n\
        void *used[] = { &program_invocation_name, (void *)_Unwind_Resume };\n\
        void softring_version(void) {}\n";
    cc("cc", &["-shared", "-fPIC", "-lgcc_s"], &glibcs, source);
    Some(Programs { dir, ring, glibcs })
}

impl Programs {
    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        let mut c = Command::new(ME);
        c.args(["run"]).args(options).arg("--").args(command).output().unwrap()
    }

    /// Runs the program with the library that asks for glibc's files.
    fn without(&self, options: &[&str]) -> Output {
        let mut c = Command::new(ME);
        c.arg("run").args(options).arg("--").arg(&self.ring);
        c.env("SOFTRING_LIB", &self.glibcs).output().unwrap()
    }
}

#[test]
fn a_musl_program_gets_rings() {
    let Some(programs) = programs().filter(|_| library()) else { return };
    let ring = programs.ring.to_str().unwrap();
    for options in [&["--engine=user"][..], &["--deny"], &["--deny", "--intercept=sigsys"]] {
        let o = programs.run(options, &[ring]);
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(0), "{options:?}: {said}");
        assert!(said.contains("runs in user space") && said.lines().count() == 1, "{said}");
    }
    let script = programs.dir.path().join("script");
    fs::write(&script, format!("#!{ring}\n")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, open).unwrap();
    let o = programs.run(&["--deny", "--quiet"], &[script.to_str().unwrap()]);
    assert_eq!((o.status.code(), text(&o.stderr)), (Some(0), String::new()));
}

/// LD_PRELOAD is inherited: musl's loader meets the library that was chosen for the shell, and the
/// other way round.
#[test]
fn children_of_another_libc_get_rings() {
    let Some(programs) = programs().filter(|_| library()) else { return };
    let ring = programs.ring.to_str().unwrap();
    let o = programs.run(&["--deny"], &["sh", "-c", "\"$0\" && exec \"$0\"", ring]);
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
    let starts = programs.dir.path().join("starts");
    let source =
        "#include <unistd.h>\nint main(int n, char **v) { return n < 2 || execv(v[1], v + 1); }";
    cc("musl-gcc", &[], &starts, source);
    let glibcs = programs.dir.path().join("glibcs");
    cc("cc", &[], &glibcs, RING);
    let o = programs.run(&["--deny"], &[starts.to_str().unwrap(), glibcs.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
}

/// musl's loader ends a program if a file is missing that a preloaded library asks for.
#[test]
fn a_library_that_asks_for_others_is_refused() {
    let Some(programs) = programs() else { return };
    let o = Command::new(&programs.ring).env("LD_PRELOAD", &programs.glibcs).output().unwrap();
    assert_eq!(o.status.code(), Some(127), "{}", text(&o.stderr));
    let alone = Command::new(&programs.ring).status().unwrap();
    for options in [&["--engine=user"][..], &["--deny"], &["--aio-hipri"], &[]] {
        let o = programs.without(options);
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains("asks for") && said.contains("libc.so.6"), "{said}");
        assert!(said.contains("hint: "), "{said}");
    }
    let o = programs.without(&["--engine=kernel"]);
    assert_eq!((o.status.code(), text(&o.stderr)), (alone.code(), String::new()));
}
