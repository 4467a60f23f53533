//! Each shape of call site through each door, and what a door may not disturb.

mod common;

use common::{count, example, link, succeed, under};

fn site(case: &str, engine: &str, door: &str) -> std::process::Output {
    succeed(under(example("sites"), engine, door).arg(case))
}

#[test]
fn a_plain_site_is_patched() {
    let out = site("plain", "kernel", "patch");
    assert_eq!((count(&out, "patched"), count(&out, "trapped")), (1, 0));
}

#[test]
fn a_hoisted_number_is_patched() {
    assert_eq!(count(&site("hoisted", "kernel", "patch"), "patched"), 1);
}

#[test]
fn a_site_that_may_be_jumped_into_is_left_alone() {
    let out = site("joined", "kernel", "patch");
    assert_eq!((count(&out, "gaps"), count(&out, "patched")), (1, 0));
}

#[test]
fn the_trap_catches_every_shape() {
    for case in ["plain", "hoisted", "joined"] {
        let out = site(case, "kernel", "sigsys");
        assert_eq!((count(&out, "patched"), count(&out, "trapped")), (0, 1), "{case}");
    }
}

#[test]
fn every_register_survives_each_door() {
    for door in ["patch", "sigsys", "auto", "none"] {
        site("full", "kernel", door);
    }
}

#[test]
fn every_register_survives_the_engine() {
    // This program has a gap: only the trap lets the engine take over.
    let out = site("full", "user", "auto");
    assert_eq!(count(&out, "patched"), 1);
}

#[test]
fn a_gap_without_the_trap_means_no_ring_of_ours() {
    let out = under(example("sites"), "user", "patch").arg("full").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("setup answered -1"));
}

#[test]
fn sigsys_blocked_or_handled_by_the_program() {
    for case in ["blocked", "handler"] {
        assert!(count(&site(case, "kernel", "sigsys"), "trapped") >= 1, "{case}");
    }
}

#[test]
fn vfork_by_number_returns_twice() {
    for door in ["auto", "none", "sigsys"] {
        site("vfork", "auto", door);
    }
}

#[test]
fn a_library_opened_later_is_patched_before_its_constructors_run() {
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("later.so");
    link(LATER, &lib, &["-shared"]);
    let out = succeed(under(example("sites"), "kernel", "patch").arg("later").env("LATER", &lib));
    assert_eq!(count(&out, "patched"), 2);
}

#[test]
fn the_overhead_of_a_patched_call() {
    let of = |door| {
        let out = site("loop", "kernel", door);
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    println!("plain: {}; patched: {}; trapped: {}", of("none"), of("patch"), of("sigsys"));
}

/// One call when asked, one from the constructor.
const LATER: &str = r#"
    .text
    .globl enter_later
    .type enter_later, @function
enter_later:
    .cfi_startproc
    movl $-1, %edi
    xorl %esi, %esi
    xorl %edx, %edx
    xorl %r10d, %r10d
    movl $426, %eax
    syscall
    ret
    .cfi_endproc
    .size enter_later, . - enter_later
    .section .init_array, "aw"
    .quad enter_later
    .section .note.GNU-stack, "", @progbits
"#;
