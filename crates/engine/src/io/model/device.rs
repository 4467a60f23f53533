//! A modelled device: a pure function of what is asked of it and when. It knows no clock.
//!
//! `queues` units each work on one request at a time, the next on the one that comes next. A unit
//! takes a time of its direction's distribution, then the data goes over the wire at `bw`. Beyond
//! that the device as a whole finishes no more than `iops` requests or `bw` bytes in a second: each
//! request takes the device's time, and is done no earlier than that is over.
//!
//! A completion is seen late, by a timer's slack or because the processor was another's, and the
//! request that follows it comes late by as much. Its data go over the wire as if it had come in
//! time, or a program with few requests in flight would see less than `bw` on a busy machine. What
//! the request takes by itself (its latency) counts from when it came all the same.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use fastrand::Rng;

use super::dist::Dist;

/// One direction of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Direction {
    /// What one request takes by itself.
    pub(crate) latency: Dist,
    /// Requests per second at most; 0: no bound.
    pub(crate) iops: f64,
    /// Bytes per second at most; 0: no bound.
    pub(crate) bandwidth: f64,
}

/// What a device is like.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub(crate) read: Direction,
    pub(crate) write: Direction,
    /// Requests that it works on at once; 0: as many as come.
    pub(crate) queues: u32,
    /// Added where a request does not begin where the one before it ended.
    pub(crate) seek: Dist,
    /// An IOPOLL ring finds a completion when it is there. If not, as on a device without poll
    /// queues, only when its interrupt is through.
    pub(crate) pollqueues: bool,
    /// What an interrupt takes, in ns.
    pub(crate) interrupt: u64,
    /// No data is moved: reads leave the buffer as it is, writes are lost.
    pub(crate) empty: bool,
    pub(crate) seed: u64,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Io {
    pub(crate) write: bool,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The end of a request. Times are in ns, of whatever clock the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// When the device would be done, had every request come in time. It may be over already.
    pub(crate) done: u64,
    /// When the completion is shown at the earliest.
    pub(crate) shown: u64,
}

/// What the device is doing. Times are in ns, of whatever clock the caller has.
#[derive(Debug)]
pub(crate) struct State {
    random: Rng,
    /// When each unit is free again; those that were never used are not there.
    units: BinaryHeap<Reverse<u64>>,
    /// The time until which the requests so far take the device's time, and the fraction below a
    /// nanosecond.
    taken: u64,
    fraction: f64,
    /// Where the last request ended.
    head: u64,
}

impl Spec {
    fn direction(&self, write: bool) -> &Direction {
        if write { &self.write } else { &self.read }
    }
}

impl Direction {
    /// On the wire, in ns.
    fn transfer(&self, bytes: u64) -> f64 {
        if self.bandwidth > 0.0 { bytes as f64 * 1e9 / self.bandwidth } else { 0.0 }
    }

    /// The share of the device's time, in ns.
    fn share(&self, bytes: u64) -> f64 {
        let one = if self.iops > 0.0 { 1e9 / self.iops } else { 0.0 };
        one.max(self.transfer(bytes))
    }
}

impl State {
    pub(crate) fn new(spec: &Spec) -> State {
        State {
            random: Rng::with_seed(spec.seed),
            units: BinaryHeap::with_capacity(spec.queues as usize),
            taken: 0,
            fraction: 0.0,
            head: 0,
        }
    }

    /// A request comes at `now`, `behind` ns later than if the completion before it had been seen
    /// in time: when is it done?
    pub(crate) fn due(&mut self, spec: &Spec, now: u64, behind: u64, io: Io) -> Due {
        let direction = spec.direction(io.write);
        let mut latency = direction.latency.sample(&mut self.random);
        if io.offset != self.head {
            latency = latency.saturating_add(spec.seek.sample(&mut self.random));
        }
        self.head = io.offset.wrapping_add(io.bytes);
        let service = latency.saturating_add(direction.transfer(io.bytes) as u64);
        let start = self.take_unit(spec.queues, now, service);
        let in_time = start.saturating_sub(behind);
        let whole = self.take_time(in_time, direction.share(io.bytes));
        let done = in_time.saturating_add(service).max(whole);
        Due { done, shown: done.max(start.saturating_add(latency)) }
    }

    /// When a unit begins with the request: the one that is free first.
    fn take_unit(&mut self, queues: u32, now: u64, service: u64) -> u64 {
        if queues == 0 {
            return now;
        }
        if self.units.len() < queues as usize {
            self.units.push(Reverse(now.saturating_add(service)));
            return now;
        }
        let Some(mut first) = self.units.peek_mut() else { return now };
        let start = first.0.max(now);
        first.0 = start.saturating_add(service);
        start
    }

    /// When the device as a whole could be done with it.
    fn take_time(&mut self, start: u64, share: f64) -> u64 {
        if self.taken < start {
            (self.taken, self.fraction) = (start, 0.0);
        }
        let time = share + self.fraction;
        self.taken = self.taken.saturating_add(time as u64);
        self.fraction = softring_host::math::fract(time);
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const READ: Io = Io { write: false, offset: 0, bytes: 4096 };

    fn spec(ns: f64, iops: f64, bandwidth: f64, queues: u32) -> Spec {
        let read = Direction { latency: Dist::fixed(ns), iops, bandwidth };
        Spec { read, write: read, queues, ..Spec::default() }
    }

    /// Completion times of `n` requests that all come at `now`.
    fn burst(spec: &Spec, now: u64, n: usize, io: Io) -> Vec<u64> {
        let mut state = State::new(spec);
        (0..n).map(|_| state.due(spec, now, 0, io).shown).collect()
    }

    #[test]
    fn one_request_takes_its_latency_and_its_transfer() {
        assert_eq!(burst(&spec(80_000.0, 0.0, 0.0, 0), 5, 1, READ), [80_005]);
        // 4096 bytes at 4.096 GB/s: a microsecond.
        assert_eq!(burst(&spec(80_000.0, 1e6, 4.096e9, 8), 0, 1, READ), [81_000]);
    }

    #[test]
    fn units_work_side_by_side_and_then_in_turn() {
        let due = burst(&spec(100.0, 0.0, 0.0, 2), 0, 5, READ);
        assert_eq!(due, [100, 100, 200, 200, 300]);
    }

    #[test]
    fn throughput_is_bounded_by_requests_and_by_bytes() {
        let due = burst(&spec(1000.0, 1e6, 0.0, 0), 0, 1_000_000, READ);
        assert_eq!(due.last(), Some(&1_000_000_000));
        // 3 requests in 1000 ns: the thirds are kept.
        let due = burst(&spec(0.0, 3e6, 0.0, 0), 0, 3_000, READ);
        assert!(due.last().unwrap().abs_diff(1_000_000) <= 1, "{:?}", due.last());
        let big = Io { bytes: 1 << 20, ..READ };
        let due = burst(&spec(0.0, 0.0, f64::from(1 << 30), 0), 0, 1024, big);
        assert!(due.last().unwrap().abs_diff(1_000_000_000) < 2000);
    }

    #[test]
    fn bytes_per_second_hold_where_completions_are_seen_late() {
        // One at a time, 41 us each on the wire; seen 30 us late, and once after a gap.
        let spec = spec(10_000.0, 0.0, 1e8, 0);
        let (mut state, mut now, mut behind) = (State::new(&spec), 0, 0);
        for n in 1..=25_000u64 {
            let due = state.due(&spec, now, behind, READ);
            assert!(due.shown >= now + 10_000, "what it takes by itself");
            now = due.shown + if n == 10_000 { 100_000_000 } else { 30_000 };
            behind = now - due.done;
        }
        assert!(now.abs_diff(25_000 * 50_960) < 1_000_000, "{now}");
    }

    #[test]
    fn directions_share_the_device_and_differ() {
        let mut spec = spec(50.0, 1e9, 0.0, 0);
        spec.write.latency = Dist::fixed(10.0);
        let mut state = State::new(&spec);
        assert_eq!(state.due(&spec, 0, 0, READ).shown, 50);
        assert_eq!(state.due(&spec, 0, 0, Io { write: true, ..READ }).shown, 10);
    }

    #[test]
    fn only_what_does_not_follow_seeks() {
        let spec = Spec { seek: Dist::fixed(1e6), ..spec(100.0, 0.0, 0.0, 0) };
        let mut state = State::new(&spec);
        let at = |offset| Io { offset, ..READ };
        let due: Vec<u64> =
            [0, 4096, 8192, 0].into_iter().map(|o| state.due(&spec, 0, 0, at(o)).shown).collect();
        assert_eq!(due, [100, 100, 100, 1_000_100]);
    }

    proptest! {
        /// Whatever comes: nothing is done before it could be, `queues` and `iops` hold in any
        /// stretch of time, and the same requests are done at the same times again.
        #[test]
        fn bounds_hold(
            gaps in prop::collection::vec((0u64..50_000, any::<bool>(), 0u64..1 << 18), 1..300),
            mean in 0.0..1e6, deviation in 0.0..1e6, queues in 0u32..20, iops in 0.0..2e6,
            seed: u64,
        ) {
            let shape = crate::io::model::dist::Shape::Lognormal;
            let latency = Dist { shape, mean, deviation, slow: None };
            let read = Direction { latency, iops, bandwidth: 1e9 };
            let spec = Spec { read, write: read, queues, seed, ..Spec::default() };
            let run = || {
                let (mut state, mut now) = (State::new(&spec), 0);
                let mut each = |&(gap, write, bytes): &(u64, bool, u64)| {
                    now += gap;
                    (now, bytes, state.due(&spec, now, 0, Io { write, offset: 0, bytes }).shown)
                };
                gaps.iter().map(&mut each).collect::<Vec<_>>()
            };
            let all = run();
            prop_assert_eq!(&all, &run());
            let mut bytes = 0;
            for &(now, n, due) in &all {
                bytes += n;
                prop_assert!(due >= now + n.saturating_sub(1), "the wire takes a ns per byte");
                prop_assert!(due + 2 >= bytes, "all bytes so far went over the wire");
            }
            if iops > 0.0 {
                let end = all.iter().map(|a| a.2).max().unwrap() as f64;
                prop_assert!((all.len() - 1) as f64 * 1e9 / iops <= end + 1e3);
            }
        }
    }
}
