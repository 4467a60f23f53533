//! A translation from the plain text of `sections.txt` and `softring.7.txt` to roff.
//!
//! `# TITLE` begins a section. A line that is followed by one with `: ` at its front is the tag of
//! a definition. Lines with four blanks at their front are examples. Words between backticks are
//! bold. A blank line ends a paragraph, a definition or an example.

/// Translates a text to roff, fit to follow `.TH`.
pub fn roff(text: &str) -> String {
    let mut out = String::new();
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')) {
        let (title, body) = match block.strip_prefix("# ") {
            Some(rest) => rest.split_once('\n').map_or((Some(rest), ""), |(t, b)| (Some(t), b)),
            None => (None, block),
        };
        if let Some(title) = title {
            out.push_str(&format!(".SH \"{}\"\n", escape(title)));
        }
        if !body.is_empty() {
            paragraph(&mut out, body, title.is_some());
        }
    }
    out
}

fn paragraph(out: &mut String, body: &str, first: bool) {
    let lines: Vec<&str> = body.lines().collect();
    if lines.iter().all(|line| line.starts_with("    ")) {
        out.push_str(if first { ".EX\n" } else { ".PP\n.EX\n" });
        lines.iter().for_each(|line| out.push_str(&text_line(&escape(line))));
        out.push_str(".EE\n");
    } else if lines.len() > 1 && lines[1].starts_with(": ") {
        out.push_str(&format!(".TP\n{}", text_line(&format!("\\fB{}\\fR", escape(lines[0])))));
        let words = lines[1..].iter().map(|line| line.trim_start_matches(": ").trim());
        words.for_each(|line| out.push_str(&text_line(&inline(line))));
    } else {
        out.push_str(if first { "" } else { ".PP\n" });
        lines.iter().for_each(|line| out.push_str(&text_line(&inline(line.trim()))));
    }
}

/// Returns a line that roff takes for text, whatever it begins with.
fn text_line(line: &str) -> String {
    let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    format!("{guard}{line}\n")
}

/// Makes the words between backticks bold.
fn inline(line: &str) -> String {
    let parts = line.split('`').enumerate();
    let shown = parts.map(|(i, part)| match i % 2 {
        0 => escape(part),
        _ => format!("\\fB{}\\fR", escape(part)),
    });
    shown.collect()
}

/// Escapes characters that mean something to roff, or that roff would make typographic.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            '"' => out.push_str("\\(dq"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_definitions_and_examples() {
        let text =
            "# FILES\nOne `a-b`,\ntwo.\n\n/tmp\n: A folder.\n: Another line.\n\n    $ ls '\n";
        let want = ".SH \"FILES\"\nOne \\fBa\\-b\\fR,\ntwo.\n.TP\n\\fB/tmp\\fR\nA folder.\n\
                    Another line.\n.PP\n.EX\n    $ ls \\(aq\n.EE\n";
        assert_eq!(roff(text), want);
    }

    #[test]
    fn text_lines_are_not_roff_requests() {
        assert_eq!(text_line(".so x"), "\\&.so x\n");
    }
}
