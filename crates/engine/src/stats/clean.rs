//! Names that other processes gave. Reading a name removes what a terminal, or a reader of text,
//! would act on, so that no later code need think of it.

use alloc::string::String;

/// Turns a name's bytes up to the first 0 into text that is safe to show: control characters, and
/// those that change the direction or the place of the text behind them, become `?`.
pub fn printable(bytes: &[u8]) -> String {
    let name = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).chars().map(|c| if is_unsafe(c) { '?' } else { c }).collect()
}

fn is_unsafe(c: char) -> bool {
    let moves = matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    c.is_control() || moves
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::printable;

    #[test]
    fn no_control_characters_remain() {
        assert_eq!(printable(b"plain name \xc3\xa9\0rest"), "plain name \u{e9}");
        assert_eq!(printable(b"\x1b[2J\x07\n\r\t"), "?[2J????");
        assert_eq!(printable("\u{9b}31m\u{202e}gpj\u{2066}".as_bytes()), "?31m?gpj?");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
    }
}
