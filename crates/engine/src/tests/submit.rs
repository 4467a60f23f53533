//! Submission: the SQEs that a batch consumes, its answer, and its CQEs and their order.

use super::*;
use proptest::prelude::*;

const EINVAL: i32 = -22;
const EOPNOTSUPP: i32 = -95;

/// Opcode that does not exist.
const UNKNOWN: u8 = 200;

/// Request of an SQE.
#[derive(Clone, Copy, Debug)]
enum Asks {
    /// End with this result.
    Nop(i32),
    /// Failure before it is a request: the opcode, a flag that NOP does not know, a priority where
    /// there is none.
    Opcode,
    Prep,
    Priority,
    /// Failure before it is a request, with another error.
    Buffer,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    asks: Asks,
    link: u8,
    skip: bool,
}

impl Entry {
    fn sqe(self, user_data: u64) -> io_uring_sqe {
        let skip = if self.skip { IOSQE_CQE_SKIP_SUCCESS } else { 0 };
        let flags = self.link | skip;
        match self.asks {
            Asks::Nop(res) => io_uring_sqe { flags, ..nop(user_data, res) },
            Asks::Opcode => io_uring_sqe { flags, ..sqe(UNKNOWN, user_data) },
            Asks::Prep => {
                io_uring_sqe { flags, op_flags: u32::MAX, ..sqe(IORING_OP_NOP, user_data) }
            }
            Asks::Priority => io_uring_sqe { flags, ioprio: 1, ..sqe(IORING_OP_NOP, user_data) },
            Asks::Buffer => {
                let flags = flags | IOSQE_BUFFER_SELECT;
                io_uring_sqe { flags, ..sqe(IORING_OP_NOP, user_data) }
            }
        }
    }

    /// Returns the error with which it fails before it is a request.
    fn refused(self) -> Option<i32> {
        match self.asks {
            Asks::Nop(_) => None,
            Asks::Opcode | Asks::Prep | Asks::Priority => Some(EINVAL),
            Asks::Buffer => Some(EOPNOTSUPP),
        }
    }

    fn is_linked(self) -> bool {
        self.link != 0
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    let asks = prop_oneof![
        6 => prop_oneof![Just(0), Just(7), Just(-5)].prop_map(Asks::Nop),
        1 => Just(Asks::Opcode),
        1 => Just(Asks::Prep),
        1 => Just(Asks::Priority),
        1 => Just(Asks::Buffer),
    ];
    let link = prop_oneof![3 => Just(0), 2 => Just(IOSQE_IO_LINK), 1 => Just(IOSQE_IO_HARDLINK)];
    let skip = prop::bool::weighted(0.2);
    (asks, link, skip).prop_map(|(asks, link, skip)| Entry { asks, link, skip })
}

/// Rest of a chain: the names of its members, and their entries.
type Chain = Vec<(u64, Entry)>;

/// Work of the next round of task work.
enum Work {
    /// Continuation of the chain with its first member.
    Run(Chain),
    /// End of a member of a failed chain; the last field: its CQE is posted.
    End(u64, i32, bool),
}

/// Model of one submission.
#[derive(Default)]
struct Model {
    cqes: Vec<(u64, i32)>,
    next: Vec<Work>,
}

impl Model {
    /// Submits a batch; returns how much of it is consumed.
    fn submit(&mut self, batch: &[Entry], all: bool) -> u32 {
        let mut chain = Chain::new();
        let mut consumed = 0;
        for (name, &entry) in (0..).zip(batch) {
            consumed += 1;
            chain.push((name, entry));
            if entry.is_linked() {
                continue;
            }
            self.begin(core::mem::take(&mut chain));
            if entry.refused().is_some() && !all {
                break;
            }
        }
        while !self.next.is_empty() {
            for work in core::mem::take(&mut self.next) {
                match work {
                    Work::Run(chain) => self.run(chain),
                    Work::End(name, res, posts) => self.end(name, res, posts),
                }
            }
        }
        consumed
    }

    /// Begins a complete chain. A chain with a refused member fails as a whole.
    fn begin(&mut self, chain: Chain) {
        let Some(&(name, head)) = chain.first() else { return };
        if chain.iter().all(|(_, entry)| entry.refused().is_none()) {
            return self.run(chain);
        }
        self.end(name, head.refused().unwrap_or(ECANCELED), true);
        self.fail(&chain[1..], !head.skip);
    }

    fn fail(&mut self, rest: &[(u64, Entry)], posts: bool) {
        let ends = |&(name, entry): &(u64, Entry)| {
            Work::End(name, entry.refused().unwrap_or(ECANCELED), posts)
        };
        self.next.extend(rest.iter().map(ends));
    }

    fn run(&mut self, mut chain: Chain) {
        let (name, entry) = chain.remove(0);
        let Asks::Nop(res) = entry.asks else { unreachable!("its chain has failed") };
        self.end(name, res, res < 0 || !entry.skip);
        if res < 0 && entry.link != IOSQE_IO_HARDLINK {
            self.fail(&chain, !entry.skip);
        } else if !chain.is_empty() {
            self.next.push(Work::Run(chain));
        }
    }

    fn end(&mut self, name: u64, res: i32, posts: bool) {
        if posts {
            self.cqes.push((name, res));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    /// The model is the kernel's: 6.18 has answered a thousand such batches in the same way.
    #[test]
    fn batches_end_as_the_model_says(
        mut batch in prop::collection::vec(entry(), 1..16),
        all in any::<bool>(),
    ) {
        // A chain that nothing closes goes to a worker.
        batch.last_mut().expect("it is not empty").link = 0;
        let flags = if all { IORING_SETUP_SUBMIT_ALL } else { 0 };
        let ring = TestRing::with(16, 32, flags);
        let sqes: Vec<_> = (0..).zip(&batch).map(|(name, entry)| entry.sqe(name)).collect();
        ring.queue(&sqes);
        let mut model = Model::default();
        let consumed = model.submit(&batch, all);
        prop_assert_eq!(ring.enter(batch.len() as u32), Ok(consumed));
        prop_assert_eq!(ring.word(off::SQ_HEAD), consumed);
        prop_assert_eq!(ring.reap(), model.cqes);
        prop_assert!(ring.is_idle());
    }
}

fn quiet(sqe: io_uring_sqe) -> io_uring_sqe {
    io_uring_sqe { flags: sqe.flags | IOSQE_CQE_SKIP_SUCCESS, ..sqe }
}

/// Without SUBMIT_ALL a batch ends behind an SQE that fails, which counts as consumed; the next
/// call goes on behind it.
#[test]
fn a_refused_sqe_ends_its_batch() {
    let batch = [nop(1, 0), sqe(UNKNOWN, 2), nop(3, 0)];
    let ring = TestRing::with(8, 16, 0);
    ring.queue(&batch);
    assert_eq!(ring.enter(3), Ok(2));
    assert_eq!((ring.reap(), ring.word(off::SQ_HEAD)), (vec![(1, 0), (2, EINVAL)], 2));
    assert_eq!(ring.enter(2), Ok(1));
    assert_eq!((ring.reap(), ring.word(off::SQ_HEAD)), (vec![(3, 0)], 3));

    let ring = TestRing::with(8, 16, IORING_SETUP_SUBMIT_ALL);
    ring.queue(&batch);
    assert_eq!(ring.enter(3), Ok(3));
    assert_eq!(ring.reap(), [(1, 0), (2, EINVAL), (3, 0)]);
}

/// An SQE that fails in the middle of a chain ends no batch. All of its chain ends: the head first,
/// the others with task work, and only the failed member says why.
#[test]
fn a_refused_sqe_fails_its_chain() {
    for flags in [0, IORING_SETUP_SUBMIT_ALL] {
        let ring = TestRing::with(8, 16, flags);
        ring.queue(&[nop(1, 0), linked(nop(2, 0)), linked(sqe(UNKNOWN, 3)), nop(4, 0), nop(5, 0)]);
        assert_eq!(ring.enter(5), Ok(5));
        let want = [(1, 0), (2, ECANCELED), (5, 0), (3, EINVAL), (4, ECANCELED)];
        assert_eq!(ring.reap(), want);
        assert!(ring.is_idle());
    }
    // The last member of a chain has no link: without SUBMIT_ALL its failure ends the batch.
    let ring = TestRing::with(8, 16, 0);
    ring.queue(&[linked(nop(1, 0)), sqe(UNKNOWN, 2), nop(3, 0)]);
    assert_eq!(ring.enter(3), Ok(2));
    assert_eq!(ring.reap(), [(1, ECANCELED), (2, EINVAL)]);
}

/// No member of a chain has run when a later member is refused.
#[test]
fn a_refused_chain_has_no_effects() {
    let ring = TestRing::new(8, 16, 0);
    let removes = io_uring_sqe { addr: 1, ..sqe(IORING_OP_ASYNC_CANCEL, 2) };
    ring.submit(&[waiter(1), linked(removes), sqe(UNKNOWN, 3)]);
    assert_eq!(ring.reap(), [(2, ECANCELED), (3, EINVAL)]);
    assert_eq!(ring.waiting(), [1]);
}

#[test]
fn an_index_out_of_range_is_dropped() {
    for flags in [0, IORING_SETUP_SUBMIT_ALL] {
        let ring = TestRing::with(8, 16, flags);
        ring.queue(&[nop(1, 0), nop(2, 0), nop(3, 0)]);
        ring.index(1, 8);
        assert_eq!(ring.enter(3), Ok(1));
        assert_eq!((ring.word(off::SQ_HEAD), ring.word(off::SQ_DROPPED)), (2, 1));
        assert_eq!(ring.enter(1), Ok(1));
        assert_eq!(ring.reap(), [(1, 0), (3, 0)]);

        ring.queue(&[nop(4, 0)]);
        ring.index(3, u32::MAX);
        assert_eq!(ring.enter(1), Ok(0));
        assert_eq!((ring.word(off::SQ_HEAD), ring.word(off::SQ_DROPPED)), (4, 2));
        assert!(ring.is_idle());
    }
}

/// The array says which slot is next, and may name a slot twice.
#[test]
fn the_array_chooses_the_slot() {
    let ring = TestRing::new(4, 8, 0);
    ring.queue(&[nop(1, 0), nop(2, 0), nop(3, 0), nop(4, 0)]);
    for (at, slot) in [3, 0, 0, 1].into_iter().enumerate() {
        ring.index(at as u32, slot);
    }
    assert_eq!(ring.enter(4), Ok(4));
    assert_eq!(ring.reap(), [(4, 0), (1, 0), (1, 0), (2, 0)]);
}

#[test]
fn without_an_array_slots_come_in_turn() {
    let ring = TestRing::with(2, 8, IORING_SETUP_NO_SQARRAY);
    for name in [1, 3, 5] {
        ring.queue(&[nop(name, 0), sqe(UNKNOWN, name + 1)]);
        assert_eq!(ring.enter(2), Ok(2));
        assert_eq!(ring.reap(), [(name, 0), (name + 1, EINVAL)]);
    }
    assert_eq!((ring.word(off::SQ_HEAD), ring.word(off::SQ_DROPPED)), (6, 0));
}

/// A batch takes the SQEs that are there, and no more than it was asked to.
#[test]
fn at_most_the_queued_sqes_are_taken() {
    let ring = TestRing::new(8, 16, 0);
    assert_eq!(ring.enter(1), Ok(0));
    ring.queue(&[nop(1, 0), nop(2, 0), nop(3, 0)]);
    assert_eq!(ring.enter(1), Ok(1));
    assert_eq!(ring.reap(), [(1, 0)]);
    assert_eq!(ring.enter(9), Ok(2));
    assert_eq!(ring.reap(), [(2, 0), (3, 0)]);
}

/// A success posts no CQE, a failure does; requests that a failure cancels post none either.
#[test]
fn skipped_completions_still_post_failures() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[quiet(nop(1, 0)), quiet(nop(2, -5)), quiet(linked(nop(3, 0)))]);
    assert_eq!(ring.reap(), [(2, -5)]);

    ring.submit(&[
        quiet(linked(nop(3, 0))),
        quiet(linked(nop(4, -7))),
        linked(nop(5, 0)),
        quiet(nop(6, 0)),
    ]);
    assert_eq!(ring.reap(), [(4, -7)]);

    ring.submit(&[quiet(linked(sqe(UNKNOWN, 1))), linked(nop(2, 0)), nop(3, 0), nop(4, 0)]);
    assert_eq!(ring.reap(), [(1, EINVAL), (4, 0)]);
    assert!(ring.is_idle());
}

/// A full CQ stops no submission (6.18 knows no EBUSY there): CQEs without room wait on a list, and
/// `overflow` counts only lost ones.
#[test]
fn a_full_queue_stops_no_submission() {
    let ring = TestRing::new(8, 8, 0);
    ring.submit(&(0..8).map(|i| nop(i, 0)).collect::<Vec<_>>());
    assert_eq!(ring.word(off::SQ_FLAGS) & IORING_SQ_CQ_OVERFLOW, 0);
    ring.submit(&[nop(10, 0), nop(11, 0)]);
    ring.submit(&[sqe(UNKNOWN, 12)]);
    assert_ne!(ring.word(off::SQ_FLAGS) & IORING_SQ_CQ_OVERFLOW, 0);
    assert_eq!((ring.word(off::CQ_TAIL), ring.word(off::CQ_OVERFLOW)), (8, 0));
    let first: Vec<_> = (0..8).map(|name| (name, 0)).collect();
    assert_eq!(ring.reap(), first);
    // There is room, but the overflowed CQEs come first.
    ring.submit(&[nop(20, 0)]);
    assert_eq!(ring.reap(), []);
    ring.lock().flush_overflow();
    assert_eq!(ring.reap(), [(10, 0), (11, 0), (12, EINVAL), (20, 0)]);
    assert_eq!(ring.word(off::SQ_FLAGS) & IORING_SQ_CQ_OVERFLOW, 0);
}

/// An SQE is copied once: later writes to its slot, while requests wait, do not concern them.
#[test]
fn the_program_may_reuse_an_sqe() {
    let ring = TestRing::new(4, 8, 0);
    ring.submit(&[linked(waiter(1)), linked(nop(2, 7)), nop(3, -5)]);
    assert_eq!(ring.word(off::SQ_HEAD), 3);
    for slot in 0..4 {
        ring.lock().mem.sqes.store(slot * 64, sqe(UNKNOWN, 9));
    }
    ring.comes(1, 4);
    assert_eq!(ring.reap(), [(1, 4), (2, 7), (3, -5)]);
    assert!(ring.is_idle());
}
