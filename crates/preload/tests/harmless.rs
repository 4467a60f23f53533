//! Programs that never use io_uring: unchanged, unharmed, and not delayed.

mod common;

use common::{count, example, library, succeed, under};
use softring_testing::skipped;
use std::process::Command;

/// Checks that a program writes the same without the library and with it.
fn same(program: &str, args: &[&str]) {
    let plain = match Command::new(program).args(args).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return skipped!("{program} is not installed");
        }
        plain => plain.unwrap(),
    };
    let with = Command::new(program).args(args).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(plain, with, "{program} {args:?}");
}

#[test]
fn shells_and_interpreters_behave_the_same() {
    same("sh", &["-c", "for i in 1 2 3; do echo $i | cat; done; exec 5>&1; echo x >&5; exit 3"]);
    same("bash", &["-c", "coproc cat; echo a >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x"]);
    same(
        "python3",
        &[
            "-c",
            "import os,select; r,w=os.pipe(); os.write(w,b'1'); \
             print(select.select([r],[],[],1)[0]==[r])",
        ],
    );
    same("perl", &["-e", "print join ',', map { $_ * 2 } 1..3"]);
    same(
        "node",
        &["-e", "require('fs').readFile('/etc/passwd', (e, d) => console.log(e, d.length))"],
    );
    same("java", &["-XX:TieredStopAtLevel=1", "--version"]);
}

/// Measures the extra cost of /bin/true with the library, as the average of a thousand starts.
#[test]
fn a_thousand_programs_start() {
    let script = "i=0; while [ $i -lt 1000 ]; do /bin/true || exit 1; i=$((i+1)); done";
    let timed = |c: &mut Command| {
        let start = std::time::Instant::now();
        succeed(c);
        start.elapsed().as_micros() as u64 / 1000
    };
    let plain = timed(Command::new("sh").args(["-c", script]));
    let with = timed(Command::new("sh").args(["-c", script]).env("LD_PRELOAD", library()));
    println!("a start of /bin/true: {plain} us, under the library {with} us");
}

/// The kernel makes a process with several threads wait for a grace period when its descriptor
/// table grows. So there is room for the engine's numbers before there are threads.
#[test]
fn there_is_room_for_our_numbers_at_start() {
    let out = succeed(under("grep", "auto", "auto").args(["FDSize", "/proc/self/status"]));
    let text = String::from_utf8(out.stdout).unwrap();
    let room: u32 = text.split_whitespace().last().unwrap().parse().unwrap();
    assert!(room > 512, "{text}");
}

/// A handler that forks may interrupt a fork.
#[test]
fn handlers_may_fork_within_a_fork() {
    succeed(under(example("fds"), "auto", "auto").arg("forks_in_handlers"));
    succeed(under(example("fds"), "user", "auto").arg("ring_forks_in_handlers"));
}

/// A fork is prepared under locks, which the last thread to release a ring takes, too.
#[test]
fn rings_may_close_within_a_fork() {
    succeed(under(example("fds"), "user", "auto").arg("forks_beside_polled_rings"));
}

/// A fork of which the C library does not tell is told of by its function, and by its number.
#[test]
fn forks_without_handlers_are_prepared() {
    succeed(under(example("fds"), "user", "auto").arg("forks_without_handlers"));
}

/// The dynamic linker does not load the library into a setuid helper, which must still work.
#[test]
fn a_setuid_helper_behaves_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let open = || std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open()).unwrap();
    let lib = dir.path().join("libsoftring.so");
    std::fs::copy(library(), &lib).unwrap();
    let helper = dir.path().join("id");
    std::fs::copy("/usr/bin/id", &helper).unwrap();
    let setuid = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&helper, setuid).unwrap();
    // As another user than the helper's owner, if this is allowed.
    let other = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"];
    let script = format!("{} -u; mount --version; exit 5", helper.display());
    let run = |lib: &str| {
        let mut c = Command::new("setpriv");
        c.args(other).arg(&script).env("LD_PRELOAD", lib).output()
    };
    let plain = match run("") {
        Ok(o) if o.status.code() == Some(5) => o,
        other => return skipped!("nobody else to be here: {other:?}"),
    };
    assert_eq!(plain, run(lib.to_str().unwrap()).unwrap());
    println!("user of a setuid helper: {}", String::from_utf8_lossy(&plain.stdout).trim());
}

#[test]
fn the_library_prints_nothing_and_leaks_no_descriptor() {
    same("sh", &["-c", "ls /proc/self/fd | wc -l"]);
    same("env", &["true"]);
}

#[test]
fn a_typo_in_the_environment_is_reported_and_harmless() {
    let out = Command::new("true")
        .env("LD_PRELOAD", library())
        .env("SOFTRING_ENGINE", "usre")
        .output()
        .unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("SOFTRING_ENGINE=usre is not known"));
}

/// Measures the start-up of a program with 10 MB of text, in processor time; the bound leaves room
/// for a busy machine.
#[test]
fn ten_megabytes_of_text_start_soon() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("big");
    // Text that looks like code as far as single bytes go: a run of all bytes, shifting.
    let source = "
        .globl main
    main:
        xorl %eax, %eax
        ret
        .set i, 0
        .rept 655360
        .byte i, 0x48, 0x8b, i >> 3, 0xa9, 0, 0x0f, i >> 8, 0x89, 0xe8, 1, 0, 0, i, 0xc3, 0x90
        .set i, (i * 5 + 1) & 0xff
        .endr
        .section .note.GNU-stack, \"\", @progbits\n";
    std::fs::write(dir.path().join("big.s"), source).unwrap();
    succeed(Command::new("cc").arg("-o").arg(&program).arg(dir.path().join("big.s")));
    let mut best = u64::MAX;
    for _ in 0..5 {
        let out = succeed(&mut under(&program, "auto", "auto"));
        assert!(count(&out, "scanned") > 10_000);
        best = best.min(count(&out, "in"));
    }
    println!("10 MB of text: {}.{:03} ms", best / 1000, best % 1000);
    assert!(best < 5_000, "{best} us");
}

/// The library exports the names in `symbols.rs`, and no others.
#[test]
fn the_library_exports_its_documented_symbols() {
    let out = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let text = String::from_utf8(out.stdout).unwrap();
    let mut found: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    let mut listed: Vec<&str> = symbols::INTERPOSED.iter().chain(symbols::OWN).copied().collect();
    found.sort_unstable();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

#[path = "../src/symbols.rs"]
mod symbols;
