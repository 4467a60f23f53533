//! A modelled device: a pure function of the requests and their times. It reads no clock.
//!
//! `queues` units each work on one request at a time; the unit that is free first takes the next
//! request. A unit takes a time of its direction's distribution, then the data goes over the wire
//! at `bw`. Beyond that the device as a whole finishes no more than `iops` requests or `bw` bytes
//! in a second: each request takes its share of the device's time, and is done no earlier than the
//! end of its share.
//!
//! A completion is seen late, because of a timer's slack or a busy processor, and the request that
//! follows it comes late by as much. Its data goes over the wire as if it had come in time;
//! otherwise a program with few requests in flight would see less than `bw` on a busy machine. The
//! request's own latency still counts from its arrival.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use softring_host::random::Rng;

use super::dist::Dist;

/// One direction of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Direction {
    /// Time that one request takes by itself.
    pub(crate) latency: Dist,
    /// Requests per second at most; 0: no bound.
    pub(crate) iops: f64,
    /// Bytes per second at most; 0: no bound.
    pub(crate) bandwidth: f64,
}

/// Parameters of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spec {
    pub(crate) read: Direction,
    pub(crate) write: Direction,
    /// Requests that the device works on at once; 0: no bound.
    pub(crate) queues: u32,
    /// Time added if a request does not begin where the one before it ended.
    pub(crate) seek: Dist,
    /// Flag, true if an IOPOLL ring finds a completion as soon as it is there. If false, as on a
    /// device without poll queues, only after its interrupt.
    pub(crate) pollqueues: bool,
    /// Duration of an interrupt, in ns.
    pub(crate) interrupt: u64,
    /// Flag, true if no data is moved: reads leave the buffer as it is, writes are lost.
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

/// Completion times of a request, in ns of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Time at which the device would be done, had every request come in time. May be in the past.
    pub(crate) done: u64,
    /// Earliest time at which the completion is shown.
    pub(crate) shown: u64,
}

/// State of a device. Times are in ns of the caller's clock.
#[derive(Debug)]
pub(crate) struct State {
    random: Rng,
    /// Times at which the units are free again; units never used are absent.
    units: BinaryHeap<Reverse<u64>>,
    /// Time until which the requests so far occupy the device as a whole, and the fraction below a
    /// nanosecond.
    taken: u64,
    fraction: f64,
    /// End of the last request in the file.
    head: u64,
}

impl Spec {
    fn direction(&self, write: bool) -> &Direction {
        if write { &self.write } else { &self.read }
    }
}

impl Direction {
    /// Returns the time on the wire, in ns.
    fn transfer(&self, bytes: u64) -> f64 {
        if self.bandwidth > 0.0 { bytes as f64 * 1e9 / self.bandwidth } else { 0.0 }
    }

    /// Returns the request's share of the device's time, in ns.
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

    /// Returns the completion times of a request that comes at `now`, `behind` ns later than if the
    /// completion before it had been seen in time.
    pub(crate) fn due(&mut self, spec: &Spec, now: u64, behind: u64, io: Io) -> Due {
        // The program's thread may trap on what is inexact, or round otherwise.
        softring_host::math::by_default(|| self.due_now(spec, now, behind, io))
    }

    fn due_now(&mut self, spec: &Spec, now: u64, behind: u64, io: Io) -> Due {
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

    /// Occupies the unit that is free first; returns the time at which it begins.
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

    /// Occupies the device as a whole; returns the time at which it could be done.
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

    /// Returns completion times of `n` requests that all come at `now`.
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
    fn units_work_in_parallel_up_to_their_number() {
        let due = burst(&spec(100.0, 0.0, 0.0, 2), 0, 5, READ);
        assert_eq!(due, [100, 100, 200, 200, 300]);
    }

    #[test]
    fn throughput_is_bounded_by_requests_and_by_bytes() {
        let due = burst(&spec(1000.0, 1e6, 0.0, 0), 0, 1_000_000, READ);
        assert_eq!(due.last(), Some(&1_000_000_000));
        // 3 requests in 1000 ns: the thirds are not lost.
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
    fn only_non_sequential_requests_seek() {
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
        fn limits_hold_for_any_load(
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
