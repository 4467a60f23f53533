//! Variables of a program that is linked with the library and runs with more rights than its
//! caller: it obeys none of them. Needs the rights of root, to make such a program.

mod common;

use common::{library, succeed};
use softring_testing::skipped;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const NOBODY: u32 = 65534;
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Source of a program that denies itself the kernel's rings, makes a ring, and prints the names of
/// its files in memory.
const PROGRAM: &str = r#"
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "softring.h"

static void deny(void)
{
	struct sock_filter rows[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { 4, rows };
	/* As root, without no_new_privs. */
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		perror("seccomp");
}

int main(void)
{
	struct io_uring_params params;
	char path[300], target[300];
	struct dirent *entry;
	DIR *dir;

	memset(&params, 0, sizeof(params));
	deny();
	printf("secure %lu\n", getauxval(AT_SECURE));
	printf("ring %d\n", softring_setup(4, &params) >= 0);
	dir = opendir("/proc/self/fd");
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = 0;
		if (strstr(target, "softring-"))
			printf("%s\n", target);
	}
	return 0;
}
"#;

/// Builds the program and copies the library, where everybody can reach them.
fn build(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("secure.c"), dir.join("secure"));
    let lib = dir.join("libsoftring.so");
    std::fs::copy(library(), &lib).unwrap();
    std::fs::write(&source, PROGRAM).unwrap();
    let header = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");
    let mut cc = Command::new("cc");
    cc.args([header, "-o"]).args([&program, &source, &lib]);
    succeed(cc.arg(format!("-Wl,-rpath,{}", dir.display())));
    for path in [dir, &lib, &program] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    program
}

/// Runs the program with all that a caller may ask for.
fn run(program: &Path, victim: &Path, uid: u32) -> Output {
    let mut c = Command::new(program);
    c.env("SOFTRING_REPORT", "1").env("SOFTRING_STAT", KEY).env("SOFTRING_TRACE", victim);
    c.env("SOFTRING_MODEL", "/=nonsense").env("SOFTRING_NOTICE", "1");
    succeed(c.uid(uid).gid(uid))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn secure_programs_ignore_the_environment() {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        skipped!("takes the rights of root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (program, victim) = (build(dir.path()), dir.path().join("victim"));
    let content = vec![7u8; 1 << 20];
    std::fs::write(&victim, &content).unwrap();

    // The program obeys the variables where it has only its caller's rights.
    let plain = run(&program, &victim, 0);
    let (out, err) = (text(&plain.stdout), text(&plain.stderr));
    assert!(out.starts_with("secure 0\nring 1\n") && out.contains("softring-stats"), "{out}");
    for said in ["report:", "SOFTRING_TRACE=", "SOFTRING_MODEL"] {
        assert!(err.contains(said), "{err}");
    }

    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let secure = run(&program, &victim, NOBODY);
    let (out, err) = (text(&secure.stdout), text(&secure.stderr));
    assert!(out.starts_with("secure 1\nring 1\n"), "is {} nosuid? {out}", dir.path().display());
    assert!(!out.contains("softring-stats") && !out.contains("softring-trace"), "{out}");
    for said in ["report:", "SOFTRING_TRACE", "SOFTRING_MODEL"] {
        assert!(!err.contains(said), "{err}");
    }
    assert_eq!(std::fs::read(&victim).unwrap(), content);
}
