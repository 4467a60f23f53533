//! A SPEC of a power cut as a TOML file. Each value becomes an item of the list, which is parsed.

use softring_crash::Spec;
use toml::{Table, Value};

/// Parses a file.
///
/// # Errors
/// What is wrong, and where.
pub fn parse(text: &str) -> Result<Spec, String> {
    let table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let mut items = Vec::new();
    for (key, value) in &table {
        let item = item(key, value)?;
        // One by one first: the error names the key.
        Spec::parse(&item)
            .map_err(|e| format!("{key}: {} (as an item of the list: {item})", e.message))?;
        items.push(item);
    }
    if items.is_empty() {
        return Ok(Spec::default());
    }
    Spec::parse(&items.join(",")).map_err(|e| e.message)
}

/// Returns an item of the list.
fn item(key: &str, value: &Value) -> Result<String, String> {
    let number = |value: &Value| {
        let number = value.as_integer().filter(|n| *n >= 0);
        number.map(|n| n.to_string()).ok_or_else(|| format!("{key}: its parts must be numbers"))
    };
    Ok(match value {
        Value::Boolean(true) => key.to_owned(),
        Value::Integer(n) => format!("{key}={n}"),
        Value::String(text) => format!("{key}={}", text.replace(',', "\\,")),
        Value::Array(all) => {
            let all = all.iter().map(number).collect::<Result<Vec<_>, _>>()?;
            format!("{key}={}", all.join("+"))
        }
        _ => return Err(format!("{key}: must be a number, a string, true, or a list of numbers")),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use softring_crash::Spec;

    #[test]
    fn a_file_says_what_a_list_says() {
        for (file, list) in [
            (
                "seed = 7\nmodel = \"ext4-ordered\"\nrequest = 12\nonly = [3, 5]",
                "seed=7,model=ext4-ordered,request=12,only=3+5",
            ),
            (
                "marker = \"a, b\"\ndir = \"x,y\"\nsector = 4096",
                "marker=a\\, b,dir=x\\,y,sector=4096",
            ),
            ("end = true\nonly = 0", "end,only=0"),
            ("time = \"500ms\"", "time=500ms"),
            ("", "seed=0"),
        ] {
            assert_eq!(parse(file), Ok(Spec::parse(list).unwrap()), "{file}");
        }
    }

    #[test]
    fn errors_name_the_key() {
        for (file, says) in [
            ("sed = 7", "sed: there is no item sed; items: seed"),
            ("model = \"ext5\"", "model: there is no model ext5"),
            ("fsync = 0", "fsync: an fsync is counted from 1"),
            ("only = [\"a\"]", "only: its parts must be numbers"),
            ("end = false", "end: must be a number"),
            ("end = true\nfsync = 2", "the power fails once"),
            ("seed = ", "TOML parse error at line 1"),
        ] {
            let e = parse(file).unwrap_err();
            assert!(e.contains(says), "{file}: {e}");
        }
    }
}
