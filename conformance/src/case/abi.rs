//! The ABI that a ring reports, beyond Linux 6.18.

use super::prelude::*;
use crate::rights;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

pub const CASES: &[Case] = &[
    newest!("abi", queries, [Reg(IORING_REGISTER_QUERY)], "the queries after the first"),
    newest!("abi", query_size_limit, [Reg(IORING_REGISTER_QUERY)], "a query may have room for at most a page"),
    newest!("abi", locked_memory, [], "rings do not count as locked memory"),
    newest!("abi", time_namespace, [
        Op(IORING_OP_TIMEOUT), Op(IORING_OP_TIMEOUT_REMOVE), Enter(IORING_ENTER_ABS_TIMER),
    ], "absolute times are in the program's time namespace"),
];

/// Asks one query with `size` bytes of room; returns the words of the result.
fn ask(cx: &mut Cx, ring: &Ring, query_op: u32, size: u32) -> [u64; 8] {
    let mut words = [u64::MAX; 8];
    let mut hdr = io_uring_query_hdr {
        query_data: addr_mut(&mut words) as u64,
        query_op,
        size,
        ..Default::default()
    };
    let got = ring.register_struct(IORING_REGISTER_QUERY, &mut hdr, 0);
    let hdr = *std::hint::black_box(&hdr);
    cx.is(&format!("query {query_op} into {size}"), got, 0);
    cx.note_answer("result", hdr.result);
    cx.note("size", hdr.size);
    *std::hint::black_box(&words)
}

fn queries(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    for (op, len) in [(1, 40), (2, 16), (3, 48), (4, 0)] {
        for size in [64, 40, 16, 4] {
            let words = ask(cx, &ring, op, size);
            cx.note("words", format_args!("{words:x?}"));
            let behind = words.iter().take(size as usize / 8).skip(len / 8);
            cx.holds("zeroes behind it", behind.copied().all(|word| word == 0));
        }
    }
    Ok(())
}

fn query_size_limit(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut memory = vec![u64::MAX; 1024];
    for (size, want) in [(4096, 0), (4097, -E2BIG), (u32::MAX, -E2BIG)] {
        for op in [IO_URING_QUERY_SCQ, 1000] {
            let mut hdr = io_uring_query_hdr {
                query_data: addr_mut(&mut memory[..]) as u64,
                query_op: op,
                size,
                ..Default::default()
            };
            let got = ring.register_struct(IORING_REGISTER_QUERY, &mut hdr, 0);
            cx.is(&format!("query {op} into {size}"), got, want);
            let hdr = *std::hint::black_box(&hdr);
            cx.note_answer("result", hdr.result);
            cx.note("size", hdr.size);
        }
    }
    Ok(())
}

fn locked_memory(cx: &mut Cx) -> Outcome {
    if !rights::become_nobody() {
        return Err(Stop::Skip("it takes root's rights to give them up".into()));
    }
    os::set_limit(libc::RLIMIT_MEMLOCK, 8 << 10);
    for entries in [1, 4096] {
        let mut ring = cx.ring(entries, 0)?;
        cx.one(&mut ring, "NOP", sqe::nop(), 0);
    }
    Ok(())
}

/// Records whether a wait until 20 ms from now ends in time, in a child whose clocks are 1,000 s
/// ahead.
fn ends_in_time(
    cx: &mut Cx,
    what: &str,
    wait: fn(&mut Ring, &kernel_timespec, ClockId, u32) -> bool,
) {
    let (entry, before) = (cx.entry, clock_gettime(ClockId::Monotonic).tv_sec);
    for (clock, flag) in [(ClockId::Monotonic, 0), (ClockId::Boottime, IORING_TIMEOUT_BOOTTIME)] {
        let in_child = os::in_child(|| {
            let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 2 };
            if clock_gettime(clock).tv_sec < before + 900 {
                return 3;
            }
            let (soon, start) = (sqe::in_millis(clock, 20), Instant::now());
            let ended = wait(&mut ring, &soon, clock, flag);
            i32::from(!ended || !(15..5_000).contains(&start.elapsed().as_millis()))
        });
        cx.is(what, in_child, 0);
    }
}

fn time_namespace(cx: &mut Cx) -> Outcome {
    const AHEAD: &str = "monotonic 1000 0\nboottime 1000 0\n";
    let ahead = || std::fs::write("/proc/self/timens_offsets", AHEAD);
    if let Err(e) = os::unshare_time().and_then(|()| ahead()) {
        return Err(Stop::Skip(format!("no time namespace here: {e}")));
    }
    ends_in_time(cx, "a time-out", |ring, soon, _, flag| {
        ring.push(sqe::timeout(soon, 0, flag | IORING_TIMEOUT_ABS)).submit_wait(1);
        ring.pop().is_some_and(|cqe| cqe.res == -ETIME)
    });
    ends_in_time(cx, "one that is changed", |ring, soon, _, flag| {
        let long = sqe::millis(60_000);
        let change = sqe::op(IORING_OP_TIMEOUT_REMOVE, -1).set(|s| {
            (s.addr, s.off) = (1, addr(soon) as u64);
        });
        ring.push(sqe::timeout(&long, 0, flag).ud(1));
        ring.push(change.op_flags(IORING_TIMEOUT_UPDATE | IORING_TIMEOUT_ABS).ud(2));
        ring.submit_wait(2);
        ring.pop_all().iter().map(|cqe| cqe.res).eq([0, -ETIME])
    });
    ends_in_time(cx, "a wait", |ring, soon, clock, _| {
        let mut by = io_uring_clock_register { clockid: clock as u32, ..Default::default() };
        ring.register_struct(IORING_REGISTER_CLOCK, &mut by, 0);
        let arg = io_uring_getevents_arg { ts: addr(soon) as u64, ..Default::default() };
        let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG | IORING_ENTER_ABS_TIMER;
        ring.enter_raw(0, 1, flags, addr(&arg), size_of_val(&arg)) == -(ETIME as isize)
    });
    Ok(())
}
