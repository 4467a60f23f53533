//! Polled rings (IOPOLL) where the kernel would give one and refuse its I/O, because no disk has
//! poll queues; also where the kernel denies io_uring, or could poll.

mod common;

use common::{count, example, succeed, under};
use softring_engine::poll_queues;
use softring_testing::skipped;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

#[test]
fn a_polled_ring_works_on_any_disk() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("polled-block");
    std::fs::write(&path, [7; 4096]).unwrap();
    if let Err(e) = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path) {
        return skipped!("no O_DIRECT here: {e}");
    }
    let run = |engine| under(example("polled"), engine, "auto").arg(&path).output().unwrap();
    let kernel = run("kernel");
    for engine in ["auto", "user"] {
        if engine == "auto" && !poll_queues::refuses() && !kernel.status.success() {
            skipped!("another disk than this one has poll queues");
            continue;
        }
        let out = succeed(under(example("polled"), engine, "auto").arg(&path));
        assert_eq!(String::from_utf8_lossy(&out.stdout), "7\n");
        assert_eq!(count(&out, "setups"), 1);
    }
    println!("the kernel's own ring: {}", String::from_utf8_lossy(&kernel.stderr).trim());
}
