//! Is a ring of the kernel worth having? Some sandboxes grant one whose every request fails, or
//! refuse what is done with it. So one is tried, once per process, before the first ring: a NOP, a
//! poll and a READ, all of which Linux completes while they are submitted.
#![allow(unsafe_code)]

use crate::raw::raw;
use core::sync::atomic::{AtomicU32, Ordering};
use softring_engine::abi::*;
use softring_engine::refused;
use std::sync::OnceLock;

/// What of a ring does not work here; `None` also where no ring is given at all.
pub fn fault() -> Option<&'static str> {
    static FAULT: OnceLock<Option<&'static str>> = OnceLock::new();
    *FAULT.get_or_init(|| {
        let calls = [
            (libc::SYS_io_uring_enter, "io_uring_enter"),
            (libc::SYS_io_uring_register, "io_uring_register"),
        ];
        if refused::how(libc::SYS_io_uring_setup).is_some() {
            return None;
        }
        let refused = calls.iter().find(|(nr, _)| refused::how(*nr).is_some());
        refused.map(|(_, name)| *name).or_else(|| Trial::new()?.fault())
    })
}

const ENTRIES: usize = 4;
/// Bytes of each mapping: all rings of so few entries are smaller.
const LEN: usize = 4096;

/// A ring of the kernel's, its memory, and a pipe that holds a byte.
struct Trial {
    ring: isize,
    pipe: [i32; 2],
    params: io_uring_params,
    /// The queues and the SQEs.
    maps: [isize; 2],
}

impl Trial {
    /// None where the kernel gives no ring, or nothing else is to be had.
    fn new() -> Option<Trial> {
        let mut params = io_uring_params::default();
        let at = (&raw mut params).expose_provenance();
        // SAFETY: the kernel reads and writes the parameters, which are ours.
        let ring = unsafe { raw!(libc::SYS_io_uring_setup, ENTRIES, at) };
        if ring < 0 {
            return None;
        }
        let mut trial = Trial { ring, pipe: [-1; 2], params, maps: [-1; 2] };
        let pipe = trial.pipe.as_mut_ptr().expose_provenance();
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        for (map, offset) in trial.maps.iter_mut().zip([IORING_OFF_SQ_RING, IORING_OFF_SQES]) {
            // SAFETY: a new mapping at an address of the kernel's choice.
            *map = unsafe { raw!(libc::SYS_mmap, 0, LEN, prot, libc::MAP_SHARED, ring, offset) };
        }
        // SAFETY: the kernel writes two numbers to `pipe`, and reads one byte.
        let ready = unsafe {
            raw!(libc::SYS_pipe2, pipe, libc::O_CLOEXEC) == 0
                && raw!(libc::SYS_write, trial.pipe[1], c"x".as_ptr().expose_provenance(), 1) == 1
        };
        (ready && trial.maps.iter().all(|at| *at > 0)).then_some(trial)
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let at = self.maps[0].cast_unsigned() + offset as usize % LEN;
        // SAFETY: within the mapping, which lives as long as we; the kernel aligns its words.
        unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(at & !3)) }
    }

    fn fault(&self) -> Option<&'static str> {
        let mut byte = 0u8;
        let to = (&raw mut byte).expose_provenance() as u64;
        let (fd, poll) = (self.pipe[0], libc::POLLIN.cast_unsigned().into());
        let requests = [
            io_uring_sqe { opcode: IORING_OP_NOP, ..Default::default() },
            io_uring_sqe { opcode: IORING_OP_POLL_ADD, fd, op_flags: poll, ..Default::default() },
            io_uring_sqe { opcode: IORING_OP_READ, fd, addr: to, len: 1, ..Default::default() },
        ];
        for (i, sqe) in requests.iter().enumerate() {
            // One by one, as a poll may not see what a READ behind it takes.
            let Some(res) = self.result_of(i, sqe) else { return Some("a request has no end") };
            let want = [0, libc::POLLIN.into(), 1][i];
            if res != want {
                return Some(["NOP", "POLL_ADD", "READ"][i]);
            }
        }
        (byte != b'x').then_some("READ")
    }

    /// Submits the `i`th request, and waits a tenth of a second at most for its result.
    fn result_of(&self, i: usize, sqe: &io_uring_sqe) -> Option<i32> {
        const TRIES: usize = 100;
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        let at = self.maps[1].cast_unsigned() + i * size_of::<io_uring_sqe>();
        // SAFETY: one of the SQEs that are mapped, which nobody else looks at yet.
        unsafe { core::ptr::with_exposed_provenance_mut::<io_uring_sqe>(at).write_volatile(*sqe) };
        self.word(sq.array + 4 * i as u32).store(i as u32, Ordering::Relaxed);
        self.word(sq.tail).store(i as u32 + 1, Ordering::Release);
        for n in 0..TRIES {
            let (submit, wait) = (usize::from(n == 0), IORING_ENTER_GETEVENTS);
            // SAFETY: numbers only; what the SQE names lives on.
            unsafe { raw!(libc::SYS_io_uring_enter, self.ring, submit, 0, wait, 0, 0) };
            if self.word(cq.tail).load(Ordering::Acquire) as usize > i {
                let cqe = cq.cqes + (i * size_of::<io_uring_cqe>()) as u32 + RES;
                return Some(self.word(cqe).load(Ordering::Relaxed).cast_signed());
            }
            let millisecond = [0u64, 1_000_000];
            // SAFETY: reads the time, which is ours.
            unsafe { raw!(libc::SYS_nanosleep, millisecond.as_ptr().expose_provenance(), 0) };
        }
        None
    }
}

/// Where a CQE has its result.
const RES: u32 = core::mem::offset_of!(io_uring_cqe, res) as u32;

impl Drop for Trial {
    fn drop(&mut self) {
        // SAFETY: our own mappings and descriptors, used no more.
        unsafe {
            for at in self.maps.into_iter().filter(|at| *at > 0) {
                raw!(libc::SYS_munmap, at, LEN);
            }
            for fd in [self.ring, self.pipe[0] as isize, self.pipe[1] as isize] {
                raw!(libc::SYS_close, fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_this_kernel_works_where_it_is_given() {
        assert_eq!(fault(), None);
    }

    #[test]
    fn a_request_that_fails_is_a_fault() {
        let Some(trial) = Trial::new() else { return };
        let mut byte = [0u8];
        // SAFETY: takes the byte out, so that the poll does not find it.
        unsafe { raw!(libc::SYS_read, trial.pipe[0], byte.as_mut_ptr().expose_provenance(), 1) };
        assert_eq!(trial.fault(), Some("a request has no end"));
    }
}
