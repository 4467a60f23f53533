//! Variables that the library reads: each is documented, and no unknown value is ignored in
//! silence.

mod common;

use common::{library, succeed};
use softring_testing::skipped;
use std::collections::BTreeSet;
use std::process::Command;

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns the names of our variables that are in `text` between `before` and `after`.
fn names(text: &str, before: &str, after: char) -> BTreeSet<String> {
    let parts = text.split(before).skip(1).filter_map(|part| part.split_once(after));
    parts.map(|(name, _)| name.to_owned()).filter(|n| n.starts_with("SOFTRING_")).collect()
}

#[test]
fn variables_match_the_documents() {
    let mut read_here = names(&read("src/config.rs"), "c\"", '"');
    assert!(read_here.len() > 10, "{read_here:?}");
    read_here.extend(names(&read("src/config/faults.rs"), "c\"", '"'));
    assert_eq!(names(&read("src/config.rs"), "//! | `", '`'), read_here, "the table of config.rs");
    read_here.extend(names(&read("../cli/src/run/lib_path.rs"), "var_os(\"", '"'));
    assert_eq!(
        names(&read("../../docs/INTERCEPTION.md"), "\n| `", '`'),
        read_here,
        "docs/INTERCEPTION.md"
    );
}

/// Returns what `true` prints with these variables.
fn said(variables: &[(&str, &str)]) -> String {
    let variables = variables.iter().map(|(name, value)| (format!("SOFTRING_{name}"), value));
    let out = succeed(Command::new("true").env("LD_PRELOAD", library()).envs(variables));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn an_unknown_value_is_reported_and_harmless() {
    for name in "ENGINE INTERCEPT DOOR NOTICE POLL SQ_IDLE STATS".split(' ') {
        for value in ["x", "7", "11"] {
            let told = said(&[(name, value)]);
            let begins = format!("softring: SOFTRING_{name}={value} is not known");
            assert!(told.starts_with(&begins) && told.lines().count() == 1, "{name}: {told}");
        }
        assert_eq!(said(&[(name, "")]), "", "{name}");
    }
    assert_eq!(said(&[("INTERCEPT", "patch"), ("DOOR", "x")]), "", "the older name");
    for (name, value) in [("STATS", "0"), ("STATS", "1"), ("QUIET", "0"), ("NOTICE", "1")] {
        assert_eq!(said(&[(name, value)]), "", "{name}={value}");
    }
    assert!(said(&[("MODEL", "x")]).contains("no disk is modelled"));
}

#[test]
fn any_value_but_0_is_on() {
    for on in ["1", "2", "yes", "true"] {
        assert!(said(&[("REPORT", on)]).starts_with("softring: report:"), "{on}");
        assert_eq!(said(&[("AIO_HIPRI", on)]), "", "{on}");
        // The others stay silent, whichever variable is read first.
        let others = [("QUIET", on), ("ENGINE", "x"), ("STATS", "x"), ("MODEL", "x")];
        assert_eq!(said(&others), "", "{on}");
    }
    for off in ["0", ""] {
        assert_eq!(said(&[("REPORT", off), ("AIO_HIPRI", off)]), "", "{off}");
        assert!(said(&[("QUIET", off), ("ENGINE", "x")]).contains("ENGINE=x"), "{off}");
    }
}

#[test]
fn invalid_reader_keys_are_reported() {
    let key = "0123456789abcdef0123456789abcdef";
    for (name, value) in [("STAT", "bogus"), ("STAT", &key[1..]), ("TRACE", "x"), ("TRACE", "/")] {
        let told = said(&[(name, value)]);
        let begins = format!("softring: SOFTRING_{name}={value} is not a ");
        assert!(told.starts_with(&begins) && told.lines().count() == 1, "{name}: {told}");
        assert_eq!(said(&[(name, value), ("QUIET", "1")]), "", "{name}");
    }
    // Keys of readers that are gone.
    for (name, value) in [("STAT", ""), ("STAT", key), ("TRACE", ""), ("TRACE", key)] {
        assert_eq!(said(&[(name, value)]), "", "{name}={value}");
    }
}

/// The program may have an unsetenv(3) of its own.
#[test]
fn exec_variables_are_removed_from_the_environment() {
    for shell in ["sh", "bash"] {
        let mut c = Command::new(shell);
        c.args(["-c", "echo \"[$SOFTRING_LOCKED$SOFTRING_RULES]$KEPT\""]);
        c.env("LD_PRELOAD", library()).env("SOFTRING_LOCKED", "1:3,4,5").env("KEPT", "kept");
        match c.env("SOFTRING_RULES", "1.1.1.1.1.0.0.0.0").output() {
            Ok(out) => assert_eq!(String::from_utf8_lossy(&out.stdout), "[]kept\n", "{shell}"),
            Err(e) => skipped!("{shell}: {e}"),
        }
    }
}
