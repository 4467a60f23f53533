//! `docs/SUPPORT.md`, written from the engine's tables.

use softring_engine::abi::{IORING_SETUP_ALL, SETUP_NAMES};
use softring_engine::opdef::{OPS, Support};
use softring_engine::syscall::register::REGISTERS;
use softring_engine::syscall::setup;
use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Generated from the engine's tables; `make support` writes it anew. -->
# What softring supports

The opcodes, register calls and setup flags of Linux 6.18, in the kernel's order. *Yes*: as the
kernel. *Partly*: as the kernel but for what the note says. *No*: refused as a kernel refuses what
it does not know, and the probe says so.
";

/// The whole file.
pub fn markdown() -> String {
    let ops = OPS.iter().map(|r| (r.name, r.since, r.support));
    let regs = REGISTERS.iter().map(|r| (r.name, r.since, r.support));
    let mut out = String::from(HEAD);
    table(&mut out, "Operations", "IORING_OP_", ops);
    table(&mut out, "Register calls", "IORING_", regs);
    flags(&mut out);
    out
}

fn table(
    out: &mut String,
    title: &str,
    prefix: &str,
    rows: impl Iterator<Item = (&'static str, &'static str, Support)> + Clone,
) {
    let all = rows.clone().count();
    let there = rows.clone().filter(|r| r.2 != Support::Refused).count();
    line(out, format_args!("\n## {title}: {there} of {all}\n"));
    line(out, format_args!("| | since | supported |\n|---|---|---|"));
    for (name, since, support) in rows {
        let name = name.strip_prefix(prefix).unwrap_or(name);
        line(out, format_args!("| {name} | {since} | {} |", word(support)));
    }
}

fn word(support: Support) -> String {
    match support {
        Support::Full => "yes".into(),
        Support::Partial(note) => format!("partly: {note}"),
        Support::Refused => "no".into(),
    }
}

fn flags(out: &mut String) {
    let all = IORING_SETUP_ALL.count_ones();
    line(out, format_args!("\n## Setup flags: {} of {all}\n", setup::FLAGS.count_ones()));
    line(out, format_args!("| | supported |\n|---|---|"));
    for (bit, name) in SETUP_NAMES.iter().enumerate() {
        let there = setup::FLAGS >> bit & 1 == 1;
        line(out, format_args!("| {name} | {} |", if there { "yes" } else { "no" }));
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
