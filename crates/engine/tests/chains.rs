//! Chains, barriers and cancels against a small model: every request ends exactly once, with the
//! model's result, in an order that links and barriers allow.

mod client;

use std::os::fd::AsRawFd;

use client::{Client, sqe};
use proptest::prelude::*;
use softring_uapi::*;

const ECANCELED: i32 = -125;
const EINVAL: i32 = -22;
/// `user_data` of the test's own requests.
const OURS: u64 = 1 << 32;

/// Request of a chain.
#[derive(Clone, Copy, Debug)]
struct Member {
    what: What,
    hard: bool,
    skip: bool,
    drain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// A NOP with this result.
    Nop(i32),
    /// A request that prep refuses.
    Bad,
    /// A poll that is never ready.
    Poll,
}

type Chain = Vec<Member>;

fn member(skips: bool, polls: bool) -> impl Strategy<Value = Member> {
    let poll = if polls { 2 } else { 0 };
    let what = prop_oneof![
        6 => Just(What::Nop(0)),
        2 => Just(What::Nop(7)),
        2 => Just(What::Nop(-5)),
        1 => Just(What::Bad),
        poll => Just(What::Poll),
    ];
    (what, any::<bool>(), any::<bool>(), 0..4).prop_map(move |(what, hard, skip, drain)| Member {
        what,
        hard,
        skip: skips && skip,
        drain: !skips && drain == 0,
    })
}

/// Makes chains that skip CQEs, or chains with barriers: the kernel refuses the two together.
fn chains(polls: bool) -> impl Strategy<Value = Vec<Chain>> {
    any::<bool>().prop_flat_map(move |skips| {
        let chain = prop::collection::vec(member(skips, polls), 1..5);
        prop::collection::vec(chain, 1..8)
    })
}

/// Returns the result of each request; `None`: no CQE. Every poll ends by being cancelled.
fn model(chain: &Chain) -> Vec<Option<i32>> {
    let last = chain.len() - 1;
    // A chain with a refused member fails as a whole.
    let doomed = chain.iter().any(|m| m.what == What::Bad);
    let mut broken: Option<bool> = None;
    let answer = |(i, m): (usize, &Member)| {
        let bad = m.what == What::Bad;
        let own = if bad { EINVAL } else { ECANCELED };
        if let Some(quiet) = broken {
            return (!quiet).then_some(own);
        }
        let res = match m.what {
            What::Nop(res) if !doomed => res,
            What::Poll if !doomed => ECANCELED,
            _ => own,
        };
        if res < 0 && (doomed || !m.hard || i == last) {
            broken = Some(m.skip);
        }
        (res < 0 || !m.skip).then_some(res)
    };
    chain.iter().enumerate().map(answer).collect()
}

fn submit(ring: &Client, chains: &[Chain], pipe: i32) -> u32 {
    let mut n = 0;
    for (c, chain) in chains.iter().enumerate() {
        for (i, m) in chain.iter().enumerate() {
            let mut s = sqe(IORING_OP_NOP, (c * 100 + i) as u64);
            match m.what {
                What::Nop(res) => {
                    (s.op_flags, s.len) = (IORING_NOP_INJECT_RESULT, res.cast_unsigned());
                }
                What::Bad => s.op_flags = !0,
                What::Poll => (s.opcode, s.fd, s.op_flags) = (IORING_OP_POLL_ADD, pipe, 1),
            }
            let link = if m.hard { IOSQE_IO_HARDLINK } else { IOSQE_IO_LINK };
            s.flags |= if i + 1 < chain.len() { link } else { 0 };
            s.flags |= if m.skip { IOSQE_CQE_SKIP_SUCCESS } else { 0 };
            s.flags |= if m.drain { IOSQE_IO_DRAIN } else { 0 };
            ring.push(s);
            n += 1;
        }
    }
    n
}

/// Submits all, cancels polls until everything has ended, and returns the CQEs in their order.
fn run(chains: &[Chain]) -> Vec<(u64, i32)> {
    let ring = Client::new(64, IORING_SETUP_SUBMIT_ALL);
    let (r, _w) = rustix::pipe::pipe().unwrap();
    let n = submit(&ring, chains, r.as_raw_fd());
    assert_eq!(ring.enter(n, 0), n as isize);
    let mut out = Vec::new();
    let polls = chains.iter().flatten().filter(|m| m.what == What::Poll).count();
    for round in 0..=polls as u64 {
        if round > 0 {
            // A call cancels, for an SQE would queue up behind a barrier.
            let any = IORING_ASYNC_CANCEL_ANY;
            let reg = io_uring_sync_cancel_reg { flags: any, ..Default::default() };
            let at = (&raw const reg).expose_provenance();
            let ended = client::register(ring.fd, IORING_REGISTER_SYNC_CANCEL, at, 1);
            assert!(ended >= 0, "{ended}");
        }
        ring.enter(0, 0);
        out.extend(std::iter::from_fn(|| ring.pop()).map(|c| (c.user_data, c.res)));
    }
    // Nothing is left behind: a barrier passes at once.
    if !chains.iter().flatten().any(|m| m.skip) {
        ring.push(io_uring_sqe { flags: IOSQE_IO_DRAIN, ..sqe(IORING_OP_NOP, OURS) });
        assert_eq!(ring.enter(1, 0), 1);
        assert_eq!(ring.pop().map(|c| c.user_data), Some(OURS), "a request never ended");
    }
    assert_eq!(ring.pop(), None);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_with_the_models_result(chains in chains(true)) {
        let got = run(&chains);
        let mut sorted = got.clone();
        sorted.sort_unstable();
        let answers = chains.iter().enumerate().flat_map(|(c, chain)| {
            let answers = model(chain).into_iter().enumerate();
            answers.filter_map(move |(i, res)| Some(((c * 100 + i) as u64, res?)))
        });
        prop_assert_eq!(sorted, answers.collect::<Vec<_>>());
        // A chain's CQEs come in the chain's order.
        for c in 0..chains.len() as u64 {
            let own: Vec<u64> = got.iter().map(|g| g.0).filter(|ud| ud / 100 == c).collect();
            prop_assert!(own.is_sorted(), "chain {}: {:?}", c, own);
        }
    }

    #[test]
    fn nothing_passes_a_barrier(chains in chains(false)) {
        let got = run(&chains);
        let doomed = |c: u64| chains[c as usize].iter().any(|m| m.what == What::Bad);
        let barrier = |c: u64| chains[c as usize].iter().any(|m| m.drain);
        // A chain that fails before it is queued is not part of the order.
        let order: Vec<u64> = got.iter().map(|g| g.0 / 100).filter(|&c| !doomed(c)).collect();
        for (at, &c) in order.iter().enumerate().filter(|&(_, &c)| barrier(c)) {
            prop_assert!(order[..at].iter().all(|&before| before <= c), "{:?}", order);
            prop_assert!(order[at..].iter().all(|&after| after >= c), "{:?}", order);
        }
    }
}
