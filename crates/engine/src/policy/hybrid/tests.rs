use super::*;
use proptest::prelude::*;

#[test]
fn prompt_wake_ups_coalesce_nothing() {
    let mut h = one(Policy::Hybrid);
    h.wakes_at_once();
    let mut now = 1_000_000_000;
    let mut flying: Vec<Ticket> = (0..64).map(|_| h.issued(KEY(), now)).collect();
    // One after the other, 100 µs each, polled for without a pause, then in batches of eight.
    for turn in 0..2_000 {
        now += 100_000;
        if let WaitAction::IdleSleep(idle_sleep) = h.next(now - 1_000) {
            let share = idle_sleep.until.saturating_sub(now) * UNSEEN_SHARE;
            assert!(!idle_sleep.through() || share <= 7_000_000, "{idle_sleep:?}");
            h.woke(now, true);
        }
        h.done(flying.remove(0), now);
        h.begin();
        if turn % 8 == 7 {
            flying.extend((0..8).map(|_| h.issued(KEY(), now)));
        }
    }
}

fn one(policy: Policy) -> Hybrid {
    Hybrid::new(policy, 64, Timer::measured(&[2_000], 1_500))
}

const KEY: fn() -> Key = || Key::new(1, false, 4096);

/// Returns a policy that has watched requests of 100 µs closely.
fn taught(policy: Policy) -> (Hybrid, u64) {
    let (mut h, mut now) = (one(policy), 1_000_000_000);
    for _ in 0..60 {
        h.begin();
        let t = h.issued(KEY(), now);
        let end = now + 100_000;
        while now < end {
            now = match h.next(now) {
                WaitAction::Block => panic!("nothing has stalled"),
                WaitAction::Poll => now + 1_000,
                WaitAction::IdleSleep(n) => {
                    h.woke(n.until + 2_000, false);
                    n.until + 2_000
                }
            };
        }
        h.done(t, now);
    }
    (h, now)
}

#[test]
fn the_sleep_ends_before_the_first_completion() {
    let (mut h, now) = taught(Policy::Hybrid);
    let first = h.issued(KEY(), now);
    let _second = h.issued(KEY(), now + 50_000);
    h.begin();
    let due = h.next_due().unwrap();
    assert!((now + 70_000..now + 110_000).contains(&due));
    // The end is absolute: a later call returns a sleep with the same end.
    let late = now + 30_000;
    let WaitAction::IdleSleep(idle_sleep) = h.next(late) else { panic!("no sleep") };
    assert!(idle_sleep.until < due && idle_sleep.until > due - 10_000 && !idle_sleep.through());
    h.woke(idle_sleep.until, false);
    h.done(first, idle_sleep.until + 1);
    assert_eq!(h.in_flight(), 1);
    let t = h.take_tally();
    assert!(
        t.idle_sleeps > 40 && t.under + t.over + 1 >= t.idle_sleeps && t.spared_ns > 0,
        "{t:?}"
    );
}

#[test]
fn a_stopped_device_costs_no_cpu_time() {
    let (mut h, mut now) = taught(Policy::Hybrid);
    let _never = h.issued(KEY(), now);
    h.begin();
    let (begun, mut wakes, mut spun) = (now, 0, 0);
    loop {
        now = match h.next(now) {
            WaitAction::Poll => {
                spun += 1_000;
                now + 1_000
            }
            WaitAction::IdleSleep(n) => {
                assert!(n.until <= now + IDLE_SLEEP_MAX);
                wakes += 1;
                h.woke(n.until, false);
                n.until.max(now) + 1
            }
            WaitAction::Block => break,
        };
    }
    assert!(wakes < 50 && spun < 3_000_000, "{wakes} {spun}");
    assert!(now - begun < 100_000_000, "{}", now - begun);
    // CQEs that others post wake the thread: there is still nothing to poll for.
    assert_eq!(h.next(now + 1_000_000_000), WaitAction::Block);
    let other = h.issued(KEY(), now);
    h.done(other, now + 100_000);
    assert_ne!(h.next(now + 101_000), WaitAction::Block);
}

#[test]
fn clocks_that_jump_do_no_harm() {
    for policy in Policy::ALL {
        let (mut h, now) = taught(policy);
        let t = h.issued(KEY(), now);
        h.begin();
        for at in [now - 900_000_000, now + 86_400_000_000_000, 0, u64::MAX - 1, now] {
            if let WaitAction::IdleSleep(n) = h.next(at) {
                assert!(n.until <= at.saturating_add(IDLE_SLEEP_MAX));
                h.woke(at, false);
            }
        }
        h.done(t, now + 100_000);
        let before = h.in_flight();
        let t = h.issued(KEY(), now);
        assert!(h.next_due().is_none_or(|due| due < now + 1_000_000_000));
        h.gone(t);
        assert_eq!((before, h.in_flight()), (0, 0));
    }
}

#[test]
fn a_slow_device_does_not_hide_a_fast_one() {
    let (mut h, now) = taught(Policy::Hybrid);
    let slow = Key::new(2, false, 4096);
    let mut t = now;
    for _ in 0..40 {
        let ticket = h.issued(slow, t);
        h.begin();
        let _ = h.next(t + 9_999_000);
        t += 10_000_000;
        h.done(ticket, t);
    }
    let _slow = h.issued(slow, t);
    h.issued(KEY(), t);
    h.begin();
    let WaitAction::IdleSleep(idle_sleep) = h.next(t) else { panic!("no sleep") };
    assert!(idle_sleep.until < t + 110_000 && !idle_sleep.through());
}

#[test]
fn ten_thousand_in_flight_are_kept_apart() {
    let mut h = Hybrid::new(Policy::Hybrid, 10_000, Timer::default());
    let mut tickets: Vec<Ticket> =
        (0..10_000).map(|i| h.issued(Key::new(i % 100, i % 2 == 0, 4096), i)).collect();
    assert_eq!(h.in_flight(), FLIGHT_MAX);
    tickets.reverse();
    for t in tickets {
        h.done(t, 1_000_000);
        h.done(t, 1_000_001);
    }
    assert_eq!((h.in_flight(), h.next_due()), (0, None));
}

proptest! {
    /// Whatever happens in whatever order: no sleep beyond the cap, and the counts are right.
    #[test]
    fn no_sleep_beyond_the_cap(
        policy in 0usize..4,
        events in prop::collection::vec((0u8..6, 0u64..20_000_000), 1..300),
    ) {
        let (mut h, mut now) = (one(Policy::ALL[policy]), 5_000_000_000u64);
        let mut flying = Vec::new();
        for (what, time) in events {
            now += time >> (what * 3);
            match what {
                0 | 1 => flying.push(h.issued(Key::new(time % 3, false, time), now)),
                2 if !flying.is_empty() => {
                    h.done(flying.swap_remove(time as usize % flying.len()), now);
                }
                3 => h.begin(),
                _ => {
                    if let WaitAction::IdleSleep(n) = h.next(now) {
                        prop_assert!(n.until <= now + IDLE_SLEEP_MAX);
                        let early = what == 5;
                        now = if early { now + 1 } else { n.until.max(now) };
                        h.woke(now, early);
                    }
                }
            }
            let kept = flying.iter().filter(|t| **t != Ticket::NONE).count();
            prop_assert_eq!(h.in_flight() as usize, kept);
            prop_assert_eq!(h.next_due().is_none() || kept > 0, true);
        }
        let t = h.take_tally();
        prop_assert!(t.under + t.over <= t.idle_sleeps);
    }
}

/// Runs one request that takes `takes`, at depth 1, while other threads want the processor; returns
/// whether the waiter slept.
fn beside_others(h: &mut Hybrid, now: &mut u64, takes: u64) -> bool {
    const WAKE: u64 = 60_000;
    h.set_load(Load { runnable: 5, cpus: 2 }, *now);
    h.begin();
    let ticket = h.issued(Key::new(1, false, 4096), *now);
    let (done, mut slept) = (*now + takes, false);
    while *now < done {
        match h.next(*now) {
            WaitAction::Block => panic!("nothing has stalled"),
            WaitAction::Poll => *now += 1_000,
            WaitAction::IdleSleep(_) => {
                (*now, slept) = (done + WAKE, true);
                h.woke(*now, true);
            }
        }
    }
    h.done(ticket, *now);
    *now += 2_000;
    slept
}

#[test]
fn under_load_the_estimate_is_relearned() {
    let mut h = Hybrid::new(Policy::Adaptive, 64, Timer::measured(&[50_000], 30_000));
    let mut now = 1_000_000_000;
    let mut sleeps =
        |takes, times: usize| (0..times).filter(|_| beside_others(&mut h, &mut now, takes)).count();
    // Shorter than a sleep, long, short once more.
    sleeps(18_000, 1_000);
    assert!(sleeps(18_000, 1_000) < 20);
    sleeps(90_000, 1_000);
    assert!(sleeps(90_000, 1_000) > 900);
    sleeps(18_000, 40_000);
    let few = sleeps(18_000, 1_000);
    assert!(few < 50, "{few}");
}
