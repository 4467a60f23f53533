//! Prints how much of a library is resident after it is opened, in KiB: all of it, then the part
//! that is no longer the file's. `resident LIB` exits with 0 if the library's function answers
//! EBADF.
#![allow(unsafe_code)]

use std::process::ExitCode;

/// Returns the sum of a field over the mappings of a file.
fn field(smaps: &str, path: &str, name: &str) -> u64 {
    let (mut here, mut sum) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some(first) if !first.ends_with(':') => here = line.ends_with(path),
            Some(first) if here && first.strip_suffix(':') == Some(name) => {
                sum += words.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    sum
}

fn main() -> ExitCode {
    let path = std::env::args().nth(1).expect("a library");
    let name = std::ffi::CString::new(path.clone()).unwrap();
    // SAFETY: NUL-terminated names; the function takes nothing and returns a long.
    let (smaps, answer) = unsafe {
        let lib = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!lib.is_null(), "dlopen");
        let f = libc::dlsym(lib, c"enter_later".as_ptr());
        let f = core::mem::transmute::<*mut libc::c_void, extern "C" fn() -> isize>(f);
        (std::fs::read_to_string("/proc/self/smaps").unwrap(), f())
    };
    println!("{} {}", field(&smaps, &path, "Rss"), field(&smaps, &path, "Anonymous"));
    if answer == -(libc::EBADF as isize) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
