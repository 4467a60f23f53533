//! Calls that may make their thread wait.

use crate::sys::{cycles, voluntary_switches};

/// Time-stamp cycles after which a call may have waited: 15 to 50 µs on machines of 1 to 3.3 GHz.
pub const SLOW_CYCLES: u64 = 50_000;

/// Makes a call, and returns also whether it was slow: it may have waited, or another thread may
/// have had the processor meanwhile.
pub(crate) fn timed<T>(call: impl FnOnce() -> T) -> (T, bool) {
    let begun = cycles();
    let done = call();
    (done, cycles().wrapping_sub(begun) > SLOW_CYCLES)
}

/// Makes a call, and returns also whether its thread has slept for longer than a worker's wake-up
/// takes. A thread that was preempted has not slept.
pub(crate) fn watched<T>(call: impl FnOnce() -> T) -> (T, bool) {
    let switches = voluntary_switches();
    let (done, slow) = timed(call);
    (done, slow && voluntary_switches() != switches)
}
