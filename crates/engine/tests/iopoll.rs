//! Polled I/O on the disk of the build directory; it needs no poll queue.

mod client;
mod direct;

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use client::{Client, register, sqe};
use direct::{BLOCK, Block, file, keep, read};
use softring_uapi::*;

#[test]
fn entering_finds_polled_completions() {
    let Some(f) = file(16) else { return };
    for flags in [0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN] {
        let c = Client::new(16, IORING_SETUP_IOPOLL | flags);
        let mut blocks = vec![Block([0xff; BLOCK]); 16];
        for (i, to) in blocks.iter_mut().enumerate() {
            c.push(read(&f, to, i as u64, i as u64));
        }
        assert_eq!(c.enter(16, 16), 16);
        let mut seen = 0;
        while seen < 16 {
            match c.pop() {
                Some(cqe) => {
                    assert_eq!(cqe.res, BLOCK as i32);
                    seen += 1;
                }
                // The number is a hint.
                None => assert_eq!(c.enter(0, 1), 0),
            }
        }
        for (i, block) in blocks.iter().enumerate() {
            assert!(block.0.iter().all(|&b| usize::from(b) == i), "block {i}");
        }
    }
}

#[test]
fn a_chain_is_polled_link_by_link() {
    let Some(f) = file(4) else { return };
    let c = Client::new(8, IORING_SETUP_IOPOLL);
    let mut blocks = vec![Block([7; BLOCK]); 2];
    let [out, back] = &mut blocks[..] else { unreachable!() };
    let write = io_uring_sqe { opcode: IORING_OP_WRITE, ..read(&f, out, 3, 1) };
    c.push(io_uring_sqe { flags: IOSQE_IO_LINK, ..write });
    c.push(read(&f, back, 3, 2));
    assert_eq!(c.enter(2, 2), 2);
    let mut got = Vec::new();
    while got.len() < 2 {
        match c.pop() {
            Some(cqe) => got.push((cqe.user_data, cqe.res)),
            None => assert_eq!(c.enter(0, 1), 0),
        }
    }
    assert_eq!(got, [(1, BLOCK as i32), (2, BLOCK as i32)]);
    assert!(blocks[1].0.iter().all(|&b| b == 7));
}

/// Vectors and registered buffers move the data that they name, on each kind of polled ring.
#[test]
fn vectors_and_registered_buffers_are_polled() {
    let hybrid = IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL;
    for flags in [IORING_SETUP_IOPOLL, hybrid, IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL] {
        let Some(f) = file(8) else { return };
        let c = Client::new(8, flags);
        let mut blocks = vec![Block([0xff; BLOCK]); 4];
        let parts: Vec<[u64; 2]> = blocks.iter_mut().map(|b| [b.addr(), BLOCK as u64]).collect();
        let at = |n: usize| parts[n..].as_ptr().expose_provenance();
        assert_eq!(register(c.fd, IORING_REGISTER_BUFFERS, at(0), 4), 0);
        let one = |sqe: io_uring_sqe, res: usize| {
            c.push(sqe);
            let wakeup = if flags & IORING_SETUP_SQPOLL != 0 { IORING_ENTER_SQ_WAKEUP } else { 0 };
            let enter = IORING_ENTER_GETEVENTS | wakeup;
            assert_eq!(softring_engine::syscall::enter(c.fd, 1, 1, enter, 0, 8), 1);
            let cqe = loop {
                match c.pop() {
                    Some(cqe) => break cqe,
                    None => assert_eq!(c.enter(0, 1), 0),
                }
            };
            assert_eq!(cqe.res, res as i32, "{flags:#x}, opcode {}", sqe.opcode);
        };
        let rw = |opcode, block: u64, addr: usize, len: usize, buf: u16| {
            let (off, addr, len) = (block * BLOCK as u64, addr as u64, len as u32);
            let any = sqe(opcode, block);
            io_uring_sqe { fd: f.as_raw_fd(), addr, len, off, buf_index: buf, ..any }
        };
        let buf = |n: usize| parts[n][0] as usize;
        one(rw(IORING_OP_READV, 1, at(0), 3, 0), 3 * BLOCK);
        one(rw(IORING_OP_READ_FIXED, 6, buf(3), BLOCK, 3), BLOCK);
        let first = |blocks: &[Block]| blocks.iter().map(|b| b.0[0]).collect::<Vec<_>>();
        assert_eq!(first(&blocks), [1, 2, 3, 6], "{flags:#x}");
        one(rw(IORING_OP_WRITEV, 4, at(1), 3, 0), 3 * BLOCK);
        blocks[0].0.fill(0x5a);
        one(rw(IORING_OP_WRITE_FIXED, 0, buf(0), BLOCK, 0), BLOCK);
        one(rw(IORING_OP_READ_FIXED, 0, buf(0), BLOCK, 1), -14i32 as usize);
        let mut back = vec![Block([0; BLOCK]); 8];
        for (i, to) in back.iter_mut().enumerate() {
            f.read_exact_at(&mut to.0, (i * BLOCK) as u64).unwrap();
        }
        assert_eq!(first(&back), [0x5a, 1, 2, 3, 2, 3, 6, 7], "{flags:#x}");
        assert!(back.iter().chain(&blocks).all(|b| b.0.iter().all(|&x| x == b.0[0])));
    }
}

#[test]
fn an_sq_thread_polls_without_entering() {
    let Some(f) = file(8) else { return };
    let c = Client::new(8, IORING_SETUP_IOPOLL | IORING_SETUP_SQPOLL);
    let mut blocks = vec![Block([0xff; BLOCK]); 8];
    for (i, to) in blocks.iter_mut().enumerate() {
        c.push(read(&f, to, i as u64, i as u64));
    }
    assert_eq!(softring_engine::syscall::enter(c.fd, 0, 0, IORING_ENTER_SQ_WAKEUP, 0, 8), 0);
    let seen = c.watch(8);
    assert!(seen.iter().all(|cqe| cqe.res == BLOCK as i32), "{seen:?}");
    assert_eq!(seen.len(), 8);
}

/// An eventfd counts completions, as on any ring.
#[test]
fn an_eventfd_is_signalled() {
    use rustix::event::{EventfdFlags, eventfd};
    let Some(f) = file(4) else { return };
    let c = Client::new(8, IORING_SETUP_IOPOLL);
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let fd = event.as_raw_fd();
    let at = (&raw const fd).expose_provenance();
    assert_eq!(register(c.fd, IORING_REGISTER_EVENTFD, at, 1), 0);
    let mut blocks = vec![Block([0xff; BLOCK]); 4];
    for (i, to) in blocks.iter_mut().enumerate() {
        c.push(read(&f, to, i as u64, i as u64));
    }
    assert_eq!(c.enter(4, 0), 4);
    let (mut signalled, mut word) = (0, [0u8; 8]);
    let mut seen = 0;
    while seen < 4 {
        assert_eq!(c.enter(0, 1), 0);
        seen += std::iter::from_fn(|| c.pop()).inspect(|cqe| assert_eq!(cqe.res, 4096)).count();
        signalled += rustix::io::read(&event, &mut word).map_or(0, |_| u64::from_ne_bytes(word));
        assert!(seen == 0 || signalled > 0, "{seen} came, and nobody was told");
    }
    assert!((1..=4).contains(&signalled), "{signalled}");
}

/// Reads that kernel aio does not take at a time are submitted when there is room again, and each
/// is read once.
#[test]
fn requests_without_room_are_submitted_later() {
    const READS: usize = 4096;
    let Some(f) = file(16) else { return };
    let c = Client::new(READS as u32, IORING_SETUP_IOPOLL);
    let mut blocks = vec![Block([0xff; BLOCK]); READS];
    for (i, to) in blocks.iter_mut().enumerate() {
        c.push(read(&f, to, i as u64 % 16, i as u64));
    }
    assert_eq!(c.enter(READS as u32, 0), READS as isize);
    let mut times = vec![0; READS];
    while times.contains(&0) {
        match c.pop() {
            Some(cqe) => {
                assert_eq!(cqe.res, BLOCK as i32);
                times[cqe.user_data as usize] += 1;
            }
            None => assert_eq!(c.enter(0, 1), 0),
        }
    }
    assert!(times.iter().all(|&n| n == 1));
    for (i, block) in blocks.iter().enumerate() {
        assert!(block.0.iter().all(|&b| usize::from(b) == i % 16), "block {i}");
    }
}

#[test]
fn closed_with_reads_in_flight() {
    let Some(f) = file(8) else { return };
    for _ in 0..50 {
        let mut blocks = vec![Block([0xff; BLOCK]); 8];
        let c = Client::new(8, IORING_SETUP_IOPOLL);
        for (i, to) in blocks.iter_mut().enumerate() {
            c.push(read(&f, to, i as u64, i as u64));
        }
        assert_eq!(c.enter(8, 0), 8);
        drop(c);
        keep(blocks);
    }
}

/// Files are taken out of the table with reads in flight: the call returns at once, the reads go
/// on, and the tag comes behind the last of them.
#[test]
fn a_registered_file_lives_until_its_last_read() {
    let Some(f) = file(8) else { return };
    for flags in [IORING_SETUP_IOPOLL, IORING_SETUP_IOPOLL | IORING_SETUP_HYBRID_IOPOLL, 0] {
        let c = Client::new(16, flags);
        let (fds, tags) = ([f.as_raw_fd()], [77u64]);
        let at = |p: *const u64| p.expose_provenance() as u64;
        let table = io_uring_rsrc_register {
            nr: 1,
            data: fds.as_ptr().expose_provenance() as u64,
            tags: at(tags.as_ptr()),
            ..Default::default()
        };
        for update in [false, true] {
            let with = |op, arg: usize, n| register(c.fd, op, arg, n);
            let table = (&raw const table).expose_provenance();
            assert_eq!(with(IORING_REGISTER_FILES2, table, 32), 0);
            let mut blocks = vec![Block([0xff; BLOCK]); 8];
            for (i, to) in blocks.iter_mut().enumerate() {
                let read = read(&f, to, i as u64, i as u64);
                c.push(io_uring_sqe { fd: 0, flags: IOSQE_FIXED_FILE, ..read });
            }
            assert_eq!(softring_engine::syscall::enter(c.fd, 8, 0, 0, 0, 8), 8);
            if update {
                let gone = [-1i32];
                let data = gone.as_ptr().expose_provenance() as u64;
                let up = io_uring_rsrc_update { data, ..Default::default() };
                let up = (&raw const up).expose_provenance();
                assert_eq!(with(IORING_REGISTER_FILES_UPDATE, up, 1), 1);
            } else {
                assert_eq!(with(IORING_UNREGISTER_FILES, 0, 0), 0);
            }
            let mut got = Vec::new();
            while got.len() < 9 {
                match c.pop() {
                    Some(cqe) => got.push((cqe.user_data, cqe.res)),
                    None => assert_eq!(c.enter(0, 1), 0),
                }
            }
            assert_eq!(got[8], (77, 0), "{got:?}");
            assert!(got[..8].iter().all(|g| g.1 == BLOCK as i32), "{got:?}");
            for (i, block) in blocks.iter().enumerate() {
                assert!(block.0.iter().all(|&b| usize::from(b) == i), "block {i}");
            }
            if update {
                assert_eq!(with(IORING_UNREGISTER_FILES, 0, 0), 0);
            }
        }
    }
}
