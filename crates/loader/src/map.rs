//! Maps a library into a stopped program.

use crate::calls::Stopped;
use crate::library::{Library, Segment};
use crate::{Error, Start};
use object::elf;
use std::os::fd::AsRawFd;

/// Bytes of the stack of the library's entry point.
const STACK: u64 = 256 << 10;
const STACK_HOW: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
const NO_FILE: u64 = u64::MAX;

/// Values of the auxiliary vector.
#[derive(Clone, Copy, Debug, Default)]
struct Auxiliary {
    /// Start of the dynamic loader; 0: the program has none.
    loader: u64,
    /// Address of the program headers; 0: no segment holds them.
    headers: u64,
    secure: bool,
}

/// Maps the library into the program, and lets the program begin there. `helper` is this process.
///
/// # Errors
/// The library is not in the program, which stays stopped.
pub(crate) fn begin_in(program: &Stopped, library: &Library, helper: u32) -> Result<(), Error> {
    let base = map(program, library)?;
    close(program, library)?;
    let stack = anonymous(program, 0, STACK, libc::PROT_READ | libc::PROT_WRITE, STACK_HOW)?;
    let string = library.name.as_bytes_with_nul();
    // Its last word, which may be written by ptrace(2), ends before the memory does.
    let name = (stack + STACK - string.len() as u64) & !63;
    let write = |e| Error::Trace("write memory", e);
    program.tracee.write(name, string).map_err(write)?;
    let start = Start {
        entry: program.first.rip,
        stack: program.first.rsp,
        base,
        len: library.len(),
        own_stack: stack,
        own_stack_len: STACK,
        name,
        helper: helper.into(),
    };
    let at = (name - size_of::<Start>() as u64) & !63;
    program.tracee.write(at, &start.bytes()).map_err(write)?;
    program.restore()?;
    let mut registers = program.first;
    registers.rip = base + library.entry;
    registers.rsp = at;
    registers.rdi = at;
    program.tracee.set_registers(&registers).map_err(|e| Error::Trace("set registers", e))
}

/// Returns whether the program has no dynamic loader.
///
/// # Errors
/// The program is one that no library is mapped into.
pub(crate) fn is_static(program: &Stopped) -> Result<bool, Error> {
    let auxiliary = auxiliary(program)?;
    match auxiliary {
        Auxiliary { secure: true, .. } => Err(Error::Secure),
        Auxiliary { loader: 0, headers: 0, .. } => Err(Error::NoHeaders),
        Auxiliary { loader, .. } => Ok(loader == 0),
    }
}

/// Reads the auxiliary vector. It lies behind the arguments and the environment, each of which ends
/// with a zero.
fn auxiliary(program: &Stopped) -> Result<Auxiliary, Error> {
    let word = |at| program.tracee.word(at).map_err(|e| Error::Trace("read memory", e));
    let mut at = program.first.rsp + 8;
    for _ in 0..2 {
        while word(at)? != 0 {
            at += 8;
        }
        at += 8;
    }
    let mut found = Auxiliary::default();
    loop {
        match (word(at)?, word(at + 8)?) {
            (libc::AT_NULL, _) => return Ok(found),
            (libc::AT_BASE, value) => found.loader = value,
            (libc::AT_PHDR, value) => found.headers = value,
            (libc::AT_SECURE, value) => found.secure = value != 0,
            _ => {}
        }
        at += 16;
    }
}

/// Maps the library's segments; returns where.
fn map(program: &Stopped, library: &Library) -> Result<u64, Error> {
    let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let base = anonymous(program, 0, library.len(), libc::PROT_NONE, reserve)?;
    let mapped = fill(program, library, base);
    if mapped.is_err() {
        // The program goes on without the library.
        let _ = program.call("munmap", libc::SYS_munmap, &[base, library.len()]);
    }
    mapped.map(|()| base)
}

/// Closes the library's file in the program.
pub(crate) fn close(program: &Stopped, library: &Library) -> Result<(), Error> {
    let fd = library.file.as_raw_fd() as u64;
    program.call("close", libc::SYS_close, &[fd]).map(drop)
}

fn fill(program: &Stopped, library: &Library, base: u64) -> Result<(), Error> {
    for segment in &library.segments {
        map_segment(program, library, base, segment)?;
    }
    for (at, bytes) in library.contents(base) {
        program.tracee.write(base + at, &bytes).map_err(|e| Error::Trace("write memory", e))?;
    }
    if let Some(pages) = &library.read_only {
        let args = [base + pages.start, pages.end - pages.start, libc::PROT_READ as u64];
        program.call("mprotect", libc::SYS_mprotect, &args)?;
    }
    Ok(())
}

fn map_segment(
    program: &Stopped,
    library: &Library,
    base: u64,
    segment: &Segment,
) -> Result<(), Error> {
    let (file, all) = (segment.of_file(), segment.pages());
    let prot = protection(segment.flags);
    if !file.is_empty() {
        let how = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let offset = segment.offset - (segment.at - file.start);
        let args = [
            base + file.start,
            file.end - file.start,
            prot as u64,
            how as u64,
            library.file.as_raw_fd() as u64,
            offset,
        ];
        program.call("mmap", libc::SYS_mmap, &args)?;
    }
    if file.end < all.end {
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        anonymous(program, base + file.end, all.end - file.end, prot, how)?;
    }
    Ok(())
}

fn anonymous(program: &Stopped, at: u64, len: u64, prot: i32, how: i32) -> Result<u64, Error> {
    let args = [at, len, prot as u64, how as u64, NO_FILE, 0];
    program.call("mmap", libc::SYS_mmap, &args)
}

fn protection(flags: elf::ProgramFlags) -> i32 {
    let bits =
        [(elf::PF_R, libc::PROT_READ), (elf::PF_W, libc::PROT_WRITE), (elf::PF_X, libc::PROT_EXEC)];
    bits.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, bit)| bit).sum()
}

impl Start {
    fn bytes(&self) -> Vec<u8> {
        let words = [
            self.entry,
            self.stack,
            self.base,
            self.len,
            self.own_stack,
            self.own_stack_len,
            self.name,
            self.helper,
        ];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
