//! Timeouts: by their deadline, or by the number of requests that have ended since.

use super::*;
use crate::ring::request::Phase;
use crate::ring::turn::{Drives, Turn};
use proptest::prelude::*;

const ETIME: i32 = -62;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Adds a timeout that ends after so many completions.
    Count(u32),
    /// Submits a batch of so many requests that end at once.
    Batch(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(1..8u32).prop_map(Step::Count), (1..6u32).prop_map(Step::Batch)]
}

/// Model of timeouts, whose own completions do not count.
struct Model {
    events: u32,
    next: u64,
    /// Target and name of each waiting timeout.
    waiting: Vec<(u32, u64)>,
}

impl Model {
    /// Returns the completions of a step, in order.
    fn step(&mut self, step: Step) -> Vec<(u64, i32)> {
        match step {
            Step::Count(n) => {
                self.waiting.push((self.events + n, self.next));
                self.next += 1;
                vec![]
            }
            Step::Batch(n) => {
                self.events += n;
                let mut out: Vec<_> = (0..u64::from(n)).map(|i| (self.next + i, 0)).collect();
                self.next += u64::from(n);
                self.waiting.sort_by_key(|&(target, name)| (target, name));
                let due = self.waiting.partition_point(|&(target, _)| target <= self.events);
                out.extend(self.waiting.drain(..due).map(|(_, name)| (name, 0)));
                out
            }
        }
    }
}

proptest! {
    #[test]
    fn counts_end_as_the_model_says(steps in prop::collection::vec(step(), 1..24)) {
        let ring = TestRing::new(16, 256, 0);
        let mut model = Model { events: 0, next: 0, waiting: vec![] };
        for step in steps {
            let first = model.next;
            let sqes: Vec<_> = match step {
                Step::Count(n) => vec![io_uring_sqe { off: n.into(), ..waiter(first) }],
                Step::Batch(n) => (0..n).map(|i| nop(first + u64::from(i), 0)).collect(),
            };
            let want = model.step(step);
            ring.submit(&sqes);
            prop_assert_eq!(ring.reap(), want);
        }
        let mut left: Vec<u64> = model.waiting.iter().map(|&(_, name)| name).collect();
        left.sort_unstable();
        prop_assert_eq!(ring.waiting(), left);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn deadlines_pass_in_their_order(delays in prop::collection::vec(1..4u64, 1..12)) {
        let ring = TestRing::new(16, 64, 0);
        let timeout = |(i, ms): (usize, &u64)| {
            io_uring_sqe { addr: ms * 1_000_000, ..waiter(i as u64) }
        };
        let mut want: Vec<(u64, u64)> = Vec::new();
        {
            let sqes: Vec<_> = delays.iter().enumerate().map(timeout).collect();
            // Keeps timeouts from ending meanwhile, however long the batch takes.
            ring.submit(&sqes);
            let ended = ring.reap();
            prop_assume!(ended.is_empty());
            for (_, req) in ring.lock().reqs.slab.iter() {
                let Phase::Timer(t) = req.phase else { unreachable!("all are timeouts") };
                want.push((t.deadline, req.user_data));
            }
        }
        want.sort_unstable();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let mut ctx = ring.lock();
        ctx.timeouts_expire();
        ctx.turn(Turn::Work);
        drop(ctx);
        let want: Vec<_> = want.into_iter().map(|(_, name)| (name, ETIME)).collect();
        prop_assert_eq!(ring.reap(), want);
        prop_assert!(ring.is_idle());
    }
}
