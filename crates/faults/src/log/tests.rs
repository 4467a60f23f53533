use super::{Head, Line};
use alloc::format;
use alloc::string::{String, ToString};
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_line_parses_back(
        ring in any::<u32>(),
        request in any::<u64>(),
        value in any::<u64>(),
        pid in any::<u32>(),
        path in proptest::option::of(any::<String>()),
        op in "[A-Z_]{1,12}",
    ) {
        let fault = String::from("short-read");
        let line = Line { ring, request, op, fault, value, pid, path };
        let text = line.to_string();
        prop_assert!(!text.contains('\n'));
        prop_assert_eq!(Line::parse(&text), Ok(line));
    }

    #[test]
    fn no_text_makes_the_parser_panic(
        text in any::<String>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = Line::parse(&text);
        let line = Line { path: Some(text), ..Line::default() }.to_string();
        let at = cut.index(line.len());
        if line.is_char_boundary(at) {
            let _ = Line::parse(&line[..at]);
        }
    }
}

#[test]
fn a_head_parses_back_and_other_versions_are_refused() {
    let head = Head { spec: "seed=7,eio=1@path=\\,\"".into() };
    assert_eq!(Head::parse(&head.to_string()), Ok(head));
    for bad in ["", "{}", "{\"softring-faults\":2,\"spec\":\"\"}", "[1]"] {
        assert!(Head::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(
        format!("{}", Line { fault: "eio".into(), op: "READ".into(), ..Line::default() }),
        "{\"ring\":0,\"request\":0,\"op\":\"READ\",\"fault\":\"eio\",\"value\":0,\"pid\":0}"
    );
}
