//! Text of `docs/SUPPORT.md`, from the engine's tables and from the known differences.

use crate::case::{Cover, NEWEST, OLDEST};
use crate::{known, show};
use softring_engine::OPS;
use softring_engine::Support;
use softring_engine::syscall::REGISTERS;
use softring_uapi::version::CHANGES;
use softring_uapi::*;
use std::fmt::Write as _;

const HEAD: &str = "\
<!-- Generated from the engine's tables; `make support` writes it anew. -->
# What softring supports

The opcodes, register calls and flags of Linux 7.2, in the kernel's order; what came after 6.18 is
unknown with `SOFTRING_ABI=6.18`. *Yes*: as the kernel.
*Partly*: as the kernel but for what the case in brackets shows (`conformance/src/case/`) and
`LIMITATIONS.md` explains. *No*: refused with this errno, as a kernel refuses what it was built
without, and the probe says so.
";

/// Returns the whole file.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    let ops = (0..).zip(&OPS).map(|(code, r)| (r.name, r.since, word(r.support, Cover::Op(code))));
    let regs =
        (0..).zip(&REGISTERS).map(|(code, r)| (r.name, r.since, word(r.support, Cover::Reg(code))));
    table(&mut out, "Operations", "IORING_OP_", ops);
    table(&mut out, "Register calls", "IORING_", regs);
    let setup = SETUP_NAMES.into_iter().zip(SETUP_SINCE);
    flags(&mut out, "Setup flags", setup, NEWEST.setup_flags, Cover::Setup);
    let sqe = SQE_NAMES.into_iter().zip(SQE_SINCE);
    flags(&mut out, "SQE flags", sqe, IOSQE_ALL.into(), |bit| Cover::Sqe(bit as u8));
    let enter = ENTER_NAMES.into_iter().zip(ENTER_SINCE);
    flags(&mut out, "Enter flags", enter, IORING_ENTER_ALL, Cover::Enter);
    changes(&mut out);
    out
}

fn table(
    out: &mut String,
    title: &str,
    prefix: &str,
    rows: impl Iterator<Item = (&'static str, &'static str, String)>,
) {
    let rows: Vec<_> = rows.collect();
    let there = rows.iter().filter(|r| !r.2.starts_with("no")).count();
    line(out, format_args!("\n## {title}: {there} of {}\n", rows.len()));
    line(out, format_args!("| | since | supported |\n|---|---|---|"));
    for (name, since, word) in rows {
        let name = name.strip_prefix(prefix).unwrap_or(name);
        line(out, format_args!("| {name} | {since} | {word} |"));
    }
}

fn word(support: Support, row: Cover) -> String {
    let shown = known::shown_by(row).map(|case| format!("`{case}`")).collect::<Vec<_>>().join(", ");
    let cases = if shown.is_empty() { shown } else { format!(" ({shown})") };
    match support {
        Support::Full if cases.is_empty() => "yes".into(),
        Support::Full => format!("partly{cases}"),
        Support::Partial(note) => format!("partly{cases}: {note}"),
        Support::Refused(errno) => {
            format!("no: {}", show::answer(errno.res().into()).trim_start_matches('-'))
        }
    }
}

/// Writes the changes after the oldest kernel whose ABI softring has.
fn changes(out: &mut String) {
    line(out, format_args!("\n## Changes after {}\n", OLDEST.name));
    line(out, format_args!("| since | what |\n|---|---|"));
    for (_, since, what) in CHANGES {
        line(out, format_args!("| {since} | {what} |"));
    }
}

fn flags(
    out: &mut String,
    title: &str,
    names: impl ExactSizeIterator<Item = (&'static str, &'static str)>,
    there: u32,
    cover: fn(u32) -> Cover,
) {
    line(out, format_args!("\n## {title}: {} of {}\n", there.count_ones(), names.len()));
    line(out, format_args!("| | since | supported |\n|---|---|---|"));
    for (bit, (name, since)) in (0..).map(|shift| 1 << shift).zip(names) {
        let refused = Support::Refused(softring_uapi::errno::Errno::EINVAL);
        let support = if there & bit == 0 { refused } else { Support::Full };
        line(out, format_args!("| {name} | {since} | {} |", word(support, cover(bit))));
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
