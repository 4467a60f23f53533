//! Completion: the order of CQEs, their contents, and the time of posting.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const EIO: i32 = -5;
const EINVAL: i32 = -22;

/// Makes a NOP with a CQE of 32 bytes.
fn wide(user_data: u64, big: [u64; 2]) -> io_uring_sqe {
    let [off, addr] = big;
    io_uring_sqe { op_flags: IORING_NOP_CQE32, off, addr, ..sqe(IORING_OP_NOP, user_data) }
}

fn quiet(sqe: io_uring_sqe) -> io_uring_sqe {
    io_uring_sqe { flags: sqe.flags | IOSQE_CQE_SKIP_SUCCESS, ..sqe }
}

/// The rest of a chain comes behind all that the batch itself completes, and chains take turns.
#[test]
fn chains_continue_after_their_batch() {
    let ring = TestRing::new(8, 16, 0);
    let chains = [linked(nop(1, 0)), linked(nop(2, 0)), nop(3, 0), linked(nop(4, 0)), nop(5, 0)];
    ring.submit(&[&chains[..], &[nop(6, 0)]].concat());
    let names: Vec<u64> = ring.reap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [1, 4, 6, 2, 5, 3]);
}

/// A hard link outlives a failure; behind a soft link the rest is cancelled, and reported.
#[test]
fn a_failure_cancels_soft_linked_requests() {
    let ring = TestRing::new(8, 16, 0);
    let hard = io_uring_sqe { flags: IOSQE_IO_HARDLINK, ..nop(2, EIO) };
    ring.submit(&[
        linked(nop(1, 0)),
        hard,
        linked(nop(3, EIO)),
        quiet(linked(nop(4, 0))),
        nop(5, 0),
    ]);
    let want = [(1, 0), (2, EIO), (3, EIO), (4, ECANCELED), (5, ECANCELED)];
    assert_eq!(ring.reap(), want);
    assert!(ring.is_idle());
}

/// A request without a completion ends all the same: its chain goes on, its barrier lets go.
#[test]
fn skipped_requests_count_as_ended() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[quiet(linked(nop(1, 0))), quiet(linked(waiter(2))), nop(3, 0)]);
    assert_eq!(ring.reap(), []);
    ring.comes(2, 0);
    assert_eq!(ring.reap(), [(3, 0)]);
    assert!(ring.is_idle());
}

/// Task work posts the completion, behind the batch.
#[test]
fn task_work_completions_are_posted_later() {
    let ring = TestRing::new(8, 16, 0);
    ring.submit(&[io_uring_sqe { op_flags: IORING_NOP_TW, ..sqe(IORING_OP_NOP, 1) }, nop(2, 0)]);
    assert_eq!(ring.reap(), [(2, 0), (1, 0)]);
}

/// All CQEs of a ring with CQE32 have an upper half, which overflows with them.
#[test]
fn the_upper_half_of_wide_completions_overflows() {
    let ring = TestRing::new(8, 8, IORING_SETUP_CQE32);
    let batch = |first: u64| (first..first + 5).map(|i| wide(i, [i * 10, !i])).collect::<Vec<_>>();
    ring.submit(&batch(0));
    ring.submit(&batch(5));
    ring.submit(&[nop(10, EIO)]);
    let big = |i: u64| ((i, 0, 0), [i * 10, !i]);
    assert_eq!(ring.take_wide(9), (0..8).map(big).collect::<Vec<_>>());
    ring.lock().flush_overflow();
    let last = ((10, EIO, 0), [0, 0]);
    assert_eq!(ring.take_wide(9), [big(8), big(9), last]);
}

#[test]
fn a_ring_with_small_completions_has_no_upper_half() {
    let ring = TestRing::new(8, 8, 0);
    ring.submit(&[wide(1, [7, 8])]);
    assert_eq!(ring.reap(), [(1, EINVAL)]);
}

/// A flush takes as much of the list as finds room; the flag tells whether there is more.
#[test]
fn a_flush_posts_as_many_as_fit() {
    let ring = TestRing::new(8, 4, 0);
    ring.submit(&(0..8).map(|i| nop(i, 0)).collect::<Vec<_>>());
    ring.submit(&[nop(8, 0)]);
    let overflows = || ring.word(off::SQ_FLAGS) & IORING_SQ_CQ_OVERFLOW != 0;
    assert_eq!(ring.take(3).len(), 3);
    assert!(overflows());
    ring.get_events(0);
    assert!(overflows());
    let names = |n| ring.take(n).into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
    assert_eq!(names(9), [3, 4, 5, 6]);
    // A waiter finds what overflowed.
    ring.get_events(2);
    assert!(!overflows());
    assert_eq!(names(9), [7, 8]);
    assert!(ring.is_idle());
}

fn task_work_is_due(ring: &TestRing) -> bool {
    ring.word(off::SQ_FLAGS) & IORING_SQ_TASKRUN != 0
}

const DEFERS: u32 =
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;

/// DEFER_TASKRUN: the batch posts what it ends itself; what task work ends is posted when the
/// program enters for it.
#[test]
fn deferred_task_work_is_posted_by_getevents() {
    let ring = TestRing::new(8, 16, DEFERS);
    ring.submit(&[nop(1, 0)]);
    assert_eq!((ring.reap(), task_work_is_due(&ring)), (vec![(1, 0)], false));
    ring.submit(&[linked(nop(1, EIO)), linked(nop(2, 0)), nop(3, 0), nop(4, 0)]);
    assert_eq!((ring.reap(), task_work_is_due(&ring)), (vec![(1, EIO), (4, 0)], true));
    ring.get_events(1);
    let ended = vec![(2, ECANCELED), (3, ECANCELED)];
    assert_eq!((ring.reap(), task_work_is_due(&ring)), (ended, false));
    assert!(ring.is_idle());
}

/// DEFER_TASKRUN holds back the completions of events in the same way.
#[test]
fn deferred_events_are_posted_by_getevents() {
    let ring = TestRing::new(8, 16, DEFERS);
    let timeout = io_uring_sqe { addr: 1, ..waiter(1) };
    ring.submit(&[timeout, nop(2, 0)]);
    std::thread::sleep(std::time::Duration::from_millis(1));
    ring.submit(&[nop(3, 0)]);
    assert_eq!(ring.reap(), [(2, 0), (3, 0)]);
    ring.get_events(0);
    assert_eq!(ring.reap(), [(1, -62)]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Ends a request with a CQE of 16 or 32 bytes.
    End { wide: bool },
    /// Takes a completion, as the program does.
    Take,
    /// Flushes what found no room, as the program does.
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(|wide| Step::End { wide }),
        3 => Just(Step::Take),
        1 => Just(Step::Flush),
    ]
}

const ROOM: u32 = 8;

/// Model of a queue with CQEs of both sizes, and of the list behind it.
#[derive(Default)]
struct Model {
    /// Contents of the queue: names, none for a filler, and the slots that each takes.
    queue: VecDeque<(Option<u64>, u32)>,
    tail: u32,
    list: VecDeque<(u64, bool)>,
}

impl Model {
    fn room(&self) -> u32 {
        ROOM - self.queue.iter().map(|&(_, slots)| slots).sum::<u32>()
    }

    fn put(&mut self, name: Option<u64>, slots: u32) {
        self.queue.push_back((name, slots));
        self.tail += slots;
    }

    fn fill(&mut self, name: u64, wide: bool) -> bool {
        let slots = if wide { 2 } else { 1 };
        // A wide CQE must not wrap: a filler takes the last slot, if both find room.
        let filler = u32::from(wide && self.tail % ROOM == ROOM - 1);
        let fits = self.room() >= slots + filler;
        if fits {
            (0..filler).for_each(|_| self.put(None, 1));
            self.put(Some(name), slots);
        }
        fits
    }

    fn end(&mut self, name: u64, wide: bool) {
        if !(self.list.is_empty() && self.fill(name, wide)) {
            self.list.push_back((name, wide));
        }
    }

    fn flush(&mut self) {
        while let Some(&(name, wide)) = self.list.front() {
            if !self.fill(name, wide) {
                break;
            }
            self.list.pop_front();
        }
    }
}

/// Returns the name of a CQE, none for a filler, and the number of its slots.
fn named(cqe: ((u64, i32, u32), [u64; 2])) -> (Option<u64>, u32) {
    let ((name, res, flags), big) = cqe;
    match flags {
        0 => (Some(name), 1),
        IORING_CQE_F_SKIP => (None, 1),
        IORING_CQE_F_32 => {
            assert_eq!((res, big), (0, [name * 10, !name]));
            (Some(name), 2)
        }
        _ => unreachable!("flags {flags:#x}"),
    }
}

proptest! {
    /// The model is the kernel's, except for a filler before a CQE that finds no room, as
    /// LIMITATIONS says (`fuzz_found::cqe32_at_last_slot`).
    #[test]
    fn completions_of_both_sizes_stay_in_order(steps in prop::collection::vec(step(), 1..48)) {
        let ring = TestRing::new(8, ROOM, IORING_SETUP_CQE_MIXED);
        let mut model = Model::default();
        for (name, step) in (0..).zip(steps) {
            match step {
                Step::End { wide: is_wide } => {
                    let big = [name * 10, !name];
                    ring.submit(&[if is_wide { wide(name, big) } else { nop(name, 0) }]);
                    model.end(name, is_wide);
                }
                Step::Take => {
                    let got = ring.take_wide(1).pop().map(named);
                    prop_assert_eq!(got, model.queue.pop_front());
                    if let Some((_, 2)) = got {
                        ring.take(1);
                    }
                }
                Step::Flush => {
                    ring.get_events(0);
                    model.flush();
                }
            }
            prop_assert_eq!(ring.word(off::CQ_TAIL), model.tail);
            let overflows = ring.word(off::SQ_FLAGS) & IORING_SQ_CQ_OVERFLOW != 0;
            prop_assert_eq!(overflows, !model.list.is_empty());
        }
    }
}
