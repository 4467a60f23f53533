//! Chains: members run one after the other; a failure ends what a soft link holds.

use super::*;
use proptest::prelude::*;

const EIO: i32 = -5;

#[derive(Clone, Copy, Debug)]
struct Member {
    /// Result with which the member ends at once; none: it waits.
    res: Option<i32>,
    hard: bool,
}

fn member() -> impl Strategy<Value = Member> {
    let res = prop_oneof![
        3 => Just(Some(0)),
        1 => Just(Some(7)),
        1 => Just(Some(EIO)),
        3 => Just(None),
    ];
    (res, any::<bool>()).prop_map(|(res, hard)| Member { res, hard })
}

fn name(chain: usize, member: usize) -> u64 {
    (chain * 10 + member) as u64
}

/// Model of chains.
struct Model {
    chains: Vec<Vec<Member>>,
    /// Waiting member of each chain.
    at: Vec<Option<usize>>,
    /// Completions, chain by chain.
    ended: Vec<Vec<(u64, i32)>>,
}

impl Model {
    fn new(chains: &[Vec<Member>]) -> Self {
        let n = chains.len();
        let mut model = Self { chains: chains.to_vec(), at: vec![None; n], ended: vec![vec![]; n] };
        (0..n).for_each(|chain| model.run(chain, 0));
        model
    }

    fn run(&mut self, chain: usize, member: usize) {
        match self.chains[chain].get(member).map(|m| m.res) {
            None => self.at[chain] = None,
            Some(None) => self.at[chain] = Some(member),
            Some(Some(res)) => self.end(chain, member, res),
        }
    }

    fn end(&mut self, chain: usize, member: usize, res: i32) {
        self.ended[chain].push((name(chain, member), res));
        if res >= 0 || self.chains[chain][member].hard {
            return self.run(chain, member + 1);
        }
        let rest = member + 1..self.chains[chain].len();
        self.ended[chain].extend(rest.map(|m| (name(chain, m), ECANCELED)));
        self.at[chain] = None;
    }

    fn waiting(&self) -> Vec<(usize, usize)> {
        let waits = |(chain, at): (usize, &Option<usize>)| at.map(|member| (chain, member));
        self.at.iter().enumerate().filter_map(waits).collect()
    }
}

/// Sorts completions by chain, in their order.
fn by_chain(all: &[(u64, i32)], chains: usize) -> Vec<Vec<(u64, i32)>> {
    let of = |chain| all.iter().filter(|(n, _)| *n as usize / 10 == chain).copied().collect();
    (0..chains).map(of).collect()
}

fn sqes(chains: &[Vec<Member>]) -> Vec<io_uring_sqe> {
    let mut all = Vec::new();
    for (c, chain) in chains.iter().enumerate() {
        for (i, m) in chain.iter().enumerate() {
            let made = m.res.map_or_else(|| waiter(name(c, i)), |res| nop(name(c, i), res));
            let link = if m.hard { IOSQE_IO_HARDLINK } else { IOSQE_IO_LINK };
            let last = i + 1 == chain.len();
            all.push(io_uring_sqe { flags: if last { 0 } else { link }, ..made });
        }
    }
    all
}

proptest! {
    /// Each waiting member ends with a result that an event brings, or is cancelled.
    #[test]
    fn chains_end_as_the_model_says(
        chains in prop::collection::vec(prop::collection::vec(member(), 1..6), 1..6),
        events in prop::collection::vec((any::<prop::sample::Index>(), 0..4usize), 30),
    ) {
        let ring = TestRing::new(32, 128, 0);
        let mut model = Model::new(&chains);
        ring.submit(&sqes(&chains));
        let mut got = ring.reap();
        for (which, how) in events {
            let waiting = model.waiting();
            prop_assert_eq!(by_chain(&got, chains.len()), model.ended.clone());
            let names: Vec<u64> = waiting.iter().map(|&(c, m)| name(c, m)).collect();
            prop_assert_eq!(ring.waiting(), names);
            if waiting.is_empty() {
                break;
            }
            let (chain, member) = waiting[which.index(waiting.len())];
            let named = name(chain, member);
            let res = [0, 3, EIO, ECANCELED][how];
            if how == 3 {
                let addr = named;
                ring.submit(&[io_uring_sqe { addr, ..sqe(IORING_OP_ASYNC_CANCEL, 1 << 32) }]);
            } else {
                ring.comes(named, res);
            }
            model.end(chain, member, res);
            got.extend(ring.reap().into_iter().filter(|(name, _)| *name != 1 << 32));
        }
        prop_assert!(!model.waiting().is_empty() || ring.is_idle());
    }
}

/// A linked timeout ends with its head, or ends it.
#[test]
fn a_linked_timeout_and_its_head_end_once_each() {
    let timeout = |ns| {
        let op_flags = IORING_TIMEOUT_IMMEDIATE_ARG;
        io_uring_sqe { op_flags, addr: ns, len: 1, ..sqe(IORING_OP_LINK_TIMEOUT, 2) }
    };
    let head = io_uring_sqe { flags: IOSQE_IO_LINK, ..waiter(1) };
    let ring = TestRing::new(8, 16, 0);
    let linked = io_uring_sqe { flags: IOSQE_IO_LINK, ..timeout(LONG) };
    ring.submit(&[head, linked, nop(3, 0)]);
    assert_eq!(ring.waiting(), [1, 2]);
    ring.comes(1, 5);
    assert_eq!(ring.reap(), [(1, 5), (2, ECANCELED), (3, 0)]);
    assert!(ring.is_idle());

    ring.submit(&[head, timeout(1)]);
    std::thread::sleep(std::time::Duration::from_millis(1));
    ring.submit(&[nop(3, 0)]);
    let mut ended = ring.reap();
    ended.sort_unstable();
    assert_eq!(ended, [(1, ECANCELED), (2, -62), (3, 0)]);
    assert!(ring.is_idle());
}
