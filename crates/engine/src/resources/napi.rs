//! NAPI busy polling: settings that the kernel keeps for a ring. Here they are only stored and
//! reported, as only the kernel has network queues to poll. Kernel counterpart: `io_uring/napi.c`.

use alloc::vec::Vec;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Longest time to poll, in µs (kernel: "cap NAPI at 10 msec of spin time").
const MAX_POLL_US: u32 = 10_000;

/// A ring's settings.
#[derive(Debug)]
pub(crate) struct Napi {
    busy_poll_us: u32,
    prefer_busy_poll: bool,
    tracking: u32,
    /// Queues that the program has added itself.
    ids: Vec<u32>,
}

impl Default for Napi {
    fn default() -> Self {
        let tracking = IO_URING_NAPI_TRACKING_INACTIVE;
        Napi { busy_poll_us: 0, prefer_busy_poll: false, tracking, ids: Vec::new() }
    }
}

impl Napi {
    /// Returns the method of finding queues to poll: `IO_URING_NAPI_TRACKING_*`.
    pub(crate) fn tracking(&self) -> u32 {
        self.tracking
    }

    /// Returns the times, as reported to the program.
    pub(crate) fn settings(&self) -> io_uring_napi {
        io_uring_napi {
            busy_poll_to: self.busy_poll_us,
            prefer_busy_poll: u8::from(self.prefer_busy_poll),
            ..io_uring_napi::default()
        }
    }

    /// Sets the times and the tracking, and forgets the queues (`io_napi_register_napi`).
    ///
    /// # Errors
    /// `EINVAL` for an unknown tracking.
    pub(crate) fn set(&mut self, new: &io_uring_napi) -> Result<usize> {
        if !matches!(new.op_param, IO_URING_NAPI_TRACKING_DYNAMIC | IO_URING_NAPI_TRACKING_STATIC) {
            return Err(Errno::EINVAL);
        }
        self.ids.clear();
        self.tracking = new.op_param;
        self.busy_poll_us = new.busy_poll_to.min(MAX_POLL_US);
        self.prefer_busy_poll = new.prefer_busy_poll != 0;
        Ok(0)
    }

    /// Adds a queue by number.
    ///
    /// # Errors
    /// `EINVAL` for a number that means a CPU, `EEXIST`.
    pub(crate) fn add(&mut self, id: u32) -> Result<usize> {
        if id < first_id() {
            return Err(Errno::EINVAL);
        }
        if self.ids.contains(&id) {
            return Err(Errno::EEXIST);
        }
        self.ids.push(id);
        Ok(0)
    }

    /// Removes a queue.
    ///
    /// # Errors
    /// `EINVAL` for a number that means a CPU, `ENOENT`.
    pub(crate) fn remove(&mut self, id: u32) -> Result<usize> {
        if id < first_id() {
            return Err(Errno::EINVAL);
        }
        let at = self.ids.iter().position(|&i| i == id).ok_or(Errno::ENOENT)?;
        self.ids.remove(at);
        Ok(0)
    }
}

/// Returns the first number of a queue: numbers up to the number of CPUs that the kernel was built
/// for mean CPUs (`MIN_NAPI_ID`).
fn first_id() -> u32 {
    const KERNEL_MAX: &str = "/sys/devices/system/cpu/kernel_max";
    let text = softring_host::files::proc_text(KERNEL_MAX).unwrap_or_default();
    text.trim().parse().map_or(1, |last: u32| last.saturating_add(2))
}
