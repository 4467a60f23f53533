//! Memory that is served late (userfaultfd): only a request that reads into it waits.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::{Check, ensure};
use super::{Context, content, one, wrong};
use crate::os;
use crate::ring::Map;
use crate::sqe;

const PAGE: usize = 4096;
/// Longest delay of the page; a wait for a part of that delay is a wait for the page.
const STALL: Duration = Duration::from_secs(4);
const TOO_LONG: Duration = Duration::from_secs(2);

/// `struct uffdio_api`, `uffdio_register`, `uffdio_zeropage`, and their ioctls.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;

/// A page of memory that is missing until it is served.
struct Late {
    page: Map,
    faults: OwnedFd,
}

impl Late {
    /// Maps a page; `None` if the system denies userfaultfd(2).
    fn new() -> Check<Option<Late>> {
        let page = Map::anonymous(PAGE).map_err(wrong)?;
        let how = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the arguments are numbers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, how) };
        if fd < 0 {
            return Ok(None);
        }
        let faults = os::own(fd as i32);
        let mut api = [0xaa_u64, 0, 0];
        let mut range = [page.addr as u64, PAGE as u64, 1, 0];
        // SAFETY: the structures are live and as large as the requests name; the page is ours.
        let got = unsafe {
            libc::ioctl(faults.as_raw_fd(), UFFDIO_API, &raw mut api)
                | libc::ioctl(faults.as_raw_fd(), UFFDIO_REGISTER, &raw mut range)
        };
        Ok((got == 0).then_some(Late { page, faults }))
    }

    /// Makes the page present.
    fn serve(&self) {
        let mut range = [self.page.addr as u64, PAGE as u64, 0, 0];
        // SAFETY: as above.
        unsafe { libc::ioctl(self.faults.as_raw_fd(), UFFDIO_ZEROPAGE, &raw mut range) };
    }

    /// Returns whether somebody has accessed the page.
    fn is_wanted(&self) -> bool {
        os::poll(self.faults.as_raw_fd(), libc::POLLIN, 1) > 0
    }
}

/// Reads into such a page; meanwhile another thread polls the ring and forks.
pub fn run(p: &mut Context) -> Check<bool> {
    let Some(late) = Late::new()? else { return Ok(false) };
    let path = p.file(PAGE)?;
    let file = std::fs::File::open(&path).map_err(wrong)?;
    std::fs::remove_file(&path).map_err(wrong)?;
    let mut book = p.ring_with(0)?;
    let (ring, forks) = (book.ring.fd, p.rng.bool());
    let (done, took) = (AtomicBool::new(false), std::sync::Mutex::new(Duration::ZERO));
    let addr = late.page.addr;
    let got = std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            while !late.is_wanted() && began.elapsed() < STALL {}
            // A thread that waits for the reader waits until here.
            let came = Instant::now();
            while !done.load(Ordering::Acquire) && came.elapsed() < STALL {
                std::thread::sleep(Duration::from_millis(1));
            }
            late.serve();
        });
        scope.spawn(|| {
            let began = Instant::now();
            while !late.is_wanted() && began.elapsed() < STALL {}
            let began = Instant::now();
            os::poll(ring, libc::POLLIN, 0);
            if forks {
                os::in_child(|| 0);
            }
            *took.lock().unwrap_or_else(|e| e.into_inner()) = began.elapsed();
            done.store(true, Ordering::Release);
        });
        let read = sqe::rw(softring_uapi::IORING_OP_READ, file.as_raw_fd(), addr, PAGE, 0);
        one(&mut book, read)
    })?;
    ensure(got == PAGE as i32, || format!("READ: {got}"))?;
    let same = super::super::sys::bytes(addr, PAGE) == content(PAGE);
    ensure(same, || "READ brought other bytes".into())?;
    let took = *took.lock().unwrap_or_else(|e| e.into_inner());
    ensure(took < TOO_LONG, || {
        format!("poll{} waited {took:?} for another's page", if forks { " or fork" } else { "" })
    })?;
    p.close(book)?;
    Ok(true)
}
