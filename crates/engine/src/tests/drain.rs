//! Barriers: a drained request or chain starts when all before it have ended, and what follows
//! waits for it.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Chain {
    /// Whether each member waits, or ends at once.
    waits: Vec<bool>,
    drained: bool,
}

fn name(chain: usize, member: usize) -> u64 {
    (chain * 10 + member) as u64
}

/// A queue with barriers, as it should behave.
struct Model {
    all: Vec<Chain>,
    started: usize,
    /// Members of each that have ended.
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

    /// Starts, in their order, all that no barrier holds.
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

    /// The chains of which a member waits.
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

/// The order between chains that run at one time is nobody's business.
fn sorted(mut names: Vec<u64>) -> Vec<u64> {
    names.sort_unstable();
    names
}

proptest! {
    #[test]
    fn barriers_hold_what_the_model_holds(
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
