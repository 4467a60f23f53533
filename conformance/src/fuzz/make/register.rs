//! Register calls.

use super::Gen;
use crate::fuzz::program::{Cell, Fd, Out, Slot, Step, Val};
use softring_uapi::*;

pub(super) fn word(v: u64) -> Cell {
    Cell::U64(Val::Num(v))
}

fn iovec(i: u8, len: u64) -> [Cell; 2] {
    [Cell::U64(Val::Buf(i, 0)), word(len)]
}

/// Makes a `struct io_uring_rsrc_update2`; `offset` and `nr` are separate.
fn update2(offset: u32, data: Val, tags: Val, nr: u32) -> Val {
    let tail = [Cell::U32(nr), Cell::U32(0)];
    let head = [Cell::U32(offset), Cell::U32(0), Cell::U64(data), Cell::U64(tags)];
    Val::Mem(head.into_iter().chain(tail).collect())
}

impl Gen<'_> {
    pub(super) fn call(&mut self, ring: u8, op: u32, arg: Val, nr: u32) {
        self.steps.push(Step::Register { ring, op, arg, nr });
    }

    /// Registers files at the start.
    pub(super) fn files(&mut self, ring: u8) {
        let n = self.rng.usize(1..7);
        let sparse = self.chance(25);
        let slots: Vec<Option<Slot>> =
            (0..n).map(|_| (!sparse && self.chance(80)).then(|| self.slot(false).0)).collect();
        let fds: Vec<Cell> =
            slots.iter().map(|s| Cell::Fd(s.map_or(Fd::Num(-1), Fd::Slot))).collect();
        if sparse {
            let cells = vec![Cell::U32(n as u32), Cell::U32(1), word(0), word(0), word(0)];
            self.call(ring, IORING_REGISTER_FILES2, Val::Mem(cells), 32);
        } else if self.chance(40) {
            let tags = (0..n).map(|i| word(if i % 2 == 0 { 7000 + i as u64 } else { 0 }));
            let (data, tags) = (Cell::U64(Val::Mem(fds)), Cell::U64(Val::Mem(tags.collect())));
            let cells = vec![Cell::U32(n as u32), Cell::U32(0), word(0), data, tags];
            self.call(ring, IORING_REGISTER_FILES2, Val::Mem(cells), 32);
        } else {
            self.call(ring, IORING_REGISTER_FILES, Val::Mem(fds), n as u32);
        }
        if ring == 0 {
            // The kernel refuses a second table, unless the first was unregistered.
            let known = self.fixed.is_empty();
            self.fixed = if known { slots } else { vec![None; self.fixed.len()] };
        }
    }

    /// Registers the arena's first buffers.
    pub(super) fn register_buffers(&mut self, ring: u8) {
        let n = self.rng.u8(1..6);
        let iovs = |n: u8| (0..n).flat_map(|i| iovec(i, 8192)).collect::<Vec<Cell>>();
        if self.chance(60) {
            self.call(ring, IORING_REGISTER_BUFFERS, Val::Mem(iovs(n)), u32::from(n));
        } else {
            let tags = Val::Mem((0..n).map(|i| word(8000 + u64::from(i))).collect());
            let (data, tags) = (Cell::U64(Val::Mem(iovs(n))), Cell::U64(tags));
            let cells = vec![Cell::U32(u32::from(n)), Cell::U32(0), word(0), data, tags];
            self.call(ring, IORING_REGISTER_BUFFERS2, Val::Mem(cells), 32);
        }
        if ring == 0 {
            self.buffers = n;
        }
    }

    /// Registers restrictions of a ring that is still disabled.
    pub(super) fn restrictions(&mut self, ring: u8) {
        let mut cells = Vec::new();
        let n = self.rng.u32(1..8);
        for _ in 0..n {
            let kinds = if self.chance(5) { 6 } else { 4 };
            let kind = self.rng.u16(0..kinds);
            let arg = match kind {
                0 => self.rng.u8(0..36),
                1 => self.pick(super::OPS),
                _ => self.pick(&[0x7f, 1, 4, 0, 0x1d]),
            };
            cells.extend([Cell::U16(kind), Cell::U8(arg), Cell::U8(0)]);
            cells.extend([Cell::U32(0), Cell::U32(0), Cell::U32(0)]);
        }
        self.call(ring, IORING_REGISTER_RESTRICTIONS, Val::Mem(cells), n);
    }

    /// Makes any register call in the middle of a program.
    pub(super) fn register(&mut self) {
        let ring = u8::from(self.two && self.chance(25));
        match self.rng.u32(0..100) {
            0..8 => self.files(ring),
            8..16 => self.register_buffers(ring),
            16..34 => self.update(ring),
            34..42 => self.sync_cancel(ring),
            42..52 => self.eventfd(ring),
            52..58 => self.resize(ring),
            58..64 => self.clone_buffers(ring),
            64..70 => self.unregister(ring),
            70..76 => self.ring_fds(ring),
            76..92 => self.small(ring),
            _ => self.nonsense(ring),
        }
    }

    fn update(&mut self, ring: u8) {
        let n = self.rng.u32(1..4);
        let off = self.rng.u32(0..self.fixed.len() as u32 + 2);
        let fds = Val::Mem((0..n).map(|_| Cell::Fd(self.table_entry())).collect());
        match self.rng.u32(0..3) {
            0 => {
                let cells = vec![Cell::U32(off), Cell::U32(0), Cell::U64(fds)];
                self.call(ring, IORING_REGISTER_FILES_UPDATE, Val::Mem(cells), n);
                self.fixed.fill(None);
            }
            1 => {
                let tags = Val::Mem((0..n).map(|i| word(u64::from(i) * 7100)).collect());
                let tags = if self.chance(50) { tags } else { Val::Num(0) };
                self.call(ring, IORING_REGISTER_FILES_UPDATE2, update2(off, fds, tags, n), 32);
                self.fixed.fill(None);
            }
            _ => {
                let iov = (0..n).flat_map(|i| iovec(i as u8, if i == 1 { 0 } else { 4096 }));
                let tags = Val::Mem((0..n).map(|i| word(u64::from(i) * 8100)).collect());
                let arg = update2(off, Val::Mem(iov.collect()), tags, n);
                self.call(ring, IORING_REGISTER_BUFFERS_UPDATE, arg, 32);
            }
        }
    }

    fn sync_cancel(&mut self, ring: u8) {
        let target = match self.live.len() {
            0 => 3,
            n => self.live[self.rng.usize(0..n)].0,
        };
        let (slot, _) = self.slot(false);
        let flags = self.pick(&[0, 0, 1, 2, 3, 4, 5, 8, 0x20, 64]);
        // The wait is short: it ends with -ETIME if requests remain.
        let mut cells = vec![word(target), Cell::Fd(Fd::Slot(slot)), Cell::U32(flags)];
        cells.extend([word(0), word(5_000_000), Cell::U8(6)]);
        cells.extend((0..7).map(|_| Cell::U8(0)));
        cells.extend((0..3).map(|_| word(0)));
        self.call(ring, IORING_REGISTER_SYNC_CANCEL, Val::Mem(cells), 1);
    }

    fn eventfd(&mut self, ring: u8) {
        let fd = if self.chance(85) { Fd::Slot(Slot::RingEvent) } else { self.table_entry() };
        let arg = Val::Mem(vec![Cell::Fd(fd)]);
        match self.rng.u32(0..10) {
            0..6 => self.call(ring, IORING_REGISTER_EVENTFD, arg, 1),
            6..8 => self.call(ring, IORING_REGISTER_EVENTFD_ASYNC, arg, 1),
            _ => self.call(ring, IORING_UNREGISTER_EVENTFD, Val::Num(0), 0),
        }
    }

    fn resize(&mut self, ring: u8) {
        let sq = self.pick(&[0, 1, 4, 8, 16, 3, 40_000]);
        let cq = self.pick(&[0, 1, 2, 8, 64, 100_000]);
        let flags = self.pick(&[0, 8, 8, 0x10, 0x18, 1]);
        self.steps.push(Step::Resize { ring, sq, cq, flags });
    }

    fn clone_buffers(&mut self, ring: u8) {
        let from = u8::from(self.two && self.chance(60)) ^ ring;
        let (src, dst, nr) = (self.pick(&[0, 0, 1]), self.pick(&[0, 0, 2]), self.pick(&[0, 1, 2]));
        let mut cells = vec![Cell::Fd(Fd::Ring(from)), Cell::U32(self.pick(&[0, 0, 2, 1, 4]))];
        cells.extend([Cell::U32(src), Cell::U32(dst), Cell::U32(nr)]);
        cells.extend([Cell::U32(0), Cell::U32(0), Cell::U32(0)]);
        self.call(ring, IORING_REGISTER_CLONE_BUFFERS, Val::Mem(cells), 1);
    }

    fn unregister(&mut self, ring: u8) {
        let ops = [IORING_UNREGISTER_BUFFERS, IORING_UNREGISTER_FILES];
        let op = self.pick(&ops);
        self.call(ring, op, Val::Num(0), 0);
    }

    fn ring_fds(&mut self, ring: u8) {
        let at = self.pick(&[u32::MAX, 0, 1, 15, 16]);
        let cells = vec![Cell::U32(at), Cell::U32(0), Cell::Fd(Fd::Ring(ring)), Cell::U32(0)];
        let op = self.pick(&[IORING_REGISTER_RING_FDS, IORING_UNREGISTER_RING_FDS]);
        let cells = if op == IORING_UNREGISTER_RING_FDS {
            vec![Cell::U32(at), Cell::U32(0), word(0)]
        } else {
            cells
        };
        self.call(ring, op, Val::Mem(cells), 1);
    }

    fn small(&mut self, ring: u8) {
        match self.rng.u32(0..8) {
            0 => self.call(ring, IORING_REGISTER_PROBE, Val::Out(Out::Probe), 256),
            1 => self.call(ring, IORING_REGISTER_PERSONALITY, Val::Num(0), 0),
            2 => {
                let id = self.rng.u32(0..3);
                self.call(ring, IORING_UNREGISTER_PERSONALITY, Val::Num(0), id);
            }
            3 => {
                // There is room for all requests that may block: a further one would wait for ever.
                // On the kernel a chain waits in the worker of its head, on softring it does not.
                let words = [self.pick(&[0, 8, 16]), self.pick(&[0, 16])];
                let arg = Val::Mem(words.iter().map(|w| Cell::U32(*w)).collect());
                self.call(ring, IORING_REGISTER_IOWQ_MAX_WORKERS, arg, 2);
            }
            4 => {
                let (at, n) = (self.rng.u32(0..4), self.rng.u32(0..8));
                let arg = Val::Mem(vec![Cell::U32(at), Cell::U32(n), word(0)]);
                self.call(ring, IORING_REGISTER_FILE_ALLOC_RANGE, arg, 0);
            }
            5 => {
                let clock = self.pick(&[0, 1, 7, 2, 99]);
                let arg =
                    Val::Mem((0..4).map(|i| Cell::U32(if i == 0 { clock } else { 0 })).collect());
                self.call(ring, IORING_REGISTER_CLOCK, arg, 0);
            }
            6 => {
                let arg = Val::Mem(vec![word(self.pick(&[1, 3, 0]))]);
                let size = self.pick(&[8, 8, 128, 0]);
                self.call(ring, IORING_REGISTER_IOWQ_AFF, arg, size);
                self.call(ring, IORING_UNREGISTER_IOWQ_AFF, Val::Num(0), 0);
            }
            _ => self.call(ring, IORING_REGISTER_ENABLE_RINGS, Val::Num(0), 0),
        }
    }

    fn nonsense(&mut self, ring: u8) {
        let known = [0, 2, 4, 6, 8, 9, 11, 13, 14, 15, 16, 17, 19, 20, 21, 24, 25, 29, 30, 34, 35];
        let op = if self.chance(85) { self.pick(&known) } else { self.rng.u32(36..100) };
        let arg = match self.rng.u32(0..3) {
            0 => Val::Num(0),
            1 => Val::Bad(self.bad()),
            _ => Val::Out(Out::Raw(256)),
        };
        let nr = self.pick(&[0, 1, 2, 32, 31, u32::MAX, 1 << 15, 1 << 20]);
        self.call(ring, op, arg, nr);
    }
}
