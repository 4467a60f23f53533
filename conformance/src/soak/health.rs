//! Resources of the process: descriptors, threads, memory, compared with an earlier reading.

use std::time::{Duration, Instant};

use super::{Check, ensure};
use crate::os;

/// A reading of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Health {
    pub fds: usize,
    pub threads: usize,
    /// Private pages, in KiB.
    pub private_kib: u64,
    /// All resident pages, in KiB.
    pub rss_kib: u64,
}

/// Threads that softring may keep though nobody uses a ring: its reactor.
const THREADS_KEPT: usize = 1;
/// Descriptors that softring may keep: the reactor's, and the page of statistics.
const FDS_KEPT: usize = 4;
/// Time limit of background ends: idle workers leave after five seconds.
const GRACE: Duration = Duration::from_secs(12);

impl Health {
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find(|l| l.starts_with(name));
            line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        Health {
            fds: os::open_fds(),
            threads: os::threads(),
            private_kib: field("Private_Dirty:"),
            rss_kib: field("Rss:"),
        }
    }

    /// Waits until descriptors and threads are back at their numbers `before`.
    pub fn returned_to(before: Health) -> Check<Health> {
        let began = Instant::now();
        loop {
            let now = Health::now();
            let fds = now.fds <= before.fds + FDS_KEPT;
            let threads = now.threads <= before.threads + THREADS_KEPT;
            if fds && threads {
                return Ok(now);
            }
            ensure(began.elapsed() < GRACE, || {
                format!(
                    "left behind: {} descriptors where {} were, {} threads where {} were",
                    now.fds, before.fds, now.threads, before.threads
                )
            })?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Compares memory after the warm-up with memory at the end; allocators' free lists may grow by
    /// `slack_kib`.
    pub fn not_grown(middle: Health, end: Health, slack_kib: u64) -> Check {
        let limit = middle.private_kib + slack_kib + middle.private_kib / 20;
        ensure(end.private_kib <= limit, || {
            format!("private memory grew from {} to {} KiB", middle.private_kib, end.private_kib)
        })
    }
}
