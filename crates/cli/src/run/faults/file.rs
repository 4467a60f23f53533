//! A SPEC as a TOML file. Each value becomes an item of the list, which is parsed as such.

use softring_faults::Spec;
use std::fmt::Write;
use toml::{Table, Value};

/// Keys of a table that stands for one item, in the order of a list's item.
const FILTERS: [&str; 6] = ["op", "path", "kind", "ring", "request", "nth"];

/// Parses a file.
///
/// # Errors
/// What is wrong, and where.
pub fn parse(text: &str) -> Result<Spec, String> {
    let table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let mut spec = Spec::default();
    // A preset comes first wherever it stands: the file's own entries go before it.
    if let Some(preset) = table.get("preset") {
        let name = preset.as_str().ok_or("preset: must be a string, as \"legal\"")?;
        spec = item("preset", name)?;
    }
    for (key, value) in table.iter().filter(|(key, _)| *key != "preset") {
        let list = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        for value in list {
            let part = item(key, &format!("{key}={}", text_of(key, value)?))?;
            if key == "seed" {
                spec.seed = part.seed;
            }
            spec.entries.extend(part.entries);
        }
    }
    Ok(spec)
}

fn item(key: &str, text: &str) -> Result<Spec, String> {
    Spec::parse(text).map_err(|e| format!("{key}: {} (as an item of the list: {text})", e.message))
}

/// Returns a value as a list has it behind `=`.
fn text_of(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(n) => Ok(n.to_string()),
        Value::Float(x) => Ok(decimal(*x)),
        Value::Table(table) => of_table(key, table),
        _ => Err(format!("{key}: must be a number, a string or a table")),
    }
}

/// Returns a number without an exponent.
fn decimal(x: f64) -> String {
    let text = format!("{x:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn of_table(key: &str, table: &Table) -> Result<String, String> {
    let mut parts = Vec::new();
    for name in ["chance", "time"] {
        if let Some(value) = table.get(name) {
            parts.push(text_of(key, value)?);
        }
    }
    let mut text = parts.join(":");
    let mut before = '@';
    for name in FILTERS {
        let Some(value) = table.get(name) else { continue };
        let value = match value.as_array() {
            Some(_) if name != "op" => return Err(format!("{key}: {name} has one value")),
            Some(list) => {
                let names = list.iter().map(|v| text_of(key, v)).collect::<Result<Vec<_>, _>>()?;
                names.join("+")
            }
            None => text_of(key, value)?,
        };
        let _ = write!(text, "{before}{name}={}", value.replace(',', "\\,"));
        before = ',';
    }
    let known = |name: &&String| !FILTERS.contains(&name.as_str()) && *name != "chance";
    match table.keys().filter(known).find(|name| *name != "time") {
        Some(name) => Err(format!("{key}: there is no key {name} in a fault's table")),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_file_says_what_a_list_says() {
        let file = "
            preset = \"legal\"
            seed = 7
            short-read = 0.05
            eio = \"read:0.001\"
            short-write = [{ chance = 1, op = [\"write\", \"SEND\"], path = \"*.wal\", nth = 3 }, \
                             { chance = 0.5, kind = \"socket\" }]
            delay = { chance = 0.1, time = \"p99:20ms\" }
        ";
        let list = "legal,delay=0.1:p99:20ms,eio=read:0.001,short-read=0.05,\
            short-write=1@op=write+SEND,path=*.wal,nth=3,short-write=0.5@kind=socket,seed=7";
        let mut want = softring_faults::Spec::parse(list).unwrap();
        let mut got = parse(file).unwrap();
        for spec in [&mut want, &mut got] {
            spec.entries.sort_by_key(|e| e.fault);
        }
        assert_eq!(got, want);
    }

    #[test]
    fn errors_name_the_key() {
        for (file, says) in [
            ("shrt-read = 1", "shrt-read: there is no fault shrt-read; did you mean short-read?"),
            ("eio = 2", "eio: a chance is a number from 0 to 1"),
            ("eio = { chance = 1, colour = 1 }", "eio: there is no key colour"),
            ("eio = { chance = 1, path = [\"a\", \"b\"] }", "eio: path has one value"),
            ("eio = true", "eio: must be a number, a string or a table"),
            ("eio = ", "TOML parse error at line 1"),
        ] {
            let e = parse(file).unwrap_err();
            assert!(e.contains(says), "{e}");
        }
    }
}
