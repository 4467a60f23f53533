//! A ring's writer. It does everything under the ring's lock.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;

use super::buffer::{self, Buffer};
use super::names::Names;
use super::protocol::Chunk;
use super::{Event, MOST_TEXT, Rest, Step, Ticks, WANT_NAMES};
use softring_host::limits::TRACE_EVENTS;
use softring_host::time::Clock;
use softring_uapi::io_uring_sqe;

/// Start of a stretch of time, if events are wanted.
pub(crate) type Span = Option<u64>;

/// State of a ring's writer.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Flag, true if events are wanted.
    pub(crate) on: bool,
    buffer: Option<Buffer>,
    /// Chunk that is written.
    chunk: Option<u32>,
    /// Slots used in it.
    used: u32,
    /// Slots behind these, of a run of requests that were tried and done: not published, as they
    /// get their times together, at the end of the run.
    run: u32,
    /// Events to refuse before the writer searches for a chunk again.
    refuse: u32,
    counter: bool,
    /// Flag, true if descriptors are to be named.
    pub(super) wants_names: bool,
    pub(super) names: Names,
    /// Value of `until`, as last read from the header.
    until: u64,
    /// Time of the last event, or of the check before it.
    last: u64,
    next: u32,
    /// Thread that submits, while it does.
    submitter: u32,
    ring: u64,
    flags: u32,
}

/// Reads the processor's time stamp counter, or CLOCK_MONOTONIC in ns.
#[inline]
pub(super) fn ticks(counter: bool) -> u64 {
    if counter {
        // SAFETY: every processor of x86-64 has the instruction; where a process has given it up
        // (PR_SET_TSC) its own reads of the clock trap as well.
        return unsafe { core::arch::x86_64::_rdtsc() };
    }
    Clock::Monotonic.now()
}

/// Returns the ticks from one time to another, as an event has them.
#[inline]
pub(crate) fn ticks_between(from: u64, to: u64) -> u32 {
    u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX)
}

fn uses_counter(buffer: Buffer) -> bool {
    buffer.header().clock.load(Relaxed) == Ticks::Counter as u64
}

/// Returns the time if events are wanted, for a thread that does not hold the ring's lock.
#[inline]
pub(crate) fn now() -> Span {
    buffer::wanted().map(|b| ticks(uses_counter(b)))
}

/// State of a sleep while it lasts.
#[derive(Debug, Default)]
pub(crate) struct IdleSleeping {
    began: Span,
    length: i32,
    many: u32,
}

/// Returns the time from now until a moment of CLOCK_MONOTONIC, in ns, as an event's value.
pub(crate) fn ns_until(moment: u64) -> i32 {
    i32::try_from(moment.saturating_sub(Clock::Monotonic.now())).unwrap_or(i32::MAX)
}

impl Writer {
    /// Names the ring that the events are of.
    pub(crate) fn name(&mut self, ring: u64, flags: u32) {
        (self.ring, self.flags) = (ring, flags);
    }

    /// Checks whether events are wanted; called once per call of the program's.
    #[inline]
    pub(crate) fn check_wanted(&mut self) {
        let wanted = buffer::wanted();
        if wanted != self.buffer {
            self.turn(wanted);
        }
        if self.on {
            self.stamp();
        }
    }

    #[cold]
    fn turn(&mut self, wanted: Option<Buffer>) {
        self.close();
        self.buffer = wanted;
        self.on = wanted.is_some();
        if let Some(buffer) = wanted {
            self.counter = uses_counter(buffer);
            self.wants_names = buffer.header().wants.load(Relaxed) & WANT_NAMES != 0;
            self.names = Names::default();
            self.until = buffer.header().until.load(Relaxed);
        }
    }

    fn close(&mut self) {
        self.settle();
        if let (Some(buffer), Some(chunk)) = (self.buffer, self.chunk.take()) {
            buffer.chunk(chunk).close(self.used);
        }
    }

    /// Drops the chunk in a forked child: it is the parent's.
    pub(crate) fn fork_child(&mut self) {
        (self.chunk, self.buffer, self.on, self.run) = (None, None, false, 0);
    }

    /// Returns a number for a request; 0 if events are not wanted.
    #[inline]
    pub(crate) fn number(&mut self) -> u32 {
        if !self.on {
            return 0;
        }
        self.next = self.next.wrapping_add(1).max(1);
        self.next
    }

    /// Returns the time of the last event.
    pub(crate) fn last(&mut self) -> u64 {
        self.settle();
        self.last
    }

    /// Returns the time now. Ends the trace if its reader has gone.
    #[inline(always)]
    pub(crate) fn stamp(&mut self) -> u64 {
        if self.run != 0 {
            self.end_run();
            return self.last;
        }
        let now = ticks(self.counter);
        self.last = now;
        if now > self.until {
            self.renew(now);
        }
        now
    }

    #[cold]
    fn renew(&mut self, now: u64) {
        let Some(buffer) = self.buffer else { return };
        let word = &buffer.header().until;
        self.until = word.load(Relaxed);
        if now > self.until {
            // Only the first to see that the reader has gone does this.
            if word.compare_exchange(self.until, 0, Relaxed, Relaxed).is_ok() {
                buffer.give_back();
            }
            self.turn(None);
        }
    }

    /// Begins a stretch of time, at the last read of the clock.
    #[inline]
    pub(crate) fn begin(&self) -> Span {
        self.on.then_some(self.last)
    }

    /// Begins a stretch of time now.
    #[inline]
    pub(crate) fn begin_now(&mut self) -> Span {
        self.on.then(|| self.stamp())
    }

    /// Ends a span.
    #[inline]
    pub(crate) fn end(&mut self, span: Span, step: Step, value: u32) {
        if let Some(began) = span.filter(|_| self.on) {
            self.span(step, began, 0, 0, value.cast_signed());
        }
    }

    /// Begins a sleep that is to end at `until`, in ns of CLOCK_MONOTONIC, or with the `many`-th
    /// completion.
    #[inline]
    pub(crate) fn begin_idle_sleep(&mut self, until: u64, many: u32) -> IdleSleeping {
        let began = self.begin_now();
        let length = began.map_or(0, |_| ns_until(until));
        IdleSleeping { began, length, many }
    }

    /// Ends a sleep.
    #[inline]
    pub(crate) fn end_idle_sleep(&mut self, idle_sleep: &IdleSleeping) {
        if let Some(began) = idle_sleep.began.filter(|_| self.on) {
            self.span(Step::IdleSleep, began, idle_sleep.many, 0, idle_sleep.length);
        }
    }

    #[cold]
    pub(crate) fn span(&mut self, step: Step, data: u64, req: u32, opcode: u8, value: i32) {
        let (time, tid) = (self.stamp(), 0);
        self.put(&Event { time, data, req, tid, step, opcode, flags: 0, value }, &[]);
    }

    /// Begins a submission by this thread. [`Self::settle`] ends it.
    #[inline]
    pub(crate) fn begin_submission(&mut self) {
        self.settle();
        if self.on {
            self.submitter = softring_host::sys::gettid().cast_unsigned();
        }
    }

    /// Writes the first event of a request of this submission, with its SQE.
    #[inline(always)]
    pub(crate) fn put_sqe(&mut self, event: &Event, sqe: &io_uring_sqe) {
        let tid = self.submitter;
        match Rest::of(sqe) {
            Rest::None(flags) => self.write(tid, &Event { flags, ..*event }, &[]),
            Rest::One(words) => self.write(tid, event, &[words]),
            Rest::Two(words) => self.put_as(tid, event, &words),
        }
    }

    /// Writes the event of an SQE without other fields that was tried and done, as the next of a
    /// run. Returns false, and does nothing, unless all is there for it: then no function is
    /// called, for which registers would have to be saved.
    #[inline(always)]
    pub(crate) fn put_bare(&mut self, sqe: &io_uring_sqe, value: i32) -> bool {
        let (Some(buffer), Some(chunk)) = (self.buffer, self.chunk) else { return false };
        let Rest::None(flags) = Rest::of(sqe) else { return false };
        let (chunk, at) = (buffer.chunk(chunk), self.used + self.run);
        if self.wants_names || at as usize >= TRACE_EVENTS {
            return false;
        }
        let (step, opcode) = (Step::Inline, sqe.opcode);
        let event = Event { step, opcode, flags, value, ..Event::default() };
        let [_, data, _, last] = chunk.slot(at);
        data.store(sqe.user_data, Relaxed);
        last.store(event.words(0, 0)[3], Relaxed);
        self.run += 1;
        true
    }

    /// Ends a run before anything else takes time.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if self.run != 0 {
            self.end_run();
        }
    }

    /// Gives each request of the run an equal share of the time that the run took: such a request
    /// takes less time than a read of the clock, of which there is one.
    #[cold]
    fn end_run(&mut self) {
        let (n, now) = (core::mem::take(&mut self.run), ticks(self.counter));
        let (Some(buffer), Some(chunk)) = (self.buffer, self.chunk) else { return };
        let chunk = buffer.chunk(chunk);
        let (mut time, share) = (self.last, ticks_between(self.last, now) / n);
        let ids = u64::from(share) | u64::from(self.submitter) << 32;
        for at in self.used..self.used + n {
            time += u64::from(share);
            let [first, _, third, _] = chunk.slot(at);
            first.store(time, Relaxed);
            third.store(ids, Relaxed);
        }
        self.used = chunk.publish(self.used + n);
        self.last = now;
        if now > self.until {
            self.renew(now);
        }
    }

    /// Writes an event of this thread, with slots of words that belong to it.
    pub(crate) fn put(&mut self, event: &Event, more: &[[u64; 4]]) {
        self.write(softring_host::sys::gettid().cast_unsigned(), event, more);
    }

    #[inline(never)]
    fn put_as(&mut self, tid: u32, event: &Event, more: &[[u64; 4]]) {
        self.write(tid, event, more);
    }

    #[inline(always)]
    fn write(&mut self, tid: u32, event: &Event, more: &[[u64; 4]]) {
        self.settle();
        let Some(buffer) = self.buffer else { return };
        let fits = self.used as usize + 1 + more.len() <= TRACE_EVENTS;
        let chunk = match self.chunk {
            Some(chunk) if fits => chunk,
            _ => match self.claim(buffer) {
                Some(chunk) => chunk,
                None => return,
            },
        };
        let words = event.words(tid, more.len() as u8);
        self.used = buffer.chunk(chunk).put(self.used, words, more);
    }

    /// Writes an event with bytes that belong to it, cut to the bytes that are kept.
    pub(crate) fn put_bytes(&mut self, event: &mut Event, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(MOST_TEXT)];
        event.data = bytes.len() as u64;
        let mut slots = [[0; 4]; MOST_TEXT / 32];
        for (word, bytes) in slots.as_flattened_mut().iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        self.put(event, &slots[..bytes.len().div_ceil(32)]);
    }

    #[cold]
    fn claim(&mut self, buffer: Buffer) -> Option<u32> {
        // A full chunk needs no mark.
        if self.used as usize == TRACE_EVENTS {
            self.chunk = None;
        }
        self.close();
        if self.refuse == 0 {
            self.chunk = buffer.claim(self.ring, self.flags);
            self.used = 0;
            self.refuse = if self.chunk.is_none() { TRACE_EVENTS as u32 } else { 0 };
        }
        if self.chunk.is_none() {
            self.refuse -= 1;
            buffer.header().dropped.fetch_add(1, Relaxed);
        }
        self.chunk
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}
