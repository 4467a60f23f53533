//! Files of the repository, as text and without what is not code.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Source {
    /// Path relative to the repository.
    pub name: String,
    pub text: String,
    /// The text with comments, strings and character literals blanked out; Rust files only.
    pub code: String,
}

pub fn top() -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    top.expect("the conformance crate lies one level below the repository").to_path_buf()
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    const OTHERS: &[&str] = &["target", ".git", "corpus"];
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || OTHERS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns every file of the repository whose name ends in one of `ends`, in order.
pub fn sources(ends: &[&str]) -> Vec<Source> {
    let top = top();
    let mut paths = Vec::new();
    walk(&top, &mut paths);
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&top).expect("below the top").display().to_string();
        if !ends.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let code = if name.ends_with(".rs") { strip(&text) } else { text.clone() };
        sources.push(Source { name, text, code });
    }
    assert!(!sources.is_empty(), "no source found: wrong top directory?");
    sources
}

/// Blanks out what is not code, byte for byte, so that line numbers stay.
pub fn strip(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = vec![b' '; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end == at {
            out[at] = bytes[at];
            at += 1;
            continue;
        }
        for index in at..end.min(bytes.len()) {
            if bytes[index] == b'\n' {
                out[index] = b'\n';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the end of the comment, string or character literal that starts at `at`; `at` if none
/// does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return find(bytes, at, b"\n");
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    let word_before = at > 0 && is_word(bytes[at - 1]);
    let raw = rest[0] == b'r' || rest.starts_with(b"br") || rest.starts_with(b"cr");
    if raw && !word_before {
        let from = at + if rest[0] == b'r' { 1 } else { 2 };
        let hashes = bytes[from..].iter().take_while(|b| **b == b'#').count();
        if bytes.get(from + hashes) == Some(&b'"') {
            let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            return find(bytes, from + hashes + 1, &close) + close.len();
        }
    }
    match rest {
        [b'"', ..] => quoted_end(bytes, at, b'"'),
        [b'\'', b'\\', ..] => quoted_end(bytes, at, b'\''),
        // a character, not a lifetime: the closing quote follows one character
        [b'\'', first, ..] => {
            let length = utf8_length(*first);
            if bytes.get(at + 1 + length) == Some(&b'\'') { at + length + 2 } else { at }
        }
        _ => at,
    }
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    let hit = bytes[from.min(bytes.len())..].windows(what.len()).position(|w| w == what);
    hit.map_or(bytes.len(), |offset| from + offset)
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut index) = (0, at);
    while index < bytes.len() {
        if bytes[index..].starts_with(b"/*") {
            depth += 1;
            index += 2;
        } else if bytes[index..].starts_with(b"*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += 1;
        }
    }
    index
}

fn quoted_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut index = at + 1;
    while index < bytes.len() && bytes[index] != quote {
        index += if bytes[index] == b'\\' { 2 } else { 1 };
    }
    index + 1
}

fn utf8_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A function of the sources, with its body.
pub struct Function<'a> {
    pub name: &'a str,
    /// Number of the line where it begins.
    pub line: usize,
    /// The function from its `fn` to the end of its body.
    pub text: &'a str,
    /// What stands in front of it, from the item before: its attributes and visibility.
    pub before: &'a str,
}

/// Returns the functions in code without comments and strings, in order; nested ones are also part
/// of the outer one.
pub fn functions(code: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let name = &rest[..rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len())];
        if name.is_empty() || at > 0 && is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        if let Some(end) = body_end(code.as_bytes(), at) {
            let line = code[..at].matches('\n').count() + 1;
            let before = code[..at].rsplit(['}', ';']).next().unwrap_or_default();
            found.push(Function { name, line, text: &code[at..end], before });
        }
    }
    found
}

/// Returns the end of the body of the function at `at`; `None` for a mere declaration.
fn body_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut braces, mut others) = (0_i32, 0_i32);
    for (index, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others -= 1,
            b';' if braces == 0 && others == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces -= 1;
                if braces <= 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}
