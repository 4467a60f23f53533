//! An eventfd poll that ends an unbounded sleep in io_pgetevents, in the same context. A thread
//! signals the eventfd when it posts something that the sleeping thread waits for and that aio does
//! not complete.
#![allow(unsafe_code)]

use super::{AioCtx, poll};
use alloc::boxed::Box;
use softring_host::calls::aio::{self, IocbPtr};
use softring_host::sys::POLLIN;
use softring_uapi::aio::iocb;

/// The poll's iocb, at a fixed address: the kernel names the iocb by its address.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    iocb: Box<iocb>,
    /// Flag, set while the kernel has the iocb.
    armed: bool,
}

impl Alarm {
    fn pointer(&mut self) -> IocbPtr {
        // SAFETY: the iocb is boxed, and the kernel copies it; a poll writes to no memory.
        unsafe { IocbPtr::of(&mut self.iocb) }
    }

    /// Returns whether `obj` is the alarm's iocb, and disarms the alarm if so.
    pub(super) fn goes_off(&mut self, obj: u64) -> bool {
        let own = self.armed && obj == self.pointer().addr() as u64;
        self.armed &= !own;
        own
    }
}

impl AioCtx {
    /// Makes a signal on `eventfd` end sleeps for completions, too. Returns false if the kernel
    /// cannot poll by aio.
    pub(crate) fn arm_alarm(&mut self, eventfd: i32) -> bool {
        if !self.alarm.armed {
            *self.alarm.iocb = poll(eventfd, POLLIN.cast_unsigned(), 0).iocb();
            self.alarm.armed = aio::submit(self.id, &[self.alarm.pointer()]) == Ok(1);
        }
        self.alarm.armed
    }

    /// Cancels the alarm because the context ends; returns the number of events that the alarm
    /// still makes.
    pub(super) fn cancel_alarm(&mut self) -> u32 {
        if self.alarm.armed {
            aio::cancel(self.id, self.alarm.pointer());
        }
        self.alarm.armed.into()
    }
}
