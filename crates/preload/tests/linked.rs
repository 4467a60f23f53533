//! A program linked with `-lsoftring` has the same entry points as one that is started under the
//! library.

mod common;

use common::{count, library, succeed};
use std::process::Command;

/// Source of a program that asks for a ring by inline system call and by name; exits with 0 if both
/// calls give one.
const PROGRAM: &str = r#"
    .text
    .globl main
    .type main, @function
main:
    .cfi_startproc
    pushq %rbx
    leaq params(%rip), %rsi
    movl $4, %edi
    movl $425, %eax
    syscall
    movl %eax, %ebx
    leaq params(%rip), %rsi
    movl $4, %edi
    call softring_setup@PLT
    orl %ebx, %eax
    shrl $31, %eax
    popq %rbx
    ret
    .cfi_endproc
    .size main, . - main
    .bss
    .p2align 3
params:
    .skip 120
    .section .note.GNU-stack, "", @progbits
"#;

#[test]
fn a_linked_program_needs_no_preload() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("linked.s"), dir.path().join("linked"));
    std::fs::write(&source, PROGRAM).unwrap();
    let (lib, at) = (library(), library().parent().unwrap().display().to_string());
    succeed(
        Command::new("cc")
            .arg("-o")
            .args([&program, &source, &lib])
            .arg(format!("-Wl,-rpath,{at}")),
    );
    let mut c = Command::new(&program);
    c.env("SOFTRING_ENGINE", "user").env("SOFTRING_REPORT", "1").env("SOFTRING_QUIET", "1");
    let out = succeed(&mut c);
    assert_eq!((count(&out, "setups"), count(&out, "patched")), (2, 1));
}
