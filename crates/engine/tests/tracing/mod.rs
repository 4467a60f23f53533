//! The reader's side of this process's own trace.

use softring_engine::stats::trace::NAME;
use softring_engine::stats::trace::read::Reader;
use std::os::fd::AsRawFd;

/// Opens the trace of this process, found as others find it.
pub fn open() -> Reader {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let named = |link: &std::path::Path| {
        std::fs::read_link(link)
            .is_ok_and(|to| to.to_string_lossy().starts_with(&format!("/memfd:{NAME} ")))
    };
    let at = links.map(|e| e.path()).find(|p| named(p)).expect("a trace");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(at).unwrap();
    let file = softring_host::calls::files::duplicate(file.as_raw_fd(), 0, true).unwrap();
    Reader::open(file, None).unwrap()
}
