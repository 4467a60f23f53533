//! Coverage of the cases: every row that softring supports has a case, and so has every trap of the
//! design.

use softring_conformance::case::{self, Cover};
use softring_conformance::{coverage, known};
use softring_uapi::{ENTER_NAMES, OP_NAMES, REGISTER_NAMES, SETUP_NAMES, SQE_NAMES};

fn covered(wanted: Cover) -> bool {
    case::all().any(|c| c.covers.contains(&wanted))
}

#[test]
fn every_supported_opcode_has_a_case() {
    let ops = coverage::ops().filter(|op| !covered(Cover::Op(*op)));
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
    let flags = (0..SETUP_NAMES.len()).filter(|bit| !covered(Cover::Setup(1 << bit)));
    let missing: Vec<_> = flags.map(|b| SETUP_NAMES[b]).collect();
    assert!(missing.is_empty(), "no case covers {missing:?}: add one to conformance/src/case");
}

#[test]
fn every_sqe_and_enter_flag_has_a_case() {
    let sqe = (0..SQE_NAMES.len()).filter(|bit| !covered(Cover::Sqe(1 << bit)));
    let sqe: Vec<_> = sqe.map(|b| SQE_NAMES[b]).collect();
    assert!(sqe.is_empty(), "no case covers {sqe:?}");
    let enter = (0..ENTER_NAMES.len()).filter(|bit| !covered(Cover::Enter(1 << bit)));
    let enter: Vec<_> = enter.map(|b| ENTER_NAMES[b]).collect();
    assert!(enter.is_empty(), "no case covers {enter:?}");
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
        "NEED_WAKEUP",
        "IOPOLL",
    ];
    let missing: Vec<_> = traps.into_iter().filter(|t| !covered(Cover::Trap(t))).collect();
    assert!(missing.is_empty(), "no case covers {missing:?}");
}

/// Tests that two traps which no ring shows have a test with the library: a program that reads the
/// ring of kernel aio after a peek at its magic number, and text that is loaded while other threads
/// run.
#[test]
fn other_traps_have_a_library_test() {
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/preload/");
    for (file, test) in [
        ("examples/aio/polled.rs", "fn polled_unmarked("),
        ("tests/aio.rs", "fn contexts_of_polled_iocbs("),
        (
            "tests/entry_points.rs",
            "fn a_library_opened_later_is_patched_before_its_constructors_run(",
        ),
    ] {
        let text = std::fs::read_to_string(format!("{library}{file}")).expect(file);
        assert!(text.contains(test), "{file} has no {test}");
    }
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
    // A quotation may lie across the end of a line.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let old = known::OLD.iter().map(|(case, _, words)| (*case, *words));
    for (case, words) in known::KNOWN.iter().map(|k| (k.case, k.words)).chain(old) {
        assert!(text.contains(words), "docs/LIMITATIONS.md does not say {words:?}");
        assert!(!case::matching(case).is_empty(), "no case matches {case:?}");
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
