//! What ends a sleep in io_pgetevents that has no bound: a poll of an eventfd, in the same context.
//! A thread signals the eventfd when it posts something that the sleeping thread waits for and that
//! is no completion of aio.

use super::{AioCtx, poll};
use alloc::boxed::Box;
use softring_host::calls::aio::{self, IocbPtr};
use softring_host::sys::POLLIN;
use softring_uapi::aio::iocb;

/// The poll, at a fixed address: the kernel names it by that.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    iocb: Box<iocb>,
    /// The kernel has it.
    armed: bool,
}

impl Alarm {
    fn pointer(&mut self) -> IocbPtr {
        IocbPtr::of(&mut self.iocb)
    }

    /// Is this the address in its event? Then it has gone off.
    pub(super) fn goes_off(&mut self, obj: u64) -> bool {
        let own = self.armed && obj == self.pointer().addr() as u64;
        self.armed &= !own;
        own
    }
}

impl AioCtx {
    /// From now on a sleep for completions ends, too, when `eventfd` is signalled. False where the
    /// kernel cannot poll so.
    pub(crate) fn arm_alarm(&mut self, eventfd: i32) -> bool {
        if !self.alarm.armed {
            *self.alarm.iocb = poll(eventfd, POLLIN.cast_unsigned(), 0);
            self.alarm.armed = aio::submit(self.id, &[self.alarm.pointer()]) == Ok(1);
        }
        self.alarm.armed
    }

    /// The context ends, and its alarm with it; answers how many events that will make.
    pub(super) fn cancel_alarm(&mut self) -> u32 {
        if self.alarm.armed {
            aio::cancel(self.id, self.alarm.pointer());
        }
        self.alarm.armed.into()
    }
}
