//! House rules that no compiler checks: sizes, banned words, places of unsafe code, and source
//! files that no module tree reaches. Every finding names what to do instead.

#[allow(dead_code)]
mod sources;

use sources::{Function, Source, functions, is_word, sources, strip, top};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_CODE_LINES: usize = 400;
const MAX_FUNCTION_CODE_LINES: usize = 70;
const MAX_LINE_CHARS: usize = 100;

/// A word that must not be in the sources, and its replacement. The words are put together from
/// halves so that this file does not find itself.
struct Ban {
    word: &'static str,
    instead: &'static str,
}

const BANS: &[Ban] = &[
    Ban { word: concat!("FIX", "ME"), instead: "fix it, or say in LIMITATIONS what is missing" },
    Ban { word: concat!("TO", "DO"), instead: "do it, or say in LIMITATIONS what is missing" },
    Ban { word: concat!("XX", "X"), instead: "say in plain words what is unusual, and why" },
    Ban { word: concat!("HA", "CK"), instead: "say in plain words what is unusual, and why" },
    Ban { word: concat!("to", "do!"), instead: "answer as the kernel answers for the unknown" },
    Ban {
        word: concat!("unimplem", "ented!"),
        instead: "answer as the kernel answers for the unknown",
    },
    Ban { word: concat!("/ro", "ot"), instead: "a path relative to the repository, or $HOME" },
    Ban { word: concat!("/wo", "rk"), instead: "a path relative to the repository" },
    Ban { word: concat!("/ho", "me"), instead: "a path relative to the repository, or $HOME" },
];

/// Returns whether `word` is in `line` on its own. A path also matches if more path follows, but
/// not if it is the tail of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let path = word.starts_with('/');
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].bytes().next_back();
        let after = line[at + word.len()..].bytes().next();
        let joined = |b: u8| is_word(b) || path && b"}.)-/*~".contains(&b);
        !before.is_some_and(joined) && (word.ends_with('!') || !after.is_some_and(is_word))
    })
}

fn code_lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}\n", findings.join("\n  "));
}

#[test]
fn files_are_short() {
    let mut findings = Vec::new();
    for source in sources(&[".rs", ".sh", ".ci/run"]) {
        let count = code_lines(&source.code);
        if count > MAX_FILE_CODE_LINES {
            findings.push(format!("{}: {count} lines of code", source.name));
        }
    }
    report("more than 400 lines of code; split the file by mechanism, one noun each", &findings);
}

/// Tests the length of lines.
#[test]
fn lines_are_short() {
    let mut findings = Vec::new();
    for source in sources(&[".rs", ".sh", ".ci/run"]) {
        for (index, line) in source.text.lines().enumerate() {
            // A row of a table stays one line, in a comment or in a list of cases.
            let line_text = line.trim_start().trim_start_matches(['/', '!', ' ']);
            let row = line_text.starts_with('|')
                || ["case!(", "any_order!(", "legal!(", "newest!("]
                    .iter()
                    .any(|row| line_text.starts_with(row));
            if line.chars().count() > MAX_LINE_CHARS && !row {
                findings.push(format!("{}:{}", source.name, index + 1));
            }
        }
    }
    report("more than 100 columns; break the line", &findings);
}

#[test]
fn functions_are_short() {
    let mut findings = Vec::new();
    for source in sources(&[".rs"]) {
        for Function { name, line, text, .. } in functions(&source.code) {
            let count = code_lines(text);
            if count > MAX_FUNCTION_CODE_LINES {
                findings.push(format!("{}:{line}: fn {name} has {count} lines", source.name));
            }
        }
    }
    report("more than 70 lines of code; give each step a name of its own", &findings);
}

#[test]
fn banned_words() {
    let mut findings = Vec::new();
    for source in sources(&[".rs", ".sh", ".toml", ".md", ".tsv", ".ci/run", "Makefile"]) {
        for (index, line) in source.text.lines().enumerate() {
            for ban in BANS.iter().filter(|ban| has_word(line, ban.word)) {
                let Ban { word, instead } = ban;
                findings.push(format!("{}:{}: {word}: {instead}", source.name, index + 1));
            }
        }
    }
    report("banned words, each with what to write instead", &findings);
}

/// Tests that no document has a paragraph twice.
#[test]
fn documents_say_things_once() {
    const LONG: usize = 100;
    let mut findings = Vec::new();
    for source in sources(&[".md"]) {
        let mut seen = std::collections::HashMap::new();
        let long = |(_, line): &(usize, &str)| line.chars().count() >= LONG;
        for (index, line) in source.text.lines().enumerate().filter(long) {
            if let Some(first) = seen.insert(line, index + 1) {
                findings.push(format!("{}:{}, as line {first}", source.name, index + 1));
            }
        }
    }
    report("long lines that stand there twice; keep the better place", &findings);
}

/// Tests that only modules allow unsafe code: rustc refuses it outside of `allow(unsafe_code)`.
#[test]
fn unsafe_stays_in_named_modules() {
    let mut findings = Vec::new();
    for source in sources(&[".rs"]) {
        let lines: Vec<&str> = source.code.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let item = line.trim().starts_with("#[allow(unsafe_code");
            let next = lines.get(index + 1).map_or("", |line| line.trim());
            if item && !next.starts_with("mod ") {
                findings.push(format!("{}:{}", source.name, index + 1));
            }
        }
    }
    report(
        "unsafe code lives in modules that say so at their top; move the item into one",
        &findings,
    );
}

/// Returns the files that `mod name;` and `include!` in `file` name, whether they exist or not.
fn children(file: &Path, source: &Source) -> Vec<PathBuf> {
    let dir = file.parent().expect("a file lies in a directory");
    let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
    let root = dir.ends_with("src/bin")
        || ["tests", "examples", "benches"].iter().any(|d| dir.ends_with(d));
    let own = if root || ["lib", "main", "mod", "build"].contains(&stem.as_str()) {
        dir.to_path_buf()
    } else {
        dir.join(&stem)
    };
    let mut found = Vec::new();
    let mut path_attribute = None;
    if source.code.contains("mod $") {
        // a macro declares the modules: any word may name one
        let words = source.code.split(|c: char| !c.is_alphanumeric() && c != '_');
        found.extend(words.filter(|w| !w.is_empty()).map(|w| own.join(format!("{w}.rs"))));
    }
    for (code, text) in source.code.lines().zip(source.text.lines()) {
        let quoted = text.split('"').nth(1);
        if code.trim().starts_with("#[path") {
            path_attribute = quoted;
        } else if code.contains("include!(") {
            found.extend(quoted.map(|name| dir.join(name)));
        } else if let Some(name) = module_name(code) {
            if let Some(name) = path_attribute.take() {
                found.push(dir.join(name));
            } else {
                found.push(own.join(format!("{name}.rs")));
                found.push(own.join(name).join("mod.rs"));
            }
        }
    }
    found
}

/// Returns `name` if the line is `mod name;`, with any visibility.
fn module_name(line: &str) -> Option<&str> {
    let line = line.trim().strip_suffix(';')?;
    let (before, name) = line.rsplit_once("mod ")?;
    let visibility = before.trim();
    let plain = visibility.is_empty() || visibility.starts_with("pub") || visibility.ends_with(']');
    (plain && name.bytes().all(is_word)).then_some(name)
}

/// Returns whether cargo compiles the file on its own.
fn is_root(path: &Path) -> bool {
    let dir = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let crate_dir = |d: &Path| d.parent().is_some_and(|up| up.join("Cargo.toml").exists());
    match &*name {
        "build.rs" => dir.join("Cargo.toml").exists(),
        "lib.rs" | "main.rs" if dir.ends_with("src") => crate_dir(dir),
        "main.rs" => {
            let places = ["tests", "examples", "src/bin"];
            dir.parent().is_some_and(|up| places.iter().any(|p| up.ends_with(p)))
        }
        _ => {
            dir.ends_with("src/bin")
                || ["tests", "examples", "benches"].iter().any(|d| dir.ends_with(d))
                    && crate_dir(dir)
        }
    }
}

#[test]
fn no_dead_files() {
    let top = top();
    let all = sources(&[".rs"]);
    let mut reached = BTreeSet::new();
    let mut open: Vec<PathBuf> =
        all.iter().map(|s| top.join(&s.name)).filter(|path| is_root(path)).collect();
    while let Some(path) = open.pop() {
        let path = path.canonicalize().unwrap_or(path);
        if !reached.insert(path.clone()) {
            continue;
        }
        let name = path.strip_prefix(&top).unwrap_or(&path).display().to_string();
        if let Some(source) = all.iter().find(|source| source.name == name) {
            open.extend(children(&path, source).into_iter().filter(|child| child.exists()));
        }
    }
    let dead: Vec<String> = all
        .iter()
        .filter(|source| !reached.contains(&top.join(&source.name)))
        .map(|source| source.name.clone())
        .collect();
    report("no module tree reaches these files; add a `mod` line or remove them", &dead);
}

#[test]
fn the_checker_reads_rust() {
    let code = strip("let a = \"fn x() {\"; // fn y() {\nlet c = '{'; let r = r#\"}\"#; &'a b");
    assert_eq!(code.matches(['{', '}']).count(), 0, "{code}");
    assert!(code.contains("&'a b"), "{code}");
    let found = functions("fn a() {\n    b();\n\n}\nfn c(x: [u8; 2]);\nfn d() { if e { f() } }\n");
    let found: Vec<_> = found.iter().map(|f| (f.name, f.line, code_lines(f.text))).collect();
    assert_eq!(found, [("a", 1, 3), ("d", 6, 1)]);
    let home = concat!("/ho", "me");
    assert!(has_word(&format!("cd {home}/me"), home));
    assert!(!has_word(&format!("target{home}"), home));
    assert_eq!(module_name("    pub(crate) mod sq;"), Some("sq"));
    assert_eq!(module_name("use a::mod_b;"), None);
}

/// Tests that `docs/INTERCEPTION.md` names every system call that softring makes.
#[test]
fn interception_md_names_every_call() {
    let part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut made = BTreeSet::new();
    for file in sources(&[".rs"]) {
        let of = ["crates/engine/src", "crates/host/src", "crates/preload/src"];
        if of.iter().any(|of| file.name.starts_with(of)) {
            let calls = file.text.split("__NR_").skip(1);
            made.extend(
                calls.filter_map(|s| s.split(|c| !part_of_name(c)).next()).map(str::to_owned),
            );
        }
    }
    assert!(made.len() > 100, "{made:?}");
    let text = fs::read_to_string(top().join("docs/INTERCEPTION.md")).expect("a document");
    let section = text.split("\n## ").find(|s| s.starts_with("What softring asks")).expect("it");
    let rows = section.lines().filter(|l| l.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').skip(1).take(2));
    let named: BTreeSet<_> = cells.flat_map(|c| c.split(|c| !part_of_name(c))).collect();
    let left: Vec<_> = made.iter().filter(|call| !named.contains(call.as_str())).collect();
    assert!(
        left.is_empty(),
        "docs/INTERCEPTION.md, \"What softring asks of the system\", lacks {left:?}"
    );
}
