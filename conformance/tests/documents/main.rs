//! Documents of the repository: links lead somewhere, the book has every chapter, statements in two
//! places are the same, names of code exist, and item docs open with their noun.

mod markdown;
mod names;
mod openers;
#[path = "../sources/mod.rs"]
#[allow(dead_code)]
mod sources;

use markdown::{Page, slug};
use names::Code;
use sources::{sources, top};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn pages() -> BTreeMap<PathBuf, Page> {
    let read = |source: sources::Source| (PathBuf::from(&source.name), Page::read(&source.text));
    sources(&[".md"]).into_iter().map(read).collect()
}

fn text(name: &str) -> String {
    fs::read_to_string(top().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns a path without `..` and `.`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn links_have_targets() {
    let pages = pages();
    let mut broken = Vec::new();
    for (name, page) in &pages {
        for (line, link) in &page.links {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let dir = name.parent().unwrap_or(Path::new(""));
            let target = if path.is_empty() { name.clone() } else { plain(&dir.join(path)) };
            let there = top().join(&target).exists();
            let heading = |page: &Page| page.headings.iter().any(|h| slug(h) == anchor);
            if !there || !anchor.is_empty() && !pages.get(&target).is_some_and(heading) {
                broken.push(format!("{}:{line}: {link}", name.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// Tests that documents exist which programs and messages name without a link.
#[test]
fn named_documents_exist() {
    let mut missing = Vec::new();
    for source in sources(&[".rs", ".md", ".sh", "Makefile", ".txt"]) {
        for (at, _) in source.text.match_indices("docs/") {
            let rest = &source.text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)));
            let named = &rest[..end.unwrap_or(rest.len())];
            let name = named.find(".md").map(|end| &named[..end + 3]);
            if let Some(name) = name.filter(|name| !top().join(name).exists()) {
                missing.push(format!("{}: {name}", source.name));
            }
        }
    }
    assert!(missing.is_empty(), "documents that are not there:\n{}", missing.join("\n"));
}

#[test]
fn the_book_has_every_chapter() {
    let summary = Page::read(&text("docs/SUMMARY.md"));
    let chapters: Vec<PathBuf> =
        summary.links.iter().map(|(_, link)| plain(&Path::new("docs").join(link))).collect();
    for page in pages().keys() {
        let chapter = page.starts_with("docs") && page.parent() == Some(Path::new("docs"));
        if chapter && !page.ends_with("SUMMARY.md") {
            assert!(chapters.contains(page), "docs/SUMMARY.md lacks {}", page.display());
        }
    }
    assert_eq!(chapters[0], Path::new("README.md"));
}

/// Tests that names in code spans of these documents are in the sources.
#[test]
fn names_in_code_spans_exist() {
    let code = Code::read(sources(&[".rs", ".sh", ".h", ".c", ".toml", ".md", ".txt", ".ci/run"]));
    for span in [concat!("NoSuch", "Name"), "Ctx::no_such", "io::no_such", "no/such/file.rs"] {
        assert!(code.lacks(span).is_some(), "the checker finds {span}");
    }
    let mut missing = Vec::new();
    for name in ["ORDERING", "ARCHITECTURE", "POLLING", "STATS", "INTERCEPTION", "LIMITATIONS"] {
        let name = format!("docs/{name}.md");
        for (line, span) in &Page::read(&text(&name)).spans {
            missing.extend(code.lacks(span).map(|why| format!("{name}:{line}: `{span}`: {why}")));
        }
    }
    assert!(
        missing.is_empty(),
        "names that no source has; correct the document, or add a name of the kernel's to \
         conformance/tests/documents/foreign.txt:\n{}",
        missing.join("\n")
    );
}

/// Tests that ORDERING.md names every word that is read or written with an ordering of its own.
#[test]
fn ordering_names_every_word() {
    /// Names of parameters and variables: the word has another one.
    const LOCAL: &[&str] = &["cell", "fetched", "shared_head", "slot_of", "theirs", "users", "w"];
    let page = text("docs/ORDERING.md").to_lowercase();
    let words: BTreeSet<&str> = page.split(|c: char| !is_name(c)).collect();
    let mut missing = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let of = ["engine", "host", "preload"].map(|name| format!("crates/{name}/src/"));
        let tests = ["verify/", "tests", "examples"].iter().any(|part| source.name.contains(part));
        if tests || !of.iter().any(|of| source.name.starts_with(of)) {
            continue;
        }
        let code = source.code.split("#[cfg(test)]").next().unwrap_or_default();
        for word in ordered_words(code) {
            if !LOCAL.contains(&word) && !words.contains(word.to_lowercase().as_str()) {
                missing.insert(format!("{}: {word}", source.name));
            }
        }
    }
    let all: Vec<String> = missing.into_iter().collect();
    assert!(all.is_empty(), "docs/ORDERING.md does not name these:\n{}", all.join("\n"));
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the words whose loads, stores and exchanges are not relaxed.
fn ordered_words(code: &str) -> Vec<&str> {
    const CALLS: &[&str] = &[".load(", ".store(", ".swap(", ".fetch_", ".compare_exchange"];
    const ORDERS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
    let mut found = Vec::new();
    for (at, call) in CALLS.iter().flat_map(|call| code.match_indices(call)) {
        let rest = &code[at + call.len()..];
        let arguments = &rest[..rest.find([';', '{', '}']).unwrap_or(rest.len()).min(120)];
        if !ORDERS.iter().any(|order| arguments.contains(order)) {
            continue;
        }
        let mut word = code[..at].trim_end();
        while let Some(open) = word.ends_with([')', ']']).then(|| word.rfind(['(', '['])).flatten()
        {
            word = &word[..open];
        }
        let start = word.rfind(|c: char| !is_name(c)).map_or(0, |at| at + 1);
        found.extend(Some(&word[start..]).filter(|word| !word.is_empty()));
    }
    found
}

#[test]
fn item_docs_open_with_their_noun() {
    let mut found = Vec::new();
    let is_source = |name: &str| name.starts_with("crates/") || name.starts_with("conformance/src");
    for source in sources(&[".rs"]).iter().filter(|source| is_source(&source.name)) {
        let lines = openers::findings(source).into_iter();
        found.extend(lines.map(|(line, text)| format!("{}:{line}: {text}", source.name)));
    }
    assert!(
        found.is_empty(),
        "item docs that open with no noun (openers.rs lists the words); name the thing:\n{}",
        found.join("\n")
    );
}

/// Returns the rows of the table under a heading, as lists of cells.
fn rows(text: &str, first_cell: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    };
    let mut lines = text.lines().skip_while(|l| !l.starts_with(&format!("| {first_cell}")));
    let head = lines.next().unwrap_or_else(|| panic!("no table whose head is {first_cell}"));
    let body = lines.skip(1).take_while(|line| line.starts_with('|'));
    [head].into_iter().chain(body).map(cells).collect()
}

/// Tests that the README's figures are those that docs/PERFORMANCE.md measured.
#[test]
fn figures_of_the_readme_were_measured() {
    let measured = rows(&text("docs/PERFORMANCE.md"), "operations per second");
    let shown = rows(&text("README.md"), "operations per second");
    assert_eq!(shown.len(), 7, "six figures");
    for row in &shown {
        assert!(row.len() > 3 && measured.iter().any(|m| m.starts_with(row)), "{row:?}");
    }
}

/// Tests that the README names the toolchain that Cargo.toml asks for.
#[test]
fn the_readme_names_the_rust_version() {
    let manifest = text("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.expect("a version").trim_matches('"');
    assert!(text("README.md").contains(&format!("Rust {version} ")), "Rust {version}");
}

#[test]
fn the_reader_reads_markdown() {
    let page = Page::read(
        "# One `two`, three\n[a](b.md#c) `[no](d)`\n```\n[no](e)\n# no\n```\n![p](f.svg)\n\
         [long\ntext](g)\n",
    );
    assert_eq!(page.headings, ["One `two`, three"]);
    let links: Vec<&str> = page.links.iter().map(|link| link.1.as_str()).collect();
    assert_eq!(links, ["b.md#c", "f.svg", "g"]);
    assert_eq!(slug("One `two`, three"), "one-two-three");
    assert_eq!(slug("C and Rust: a_b (c-d)"), "c-and-rust-a_b-c-d");
}
