use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use proptest::prelude::*;

fn of(text: &str) -> Spec {
    Spec::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn the_examples_of_the_documents_parse() {
    let spec = of("seed=7,short-read=0.05,eio=read:0.001,delay=p99:20ms,reorder=1.0,\
         short-write=1@op=write,path=*.wal,nth=3,cancel-late=0.5");
    assert_eq!(spec.seed, 7);
    let texts: Vec<String> = spec.entries.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "short-read=0.05",
            "eio=0.001@op=read",
            "delay=p99:20ms",
            "reorder=1",
            "short-write=1@op=write,path=*.wal,nth=3",
            "cancel-late=0.5",
        ]
    );
}

#[test]
fn presets_and_own_entries_combine_in_their_order() {
    let legal = of("legal").entries.len();
    let spec = of("legal,seed=3,short-read=0.2");
    assert_eq!((spec.seed, spec.entries.len()), (3, legal + 1));
    let calm = of("legal,delay=0").entries.pop();
    assert_eq!(calm.map(|e| (e.fault, e.chance)), Some((Fault::Delay, Chance::NEVER)));
    assert_eq!(of(&of("delay=0").to_string()), of("delay=0"));
    assert!(of("hostile").entries.len() > legal);
    assert!(of("legal").entries.iter().all(|e| e.fault != Fault::Eio));
}

#[test]
fn errors_point_at_the_column() {
    for (text, column, message) in [
        ("", 1, "an item is missing"),
        ("seed=1,", 8, "an item is missing"),
        ("seed=x", 6, "a seed must be a number, as 3"),
        ("seed=1,shrt-read=0.5", 8, "there is no fault shrt-read; did you mean short-read?"),
        ("lega", 1, "lega is neither a preset nor a fault; did you mean legal?"),
        ("eio", 1, "eio needs a chance, as eio=0.05"),
        ("eio=2", 5, "a chance is a number from 0 to 1, as 0.05"),
        ("eio=-1", 5, "a chance is a number from 0 to 1, as 0.05"),
        ("eio=0.0000000001", 5, "a chance has at most 9 digits behind the point"),
        ("delay=20", 7, "a time is a number with a unit (ns, us, ms, s), as 20ms"),
        ("delay=p0:20ms", 8, "a percentile is a number from 1 to 99"),
        ("delay=61s", 7, "a time is at most 60s"),
        ("eio=1@nth=0", 11, "nth counts from 1"),
        ("eio=1@op=read,op=write", 15, "op is given twice"),
        ("eio=1@kind=disk", 12, "there is no kind disk; kinds: file, block, pipe, socket, other"),
        (
            "eio=1@colour=red",
            7,
            "a filter has no key colour; keys: op, path, kind, ring, request, nth",
        ),
        ("nth=3", 1, "nth belongs to a filter: FAULT=CHANCE@nth=..."),
    ] {
        let error = Spec::parse(text).unwrap_err();
        assert_eq!((error.column, error.message.as_str()), (column, message), "{text}");
    }
    let error = Spec::parse("eio=1@op=read+raed").unwrap_err();
    assert_eq!(error.column, 15);
    assert_eq!(error.point("eio=1@op=read+raed"), "eio=1@op=read+raed\n              ^");
}

fn entries() -> impl Strategy<Value = String> {
    let fault = prop::sample::select(Fault::ALL);
    let op = prop::sample::select(&["", "read", "FSYNC", "write+READV", "nop"][..]);
    let path = prop::sample::select(&["", "*.wal", "/data/**", "a\\,b"][..]);
    let rest = (0u32..4, 0u32..4, 0u64..4, 0usize..6);
    (fault, 0u32..=1_000_000_000, 0u8..100, op, path, rest).prop_map(
        |(fault, parts, percent, op, path, (nth, ring, request, kind))| {
            let chance = Chance::of_billion(parts).unwrap_or(Chance::NEVER);
            let mut text = match (fault.takes_time(), percent) {
                (false, _) => format!("{}={chance}", fault.name()),
                (true, 0) => format!("{}={chance}:{parts}ns", fault.name()),
                (true, p) => format!("{}={chance}:p{p}:{parts}us", fault.name())
                    .replace("0us", "us")
                    .replace(":us", ":1us"),
            };
            let mut filters = Vec::new();
            if !op.is_empty() {
                filters.push(format!("op={op}"));
            }
            if !path.is_empty() {
                filters.push(format!("path={path}"));
            }
            if let Some(kind) = Kind::ALL.get(kind) {
                filters.push(format!("kind={}", kind.name()));
            }
            if nth > 0 {
                filters.push(format!("nth={nth}"));
            }
            if ring > 0 {
                filters.push(format!("ring={ring}"));
            }
            if request > 0 {
                filters.push(format!("request={request}"));
            }
            if !filters.is_empty() {
                text = format!("{text}@{}", filters.join(","));
            }
            text
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(seed: u64, list in prop::collection::vec(entries(), 0..6)) {
        let mut text = format!("seed={seed}");
        for entry in &list {
            text.push(',');
            text.push_str(entry);
        }
        if let Ok(spec) = Spec::parse(&text) {
            prop_assert_eq!(spec.entries.len(), list.len());
            prop_assert_eq!(Spec::parse(&spec.to_string()), Ok(spec));
        } else {
            // Only a time can be too long.
            prop_assert!(text.contains("delay="), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9@=:,.+\\\\*é-]{0,40}") {
        if let Err(e) = Spec::parse(&text) {
            prop_assert!(e.column <= text.chars().count() + 1);
            let _ = e.point(&text);
        }
    }
}
