//! Requests that io_submit refuses, answers as an event, or never waits for.

use super::Case;
use super::sys::*;
use libc::{EAGAIN, EBADF, EFAULT, EINVAL, EOPNOTSUPP};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub const CASES: &[Case] = &[
    ("nowait_streams", nowait_streams),
    ("resfd_full", resfd_full),
    ("resfd_kinds", resfd_kinds),
    ("submission_errors", submission_errors),
    ("errors_as_events", errors_as_events),
    ("huge_sizes", huge_sizes),
    ("files_without_functions", files_without_functions),
    ("nothing", nothing),
    ("nowait_files", nowait_files),
    ("capacity", capacity),
];

const NOWAIT: i32 = 8;
const UNKNOWN: i32 = 1 << 30;

fn fresh(fd: i32) -> OwnedFd {
    assert!(fd >= 0);
    // SAFETY: a fresh descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn at(opcode: u16, fd: i32, buf: &mut [u8]) -> Iocb {
    let (buf, nbytes) = (buf.as_mut_ptr().expose_provenance() as u64, buf.len() as u64);
    Iocb { opcode, fd, buf, nbytes, ..Iocb::default() }
}

/// An empty pipe or socket that must not be waited for answers EAGAIN, as an event.
fn nowait_streams() {
    let aio = Aio::new(8);
    let (reader, _writer) = std::io::pipe().unwrap();
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    for fd in [reader.as_raw_fd(), socket.as_raw_fd()] {
        let read = at(PREAD, fd, buffer(1, 0));
        let read = Iocb { rw_flags: NOWAIT, data: 5, ..read };
        assert_eq!(aio.submit(&[&read]), 1);
        assert_eq!(aio.all(1)[0].res, err(EAGAIN));
    }
}

/// An eventfd that can count no further keeps nobody waiting.
fn resfd_full() {
    const FULL: u64 = u64::MAX - 1;
    let (aio, direct, buffered) = (Aio::new(8), file(true, 1), file(false, 1));
    // SAFETY: no addresses are passed.
    let efd = fresh(unsafe { libc::eventfd(0, 0) });
    for file in [&direct, &buffered] {
        // SAFETY: eight bytes of ours.
        let n = unsafe { libc::write(efd.as_raw_fd(), std::ptr::from_ref(&FULL).cast(), 8) };
        assert_eq!(n, 8);
        let told = rw(PREAD, file, buffer(1, 0), 0, 1);
        let told = Iocb { flags: RESFD, resfd: efd.as_raw_fd(), ..told };
        assert_eq!(aio.submit(&[&told]), 1);
        assert_eq!(aio.all(1).len(), 1);
        let mut count = 0u64;
        // SAFETY: as above.
        let n = unsafe { libc::read(efd.as_raw_fd(), (&raw mut count).cast(), 8) };
        assert!(n == 8 && count >= FULL, "{n} {count}");
    }
}

/// Descriptors of other kinds are refused as RESFD.
fn resfd_kinds() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    // SAFETY: no addresses are passed.
    let kinds = unsafe {
        [libc::epoll_create1(0), libc::timerfd_create(libc::CLOCK_MONOTONIC, 0), libc::dup(0)]
    };
    for fd in kinds.map(fresh) {
        let told = rw(PREAD, &file, buffer(1, 0), 0, 1);
        let told = Iocb { flags: RESFD, resfd: fd.as_raw_fd(), ..told };
        assert_eq!(aio.submit(&[&told]), err(EINVAL));
    }
    assert_eq!(aio.wait(0, &mut [Event::default()], None), 0);
}

/// io_submit itself fails, and there is no event.
fn submission_errors() {
    let (aio, direct, buffered) = (Aio::new(8), file(true, 1), file(false, 1));
    let good = rw(PREAD, &buffered, buffer(1, 0), 0, 1);
    let dir = std::fs::File::open("/").unwrap();
    let proc = std::fs::File::open("/proc/self/status").unwrap();
    let proc_dir = std::fs::File::open("/proc/self").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: no addresses are passed.
    let epoll = fresh(unsafe { libc::epoll_create1(0) });
    let iov = [good.buf, 10, good.buf, u64::MAX];
    let vector = Iocb { opcode: PREADV, buf: address(&iov), ..good };
    let fsync = Iocb { opcode: FSYNC, fd: reader.as_raw_fd(), ..Iocb::default() };
    for (bad, errno) in [
        (Iocb { rw_flags: UNKNOWN, ..good }, EOPNOTSUPP),
        (Iocb { rw_flags: UNKNOWN, fd: direct.as_raw_fd(), ..good }, EOPNOTSUPP),
        (Iocb { offset: -1, ..good }, EINVAL),
        (Iocb { offset: -1, fd: direct.as_raw_fd(), ..good }, EINVAL),
        (Iocb { buf: u64::MAX - 4096, ..good }, EFAULT),
        (Iocb { buf: u64::MAX - 4096, fd: direct.as_raw_fd(), ..good }, EFAULT),
        (Iocb { nbytes: 2, ..vector }, EINVAL),
        (Iocb { nbytes: 1025, ..vector }, EINVAL),
        (Iocb { nbytes: 1, buf: 8, ..vector }, EFAULT),
        (Iocb { fd: dir.as_raw_fd(), ..good }, EINVAL),
        (Iocb { fd: epoll.as_raw_fd(), ..good }, EINVAL),
        (Iocb { fd: writer.as_raw_fd(), ..good }, EBADF),
        (fsync, EINVAL),
        (Iocb { fd: proc.as_raw_fd(), ..fsync }, EINVAL),
        (Iocb { fd: proc.as_raw_fd(), opcode: FDSYNC, ..fsync }, EINVAL),
        (Iocb { fd: proc_dir.as_raw_fd(), ..fsync }, EINVAL),
    ] {
        assert_eq!(aio.submit(&[&bad]), err(errno), "{bad:?}");
        assert_eq!(aio.wait(0, &mut [Event::default()], None), 0, "{bad:?}");
        assert_eq!(aio.submit(&[&good, &bad]), 1);
        aio.all(1);
    }
}

/// A size beyond the limit of one read or write is cut to the limit, also for the checks of memory
/// and of the file's end.
fn huge_sizes() {
    let (aio, direct, buffered) = (Aio::new(8), file(true, 1), file(false, 1));
    let good = rw(PREAD, &buffered, buffer(1, 0), 0, 1);
    let whole = good.nbytes as i64;
    for nbytes in [0x7fff_f000, 0x7fff_f001, 1 << 32, 1 << 47, i64::MAX as u64] {
        let huge = Iocb { nbytes, ..good };
        let asks = [
            (huge, whole),
            (Iocb { offset: whole, ..huge }, 0),
            (Iocb { offset: i64::MAX - 0x7fff_f000, ..huge }, 0),
            (Iocb { buf: 4096, ..huge }, err(EFAULT)),
            (Iocb { opcode: PWRITE, buf: 4096, ..huge }, err(EFAULT)),
            (Iocb { fd: direct.as_raw_fd(), buf: 4096, ..huge }, err(EFAULT)),
        ];
        for (iocb, res) in asks {
            assert_eq!(aio.submit(&[&iocb]), 1, "{iocb:?}");
            assert_eq!(aio.all(1)[0].res, res, "{iocb:?}");
        }
        let end = Iocb { offset: i64::MAX - 0x7fff_efff, ..huge };
        assert_eq!(aio.submit(&[&end]), err(EINVAL), "{end:?}");
    }
    for nbytes in [1 << 63, u64::MAX] {
        assert_eq!(aio.submit(&[&Iocb { nbytes, ..good }]), err(EINVAL));
    }
}

/// Errors that only the file can find come as events.
fn errors_as_events() {
    let (aio, direct, buffered) = (Aio::new(8), file(true, 1), file(false, 1));
    let good = rw(PREAD, &buffered, buffer(1, 0), 0, 1);
    // SAFETY: no addresses are passed.
    let efd = fresh(unsafe { libc::eventfd(1, 0) });
    for (bad, errno) in [
        (Iocb { buf: 4096, ..good }, EFAULT),
        (Iocb { buf: 4096, fd: direct.as_raw_fd(), ..good }, EFAULT),
        (Iocb { nbytes: 4, fd: efd.as_raw_fd(), ..good }, EINVAL),
    ] {
        assert_eq!(aio.submit(&[&bad]), 1, "{bad:?}");
        assert_eq!(aio.all(1)[0].res, err(errno), "{bad:?}");
    }
}

/// Some files can be read or written only by read(2) and write(2): aio refuses them, and writes
/// nothing.
fn files_without_functions() {
    let aio = Aio::new(8);
    // SAFETY: no addresses are passed.
    let [event, epoll, inotify] = unsafe {
        let efd = libc::eventfd(0, libc::EFD_NONBLOCK);
        [efd, libc::epoll_create1(0), libc::inotify_init1(libc::IN_NONBLOCK)]
    }
    .map(fresh);
    let maps = std::fs::File::open("/proc/self/maps").unwrap();
    let dir = std::fs::File::open("/").unwrap();
    let (one, iov) = (1u64, buffer(1, 0));
    let parts = [address(&one), 8];
    let (sync, append) = (2, 0x10);
    for (opcode, fd, errno) in [
        (PWRITE, event.as_raw_fd(), EINVAL),
        (PREAD, epoll.as_raw_fd(), EINVAL),
        (PWRITE, epoll.as_raw_fd(), EINVAL),
        (PREAD, inotify.as_raw_fd(), EINVAL),
        (PWRITE, inotify.as_raw_fd(), EBADF),
        (PREAD, maps.as_raw_fd(), EINVAL),
        (PWRITE, maps.as_raw_fd(), EBADF),
        (PREAD, dir.as_raw_fd(), EINVAL),
    ] {
        let plain = match opcode {
            PWRITE => Iocb { opcode, fd, buf: address(&one), nbytes: 8, ..Iocb::default() },
            _ => at(opcode, fd, &mut iov[..8]),
        };
        let vector = Iocb { opcode: opcode + PREADV, buf: address(&parts), nbytes: 1, ..plain };
        for bad in [plain, vector] {
            for rw_flags in [0, sync, append] {
                let bad = Iocb { rw_flags, ..bad };
                assert_eq!(aio.submit(&[&bad]), err(errno), "{bad:?}");
            }
        }
    }
    assert_eq!(aio.wait(0, &mut [Event::default()], None), 0);
    // Nothing was added.
    let read = at(PREAD, event.as_raw_fd(), &mut iov[..8]);
    assert_eq!(aio.submit(&[&read]), 1);
    assert_eq!(aio.all(1)[0].res, err(EAGAIN));
}

/// A request of no bytes reaches the file: an eventfd wants eight bytes, and a datagram can be
/// empty.
fn nothing() {
    let aio = Aio::new(8);
    // SAFETY: no addresses are passed.
    let efd = fresh(unsafe { libc::eventfd(1, libc::EFD_NONBLOCK) });
    let (socket, peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
    peer.set_nonblocking(true).unwrap();
    for (iocb, res) in [
        (at(PREAD, efd.as_raw_fd(), &mut []), err(EINVAL)),
        (Iocb { opcode: PREADV, ..at(PREAD, efd.as_raw_fd(), &mut []) }, err(EINVAL)),
        (at(PWRITE, socket.as_raw_fd(), &mut []), 0),
    ] {
        assert_eq!(aio.submit(&[&iocb]), 1);
        assert_eq!(aio.all(1)[0].res, res, "{iocb:?}");
    }
    assert_eq!(peer.recv(&mut [0; 8]).unwrap(), 0);
}

/// A file that does not know RWF_NOWAIT makes io_submit fail. ext4 knows it, and answers by an
/// event that it cannot write so through the page cache.
fn nowait_files() {
    const EXT4_SUPER_MAGIC: i64 = 0xef53;
    let (aio, buffered) = (Aio::new(8), file(false, 1));
    // SAFETY: a string of ours.
    let memory = fresh(unsafe { libc::memfd_create(c"nowait".as_ptr(), 0) });
    // SAFETY: zero is a valid statfs, which is ours.
    let fs = unsafe {
        let mut fs: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::fstatfs(buffered.as_raw_fd(), &raw mut fs), 0);
        fs.f_type
    };
    let data = buffer(1, 7);
    for opcode in [PREAD, PWRITE] {
        let iocb = Iocb { rw_flags: NOWAIT, ..at(opcode, memory.as_raw_fd(), data) };
        assert_eq!(aio.submit(&[&iocb]), err(EOPNOTSUPP));
    }
    if fs != EXT4_SUPER_MAGIC {
        return;
    }
    for nbytes in [0, BLOCK as u64] {
        let write = at(PWRITE, buffered.as_raw_fd(), data);
        let write = Iocb { rw_flags: NOWAIT, nbytes, ..write };
        assert_eq!(aio.submit(&[&write]), 1);
        assert_eq!(aio.all(1)[0].res, err(EOPNOTSUPP), "{nbytes}");
    }
}

/// A context takes a certain number of requests from one processor before EAGAIN: as many as fit
/// into whole pages of events, without the last partial batch. Each possible processor makes four
/// batches.
fn capacity() {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let Some((_, last)) = possible.trim().split_once('-') else { return };
    let Ok(last) = last.parse::<u64>() else { return };
    let batches = 4 * (last + 1);
    pin();
    // These are done at once, and nobody takes their events.
    let file = file(false, 1);
    let cbs = vec![rw(PREAD, &file, buffer(1, 0), 0, 1); 4096];
    for nr in [1, 64, 100, 128, 1000] {
        let aio = Aio::new(nr);
        let bytes = 32 * (2 * batches.max(nr.into()) + 2 + 1);
        let events = (bytes.next_multiple_of(4096) - 32) / 32 - 1;
        let fits = events - events % (events / batches).max(1);
        // In one call, then one by one.
        let list: Vec<&Iocb> = cbs[..20].iter().collect();
        assert_eq!(aio.submit(&list), 20);
        let one_by_one = cbs[20..].iter().take_while(|cb| aio.submit(&[cb]) == 1).count() as u64;
        assert_eq!(one_by_one + 20, fits, "{nr}");
        assert_eq!(aio.submit(&[&cbs[4095]]), err(EAGAIN));
    }
}

/// Pins the thread to one processor: each processor has its own batches.
fn pin() {
    // SAFETY: zero is a valid set, which is ours.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let here = libc::sched_getcpu();
        libc::CPU_SET(here as usize, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}
