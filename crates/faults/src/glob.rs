//! Patterns of paths.

use alloc::string::String;
use core::fmt;

/// A pattern: `*` stands for any bytes but `/`, `**` for any bytes, `?` for one byte but `/`; a
/// byte behind `\` stands for itself. A pattern without `/` is one of the last component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

/// One step of a pattern.
enum Step {
    Literal(u8),
    One,
    Many { slashes: bool },
}

impl Glob {
    pub fn new(pattern: &str) -> Glob {
        Glob(pattern.into())
    }

    /// Returns whether a path matches.
    pub fn matches(&self, path: &[u8]) -> bool {
        let last = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        let subject = if self.0.contains('/') { path } else { last };
        matches(self.0.as_bytes(), subject)
    }
}

/// Takes the first step of a pattern; returns it and the rest.
fn step(pattern: &[u8]) -> Option<(Step, &[u8])> {
    match pattern {
        [] => None,
        [b'\\', byte, rest @ ..] => Some((Step::Literal(*byte), rest)),
        [b'*', b'*', rest @ ..] => Some((Step::Many { slashes: true }, rest)),
        [b'*', rest @ ..] => Some((Step::Many { slashes: false }, rest)),
        [b'?', rest @ ..] => Some((Step::One, rest)),
        [byte, rest @ ..] => Some((Step::Literal(*byte), rest)),
    }
}

fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    // The last star, and the text behind what it stands for so far.
    let mut star: Option<(&[u8], &[u8], bool)> = None;
    loop {
        match (step(pattern), text) {
            (None, []) => return true,
            (Some((Step::Many { slashes }, rest)), _) => {
                star = Some((rest, text, slashes));
                pattern = rest;
                continue;
            }
            (Some((Step::Literal(want), rest)), [byte, after @ ..]) if want == *byte => {
                (pattern, text) = (rest, after);
                continue;
            }
            (Some((Step::One, rest)), [byte, after @ ..]) if *byte != b'/' => {
                (pattern, text) = (rest, after);
                continue;
            }
            _ => {}
        }
        // The star stands for one byte more.
        match star {
            Some((rest, [byte, after @ ..], slashes)) if slashes || *byte != b'/' => {
                star = Some((rest, after, slashes));
                (pattern, text) = (rest, after);
            }
            _ => return false,
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn stars_stop_at_slashes_unless_doubled() {
        for (pattern, path, yes) in [
            ("*.wal", "/data/x.wal", true),
            ("*.wal", "/data/x.wal2", false),
            ("/data/*", "/data/x", true),
            ("/data/*", "/data/a/x", false),
            ("/data/**", "/data/a/x", true),
            ("/**/x", "/data/a/x", true),
            ("?", "/a", true),
            ("?", "/ab", false),
            ("a\\*", "/a*", true),
            ("a\\*", "/ab", false),
            ("", "", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(path.as_bytes()), yes, "{pattern} {path}");
        }
    }
}
