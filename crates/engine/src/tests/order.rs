//! Completions reach the program in the order in which requests end, with room for them or without.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Ends a number of requests in one batch.
    End(u32),
    /// Takes so many completions, as the program does.
    Take(usize),
    /// Flushes what found no room, as the program does.
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(1..7u32).prop_map(Step::End), (1..6usize).prop_map(Step::Take), Just(Step::Flush),]
}

const ROOM: usize = 4;

/// Model of the queue, and of the list behind it.
#[derive(Default)]
struct Model {
    queue: VecDeque<u64>,
    list: VecDeque<u64>,
}

impl Model {
    fn end(&mut self, name: u64) {
        let direct = self.list.is_empty() && self.queue.len() < ROOM;
        if direct { self.queue.push_back(name) } else { self.list.push_back(name) }
    }

    fn flush(&mut self) {
        let room = (ROOM - self.queue.len()).min(self.list.len());
        self.queue.extend(self.list.drain(..room));
    }
}

proptest! {
    #[test]
    fn requests_keep_their_order_and_none_is_lost(steps in prop::collection::vec(step(), 1..40)) {
        let ring = TestRing::new(8, ROOM as u32, 0);
        let mut model = Model::default();
        let mut next = 0;
        for step in steps {
            match step {
                Step::End(n) => {
                    let names = next..next + u64::from(n);
                    next = names.end;
                    ring.submit(&names.clone().map(|name| nop(name, 0)).collect::<Vec<_>>());
                    names.for_each(|name| model.end(name));
                }
                Step::Take(n) => {
                    let got: Vec<u64> = ring.take(n).into_iter().map(|(name, ..)| name).collect();
                    let n = n.min(model.queue.len());
                    let want: Vec<u64> = model.queue.drain(..n).collect();
                    prop_assert_eq!(got, want);
                }
                Step::Flush => {
                    ring.lock().flush_overflow();
                    model.flush();
                }
            }
            let ctx = ring.lock();
            let flags = ctx.mem.rings.word(off::SQ_FLAGS).load(Acquire);
            prop_assert_eq!(flags & IORING_SQ_CQ_OVERFLOW != 0, !model.list.is_empty());
            prop_assert_eq!(ctx.mem.cq_ready() as usize, model.queue.len());
        }
    }
}
