//! Arming: a request waits for readiness in the poll set, which is a list of tokens here. Tests of
//! the events that come, and of ends of the wait before them.

use super::*;
use proptest::prelude::*;
use softring_host::sys::nr::{EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT};
use std::collections::BTreeMap;

const ENOENT: i32 = -2;
const ETIME: i32 = -62;
const EINVAL: i32 = -22;
const IN: i32 = EPOLLIN.cast_signed();
const MORE: u32 = IORING_CQE_F_MORE;

/// Makes a POLL_ADD.
fn poll(user_data: u64, fd: i32, events: u32) -> io_uring_sqe {
    io_uring_sqe { fd, op_flags: events, ..sqe(IORING_OP_POLL_ADD, user_data) }
}

fn multishot(poll: io_uring_sqe) -> io_uring_sqe {
    io_uring_sqe { len: IORING_POLL_ADD_MULTI, ..poll }
}

/// Makes a POLL_REMOVE.
fn remove(user_data: u64, target: u64) -> io_uring_sqe {
    io_uring_sqe { addr: target, ..sqe(IORING_OP_POLL_REMOVE, user_data) }
}

fn update(user_data: u64, target: u64, events: u32) -> io_uring_sqe {
    let len = IORING_POLL_UPDATE_EVENTS;
    io_uring_sqe { len, op_flags: events, ..remove(user_data, target) }
}

fn rename(user_data: u64, target: u64, name: u64) -> io_uring_sqe {
    let len = IORING_POLL_UPDATE_USER_DATA;
    io_uring_sqe { len, off: name, ..remove(user_data, target) }
}

fn ring() -> TestRing {
    TestRing::polling(8, 32, 0)
}

#[test]
fn a_poll_ends_with_its_first_event() {
    let ring = ring();
    ring.submit(&[poll(1, FD, EPOLLIN)]);
    assert_eq!(ring.reap(), []);
    let events = ring.registered(FD);
    assert_eq!(events & (EPOLLIN | EPOLLOUT | EPOLLONESHOT), EPOLLIN | EPOLLONESHOT);
    assert!(ring.becomes(FD, EPOLLIN));
    assert_eq!(ring.take(9), [(1, IN, 0)]);
    assert!(!ring.becomes(FD, EPOLLIN));
    assert!(ring.is_idle());
}

/// An event that the poll did not ask for leaves it armed; every poll asks for an end.
#[test]
fn a_poll_waits_for_what_it_asked_for() {
    let ring = ring();
    ring.submit(&[poll(1, FD, EPOLLOUT)]);
    assert!(!ring.becomes(FD, EPOLLIN));
    let token = ring.id(1).expect("it is armed").to_u64();
    ring.bring(&[epoll_event { events: EPOLLIN, data: token }]);
    assert_eq!(ring.take(9), []);
    assert_ne!(ring.registered(FD), 0);
    assert!(ring.becomes(FD, EPOLLHUP));
    assert_eq!(ring.take(9), [(1, EPOLLHUP.cast_signed(), 0)]);
}

#[test]
fn each_event_of_a_multishot_poll_has_a_completion() {
    let ring = ring();
    ring.submit(&[multishot(poll(1, FD, EPOLLIN))]);
    for _ in 0..3 {
        assert!(ring.becomes(FD, EPOLLIN));
        assert_eq!(ring.take(9), [(1, IN, MORE)]);
    }
    ring.submit(&[remove(2, 1)]);
    assert_eq!(ring.take(9), [(2, 0, 0), (1, ECANCELED, 0)]);
    assert_eq!(ring.registered(FD), 0);
    assert!(!ring.becomes(FD, EPOLLIN));
    assert!(ring.is_idle());
}

/// The completion that finds a full CQ is the last, and says so.
#[test]
fn a_multishot_poll_without_room_ends() {
    let ring = TestRing::polling(4, 4, 0);
    ring.submit(&[multishot(poll(1, FD, EPOLLIN))]);
    for _ in 0..5 {
        assert!(ring.becomes(FD, EPOLLIN));
    }
    assert!(!ring.becomes(FD, EPOLLIN));
    assert_eq!(ring.take(9), [(1, IN, MORE); 4]);
    ring.lock().flush_overflow();
    assert_eq!(ring.take(9), [(1, IN, 0)]);
    assert!(ring.is_idle());
}

/// The removal's CQE comes first: the removed poll ends with task work.
#[test]
fn a_removed_poll_ends_cancelled() {
    let ring = ring();
    ring.submit(&[linked(poll(1, FD, EPOLLIN)), nop(5, 0)]);
    ring.submit(&[remove(2, 1), remove(3, 1), nop(4, 0)]);
    let want = [(2, 0), (3, ENOENT), (4, 0), (1, ECANCELED), (5, ECANCELED)];
    assert_eq!(ring.reap(), want);
    assert!(!ring.becomes(FD, EPOLLIN));
    assert!(ring.is_idle());
}

#[test]
fn an_update_changes_events_and_name() {
    let ring = ring();
    ring.submit(&[poll(1, FD, EPOLLIN)]);
    ring.submit(&[update(2, 1, EPOLLOUT)]);
    assert_eq!(ring.reap(), [(2, 0)]);
    assert_eq!(ring.registered(FD) & (EPOLLIN | EPOLLOUT), EPOLLOUT);
    assert!(!ring.becomes(FD, EPOLLIN));
    ring.submit(&[rename(3, 1, 7), update(4, 1, EPOLLIN)]);
    assert_eq!(ring.reap(), [(3, 0), (4, ENOENT)]);
    assert!(ring.becomes(FD, EPOLLOUT));
    assert_eq!(ring.reap(), [(7, EPOLLOUT.cast_signed())]);
    assert!(ring.is_idle());
}

/// An update leaves a multishot poll one, which reports each event.
#[test]
fn an_updated_poll_stays_multishot() {
    let ring = ring();
    ring.submit(&[multishot(poll(1, FD, EPOLLIN))]);
    ring.submit(&[update(2, 1, EPOLLOUT)]);
    for _ in 0..2 {
        assert!(ring.becomes(FD, EPOLLOUT));
    }
    let out = EPOLLOUT.cast_signed();
    assert_eq!(ring.take(9), [(2, 0, 0), (1, out, MORE), (1, out, MORE)]);
}

#[test]
fn an_invalid_poll_is_refused() {
    let ring = ring();
    let skip = IOSQE_CQE_SKIP_SUCCESS;
    ring.submit(&[
        io_uring_sqe { flags: skip, ..multishot(poll(1, FD, EPOLLIN)) },
        io_uring_sqe { len: 2, ..poll(2, FD, EPOLLIN) },
        io_uring_sqe { off: 1, ..poll(3, FD, EPOLLIN) },
        io_uring_sqe { len: IORING_POLL_ADD_MULTI, ..remove(4, 1) },
    ]);
    assert_eq!(ring.reap(), [(1, EINVAL), (2, EINVAL), (3, EINVAL), (4, EINVAL)]);
    assert!(ring.is_idle());
}

/// An event that was on its way when its request ended finds no request, even if another request
/// has the slot by then.
#[test]
fn an_event_of_a_stale_token_is_ignored() {
    let ring = ring();
    // The first slot without a generation would be the wake-up of the ring itself.
    ring.submit(&[poll(0, FD + 1, EPOLLIN), poll(1, FD, EPOLLIN)]);
    let old = ring.id(1).expect("it is armed");
    let late = ring.tells(FD, EPOLLIN).expect("it is waited for");
    ring.submit(&[remove(2, 1)]);
    assert_eq!(ring.reap(), [(2, 0), (1, ECANCELED)]);
    ring.bring(&[late]);
    ring.submit(&[poll(3, FD, EPOLLIN)]);
    let new = ring.id(3).expect("it is armed");
    assert_eq!((new.slot, new == old), (old.slot, false));
    ring.bring(&[late]);
    // Data that never was a token names no request either.
    let nobody = [u64::from(new.slot), old.next().next().to_u64(), 99 << 32 | 99];
    ring.bring(&nobody.map(|data| epoll_event { events: EPOLLIN, data }));
    assert_eq!(ring.reap(), []);
    assert!(ring.becomes(FD, EPOLLIN));
    assert_eq!(ring.reap(), [(3, IN)]);
}

/// An event that comes twice ends a request once.
#[test]
fn one_event_ends_a_poll_once() {
    let ring = ring();
    ring.submit(&[linked(poll(1, FD, EPOLLIN)), linked(poll(2, FD + 1, EPOLLIN)), nop(3, 0)]);
    assert_eq!(ring.registered(FD + 1), 0);
    let first = ring.tells(FD, EPOLLIN).expect("it is waited for");
    ring.bring(&[first, first]);
    assert_eq!(ring.reap(), [(1, IN)]);
    assert!(ring.becomes(FD + 1, EPOLLIN));
    assert_eq!(ring.reap(), [(2, IN), (3, 0)]);
    assert!(ring.is_idle());
}

#[test]
fn a_cancel_finds_armed_requests() {
    let ring = ring();
    ring.submit(&[poll(1, FD, EPOLLIN), multishot(poll(1, FD + 1, EPOLLIN))]);
    // The newest first, as in the kernel's hash.
    ring.submit(&[cancel(2, 1), nop(3, 0)]);
    assert_eq!(ring.reap(), [(2, 0), (3, 0), (1, ECANCELED)]);
    assert_eq!(ring.registered(FD + 1), 0);
    assert_ne!(ring.registered(FD), 0);
    let all = io_uring_sqe { op_flags: IORING_ASYNC_CANCEL_ALL, ..cancel(2, 1) };
    ring.submit(&[all]);
    assert_eq!(ring.reap(), [(2, 1), (1, ECANCELED)]);
    assert!(ring.is_idle());
}

fn linked_timeout(user_data: u64, ns: u64) -> io_uring_sqe {
    let op_flags = IORING_TIMEOUT_IMMEDIATE_ARG;
    io_uring_sqe { op_flags, addr: ns, len: 1, ..sqe(IORING_OP_LINK_TIMEOUT, user_data) }
}

#[test]
fn a_linked_timeout_cancels_an_armed_request() {
    let ring = ring();
    let chain = [linked(poll(1, FD, EPOLLIN)), linked(linked_timeout(2, 1_000_000)), nop(3, 0)];
    ring.submit(&chain);
    assert_eq!((ring.reap(), ring.waiting()), (vec![], vec![2]));
    let late = ring.tells(FD, EPOLLIN);
    std::thread::sleep(std::time::Duration::from_millis(2));
    ring.lock().turn(Turn::All);
    assert_eq!(ring.reap(), [(2, ETIME), (1, ECANCELED), (3, ECANCELED)]);
    ring.bring(late.as_slice());
    assert!(!ring.becomes(FD, EPOLLIN));
    assert!(ring.is_idle());
}

#[test]
fn an_event_disarms_the_linked_timeout() {
    let ring = ring();
    ring.submit(&[linked(poll(1, FD, EPOLLIN)), linked(linked_timeout(2, LONG)), nop(3, 0)]);
    assert!(ring.becomes(FD, EPOLLIN));
    assert_eq!(ring.reap(), [(1, IN), (2, ECANCELED), (3, 0)]);
    assert!(ring.is_idle());
}

/// While a thread makes a system call without the lock, another thread that finds events leaves
/// them to it.
#[test]
fn events_wait_for_an_issue_to_end() {
    let ring = ring();
    ring.submit(&[poll(1, FD, EPOLLIN)]);
    let event = ring.tells(FD, EPOLLIN).expect("it is waited for");
    let mut ctx = ring.lock();
    ctx.issue.begin_elsewhere();
    ctx.turn(Turn::Events { events: &[event], early: None });
    ctx.issue.end();
    assert_eq!(ctx.mem.cq_ready(), 0);
    ctx.turn(Turn::Batch);
    drop(ctx);
    assert_eq!(ring.reap(), [(1, IN)]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Arms a poll under the next name, on a number of its own.
    Add {
        events: u32,
        many: bool,
    },
    /// Makes the number of that name ready; a `late` event is acted on later.
    Ready {
        name: u64,
        events: u32,
        late: bool,
    },
    /// Acts on the events that were late.
    Act,
    Remove(u64),
    Cancel(u64),
    Rename(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let events = || prop_oneof![Just(EPOLLIN), Just(EPOLLOUT)];
    let name = || 0..12u64;
    let ready = (name(), events(), any::<bool>());
    prop_oneof![
        4 => (events(), any::<bool>()).prop_map(|(events, many)| Step::Add { events, many }),
        6 => ready.prop_map(|(name, events, late)| Step::Ready { name, events, late }),
        2 => Just(Step::Act),
        1 => name().prop_map(Step::Remove),
        1 => name().prop_map(Step::Cancel),
        1 => name().prop_map(Step::Rename),
    ]
}

#[derive(Clone, Copy)]
struct Armed {
    fd: i32,
    events: u32,
    many: bool,
    /// Flag, true if epoll has reported the poll, and nobody has acted on that yet.
    reported: bool,
}

/// Model of a ring's polls.
#[derive(Default)]
struct Model {
    next: u64,
    armed: BTreeMap<u64, Armed>,
    /// Numbers of events that nobody has acted on yet.
    late: Vec<i32>,
}

const OTHER: u64 = 1 << 32;

impl Model {
    /// Acts on an event of `fd`; returns the completion.
    fn event(&mut self, fd: i32) -> Option<(u64, i32, u32)> {
        let (&name, &poll) = self.armed.iter().find(|(_, poll)| poll.fd == fd)?;
        if !poll.many {
            self.armed.remove(&name);
        }
        Some((name, poll.events.cast_signed(), if poll.many { MORE } else { 0 }))
    }

    /// Returns whether epoll reports `events` of that number; it reports a single poll only once.
    fn tells(&mut self, fd: i32, events: u32) -> bool {
        let hears = |p: &&mut Armed| p.fd == fd && p.events == events && (p.many || !p.reported);
        let found = self.armed.values_mut().find(hears);
        found.map(|poll| poll.reported = true).is_some()
    }

    fn end(&mut self, name: u64) -> Vec<(u64, i32, u32)> {
        match self.armed.remove(&name) {
            Some(_) => vec![(OTHER, 0, 0), (name, ECANCELED, 0)],
            None => vec![(OTHER, ENOENT, 0)],
        }
    }
}

/// Makes a step on both; returns the completions that the model expects.
fn make(ring: &TestRing, model: &mut Model, late: &mut Vec<epoll_event>, step: Step) -> Cqes {
    match step {
        Step::Add { events, many } => {
            let (name, fd) = (model.next, FD + model.next as i32);
            model.next += 1;
            model.armed.insert(name, Armed { fd, events, many, reported: false });
            let sqe = poll(name, fd, events);
            ring.submit(&[if many { multishot(sqe) } else { sqe }]);
            vec![]
        }
        Step::Ready { name, events, late: is_late } => {
            let fd = FD + name as i32;
            let event = ring.tells(fd, events);
            assert_eq!(event.is_some(), model.tells(fd, events), "{fd}");
            if is_late {
                model.late.extend(event.map(|_| fd));
                late.extend(event);
                return vec![];
            }
            ring.bring(event.as_slice());
            event.and_then(|_| model.event(fd)).into_iter().collect()
        }
        Step::Act => {
            ring.bring(&core::mem::take(late));
            let numbers = core::mem::take(&mut model.late);
            numbers.into_iter().filter_map(|fd| model.event(fd)).collect()
        }
        Step::Remove(name) => {
            ring.submit(&[remove(OTHER, name)]);
            model.end(name)
        }
        Step::Cancel(name) => {
            ring.submit(&[cancel(OTHER, name)]);
            model.end(name)
        }
        Step::Rename(name) => {
            ring.submit(&[rename(OTHER, name, name + 100)]);
            let Some(poll) = model.armed.remove(&name) else { return vec![(OTHER, ENOENT, 0)] };
            // The poll is armed anew, even if it was reported.
            model.armed.insert(name + 100, Armed { reported: false, ..poll });
            vec![(OTHER, 0, 0)]
        }
    }
}

type Cqes = Vec<(u64, i32, u32)>;

proptest! {
    /// Arms polls with a number each; events come even for polls that may have been removed.
    #[test]
    fn polls_end_as_the_model_says(steps in prop::collection::vec(step(), 1..48)) {
        let ring = TestRing::polling(8, 128, 0);
        let (mut model, mut late) = (Model::default(), vec![]);
        for step in steps {
            let want = make(&ring, &mut model, &mut late, step);
            prop_assert_eq!(ring.take(usize::MAX), want, "{:?}", step);
            let armed = model.armed.len() as u32;
            prop_assert_eq!(ring.requests(), armed);
        }
    }
}

/// The wake-up of a driver that has yet to come back is not for others: neither for a thread that
/// takes the event now, nor for one that takes it out of the stash later.
#[test]
fn a_drivers_wakeup_stays_until_it_is_back() {
    let ring = TestRing::new(8, 32, 0);
    let wake = epoll_event::default();
    let mut ctx = ring.ring.lock_now();
    assert!(ctx.drive.transports.poll_set().is_ok());
    ctx.drive.begin_drive(1, u64::MAX);
    ctx.drive.wake_driver();
    let fd = ctx.drive.wakes.driver.as_ref().expect("it is asleep").fd();
    drop(ctx);
    let is_set = || softring_host::sys::poll_now(fd, softring_host::sys::POLLIN) != 0;
    assert!(is_set());
    let mut ctx = ring.ring.lock_now();
    ctx.poll_events(&[wake]);
    ctx.stash_events(&[wake]);
    assert!(is_set() && ctx.drive.transports.stash.is_empty());
    ctx.end_drive();
    ctx.poll_events(&[wake]);
    assert!(!is_set());
}
