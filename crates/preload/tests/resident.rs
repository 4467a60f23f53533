//! Resident memory of a library, without softring and with it.

mod common;

use common::{count, example, library, link, succeed};
use std::path::Path;
use std::process::Command;

/// A library of 50 MB of text with one call site of io_uring's in its middle.
const BIG: &str = "
    .text
    .fill 26214400, 1, 0x90
    .globl enter_later
    .type enter_later, @function
    .p2align 4
enter_later:
    .cfi_startproc
    mov $-1, %edi
    xor %esi, %esi
    xor %r10d, %r10d
    mov $426, %eax
    xor %edx, %edx
    syscall
    ret
    .cfi_endproc
    .size enter_later, . - enter_later
    .fill 26214400, 1, 0x90
    .section .note.GNU-stack, \"\", @progbits\n";

/// Returns the library's memory in KiB, resident and no longer the file's, and the number of
/// patched call sites.
fn resident(lib: &Path, preload: &[&Path]) -> (u64, u64, u64) {
    let mut c = Command::new(example("resident"));
    let preload: Vec<_> = preload.iter().map(|p| p.to_str().unwrap()).collect();
    c.arg(lib).env("LD_PRELOAD", preload.join(":")).env("SOFTRING_ENGINE", "user");
    c.env("SOFTRING_REPORT", "1").env("SOFTRING_QUIET", "1");
    let out = succeed(&mut c);
    let text = String::from_utf8(out.stdout.clone()).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let ours = preload.iter().any(|p| p.ends_with("libsoftring.so"));
    (numbers[0], numbers[1], if ours { count(&out, "patched") } else { 0 })
}

#[test]
fn text_that_was_scanned_is_not_left_resident() {
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("big.so");
    link(BIG, &lib, &["-shared"]);
    let ours = library();
    for (when, before) in [("opened later", &[][..]), ("there at start", &[lib.as_path()][..])] {
        let plain = resident(&lib, before);
        let with = resident(&lib, &[before, &[ours.as_path()][..]].concat());
        println!("{when}: resident {} KiB without us, {} KiB with us", plain.0, with.0);
        assert!(plain.0 < 1024, "{when}: {plain:?}");
        assert!(with.0 < plain.0 + 256, "{when}: {with:?}, not {plain:?}");
        // The page with the jump stays resident.
        assert_eq!((with.1 - plain.1, with.2), (4, 1), "{when}: {with:?}, not {plain:?}");
    }
}
