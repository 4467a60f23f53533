//! Libraries that cannot be mapped are refused, with the reason, before a program starts.

mod common;

use common::{ALONE, LIBRARY, build, library, read};
use proptest::prelude::*;
use softring_loader::{Error, Library};
use std::fs;

/// Returns the reason why a library of this source, built with these options, is refused.
#[track_caller]
fn refused(options: &[&str], source: &str) -> Error {
    let dir = tempfile::tempdir().unwrap();
    let path = build("cc", dir.path(), "refused.so", options, source).unwrap();
    read(&path).unwrap_err()
}

fn with(line: &str) -> String {
    format!("{LIBRARY}\n{line}\n")
}

#[test]
fn a_whole_library_is_read() {
    let dir = tempfile::tempdir().unwrap();
    read(&library(dir.path())).unwrap();
}

#[test]
fn an_undefined_name_is_told() {
    let e = refused(
        &ALONE,
        &with("extern int missing_name; int *other(void) { return &missing_name; }"),
    );
    assert!(matches!(&e, Error::Undefined(name) if name == "missing_name"), "{e}");
    assert_eq!(e.to_string(), "the library asks for the name missing_name");
}

#[test]
fn thread_local_storage_is_refused() {
    for line in [
        "__thread int own; int *other(void) { return &own; }",
        "static __thread int own __attribute__((used));",
    ] {
        let e = refused(&ALONE, &with(line));
        assert!(matches!(e, Error::ThreadLocal), "{e}");
    }
}

#[test]
fn a_needed_library_is_told() {
    let e = refused(&["-shared", "-fPIC", "-fno-stack-protector", "-Wl,--no-as-needed"], LIBRARY);
    assert!(matches!(&e, Error::Needs(name) if name.starts_with("libc.so")), "{e}");
}

#[test]
fn a_library_without_the_entry_point_is_refused() {
    let e = refused(&ALONE, "int other;");
    assert!(matches!(e, Error::NoEntry), "{e}");
}

#[test]
fn functions_that_are_chosen_at_run_time_are_refused() {
    let line = "static int one(void) { return 1; } static void *choose(void) { return one; }\n\
        int chosen(void) __attribute__((ifunc(\"choose\"))); int (*other)(void) = chosen;";
    let e = refused(&ALONE, &with(line));
    assert!(matches!(e, Error::Relocation(_)), "{e}");
}

#[test]
fn other_files_are_refused() {
    let own = std::env::current_exe().unwrap();
    for (path, why) in [(own.as_path(), ""), ("/dev/null".as_ref(), "it is no ELF file")] {
        let e = read(path).unwrap_err().to_string();
        assert!(e.contains(why) && e.starts_with("the library "), "{e}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = library(dir.path());
    let whole = fs::read(&path).unwrap();
    for len in [0, 1, 16, 63, 64, 100, 500, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..len]).unwrap();
        read(&path).unwrap_err();
    }
    // EM_386, and big-endian.
    for (at, byte) in [(18, 3), (5, 2), (4, 1), (16, 2)] {
        let mut other = whole.clone();
        other[at] = byte;
        fs::write(&path, &other).unwrap();
        assert!(matches!(read(&path), Err(Error::Damaged(_))), "{at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Damage to headers and tables is refused or harmless: reading the file never panics.
    #[test]
    fn damaged_libraries_do_no_harm(
        changes in prop::collection::vec((0usize..8192, any::<u8>()), 1..6),
        large in prop::option::of((0usize..0x400, any::<u64>())),
        len in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = whole().clone();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some((at, word)) = large {
            bytes[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        if let Some(len) = len {
            bytes.truncate(len.index(bytes.len()));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        let _ = Library::open(file.path());
    }
}

fn whole() -> &'static Vec<u8> {
    static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    WHOLE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        fs::read(library(dir.path())).unwrap()
    })
}
