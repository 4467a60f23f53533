//! Requests on files as a whole, on paths, and on tables of files.

use super::Gen;
use super::pool::{FILES, FIXED_TABLE, Made, OPEN, WORLD, slot_key, ud_key};
use crate::fuzz::program::{Cell, Fd, Out, Slot, Val};
use softring_uapi::*;

/// Flags of open(2) that stay in the directory and wait for nobody.
const OPEN_FLAGS: [i32; 10] = [
    libc::O_RDONLY,
    libc::O_RDWR,
    libc::O_WRONLY,
    libc::O_RDWR | libc::O_CREAT,
    libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
    libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
    libc::O_RDWR | libc::O_APPEND,
    libc::O_RDONLY | libc::O_DIRECTORY,
    libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC,
    libc::O_PATH,
];
const MODES: [u32; 5] = [0o644, 0o600, 0o755, 0, 0o4777];

impl Gen<'_> {
    pub(super) fn fs(&mut self, op: u8) -> Made {
        let mut made = Made::default();
        made.sqe.op = op;
        match op {
            IORING_OP_FSYNC
            | IORING_OP_SYNC_FILE_RANGE
            | IORING_OP_FALLOCATE
            | IORING_OP_FTRUNCATE
            | IORING_OP_FADVISE => self.whole_file(&mut made),
            IORING_OP_MADVISE => self.madvise(&mut made),
            IORING_OP_OPENAT | IORING_OP_OPENAT2 => self.open(&mut made),
            IORING_OP_CLOSE => self.close(&mut made),
            IORING_OP_FIXED_FD_INSTALL => self.install(&mut made),
            IORING_OP_FILES_UPDATE => self.files_update(&mut made),
            IORING_OP_PIPE => self.pipe(&mut made),
            IORING_OP_SPLICE | IORING_OP_TEE => self.splice(&mut made),
            IORING_OP_FSETXATTR | IORING_OP_SETXATTR | IORING_OP_FGETXATTR | IORING_OP_GETXATTR => {
                self.xattr(&mut made)
            }
            _ => self.path_op(&mut made),
        }
        made
    }

    fn whole_file(&mut self, made: &mut Made) {
        if self.chance(70) {
            let slot = self.pick(&super::pool::REGULAR);
            made.sqe.fd = Fd::Slot(slot);
            made.keys.push((slot_key(slot), true));
        } else {
            self.file(made, true);
        }
        made.arms = false;
        let small = self.rng.u64(0..60_000);
        let sqe = &mut made.sqe;
        match sqe.op {
            IORING_OP_FSYNC => {
                sqe.op_flags = self.rng.u32(0..2);
                if self.rng.u32(0..5) == 0 {
                    (sqe.off, sqe.len) = (Val::Num(small), 4096);
                }
            }
            IORING_OP_SYNC_FILE_RANGE => {
                (sqe.off, sqe.len) = (Val::Num(small), self.rng.u32(0..30_000));
                sqe.op_flags = self.rng.u32(0..9);
            }
            IORING_OP_FALLOCATE => {
                let huge = self.rng.u32(0..10) == 0;
                let len = if huge { 1 << 62 } else { self.rng.u64(0..60_000) };
                (sqe.off, sqe.addr) = (Val::Num(small), Val::Num(len));
                sqe.len = [0, 1, 3, 2, 0x10, 0x11, 0x8, 0x20, 0x40][self.rng.usize(0..9)];
            }
            IORING_OP_FTRUNCATE => {
                let odd = [1 << 63, u64::MAX, (1 << 63) - 1][self.rng.usize(0..3)];
                sqe.off = Val::Num(if self.rng.u32(0..10) == 0 { odd } else { small });
            }
            _ => {
                (sqe.off, sqe.len) = (Val::Num(small), self.rng.u32(0..30_000));
                sqe.op_flags = self.rng.u32(0..7);
            }
        }
    }

    fn madvise(&mut self, made: &mut Made) {
        made.sqe.addr = self.buf(made, true);
        // The length does not reach the memory behind, where the requests' structures are.
        made.sqe.len = self.length().min(20_000);
        // These kinds of advice do nothing, or the same on every run.
        made.sqe.op_flags = self.pick(&[0, 1, 2, 3, 4, 9, 21, 999]);
    }

    fn open(&mut self, made: &mut Made) {
        made.sqe.fd = self.dirfd();
        made.sqe.addr = self.path(made, true);
        let flags = self.pick(&OPEN_FLAGS).cast_unsigned();
        let mode = self.pick(&MODES);
        if made.sqe.op == IORING_OP_OPENAT {
            (made.sqe.op_flags, made.sqe.len) = (flags, mode);
        } else {
            let creates = flags & libc::O_CREAT.cast_unsigned() != 0;
            let mode = if creates || self.chance(10) { mode } else { 0 };
            let resolve = if self.chance(20) { self.rng.u64(0..0x40) } else { 0 };
            let words = [u64::from(flags), u64::from(mode), resolve];
            made.sqe.off = Val::Mem(words.iter().map(|w| Cell::U64(Val::Num(*w))).collect());
            made.sqe.len = if self.chance(92) { 24 } else { self.pick(&[0, 23, 25, 32, 4097]) };
        }
        self.direct(made);
        if made.sqe.file == Fd::Num(0) {
            made.keys.push((ud_key(self.ud), true));
            self.opened.push((self.ud, FILES));
        }
    }

    fn close(&mut self, made: &mut Made) {
        made.keys.push((OPEN, true));
        if !self.fixed.is_empty() && self.chance(50) {
            made.sqe.file = Fd::Num(self.rng.i64(1..self.fixed.len() as i64 + 2));
            made.keys.push((FIXED_TABLE, true));
        } else if !self.opened.is_empty() && self.chance(60) {
            let (of, _) = self.opened[self.rng.usize(0..self.opened.len())];
            made.sqe.fd = Fd::Of(of);
            made.keys.push((ud_key(of), true));
        } else {
            let (slot, key) = self.slot(true);
            made.sqe.fd = Fd::Slot(slot);
            made.keys.push(key);
        }
    }

    fn install(&mut self, made: &mut Made) {
        made.sqe.fd = Fd::Num(self.rng.i64(0..self.fixed.len().max(1) as i64));
        made.sqe.flags = if self.chance(90) { IOSQE_FIXED_FILE } else { 0 };
        made.sqe.op_flags = u32::from(self.chance(20)) * IORING_FIXED_FD_NO_CLOEXEC;
        made.keys.push((FIXED_TABLE, false));
        made.keys.push((ud_key(self.ud), true));
        self.opened.push((self.ud, WORLD));
    }

    fn files_update(&mut self, made: &mut Made) {
        let n = self.rng.usize(1..4);
        let fds = (0..n).map(|_| Cell::Fd(self.table_entry())).collect();
        made.sqe.addr = Val::Mem(fds);
        made.sqe.len = n as u32;
        let alloc = self.chance(25);
        let at = self.rng.u64(0..self.fixed.len() as u64 + 2);
        made.sqe.off = Val::Num(if alloc { u64::from(u32::MAX) } else { at });
        made.keys.push((FIXED_TABLE, true));
        self.fixed.fill(None);
    }

    /// Returns a descriptor that a register call or a request may put into the table of files.
    pub(super) fn table_entry(&mut self) -> Fd {
        match self.rng.u32(0..100) {
            0..65 => Fd::Slot(self.slot(false).0),
            65..85 => Fd::Num(-1),
            85..92 => Fd::Num(-2),
            92..96 => Fd::Num(999),
            _ => Fd::Ring(0),
        }
    }

    fn pipe(&mut self, made: &mut Made) {
        made.sqe.addr = Val::Out(Out::Pipe);
        let flags = [0, libc::O_CLOEXEC, libc::O_NONBLOCK, libc::O_DIRECT, libc::O_APPEND];
        made.sqe.op_flags = self.pick(&flags).cast_unsigned();
        self.direct(made);
        if made.sqe.file != Fd::Num(0) {
            made.sqe.addr = Val::Out(Out::Raw(8));
        }
    }

    fn splice(&mut self, made: &mut Made) {
        let tee = made.sqe.op == IORING_OP_TEE;
        let from = [Slot::A, Slot::PipeR, Slot::FullR, Slot::NbR, Slot::SockA];
        let to = [Slot::PipeW, Slot::NbW, Slot::B, Slot::FullW, Slot::Wo, Slot::Null];
        let (mut from, mut to) = (self.pick(&from), self.pick(&to));
        if tee && self.chance(85) {
            let pipes =
                [(Slot::FullR, Slot::PipeW), (Slot::PipeR, Slot::NbW), (Slot::NbR, Slot::FullW)];
            (from, to) = self.pick(&pipes);
        }
        made.keys.extend([(slot_key(from), true), (slot_key(to), true)]);
        made.sqe.file = Fd::Slot(from);
        made.sqe.fd = Fd::Slot(to);
        made.sqe.len = self.length().min(60_000);
        let offset = |g: &mut Self| if g.chance(75) { u64::MAX } else { g.offset() };
        if !tee || self.chance(10) {
            made.sqe.addr = Val::Num(offset(self));
            made.sqe.off = Val::Num(offset(self));
        }
        // Without SPLICE_F_NONBLOCK a worker would wait in the pipe.
        made.sqe.op_flags = 2;
        if self.chance(5) {
            made.sqe.op_flags |= self.pick(&[1, 4, 8, 0x10, SPLICE_F_FD_IN_FIXED]);
        }
    }

    fn xattr(&mut self, made: &mut Made) {
        let (op, get) =
            (made.sqe.op, matches!(made.sqe.op, IORING_OP_FGETXATTR | IORING_OP_GETXATTR));
        if matches!(op, IORING_OP_FSETXATTR | IORING_OP_FGETXATTR) {
            let slot = self.pick(&[Slot::A, Slot::A, Slot::B, Slot::Ro, Slot::Dir, Slot::PipeR]);
            made.sqe.fd = Fd::Slot(slot);
            made.keys.push((slot_key(slot), !get));
        } else {
            made.sqe.addr3 = self.path(made, !get);
            if self.chance(40) {
                made.sqe.addr3 = Val::Str("a".to_owned());
            }
        }
        let names =
            ["user.one", "user.one", "user.two", "user.two", "nonsense", "user.", "", "system.x"];
        made.sqe.addr = Val::Str(self.pick(&names).to_owned());
        made.sqe.len = if self.chance(70) { 64 } else { self.rng.u32(0..40) };
        if get {
            made.sqe.off = Val::Out(Out::Raw(64));
        } else {
            made.sqe.off = Val::Buf(7, 0);
            made.sqe.op_flags = self.pick(&[0, 0, 1, 2, 3, 8]);
        }
    }

    fn path_op(&mut self, made: &mut Made) {
        made.sqe.fd = self.dirfd();
        match made.sqe.op {
            IORING_OP_STATX => {
                made.sqe.addr = self.path(made, false);
                made.sqe.off = Val::Out(Out::Statx);
                made.sqe.len = self.pick(&[0x7ff, 0x7ff, 0x200, 0, 0x8000_0000]);
                made.sqe.op_flags = self.pick(&[0, 0x100, 0x1000, 0x800, 0x2000, 1]);
            }
            IORING_OP_RENAMEAT | IORING_OP_LINKAT => {
                made.sqe.addr = self.path(made, true);
                made.sqe.off = self.path(made, true);
                made.sqe.len = libc::AT_FDCWD.cast_unsigned();
                made.sqe.op_flags = if made.sqe.op == IORING_OP_RENAMEAT {
                    self.pick(&[0, 0, 1, 2, 4, 8])
                } else {
                    self.pick(&[0, 0, 0x400, 0x1000, 1])
                };
            }
            IORING_OP_UNLINKAT => {
                made.sqe.addr = self.path(made, true);
                made.sqe.op_flags = self.pick(&[0, 0, 0x200, 1]);
            }
            IORING_OP_MKDIRAT => {
                made.sqe.addr = self.path(made, true);
                made.sqe.len = self.pick(&MODES);
            }
            _ => {
                made.sqe.addr = Val::Str(self.pick(&["a", "n0", "b", "sub"]).to_owned());
                made.sqe.off = self.path(made, true);
            }
        }
    }
}
