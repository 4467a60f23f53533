//! Setups of rings: those that programs use, and those that the kernel refuses.

use super::Gen;
use crate::fuzz::program::{Program, Setup, Step};
use softring_uapi::*;

/// Gives an SQ thread to each ring that can have one; the program is the same otherwise. The
/// threads sleep at once, soon, or not at all. A bad SQE that ends a batch leaves the rest to the
/// thread's next pass, which is a race, so no SQE ends a batch.
pub fn sqpoll(program: &mut Program) {
    const TASKRUN: u32 =
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_DEFER_TASKRUN;
    let idle = [0, 1, 5, 50][(program.seed % 4) as usize];
    for step in &mut program.steps {
        if let Step::Setup(s) = step
            && s.flags & IORING_SETUP_IOPOLL == 0
        {
            s.flags = s.flags & !TASKRUN | IORING_SETUP_SQPOLL | IORING_SETUP_SUBMIT_ALL;
            s.idle = idle;
        }
    }
}

impl Gen<'_> {
    /// Sets up a ring with flags that the kernel accepts; returns the flags.
    pub(super) fn setup(&mut self, ring: u8) -> u32 {
        let mut flags = 0;
        let issuer = IORING_SETUP_SINGLE_ISSUER;
        if self.chance(60) {
            flags |= self.pick(&[
                IORING_SETUP_COOP_TASKRUN,
                IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
                issuer,
                issuer | IORING_SETUP_DEFER_TASKRUN,
                issuer | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
            ]);
        }
        let others = [
            (IORING_SETUP_SUBMIT_ALL, 40),
            (IORING_SETUP_CQSIZE, 35),
            (IORING_SETUP_CLAMP, 10),
            (IORING_SETUP_R_DISABLED, 8),
            (IORING_SETUP_SQE128, 10),
            (IORING_SETUP_CQE32, 10),
            (IORING_SETUP_NO_SQARRAY, 15),
            (IORING_SETUP_NO_MMAP, 6),
        ];
        for (flag, percent) in others {
            if self.chance(percent) {
                flags |= flag;
            }
        }
        if flags & IORING_SETUP_CQE32 == 0 && self.chance(8) {
            // The CQ has room to spare: the kernel loses count if a wide CQE finds only the last
            // slot (`fuzz_found::cqe32_at_last_slot`).
            flags |= IORING_SETUP_CQE_MIXED | IORING_SETUP_CQSIZE;
        }
        if ring == 1 && self.chance(10) {
            flags |= IORING_SETUP_ATTACH_WQ;
        }
        self.wide |= flags & (IORING_SETUP_CQE32 | IORING_SETUP_CQE_MIXED) != 0;
        let entries = self.pick(&[1, 2, 4, 8, 8, 16, 16, 32, 5]);
        let mut cq_entries = self.pick(&[entries, 2 * entries, 64, entries + 1]);
        if flags & IORING_SETUP_CQE_MIXED != 0 {
            cq_entries = 256;
        }
        self.steps.push(Step::Setup(Setup {
            ring,
            entries,
            flags,
            cq_entries: if flags & IORING_SETUP_CQSIZE != 0 { cq_entries } else { 0 },
            wq_ring: (flags & IORING_SETUP_ATTACH_WQ != 0).then_some(0),
            ..Setup::default()
        }));
        flags
    }

    /// Makes setups of every kind that the kernel refuses, or that are never used.
    pub(super) fn bad_setup(&mut self) {
        let mut flags = self.rng.u32(0..1 << 19);
        // Polled rings are refused in every combination but the plain ones, which are left out.
        if flags & (IORING_SETUP_SQPOLL | IORING_SETUP_IOPOLL) != 0 {
            flags |= 1 << self.rng.u32(21..32);
        }
        flags &= !(IORING_SETUP_ATTACH_WQ | IORING_SETUP_NO_MMAP | IORING_SETUP_REGISTERED_FD_ONLY);
        let setup = Setup {
            ring: 0,
            entries: self.pick(&[0, 1, 8, 32_768, 32_769, u32::MAX]),
            flags,
            cq_entries: self.pick(&[0, 1, 7, 65_536, 65_537, u32::MAX]),
            wq_ring: None,
            resv: u32::from(self.chance(5)),
            idle: 0,
        };
        self.steps.push(Step::Setup(setup));
        if self.chance(50) {
            let nop = self.op(IORING_OP_NOP);
            self.queue(nop, &mut Vec::new());
            self.enter(0);
            self.steps.push(Step::AwaitIdle);
            self.steps.push(Step::Reap { ring: 0, max: None });
        }
    }
}
