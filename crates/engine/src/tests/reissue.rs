//! Attempts: a request is tried, waits, is tried again, and reports each result once.

use super::*;
use crate::ops::table::OPS;
use crate::ring::job::Finished;
use crate::ring::opdef::{Issue, OpDef, Outcome};
use crate::ring::request::{Call, Req};
use crate::ring::turn::Turn;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;

thread_local! {
    /// Outcomes of the attempts of this test's requests, in turn.
    static SCRIPT: RefCell<VecDeque<Outcome>> = const { RefCell::new(VecDeque::new()) };
}

fn attempt(_: &mut Ctx, _: &mut Req) -> Outcome {
    SCRIPT.with_borrow_mut(VecDeque::pop_front).expect("no attempt after the last outcome")
}

/// Row whose attempts have the outcomes of the script.
static ROW: OpDef = OpDef { issue: Issue::Ring(attempt), ..OPS[IORING_OP_NOP as usize] };

/// Gives a prepared request its first attempt.
fn begin(ring: &TestRing, user_data: u64, script: &[Outcome]) {
    SCRIPT.set(script.iter().copied().collect());
    ring.begin(Req::new(sqe(IORING_OP_NOP, user_data).into(), &ROW));
}

/// Tries a request again, as if its event had come.
fn again(ring: &TestRing, id: ReqId) {
    let mut ctx = ring.lock();
    ctx.reqs.slab.get_mut(id).expect("it waits").phase = Phase::Prepped;
    ctx.work.queue(id);
    ctx.turn(Turn::Work);
}

#[derive(Clone, Copy, Debug)]
enum Attempt {
    More(i32),
    Wait,
}

fn tried() -> impl Strategy<Value = Attempt> {
    prop_oneof![3 => (0..9i32).prop_map(Attempt::More), 1 => Just(Attempt::Wait)]
}

proptest! {
    /// However often a request waits in between, each shot has a completion with MORE, and the end
    /// has one without.
    #[test]
    fn each_result_is_posted_once(
        attempts in prop::collection::vec(tried(), 0..80),
        last in prop_oneof![Just(0), Just(4), Just(-5)],
    ) {
        let ring = TestRing::new(8, 128, 0);
        let outcome = |a: &Attempt| match a {
            Attempt::More(res) => Outcome::More(*res),
            Attempt::Wait => Outcome::Elsewhere,
        };
        let script: Vec<_> = attempts.iter().map(outcome).chain([Outcome::Done(last)]).collect();
        begin(&ring, 1, &script);
        while let Some(id) = ring.id(1) {
            prop_assert!(ring.requests() == 1);
            again(&ring, id);
        }
        let shot = |a: &Attempt| match a {
            Attempt::More(res) => Some((1, *res, IORING_CQE_F_MORE)),
            Attempt::Wait => None,
        };
        let want: Vec<_> = attempts.iter().filter_map(shot).chain([(1, last, 0)]).collect();
        prop_assert_eq!(ring.take(usize::MAX), want);
        prop_assert!(ring.is_idle());
    }

    /// A shot that finds no room ends its request, and its completion says so.
    #[test]
    fn a_shot_without_cq_room_is_the_last(shots in 1..12usize) {
        const ROOM: usize = 4;
        let ring = TestRing::new(8, ROOM as u32, 0);
        begin(&ring, 1, &[vec![Outcome::More(1); shots], vec![Outcome::Done(2)]].concat());
        let mut got = ring.take(usize::MAX);
        ring.lock().flush_overflow();
        got.extend(ring.take(usize::MAX));
        let posted = shots.min(ROOM);
        let end = if shots > ROOM { 1 } else { 2 };
        let want = [vec![(1, 1, IORING_CQE_F_MORE); posted], vec![(1, end, 0)]].concat();
        prop_assert_eq!(got, want);
        prop_assert!(ring.is_idle());
    }
}

/// After 32 shots in a row other requests have their turn.
#[test]
fn multishot_requests_let_others_run() {
    let ring = TestRing::new(8, 128, 0);
    let mut ctx = ring.lock();
    let other = Req::new(sqe(IORING_OP_NOP, 2).into(), &OPS[IORING_OP_NOP as usize]);
    ctx.reqs.nr_reqs += 1;
    let other = ctx.reqs.slab.add(other);
    ctx.work.queue(other);
    drop(ctx);
    begin(&ring, 1, &[vec![Outcome::More(0); 50], vec![Outcome::Done(0)]].concat());
    let got = ring.reap();
    assert_eq!(got.iter().position(|&(name, _)| name == 2), Some(33));
    assert_eq!(got.len(), 52);
    assert!(ring.is_idle());
}

/// A result from a worker or a device for a request that is gone finds nothing, even if the slot is
/// another's by then.
#[test]
fn a_late_result_finds_no_request() {
    let ring = TestRing::new(8, 16, 0);
    begin(&ring, 1, &[Outcome::Elsewhere]);
    let gone = ring.id(1).expect("it waits");
    let bring = |res| {
        let mut ctx = ring.lock();
        ctx.finished(Finished { id: gone, call: Call::default(), outcome: Outcome::Done(res) });
        ctx.turn(Turn::Work);
    };
    bring(3);
    begin(&ring, 2, &[Outcome::Elsewhere]);
    let next = ring.id(2).expect("it waits");
    assert_eq!((next.slot, next != gone), (gone.slot, true));
    bring(4);
    assert_eq!(ring.reap().len(), 1);
    assert_eq!(ring.waiting(), [2]);
}
