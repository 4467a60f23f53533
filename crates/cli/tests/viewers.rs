//! Viewers run as root, and the processes that they read may be anybody's: one that changes a file
//! while it is read, and one that shows a page made to be read for ever.

mod common;

use common::{ME, text};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use softring_engine::stats::{Header, Hist, MAGIC, NAME, OPS, RingStats, VERSION};
use softring_host::limits::STATS_RINGS;
use std::fs::File;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn view(args: &[&str]) -> Output {
    let me = std::process::id().to_string();
    Command::new(ME).args(args).args(["-p", &me]).output().expect("softring starts")
}

/// Tries a number that means, in turn, a file in memory that is called `name`, and a file on a
/// disk, which nobody opens.
fn swapped(name: &str, args: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let decoy = File::create(dir.path().join("decoy")).unwrap();
    let page = memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
    let mut number: OwnedFd = page.try_clone().unwrap();
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, dir.path().join("decoy"), WatchFlags::OPEN).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Relaxed) {
                rustix::io::dup2(&page, &mut number).unwrap();
                rustix::io::dup2(&decoy, &mut number).unwrap();
            }
        });
        for _ in 0..60 {
            view(args);
        }
        done.store(true, Relaxed);
    });
    let mut room = [MaybeUninit::uninit(); 4096];
    let opened = inotify::Reader::new(&watch, &mut room)
        .next()
        .is_ok_and(|event| event.events().contains(ReadFlags::OPEN));
    assert!(!opened, "{args:?} has opened a file of its target's choice");
}

#[test]
fn statistics_are_opened_only_after_a_check() {
    swapped("softring-stats", &["stats"]);
}

#[test]
fn a_trace_is_opened_only_after_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json").display().to_string();
    swapped("softring-trace", &["trace", "-o", &file, "--seconds", "0.01"]);
}

/// Checks that every viewer refuses the page of this process, in one line, with little memory.
fn refused() {
    let me = std::process::id().to_string();
    for command in ["stats", "stats --json", "top --once --delay 0.1", "stat --seconds 0.1"] {
        let limited = format!("ulimit -v 100000; exec {ME} {command} -p {me}");
        let o = Command::new("sh").args(["-c", &limited]).output().unwrap();
        let said = text(&o.stderr);
        assert_eq!(o.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("softring did not write"), "{command}: {said}");
    }
    for command in ["stats", "stats --format prometheus", "top --once --delay 0.1"] {
        let o = Command::new(ME).args(command.split(' ')).output().unwrap();
        let said = text(&o.stderr);
        assert!(o.status.success(), "{command}: {said}");
        let of_us = said.lines().filter(|l| l.contains("softring did not write"));
        assert_eq!(of_us.count(), 1, "{command}: {said}");
    }
}

/// Pages of 116 MB, and of places so small that there are millions of them, are not read. Of a page
/// with as much as the writer can make, no more is read than it has.
#[test]
fn an_oversized_page_is_refused() {
    const SIZE: u64 = size_of::<RingStats>() as u64;
    let whole = page(true, SIZE, 65_536);
    refused();
    drop(whole);
    let small = page(true, 8, 4 << 20);
    refused();
    drop(small);
    let most = page(true, SIZE, STATS_RINGS as u64);
    let me = std::process::id().to_string();
    for command in ["stats", "stats --json", "stats --format prometheus", "top --once -d 0.1"] {
        let limited = format!("ulimit -v 150000; exec {ME} {command} -p {me}");
        let o = Command::new("sh").args(["-c", &limited]).output().unwrap();
        assert!(o.status.success(), "{command}: {}", text(&o.stderr));
    }
    drop(most);
    // A page that is not sealed may grow while it is read.
    let open = page(false, SIZE, 1);
    assert_eq!(view(&["stats"]).status.code(), Some(1));
    drop(open);
}

/// Makes a page with `rings` rings, of places of `size` bytes, that are all taken.
fn page(sealed: bool, size: u64, rings: u64) -> File {
    let file = memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file = File::from(file.unwrap());
    let start = 4096;
    file.set_len(start + rings * size).unwrap();
    let word = |at: u64, value: u64| file.write_all_at(&value.to_ne_bytes(), at).unwrap();
    let me = u64::from(std::process::id());
    word(offset_of!(Header, version) as u64, VERSION);
    word(offset_of!(Header, pid) as u64, me);
    word(offset_of!(Header, header_size) as u64, size_of::<Header>() as u64);
    word(offset_of!(Header, magic) as u64, MAGIC);
    let section = |at: usize, size: u64, places: u64| {
        let words = [start, size, places, places];
        words.iter().zip(0..).for_each(|(&value, i)| word(at as u64 + 8 * i, value));
    };
    section(offset_of!(Header, rings), size, rings);
    section(offset_of!(Header, hists), size_of::<Hist>() as u64, 1);
    // Counts are as large as they can be; the place after the sums has the first of the rings.
    let words = vec![u64::MAX; (rings * size / 8) as usize];
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    file.write_all_at(&bytes, start).unwrap();
    word(start, 0);
    for ring in (0..rings).filter(|_| size >= size_of::<RingStats>() as u64) {
        let at = start + ring * size;
        word(at + offset_of!(RingStats, id) as u64, ring);
        let names = at + offset_of!(RingStats, op_hists) as u64;
        (0..OPS as u64).for_each(|op| word(names + 8 * op, 1));
    }
    if sealed {
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK).unwrap();
    }
    file
}
