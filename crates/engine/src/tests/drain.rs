//! Barriers: a drained request or chain starts when all before it have ended, and all behind it
//! wait for it.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Chain {
    /// Members: true if the member waits, false if it ends at once.
    waits: Vec<bool>,
    drained: bool,
}

fn name(chain: usize, member: usize) -> u64 {
    (chain * 10 + member) as u64
}

/// Model of a queue with barriers.
struct Model {
    all: Vec<Chain>,
    started: usize,
    /// Number of members of each chain that have ended.
    ended: Vec<usize>,
    order: Vec<u64>,
}

impl Model {
    fn new(all: &[Chain]) -> Self {
        let ended = vec![0; all.len()];
        let mut model = Self { all: all.to_vec(), started: 0, ended, order: vec![] };
        model.go_on();
        model
    }

    /// Starts, in order, all chains that no barrier holds.
    fn go_on(&mut self) {
        while let Some(next) = self.all.get(self.started) {
            let drained = next.drained;
            let holds = |i| !self.is_over(i) && (drained || self.all[i].drained);
            if (0..self.started).any(holds) {
                return;
            }
            self.started += 1;
            self.run(self.started - 1);
        }
    }

    fn is_over(&self, chain: usize) -> bool {
        self.ended[chain] == self.all[chain].waits.len()
    }

    /// Ends the members whose turn has come, up to one that waits.
    fn run(&mut self, chain: usize) {
        while self.all[chain].waits.get(self.ended[chain]) == Some(&false) {
            self.end(chain);
        }
    }

    fn end(&mut self, chain: usize) {
        self.order.push(name(chain, self.ended[chain]));
        self.ended[chain] += 1;
    }

    /// Returns the chains of which a member waits.
    fn waiting(&self) -> Vec<usize> {
        (0..self.started).filter(|&i| !self.is_over(i)).collect()
    }
}

fn chain() -> impl Strategy<Value = Chain> {
    let waits = prop::collection::vec(any::<bool>(), 1..4);
    (waits, 0..3).prop_map(|(waits, n)| Chain { waits, drained: n == 0 })
}

fn sqes(chains: &[Chain]) -> Vec<io_uring_sqe> {
    let mut all = Vec::new();
    for (c, chain) in chains.iter().enumerate() {
        for (i, waits) in chain.waits.iter().enumerate() {
            let made = if *waits { waiter(name(c, i)) } else { nop(name(c, i), 0) };
            let link = if i + 1 < chain.waits.len() { IOSQE_IO_LINK } else { 0 };
            let drain = if i == 0 && chain.drained { IOSQE_IO_DRAIN } else { 0 };
            all.push(io_uring_sqe { flags: link | drain, ..made });
        }
    }
    all
}

/// Sorts names: the order between chains that run at one time does not matter.
fn sorted(mut names: Vec<u64>) -> Vec<u64> {
    names.sort_unstable();
    names
}

proptest! {
    #[test]
    fn barriers_match_the_model(
        all in prop::collection::vec(chain(), 1..10),
        events in prop::collection::vec(any::<prop::sample::Index>(), 32),
    ) {
        let ring = TestRing::new(32, 128, 0);
        let mut model = Model::new(&all);
        ring.submit(&sqes(&all));
        for which in events {
            let got = ring.reap().into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(sorted(got), sorted(core::mem::take(&mut model.order)));
            let waiting = model.waiting();
            let names = waiting.iter().map(|&c| name(c, model.ended[c])).collect::<Vec<_>>();
            prop_assert_eq!(ring.waiting(), names.clone());
            if waiting.is_empty() {
                break;
            }
            let at = which.index(waiting.len());
            ring.comes(names[at], 0);
            model.end(waiting[at]);
            model.run(waiting[at]);
            model.go_on();
        }
        prop_assert!(ring.is_idle());
    }
}

const EINVAL: i32 = -22;
const EIO: i32 = -5;
const EOPNOTSUPP: i32 = -95;
/// Opcode that does not exist.
const UNKNOWN: u8 = 200;

fn drained(sqe: io_uring_sqe) -> io_uring_sqe {
    io_uring_sqe { flags: sqe.flags | IOSQE_IO_DRAIN, ..sqe }
}

#[test]
fn a_first_barrier_runs_at_once() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[drained(nop(1, 0)), nop(2, 0)]);
    assert_eq!(ring.reap(), [(1, 0), (2, 0)]);
    ring.submit(&[nop(3, 0)]);
    assert_eq!(ring.reap(), [(3, 0)]);
    assert!(ring.is_idle());
}

/// Later batches wait, too, until the barrier is through.
#[test]
fn a_barrier_waits_for_what_came_before() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[waiter(1), nop(2, 0), drained(nop(3, 0)), nop(4, 0)]);
    ring.submit(&[nop(5, 0)]);
    assert_eq!(ring.reap(), [(2, 0)]);
    ring.comes(1, EIO);
    assert_eq!(ring.reap(), [(1, EIO), (3, 0), (4, 0), (5, 0)]);
    ring.submit(&[nop(6, 0)]);
    assert_eq!(ring.reap(), [(6, 0)]);
    assert!(ring.is_idle());
}

/// A barrier in a chain makes barriers of the chain's head and of the request behind the chain.
#[test]
fn a_barrier_in_a_chain_counts_for_the_whole_chain() {
    let ring = TestRing::new(8, 16, 0);
    let chain = [linked(nop(2, 0)), linked(drained(waiter(3))), nop(4, 0)];
    ring.submit(&[&[waiter(1)], &chain[..], &[nop(5, 0), nop(6, 0)]].concat());
    assert_eq!(ring.reap(), []);
    ring.comes(1, 0);
    assert_eq!(ring.reap(), [(1, 0), (2, 0)]);
    assert_eq!(ring.waiting(), [3]);
    ring.comes(3, 0);
    assert_eq!(ring.reap(), [(3, 0), (4, 0), (5, 0), (6, 0)]);
    assert!(ring.is_idle());
}

#[test]
fn a_barrier_waits_for_the_last_of_a_chain() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[linked(nop(1, 0)), linked(waiter(2)), nop(3, 0), drained(nop(4, 0)), nop(5, 0)]);
    assert_eq!(ring.reap(), [(1, 0)]);
    ring.comes(2, EIO);
    assert_eq!(ring.reap(), [(2, EIO), (3, ECANCELED), (4, 0), (5, 0)]);
}

#[test]
fn the_second_barrier_waits_for_the_first() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[waiter(1), drained(waiter(2)), nop(3, 0), drained(nop(4, 0))]);
    ring.comes(1, 0);
    assert_eq!(ring.reap(), [(1, 0)]);
    ring.comes(2, 0);
    assert_eq!(ring.reap(), [(2, 0), (3, 0), (4, 0)]);
    assert!(ring.is_idle());
}

/// A refused request has ended before it could wait; so has its chain.
#[test]
fn refused_requests_pass_the_barrier() {
    let ring = TestRing::new(8, 16, 0);
    let refused = [sqe(UNKNOWN, 3), linked(sqe(UNKNOWN, 4)), nop(5, 0), drained(sqe(UNKNOWN, 6))];
    ring.submit(&[&[waiter(1), drained(nop(2, 0))], &refused[..]].concat());
    assert_eq!(ring.reap(), [(3, EINVAL), (4, EINVAL), (6, EINVAL), (5, ECANCELED)]);
    ring.comes(1, 0);
    assert_eq!(ring.reap(), [(1, 0), (2, 0)]);
    assert!(ring.is_idle());
}

/// A failure in a chain behind a barrier ends the chain, and frees the requests that wait for it.
#[test]
fn a_failed_drained_chain_releases_the_barrier() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[drained(linked(nop(1, 0))), linked(nop(2, EIO)), nop(3, 0), nop(4, 0)]);
    assert_eq!(ring.reap(), [(1, 0), (2, EIO), (3, ECANCELED), (4, 0)]);
    assert!(ring.is_idle());
}

/// A multishot request ends with its last completion, not with the first.
#[test]
fn a_barrier_waits_for_the_end_of_a_multishot_request() {
    let ring = TestRing::polling(8, 16, 0);
    let poll = io_uring_sqe { fd: FD, len: IORING_POLL_ADD_MULTI, ..sqe(IORING_OP_POLL_ADD, 1) };
    ring.submit(&[io_uring_sqe { op_flags: 1, ..poll }, drained(nop(2, 0))]);
    assert!(ring.becomes(FD, 1));
    assert_eq!(ring.take(9), [(1, 1, IORING_CQE_F_MORE)]);
    ring.comes(1, ECANCELED);
    assert_eq!(ring.take(9), [(1, ECANCELED, 0), (2, 0, 0)]);
}

/// A ring that has skipped completions cannot count them, and refuses barriers from then on.
#[test]
fn skipped_completions_and_barriers_exclude_each_other() {
    let skip = IOSQE_CQE_SKIP_SUCCESS;
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[io_uring_sqe { flags: skip | IOSQE_IO_DRAIN, ..sqe(IORING_OP_NOP, 1) }]);
    ring.submit(&[drained(nop(2, 0)), nop(3, 0)]);
    assert_eq!(ring.reap(), [(1, EOPNOTSUPP), (2, EOPNOTSUPP), (3, 0)]);
    assert!(ring.is_idle());
}
