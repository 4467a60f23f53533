//! Every row that softring supports has a case; every trap of the design has one, too.

use softring_conformance::case::{self, Cover};
use softring_conformance::{coverage, known};
use softring_engine::abi::{IORING_OP_LAST, OP_NAMES, REGISTER_NAMES, SETUP_NAMES};
use softring_engine::opdef::OPS;

fn covered(wanted: Cover) -> bool {
    case::all().any(|c| c.covers.contains(&wanted))
}

#[test]
fn every_supported_opcode_has_a_case() {
    let wanted = |op: &u8| OPS[usize::from(*op)].supported() || coverage::OPS.contains(op);
    let ops = (0..IORING_OP_LAST).filter(wanted).filter(|op| !covered(Cover::Op(*op)));
    let missing: Vec<_> = ops.map(|op| OP_NAMES[usize::from(op)]).collect();
    assert!(missing.is_empty(), "no case covers {missing:?}: add one to conformance/src/case");
}

#[test]
fn every_register_opcode_has_a_case() {
    let ops = coverage::registers().filter(|op| !covered(Cover::Reg(*op)));
    let missing: Vec<_> = ops.map(|op| REGISTER_NAMES[op as usize]).collect();
    assert!(missing.is_empty(), "no case covers {missing:?}: add one to conformance/src/case");
}

#[test]
fn every_setup_flag_has_a_case() {
    let polled = ["SQPOLL"];
    let flags = (0..SETUP_NAMES.len()).filter(|bit| !covered(Cover::Setup(1 << bit)));
    let missing: Vec<_> = flags.map(|b| SETUP_NAMES[b]).filter(|n| !polled.contains(n)).collect();
    assert!(missing.is_empty(), "no case covers {missing:?}: add one to conformance/src/case");
}

#[test]
fn every_sqe_and_enter_flag_has_a_case() {
    // Bit 5 is BUFFER_SELECT; enter's bits 1 and 2 are SQPOLL's.
    let sqe = (0..7).filter(|bit| *bit != 5 && !covered(Cover::Sqe(1 << bit)));
    let enter = (0..8).filter(|bit| ![1, 2].contains(bit) && !covered(Cover::Enter(1 << bit)));
    let missing: Vec<_> = sqe.chain(enter).collect();
    assert!(missing.is_empty(), "no case covers the SQE or enter flags of bits {missing:?}");
}

#[test]
fn every_trap_of_the_design_has_a_case() {
    let traps = [
        "SQ array",
        "to_submit 0",
        "submitted count",
        "spin",
        "overflow",
        "blocking descriptors",
        "close",
        "SIGSYS",
        "vfork",
        "fork",
        "patched call site",
    ];
    let missing: Vec<_> = traps.into_iter().filter(|t| !covered(Cover::Trap(t))).collect();
    assert!(missing.is_empty(), "no case covers {missing:?}");
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = case::all().map(case::Case::path).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "two cases have one name");
}

#[test]
fn known_differences_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/LIMITATIONS.md");
    let text = std::fs::read_to_string(path).expect("docs/LIMITATIONS.md can be read");
    for k in known::KNOWN {
        assert!(text.contains(k.words), "docs/LIMITATIONS.md does not say {:?}", k.words);
        assert!(!case::matching(k.case).is_empty(), "no case matches {:?}", k.case);
    }
}

#[test]
fn patterns_match_as_a_shell_does() {
    for (pattern, text, want) in [
        ("*", "rw::read", true),
        ("rw::*", "rw::read", true),
        ("*read", "rw::read", true),
        ("*read", "rw::readv", false),
        ("read", "rw::readv", true),
        ("open*", "rw::open", false),
    ] {
        assert_eq!(case::glob(pattern, text), want, "{pattern} {text}");
    }
}
