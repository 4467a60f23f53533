//! Deadlines when CLOCK_REALTIME is set or the machine is suspended. Skipped unless the environment
//! has `CONFORMANCE_SETS_CLOCK`, because both affect the whole machine; `ci/guest.sh` boots a
//! virtual machine for these cases.

use super::prelude::*;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    case!("clock", set_forward, [Op(IORING_OP_TIMEOUT)], "an absolute CLOCK_REALTIME timeout ends when the clock is set past its time"),
    case!("clock", set_back, [Op(IORING_OP_TIMEOUT)], "an absolute CLOCK_REALTIME timeout ends later if the clock is set back"),
    case!("clock", no_thread_waits, [Op(IORING_OP_TIMEOUT)], "timeouts follow the clock if no thread waits, or an SQ thread does"),
    case!("clock", linked, [Op(IORING_OP_LINK_TIMEOUT)], "linked timeouts follow the clock"),
    case!("clock", updated, [Op(IORING_OP_TIMEOUT_REMOVE)], "an update to an absolute time follows the clock, an update to a relative time does not"),
    case!("clock", in_child, [Op(IORING_OP_TIMEOUT)], "timeouts that a forked child submits follow the clock"),
    case!("clock", suspended, [Op(IORING_OP_TIMEOUT)], "CLOCK_BOOTTIME goes on while the machine is suspended"),
    case!("clock", suspended_wait, [Reg(IORING_REGISTER_CLOCK)], "waits by CLOCK_BOOTTIME go on while the machine is suspended"),
];

const HOUR: i64 = 3600;
const ABS: u32 = IORING_TIMEOUT_ABS;
const REALTIME: u32 = IORING_TIMEOUT_REALTIME;
const BOOTTIME: u32 = IORING_TIMEOUT_BOOTTIME;

/// Steps made to the clock, in seconds; dropped, it sets the clock back by as much.
struct Steps(i64);

impl Steps {
    fn allowed() -> Result<Self, Stop> {
        match std::env::var_os("CONFORMANCE_SETS_CLOCK") {
            Some(_) => Ok(Steps(0)),
            None => Err(Stop::Skip("CONFORMANCE_SETS_CLOCK is not set".into())),
        }
    }

    fn by(&mut self, seconds: i64) -> Outcome {
        let now = clock_gettime(ClockId::Realtime);
        clock_settime(ClockId::Realtime, Timespec { tv_sec: now.tv_sec + seconds, ..now })?;
        self.0 += seconds;
        Ok(())
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if self.0 != 0 {
            let back = -self.0;
            let _ = self.by(back);
        }
    }
}

/// Returns the time on `clock` when `wait` has passed.
fn after(clock: ClockId, wait: Duration) -> kernel_timespec {
    let now = clock_gettime(clock);
    let ns = now.tv_nsec + i64::from(wait.subsec_nanos());
    let tv_sec = now.tv_sec + wait.as_secs() as i64 + ns / 1_000_000_000;
    kernel_timespec { tv_sec, tv_nsec: ns % 1_000_000_000 }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a minute on each clock; only the second of these timeouts follows the wall clock.
fn minutes() -> [(kernel_timespec, u32); 5] {
    [
        (sqe::millis(60_000), REALTIME),
        (after(ClockId::Realtime, MINUTE), REALTIME | ABS),
        (sqe::millis(60_000), BOOTTIME),
        (after(ClockId::Boottime, MINUTE), BOOTTIME | ABS),
        (after(ClockId::Monotonic, MINUTE), ABS),
    ]
}

fn arm(cx: &mut Cx, ring: &mut Ring, times: &[(kernel_timespec, u32)]) {
    for (ud, (ts, flags)) in times.iter().enumerate() {
        ring.push(sqe::timeout(ts, 0, *flags).ud(ud as u64));
    }
    cx.is("submit", ring.submit(), times.len() as isize);
}

fn set_forward(cx: &mut Cx) -> Outcome {
    let mut steps = Steps::allowed()?;
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        arm(cx, &mut ring, &minutes());
        cx.quiet(&ring, "waits", 20);
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                steps.by(HOUR)
            });
            cx.reap(&mut ring, "after the step", &[(1, -ETIME)])
        });
        cx.quiet(&ring, "the others wait", 50);
        arm(cx, &mut ring, &[(after(ClockId::Realtime, MINUTE), REALTIME | ABS)]);
        steps.by(HOUR)?;
        cx.reap(&mut ring, "by now past", &[(0, -ETIME)]);
    }
    Ok(())
}

fn set_back(cx: &mut Cx) -> Outcome {
    let mut steps = Steps::allowed()?;
    let mut ring = cx.ring(8, 0)?;
    let soon = after(ClockId::Realtime, Duration::from_millis(300));
    arm(cx, &mut ring, &[(soon, REALTIME | ABS)]);
    steps.by(-HOUR)?;
    let arg = sqe::millis(600);
    let arg = io_uring_getevents_arg { ts: addr(&arg) as u64, ..Default::default() };
    cx.is("farther", ring.enter_ext(0, 1, &arg), -ETIME);
    steps.by(HOUR)?;
    cx.reap(&mut ring, "past again", &[(0, -ETIME)]);
    Ok(())
}

fn no_thread_waits(cx: &mut Cx) -> Outcome {
    let mut steps = Steps::allowed()?;
    for flags in [0, IORING_SETUP_SQPOLL] {
        let mut ring = cx.ring(8, flags)?;
        arm(cx, &mut ring, &minutes());
        while ring.sq_ready() > 0 {
            std::thread::yield_now();
        }
        cx.quiet(&ring, "waits", 100);
        steps.by(HOUR)?;
        cx.spin(&ring, "one", 1);
        cx.reap(&mut ring, "after the step", &[(1, -ETIME)]);
        // A clock that is already watched reports the next step too.
        arm(cx, &mut ring, &[(after(ClockId::Realtime, MINUTE), REALTIME | ABS)]);
        cx.quiet(&ring, "waits", 100);
        steps.by(HOUR)?;
        cx.spin(&ring, "another", 1);
    }
    Ok(())
}

fn linked(cx: &mut Cx) -> Outcome {
    let mut steps = Steps::allowed()?;
    let (mut ring, (r, _w)) = (cx.ring(8, 0)?, cx.pipe()?);
    let (mut a, mut b) = ([0; 1], [0; 1]);
    let (wall, short) = (after(ClockId::Realtime, MINUTE), sqe::millis(60_000));
    ring.push(sqe::read(r.as_raw_fd(), &mut a, 0).ud(0).with(IOSQE_IO_LINK));
    ring.push(sqe::link_timeout(&wall, REALTIME | ABS).ud(1));
    ring.push(sqe::read(r.as_raw_fd(), &mut b, 0).ud(2).with(IOSQE_IO_LINK));
    ring.push(sqe::link_timeout(&short, REALTIME).ud(3));
    cx.is("submit", ring.submit(), 4);
    steps.by(HOUR)?;
    cx.reap(&mut ring, "one of two", &[(0, -ECANCELED), (1, -ETIME)]);
    cx.quiet(&ring, "the other waits", 50);
    Ok(())
}

fn updated(cx: &mut Cx) -> Outcome {
    let mut steps = Steps::allowed()?;
    let mut ring = cx.ring(8, 0)?;
    arm(cx, &mut ring, &minutes()[..2]);
    let (wall, short) = (after(ClockId::Realtime, MINUTE), sqe::millis(60_000));
    let update = |ud: u64, ts: &kernel_timespec, flags: u32| {
        sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| {
            (s.addr, s.off) = (ud, addr(ts) as u64);
            s.op_flags = IORING_TIMEOUT_UPDATE | flags;
        })
    };
    cx.one(&mut ring, "now absolute", update(0, &wall, ABS), 0);
    cx.one(&mut ring, "now relative", update(1, &short, 0), 0);
    steps.by(HOUR)?;
    cx.reap(&mut ring, "after the step", &[(0, -ETIME)]);
    cx.quiet(&ring, "the other waits", 50);
    Ok(())
}

fn in_child(cx: &mut Cx) -> Outcome {
    let mut steps = Steps::allowed()?;
    let mut ring = cx.ring(8, 0)?;
    let times = minutes();
    let code = os::in_child(|| {
        for (ud, (ts, flags)) in times.iter().enumerate() {
            ring.push(sqe::timeout(ts, 0, *flags).ud(ud as u64));
        }
        i32::from(ring.submit() != times.len() as isize)
    });
    cx.eq("the child", code, 0);
    ring.set_sq_tail(ring.sq_head());
    cx.quiet(&ring, "wait", 50);
    steps.by(HOUR)?;
    cx.reap(&mut ring, "after the step", &[(1, -ETIME)]);
    cx.quiet(&ring, "the others wait", 50);
    Ok(())
}

/// Suspends the machine for a few seconds.
fn suspend() -> std::io::Result<()> {
    let alarm = "/sys/class/rtc/rtc0/wakealarm";
    // An alarm that is set refuses another.
    let _ = std::fs::write(alarm, "0");
    std::fs::write(alarm, "+5")?;
    std::fs::write("/sys/power/state", "mem")
}

fn no_suspension(e: std::io::Error) -> Stop {
    Stop::Skip(format!("no suspension: {e}"))
}

/// Limit of the time until the timeout ends. Less than this is left after the suspension, if the
/// suspension counts.
const SHORT: Duration = Duration::from_millis(2_500);

/// Waits for one CQE, even if the suspension ends the wait, as a signal does.
fn wait_for_one(ring: &Ring) {
    while ring.cq_ready() == 0 {
        ring.enter(0, 1, IORING_ENTER_GETEVENTS);
    }
}

fn suspended(cx: &mut Cx) -> Outcome {
    Steps::allowed()?;
    let mut ring = cx.ring(8, 0)?;
    let (three, start) = (sqe::millis(3_000), Instant::now());
    for (ud, flags) in [0, REALTIME, BOOTTIME].into_iter().enumerate() {
        ring.push(sqe::timeout(&three, 0, flags).ud(ud as u64));
    }
    cx.is("submit", ring.submit(), 3);
    let asleep = std::thread::spawn(suspend);
    wait_for_one(&ring);
    cx.reap(&mut ring, "by the time of the suspension", &[(2, -ETIME)]);
    cx.holds("before the others", start.elapsed() < SHORT);
    cx.reap(&mut ring, "later", &[(0, -ETIME), (1, -ETIME)]);
    asleep.join().map_err(|_| Stop::Fail("panic".into()))?.map_err(no_suspension)
}

fn suspended_wait(cx: &mut Cx) -> Outcome {
    Steps::allowed()?;
    let ring = cx.ring(8, 0)?;
    let mut boot = io_uring_clock_register { clockid: 7, resv: [0; 3] };
    if ring.register_struct(IORING_REGISTER_CLOCK, &mut boot, 0) < 0 {
        return Err(Stop::Skip("IORING_REGISTER_CLOCK: Linux 6.12".into()));
    }
    let till = after(ClockId::Boottime, Duration::from_secs(3));
    let arg = io_uring_getevents_arg { ts: addr(&till) as u64, ..Default::default() };
    let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG | IORING_ENTER_ABS_TIMER;
    let wait = || ring.enter_raw(0, 1, flags, addr(&arg), size_of_val(&arg));
    let (asleep, start) = (std::thread::spawn(suspend), Instant::now());
    let mut got = wait();
    while got == -EINTR as isize {
        got = wait();
    }
    cx.is("a wait by that clock", got, -ETIME);
    cx.holds("no longer", start.elapsed() < SHORT);
    asleep.join().map_err(|_| Stop::Fail("panic".into()))?.map_err(no_suspension)
}
