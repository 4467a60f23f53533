//! Reissue by readiness: a request that would block is armed, and each event brings an attempt.

use super::*;
use crate::ops::table::OPS;
use crate::ring::opdef::{Issue, OpDef, Outcome, POLLIN, Try};
use crate::ring::request::{Call, FileRef, Req};
use core::cell::RefCell;
use proptest::prelude::*;
use softring_host::sys::nr::{EPOLLERR, EPOLLIN, EPOLLONESHOT};
use std::collections::VecDeque;

const MORE: u32 = IORING_CQE_F_MORE;

fn ring() -> TestRing {
    TestRing::polling(8, 32, 0)
}

thread_local! {
    /// Outcomes of the attempts of this test's requests, in turn.
    static SCRIPT: RefCell<VecDeque<Outcome>> = const { RefCell::new(VecDeque::new()) };
}

fn attempt(_: &mut Call, _: Try) -> Outcome {
    SCRIPT.with_borrow_mut(VecDeque::pop_front).expect("no attempt after the last outcome")
}

/// Row that waits for input until its script says otherwise.
static ROW: OpDef =
    OpDef { issue: Issue::Call(attempt), bits: POLLIN, fast: None, ..OPS[IORING_OP_NOP as usize] };

/// Gives a prepared request its first attempt.
fn begin(ring: &TestRing, user_data: u64, script: &[Outcome]) {
    SCRIPT.set(script.iter().copied().collect());
    let mut req = Req::new(sqe(IORING_OP_NOP, user_data).into(), &ROW);
    req.call.file = FileRef::Token(FD);
    ring.begin(req);
}

proptest! {
    /// A request that would block is armed, tried again when its file is ready, and armed again
    /// after an attempt in vain: one attempt for each event, and one completion.
    #[test]
    fn each_event_causes_an_attempt(
        vain in 0..20usize,
        last in prop_oneof![Just(0), Just(4), Just(-5)],
    ) {
        let ring = ring();
        let script = [vec![Outcome::Retry; vain], vec![Outcome::Done(last)]].concat();
        begin(&ring, 1, &script);
        for tried in 1..=vain {
            prop_assert_eq!(ring.reap(), []);
            prop_assert_eq!(SCRIPT.with_borrow(VecDeque::len), script.len() - tried);
            let once = EPOLLIN | EPOLLONESHOT;
            prop_assert_eq!(ring.registered(FD) & once, once);
            let ready = if tried % 5 == 0 { EPOLLERR } else { EPOLLIN };
            prop_assert!(ring.becomes(FD, ready));
        }
        prop_assert_eq!(ring.reap(), [(1, last)]);
        prop_assert!(!ring.becomes(FD, EPOLLIN));
        prop_assert!(ring.is_idle());
    }
}

/// A multishot request that waits in between reports each result.
#[test]
fn a_multishot_request_waits_in_between() {
    let ring = ring();
    let shots = [Outcome::MoreThenWait(1), Outcome::More(2), Outcome::Retry, Outcome::Done(3)];
    begin(&ring, 1, &shots);
    assert_eq!(ring.take(9), [(1, 1, MORE)]);
    assert!(ring.becomes(FD, EPOLLIN));
    assert_eq!(ring.take(9), [(1, 2, MORE)]);
    assert!(ring.becomes(FD, EPOLLIN));
    assert_eq!(ring.take(9), [(1, 3, 0)]);
    assert!(ring.is_idle());
}

/// An event of an earlier wait brings no attempt to a request that waits for something else.
#[test]
fn an_event_of_an_earlier_wait_is_ignored() {
    let ring = ring();
    begin(&ring, 1, &[Outcome::Retry, Outcome::Elsewhere]);
    let event = ring.tells(FD, EPOLLIN).expect("it is waited for");
    ring.bring(&[event]);
    assert_eq!(ring.waiting(), [1]);
    ring.bring(&[event]);
    ring.comes(1, 6);
    assert_eq!(ring.reap(), [(1, 6)]);
    assert!(ring.is_idle());
}

/// A cancel finds a request that was tried in vain, and ends its attempts.
#[test]
fn a_cancel_ends_requests_that_await_a_reissue() {
    let ring = ring();
    begin(&ring, 1, &[Outcome::Retry, Outcome::Retry]);
    assert!(ring.becomes(FD, EPOLLIN));
    let late = ring.tells(FD, EPOLLIN);
    ring.submit(&[cancel(2, 1)]);
    assert_eq!(ring.reap(), [(2, 0), (1, ECANCELED)]);
    ring.bring(late.as_slice());
    assert!(ring.is_idle());
}

#[test]
fn reactor_keeps_no_memory_of_ended_rings() {
    let mut list = Vec::new();
    let lives = TestRing::new(8, 8, 0);
    crate::drive::reactor::list_ring(&mut list, &lives.ring);
    for _ in 0..1000 {
        let ring = TestRing::new(8, 8, 0);
        crate::drive::reactor::list_ring(&mut list, &ring.ring);
    }
    assert!(list.len() <= 4, "{}", list.len());
    assert!(list[0].upgrade().is_some());
}
