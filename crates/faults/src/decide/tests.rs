use super::*;
use crate::{Replay, Spec};
use alloc::format;
use alloc::string::String;
use proptest::prelude::*;
use softring_uapi::{IORING_OP_READ, IORING_OP_WRITE};

fn subject(request: u64, op: u8) -> Subject<'static> {
    Subject { ring: 0, request, op, kind: None, path: None }
}

fn hits(spec: &str, fault: Fault, op: u8, of: u64) -> Vec<u64> {
    let plan = Plan::Chance(Spec::parse(spec).unwrap());
    let mut state = RingFaults::default();
    (0..of).filter(|&i| plan.decide(&mut state, fault, &subject(i, op)).is_some()).collect()
}

proptest! {
    #[test]
    fn decisions_are_as_frequent_as_asked(seed: u64, percent in 1u32..100) {
        let spec = format!("seed={seed},eio=0.{percent:02}");
        let n = hits(&spec, Fault::Eio, IORING_OP_READ, 20_000).len() as f64;
        let p = f64::from(percent) / 100.0;
        let sigma = (20_000.0 * p * (1.0 - p)).sqrt();
        prop_assert!((n - 20_000.0 * p).abs() < 6.0 * sigma, "{n} of 20000 for {p}");
    }

    #[test]
    fn faults_seeds_and_rings_are_independent(seed: u64, ring: u32, request: u64) {
        let here = draw(seed, ring, request, Fault::Eio);
        prop_assert_eq!(here, draw(seed, ring, request, Fault::Eio));
        prop_assert_ne!(here, draw(seed.wrapping_add(1), ring, request, Fault::Eio));
        prop_assert_ne!(here, draw(seed, ring.wrapping_add(1), request, Fault::Eio));
        prop_assert_ne!(here, draw(seed, ring, request.wrapping_add(1), Fault::Eio));
        prop_assert_ne!(here, draw(seed, ring, request, Fault::Delay));
    }

    #[test]
    fn values_stay_between_their_bounds(random: u64, least in 0u64..100, more in 0u64..100) {
        let drawn = Decision::Drawn { random, time: None };
        for decision in [drawn, Decision::Replayed(random)] {
            let value = decision.between(least, least + more).unwrap();
            prop_assert!((least..=least + more).contains(&value));
        }
        prop_assert_eq!(drawn.between(least + more + 1, least), None);
    }
}

#[test]
fn the_last_entry_that_matches_decides() {
    let spec = "eio=1,eio=0@op=write";
    assert_eq!(hits(spec, Fault::Eio, IORING_OP_READ, 10).len(), 10);
    assert_eq!(hits(spec, Fault::Eio, IORING_OP_WRITE, 10).len(), 0);
    assert_eq!(hits("legal,short-read=0", Fault::ShortRead, IORING_OP_READ, 1000).len(), 0);
}

#[test]
fn nth_counts_the_requests_that_match() {
    assert_eq!(hits("eio=1@nth=3", Fault::Eio, IORING_OP_READ, 10), [2]);
    assert_eq!(hits("eio=1@request=3", Fault::Eio, IORING_OP_READ, 10), [3]);
    assert_eq!(hits("eio=1@op=write,nth=3", Fault::Eio, IORING_OP_READ, 10), []);
    assert_eq!(hits("eio=1@ring=1", Fault::Eio, IORING_OP_READ, 10), []);
}

#[test]
fn paths_and_kinds_filter() {
    let plan = Plan::Chance(Spec::parse("eio=1@path=*.wal,kind=file").unwrap());
    let mut state = RingFaults::default();
    let mut hit = |path: Option<&'static [u8]>, kind| {
        let subject = Subject { path, kind, ..subject(0, IORING_OP_READ) };
        plan.decide(&mut state, Fault::Eio, &subject).is_some()
    };
    assert!(hit(Some(b"/x/a.wal"), Some(Kind::File)));
    assert!(!hit(Some(b"/x/a.db"), Some(Kind::File)));
    assert!(!hit(Some(b"/x/a.wal"), Some(Kind::Pipe)));
    assert!(!hit(None, None));
}

#[test]
fn a_replay_injects_what_the_log_has() {
    let log = "{\"softring-faults\":1,\"spec\":\"seed=0\"}\n\
        {\"ring\":0,\"request\":4,\"op\":\"READ\",\"fault\":\"short-read\",\"value\":7,\"pid\":1}\n\
        {\"ring\":0,\"request\":5,\"op\":\"ENTER\",\"fault\":\"eintr\",\"value\":4,\"pid\":1}\n";
    let plan = Plan::Replay(Replay::parse(log).unwrap());
    let mut state = RingFaults::default();
    for request in 0..10 {
        let read = subject(request, IORING_OP_READ);
        let short = plan.decide(&mut state, Fault::ShortRead, &read);
        assert_eq!(short, (request == 4).then_some(Decision::Replayed(7)));
        assert_eq!(plan.decide(&mut state, Fault::Eintr, &read), None);
        let enter = subject(request, crate::filter::ENTER_OP);
        assert_eq!(plan.decide(&mut state, Fault::Eintr, &enter).is_some(), request == 5);
        // Another program makes another request there.
        let write = subject(request, IORING_OP_WRITE);
        assert_eq!(plan.decide(&mut state, Fault::ShortRead, &write), None);
    }
    for (bad, why) in [
        ("", "the log is empty"),
        ("{}", "line 1: the first line has no member softring-faults"),
        (&log.replace("eintr", "flood"), "line 3: there is no fault flood"),
        (&log.replace("ENTER", "LEAVE"), "line 3: there is no operation LEAVE"),
        (&log.replace("\"value\":7,", ""), "line 2: ring, request, fault or value is missing"),
    ] {
        assert_eq!(Replay::parse(bad), Err(String::from(why)));
    }
}
