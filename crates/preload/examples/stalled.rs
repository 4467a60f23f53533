//! A program whose disk is slow: `stalled CASE` exits with 0 if the case holds, on the kernel's
//! rings and on ours. If no disk can be made slow, it prints so and exits with 77.
//!
//! The disk is a real one: the process enters a group of blkio (version 1 of cgroups), in which a
//! block takes two seconds.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const GROUPS: &str = "/sys/fs/cgroup/blkio";
const SKIPPED: u8 = 77;

/// A limit on this process's reads from the disk of a file, while it lives.
struct Slow {
    group: PathBuf,
    disk: String,
}

impl Slow {
    fn new(file: &File) -> Option<Slow> {
        let dev = file.metadata().unwrap().dev();
        let number = format!("{}:{}", libc::major(dev), libc::minor(dev));
        // A partition's limits are those of its disk.
        let own = PathBuf::from(format!("/sys/dev/block/{number}"));
        let whole =
            if own.join("partition").exists() { own.join("../dev") } else { own.join("dev") };
        let disk = std::fs::read_to_string(whole).ok()?.trim().to_owned();
        let group = PathBuf::from(format!("{GROUPS}/softring-{}", std::process::id()));
        std::fs::create_dir(&group).ok()?;
        let slow = Slow { group, disk };
        slow.limit(BLOCK / 2)?;
        std::fs::write(slow.group.join("cgroup.procs"), std::process::id().to_string()).ok()?;
        Some(slow)
    }

    fn limit(&self, bytes: usize) -> Option<()> {
        let limit = format!("{} {bytes}", self.disk);
        std::fs::write(self.group.join("blkio.throttle.read_bps_device"), limit).ok()
    }
}

impl Drop for Slow {
    /// Removes the limit: reads in flight go on at once.
    fn drop(&mut self) {
        let _ = self.limit(0);
        let _ = std::fs::write(format!("{GROUPS}/cgroup.procs"), std::process::id().to_string());
        let _ = std::fs::remove_dir(&self.group);
    }
}

#[repr(align(4096))]
struct Blocks([[u8; BLOCK]; 8]);

fn file() -> File {
    let dir = std::env::var("STALLED_DIR").unwrap_or_else(|_| ".".into());
    let path = format!("{dir}/stalled-{}", std::process::id());
    std::fs::write(&path, [7; 8 * BLOCK]).unwrap();
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    // SAFETY: a descriptor of ours.
    unsafe { libc::fsync(file.as_raw_fd()) };
    file
}

/// Makes a ring with `n` reads in flight into memory that lives as long as the process.
fn ring(file: &File, n: usize) -> IoUring {
    let mut ring = IoUring::new(8).unwrap();
    let blocks = Box::leak(Box::new(Blocks([[0; BLOCK]; 8])));
    for (i, block) in blocks.0.iter_mut().take(n).enumerate() {
        let at = types::Fd(file.as_raw_fd());
        let read = opcode::Read::new(at, block.as_mut_ptr(), BLOCK as u32);
        let read = read.offset((i * BLOCK) as u64).build();
        // SAFETY: the blocks are never freed.
        unsafe { ring.submission().push(&read) }.unwrap();
    }
    ring.submit().unwrap();
    ring
}

fn took(what: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    what();
    begun.elapsed()
}

/// Checks that neither close nor dup2 nor close_range of a ring waits for its disk.
fn closes(slow: Slow, file: &File) {
    const SOON: Duration = Duration::from_millis(800);
    let rings: Vec<i32> = (0..3).map(|_| ring(file, 2)).map(into_number).collect();
    // SAFETY: numbers of this program's own.
    let times = unsafe {
        [
            took(|| assert_eq!(libc::close(rings[0]), 0)),
            took(|| assert_eq!(libc::dup2(0, rings[1]), rings[1])),
            took(|| {
                let [fd, flags] = [rings[2].cast_unsigned(), 0];
                assert_eq!(libc::close_range(fd, fd, flags.cast_signed()), 0);
            }),
        ]
    };
    drop(slow);
    assert!(times.iter().all(|&took| took < SOON), "{times:?}");
}

/// Returns the ring's descriptor, without the mappings.
fn into_number(ring: IoUring) -> i32 {
    // SAFETY: the ring ends; its descriptor has a second number.
    let fd = unsafe { libc::dup(ring.as_raw_fd()) };
    drop(ring);
    assert!(fd >= 0);
    fd
}

/// Checks that a ring with nothing in flight any more is closed without a wait.
fn closes_idle(slow: Slow, file: &File) {
    drop(slow);
    let all: Duration = (0..50)
        .map(|_| {
            let mut ring = ring(file, 1);
            ring.submit_and_wait(1).unwrap();
            assert_eq!(ring.completion().next().unwrap().result(), BLOCK as i32);
            took(|| drop(ring))
        })
        .sum();
    // A grace period of the kernel's takes tens of milliseconds.
    assert!(all < Duration::from_millis(400), "{all:?}");
}

/// Returns how often the calling thread has slept.
fn sleeps() -> i64 {
    // SAFETY: zero is a valid rusage, which is ours.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Checks that a thread sleeps while it waits for a stalled device.
fn waits(slow: Slow, file: &File) {
    waits_on(slow, ring(file, 1));
}

/// Checks the same on a polled ring.
fn waits_polled(slow: Slow, file: &File) {
    waits_on(slow, polled_ring(file));
}

/// Checks that an SQ thread that polls for a stalled disk sleeps, once its idle time is over.
fn waits_sq_thread(slow: Slow, file: &File) {
    let mut builder = IoUring::builder();
    let mut ring: IoUring = builder.setup_iopoll().setup_sqpoll(20).build(4).unwrap();
    push_read(&mut ring, file);
    let before = cpu_time();
    // The result is ignored: the SQ thread may submit any number.
    let waited = took(|| _ = ring.submit_and_wait(1).unwrap());
    let cpu = cpu_time() - before;
    drop(slow);
    assert_eq!(ring.completion().next().unwrap().result(), BLOCK as i32);
    assert!(waited > Duration::from_secs(1), "{waited:?}");
    assert!(cpu < Duration::from_millis(200), "{cpu:?}");
}

/// Returns the processor time of the process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a time of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Checks that a completion which another thread posts ends the wait.
fn posted_meanwhile(slow: Slow, file: &File) {
    let mut ring = polled_ring(file);
    let waited = std::thread::scope(|s| {
        let ring = &ring;
        let other = s.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            let nop = opcode::Nop::new().build().user_data(9);
            // SAFETY: no other thread submits; a NOP names no memory.
            unsafe { ring.submission_shared().push(&nop) }.unwrap();
            ring.submitter().submit().unwrap();
        });
        let waited = took(|| assert_eq!(ring.submitter().submit_and_wait(1).unwrap(), 0));
        other.join().unwrap();
        waited
    });
    assert_eq!(ring.completion().next().unwrap().user_data(), 9);
    drop(slow);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

/// Makes a polled ring with a read in flight.
fn polled_ring(file: &File) -> IoUring {
    let mut ring: IoUring = IoUring::builder().setup_iopoll().build(4).unwrap();
    push_read(&mut ring, file);
    ring.submit().unwrap();
    ring
}

fn push_read(ring: &mut IoUring, file: &File) {
    let block = Box::leak(Box::new(Blocks([[0; BLOCK]; 8])));
    let at = types::Fd(file.as_raw_fd());
    let read = opcode::Read::new(at, block.0[0].as_mut_ptr(), BLOCK as u32).build();
    // SAFETY: the block is never freed.
    unsafe { ring.submission().push(&read) }.unwrap();
}

fn waits_on(slow: Slow, mut ring: IoUring) {
    let before = sleeps();
    let waited = took(|| assert_eq!(ring.submit_and_wait(1).unwrap(), 0));
    let slept = sleeps() - before;
    drop(slow);
    assert_eq!(ring.completion().next().unwrap().result(), BLOCK as i32);
    assert!(waited > Duration::from_secs(1), "{waited:?}");
    assert!(slept < 40, "{slept} sleeps");
}

fn main() -> ExitCode {
    let case = match std::env::args().nth(1).as_deref() {
        Some("closes") => closes,
        Some("closes_idle") => closes_idle,
        Some("waits") => waits,
        Some("waits_polled") => waits_polled,
        Some("waits_sq_thread") => waits_sq_thread,
        Some("posted_meanwhile") => posted_meanwhile,
        _ => return ExitCode::FAILURE,
    };
    let file = file();
    let Some(slow) = Slow::new(&file) else {
        println!("no disk can be made slow here");
        return SKIPPED.into();
    };
    case(slow, &file);
    ExitCode::SUCCESS
}
