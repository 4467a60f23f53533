//! Rights of requests: a request does nothing that its thread may not do by a system call of its
//! own. These tests are about seccomp filters. The conformance cases test Landlock domains, which
//! bind the kernel's requests as well.

mod common;

use common::{example, succeed, under};

#[test]
fn filters_bind_the_requests_of_their_threads() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"").unwrap();
    for intercept in ["patch", "sigsys"] {
        let mut c = under(example("rights"), "user", intercept);
        let out = succeed(c.arg(dir.path()));
        let want = [
            "a worker is there: -2",
            "mkdir denied: -1",
            "unlink allowed: -2",
            "unlink denied: -1",
            "and to its threads: -1",
            "mkdir by another: 0",
            "unlink by another: 0",
        ];
        let got = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(got.lines().collect::<Vec<_>>(), want, "{intercept}");
        std::fs::remove_dir(dir.path().join("new")).unwrap();
        std::fs::write(dir.path().join("f"), b"").unwrap();
    }
}
