//! Reads in flight, and a check that each completes once, with its data.

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

pub const BLOCK: usize = 4096;
/// Blocks of the file, each filled with its number.
pub const BLOCKS: usize = 64;

#[derive(Clone)]
#[repr(align(4096))]
pub struct Block(pub [u8; BLOCK]);

/// Kind of a ring: each is one word of the command line.
#[derive(Clone, Copy)]
pub struct Kind {
    polled: bool,
    /// Flag, true if a thread submits, until there is nothing to do for 50 ms.
    threaded: bool,
}

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        let (polled, threaded) = match name {
            "plain" => (false, false),
            "iopoll" => (true, false),
            "sqpoll" => (false, true),
            "sqpoll-iopoll" => (true, true),
            _ => return None,
        };
        Some(Kind { polled, threaded })
    }
}

/// A ring, a file, and the reads in flight between them.
pub struct Work {
    pub ring: IoUring,
    kind: Kind,
    pub file: File,
    blocks: Vec<Block>,
    /// Slots: number of uses, and true while in flight.
    slots: Vec<(u32, bool)>,
    pub done: usize,
    /// Waits that a signal ended.
    pub interrupted: usize,
}

impl Work {
    /// Makes a ring with room for `n` reads of `path`.
    pub fn new(path: &str, kind: Kind, n: usize) -> Result<Work, String> {
        let file = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
        let file = file.map_err(|e| format!("{path}: {e}"))?;
        let mut builder = IoUring::builder();
        if kind.polled {
            builder.setup_iopoll();
        }
        if kind.threaded {
            builder.setup_sqpoll(50);
        }
        let room = n.next_power_of_two() as u32;
        let ring = builder.build(room).map_err(|e| format!("setup: {e}"))?;
        let (blocks, slots) = (vec![Block([0xff; BLOCK]); n], vec![(0, false); n]);
        Ok(Work { ring, kind, file, blocks, slots, done: 0, interrupted: 0 })
    }

    pub fn in_flight(&self) -> usize {
        self.slots.iter().filter(|s| s.1).count()
    }

    /// Queues a read for every slot that has none.
    pub fn fill(&mut self) -> usize {
        let at = types::Fd(self.file.as_raw_fd());
        let mut queued = 0;
        for (i, (uses, busy)) in self.slots.iter_mut().enumerate().filter(|(_, s)| !s.1) {
            (*uses, *busy) = (*uses + 1, true);
            self.blocks[i].0.fill(0xff);
            let read = opcode::Read::new(at, self.blocks[i].0.as_mut_ptr(), BLOCK as u32);
            let read = read.offset((i % BLOCKS * BLOCK) as u64).build();
            let read = read.user_data(u64::from(*uses) << 32 | i as u64);
            // SAFETY: the blocks outlive the ring's requests: `main` waits for all, or ends.
            unsafe { self.ring.submission().push(&read) }.expect("room for every slot");
            queued += 1;
        }
        queued
    }

    /// Takes the completions, each once.
    pub fn take(&mut self) -> Result<usize, String> {
        let (mut n, blocks, slots) = (0, &self.blocks, &mut self.slots);
        for cqe in self.ring.completion() {
            let (uses, i) = ((cqe.user_data() >> 32) as u32, cqe.user_data() as u32 as usize);
            let slot = slots.get_mut(i).ok_or_else(|| format!("nobody's: {cqe:?}"))?;
            if *slot != (uses, true) {
                return Err(format!("{cqe:?} twice: slot {i} is {slot:?}"));
            }
            slot.1 = false;
            let byte = (i % BLOCKS) as u8;
            if cqe.result() != BLOCK as i32 || blocks[i].0.iter().any(|b| *b != byte) {
                return Err(format!("block {i}: {}, {}", cqe.result(), blocks[i].0[0]));
            }
            n += 1;
        }
        self.done += n;
        Ok(n)
    }

    /// Submits and waits for `min`; a signal may end the wait.
    pub fn enter(&mut self, min: usize) -> Result<(), String> {
        match self.ring.submit_and_wait(min) {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {
                self.interrupted += 1;
                Ok(())
            }
            Err(e) => Err(format!("enter: {e}")),
        }
    }

    /// Makes another ring of the same kind for the same file.
    pub fn again(&self) -> Result<Work, String> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Work::new(&path, self.kind, self.slots.len())
    }

    /// Submits a write of each slot's block over itself.
    pub fn write_all(&mut self) -> Result<(), String> {
        let at = types::Fd(self.file.as_raw_fd());
        for (i, slot) in self.slots.iter_mut().enumerate() {
            *slot = (slot.0 + 1, true);
            let write = opcode::Write::new(at, self.blocks[i].0.as_ptr(), BLOCK as u32);
            let write = write.offset((i % BLOCKS * BLOCK) as u64).build();
            let write = write.user_data(u64::from(slot.0) << 32 | i as u64);
            // SAFETY: as in `fill`.
            unsafe { self.ring.submission().push(&write) }.expect("room for every slot");
        }
        self.enter(0)
    }

    /// Waits for all requests in flight.
    pub fn finish(&mut self) -> Result<(), String> {
        while self.in_flight() > 0 {
            self.enter(1)?;
            self.take()?;
        }
        self.enter(0)?;
        match self.take()? {
            0 => Ok(()),
            n => Err(format!("{n} more than were asked for")),
        }
    }
}
