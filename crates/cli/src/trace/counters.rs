//! Counts of requests in flight, and of requests that ended per second, over the time of a trace.

use super::record::{Recorded, began};
use softring_engine::stats::trace::Step;
use std::collections::BTreeMap;

/// Requests for which there is one point, and the most points of a ring.
const EACH: usize = 200;
const MOST: usize = 400;

/// A ring's count in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub source: u32,
    /// Beginning of the stretch, in µs.
    pub ts: f64,
    /// Most requests that were in flight.
    pub in_flight: u32,
    pub per_second: f64,
}

/// Returns the points, by ring and then by time. `events` are in order, `at` converts their times
/// to µs.
pub fn points(events: &[Recorded], at: impl Fn(u64) -> f64) -> Vec<Point> {
    let ends = |k: &&Recorded| matches!(k.event.step, Step::Done | Step::Inline);
    let ended = events.iter().filter(ends).count();
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Vec::new() };
    let n = (ended / EACH).clamp(1, MOST);
    let start = at(began(&first.event));
    let width = ((at(last.event.time) - start) / n as f64).max(0.001);
    // By ring: requests in flight now; in each stretch, the most in flight and the number that
    // ended.
    let mut rings: BTreeMap<u32, (u32, Vec<(u32, u32)>)> = BTreeMap::new();
    for k in events {
        let stretch = (((at(k.event.time) - start) / width) as usize).min(n - 1);
        let (now, all) = rings.entry(k.source).or_default();
        if all.len() <= stretch {
            all.resize(stretch + 1, (*now, 0));
        }
        let (most, done) = &mut all[stretch];
        match k.event.step {
            Step::Submit => *now += 1,
            Step::Inline => *done += 1,
            Step::Done => {
                *now = now.saturating_sub(1);
                *done += 1;
            }
            _ => {}
        }
        *most = (*now).max(*most);
    }
    let mut points = Vec::new();
    for (source, (_, all)) in rings {
        let mut before = None;
        for (i, (in_flight, done)) in all.into_iter().enumerate() {
            let (ts, per_second) = (start + i as f64 * width, f64::from(done) / width * 1e6);
            // A count that has not changed says nothing.
            if before != Some((in_flight, done)) {
                points.push(Point { source, ts, in_flight, per_second: per_second.round() });
            }
            before = Some((in_flight, done));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use softring_engine::stats::trace::Event;

    #[test]
    fn requests_are_counted_by_interval() {
        let kept = |time, step| {
            let event = Event { time, step, req: 1, ..Event::default() };
            Recorded { source: 0, event, more: Box::default() }
        };
        // Two requests are in flight at a time, for 400 requests; one ends in each µs.
        let mut events = vec![kept(0, Step::Submit)];
        for i in 0..400 {
            events.extend([kept(i, Step::Submit), kept(i + 1, Step::Done)]);
        }
        let points = points(&events, |t| t as f64);
        assert_eq!(points.len(), 2, "{points:?}");
        assert!(points.iter().all(|p| p.in_flight == 2), "{points:?}");
        let ended: f64 = points.iter().map(|p| p.per_second * 200.0 / 1e6).sum();
        assert!((399.0..=401.0).contains(&ended), "{points:?}");
        assert!(super::points(&[], |t| t as f64).is_empty());
    }
}
