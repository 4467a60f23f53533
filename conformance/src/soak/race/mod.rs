//! Cancels against completions: requests of every kind that waits are submitted, one thread causes
//! the awaited events, another cancels the requests. Whichever wins, each request has exactly one
//! final CQE, and the bytes that it took or gave agree with what is left.

mod child;
mod data;
mod make;
mod tcp;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::ledger::{END_LIMIT, End, Ledger, Totals};
use super::pbuf::Pbufs;
use super::{Check, ensure};
use crate::entry::EntryPoint;
use crate::ring::Cqe;
use crate::sqe::{self, SqeExt, addr};
use make::{GROUP, Waiting};
use softring_uapi::*;

/// Setup flags of the rings: the default, DEFER_TASKRUN, and with an SQ thread.
pub const RINGS: [(&str, u32); 3] = [
    ("default", 0),
    ("DEFER_TASKRUN", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN),
    ("SQPOLL", IORING_SETUP_SQPOLL),
];

const ENTRIES: u32 = 128;
/// Number of ways to cancel in a round: one by one, in a batch, by file, by opcode, all, by the
/// register call, by the opcodes' own removal, not at all.
const WAYS: u32 = 8;

/// Results of one kind: how often it was completed, and how often cancelled.
pub type Score = BTreeMap<&'static str, [u64; 2]>;

/// A request of a round: its kind's place, and its own in the chain.
type Token = (usize, usize);

struct Race {
    ledger: Ledger<Token>,
    pbufs: Pbufs,
    rng: Rng,
}

/// Races for `time`, on a ring made with `flags`.
pub fn run(entry: EntryPoint, flags: u32, seed: u64, time: Duration) -> Check<(Score, Totals)> {
    let params = io_uring_params { flags, sq_thread_idle: 5, ..Default::default() };
    let ledger = Ledger::new(entry, ENTRIES, params)?;
    let pbufs = Pbufs::new(&ledger.ring, GROUP, 64, 32)?;
    let mut race = Race { ledger, pbufs, rng: Rng::with_seed(seed) };
    let mut score = Score::new();
    let began = Instant::now();
    for round in 0.. {
        if began.elapsed() >= time {
            break;
        }
        race.round(&mut score).map_err(|e| format!("round {round}: {e}"))?;
    }
    Ok((score, race.ledger.totals))
}

impl Race {
    fn round(&mut self, score: &mut Score) -> Check {
        let mut all = make::some_of_each(&mut self.rng)?;
        self.rng.shuffle(&mut all);
        let mut numbers = Vec::new();
        for (i, w) in all.iter().enumerate() {
            let chain: Vec<_> = w.sqes.iter().enumerate().map(|(n, s)| (*s, (i, n))).collect();
            numbers.push(self.ledger.push(&chain)?);
        }
        self.ledger.submit(0, Duration::ZERO)?;
        let way = self.rng.u32(..WAYS);
        let mut ends = vec![Vec::new(); all.len()];
        let (spins, order) = (self.rng.u32(..4000), self.order(all.len()));
        std::thread::scope(|scope| {
            let happens = scope.spawn(|| {
                (0..spins).for_each(|_| std::hint::spin_loop());
                order.iter().for_each(|&i| (all[i].happen)());
            });
            let cancelled = self.cancel(way, &all, &numbers, &mut ends);
            happens.join().map_err(|_| "what was to happen did not".to_owned())?;
            cancelled
        })?;
        self.last_chance(&mut ends)?;
        self.ledger.cancel_all(|end| ends[end.token.0].push(end))?;
        for (w, ends) in all.iter().zip(&ends) {
            let of =
                |n| -> Vec<Cqe> { ends.iter().filter(|e| e.token.1 == n).map(|e| e.cqe).collect() };
            let cqes: Vec<_> = (0..w.sqes.len()).map(of).collect();
            let told = || format!("{} (way {way}): {cqes:?}", w.name);
            (w.account)(&cqes, &mut self.pbufs).map_err(|e| format!("{}: {e}", told()))?;
            let results = cqes[0].iter().filter(|c| c.flags & IORING_CQE_F_NOTIF == 0);
            let came = results.map(|c| c.res).any(|res| res >= 0 || res == -libc::ETIME);
            score.entry(w.name).or_default()[usize::from(!came)] += 1;
        }
        Ok(())
    }

    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..n).collect();
        self.rng.shuffle(&mut order);
        order
    }

    fn cancel(
        &mut self,
        way: u32,
        all: &[Waiting],
        numbers: &[u64],
        ends: &mut [Vec<End<Token>>],
    ) -> Check {
        (0..self.rng.u32(..8000)).for_each(|_| std::hint::spin_loop());
        let many = IORING_ASYNC_CANCEL_ALL;
        let order = self.order(all.len());
        let rows = order.iter().map(|&i| (&all[i], numbers[i]));
        let sqes: Vec<_> = match way {
            0 | 1 => rows.map(|(_, number)| sqe::cancel(number, 0)).collect(),
            2 => rows
                .map(|(w, number)| match w.fd {
                    -1 => sqe::cancel(number, 0),
                    fd => sqe::cancel(0, IORING_ASYNC_CANCEL_FD | many).set(|s| s.fd = fd),
                })
                .collect(),
            3 => rows
                .map(|(w, _)| {
                    let op = sqe::cancel(0, IORING_ASYNC_CANCEL_OP | many);
                    op.set(|s| s.len = w.sqes[0].opcode.into())
                })
                .collect(),
            4 => vec![sqe::cancel(0, IORING_ASYNC_CANCEL_ANY | many)],
            5 => return self.sync_cancel(),
            6 => rows.map(|(w, number)| w.removal(number)).collect(),
            _ => Vec::new(),
        };
        for sqe in sqes {
            self.ledger.cancel(sqe);
            if way == 0 {
                self.ledger.submit(0, Duration::ZERO)?;
                self.take(ends)?;
            }
        }
        self.ledger.submit(0, Duration::ZERO)?;
        self.take(ends)
    }

    fn sync_cancel(&mut self) -> Check {
        let reg = io_uring_sync_cancel_reg {
            flags: IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL,
            timeout: kernel_timespec { tv_sec: 5, tv_nsec: 0 },
            ..Default::default()
        };
        let got = self.ledger.ring.register(IORING_REGISTER_SYNC_CANCEL, addr(&reg), 1);
        let fine = got >= 0 || [-libc::ENOENT, -libc::ETIME].contains(&(got as i32));
        ensure(fine, || format!("SYNC_CANCEL: {got}"))
    }

    fn take(&mut self, ends: &mut [Vec<End<Token>>]) -> Check {
        self.ledger.reap()?.into_iter().for_each(|e| ends[e.token.0].push(e));
        Ok(())
    }

    /// Waits a moment for requests whose event has happened, which need no cancel.
    fn last_chance(&mut self, ends: &mut [Vec<End<Token>>]) -> Check {
        let began = Instant::now();
        for _ in 0..2 {
            self.ledger.submit(1, Duration::from_micros(200))?;
            self.take(ends)?;
        }
        ensure(began.elapsed() < END_LIMIT, || "enter does not come back".into())
    }
}
