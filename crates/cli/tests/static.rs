//! `softring run` and programs without a dynamic loader: they get rings where io_uring is denied.
//! The tests need libsoftring.so next to the executable, as `under.rs` does.

mod common;

use common::{KERNEL, ME, build_by, library, text};
use softring_testing::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Program that makes a ring, has a NOP on it, and copies its standard input by requests. It makes
/// its calls by a function that takes the number (`syscall(2)`), or by instructions of its own.
const RING: &str = include_str!("common/static.c");

/// Returns whether the library is there and can be mapped without a dynamic loader; says so if not.
fn mapped() -> bool {
    if !library() {
        return false;
    }
    let file = Path::new(ME).with_file_name("libsoftring.so");
    let read = softring_loader::Library::open(&file);
    if let Err(e) = &read {
        skipped!("{e}");
    }
    read.is_ok()
}

fn build(dir: &Path, compiler: &str, how: &[&str]) -> Option<PathBuf> {
    build_by(compiler, dir, "ring", how, RING)
}

/// Runs a program with a file as its standard input.
fn run(options: &[&str], program: &Path) -> Output {
    let mut c = Command::new(ME);
    c.arg("run").args(options).arg("--").arg(program).args(["one", "two"]);
    c.stdin(fs::File::open(ME).unwrap()).output().unwrap()
}

/// Checks that a program gets a ring of softring's, and says so once.
#[track_caller]
fn gets_ring(options: &[&str], program: &Path) {
    let o = run(options, program);
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{options:?}: {said}");
    assert!(said.contains("runs in user space") && said.lines().count() == 1, "{said}");
    let own = fs::read(ME).unwrap();
    let (head, copy) = o.stdout.split_at(o.stdout.len() - own.len());
    assert!(copy == own, "{options:?}: the copy differs");
    assert_eq!(text(head), "3 arguments, a NOP with 77\n");
}

/// Nobody tells of the forks of a static program.
#[test]
fn children_of_a_static_program_make_rings() {
    let dir = tempfile::tempdir().unwrap();
    let source = include_str!("common/forks.c");
    let Some(program) = build_by("cc", dir.path(), "forks", &["-static", "-pthread"], source)
    else {
        return;
    };
    if mapped() {
        let o = run(&["--deny", "--quiet"], &program);
        assert!(o.status.success(), "{}{}", text(&o.stdout), text(&o.stderr));
    }
}

#[test]
fn static_programs_get_rings() {
    if !mapped() {
        return;
    }
    for (compiler, how) in [
        ("cc", &["-static", "-no-pie"][..]),
        ("cc", &["-static-pie", "-fPIE"]),
        ("cc", &["-static", "-DINLINE"]),
        ("musl-gcc", &[&["-static"], KERNEL].concat()),
        ("musl-gcc", &[&["-static", "-s"], KERNEL].concat()),
        ("musl-gcc", &[&["-static", "-DINLINE"], KERNEL].concat()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build(dir.path(), compiler, how) {
            gets_ring(&["--deny", "--intercept=patch"], &program);
            gets_ring(&["--engine=user"], &program);
        }
    }
}

/// Every function of the C library that takes a ring's descriptor reaches softring, also musl's,
/// which have no frames.
#[test]
fn static_programs_poll_and_duplicate_rings() {
    if !mapped() {
        return;
    }
    let source = include_str!("common/polls.c");
    for (compiler, how) in [
        ("cc", &["-static", "-DBY_NUMBER"][..]),
        ("musl-gcc", &[&["-static", "-DBY_NUMBER"], KERNEL].concat()),
        // musl-gcc makes a dynamic program of it.
        ("musl-gcc", &[&["-static-pie", "-fPIE"], KERNEL].concat()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build_by(compiler, dir.path(), "program", how, source) {
            let o = run(&["--deny", "--quiet", "--intercept=patch"], &program);
            assert!(
                o.status.success(),
                "{compiler} {how:?}: {}{}",
                text(&o.stdout),
                text(&o.stderr)
            );
        }
    }
}

/// musl tells by the address of its instruction whether a thread is to be cancelled.
#[test]
fn threads_of_static_programs_can_be_cancelled() {
    if !mapped() {
        return;
    }
    let source = include_str!("common/cancels.c");
    for (compiler, how) in
        [("cc", &["-static", "-pthread"][..]), ("musl-gcc", &[&["-static"], KERNEL].concat())]
    {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = build_by(compiler, dir.path(), "program", how, source) {
            let o = run(&["--deny", "--quiet"], &program);
            let said = (text(&o.stdout), text(&o.stderr));
            assert!(o.status.success(), "{compiler}: {:?} {said:?}", o.status);
        }
    }
}

#[test]
fn a_static_program_of_liburing_gets_rings() {
    const SOURCE: &str = r#"
        #include <liburing.h>
        int main(void)
        {
            struct io_uring ring;
            struct io_uring_cqe *cqe;
            struct __kernel_timespec ts = {0, 1000000};
            int ret = io_uring_queue_init(8, &ring, 0);
            if (ret)
                return 1;
            io_uring_prep_openat(io_uring_get_sqe(&ring), AT_FDCWD, "/dev/null", 0, 0);
            if (io_uring_submit_and_wait(&ring, 1) < 1 || io_uring_wait_cqe(&ring, &cqe) ||
                cqe->res < 0)
                return 2;
            io_uring_cq_advance(&ring, 1);
            io_uring_prep_timeout(io_uring_get_sqe(&ring), &ts, 0, 0);
            io_uring_submit(&ring);
            if (io_uring_wait_cqe(&ring, &cqe) || cqe->res != -62)
                return 3;
            io_uring_queue_exit(&ring);
            return 0;
        }"#;
    if !mapped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let how = ["-static", "-include", "fcntl.h", "-luring"];
    let (file, program) = (dir.path().join("u.c"), dir.path().join("u"));
    fs::write(&file, SOURCE).unwrap();
    let o = Command::new("cc").args(["-w", "-o"]).arg(&program).arg(&file).args(how).output();
    let o = o.unwrap();
    if !o.status.success() {
        return skipped!("no static liburing: {}", text(&o.stderr));
    }
    let o = run(&["--deny", "--intercept=patch"], &program);
    assert_eq!(o.status.code(), Some(0), "{}", text(&o.stderr));
}

/// A program that runs under another tracer cannot be traced: it says so.
#[test]
fn a_traced_program_says_why_it_gets_no_rings() {
    if !mapped() {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skipped!("no strace");
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "cc", &["-static"]) else { return };
    let under = |options: &[&str]| {
        let mut c = Command::new("strace");
        c.args(["-f", "-o", "/dev/null", ME, "run"]).args(options).arg("--").arg(&program);
        c.stdin(fs::File::open(ME).unwrap()).output().unwrap()
    };
    let o = under(&["--deny"]);
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{said}");
    assert!(said.contains("ptrace(2) is not allowed here") && said.contains("hint: "), "{said}");
}

/// A program whose headers are damaged does what it does without softring.
#[test]
fn damaged_programs_do_what_they_do_alone() {
    const HEADER: usize = 64;
    const SEGMENTS: usize = 6;
    const SEGMENT: usize = 56;
    if !mapped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path(), "cc", &["-static-pie", "-fPIE", "-DQUICK"]) else {
        return;
    };
    let whole = fs::read(&program).unwrap();
    let outcome = |c: &mut Command| loop {
        match c.output() {
            Ok(o) => return o.status.code(),
            // A child that another test has just forked still has the file open.
            Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => {}
            Err(_) => return Some(126),
        }
    };
    // The lowest and a high byte of each word, and the end.
    let places = (0..SEGMENTS * SEGMENT).filter(|at| matches!(at % 8, 0 | 6));
    let damaged = places.map(|at| {
        let mut bytes = whole.clone();
        bytes[HEADER + at] ^= 0x7f;
        bytes
    });
    let cut = [8, 4, 2].map(|part| whole[..whole.len() - whole.len() / part].to_vec());
    for (n, bytes) in damaged.chain(cut).enumerate() {
        let file = dir.path().join(format!("damaged{n}"));
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::metadata(&program).unwrap().permissions()).unwrap();
        let alone = outcome(&mut Command::new(&file));
        let mut c = Command::new(ME);
        let with = outcome(c.args(["run", "--quiet", "--"]).arg(&file));
        let is_refused = matches!((alone, with), (Some(126), Some(2 | 127)));
        // A signal ended both, or the kernel's exec did.
        let ended = alone.is_none() && with.is_none_or(|code| code == 2);
        assert!(alone == with || is_refused || ended, "{n}: {alone:?}, with softring {with:?}");
    }
}

/// The kernel tells such a program no address of its headers, by which its text is found.
#[test]
fn a_program_without_headers_in_its_memory_says_so() {
    const EXITS: &str = ".globl _start\n_start: mov $231, %eax\nmov $5, %edi\nsyscall\n\
                         .section .note.GNU-stack, \"\", @progbits\n";
    if !mapped() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("n.s"), dir.path().join("n"));
    fs::write(&source, EXITS).unwrap();
    let mut cc = Command::new("cc");
    let o = cc.args(["-nostdlib", "-static", "-Wl,-N", "-o"]).arg(&program).arg(&source).output();
    if !o.is_ok_and(|o| o.status.success()) {
        return skipped!("the linker has no option -N");
    }
    let o = run(&["--deny"], &program);
    assert_eq!(o.status.code(), Some(2), "{}", text(&o.stderr));
    assert!(text(&o.stderr).contains("holds its program headers"), "{}", text(&o.stderr));
    let o = run(&[], &program);
    assert!(matches!(o.status.code(), Some(2 | 5)), "{}", text(&o.stderr));
    assert!(text(&o.stderr).contains("holds its program headers"), "{}", text(&o.stderr));
}
