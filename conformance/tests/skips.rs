//! No test is skipped silently: where a test returns early, the condition is one that reports the
//! reason by `skipped!`.

#[allow(dead_code)]
mod sources;

use sources::{Function, Source, functions, is_word, sources};
use std::collections::{BTreeMap, BTreeSet};

fn is_test(f: &Function<'_>) -> bool {
    f.before.contains("#[test]")
}

/// Returns the names that the text calls.
fn calls(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('(').filter_map(|(at, _)| {
        let before = text[..at].bytes().rev().take_while(|b| is_word(*b)).count();
        (before > 0).then(|| &text[at - before..at])
    })
}

fn reports(text: &str, reporters: &BTreeSet<&str>) -> bool {
    text.contains("skipped!") || calls(text).any(|name| reporters.contains(name))
}

/// Returns the functions of a crate that report a skip, themselves or by what they call.
fn reporters<'a>(all: &[Function<'a>]) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    loop {
        let more = all.iter().filter(|f| !is_test(f) && reports(f.text, &found));
        let more: BTreeSet<&str> = more.map(|f| f.name).collect();
        if more.len() == found.len() {
            return found;
        }
        found = more;
    }
}

/// Returns the lines of a test, counted from its first, that return early and report nothing.
fn silent(test: &Function<'_>, reporters: &BTreeSet<&str>) -> Vec<usize> {
    let returns = test.text.match_indices("return").filter(|(at, word)| {
        let after = test.text[at + word.len()..].trim_start();
        after.starts_with([';', '}']) || after.starts_with("Ok(())")
    });
    let unreported = returns.filter(|(at, _)| {
        // The statement before the block is its condition; the block itself may report, too.
        let before = &test.text[..*at];
        let block = before.rfind('{').unwrap_or(0);
        let condition = before[..block].rfind(['{', ';', '}']).unwrap_or(0);
        !reports(&before[condition..], reporters)
    });
    unreported.map(|(at, _)| test.text[..at].matches('\n').count()).collect()
}

/// Returns the crate that a file belongs to.
fn owner(source: &Source) -> &str {
    let end = source.name.find("/src/").or_else(|| source.name.find("/tests/"));
    &source.name[..end.unwrap_or(0)]
}

#[test]
fn early_returns_report_a_skip() {
    let sources = sources(&[".rs"]);
    let mut crates: BTreeMap<&str, Vec<(&Source, Function<'_>)>> = BTreeMap::new();
    for source in &sources {
        let of_crate = crates.entry(owner(source)).or_default();
        of_crate.extend(functions(&source.code).into_iter().map(|f| (source, f)));
    }
    let mut findings = Vec::new();
    for (_, all) in crates {
        let (files, functions): (Vec<&Source>, Vec<Function<'_>>) = all.into_iter().unzip();
        let reporters = reporters(&functions);
        for (source, test) in files.iter().zip(&functions).filter(|(_, f)| is_test(f)) {
            for line in silent(test, &reporters) {
                findings.push(format!("{}:{}: {}", source.name, test.line + line, test.name));
            }
        }
    }
    let all = findings.join("\n  ");
    assert!(findings.is_empty(), "a test returns early; report the reason by skipped!:\n  {all}");
}

#[test]
fn a_silent_return_is_found() {
    let code = "fn has() -> bool { skipped!(); false }\nfn quiet() -> bool { false }\n\
        #[test]\nfn good() {\n if !has() {\n  return;\n }\n}\n\
        #[test]\nfn bad() {\n if !quiet() {\n  return;\n }\n}\n";
    let all = functions(code);
    let reporters = reporters(&all);
    assert_eq!(reporters, BTreeSet::from(["has"]));
    let found = |name| silent(all.iter().find(|f| f.name == name).unwrap(), &reporters);
    assert_eq!((found("good"), found("bad")), (vec![], vec![2]));
}
