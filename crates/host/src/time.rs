//! Clocks and deadlines, in nanoseconds.

use core::time::Duration;

use crate::raw::nr;
use crate::vdso;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::kernel_timespec;

/// The clocks that io_uring knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    #[default]
    Monotonic,
    Boottime,
    Realtime,
}

impl Clock {
    pub const ALL: [Clock; 3] = [Clock::Monotonic, Clock::Boottime, Clock::Realtime];

    /// Returns whether the clock jumps when it is set, or when the machine wakes from a suspension.
    pub fn jumps(self) -> bool {
        self != Clock::Monotonic
    }

    /// Returns the present time of this clock, in ns.
    pub fn now(self) -> u64 {
        read(match self {
            Clock::Monotonic => nr::CLOCK_MONOTONIC,
            Clock::Boottime => nr::CLOCK_BOOTTIME,
            Clock::Realtime => nr::CLOCK_REALTIME,
        })
    }
}

/// End of a wait, on [`Clock::Monotonic`].
#[derive(Clone, Copy, Debug)]
pub struct Deadline(u64);

impl Deadline {
    /// Returns the deadline that is `time` from now.
    pub fn after(time: Duration) -> Deadline {
        Deadline(Clock::Monotonic.now().saturating_add(time.as_nanos() as u64))
    }

    /// Returns the time that is left; zero once the deadline has passed.
    pub fn left(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Clock::Monotonic.now()))
    }

    pub fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

/// Returns the processor time of the calling thread, in ns; 0 if a filter refuses the call, which
/// the vDSO makes for this clock.
pub fn cpu_time() -> u64 {
    /// `CLOCK_THREAD_CPUTIME_ID`
    const OWN: u32 = 3;
    crate::calls::process::clock(OWN)
}

/// Returns the processor time of any thread of the process, in ns; 0 if there is no such thread.
pub fn cpu_time_of(tid: i32) -> u64 {
    /// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`
    const OF_THREAD: u32 = 4 | 2;
    crate::calls::process::clock((!tid).cast_unsigned() << 3 | OF_THREAD)
}

/// Returns the milliseconds of a clock that costs no more than a load.
pub fn coarse_ms() -> u64 {
    read(nr::CLOCK_MONOTONIC_COARSE) / 1_000_000
}

fn read(id: u32) -> u64 {
    let [seconds, nanoseconds] = vdso::clock_gettime(id);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Converts a timespec to ns, saturating as `timespec64_to_ktime` does.
///
/// # Errors
/// `EINVAL` for negative seconds or nanoseconds (timeouts refuse them).
pub fn to_ns(ts: kernel_timespec) -> Result<u64> {
    if ts.tv_sec < 0 || ts.tv_nsec < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(ns_of(ts))
}

/// Converts a timespec to ns without checks; a negative time becomes 0.
pub fn ns_of(ts: kernel_timespec) -> u64 {
    let ns = i128::from(ts.tv_sec) * 1_000_000_000 + i128::from(ts.tv_nsec);
    ns.clamp(0, i128::from(i64::MAX)) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_thread_is_its_own() {
        let (before, own) = (cpu_time(), cpu_time_of(crate::sys::gettid()));
        assert!(before > 0 && before <= own && own <= cpu_time());
        // Larger than any thread's id.
        assert_eq!(cpu_time_of(1 << 23), 0);
    }
}
