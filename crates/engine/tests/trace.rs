//! The trace as a reader in the same process sees it: every request's steps, in their order; events
//! that find no room are counted.

mod client;
mod tracing;

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{Client, sqe};
use softring_engine::stats::trace::read::{Reader, Source};
use softring_engine::stats::trace::{Clock, Event, Step};
use softring_host::limits::{TRACE_CHUNKS, TRACE_EVENTS};
use softring_uapi::*;
use tracing::open;

/// Lets one test run at a time: there is one trace per process.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all events with their words, as they come.
fn whole(reader: &mut Reader, clock: &mut Clock) -> Vec<(Event, Vec<u64>)> {
    let mut all = Vec::new();
    clock.read();
    reader.poll(clock, |_, event, more| all.push((event, more.to_vec())));
    all
}

fn bytes((event, more): &(Event, Vec<u64>)) -> Vec<u8> {
    let all = more.iter().flat_map(|w| w.to_ne_bytes());
    all.take(event.data as usize).collect()
}

/// Returns all events, by time.
fn events(reader: &mut Reader, clock: &mut Clock) -> Vec<(Source, Event)> {
    let mut all = Vec::new();
    clock.read();
    reader.poll(clock, |source, event, _| all.push((source.clone(), event)));
    all.sort_by_key(|(_, e)| e.time);
    all
}

fn steps(all: &[(Source, Event)], req: u32) -> Vec<Step> {
    let own = |e: &&(Source, Event)| e.1.req == req && e.1.step != Step::Inline;
    all.iter().filter(own).map(|(_, e)| e.step).collect()
}

#[test]
fn every_step_is_traced() {
    let _guard = one_at_a_time();
    let c = Client::new(8, 0);
    let (mut reader, mut clock) = (open(), Clock::new(true));
    assert_eq!(reader.inner_pid(), std::process::id());
    c.push(sqe(IORING_OP_NOP, 1));
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!(events(&mut reader, &mut clock), [], "nobody has asked for any");

    reader.start(&clock, false).unwrap();
    let (mut one, two) = UnixStream::pair().unwrap();
    let mut buf = [0u8; 8];
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    let recv = io_uring_sqe { fd: two.as_raw_fd(), addr, len: 8, ..sqe(IORING_OP_RECV, 77) };
    c.push(sqe(IORING_OP_NOP, 2));
    c.push(recv);
    assert_eq!(c.enter(2, 0), 2);
    one.write_all(b"x").unwrap();
    assert_eq!(c.enter(0, 3), 0);
    let path = c"/";
    let at = path.as_ptr().expose_provenance() as u64;
    let open_at = io_uring_sqe { fd: -100, addr: at, ..sqe(IORING_OP_OPENAT, 78) };
    c.push(io_uring_sqe { flags: IOSQE_ASYNC, ..open_at });
    assert_eq!(c.enter(1, 4), 1);
    let all = events(&mut reader, &mut clock);
    let (source, inline) = all.iter().find(|(_, e)| e.step == Step::Inline).unwrap();
    assert_eq!((source.pid, source.flags), (std::process::id(), 0));
    assert_eq!((inline.data, inline.opcode, inline.value), (2, IORING_OP_NOP, 0));
    use Step::{Armed, Done, Issue, Punt, Reissue, Submit, Text, Work};
    assert_eq!(steps(&all, 1), [Submit, Issue, Armed, Reissue, Done]);
    let mut worked = steps(&all, 2);
    let at = worked.iter().position(|s| *s == Work).expect("a worker ran it");
    worked.remove(at);
    assert_eq!(worked, [Submit, Text, Issue, Punt, Done]);
    let done = all.iter().find(|(_, e)| e.step == Done && e.req == 1).unwrap().1;
    assert_eq!((done.data, done.opcode, done.value), (77, IORING_OP_RECV, 1));
    // The spans of a thread enclose the events that it wrote meanwhile.
    let enters: Vec<_> = all.iter().filter(|(_, e)| e.step == Step::Enter).collect();
    assert_eq!(enters.len(), 3);
    assert!(enters.iter().any(|(_, e)| e.data <= inline.time && inline.time <= e.time));
    let slept = all.iter().find(|(_, e)| e.step == Step::Sleep).unwrap().1;
    assert!(slept.data <= slept.time && clock.ns(slept.data) <= clock.ns(slept.time));

    reader.stop();
    c.push(sqe(IORING_OP_NOP, 3));
    assert_eq!(c.enter(1, 5), 1);
    assert_eq!(events(&mut reader, &mut clock), [], "it is off again");
}

/// SQEs come whole, with the paths that they point to and the meaning of their descriptors.
#[test]
fn a_traced_request_has_all_its_fields() {
    let _guard = one_at_a_time();
    let c = Client::new(8, 0);
    let (mut reader, mut clock) = (open(), Clock::new(true));
    reader.start(&clock, true).unwrap();
    let (file, mut buf) = (std::fs::File::open("/etc/passwd").unwrap(), [0u8; 8]);
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    let fd = file.as_raw_fd();
    let read = io_uring_sqe { fd, addr, len: 8, off: 4, ..sqe(IORING_OP_READ, 1) };
    let long = format!("/{}\0", "x".repeat(1500));
    let at = long.as_ptr().expose_provenance() as u64;
    let open_at = io_uring_sqe { fd: -100, addr: at, len: 0o600, ..sqe(IORING_OP_OPENAT, 2) };
    let open_at = io_uring_sqe { op_flags: 0x800, file_index: 7, ..open_at };
    let (_one, two) = UnixStream::pair().unwrap();
    let fd = two.as_raw_fd();
    let recv = io_uring_sqe { fd, addr, len: 8, op_flags: 0x40, ..sqe(IORING_OP_RECV, 3) };
    // Without other fields, an SQE needs no words.
    let nops = [0, -1, 1].map(|fd| io_uring_sqe { fd, ..sqe(IORING_OP_NOP, 4) });
    let all: Vec<_> = (0..40)
        .flat_map(|_| {
            for sqe in [read, read, open_at, recv, nops[0], nops[1], nops[2]] {
                c.push(sqe);
            }
            assert_eq!(c.enter(7, 7), 7);
            while c.pop().is_some() {}
            whole(&mut reader, &mut clock)
        })
        .collect();
    let sqes: Vec<_> = all
        .iter()
        .filter(|(e, _)| matches!(e.step, Step::Submit | Step::Inline))
        .map(|(e, more)| e.sqe(more).unwrap())
        .collect();
    for sent in [read, open_at, recv, nops[0], nops[1], nops[2]] {
        let n = sqes.iter().filter(|s| **s == sent).count();
        assert_eq!(n, if sent == read { 80 } else { 40 }, "{sent:?} of {sqes:?}");
    }
    let texts: Vec<_> = all.iter().filter(|(e, _)| e.step == Step::Text).collect();
    assert_eq!(texts.len(), 40);
    assert!(texts.iter().all(|t| bytes(t) == long.as_bytes()[..992]), "cut: a chunk has room");
    let names: Vec<_> = all.iter().filter(|(e, _)| e.step == Step::Name).collect();
    let of = |fd: i32| names.iter().filter(|n| n.0.value == fd).count();
    assert_eq!((of(file.as_raw_fd()), of(two.as_raw_fd())), (1, 1), "told once");
    assert!(names.iter().any(|n| bytes(n) == b"/etc/passwd"));
    assert!(names.iter().any(|n| bytes(n).starts_with(b"socket:[")));
    assert_eq!(all.iter().filter(|(e, _)| e.step == Step::Address).count(), 2);
}

/// Requests that are nothing but an opcode share the time between two reads of the clock. No time
/// of another request is counted as theirs, and their order stays.
#[test]
fn a_run_of_requests_shares_its_time() {
    const LONG: u32 = 256 << 10;
    let _guard = one_at_a_time();
    let c = Client::new(256, 0);
    let (mut reader, mut clock) = (open(), Clock::new(true));
    reader.start(&clock, false).unwrap();
    let file = rustix::fs::memfd_create(c"long", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, LONG.into()).unwrap();
    let mut buf = vec![1u8; LONG as usize];
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    let fds = [file.as_raw_fd()];
    let at = fds.as_ptr().expose_provenance();
    assert_eq!(client::register(c.fd, IORING_REGISTER_FILES, at, 1), 0);
    let read = io_uring_sqe { flags: IOSQE_FIXED_FILE, addr, len: LONG, ..sqe(IORING_OP_READ, 0) };
    let mut took_longer = false;
    for _ in 0..8 {
        // A run is longer than a chunk, and one ends with a read.
        for n in 0..240 {
            let sqe = if n == 150 { read } else { sqe(IORING_OP_NOP, 0) };
            c.push(io_uring_sqe { user_data: n, ..sqe });
        }
        assert_eq!(c.enter(240, 240), 240);
        while c.pop().is_some() {}
        let all: Vec<_> = whole(&mut reader, &mut clock).into_iter().map(|(e, _)| e).collect();
        let enter = all.iter().find(|e| e.step == Step::Enter).unwrap();
        let done: Vec<_> = all.iter().filter(|e| e.step == Step::Inline).collect();
        let begun = |e: &Event| e.time - u64::from(e.req);
        assert!(done.windows(2).all(|e| e[0].data < e[1].data && e[0].time <= begun(e[1])));
        assert!(enter.data <= begun(done[0]) && done.last().unwrap().time <= enter.time);
        assert_eq!(done.len(), 240);
        took_longer |= done[150].req > 10 * done[149].req;
    }
    assert!(took_longer, "a NOP had a part in the time of the read");
    reader.stop();
}

#[test]
fn what_finds_no_room_is_counted() {
    let _guard = one_at_a_time();
    let c = Client::new(128, 0);
    let (mut reader, mut clock) = (open(), Clock::new(false));
    reader.start(&clock, false).unwrap();
    let (mut sent, room) = (0, (TRACE_CHUNKS * TRACE_EVENTS) as u64);
    // One event for each request, and one for each call.
    while sent < room {
        for i in 0..128 {
            c.push(sqe(IORING_OP_NOP, sent + i));
        }
        sent += 128;
        assert_eq!(c.enter(128, 0), 128);
        while c.pop().is_some() {}
    }
    let (calls, all) = (sent / 128, events(&mut reader, &mut clock));
    assert_eq!(all.len() as u64 + reader.dropped(), sent + calls);
    assert!(all.len() as u64 <= room && reader.dropped() > 0);
    // With room again the trace goes on.
    c.push(sqe(IORING_OP_NOP, u64::MAX));
    for _ in 0..TRACE_EVENTS {
        assert!(c.enter(1, 0) >= 0);
    }
    assert!(!events(&mut reader, &mut clock).is_empty());
}

#[test]
fn only_one_living_reader_may_trace() {
    let _guard = one_at_a_time();
    let c = Client::new(8, 0);
    let (mut reader, mut clock) = (open(), Clock::new(true));
    reader.start(&clock, false).unwrap();
    let mut second = open();
    assert!(second.start(&clock, false).is_ok(), "the same process takes its own place");
    // No reader asks any more: after two seconds nothing is written.
    std::thread::sleep(std::time::Duration::from_millis(2200));
    c.push(sqe(IORING_OP_NOP, 1));
    assert_eq!(c.enter(1, 1), 1);
    assert_eq!(events(&mut second, &mut clock), []);
}

/// A request that goes on after a completion reports each.
#[test]
fn multishot_completions_are_traced() {
    let _guard = one_at_a_time();
    let c = Client::new(8, 0);
    let (mut reader, mut clock) = (open(), Clock::new(true));
    reader.start(&clock, false).unwrap();
    let (mut one, two) = UnixStream::pair().unwrap();
    let poll = io_uring_sqe { fd: two.as_raw_fd(), len: 1, ..sqe(IORING_OP_POLL_ADD, 5) };
    c.push(io_uring_sqe { op_flags: 1, ..poll });
    let ts = kernel_timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let addr = (&raw const ts).expose_provenance() as u64;
    let timeout = io_uring_sqe { addr, len: 1, off: 3, ..sqe(IORING_OP_TIMEOUT, 6) };
    c.push(io_uring_sqe { op_flags: IORING_TIMEOUT_MULTISHOT, ..timeout });
    assert_eq!(c.enter(2, 0), 2);
    let (mut polled, mut timed) = (0, 0);
    while (polled, timed) != (2, 3) {
        if polled < 2 {
            one.write_all(b"x").unwrap();
        }
        assert_eq!(c.enter(0, 1), 0);
        while let Some(cqe) = c.pop() {
            *(if cqe.user_data == 5 { &mut polled } else { &mut timed }) += 1;
        }
    }
    let all = events(&mut reader, &mut clock);
    let more = |ud| {
        let more = |e: &&(Source, Event)| e.1.step == Step::More && e.1.data == ud;
        all.iter().filter(more).map(|(_, e)| e.value).collect::<Vec<_>>()
    };
    assert_eq!(more(5), [1, 1], "POLLIN");
    assert_eq!(more(6), [-62, -62], "ETIME, and a third that ends it");
    reader.stop();
}
