//! `softring env`: lines for a shell, after which its children run under softring.

use crate::cli::{EnvArgs, Shell};
use crate::run::{self, lib_path};
use crate::{fail, files, out};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Runs `softring env [options]`.
pub fn command(args: &EnvArgs) -> anyhow::Result<()> {
    let shell = args.shell.unwrap_or_else(calling_shell);
    let changes = if args.undo { undo() } else { set(args)? };
    out::raw(changes.iter().map(|change| line(shell, change)).collect::<Vec<_>>().concat())
}

/// A variable and its new value; None unsets it.
type Change = (&'static str, Option<OsString>);

fn set(args: &EnvArgs) -> anyhow::Result<Vec<Change>> {
    if args.under.deny {
        let hint = "softring run --deny -- CMD, where CMD may be a shell";
        return Err(fail::usage("--deny is not possible by variables", hint));
    }
    let new = run::shell_environment(&args.under)?;
    let value = |name: &'static str| Some((name, Some(new.get(name)?.to_owned())));
    Ok(run::VARIABLES.into_iter().filter_map(value).collect())
}

fn undo() -> Vec<Change> {
    let there = |name: &&str| env::var_os(name).is_some();
    let without = |name: &'static str| match name {
        "LD_PRELOAD" => (name, others(&env::var_os(name).unwrap_or_default())),
        _ => (name, None),
    };
    run::VARIABLES.into_iter().filter(there).map(without).collect()
}

/// Returns the libraries of LD_PRELOAD without softring's.
fn others(preload: &OsStr) -> Option<OsString> {
    let parts = preload.as_bytes().split(|b| b" :\t\n".contains(b)).filter(|p| !p.is_empty());
    let ours = |part: &[u8]| Path::new(OsStr::from_bytes(part)).ends_with(lib_path::NAME);
    let left: Vec<&[u8]> = parts.filter(|part| !ours(part)).collect();
    (!left.is_empty()).then(|| OsString::from_vec(left.join(&b':')))
}

/// Returns the shell that has started this command, by its name.
fn calling_shell() -> Shell {
    let parent = files::proc_status("PPid").and_then(|pid| pid.parse::<u32>().ok());
    let name = parent.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    if name.is_some_and(|name| name.trim() == "fish") { Shell::Fish } else { Shell::Sh }
}

fn line(shell: Shell, (name, value): &Change) -> Vec<u8> {
    let before = match (shell, value) {
        (Shell::Sh, Some(_)) => format!("export {name}="),
        (Shell::Sh, None) => format!("unset {name}"),
        (Shell::Fish, Some(_)) => format!("set -gx {name} "),
        (Shell::Fish, None) => format!("set -e {name}"),
    };
    let quoted = value.as_ref().map_or_else(Vec::new, |value| quote(shell, value.as_bytes()));
    [before.as_bytes(), &quoted, b"\n"].concat()
}

/// Quotes a word so that the shell takes it as it is, whatever bytes are in it.
pub fn quote(shell: Shell, word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word {
        match (shell, byte) {
            (Shell::Sh, b'\'') => quoted.extend(b"'\\''"),
            (Shell::Fish, b'\'' | b'\\') => quoted.extend([b'\\', byte]),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted() {
        let quoted = |shell, word: &str| String::from_utf8(quote(shell, word.as_bytes())).unwrap();
        assert_eq!(quoted(Shell::Sh, "/my disk=hdd"), "'/my disk=hdd'");
        assert_eq!(quoted(Shell::Sh, "it's $a\\"), "'it'\\''s $a\\'");
        assert_eq!(quoted(Shell::Fish, "it's $a\\"), "'it\\'s $a\\\\'");
    }

    #[test]
    fn other_preloaded_libraries_stay() {
        let left = |preload: &str| others(OsStr::new(preload)).map(|left| left.into_string());
        assert_eq!(left("/usr/lib/libsoftring.so"), None);
        assert_eq!(left("/a.so /l/libsoftring.so:b.so"), Some(Ok("/a.so:b.so".into())));
        assert_eq!(left("/l/notlibsoftring.so"), Some(Ok("/l/notlibsoftring.so".into())));
    }

    #[test]
    fn both_shells_get_their_syntax() {
        let text = |shell, value: Option<&str>| {
            String::from_utf8(line(shell, &("A", value.map(OsString::from)))).unwrap()
        };
        assert_eq!(text(Shell::Sh, Some("b c")), "export A='b c'\n");
        assert_eq!(text(Shell::Sh, None), "unset A\n");
        assert_eq!(text(Shell::Fish, Some("b c")), "set -gx A 'b c'\n");
        assert_eq!(text(Shell::Fish, None), "set -e A\n");
    }
}
