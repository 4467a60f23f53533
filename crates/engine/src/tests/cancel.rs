//! ASYNC_CANCEL: which requests it finds, how many it reports, and that each ends once.

use super::*;
use proptest::prelude::*;

const ENOENT: i32 = -2;
const CANCEL: u64 = 1 << 32;

/// Criterion of a search.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Named(u64),
    AllNamed(u64),
    Any,
    Op(u8),
    AllOfOp(u8),
}

impl Wanted {
    fn sqe(self) -> io_uring_sqe {
        let (op_flags, addr, len) = match self {
            Self::Named(name) => (0, name, 0),
            Self::AllNamed(name) => (IORING_ASYNC_CANCEL_ALL, name, 0),
            Self::Any => (IORING_ASYNC_CANCEL_ANY, 0, 0),
            Self::Op(op) => (IORING_ASYNC_CANCEL_OP, 0, op),
            Self::AllOfOp(op) => (IORING_ASYNC_CANCEL_OP | IORING_ASYNC_CANCEL_ALL, 0, op),
        };
        let len = u32::from(len);
        io_uring_sqe { op_flags, addr, len, ..sqe(IORING_OP_ASYNC_CANCEL, CANCEL) }
    }

    fn matches(self, name: u64) -> bool {
        match self {
            Self::Named(wanted) | Self::AllNamed(wanted) => name == wanted,
            Self::Any => true,
            Self::Op(op) | Self::AllOfOp(op) => op == IORING_OP_TIMEOUT,
        }
    }

    fn is_many(self) -> bool {
        matches!(self, Self::AllNamed(_) | Self::Any | Self::AllOfOp(_))
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let op = || prop_oneof![Just(IORING_OP_TIMEOUT), Just(IORING_OP_READ)];
    prop_oneof![
        3 => (0..5u64).prop_map(Wanted::Named),
        3 => (0..5u64).prop_map(Wanted::AllNamed),
        1 => Just(Wanted::Any),
        1 => op().prop_map(Wanted::Op),
        1 => op().prop_map(Wanted::AllOfOp),
    ]
}

proptest! {
    /// The first of requests that share a name is found first, as in the kernel's queue of
    /// timeouts.
    #[test]
    fn a_cancel_ends_all_matches_and_counts_them(
        names in prop::collection::vec(0..4u64, 0..12),
        cancels in prop::collection::vec(wanted(), 1..8),
    ) {
        let ring = TestRing::new(16, 64, 0);
        ring.submit(&names.iter().map(|&name| waiter(name)).collect::<Vec<_>>());
        let mut left = names;
        for wanted in cancels {
            let found = left.iter().filter(|&&name| wanted.matches(name)).count();
            let ends = if wanted.is_many() { found } else { found.min(1) };
            let says = match (wanted.is_many(), found) {
                (true, n) => n as i32,
                (false, 0) => ENOENT,
                (false, _) => 0,
            };
            let mut want = vec![(CANCEL, says)];
            for _ in 0..ends {
                let at = left.iter().position(|&name| wanted.matches(name)).expect("it is left");
                want.push((left.remove(at), ECANCELED));
            }
            ring.submit(&[wanted.sqe()]);
            prop_assert_eq!(ring.reap(), want, "{:?}", wanted);
            let mut still = left.clone();
            still.sort_unstable();
            prop_assert_eq!(ring.waiting(), still);
        }
    }
}

/// A request behind a barrier, or in a chain whose turn has not come, is not found.
#[test]
fn a_cancel_does_not_find_unissued_requests() {
    let ring = TestRing::new(8, 16, 0);
    let link = io_uring_sqe { flags: IOSQE_IO_LINK, ..waiter(1) };
    let drained = io_uring_sqe { flags: IOSQE_IO_DRAIN, ..waiter(3) };
    ring.submit(&[link, waiter(2), drained]);
    for name in [2, 3] {
        // A call cancels here: an SQE would wait behind the barrier.
        let mut ctx = ring.lock();
        let wanted = crate::ring::cancel::Wanted::new(&ctx, name, 0, -1, 0).expect("no file");
        assert_eq!(ctx.cancel(&wanted).map_err(|e| e.res()), Err(ENOENT));
    }
    ring.comes(1, 0);
    ring.comes(2, 0);
    ring.comes(3, 0);
    assert_eq!(ring.reap(), [(1, 0), (2, 0), (3, 0)]);
    assert!(ring.is_idle());
}
