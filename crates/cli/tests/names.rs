//! The name of a process may be any bytes. Viewers show what is text in it, and hide no process for
//! its name.

mod common;

use common::load::{Load, at_work};
use common::{ME, library, softring, text};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

/// Bytes that are not UTF-8, and text that the kernel cuts within a character: a name has 15 bytes.
const NAMES: [(&[u8], &str); 2] =
    [(b"ab\x9bcd", "ab\u{fffd}cd"), ("ä€€€€€".as_bytes(), "ä€€€€\u{fffd}")];

#[test]
fn any_process_name_is_shown() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.json").display().to_string();
    for (name, shown) in NAMES {
        let program = dir.path().join(OsStr::from_bytes(name));
        symlink(ME, &program).unwrap();
        let load = Load::named(&program);
        let pid = load.pid();
        // `at_work` runs `stats -p`.
        at_work(&load);
        let all = text(&softring(&["stats"]).stdout);
        assert!(all.contains(&format!("{pid} ({shown})")), "{all}");
        let top = softring(&["top", "--once", "-d", "1", "--json", "-p", &pid]);
        let top: Value = serde_json::from_slice(&top.stdout).expect("JSON");
        assert_eq!(top["processes"][0]["command"], shown, "{top}");
        assert!(top["processes"][0]["cpu_percent"].as_f64() > Some(0.0), "{top}");
        let stat = softring(&["stat", "--seconds", "0.1", "-p", &pid]);
        let told = text(&stat.stdout);
        assert!(told.contains("1  processes with rings"), "{told}: {}", text(&stat.stderr));
        let o = softring(&["trace", "--seconds", "0.01", "-o", &trace, "-p", &pid]);
        assert!(o.status.success(), "{}", text(&o.stderr));
    }
}
