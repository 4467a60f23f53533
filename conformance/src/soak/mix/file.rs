//! Blocks of a file: written in every way, read in every way, and compared; and a slot whose file
//! changes while requests use it.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::super::ledger::End;
use super::super::{Check, ensure, sys};
use super::stage::{PATTERN, PIECE, PIECES, Scene, Stage, Step, Token};
use crate::ring::Map;
use crate::sqe::{self, SqeExt};
use softring_uapi::*;

const BLOCKS: u64 = 6;
const LEN: usize = 4096;

/// A scene of a file and another, whose contents are elsewhere in the pattern.
#[derive(Debug)]
pub struct Job {
    scene: usize,
    ring: usize,
    files: [File; 2],
    streams: [usize; 2],
    /// Phase: writing, syncing, reading, reading through a slot, and the end.
    phase: u32,
    open: u32,
    memory: Map,
}

impl Job {
    pub fn new(stage: &mut Stage, scene: usize) -> Check<Self> {
        let file = || tempfile::tempfile().map_err(|e| format!("making a file: {e}"));
        let map = Map::anonymous(8192 + BLOCKS as usize * LEN);
        let stream = stage.rng.usize(..30_000);
        stage.count("files", 2);
        Ok(Job {
            scene,
            ring: stage.any_ring(),
            files: [file()?, file()?],
            streams: [stream, stream + 1],
            phase: 0,
            open: 0,
            memory: map.map_err(|e| format!("no memory: errno {e}"))?,
        })
    }

    fn push(&mut self, stage: &mut Stage, sqe: io_uring_sqe, who: usize, block: u32) -> Check {
        self.open += 1;
        let token = Token { scene: self.scene, who, step: Step::Other(block) };
        stage.push(self.ring, &[(sqe, token)]).map(drop)
    }

    /// Returns the address where a block's bytes are read to.
    fn block(&self, i: u64) -> usize {
        self.memory.addr + 8192 + i as usize * LEN
    }

    fn vector(&self, i: u64, at: usize) -> usize {
        let vec = self.memory.addr + i as usize * 64;
        sys::store(vec, [at as u64, 1000, at as u64 + 1000, LEN as u64 - 1000]);
        vec
    }

    fn piece(&self, stage: &Stage) -> usize {
        stage.pieces.addr + self.scene * PIECE
    }

    fn write(&mut self, stage: &mut Stage, who: usize, i: u64) -> Check {
        let (fd, at) = (self.files[who].as_raw_fd(), i * LEN as u64);
        let from = stage.pattern.at(self.streams[who], at);
        let sqe = match stage.rng.u32(..3) {
            0 => sqe::rw(IORING_OP_WRITE, fd, from, LEN, at),
            1 => sqe::rw(IORING_OP_WRITEV, fd, self.vector(i + BLOCKS * who as u64, from), 2, at),
            _ => sqe::rw(IORING_OP_WRITE_FIXED, fd, from, LEN, at).set(|s| s.buf_index = PATTERN),
        };
        let sqe = if stage.one_in(4) { sqe.with(IOSQE_ASYNC) } else { sqe };
        self.push(stage, sqe, who, i as u32)
    }

    fn read(&mut self, stage: &mut Stage, i: u64) -> Check {
        let (fd, off, to) = (self.files[0].as_raw_fd(), i * LEN as u64, self.block(i));
        let sqe = match stage.rng.u32(..3) {
            // This scene has only one registered piece.
            0 if i == 0 => sqe::rw(IORING_OP_READ_FIXED, fd, self.piece(stage), LEN, off)
                .set(|s| s.buf_index = PIECES),
            1 => sqe::rw(IORING_OP_READV, fd, self.vector(i, to), 2, off),
            _ => sqe::rw(IORING_OP_READ, fd, to, LEN, off),
        };
        let fixed = sqe.opcode == IORING_OP_READ_FIXED;
        let sqe = if stage.one_in(4) { sqe.with(IOSQE_ASYNC) } else { sqe };
        self.push(stage, sqe, usize::from(fixed), i as u32)
    }

    /// Reads one file's blocks, then the other's, through the same slot, which changes in between.
    fn through_slot(&mut self, stage: &mut Stage) -> Check {
        let slot = 2 * self.scene;
        for who in 0..3 {
            let at = self.memory.addr + 4096 + who * 8;
            let fd = if who < 2 { self.files[who].as_raw_fd() } else { -1 };
            self.push(stage, Stage::slot_sqe(slot, fd, at), who, u32::MAX)?;
            for i in (0..BLOCKS / 2).filter(|_| who < 2) {
                let at = self.block(i + who as u64 * BLOCKS / 2);
                let read = sqe::rw(IORING_OP_READ, slot as i32, at, LEN, i * LEN as u64).fixed();
                self.push(stage, read, who, i as u32)?;
            }
        }
        Ok(())
    }

    fn next(&mut self, stage: &mut Stage) -> Check {
        self.phase += 1;
        match self.phase {
            1 => (0..2 * BLOCKS).try_for_each(|i| self.write(stage, (i % 2) as usize, i / 2)),
            2 if stage.one_in(8) => {
                let sync = sqe::op(IORING_OP_FSYNC, self.files[0].as_raw_fd());
                self.push(stage, sync, 0, u32::MAX)
            }
            2 => self.next(stage),
            3 => (0..BLOCKS).try_for_each(|i| self.read(stage, i)),
            4 => self.through_slot(stage),
            _ => Ok(()),
        }
    }

    /// Checks that the memory has the bytes that a completion reports.
    fn check(&self, stage: &Stage, who: usize, i: u64) -> Check {
        let (at, file) = match (self.phase, who) {
            (3, 1) => (self.piece(stage), 0),
            (3, _) => (self.block(i), 0),
            _ => (self.block(i + who as u64 * BLOCKS / 2), who),
        };
        let offset = i * LEN as u64;
        stage.pattern.check(self.streams[file], offset, &sys::bytes(at, LEN))
    }
}

impl Scene for Job {
    fn on(&mut self, stage: &mut Stage, end: &End<Token>) -> Check {
        self.open -= 1;
        let Step::Other(block) = end.token.step else { return Err("no such step".into()) };
        let want = match (self.phase, block) {
            (2, _) => 0,
            (_, u32::MAX) => 1,
            _ => LEN as i32,
        };
        ensure(end.cqe.res == want, || "an odd result".into())?;
        if self.phase > 2 && block != u32::MAX {
            self.check(stage, end.token.who, block.into())?;
            stage.count("bytes", LEN as u64);
        }
        if self.open == 0 { self.next(stage) } else { Ok(()) }
    }

    fn tick(&mut self, stage: &mut Stage) -> Check {
        if self.phase == 0 { self.next(stage) } else { Ok(()) }
    }

    fn over(&self) -> bool {
        self.phase > 4 && self.open == 0
    }
}
