//! What kernel aio costs here, against the plain calls it stands for: the numbers that decide
//! routing.
//!
//! `cargo run --profile quick -p softring-engine --example aio_cost [DIR]` (default: the current
//! directory; a temporary file of 64 MiB is made there and in /dev/shm).
#![allow(unsafe_code)]

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{IoSliceMut, ReadWriteFlags, preadv, preadv2};
use rustix::time::{ClockId, clock_gettime};
use softring_engine::io::aio::{AioCtx, RWF_NOWAIT, poll, rw};
use softring_uapi::aio::IOCB_CMD_PREAD;
use std::time::Instant;

const SIZE: u64 = 64 << 20;
const BLOCK: u64 = 4096;
const BATCH: usize = 32;
const ROUNDS: usize = 7;

type Buffers = Vec<u8>;

fn main() {
    let dir = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    for (name, dir) in [("disk", dir.as_str()), ("tmpfs", "/dev/shm")] {
        println!("\n{name}: {dir}, cached random reads, 4k                  ns/op   CPU ns/op");
        let fd = file(dir, OFlags::empty());
        cached(&fd);
    }
    println!("\nO_DIRECT random reads, 4k, 32 in flight              ns/op   CPU ns/op");
    direct(&file(&dir, OFlags::DIRECT));
    println!("\nwaiting for 32 eventfds, each signalled once         ns/fd   CPU ns/fd");
    polls();
}

fn file(dir: &str, extra: OFlags) -> OwnedFd {
    let path = format!("{dir}/softring-aio-cost-{}", std::process::id());
    std::fs::write(&path, vec![7u8; SIZE as usize]).expect("writing the temporary file");
    let fd = rustix::fs::open(&path, OFlags::RDWR | extra, Mode::empty()).expect("open");
    std::fs::remove_file(&path).expect("unlink");
    rustix::fs::fsync(&fd).expect("fsync");
    fd
}

/// Block-aligned room for a batch, somewhere inside.
fn buffers() -> (Buffers, usize) {
    let v = vec![0u8; (BATCH + 1) * BLOCK as usize];
    let off = v.as_ptr().align_offset(BLOCK as usize);
    (v, off)
}

/// xorshift: offsets need no better.
fn offset(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % (SIZE / BLOCK) * BLOCK
}

fn cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Runs `f(n)` a few times and prints the medians per operation.
fn measure(what: &str, n: usize, mut f: impl FnMut(usize)) {
    f(n / 10 / BATCH * BATCH + BATCH);
    let mut runs: Vec<(u64, u64)> = (0..ROUNDS)
        .map(|_| {
            let (cpu, t) = (cpu_ns(), Instant::now());
            f(n);
            (t.elapsed().as_nanos() as u64 / n as u64, (cpu_ns() - cpu) / n as u64)
        })
        .collect();
    runs.sort_unstable();
    let mut cpus: Vec<u64> = runs.iter().map(|r| r.1).collect();
    cpus.sort_unstable();
    println!("  {what:<48} {:>8} {:>10}", runs[ROUNDS / 2].0, cpus[ROUNDS / 2]);
}

/// One batch of reads through aio; answers when all have ended.
fn batch(ctx: &mut AioCtx, fd: i32, base: u64, seed: &mut u64, flags: i32, resfd: Option<i32>) {
    for i in 0..BATCH as u64 {
        let at = offset(seed) as i64;
        let cb = rw(IOCB_CMD_PREAD, fd, base + i * BLOCK, BLOCK, at, flags, i);
        ctx.prep(resfd.map_or(cb, |e| cb.with_resfd(e))).expect("room");
    }
    assert_eq!(ctx.submit(|_, e| panic!("{e:?}")), BATCH);
    while ctx.in_flight() > 0 {
        // EAGAIN: somebody dropped the page cache meanwhile; the median forgives a few.
        if ctx.reap(|_, r| assert!(r == BLOCK as i64 || flags != 0 && r == -11)) == 0 {
            ctx.wait(1, None, None).expect("wait");
        }
    }
}

fn cached(fd: &OwnedFd) {
    let (mut buf, off) = buffers();
    let base = buf[off..].as_mut_ptr().expose_provenance() as u64;
    let (n, mut seed) = (64_000, 88172645463325252);
    let nowait = preadv2(fd, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT).is_ok();
    measure("preadv2 inline, RWF_NOWAIT where supported", n, |n| {
        for _ in 0..n {
            let at = offset(&mut seed);
            let b = &mut [IoSliceMut::new(&mut buf[off..off + BLOCK as usize])];
            let r =
                if nowait { preadv2(fd, b, at, ReadWriteFlags::NOWAIT) } else { preadv(fd, b, at) };
            assert!(r == Ok(BLOCK as usize) || r == Err(rustix::io::Errno::AGAIN));
        }
    });
    let mut ctx = AioCtx::new(BATCH as u32).expect("io_setup");
    let flags = if nowait { RWF_NOWAIT } else { 0 };
    measure("io_submit 32, reaped from user memory", n, |n| {
        (0..n / BATCH).for_each(|_| batch(&mut ctx, fd.as_raw_fd(), base, &mut seed, flags, None));
    });
    let (ep, ev) = watched_eventfd();
    let e = Some(ev.as_raw_fd());
    measure("the same, RESFD eventfd in an epoll set", n, |n| {
        (0..n / BATCH).for_each(|_| batch(&mut ctx, fd.as_raw_fd(), base, &mut seed, flags, e));
    });
    drop(ep);
}

fn watched_eventfd() -> (OwnedFd, OwnedFd) {
    let ep = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let ev = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
    epoll::add(&ep, &ev, EventData::new_u64(0), EventFlags::IN).expect("epoll add");
    (ep, ev)
}

/// Sleeps in io_pgetevents, or with RESFD in epoll_wait, when nothing can be reaped.
fn direct(fd: &OwnedFd) {
    let (mut buf, off) = buffers();
    let base = buf[off..].as_mut_ptr().expose_provenance() as u64;
    let (n, mut seed) = (8_000, 88172645463325252);
    let (ep, ev) = watched_eventfd();
    let mut ctx = AioCtx::new(BATCH as u32).expect("io_setup");
    for (what, resfd) in [
        ("wait by io_pgetevents", None),
        ("wait by epoll_wait, RESFD eventfd", Some(ev.as_raw_fd())),
        ("wait by io_pgetevents again", None),
        ("wait by epoll_wait, RESFD eventfd again", Some(ev.as_raw_fd())),
    ] {
        measure(what, n, |n| {
            let (mut sent, mut done) = (0, 0);
            let mut idle: Vec<u64> = (0..BATCH as u64).collect();
            while done < n {
                while sent < n
                    && let Some(i) = idle.pop()
                {
                    let at = offset(&mut seed) as i64;
                    let cb = rw(IOCB_CMD_PREAD, fd.as_raw_fd(), base + i * BLOCK, BLOCK, at, 0, i);
                    ctx.prep(resfd.map_or(cb, |e| cb.with_resfd(e))).expect("room");
                    sent += 1;
                }
                if ctx.prepared() > 0 {
                    ctx.submit(|_, e| panic!("{e:?}"));
                }
                if !ctx.ready() {
                    sleep(&mut ctx, resfd.map(|_| (ep.as_fd(), ev.as_fd())));
                }
                done += ctx.reap(|d, r| {
                    assert_eq!(r, BLOCK as i64);
                    idle.push(d);
                });
            }
        });
    }
}

fn sleep(ctx: &mut AioCtx, watched: Option<(BorrowedFd<'_>, BorrowedFd<'_>)>) {
    let Some((ep, ev)) = watched else {
        ctx.wait(1, None, None).expect("wait");
        return;
    };
    let mut events = Vec::with_capacity(1);
    epoll::wait(ep, spare_capacity(&mut events), None).expect("epoll_wait");
    let _ = rustix::io::read(ev, &mut [0u8; 8]);
}

fn polls() {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let fds: Vec<OwnedFd> = (0..BATCH).map(|_| eventfd(0, flags).expect("eventfd")).collect();
    let n = 32_000;
    let fire = || fds.iter().for_each(|e| _ = rustix::io::write(e, &1u64.to_ne_bytes()));
    let calm = || fds.iter().for_each(|e| _ = rustix::io::read(e, &mut [0u8; 8]));
    measure("signal and read back only (part of the others)", n, |n| {
        for _ in 0..n / BATCH {
            fire();
            calm();
        }
    });
    let mut ctx = AioCtx::new(BATCH as u32).expect("io_setup");
    measure("IOCB_CMD_POLL, one io_submit, user reap", n, |n| {
        for _ in 0..n / BATCH {
            for (i, e) in fds.iter().enumerate() {
                ctx.prep(poll(e.as_raw_fd(), 1, i as u64)).expect("room");
            }
            ctx.submit(|_, e| panic!("{e:?}"));
            fire();
            while ctx.in_flight() > 0 {
                if ctx.reap(|_, _| ()) == 0 {
                    ctx.wait(1, None, None).expect("wait");
                }
            }
            calm();
        }
    });
    epoll_polls(n, &fds, fire, calm);
}

fn epoll_polls(n: usize, fds: &[OwnedFd], fire: impl Fn(), calm: impl Fn()) {
    let ep = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let how = EventFlags::IN | EventFlags::ONESHOT;
    let mut events = Vec::with_capacity(BATCH);
    measure("epoll: dup, ADD oneshot, wait, DEL, close", n, |n| {
        for _ in 0..n / BATCH {
            let dups: Vec<OwnedFd> = fds.iter().map(|e| e.try_clone().expect("dup")).collect();
            for (i, d) in dups.iter().enumerate() {
                epoll::add(&ep, d, EventData::new_u64(i as u64), how).expect("add");
            }
            fire();
            events.clear();
            epoll::wait(&ep, spare_capacity(&mut events), None).expect("wait");
            assert_eq!(events.len(), BATCH);
            dups.iter().for_each(|d| epoll::delete(&ep, d).expect("del"));
            drop(dups);
            calm();
        }
    });
    for (i, e) in fds.iter().enumerate() {
        epoll::add(&ep, e, EventData::new_u64(i as u64), EventFlags::empty()).expect("add");
    }
    measure("epoll: kept, MOD oneshot, wait", n, |n| {
        for _ in 0..n / BATCH {
            for (i, e) in fds.iter().enumerate() {
                epoll::modify(&ep, e, EventData::new_u64(i as u64), how).expect("mod");
            }
            fire();
            events.clear();
            epoll::wait(&ep, spare_capacity(&mut events), None).expect("wait");
            calm();
        }
    });
}
