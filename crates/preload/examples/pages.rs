//! A program that reads its own statistics page, and that of a forked child. `pages on` expects
//! pages, `pages off` none.
#![allow(unsafe_code)]

use io_uring::{IoUring, opcode};
use softring_engine::stats::{NAME, read};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

type Outcome = Result<(), String>;

fn nops(ring: &mut IoUring, n: u32) -> Outcome {
    for _ in 0..n {
        let nop = opcode::Nop::new().build();
        // SAFETY: a NOP refers to nothing.
        unsafe { ring.submission().push(&nop) }.map_err(|e| e.to_string())?;
        ring.submit_and_wait(1).map_err(|e| format!("enter: {e}"))?;
    }
    Ok(())
}

/// Reads this process's own page: SQEs of each open ring, and of all ended rings.
fn page() -> Option<(Vec<u64>, u64)> {
    let pages = std::fs::read_dir("/proc/self/fd").ok()?.filter_map(|e| {
        let path = e.ok()?.path();
        let link = std::fs::read_link(&path).ok()?;
        let ours = link.to_string_lossy().starts_with(&format!("/memfd:{NAME}"));
        if !ours {
            return None;
        }
        let file = std::fs::File::open(path).ok()?;
        read::file(softring_host::sys::borrow(file.as_raw_fd())?).ok()
    });
    let mine = pages.filter(|p| p.pid == std::process::id()).collect::<Vec<_>>();
    assert!(mine.len() < 2, "one page per process");
    let mine = mine.first()?;
    Some((mine.rings.iter().map(read::Ring::submitted).collect(), mine.ended.submitted()))
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}

fn ring() -> Result<IoUring, String> {
    IoUring::new(4).map_err(|e| format!("setup: {e}"))
}

fn child(inherited: &mut IoUring, on: bool) -> Outcome {
    equal("a child's, before it submits", page(), None)?;
    nops(inherited, 5)?;
    equal("its own", page(), on.then(|| (vec![5], 0)))?;
    let mut second = ring()?;
    nops(&mut second, 1)?;
    equal("with a ring of its own", page(), on.then(|| (vec![5, 1], 0)))
}

fn run(on: bool) -> Outcome {
    equal("before any ring", page(), None)?;
    let (mut a, mut b) = (ring()?, ring()?);
    nops(&mut a, 2)?;
    nops(&mut b, 3)?;
    equal("two rings", page(), on.then(|| (vec![2, 3], 0)))?;
    let mut status = 0;
    // SAFETY: the child does no more than this program does alone.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            drop(b);
            let done = child(&mut a, on);
            if let Err(e) = &done {
                eprintln!("child: {e}");
            }
            libc::_exit(i32::from(done.is_err()));
        }
        libc::waitpid(pid, &raw mut status, 0);
    }
    equal("child", status, 0)?;
    drop(b);
    equal("one has ended", page(), on.then(|| (vec![2], 3)))
}

fn main() -> ExitCode {
    match run(std::env::args().nth(1).as_deref() != Some("off")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
