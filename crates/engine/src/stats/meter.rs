//! Work meters: the work that a thread that polls does with the processor that it holds. Kernel
//! counterpart: `SqTotalTime` and `SqWorkTime` of an SQ thread, in io_uring's fdinfo.
//!
//! A meter belongs to one thread, which says when work begins and ends. Its two counters only grow,
//! on the process's page, where others read them and take differences:
//!
//! - Both are processor time: a thread that is preempted in the middle of its work does not work
//!   meanwhile. Asking for that time is a system call (0.3 to 0.8 µs), so it is rare. A stretch is
//!   measured by a clock that is a read of memory (30 ns). The dear clock is read after a stretch
//!   or a gap so long that something else may have run in it, and every [`STALE`] ns.
//! - Empty passes cost nothing: [`Meter::end`] without work is a compare, and so is
//!   [`Meter::begin`] while work goes on. A thread that always has more to do is asked for the time
//!   once in [`LAP`] passes.
//! - The total of a thread that polls in vain is for the reader to get from schedstat(5).
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr::NonNull;

use super::{METER_NAME, MeterStats, page};
use softring_host::calls::process::gettid;
use softring_host::fork;
use softring_host::time::{Clock, cpu_time};

/// The owner of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Thread of ours, for rings with SQPOLL.
    SqThread = 1,
    /// Thread of the program.
    Program = 2,
}

/// Passes of one stretch of work after which its time so far is counted.
const LAP: u32 = 64;
/// Time in ns after which the thread may have been interrupted by another, or slept.
const LONG: u64 = 200_000;
/// Longest time between reads of the thread's own clock while there is work, in ns.
const STALE: u64 = 2_000_000;

/// Work meter of the thread that makes it, and only for that thread: it cannot be sent.
#[derive(Debug)]
pub struct Meter {
    at: NonNull<MeterStats>,
    /// Slot of the meter on the page; none for memory of its own.
    slot: Option<usize>,
    /// Process that made the meter.
    pid: u32,
    count: Stopwatch,
}

/// Arithmetic of a meter, in ns of the two clocks.
#[derive(Clone, Copy, Debug, Default)]
struct Stopwatch {
    /// Start of the stretch; 0: there is none.
    since: u64,
    /// Passes of the stretch that were not timed.
    passes: u32,
    /// End of the last stretch; `long`: the stretch was a long one.
    ended: u64,
    long: bool,
    /// Both clocks at the last read of the thread's own.
    read: (u64, u64),
    /// Time between stretches since then.
    gaps: u64,
    /// Share of the time between stretches that the thread was off the processor, in 1/1024, as
    /// last seen: a thread that spins has 0, one that sleeps nearly all.
    idle_sleeps: u64,
    work: u64,
}

impl Stopwatch {
    /// Begins a stretch with its first pass; `cpu` returns the thread's own time.
    fn start(&mut self, now: u64, cpu: impl FnOnce() -> u64) {
        let gap = now.saturating_sub(self.ended);
        self.gaps += gap;
        if gap > LONG || (self.long && gap > 0) {
            let off = self.read_clocks(now, cpu());
            self.between(off);
        }
        (self.since, self.passes) = (now.max(1), 0);
    }

    /// Ends the stretch. True if the thread's own clock was read.
    fn stop(&mut self, now: u64, cpu: impl FnOnce() -> u64) -> bool {
        let mut span = now.saturating_sub(self.since);
        self.long = span > LONG;
        let look = self.long || now.saturating_sub(self.read.0) > STALE;
        if look {
            let off = self.read_clocks(now, cpu());
            if self.long {
                // Sleep between stretches is not held against the work.
                span = span.saturating_sub(off.saturating_sub(self.gaps * self.idle_sleeps / 1024));
            } else {
                self.between(off);
            }
            self.gaps = 0;
        }
        self.work += span;
        (self.since, self.ended) = (0, now);
        look
    }

    /// Reads the thread's own clock; returns the time off the processor since the last read.
    fn read_clocks(&mut self, now: u64, cpu: u64) -> u64 {
        let wall = now.saturating_sub(self.read.0);
        let off = wall.saturating_sub(cpu.saturating_sub(self.read.1));
        self.read = (now, cpu);
        off
    }

    /// Records `off` as time between stretches: all since the last read were short.
    fn between(&mut self, off: u64) {
        self.idle_sleeps = (off * 1024).checked_div(self.gaps).unwrap_or(0).min(1024);
        self.gaps = 0;
    }
}

impl Meter {
    /// Makes a meter called `name` (cut after 31 bytes) for the calling thread. Without a page, or
    /// room on it, the meter counts for [`Self::read`] alone.
    pub fn new(name: &str) -> Meter {
        Meter::of(Kind::Program, name)
    }

    pub(crate) fn of(kind: Kind, name: &str) -> Meter {
        fork::init();
        fork::check();
        let name = &name.as_bytes()[..name.len().min(METER_NAME - 1)];
        Meter::make(kind, |at| {
            for (word, bytes) in at.name.iter().zip(name.chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                word.set(u64::from_ne_bytes(padded));
            }
        })
    }

    fn make(kind: Kind, name: impl FnOnce(&MeterStats)) -> Meter {
        let taken = if fork::is_vfork_child() { None } else { page::take_meter() };
        let (slot, at) = match taken {
            Some((slot, at)) => (Some(slot), at),
            None => (None, NonNull::from(Box::leak(Box::<MeterStats>::default()))),
        };
        let (now, cpu) = (Clock::Monotonic.now(), cpu_time());
        let count = Stopwatch { ended: now, read: (now, cpu), ..Stopwatch::default() };
        let meter = Meter { at, slot, pid: fork::pid(), count };
        let words = meter.words();
        name(words);
        words.kind.set(kind as u64);
        words.tid.set(gettid() as u64);
        words.cpu.set(softring_host::os::thread::sched_getcpu() as u64);
        words.base_ns.set(cpu);
        // The id comes last: a slot without an id is nobody's.
        words.id.set(slot.map_or(u64::MAX, |slot| slot as u64 + 1));
        meter
    }

    fn words(&self) -> &MeterStats {
        // SAFETY: on the page, which stays mapped for ever, or a box of our own, freed on drop.
        unsafe { self.at.as_ref() }
    }

    /// Marks that work begins, or goes on.
    #[inline]
    pub fn begin(&mut self) {
        if self.count.since == 0 {
            self.start();
        } else {
            self.count.passes += 1;
            if self.count.passes == LAP {
                let now = self.stop();
                self.count.start(now, cpu_time);
            }
        }
    }

    /// Marks that work ends, or that there was none.
    #[inline]
    pub fn end(&mut self) {
        if self.count.since != 0 {
            self.stop();
        }
    }

    fn start(&mut self) {
        if fork::in_new_child() || fork::pid() != self.pid {
            self.fork_child();
        }
        self.count.start(Clock::Monotonic.now(), cpu_time);
        self.words().stretches.add(1);
    }

    fn stop(&mut self) -> u64 {
        let now = Clock::Monotonic.now();
        let read = self.count.stop(now, cpu_time);
        let words = self.words();
        if read {
            words.total_us.set(self.count.read.1.saturating_sub(words.base_ns.get()) / 1000);
        }
        words.work_us.set(self.count.work / 1000);
        words.cpu.set(softring_host::os::thread::sched_getcpu() as u64);
        now
    }

    /// Takes a new slot in a forked child, which starts from nothing: the old words are the
    /// parent's.
    #[cold]
    fn fork_child(&mut self) {
        fork::check();
        let old = self.words();
        let kind =
            if old.kind.get() == Kind::SqThread as u64 { Kind::SqThread } else { Kind::Program };
        let name = old.name.each_ref().map(super::Count::get);
        let new = Meter::make(kind, |at| at.name.iter().zip(name).for_each(|(w, n)| w.set(n)));
        *self = new;
    }

    /// Records the sums of the thread's sleeps: their number, how many were too long, and their
    /// time in ns.
    pub(crate) fn idle_sleeps(&self, idle_sleeps: u64, over: u64, idle_slept: u64) {
        let words = self.words();
        words.idle_sleeps.set(idle_sleeps);
        words.idle_sleeps_over.set(over);
        words.idle_slept_us.set(idle_slept / 1000);
    }

    /// Returns the thread's processor time since it has the meter, and that of its work, in µs.
    pub fn read(&self) -> (u64, u64) {
        let words = self.words();
        let own = words.tid.get() == gettid() as u64;
        let now = if own { cpu_time() } else { 0 };
        let total = now.saturating_sub(words.base_ns.get()) / 1000;
        (total.max(words.total_us.get()), words.work_us.get())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let Some(slot) = self.slot else {
            // SAFETY: made by `Box::leak`, and dropped once.
            drop(unsafe { Box::from_raw(self.at.as_ptr()) });
            return;
        };
        // A forked child has nothing to give back on its parent's page.
        if self.pid != fork::pid() || fork::in_new_child() {
            return;
        }
        let w = self.words();
        w.id.set(0);
        let rest = [&w.kind, &w.tid, &w.cpu, &w.base_ns, &w.total_us, &w.work_us, &w.stretches];
        let idle_sleeps = [&w.idle_sleeps, &w.idle_sleeps_over, &w.idle_slept_us];
        rest.into_iter().chain(idle_sleeps).chain(&w.name).for_each(|word| word.set(0));
        page::give_meter(slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn never() -> u64 {
        unreachable!("the dear clock is not read")
    }

    #[test]
    fn short_intervals_need_no_clock_reading() {
        let mut s = Stopwatch { ended: 100, read: (100, 50), ..Stopwatch::default() };
        s.start(1100, never);
        assert!(!s.stop(2100, never));
        s.start(3100, never);
        assert!(!s.stop(3600, never));
        assert_eq!((s.work, s.gaps), (1500, 2000));
    }

    #[test]
    fn time_off_the_processor_is_not_work() {
        let mut s = Stopwatch { ended: 1000, read: (1000, 0), ..Stopwatch::default() };
        // Preempted for 3 ms in 3.4 of work, after 100 µs of spinning.
        s.start(101_000, never);
        assert!(s.stop(3_501_000, || 500_000));
        assert_eq!(s.work, 400_000);
        // After a long stretch, and a long gap, the meter reads the clock first: sleep there does
        // not matter.
        s.start(3_601_000, || 500_100);
        assert!(s.stop(3_901_000, || 800_100));
        assert_eq!(s.work, 700_000);
        s.start(9_000_000, || 800_200);
        assert!(!s.stop(9_100_000, never));
        assert_eq!(s.work, 800_000);
    }

    #[test]
    fn sleeps_between_short_intervals_do_not_count_for_long_ones() {
        let mut s = Stopwatch { ended: 1000, read: (1000, 0), ..Stopwatch::default() };
        // 10 µs of work, 90 of sleep, until a read of the clock shows that the gaps are sleep.
        let (mut now, mut cpu) = (1000, 0);
        for _ in 0..25 {
            now += 90_000;
            s.start(now, never);
            (now, cpu) = (now + 10_000, cpu + 10_000);
            s.stop(now, || cpu);
        }
        assert_eq!((s.work, s.idle_sleeps), (250_000, 1024));
        // Then a burst of 300 µs.
        now += 90_000;
        s.start(now, never);
        s.stop(now + 300_000, || cpu + 300_000);
        assert_eq!(s.work, 550_000);
    }

    #[test]
    fn a_meter_counts_the_work_of_its_thread() {
        let mut m = Meter::new("a name of more than thirty-one bytes");
        let spin = |ns| {
            let start = cpu_time();
            while cpu_time() - start < ns {}
        };
        // An end without a beginning, and passes without work.
        m.end();
        for _ in 0..20 {
            for _ in 0..3 {
                m.begin();
                spin(100_000);
            }
            m.end();
            spin(700_000);
        }
        let (total, work) = m.read();
        assert!((6_000..8_500).contains(&work) && total >= 20_000, "{work} of {total}");
        assert_eq!(m.words().stretches.get(), 20);
        drop(m);
    }
}
