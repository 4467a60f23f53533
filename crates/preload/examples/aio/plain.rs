//! Behaviour of the kernel's aio. Each case also holds on softring, polled or emulated.

use super::Case;
use super::sys::*;
use libc::{EAGAIN, EBADF, EFAULT, EINPROGRESS, EINTR, EINVAL};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("direct", direct),
    ("buffered", buffered),
    ("vectored", vectored),
    ("fsync", fsync),
    ("setup_refuses", setup_refuses),
    ("submit_refuses", submit_refuses),
    ("partial", partial),
    ("wait_refuses", wait_refuses),
    ("times", times),
    ("eventfd", eventfd),
    ("poll", poll),
    ("streams", streams),
    ("signals", signals),
    ("waits_first", waits_first),
    ("ends_under_a_waiter", ends_under_a_waiter),
    ("threads", threads),
    ("fork", fork),
    ("exhausted", exhausted),
];

fn direct() {
    roundtrip(true);
}

fn buffered() {
    roundtrip(false);
}

/// Writes blocks and reads them back; each event has the iocb's address and data.
fn roundtrip(direct: bool) {
    let (aio, file) = (Aio::new(16), file(direct, 8));
    let mut bufs: Vec<_> = (1..=8).map(|i| buffer(1, i)).collect();
    let writes: Vec<Iocb> =
        bufs.iter_mut().zip(0..).map(|(b, i)| rw(PWRITE, &file, b, i, 100 + i as u64)).collect();
    assert_eq!(aio.submit(&writes.iter().collect::<Vec<_>>()), 8);
    for (e, (cb, i)) in aio.all(8).iter().zip(writes.iter().zip(0..)) {
        assert_eq!(*e, Event { data: 100 + i, obj: address(cb), res: BLOCK as i64, res2: 0 });
    }
    let back = buffer(8, 0);
    let read = rw(PREAD, &file, back, 0, 7);
    for _ in 0..50 {
        back.fill(0);
        assert_eq!(aio.submit(&[&read]), 1);
        assert_eq!(aio.all(1)[0].res, 8 * BLOCK as i64);
        assert!(back.chunks(BLOCK).zip(1..).all(|(b, i)| b.iter().all(|&x| x == i)));
    }
    let mut e = [Event::default()];
    assert_eq!(aio.wait(0, &mut e, None), 0);
    assert_eq!(aio.wait(1, &mut e, Some(0)), 0);
    assert_eq!(aio.destroy(), 0);
    assert_eq!(aio.destroy(), err(EINVAL));
}

fn vectored() {
    let (aio, file) = (Aio::new(4), file(true, 2));
    let (a, b) = (buffer(1, 3), buffer(1, 4));
    let iov = [a.as_mut_ptr().addr(), BLOCK, b.as_mut_ptr().addr(), BLOCK];
    let of = |opcode| Iocb { buf: address(&iov), nbytes: 2, ..rw(opcode, &file, &mut [], 0, 0) };
    assert_eq!(aio.submit(&[&of(PWRITEV)]), 1);
    assert_eq!(aio.all(1)[0].res, 2 * BLOCK as i64);
    a.fill(0);
    assert_eq!(aio.submit(&[&of(PREADV)]), 1);
    assert_eq!(aio.all(1)[0].res, 2 * BLOCK as i64);
    assert!(a[0] == 3 && b[BLOCK - 1] == 4);
}

fn fsync() {
    let aio = Aio::new(4);
    for direct in [true, false] {
        let file = file(direct, 1);
        let sync = |opcode, data| Iocb { opcode, data, fd: file.as_raw_fd(), ..Iocb::default() };
        let write = rw(PWRITE, &file, buffer(1, 1), 0, 1);
        assert_eq!(aio.submit(&[&write, &sync(FSYNC, 2), &sync(FSYNC + 1, 3)]), 3);
        let res: Vec<i64> = aio.all(3).iter().map(|e| e.res).collect();
        assert_eq!(res, [BLOCK as i64, 0, 0]);
    }
}

fn setup_refuses() {
    let mut id = 0;
    assert_eq!(setup(0, &mut id), err(EINVAL));
    id = 5;
    assert_eq!(setup(4, &mut id), err(EINVAL));
    assert_eq!(setup(4, std::ptr::null_mut()), err(EFAULT));
    // The kernel doubles the number, in 32 bits.
    const ABSURD: u32 = 1 << 22;
    for (nr, errno) in [
        (1 << 22, EAGAIN),
        (ABSURD + 1, EINVAL),
        (1 << 23, EINVAL),
        (i32::MAX as u32, EINVAL),
        (1 << 31, EAGAIN),
        ((1 << 31) + ABSURD, EAGAIN),
        ((1 << 31) + ABSURD + 1, EINVAL),
        (u32::MAX, EINVAL),
    ] {
        id = 0;
        assert_eq!((setup(nr, &mut id), id), (err(errno), 0), "{nr:#x}");
    }
    let (_right, wrong) = (Aio::new(1), Aio(1 << 20));
    assert_eq!(wrong.submit(&[]), err(EINVAL));
    assert_eq!(wrong.wait(0, &mut [Event::default()], None), err(EINVAL));
}

fn submit_refuses() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let good = rw(PREAD, &file, buffer(1, 0), 0, 0);
    let read_only = std::fs::File::open("/dev/zero").unwrap();
    let write = rw(PWRITE, &read_only, buffer(1, 0), 0, 0);
    for (bad, errno) in [
        (Iocb { opcode: 99, ..good }, EINVAL),
        (Iocb { reserved2: 1, ..good }, EINVAL),
        (Iocb { nbytes: u64::MAX, ..good }, EINVAL),
        (Iocb { fd: -1, ..good }, EBADF),
        (Iocb { flags: RESFD, resfd: -1, ..good }, EBADF),
        (Iocb { flags: RESFD, resfd: file.as_raw_fd(), ..good }, EINVAL),
        (Iocb { opcode: FSYNC, ..good }, EINVAL),
        (write, EBADF),
    ] {
        assert_eq!(aio.submit(&[&bad]), err(errno), "{errno}");
        assert_eq!(aio.submit(&[&good, &bad, &good]), 1);
        assert_eq!(aio.all(1)[0].obj, address(&good));
    }
    assert_eq!(aio.submit_at(-1, null()), err(EINVAL));
    assert_eq!(aio.submit_at(0, null()), 0);
    assert_eq!(aio.submit_at(1, null()), err(EFAULT));
    assert_eq!(aio.submit_at(1, [null()].as_ptr()), err(EFAULT));
    assert_eq!(aio.submit_at(2, [&raw const good, null()].as_ptr()), 1);
    assert_eq!(aio.all(1).len(), 1);
}

/// Submits many in one call, one of which is refused.
fn partial() {
    let (aio, file) = (Aio::new(128), file(true, 1));
    let good = rw(PREAD, &file, buffer(1, 0), 0, 0);
    let bad = Iocb { opcode: 99, ..good };
    let mut list = vec![&good; 100];
    list[70] = &bad;
    assert_eq!(aio.submit(&list), 70);
    aio.all(70);
    assert_eq!(aio.submit(&list[70..]), err(EINVAL));
}

fn wait_refuses() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let mut e = [Event::default(); 2];
    assert_eq!(aio.wait(3, &mut e, None), err(EINVAL));
    assert_eq!(aio.wait(-1, &mut e, None), err(EINVAL));
    let read = rw(PREAD, &file, buffer(1, 0), 0, 9);
    assert_eq!(aio.submit(&[&read]), 1);
    let nowhere = std::ptr::without_provenance_mut(8);
    assert_eq!(aio.wait_at(1, 1, nowhere, None), err(EFAULT));
    // The event is still there.
    assert_eq!(aio.all(1)[0].data, 9);
}

fn times() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let mut e = [Event::default(); 2];
    for submits in [false, true] {
        let begun = Instant::now();
        assert_eq!(aio.wait(1, &mut e, Some(30)), 0);
        assert!(begun.elapsed() >= Duration::from_millis(30));
        if submits {
            break;
        }
        let read = rw(PREAD, &file, buffer(1, 0), 0, 0);
        assert_eq!(aio.submit(&[&read]), 1);
        // One event comes, the other does not.
        assert_eq!(aio.wait(2, &mut e, Some(30)), 1);
    }
}

fn eventfd() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    // SAFETY: a fresh descriptor.
    let mut efd = unsafe { std::fs::File::from_raw_fd(libc::eventfd(0, 0)) };
    let told =
        Iocb { flags: RESFD, resfd: efd.as_raw_fd(), ..rw(PREAD, &file, buffer(1, 0), 0, 1) };
    let mut sum = 0;
    assert_eq!(aio.submit(&[&told, &told, &told]), 3);
    while sum < 3 {
        let mut n = [0; 8];
        efd.read_exact(&mut n).unwrap();
        sum += u64::from_ne_bytes(n);
    }
    // The events are there once the eventfd has told of them.
    assert_eq!(aio.wait(0, &mut [Event::default(); 8], None), 3);
}

fn poll() {
    let aio = Aio::new(8);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let cb = Iocb { opcode: POLL, fd: reader.as_raw_fd(), buf: 1, data: 5, ..Iocb::default() };
    assert_eq!(aio.submit(&[&cb]), 1);
    assert_eq!(aio.wait(1, &mut [Event::default()], Some(20)), 0);
    assert_eq!(aio.cancel(&cb), err(EINPROGRESS));
    assert_eq!((aio.all(1)[0].res, aio.cancel(&cb)), (0, err(EINVAL)));
    assert_eq!(aio.submit(&[&cb]), 1);
    writer.write_all(b"x").unwrap();
    assert_eq!(aio.all(1)[0].res & 1, 1);
    let (quiet, _kept) = std::io::pipe().unwrap();
    let cb = Iocb { fd: quiet.as_raw_fd(), ..cb };
    assert_eq!(aio.submit(&[&cb]), 1);
    // A request that nobody ends does not keep the context.
    assert_eq!(aio.destroy(), 0);
}

/// Writes and reads a pipe, which needs no position.
fn streams() {
    let aio = Aio::new(8);
    let (reader, writer) = std::io::pipe().unwrap();
    let (out, back) = (buffer(1, 8), buffer(1, 0));
    let of = |opcode, fd, buf: &mut [u8]| Iocb {
        opcode,
        fd,
        buf: buf.as_mut_ptr().expose_provenance() as u64,
        nbytes: 100,
        ..Iocb::default()
    };
    let write = of(PWRITE, writer.as_raw_fd(), out);
    assert_eq!((aio.submit(&[&write]), aio.all(1)[0].res), (1, 100));
    let read = of(PREAD, reader.as_raw_fd(), back);
    assert_eq!((aio.submit(&[&read]), aio.all(1)[0].res), (1, 100));
    assert_eq!(back[99], 8);
}

extern "C" fn nothing(_: i32) {}

/// Sends SIGALRM in 30 ms, with a handler that does nothing.
fn alarm() {
    let every = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let it = libc::itimerval {
        it_interval: every,
        it_value: libc::timeval { tv_usec: 30_000, ..every },
    };
    // SAFETY: zero is a valid sigaction; the handler is one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &raw const it, std::ptr::null_mut());
    }
}

fn signals() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let mut e = [Event::default(); 2];
    let read = rw(PREAD, &file, buffer(1, 0), 0, 0);
    for submits in [false, true] {
        alarm();
        assert_eq!(aio.wait(1, &mut e, None), err(EINTR));
        alarm();
        assert_eq!(aio.pwait(1, &mut e), err(EINTR));
        if submits {
            break;
        }
        assert_eq!(aio.submit(&[&read]), 1);
        alarm();
        // One event comes, then the signal instead of the other.
        assert_eq!(aio.wait(2, &mut e, None), 1);
    }
    assert_eq!(aio.submit(&[&read]), 1);
    assert_eq!(aio.pwait(1, &mut e), 1);
}

/// A thread asks for events before there is anything to wait for.
fn waits_first() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    std::thread::scope(|s| {
        let waiter = s.spawn(|| aio.all(1));
        std::thread::sleep(Duration::from_millis(30));
        let read = rw(PREAD, &file, buffer(1, 0), 0, 3);
        assert_eq!(aio.submit(&[&read]), 1);
        assert_eq!(waiter.join().unwrap()[0].data, 3);
    });
}

fn ends_under_a_waiter() {
    let file = file(true, 1);
    for used in [false, true] {
        let aio = Aio::new(8);
        if used {
            assert_eq!(aio.submit(&[&rw(PREAD, &file, buffer(1, 0), 0, 3)]), 1);
            aio.all(1);
        }
        std::thread::scope(|s| {
            let waiter = s.spawn(|| aio.wait(1, &mut [Event::default()], None));
            // One waiter is in its first peek, one asleep.
            std::thread::sleep(Duration::from_micros(if used { 300 } else { 20_000 }));
            assert_eq!(aio.destroy(), 0);
            assert_eq!(waiter.join().unwrap(), err(EINVAL));
        });
    }
}

/// Four threads submit and take on one context; nothing is lost, nothing comes twice.
fn threads() {
    const EACH: usize = 1500;
    let (aio, file) = (Aio::new(64), file(true, 16));
    let (taken, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|s| {
        for t in 0..4 {
            let (aio, file, taken, sum) = (&aio, &file, &taken, &sum);
            s.spawn(move || {
                let buf = buffer(1, 0);
                for i in 0..EACH {
                    let cb = rw(PREAD, file, buf, (i % 16) as i64, (t * EACH + i) as u64);
                    assert_eq!(aio.submit(&[&cb]), 1);
                    let mut e = [Event::default(); 3];
                    // Other threads may have taken it.
                    let n = aio.wait(1, &mut e, Some(20));
                    let got = &e[..n.try_into().unwrap()];
                    taken.fetch_add(got.len(), Relaxed);
                    sum.fetch_add(got.iter().map(|e| e.data as usize).sum(), Relaxed);
                    assert!(got.iter().all(|e| e.res == BLOCK as i64));
                }
            });
        }
    });
    let left = aio.all(4 * EACH - taken.into_inner());
    let sum = sum.into_inner() + left.iter().map(|e| e.data as usize).sum::<usize>();
    assert_eq!(sum, (0..4 * EACH).sum());
}

fn fork() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let read = rw(PREAD, &file, buffer(1, 0), 0, 4);
    assert_eq!(aio.submit(&[&read]), 1);
    // SAFETY: one thread; the child ends by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        assert_eq!(aio.submit(&[&read]), err(EINVAL));
        assert_eq!(aio.wait(1, &mut [Event::default()], None), err(EINVAL));
        let own = Aio::new(8);
        assert_eq!((own.submit(&[&read]), own.all(1)[0].data), (1, 4));
        // SAFETY: ends the child.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert_eq!(aio.all(1)[0].data, 4);
}

/// Submits more than the context has room for: some are taken, then comes EAGAIN; later it goes on.
fn exhausted() {
    let aio = Aio::new(1);
    let (quiet, _kept) = std::io::pipe().unwrap();
    let cbs = vec![Iocb { opcode: POLL, fd: quiet.as_raw_fd(), buf: 1, ..Iocb::default() }; 20_000];
    let mut n = 0;
    while let 1 = aio.submit(&[&cbs[n]]) {
        n += 1;
    }
    assert!(n >= 1 && aio.submit(&[&cbs[n]]) == err(EAGAIN), "{n}");
    assert_eq!(aio.cancel(&cbs[0]), err(EINPROGRESS));
    assert_eq!((aio.all(1)[0].res, aio.submit(&[&cbs[n]])), (0, 1));
}
