//! Waits for futexes, wakes and cancels, by several threads with rings of their own, on shared
//! words. A wake reports how many it woke: so many requests end with a wake, no more and no fewer,
//! and every other one ends with a cancel or a changed value.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::ledger::{END_LIMIT, Ledger, Totals};
use super::{Check, Fault, ensure};
use crate::entry::EntryPoint;
use crate::os;
use crate::sqe::{self, SqeExt, addr};
use softring_uapi::*;

type Word = AtomicU32;

/// `FUTEX2_SIZE_U32` and `FUTEX2_PRIVATE`.
const U32: i32 = 2;
const PRIVATE: i32 = 128;
/// `FUTEX_BITSET_MATCH_ANY`.
const ANY: u64 = u32::MAX as u64;

const THREADS: usize = 4;
const WORDS: usize = 3;
/// Indices of the sets of words.
const ONE: usize = 0;
const ANY_OF: usize = 1;
/// Most waiting requests of a round.
const WAITS: usize = 8;
/// Setup flags of the rings.
const RINGS: [u32; 3] = [0, 0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN];

/// State that all threads share.
struct Common {
    /// Words of FUTEX_WAIT, and words of FUTEX_WAITV.
    words: [[Word; WORDS]; 2],
    /// Word that requests of closed rings wait for.
    left: Word,
    /// Counts for either set: waiters that the wakes reported, and requests that ended with a wake.
    woken: [AtomicU64; 2],
    ended: [AtomicU64; 2],
    rounds: AtomicU64,
    over: AtomicBool,
    /// The threads, to be signalled.
    tids: [AtomicU32; THREADS],
}

/// The words of a `struct futex_waitv`: value, address, flags.
type Entry = [u64; 3];

fn futex(op: u8, word: &Word, val: u64, private: i32) -> io_uring_sqe {
    sqe::rw(op, U32 | private, addr(word), 0, val).set(|s| s.addr3 = ANY)
}

/// Request of a completion.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token {
    /// A wait for so many futexes of a set.
    Wait(usize, usize),
    Wake(usize),
}

struct Worker<'a> {
    common: &'a Common,
    entry: EntryPoint,
    rng: Rng,
    totals: Totals,
    /// Arrays of FUTEX_WAITV, which are read at submission.
    entries: Vec<Vec<Entry>>,
}

/// Runs for `time`.
pub fn run(entry: EntryPoint, seed: u64, time: Duration) -> Check<(String, Totals)> {
    let common = Common {
        words: Default::default(),
        left: Word::new(0),
        woken: Default::default(),
        ended: Default::default(),
        rounds: AtomicU64::new(0),
        over: AtomicBool::new(false),
        tids: Default::default(),
    };
    os::catch(libc::SIGUSR1, 0);
    let totals = std::thread::scope(|scope| {
        let play = |i| {
            let (common, rng) = (&common, Rng::with_seed(seed ^ (i as u64 + 1)));
            let worker = Worker { common, entry, rng, totals: Totals::default(), entries: vec![] };
            scope.spawn(move || worker.play(i))
        };
        let threads: Vec<_> = (0..THREADS).map(play).collect();
        let watched = watch(&common, time, &mut Rng::with_seed(seed));
        common.over.store(true, SeqCst);
        // A thread that hangs cannot be joined.
        watched.unwrap_or_else(|e| panic!("{e}"));
        let ends = threads.into_iter().map(|t| t.join().map_err(|_| Fault::from("a panic"))?);
        ends.collect::<Check<Vec<Totals>>>()
    })?;
    let mut sum = Totals::default();
    totals.into_iter().for_each(|t| sum += t);
    common.agrees()?;
    let rounds = common.rounds.load(SeqCst);
    let ended: Vec<_> = common.ended.iter().map(|n| n.load(SeqCst)).collect();
    Ok((format!("{rounds} rounds, {ended:?} woken, {} signals", os::caught()), sum))
}

/// Signals the threads now and then, and checks that each round ends.
fn watch(common: &Common, time: Duration, rng: &mut Rng) -> Check {
    let began = Instant::now();
    let (mut rounds, mut since) = (0, began);
    while began.elapsed() < time {
        std::thread::sleep(Duration::from_micros(rng.u64(100..2000)));
        let tid = common.tids[rng.usize(..THREADS)].load(SeqCst);
        if tid != 0 {
            os::signal_thread(tid.cast_signed(), libc::SIGUSR1);
        }
        let now = common.rounds.load(SeqCst);
        if now != rounds {
            (rounds, since) = (now, Instant::now());
        }
        ensure(since.elapsed() < END_LIMIT, || format!("no round ends after {rounds}"))?;
    }
    Ok(())
}

impl Worker<'_> {
    fn play(mut self, i: usize) -> Check<Totals> {
        while !self.common.over.load(SeqCst) {
            // In one half of the cases each ring has a thread of its own, which ends with the ring.
            if self.rng.bool() {
                self.life(i)?;
            } else {
                let life = std::thread::scope(|scope| scope.spawn(|| self.life(i)).join());
                life.map_err(|_| Fault::from("a panic"))??;
            }
        }
        Ok(self.totals)
    }

    /// Runs a ring from its setup to its end.
    fn life(&mut self, i: usize) -> Check {
        let common = self.common;
        common.tids[i].store(os::gettid().cast_unsigned(), SeqCst);
        let flags = RINGS[self.rng.usize(..RINGS.len())];
        let params = io_uring_params { flags, ..Default::default() };
        let mut ledger = Ledger::new(self.entry, 32, params)?;
        for _ in 0..self.rng.usize(1..20) {
            self.round(&mut ledger)?;
            common.rounds.fetch_add(1, SeqCst);
        }
        self.totals += ledger.totals;
        let left = self.leave_waiting(ledger);
        common.tids[i].store(0, SeqCst);
        left
    }

    fn round(&mut self, ledger: &mut Ledger<Token>) -> Check {
        self.entries.clear();
        let mut names = Vec::new();
        for _ in 0..self.rng.usize(1..=WAITS) {
            let (sqe, token) = if self.rng.bool() { self.wait() } else { self.wait_for_any() };
            let sqe = self.either_way(sqe);
            names.push(ledger.push(&[(sqe, token)])?);
            if self.rng.u8(..4) == 0 {
                ledger.submit(0, Duration::ZERO)?;
            }
        }
        ledger.submit(0, Duration::ZERO)?;
        for _ in 0..self.rng.usize(..6) {
            match self.rng.u8(..4) {
                0 => self.wake_by_call(),
                1 => self.wake_by_request(ledger)?,
                2 => {
                    let cancel = sqe::cancel(names[self.rng.usize(..names.len())], 0);
                    ledger.cancel(self.either_way(cancel));
                }
                _ => ledger.submit(1, Duration::from_micros(200))?,
            }
        }
        ledger.submit(0, Duration::ZERO)?;
        let common = self.common;
        let mut odd = Vec::new();
        ledger.cancel_all(|end| odd.extend(common.account(end.token, end.cqe.res)))?;
        ensure(odd.is_empty(), || format!("{odd:?}"))
    }

    fn word(&mut self, set: usize) -> (&'_ Word, u32) {
        let word = &self.common.words[set][self.rng.usize(..WORDS)];
        (word, word.load(SeqCst))
    }

    /// Leaves a request as it is, or passes it to a worker.
    fn either_way(&mut self, sqe: io_uring_sqe) -> io_uring_sqe {
        sqe.with(if self.rng.u8(..4) == 0 { IOSQE_ASYNC } else { 0 })
    }

    fn wait(&mut self) -> (io_uring_sqe, Token) {
        let private = if self.rng.bool() { PRIVATE } else { 0 };
        let (word, val) = self.word(ONE);
        (futex(IORING_OP_FUTEX_WAIT, word, val.into(), private), Token::Wait(ONE, 1))
    }

    fn wait_for_any(&mut self) -> (io_uring_sqe, Token) {
        let n = self.rng.usize(1..=2 * WORDS);
        let private = if self.rng.bool() { PRIVATE } else { 0 };
        let of = |_| {
            let (word, val) = self.word(ANY_OF);
            [val.into(), addr(word) as u64, (U32 | private).cast_unsigned().into()]
        };
        let all: Vec<Entry> = (0..n).map(of).collect();
        let sqe = sqe::rw(IORING_OP_FUTEX_WAITV, 0, addr(&*all), n, 0);
        self.entries.push(all);
        (sqe, Token::Wait(ANY_OF, n))
    }

    /// Picks the word to wake, its set, and how many waiters to wake; may change the word's value.
    fn pick(&mut self) -> (usize, &'_ Word, u32, i32) {
        let set = self.rng.usize(..2);
        let (change, n) = (self.rng.u8(..4) == 0, self.rng.u32(1..4));
        let private = if self.rng.bool() { PRIVATE } else { 0 };
        let (word, _) = self.word(set);
        if change {
            word.fetch_add(1, SeqCst);
        }
        (set, word, n, private)
    }

    fn wake_by_call(&mut self) {
        let common = self.common;
        let (set, word, n, private) = self.pick();
        let woken = os::futex_wake_of(word, n.cast_signed(), private);
        common.woken[set].fetch_add(woken.max(0).cast_unsigned(), SeqCst);
    }

    fn wake_by_request(&mut self, ledger: &mut Ledger<Token>) -> Check {
        let (set, word, n, private) = self.pick();
        let sqe = futex(IORING_OP_FUTEX_WAKE, word, n.into(), private);
        let sqe = self.either_way(sqe);
        ledger.push(&[(sqe, Token::Wake(set))]).map(drop)
    }

    /// Closes a ring whose requests wait.
    fn leave_waiting(&mut self, mut ledger: Ledger<Token>) -> Check {
        for _ in 0..self.rng.usize(..4) {
            let wait = futex(IORING_OP_FUTEX_WAIT, &self.common.left, 0, 0);
            ledger.push(&[(wait, Token::Wait(ONE, 1))])?;
        }
        ledger.submit(0, Duration::ZERO)?;
        if self.rng.bool() {
            os::futex_wake(&self.common.left, 1, u32::MAX);
        }
        Ok(())
    }
}

impl Common {
    /// Books a completion; returns it if it is not allowed.
    fn account(&self, token: Token, res: i32) -> Option<(Token, i32)> {
        match token {
            Token::Wake(set) if res >= 0 => {
                self.woken[set].fetch_add(res.cast_unsigned().into(), SeqCst);
            }
            Token::Wait(set, n) if res >= 0 && (res as usize) < n => {
                self.ended[set].fetch_add(1, SeqCst);
            }
            Token::Wait(..) if [-libc::EAGAIN, -libc::ECANCELED].contains(&res) => {}
            // The request was cancelled before its worker had it.
            Token::Wake(_) if res == -libc::ECANCELED => {}
            _ => return Some((token, res)),
        }
        None
    }

    /// Checks that as many ended as were woken. A wait for several futexes may be woken at two of
    /// them at a time.
    fn agrees(&self) -> Check {
        let count = |of: &[AtomicU64; 2], set: usize| of[set].load(SeqCst);
        let [(one, ended), (any, ended_any)] =
            [ONE, ANY_OF].map(|set| (count(&self.woken, set), count(&self.ended, set)));
        ensure(one == ended, || format!("{one} were woken, {ended} ended so"))?;
        ensure(any >= ended_any, || format!("of several {any} were woken, {ended_any} ended so"))
    }
}
