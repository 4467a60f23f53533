//! Each shape of call site through each entry point, and the registers that an entry point must
//! keep.

#![allow(unsafe_code)]

mod common;

use std::os::unix::process::CommandExt;

use common::{count, example, link, succeed, under};

fn site(case: &str, engine: &str, intercept: &str) -> std::process::Output {
    succeed(under(example("sites"), engine, intercept).arg(case))
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
fn a_site_without_room_is_left_alone() {
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
fn every_register_survives_each_entry_point() {
    for intercept in ["patch", "sigsys", "auto", "none"] {
        site("full", "kernel", intercept);
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

/// Restrictions that systemd's MemoryDenyWriteExecute= sets.
#[derive(Clone, Copy)]
enum Denied {
    /// Denied by `prctl(PR_SET_MDWE)`.
    ByPrctl,
    /// Denied by seccomp: mprotect to PROT_EXEC, mmap to PROT_WRITE and PROT_EXEC.
    BySeccomp,
    /// Denied by seccomp: these calls and pwrite(2), which would write to /proc/self/mem.
    AndWrites,
}

fn deny(how: Denied) -> std::io::Result<()> {
    const PR_SET_MDWE: i32 = 65;
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let [jump, set] = [libc::BPF_JEQ, libc::BPF_JSET].map(|j| libc::BPF_JMP | j | libc::BPF_K);
    let answer = libc::BPF_RET | libc::BPF_K;
    let writes = if matches!(how, Denied::AndWrites) { libc::SYS_pwrite64 } else { -1 };
    let filter = [
        op(load, 0, 0, 0),
        op(jump, 8, 0, writes as u32),
        op(jump, 0, 2, libc::SYS_mprotect as u32),
        op(load, 0, 0, 32),
        op(set, 5, 4, libc::PROT_EXEC as u32),
        op(jump, 0, 3, libc::SYS_mmap as u32),
        op(load, 0, 0, 32),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 6),
        op(jump, 1, 0, 6),
        op(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
        op(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: numbers, and a filter that the kernel copies.
    let done = unsafe {
        match how {
            Denied::ByPrctl => libc::prctl(PR_SET_MDWE, 1, 0, 0, 0),
            Denied::BySeccomp | Denied::AndWrites => {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                let mode = libc::SECCOMP_MODE_FILTER;
                libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program)
            }
        }
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn sites_are_patched_where_memory_is_written_or_executable() {
    for how in [Denied::ByPrctl, Denied::BySeccomp] {
        for case in ["plain", "hoisted"] {
            let mut program = under(example("sites"), "kernel", "patch");
            // SAFETY: system calls only.
            unsafe { program.pre_exec(move || deny(how)) };
            let out = succeed(program.arg(case));
            assert_eq!((count(&out, "patched"), count(&out, "trapped")), (1, 0), "{case}");
        }
    }
}

#[test]
fn the_trap_is_set_at_start_where_text_cannot_be_patched() {
    for (case, engine, trapped) in [("full", "user", true), ("plain", "kernel", false)] {
        let mut program = under(example("sites"), engine, "auto");
        // SAFETY: system calls only.
        unsafe { program.pre_exec(|| deny(Denied::AndWrites)) };
        let out = succeed(program.arg(case));
        assert_eq!((count(&out, "patched"), count(&out, "trapped") > 0), (0, trapped), "{case}");
        assert!(count(&out, "gaps") > 0, "{case}");
    }
}

#[test]
fn the_trap_is_not_set_under_a_thread_that_blocks_it() {
    let out = under(example("sites"), "user", "auto").arg("masked").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("setup answered -1"), "{said}");
}

#[test]
fn vfork_by_number_returns_twice() {
    for intercept in ["auto", "none", "sigsys"] {
        site("vfork", "auto", intercept);
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
    let of = |intercept| {
        let out = site("loop", "kernel", intercept);
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    println!("plain: {}; patched: {}; trapped: {}", of("none"), of("patch"), of("sigsys"));
}

/// A library that makes one call on request, and one from its constructor.
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
