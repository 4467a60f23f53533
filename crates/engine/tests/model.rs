//! Modelled disks: the times of completions, and data and results equal to those without a model.
#![allow(unsafe_code)]

mod client;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use client::{Client, sqe};
use softring_engine::fds;
use softring_engine::model::{self, parse};
use softring_host::fd;
use softring_testing::skipped;
use softring_uapi::*;

const BLOCK: usize = 4096;
const O_DIRECT: i32 = 0o40000;
const ECANCELED: i32 = -125;
const ENOENT: i32 = -2;

#[derive(Clone)]
#[repr(align(4096))]
struct Block([u8; BLOCK]);

impl Block {
    fn addr(&mut self) -> u64 {
        self.0.as_mut_ptr().expose_provenance() as u64
    }
}

/// Returns the folder of a kind of device, and sets the models of this process.
fn folder(device: &str) -> PathBuf {
    static ONCE: Once = Once::new();
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models");
    ONCE.call_once(|| {
        let models = [
            ("plain", "latency:2ms"),
            ("slow", "latency:300ms"),
            ("narrow", "latency:1ms,queues:1"),
            ("hdd", "latency:0,seek:3ms"),
            ("empty", "latency:1ms,data:none"),
            ("null", "null"),
            ("interrupts", "latency:1ms,pollqueues:0,irq:1ms"),
            ("queues", "latency:1ms,pollqueues:1,irq:1ms"),
        ];
        let made = models.map(|(name, options)| {
            let path = root.join(name);
            std::fs::create_dir_all(&path).unwrap();
            parse::model(format!("{}={options}", path.display()).as_ref()).unwrap()
        });
        model::set(made.into());
        fd::closes_are_reported();
    });
    root.join(device)
}

/// Makes a file of 16 blocks, each filled with its number; `direct` only if the file system can.
fn file(device: &str, direct: bool) -> File {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("blocks-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let path = folder(device).join(name);
    let data: Vec<u8> = (0..16 * BLOCK).map(|i| (i / BLOCK) as u8).collect();
    std::fs::write(&path, data).unwrap();
    let flags = if direct { O_DIRECT } else { 0 };
    let open = File::options().read(true).write(true).custom_flags(flags).open(&path);
    let open = open.or_else(|_| File::options().read(true).write(true).open(&path));
    std::fs::remove_file(&path).unwrap();
    let file = open.unwrap();
    fd::forget_kind(file.as_raw_fd());
    file
}

fn read(f: &File, to: &mut Block, block: u64, ud: u64) -> io_uring_sqe {
    let (fd, off) = (f.as_raw_fd(), block * BLOCK as u64);
    io_uring_sqe { fd, addr: to.addr(), len: BLOCK as u32, off, ..sqe(IORING_OP_READ, ud) }
}

/// Submits, waits for all, and returns `(user_data, res)` in the order of completion, and the time.
fn run(c: &Client, sqes: &[io_uring_sqe]) -> (Vec<(u64, i32)>, Duration) {
    let start = Instant::now();
    sqes.iter().for_each(|s| c.push(*s));
    let n = sqes.len() as u32;
    assert_eq!(c.enter(n, n), n as isize);
    let mut got = Vec::new();
    while got.len() < sqes.len() {
        match c.pop() {
            Some(cqe) => got.push((cqe.user_data, cqe.res)),
            None => assert_eq!(c.enter(0, 1), 0),
        }
    }
    (got, start.elapsed())
}

const KINDS: [u32; 4] = [
    0,
    IORING_SETUP_IOPOLL,
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    IORING_SETUP_IOPOLL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
];

#[test]
fn reads_and_writes_take_their_time_and_move_real_data() {
    let f = file("plain", true);
    for flags in KINDS {
        let c = Client::new(8, flags);
        let mut b = Block([0xff; BLOCK]);
        let (got, took) = run(&c, &[read(&f, &mut b, 3, 1)]);
        assert_eq!(got, [(1, BLOCK as i32)]);
        assert!(took >= Duration::from_millis(2), "{flags:#x}: {took:?}");
        assert!(b.0.iter().all(|&x| x == 3));
        b.0.fill(flags as u8 ^ 0x5a);
        let write = io_uring_sqe { opcode: IORING_OP_WRITE, ..read(&f, &mut b, 5, 2) };
        let (got, took) = run(&c, &[write]);
        assert_eq!(got, [(2, BLOCK as i32)]);
        assert!(took >= Duration::from_millis(2), "{took:?}");
        // Other readers past the cache find the written data.
        let mut back = Block([0; BLOCK]);
        f.read_exact_at(&mut back.0, 5 * BLOCK as u64).unwrap();
        assert_eq!(back.0, b.0);
    }
}

#[test]
fn a_device_of_one_queue_works_in_turn() {
    let f = file("narrow", true);
    let c = Client::new(8, 0);
    let mut b = vec![Block([0; BLOCK]); 8];
    let sqes: Vec<_> =
        b.iter_mut().enumerate().map(|(i, b)| read(&f, b, i as u64, i as u64)).collect();
    let (got, took) = run(&c, &sqes);
    assert!(took >= Duration::from_millis(8), "{took:?}");
    assert_eq!(got.iter().map(|g| g.0).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
}

#[test]
fn sequential_requests_do_not_seek() {
    let f = file("hdd", true);
    let c = Client::new(8, 0);
    let mut b = Block([0; BLOCK]);
    run(&c, &[read(&f, &mut b, 9, 0)]);
    let quick = run(&c, &[read(&f, &mut b, 10, 0)]).1;
    let seeks = run(&c, &[read(&f, &mut b, 2, 0)]).1;
    assert!(seeks >= Duration::from_millis(3) && quick < seeks, "{quick:?} {seeks:?}");
}

#[test]
fn an_interrupt_is_late_only_without_poll_queues() {
    let mut b = Block([0; BLOCK]);
    let c = Client::new(8, IORING_SETUP_IOPOLL);
    for (device, ms) in [("interrupts", 2), ("queues", 1)] {
        let f = file(device, true);
        let took = run(&c, &[read(&f, &mut b, 0, 0)]).1;
        assert!(took >= Duration::from_millis(ms), "{device}: {took:?}");
    }
}

/// The same requests on a file with a model and on one without have the same results and data.
#[test]
fn a_model_changes_no_results_or_data() {
    for direct in [true, false] {
        let plain = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("plain-{direct}"));
        std::fs::write(&plain, (0..16 * BLOCK).map(|i| (i / BLOCK) as u8).collect::<Vec<_>>())
            .unwrap();
        let flags = if direct { O_DIRECT } else { 0 };
        let open = File::options().read(true).write(true).custom_flags(flags).open(&plain);
        std::fs::remove_file(&plain).unwrap();
        let without = match open {
            Ok(without) => without,
            Err(e) => return skipped!("direct: {direct}: the file does not open: {e}"),
        };
        fd::forget_kind(without.as_raw_fd());
        let [a, b] = [file("null", direct), without].map(|f| script(&f));
        assert_eq!(a, b, "direct: {direct}");
    }
}

/// Runs right and wrong requests; returns their results and data.
fn script(f: &File) -> (Vec<(u64, i32)>, Vec<Vec<u8>>) {
    let c = Client::new(32, 0);
    let mut b = vec![Block([0xee; BLOCK]); 8];
    let (mut all, fd) = (Vec::new(), f.as_raw_fd());
    let at = |b: &mut Block, op, off, len, ud| io_uring_sqe {
        fd,
        addr: b.addr(),
        off,
        len,
        ..sqe(op, ud)
    };
    let mut step = |sqes: &[io_uring_sqe]| all.extend(run(&c, sqes).0);
    step(&[at(&mut b[0], IORING_OP_READ, 4096, 4096, 1)]);
    // Across the end, at the end, beyond it.
    step(&[at(&mut b[1], IORING_OP_READ, 15 * 4096, 4096, 2)]);
    step(&[at(&mut b[1], IORING_OP_READ, 16 * 4096, 4096, 3)]);
    step(&[at(&mut b[1], IORING_OP_READ, 1 << 40, 4096, 4)]);
    // Not aligned in place, in length, in memory; nothing at all; a bad address.
    step(&[at(&mut b[2], IORING_OP_READ, 7, 4096, 5)]);
    step(&[at(&mut b[2], IORING_OP_READ, 0, 100, 6)]);
    let unaligned = at(&mut b[2], IORING_OP_READ, 0, 512, 7);
    step(&[io_uring_sqe { addr: unaligned.addr + 1, ..unaligned }]);
    step(&[at(&mut b[2], IORING_OP_READ, 0, 0, 8)]);
    step(&[io_uring_sqe { addr: 4096, ..at(&mut b[2], IORING_OP_READ, 0, 4096, 9) }]);
    // Written, read back, and grown.
    b[3].0.fill(0x33);
    step(&[at(&mut b[3], IORING_OP_WRITE, 8192, 4096, 10)]);
    step(&[at(&mut b[4], IORING_OP_READ, 8192, 4096, 11)]);
    step(&[at(&mut b[3], IORING_OP_WRITE, 16 * 4096, 4096, 12)]);
    step(&[at(&mut b[5], IORING_OP_READ, 16 * 4096, 4096, 13)]);
    // At the file's position, twice.
    step(&[at(&mut b[6], IORING_OP_READ, u64::MAX, 4096, 14)]);
    step(&[at(&mut b[6], IORING_OP_READ, u64::MAX, 4096, 15)]);
    // In parts, and on a number that is not open.
    let parts = [[b[6].addr(), 4096], [b[7].addr(), 4096]];
    let vec = parts.as_ptr().expose_provenance() as u64;
    let readv = at(&mut b[0], IORING_OP_READV, 3 * 4096, 2, 16);
    step(&[io_uring_sqe { addr: vec, ..readv }]);
    step(&[io_uring_sqe { fd: 4000, ..readv }]);
    step(&[io_uring_sqe { op_flags: 1 << 20, ..at(&mut b[2], IORING_OP_READ, 0, 4096, 18) }]);
    let flush = io_uring_sqe { fd, ..sqe(IORING_OP_FSYNC, 19) };
    step(&[flush]);
    (all, b.iter().map(|b| b.0.to_vec()).collect())
}

#[test]
fn chains_and_barriers_keep_their_order() {
    let f = file("plain", true);
    let c = Client::new(8, 0);
    let mut b = vec![Block([7; BLOCK]); 2];
    let [out, back] = &mut b[..] else { unreachable!() };
    let write = io_uring_sqe { opcode: IORING_OP_WRITE, ..read(&f, out, 3, 1) };
    let linked = io_uring_sqe { flags: IOSQE_IO_LINK, ..write };
    let (got, took) = run(&c, &[linked, read(&f, back, 3, 2)]);
    assert_eq!(got, [(1, BLOCK as i32), (2, BLOCK as i32)]);
    assert!(took >= Duration::from_millis(4), "{took:?}");
    assert!(b[1].0.iter().all(|&x| x == 7));
    // A short read breaks its chain.
    let end = io_uring_sqe { flags: IOSQE_IO_LINK, ..read(&f, &mut b[0], 16, 1) };
    let (got, _) = run(&c, &[end, sqe(IORING_OP_NOP, 2)]);
    assert_eq!(got, [(1, 0), (2, ECANCELED)]);
    let drained = io_uring_sqe { flags: IOSQE_IO_DRAIN, ..sqe(IORING_OP_NOP, 2) };
    let (got, took) = run(&c, &[read(&f, &mut b[0], 0, 1), drained]);
    assert_eq!(got, [(1, BLOCK as i32), (2, 0)]);
    assert!(took >= Duration::from_millis(2), "{took:?}");
}

#[test]
fn requests_in_the_device_cannot_be_cancelled() {
    let f = file("slow", true);
    let c = Client::new(8, 0);
    let mut b = Block([0; BLOCK]);
    c.push(read(&f, &mut b, 0, 7));
    c.push(io_uring_sqe { addr: 7, ..sqe(IORING_OP_ASYNC_CANCEL, 8) });
    assert_eq!(c.enter(2, 1), 2);
    let first = c.pop().unwrap();
    assert_eq!((first.user_data, first.res), (8, ENOENT));
    let start = Instant::now();
    assert_eq!(c.enter(0, 1), 0);
    assert!(start.elapsed() > Duration::from_millis(200));
    assert_eq!(c.pop().map(|c| (c.user_data, c.res)), Some((7, BLOCK as i32)));
}

#[test]
fn modelled_requests_complete_without_entering() {
    let f = file("plain", true);
    for flags in [0, IORING_SETUP_SQPOLL, IORING_SETUP_SQPOLL | IORING_SETUP_IOPOLL] {
        let c = Client::new(8, flags);
        let mut b = vec![Block([0xff; BLOCK]); 8];
        for (i, b) in b.iter_mut().enumerate() {
            c.push(read(&f, b, i as u64, i as u64));
        }
        let wakeup = if flags & IORING_SETUP_SQPOLL != 0 { IORING_ENTER_SQ_WAKEUP } else { 0 };
        assert!(softring_engine::syscall::enter(c.fd, 8, 0, wakeup, 0, 8) >= 0);
        let start = Instant::now();
        let seen = c.watch(8);
        assert!(seen.iter().all(|cqe| cqe.res == BLOCK as i32), "{seen:?}");
        assert_eq!(seen.len(), 8, "{flags:#x}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[test]
fn closed_with_reads_in_flight() {
    let f = file("slow", true);
    // A disk that is slow to answer may write there after the ring is closed.
    static BUFFERS: std::sync::Mutex<Vec<Block>> = std::sync::Mutex::new(Vec::new());
    let mut b = BUFFERS.lock().unwrap();
    b.resize(8, Block([0xff; BLOCK]));
    for flags in KINDS {
        let c = Client::new(8, flags);
        for (i, b) in b.iter_mut().enumerate() {
            c.push(read(&f, b, i as u64, i as u64));
        }
        assert_eq!(softring_engine::syscall::enter(c.fd, 8, 0, 0, 0, 8), 8);
        let start = Instant::now();
        drop(c);
        assert!(start.elapsed() < Duration::from_millis(200));
    }
}

#[test]
fn a_reused_number_means_the_new_file() {
    let (a, b) = (file("null", true), file("null", true));
    let c = Client::new(8, 0);
    let mut block = Block([0x77; BLOCK]);
    let write = io_uring_sqe { opcode: IORING_OP_WRITE, ..read(&a, &mut block, 0, 1) };
    run(&c, &[write]);
    // Not reported to the engine.
    become_file(&b, &a);
    let write = io_uring_sqe { opcode: IORING_OP_WRITE, ..read(&a, &mut block, 1, 1) };
    run(&c, &[write]);
    let mut back = Block([0; BLOCK]);
    b.read_exact_at(&mut back.0, 0).unwrap();
    assert!(back.0.iter().all(|&x| x == 0), "the first write went to the first file");
    b.read_exact_at(&mut back.0, BLOCK as u64).unwrap();
    assert!(back.0.iter().all(|&x| x == 0x77), "the second to the second");
}

/// Makes the number of `old` mean the file of `new`, without a report.
fn become_file(new: &File, old: &File) {
    use std::os::fd::FromRawFd;
    // SAFETY: never dropped; the number stays open throughout.
    let slot = unsafe { std::os::fd::OwnedFd::from_raw_fd(old.as_raw_fd()) };
    rustix::io::dup2(new, &mut std::mem::ManuallyDrop::new(slot)).unwrap();
}

#[test]
fn registered_files_and_buffers() {
    let f = file("plain", true);
    let c = Client::new(8, 0);
    let fd = f.as_raw_fd();
    let register = |op, addr: usize| client::register(c.fd, op, addr, 1);
    let fds = [fd];
    assert_eq!(register(IORING_REGISTER_FILES, fds.as_ptr().expose_provenance()), 0);
    let mut b = Block([0xff; BLOCK]);
    let iov = [b.addr(), BLOCK as u64];
    assert_eq!(register(IORING_REGISTER_BUFFERS, iov.as_ptr().expose_provenance()), 0);
    let fixed = io_uring_sqe {
        fd: 0,
        flags: IOSQE_FIXED_FILE,
        opcode: IORING_OP_READ_FIXED,
        ..read(&f, &mut b, 6, 1)
    };
    let (got, took) = run(&c, &[fixed]);
    assert_eq!(got, [(1, BLOCK as i32)]);
    assert!(took >= Duration::from_millis(2) && b.0.iter().all(|&x| x == 6), "{took:?}");
    let outside = io_uring_sqe { len: 2 * BLOCK as u32, ..fixed };
    assert_eq!(run(&c, &[outside]).0, [(1, -14)]);
}

#[test]
fn a_device_without_data_moves_none() {
    let f = file("empty", true);
    let c = Client::new(8, 0);
    let mut b = Block([0xcc; BLOCK]);
    let (got, took) = run(&c, &[read(&f, &mut b, 3, 1), read(&f, &mut b, 20, 2)]);
    assert_eq!(got.iter().find(|g| g.0 == 1), Some(&(1, BLOCK as i32)));
    assert_eq!(got.iter().find(|g| g.0 == 2), Some(&(2, 0)), "beyond its end");
    assert!(took >= Duration::from_millis(1) && b.0.iter().all(|&x| x == 0xcc));
}

#[test]
fn a_polled_ring_needs_o_direct_on_a_model_too() {
    let f = file("plain", false);
    let c = Client::new(8, IORING_SETUP_IOPOLL);
    let mut b = Block([0; BLOCK]);
    assert_eq!(run(&c, &[read(&f, &mut b, 0, 1)]).0, [(1, -95)]);
}

/// A policy sleeps for a modelled device as for a real one, and is not late for it.
#[test]
fn a_hybrid_ring_sleeps_until_a_modelled_device_is_about_to_be_done() {
    let f = file("plain", true);
    let c = Client::new(8, IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL);
    let mut b = Block([0; BLOCK]);
    let mut took: Vec<Duration> =
        (0..200).map(|i| run(&c, &[read(&f, &mut b, i % 16, 0)]).1).collect();
    took.sort_unstable();
    assert!(
        took[0] >= Duration::from_millis(2) && took[100] < Duration::from_millis(4),
        "{took:?}"
    );
    let ring = fds::find(c.fd).unwrap();
    let idle_sleeps = ring.read().stats.idle_sleeps.idle_sleeps.get();
    assert!(idle_sleeps > 100, "{idle_sleeps}");
}

/// An SQ thread sleeps for the requests of a HYBRID_IOPOLL ring, and of no other.
#[test]
fn an_sq_thread_sleeps_for_a_hybrid_ring() {
    let f = file("plain", true);
    let hybrid = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL | IORING_SETUP_SQPOLL;
    for (flags, idle_sleeps) in [(hybrid, true), (IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL, false)]
    {
        let c = Client::new(8, flags);
        let mut b = vec![Block([0xff; BLOCK]); 4];
        for round in 0..50 {
            for (i, b) in b.iter_mut().enumerate() {
                c.push(read(&f, b, i as u64, i as u64));
            }
            softring_engine::syscall::enter(c.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 8);
            let seen = c.watch(4);
            assert_eq!(seen.len(), 4, "round {round}");
            assert!(seen.iter().all(|cqe| cqe.res == BLOCK as i32), "{seen:?}");
        }
        let ring = fds::find(c.fd).unwrap();
        let idle_slept = ring.read().stats.idle_sleeps.idle_sleeps.get();
        assert_eq!(idle_slept > 20, idle_sleeps, "{idle_slept}");
    }
}
