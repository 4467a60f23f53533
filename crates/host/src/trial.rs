//! Trial of a ring, whoever provides it: a NOP, a poll and a READ, all of which Linux completes
//! while they are submitted. Some sandboxes grant a ring on which every request fails.
#![allow(unsafe_code)]

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys::{POLLIN, sys};
use softring_uapi::errno::{Result, check};
use softring_uapi::*;

/// System calls of the trial. The memory and descriptors that they get are the trial's.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// io_uring_setup(2): entries, parameters.
    pub setup: unsafe fn(usize, usize) -> isize,
    /// io_uring_enter(2): ring, to submit, to wait for, flags.
    pub enter: unsafe fn(usize, usize, usize, usize) -> isize,
    /// close(2), of the ring.
    pub close: unsafe fn(usize) -> isize,
}

const O_CLOEXEC: usize = 0o2_000_000;
const ENTRIES: usize = 4;
/// Bytes of each mapping: all rings of so few entries are smaller.
const LEN: usize = 4096;

/// Ring, its memory, and a pipe that holds a byte.
#[derive(Debug)]
pub struct Trial {
    calls: Calls,
    ring: isize,
    pipe: [i32; 2],
    params: io_uring_params,
    /// Mappings of the queues and the SQEs.
    maps: [isize; 2],
}

impl Trial {
    /// Makes a ring, and what the trial needs for it.
    ///
    /// # Errors
    /// The errno of the call that failed.
    pub fn new(calls: Calls) -> Result<Trial> {
        let mut params = io_uring_params::default();
        // SAFETY: the parameters are ours.
        let ring = unsafe { (calls.setup)(ENTRIES, (&raw mut params).expose_provenance()) };
        check(ring)?;
        let mut trial = Trial { calls, ring, pipe: [-1; 2], params, maps: [-1; 2] };
        let pipe = trial.pipe.as_mut_ptr().expose_provenance();
        /// `PROT_READ | PROT_WRITE`, `MAP_SHARED`.
        const HOW: [usize; 2] = [3, 1];
        for (map, offset) in trial.maps.iter_mut().zip([IORING_OFF_SQ_RING, IORING_OFF_SQES]) {
            // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
            *map = unsafe { sys!(__NR_mmap, 0, LEN, HOW[0], HOW[1], ring, offset) };
        }
        for map in trial.maps {
            check(map)?;
        }
        // SAFETY: both numbers are ours to write.
        check(unsafe { sys!(__NR_pipe2, pipe, O_CLOEXEC) })?;
        // SAFETY: the kernel reads there.
        check(unsafe { sys!(__NR_write, trial.pipe[1], c"x".as_ptr().expose_provenance(), 1) })?;
        Ok(trial)
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        let at = self.maps[0].cast_unsigned() + offset as usize % LEN;
        // SAFETY: within the mapping, which lives as long as we; the kernel aligns its words.
        unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(at & !3)) }
    }

    /// Returns the ring's descriptor.
    pub fn ring(&self) -> i32 {
        self.ring as i32
    }

    /// Returns the part of the ring that does not work, if any.
    pub fn fault(&self) -> Option<&'static str> {
        let mut byte = 0u8;
        let to = (&raw mut byte).expose_provenance() as u64;
        let (fd, poll) = (self.pipe[0], POLLIN.cast_unsigned().into());
        let requests = [
            io_uring_sqe { opcode: IORING_OP_NOP, ..Default::default() },
            io_uring_sqe { opcode: IORING_OP_POLL_ADD, fd, op_flags: poll, ..Default::default() },
            io_uring_sqe { opcode: IORING_OP_READ, fd, addr: to, len: 1, ..Default::default() },
        ];
        for (i, sqe) in requests.iter().enumerate() {
            // One at a time: a READ may take the byte before an earlier poll sees it.
            let Some(res) = self.result_of(i, sqe) else { return Some("a request has no end") };
            let want = [0, POLLIN.into(), 1][i];
            if res != want {
                return Some(["NOP", "POLL_ADD", "READ"][i]);
            }
        }
        (byte != b'x').then_some("READ")
    }

    /// Submits the `i`th request, and waits for its result, a tenth of a second at most.
    fn result_of(&self, i: usize, sqe: &io_uring_sqe) -> Option<i32> {
        const TRIES: usize = 100;
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        let at = self.maps[1].cast_unsigned() + i * size_of::<io_uring_sqe>();
        // SAFETY: one of the SQEs that are mapped, which nobody else reads yet.
        unsafe { core::ptr::with_exposed_provenance_mut::<io_uring_sqe>(at).write_volatile(*sqe) };
        self.word(sq.array + 4 * i as u32).store(i as u32, Ordering::Relaxed);
        self.word(sq.tail).store(i as u32 + 1, Ordering::Release);
        for n in 0..TRIES {
            let (submit, wait) = (usize::from(n == 0), IORING_ENTER_GETEVENTS);
            // SAFETY: what the SQEs name is ours.
            unsafe { (self.calls.enter)(self.ring.cast_unsigned(), submit, 0, wait as usize) };
            if self.word(cq.tail).load(Ordering::Acquire) as usize > i {
                let cqe = cq.cqes + (i * size_of::<io_uring_cqe>()) as u32 + RES;
                return Some(self.word(cqe).load(Ordering::Relaxed).cast_signed());
            }
            crate::sys::pause(core::time::Duration::from_millis(1));
        }
        None
    }
}

/// Offset of the result in a CQE.
const RES: u32 = core::mem::offset_of!(io_uring_cqe, res) as u32;

impl Drop for Trial {
    fn drop(&mut self) {
        for at in self.maps.into_iter().filter(|at| *at > 0) {
            // SAFETY: a mapping of `new`'s, which is accessed through us alone.
            unsafe { sys!(__NR_munmap, at, LEN) };
        }
        // SAFETY: made by `new`.
        let close = |fd| _ = unsafe { sys!(__NR_close, fd) };
        self.pipe.into_iter().filter(|fd| *fd >= 0).for_each(close);
        // SAFETY: ours, which nobody uses past this.
        unsafe { (self.calls.close)(self.ring.cast_unsigned()) };
    }
}

/// File that records that rings of the kernel work.
#[derive(Debug)]
pub struct Record {
    path: String,
    user: u32,
}

impl Record {
    /// Returns the calling user's record.
    #[expect(clippy::new_without_default, reason = "who the user is, the kernel says")]
    pub fn new() -> Record {
        let user = crate::os::process::geteuid();
        Record { path: format!("/dev/shm/softring-kernel-rings-work-{user:010}"), user }
    }

    /// Returns whether the record exists and is this user's.
    pub fn is_there(&self) -> bool {
        crate::os::fs::lstat(&self.path).is_ok_and(|s| s.st_uid == self.user)
    }

    /// Makes the record, by mknod(2), which takes no descriptor. If that fails, the next process
    /// tries again.
    pub fn make(&self) {
        let _ = crate::os::fs::make_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNELS: Calls = Calls {
        // SAFETY: parameters of the trial's.
        setup: |entries, params| unsafe { sys!(__NR_io_uring_setup, entries, params) },
        // SAFETY: what the SQEs name is the trial's.
        enter: |ring, n, min, flags| unsafe {
            sys!(__NR_io_uring_enter, ring, n, min, flags, 0, 0)
        },
        // SAFETY: the trial's.
        close: |ring| unsafe { sys!(__NR_close, ring) },
    };

    /// Makes a ring of the kernel's, if the kernel gives one.
    fn trial() -> Option<Trial> {
        let trial = Trial::new(KERNELS);
        if let Err(e) = &trial {
            softring_testing::skipped!("the kernel gives no rings here: {e:?}");
        }
        trial.ok()
    }

    #[test]
    fn allowed_kernel_rings_work() {
        let Some(trial) = trial() else { return };
        assert_eq!(trial.fault(), None);
    }

    #[test]
    fn a_record_stays_with_its_user() {
        let name = b"/dev/shm/softring-kernel-rings-work-0000000000";
        assert_eq!(Record::new().path.len(), name.len());
        // A record says that rings work, so it is made only if they do.
        let Some(trial) = trial() else { return };
        if let Some(fault) = trial.fault() {
            return softring_testing::skipped!("this kernel's rings do not work: {fault}");
        }
        if !std::path::Path::new("/dev/shm").is_dir() {
            return softring_testing::skipped!("no /dev/shm");
        }
        Record::new().make();
        assert!(Record::new().is_there());
    }

    #[test]
    fn a_request_without_an_end_is_a_fault() {
        let Some(trial) = trial() else { return };
        let mut byte = [0u8];
        // Takes the byte out, so that the poll does not find it.
        // SAFETY: the byte is ours.
        unsafe { sys!(__NR_read, trial.pipe[0], byte.as_mut_ptr().expose_provenance(), 1) };
        assert_eq!(trial.fault(), Some("a request has no end"));
    }

    #[test]
    fn a_request_that_fails_is_a_fault() {
        let Some(mut trial) = trial() else { return };
        // SAFETY: the trial's, which forgets it.
        unsafe { sys!(__NR_close, core::mem::replace(&mut trial.pipe[0], -1)) };
        assert_eq!(trial.fault(), Some("POLL_ADD"));
    }
}
