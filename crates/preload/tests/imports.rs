//! Names that the library asks of the process that it is loaded into. The lists can only become
//! shorter: in the end one file is to serve every C library, and programs that have none.

mod common;

use common::{library, succeed};
use std::collections::BTreeSet;
use std::process::Command;

/// Names that this library uses.
const OWN: &[&str] = &[
    "__errno_location",
    "__libc_current_sigrtmin",
    "_r_debug",
    "dl_iterate_phdr",
    "dlsym",
    "environ",
    "exit",
    "getauxval",
    "pause",
    "pthread_attr_destroy",
    "pthread_attr_init",
    "pthread_attr_setdetachstate",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setspecific",
];

/// Names that the C compiler's start files use, if the process defines them.
const START_FILES: &[&str] = &[
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
];

fn read(tool: &str, options: &[&str]) -> String {
    let out = succeed(Command::new(tool).args(options).arg(library()));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn the_library_imports_the_listed_names() {
    let text = read("nm", &["-D", "--undefined-only"]);
    let named = text.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('@').next());
    let listed = [OWN, START_FILES].concat();
    assert_eq!(named.collect::<BTreeSet<_>>(), listed.into_iter().collect());
    assert!(!text.contains("GLIBC_PRIVATE"), "names that are not for programs:\n{text}");
    let weak = |line: &str| ["w", "v"].contains(&line.split_whitespace().next().unwrap());
    assert!(text.lines().all(weak), "names that the process has to have:\n{text}");
}

#[test]
fn the_library_needs_no_file_and_no_thread_local_storage() {
    let text = read("readelf", &["-dlVW"]);
    for what in ["(NEEDED)", "VERNEED", "TLS"] {
        assert!(!text.contains(what), "{what}:\n{text}");
    }
}
