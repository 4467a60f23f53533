//! The four ways of a read, one after the other in each round, so that other load of the machine
//! hits all alike.
//!
//! Each `enter` submits the read and the write that brings its data. If the write comes second, the
//! read finds nothing and is armed, and the first poll of the poll set finds it ready. A worker
//! gets the read of a second descriptor of the same file, which a seccomp filter keeps out of poll
//! sets.

use super::Stream;
use super::share::Counted;
use crate::bench::buf::Slots;
use crate::bench::uring::Ring;
use crate::cli::ReissueArgs;
use crate::fail;
use anyhow::Context;
use hdrhistogram::Histogram;
use rustix::io::fcntl_dupfd_cloexec;
use seccompiler::sock_filter;
use softring_host::time::Clock;
use softring_uapi::io_uring_sqe;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

/// Rounds before the measured ones.
const WARMUP: u32 = 1000;
/// Time to spin, in ns. Later, a worker might need this processor, if there is only one.
const SPIN_NS: u64 = 50_000;
/// Time in ns after which a worker has lost the request.
const LOST_NS: u64 = 10_000_000_000;
/// First of the engine's own descriptors.
const ENGINE: i32 = 512;
/// `user_data` of the SQEs.
const READ: u64 = 1;
const WRITE: u64 = 2;

/// Makes epoll_ctl(2) answer ENOMEM to this thread, and to threads that it makes, for `fd` and for
/// descriptors from `from` on. The engine's second descriptors of a pipe are among those.
fn keep_out_of_poll_sets(fd: i32, from: i32) -> anyhow::Result<()> {
    const LD_W_ABS: u16 = 0x20;
    const JEQ_K: u16 = 0x15;
    const JGE_K: u16 = 0x35;
    const RET_K: u16 = 0x06;
    const RET_ALLOW: u32 = 0x7fff_0000;
    const RET_ENOMEM: u32 = 0x0005_000c;
    /// Offset of the third argument's lower half in `struct seccomp_data`.
    const FD: u32 = 32;
    let op = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let filter = [
        op(LD_W_ABS, 0, 0, 0),
        op(JEQ_K, 0, 4, libc::SYS_epoll_ctl as u32),
        op(LD_W_ABS, 0, 0, FD),
        op(JEQ_K, 1, 0, fd.cast_unsigned()),
        op(JGE_K, 0, 1, from.cast_unsigned()),
        op(RET_K, 0, 0, RET_ENOMEM),
        op(RET_K, 0, 0, RET_ALLOW),
    ];
    seccompiler::apply_filter(&filter).context("cannot install the seccomp filter")
}

/// Times of one pair: until the read is complete, and until `enter` returned.
struct Took {
    whole: u64,
    enter: u64,
}

struct Rounds {
    ring: Ring,
    bytes: u32,
}

impl Rounds {
    /// Submits two SQEs together and returns their times.
    fn pair(&mut self, first: io_uring_sqe, second: io_uring_sqe) -> anyhow::Result<Took> {
        let start = Clock::Monotonic.now();
        self.ring.push(first);
        self.ring.push(second);
        self.ring.enter(0).context("io_uring_enter")?;
        let returned = Clock::Monotonic.now();
        while self.ring.ready() < 2 {
            match Clock::Monotonic.now() - returned {
                0..SPIN_NS => std::hint::spin_loop(),
                SPIN_NS..LOST_NS => thread::yield_now(),
                _ => return Err(fail::work("a read did not complete")),
            }
        }
        let end = Clock::Monotonic.now();
        let mut wrong = None;
        let bytes = self.bytes.cast_signed();
        self.ring.reap(|c| wrong = wrong.or((c.res != bytes).then_some((c.user_data, c.res))));
        if let Some((which, res)) = wrong {
            let which = if which == READ { "read" } else { "write" };
            return Err(fail::work(format!("a {which} returned {res}")));
        }
        Ok(Took { whole: end - start, enter: returned - start })
    }
}

/// Measures the four ways; the histograms are in the order of [`super::LINES`].
pub fn measure(stream: &Stream, args: &ReissueArgs) -> anyhow::Result<[Histogram<u64>; 4]> {
    // The filter ends with its thread.
    thread::scope(|scope| scope.spawn(|| measure_here(stream, args)).join())
        .map_err(|_| fail::work("the measuring thread panicked"))?
}

fn measure_here(stream: &Stream, args: &ReissueArgs) -> anyhow::Result<[Histogram<u64>; 4]> {
    let unpolled: OwnedFd = stream.reader.try_clone()?;
    let ring = Ring::linked(8).context("io_uring_setup")?;
    let slots = Slots::new(2, args.bytes)?;
    let read = io_uring_sqe { user_data: READ, ..stream.read(slots.addr(0), args.bytes) };
    let write = io_uring_sqe { user_data: WRITE, ..stream.write(slots.addr(1), args.bytes) };
    let by_worker = io_uring_sqe { fd: unpolled.as_raw_fd(), ..read };
    let mut rounds = Rounds { ring, bytes: args.bytes };
    // Has the engine make its descriptors for polling. The next of them is the lowest free one.
    rounds.pair(read, write)?;
    let next = fcntl_dupfd_cloexec(&unpolled, ENGINE)?.as_raw_fd();
    keep_out_of_poll_sets(unpolled.as_raw_fd(), next)?;
    let stats = Counted::of(&rounds.ring)?;
    let new = || Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).context("a histogram");
    let mut times = [new()?, new()?, new()?, new()?];
    for round in 0..WARMUP + args.reads {
        let ready = rounds.pair(write, read)?;
        let again = rounds.pair(read, write)?;
        let worker = rounds.pair(by_worker, write)?;
        if round >= WARMUP {
            let all = [ready.whole, again.whole, worker.enter, worker.whole];
            times.iter_mut().zip(all).for_each(|(h, ns)| h.saturating_record(ns));
        }
    }
    let n = u64::from(WARMUP + args.reads);
    let seen = Counted::of(&rounds.ring)?.since(&stats);
    // Writes, too, are done at once.
    if (seen.at_once, seen.ready_at_arm, seen.aborted) != (4 * n, n, n) {
        return Err(fail::work(format!(
            "not all of the {n} reads per line took the path of their line: {seen:?}"
        )));
    }
    Ok(times)
}
