//! A reader of flat JSON objects.

use alloc::string::String;

/// A value that members have here.
#[derive(Debug)]
pub(super) enum Value {
    Number(u64),
    Text(String),
}

type Result<T> = core::result::Result<T, &'static str>;

/// Calls `f` with each member of the object that a line is.
///
/// # Errors
/// The line is no object, or has values other than strings and natural numbers.
pub(super) fn members(line: &str, mut f: impl FnMut(&str, Value)) -> Result<()> {
    const NOT: &str = "a line is a JSON object of strings and numbers";
    let mut rest = line.trim().strip_prefix('{').ok_or(NOT)?.trim_start();
    if rest == "}" {
        return Ok(());
    }
    loop {
        let (name, after) = text(rest)?;
        rest = after.trim_start().strip_prefix(':').ok_or(NOT)?.trim_start();
        let value = if rest.starts_with('"') {
            let (value, after) = text(rest)?;
            rest = after;
            Value::Text(value)
        } else {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..end].parse().map_err(|_| NOT)?;
            rest = &rest[end..];
            Value::Number(number)
        };
        f(&name, value);
        rest = rest.trim_start();
        if rest == "}" {
            return Ok(());
        }
        rest = rest.strip_prefix(',').ok_or(NOT)?.trim_start();
    }
}

/// Takes a string; returns it and the rest.
fn text(quoted: &str) -> Result<(String, &str)> {
    const BAD: &str = "a string of the line is not one of JSON";
    let inner = quoted.strip_prefix('"').ok_or(BAD)?;
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &inner[at + 1..])),
            '\\' => match chars.next().ok_or(BAD)?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                'u' => {
                    let mut code = 0;
                    for _ in 0..4 {
                        let digit = chars.next().and_then(|(_, c)| c.to_digit(16)).ok_or(BAD)?;
                        code = code * 16 + digit;
                    }
                    value.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                c @ ('"' | '\\' | '/') => value.push(c),
                _ => return Err(BAD),
            },
            c => value.push(c),
        }
    }
    Err(BAD)
}
