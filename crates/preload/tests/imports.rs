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
    "bcmp",
    "clock_gettime",
    "dirfd",
    "dl_iterate_phdr",
    "dladdr",
    "dlopen",
    "dlsym",
    "environ",
    "exit",
    "fileno",
    "getauxval",
    "getenv",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "pause",
    "pthread_attr_destroy",
    "pthread_attr_init",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setspecific",
    "raise",
    "sigaddset",
    "sigdelset",
    "sigismember",
    "strlen",
    "pthread_attr_setdetachstate",
];

/// Names that the C compiler's start files use, if the process defines them.
const START_FILES: &[&str] = &[
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
];

/// Files that the loader must find. glibc before 2.34 is in three; musl has all for itself.
const FILES: &[&str] = &["libc.so", "libc.so.6", "libdl.so.2", "libpthread.so.0"];

/// Most bytes of thread-local storage: the record of a thread's stacks (`intercept::stack`).
const THREAD_LOCAL: u64 = 40;

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
}

#[test]
fn the_library_needs_the_c_library_alone() {
    let text = read("readelf", &["-dW"]);
    let files = text.lines().filter(|line| line.contains("(NEEDED)"));
    for file in files.filter_map(|line| line.split('[').nth(1)?.strip_suffix(']')) {
        assert!(FILES.contains(&file), "{file} is needed");
    }
}

#[test]
fn the_library_has_little_thread_local_storage() {
    let text = read("readelf", &["-lW"]);
    let segment = text.lines().find(|line| line.trim().starts_with("TLS"));
    // Offset, two addresses, the bytes in the file, the bytes in memory.
    let size = segment.and_then(|line| line.split_whitespace().nth(5));
    let size = size.and_then(|size| u64::from_str_radix(size.trim_start_matches("0x"), 16).ok());
    assert!(size.is_some_and(|size| size <= THREAD_LOCAL), "{size:?} bytes");
}
