//! Cases of `IOCB_FLAG_HIPRI`, as its authors defined it.

use super::Case;
use super::sys::*;
use libc::{EAGAIN, EBADF, EFAULT, EINTR, EINVAL, EOPNOTSUPP};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

pub const CASES: &[Case] = &[
    ("polled", polled),
    ("polled_refuses", polled_refuses),
    ("polled_after_refusal", polled_after_refusal),
    ("mixed", mixed),
    ("polled_partial", polled_partial),
    ("polled_unmarked", polled_unmarked),
    ("polled_waits", polled_waits),
    ("polled_waits_first", polled_waits_first),
    ("polled_ends", polled_ends),
    ("polled_threads", polled_threads),
    ("polled_fork", polled_fork),
    ("nothing_left", nothing_left),
];

/// Cases that no emulated context passes, as the library is told of no call that bypasses it.
pub const KERNELS: &[Case] = &[("polled_unreported", polled_unreported)];

fn hipri(cb: Iocb) -> Iocb {
    Iocb { flags: cb.flags | HIPRI, ..cb }
}

fn read(file: &File, data: u64) -> Iocb {
    hipri(rw(PREAD, file, buffer(1, 0), 0, data))
}

/// Makes each of the four commands.
fn polled() {
    let (aio, file) = (Aio::new(16), file(true, 8));
    let (a, b) = (buffer(1, 3), buffer(1, 4));
    let iov = [a.as_mut_ptr().addr(), BLOCK, b.as_mut_ptr().addr(), BLOCK];
    let vector = Iocb { buf: address(&iov), nbytes: 2, ..rw(PWRITEV, &file, &mut [], 0, 1) };
    let back = buffer(3, 0);
    let whole = hipri(rw(PREAD, &file, back, 0, 4));
    let writes = [hipri(vector), hipri(rw(PWRITE, &file, buffer(1, 5), 2, 2))];
    assert_eq!(aio.submit(&[&writes[0], &writes[1]]), 2);
    for (e, cb) in aio.all(2).iter().zip(&writes) {
        let res = if cb.data == 1 { 2 } else { 1 } * BLOCK as i64;
        assert_eq!(*e, Event { data: cb.data, obj: address(cb), res, res2: 0 });
    }
    for _ in 0..300 {
        back.fill(0);
        assert_eq!(aio.submit(&[&whole]), 1);
        assert_eq!(aio.all(1)[0].res, 3 * BLOCK as i64);
        assert!([3, 4, 5] == [0, 1, 2].map(|i| back[i * BLOCK + 9]));
    }
    a.fill(0);
    assert_eq!(aio.submit(&[&hipri(Iocb { opcode: PREADV, ..vector })]), 1);
    assert_eq!((aio.all(1)[0].res, a[7]), (2 * BLOCK as i64, 3));
}

fn polled_refuses() {
    let (direct, buffered) = (file(true, 1), file(false, 1));
    // SAFETY: a fresh descriptor.
    let efd = unsafe { libc::eventfd(0, 0) };
    let good = read(&direct, 1);
    let told = Iocb { flags: HIPRI | RESFD, resfd: efd, ..good };
    let (reader, _writer) = std::io::pipe().unwrap();
    for used in [false, true] {
        let aio = Aio::new(8);
        if used {
            assert_eq!((aio.submit(&[&good]), aio.all(1).len()), (1, 1));
        }
        let fd = direct.as_raw_fd();
        for (bad, errno) in [
            (told, EINVAL),
            (Iocb { opcode: FSYNC, fd, flags: HIPRI, ..Iocb::default() }, EINVAL),
            (Iocb { opcode: FSYNC + 1, fd, flags: HIPRI, ..Iocb::default() }, EINVAL),
            (Iocb { opcode: POLL, fd, buf: 1, flags: HIPRI, ..Iocb::default() }, EINVAL),
            (Iocb { opcode: 6, ..good }, EINVAL),
            (Iocb { opcode: 99, ..good }, EINVAL),
            (Iocb { fd: buffered.as_raw_fd(), ..good }, EOPNOTSUPP),
            (Iocb { fd: reader.as_raw_fd(), ..good }, EOPNOTSUPP),
            (Iocb { fd: -1, ..good }, EBADF),
        ] {
            assert_eq!(aio.submit(&[&bad]), err(errno), "{used} {}", bad.opcode);
        }
    }
}

/// Submits a refused read first, which does not decide the context's kind.
fn polled_after_refusal() {
    let (aio, direct, buffered) = (Aio::new(8), file(true, 1), file(false, 1));
    assert_eq!(aio.submit(&[&read(&buffered, 1)]), err(EOPNOTSUPP));
    let plain = rw(PREAD, &buffered, buffer(1, 0), 0, 2);
    assert_eq!((aio.submit(&[&plain]), aio.all(1)[0].data), (1, 2));
    assert_eq!(aio.submit(&[&read(&direct, 1)]), err(EINVAL));
}

fn mixed() {
    let file = file(true, 1);
    let (yes, no) = (read(&file, 1), rw(PREAD, &file, buffer(1, 0), 0, 2));
    for (first, other) in [(&yes, &no), (&no, &yes)] {
        let aio = Aio::new(8);
        assert_eq!(aio.submit(&[first, other]), 1);
        assert_eq!(aio.submit(&[other]), err(EINVAL));
        assert_eq!(aio.all(1)[0].obj, address(first));
        assert_eq!(aio.submit(&[other]), err(EINVAL));
        assert_eq!((aio.submit(&[first]), aio.all(1).len()), (1, 1));
    }
}

/// The first refused iocb ends the call; its error is the answer only if it was the first of all.
fn polled_partial() {
    let (aio, direct, buffered) = (Aio::new(128), file(true, 1), file(false, 1));
    let (good, bad) = (read(&direct, 1), read(&buffered, 2));
    let mut list = vec![&good; 100];
    for at in [1, 31, 32, 33, 70] {
        list.fill(&good);
        list[at] = &bad;
        assert_eq!(aio.submit(&list), at as i64);
        aio.all(at);
        assert_eq!(aio.submit(&list[at..]), err(EOPNOTSUPP));
    }
    assert_eq!(aio.submit_at(2, [&raw const good, std::ptr::null()].as_ptr()), 1);
    assert_eq!(aio.submit_at(1, [std::ptr::null()].as_ptr()), err(EFAULT));
    aio.all(1);
}

/// The mapped ring has no mark that it may be read; all events come by the call.
fn polled_unmarked() {
    const MAGIC: u32 = 0xa10a_10a1;
    let (aio, file) = (Aio::new(8), file(true, 1));
    assert_eq!((aio.submit(&[&read(&file, 1), &read(&file, 2)]), aio.all(2).len()), (2, 2));
    assert_ne!(aio.ring()[2], MAGIC);
    assert_eq!(aio.wait(0, &mut [Event::default(); 4], Some(0)), 0);
}

/// A thread waits past every entry point, before the first iocb and after it.
fn polled_unreported() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    for data in 1..4 {
        let cb = read(&file, data);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let mut e = Event::default();
                (aio.wait_unreported(&mut e), e.data)
            });
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(aio.submit(&[&cb]), 1);
            assert_eq!(waiter.join().unwrap(), (1, data));
        });
        // The submission bypasses every entry point.
        assert_eq!(aio.submit_unreported(&[&cb]), 1);
        assert_eq!(aio.all(1)[0].data, data);
    }
}

fn polled_waits() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let mut e = [Event::default(); 4];
    let [one, two] = [read(&file, 1), read(&file, 2)];
    assert_eq!(aio.submit(&[&one, &two]), 2);
    assert_eq!(aio.wait(5, &mut e, None), err(EINVAL));
    let begun = std::time::Instant::now();
    assert_eq!(aio.wait(3, &mut e, Some(30)), 2);
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert_eq!(aio.submit(&[&one]), 1);
    let nowhere = std::ptr::without_provenance_mut(8);
    assert_eq!(aio.wait_at(1, 1, nowhere, None), err(EFAULT));
    assert_eq!(aio.pwait(1, &mut e), 1);
    // SAFETY: this thread's own id, which lives; SIGUSR1 has a handler by then.
    unsafe {
        libc::signal(libc::SIGUSR1, nothing as *const () as usize);
        let me = libc::pthread_self();
        let wake_fd = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            libc::pthread_kill(me, libc::SIGUSR1);
        });
        assert_eq!(aio.pwait(1, &mut e), err(EINTR));
        wake_fd.join().unwrap();
    }
    assert_eq!(aio.cancel(&one), err(EINVAL));
}

extern "C" fn nothing(_: i32) {}

/// A thread asks for events before it is known that they will be polled for.
fn polled_waits_first() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    std::thread::scope(|s| {
        let waiter = s.spawn(|| aio.all(1));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(aio.submit(&[&read(&file, 3)]), 1);
        assert_eq!(waiter.join().unwrap()[0].data, 3);
    });
}

/// The context ends while one thread peeks, and with a read in flight.
fn polled_ends() {
    let file = file(true, 1);
    for i in 0..50 {
        let aio = Aio::new(8);
        assert_eq!(aio.submit(&[&read(&file, 1)]), 1);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| aio.wait(2, &mut [Event::default(); 2], None));
            std::thread::sleep(Duration::from_micros(25 * i));
            assert_eq!(aio.destroy(), 0);
            let ended = waiter.join().unwrap();
            assert!(ended == err(EINVAL) || ended == 1, "{ended}");
        });
    }
}

fn polled_threads() {
    const EACH: usize = 1000;
    let (aio, file) = (Aio::new(64), file(true, 16));
    let total = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let cb = read(&file, 1);
                let mut left = EACH;
                while left > 0 {
                    match aio.submit(&[&cb]) {
                        1 => left -= 1,
                        full => assert_eq!(full, err(EAGAIN)),
                    }
                }
            });
            s.spawn(|| {
                let mut e = [Event::default(); 4];
                while total.load(std::sync::atomic::Ordering::SeqCst) < 2 * EACH {
                    let n = aio.wait(1, &mut e, Some(5));
                    assert!(n >= 0, "{n}");
                    total.fetch_add(n as usize, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 2 * EACH);
}

fn polled_fork() {
    let (aio, file) = (Aio::new(8), file(true, 1));
    let cb = read(&file, 4);
    assert_eq!(aio.submit(&[&cb]), 1);
    // SAFETY: one thread; the child ends by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        assert_eq!(aio.submit(&[&cb]), err(EINVAL));
        assert_eq!(aio.wait(1, &mut [Event::default()], None), err(EINVAL));
        assert_eq!(aio.destroy(), err(EINVAL));
        let own = Aio::new(8);
        assert_eq!((own.submit(&[&cb]), own.all(1)[0].data), (1, 4));
        // SAFETY: ends the child.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert_eq!(aio.all(1)[0].data, 4);
}

/// Makes and ends many contexts; a process may not have many at a time (`fs.aio-max-nr`).
fn nothing_left() {
    let file = file(true, 1);
    for _ in 0..40 {
        let aio = Aio::new(1024);
        assert_eq!((aio.submit(&[&read(&file, 3)]), aio.all(1)[0].data), (1, 3));
    }
}
