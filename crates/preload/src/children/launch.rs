//! Static programs that this one starts. No dynamic loader brings the library to them, so the
//! command `softring` is started in their place. It maps the library into the program that it then
//! becomes, as `softring run` does:
//!
//! ```text
//! asked      execve("/bin/prog", {"prog", "arg"}, {"A=1", "LD_PRELOAD=…"})
//! done       execve(command, {"softring", "launch", library, tell, dir, flags, "/bin/prog",
//!                             "prog", "arg"}, {"A=1", "D_PRELOAD=…"})
//! command    execveat(dir, "/bin/prog", {"prog", "arg"}, {"A=1", "LD_PRELOAD=…"}, flags)
//! ```
//!
//! The command may be linked dynamically, and must not get the library itself: so LD_PRELOAD loses
//! its first letter on the way. The process's number, parent, descriptors and signals stay. A path
//! that leads over a link of /proc means another file in the command: there it gets the file's
//! descriptor. Where the command cannot be started, exec starts the program alone.
#![allow(unsafe_code)]

use super::file::{self, Fd, File, Kind, Name};
use super::follow::{self, length, own};
use super::{Program, Room, after, byte, preloads};
use crate::config;
use crate::raw::raw;
use core::ffi::c_char;
use core::fmt::Write;
use core::ptr::null;
use softring_host::launch;

type Path = *const c_char;
type Strings = *const Path;

/// Strings before the program's own arguments.
const BEFORE: usize = 7;

/// Returns whether the command is known, and may be started.
pub fn is_possible() -> bool {
    command().is_some()
}

fn command() -> Option<Path> {
    follow::setting(config::COMMAND).filter(|path| Fd::is_program_at(*path))
}

/// Arguments of execve(2) that start the command in place of a static program: two arrays of
/// strings in a mapping.
pub struct Launch {
    pub command: Path,
    pub argv: Strings,
    pub envp: Strings,
    _room: Room,
    /// Duplicate of the program's descriptor, which exec would close; -1: none.
    duplicate: i32,
}

impl Launch {
    /// Returns what to start in place of `program`, if it is static and its environment holds the
    /// library. `tell`: the command says so if it cannot map the library.
    #[inline(never)]
    pub fn of(
        (program, file): (Program, &File),
        flags: i32,
        (argv, envp): (Strings, Strings),
        tell: bool,
    ) -> Option<Launch> {
        let command = command()?;
        preloads(envp)?;
        if file.kind() != Kind::Static || !may_trace() || !has_room() {
            return None;
        }
        let (args, strings) = (length(argv)?, length(envp)?);
        let pointers = BEFORE + args + 1 + strings + 1;
        let len = size_of::<Words>() + pointers * size_of::<Path>();
        let room = Room::new(len)?;
        let at = room.start();
        // SAFETY: a new mapping, with room for the words and, behind them, the pointers.
        let words = unsafe { &mut *at.cast::<Words>() };
        let duplicate = words.fill(program, flags)?;
        let to = at.wrapping_add(size_of::<Words>()).cast::<Path>();
        let to_envp = to.wrapping_add(BEFORE + args + 1);
        let tell: Path = if tell { c"1" } else { c"0" }.as_ptr();
        let before = [c"softring".as_ptr(), launch::WORD.as_ptr(), own().as_ptr(), tell];
        let before = before.into_iter().chain(words.pointers());
        // SAFETY: as above; both of the program's arrays had so many strings, and end with null.
        unsafe {
            before.enumerate().for_each(|(n, string)| to.add(n).write(string));
            (0..args).for_each(|n| to.add(BEFORE + n).write(*argv.add(n)));
            (0..strings).for_each(|n| to_envp.add(n).write(without_preload(*envp.add(n))));
        }
        Some(Launch { command, argv: to, envp: to_envp, _room: room, duplicate })
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if self.duplicate >= 0 {
            // SAFETY: our own descriptor, which a failed exec needs no more.
            unsafe { raw!(libc::SYS_close, self.duplicate) };
        }
    }
}

/// Place of the program, as the command is told: a descriptor, flags of execveat(2) and a path.
struct Words {
    dir: Name,
    flags: Name,
    path: Name,
    /// Path as the program has it; null: `path`.
    given: Path,
}

impl Words {
    /// Writes the words into a structure of zeroes. Returns a duplicate of the program's
    /// descriptor, if exec would close it, or -1.
    fn fill(&mut self, program: Program, flags: i32) -> Option<i32> {
        if let Some(file) = by_magic_link(program) {
            return self.open(file?, flags, program);
        }
        let (dir, flags) = match program {
            Program::At(dir, path) => {
                self.given = path;
                let absolute = byte(path.expose_provenance() as u64) == b'/';
                (if absolute { libc::AT_FDCWD } else { dir }, flags)
            }
            Program::Named(_) => {
                self.path.add(file::find(program)?.1.bytes());
                (libc::AT_FDCWD, flags)
            }
            Program::Open(fd) => (fd, flags | libc::AT_EMPTY_PATH),
        };
        write!(self.flags, "{flags}").ok()?;
        let closed = dir != libc::AT_FDCWD && closes_on_exec(dir)?;
        if !closed {
            write!(self.dir, "{dir}").ok()?;
            return Some(-1);
        }
        self.duplicate(dir, program)
    }

    /// Writes the words for a file that is open, but not in the new program.
    fn open(&mut self, file: Fd, flags: i32, program: Program) -> Option<i32> {
        write!(self.flags, "{}", flags | libc::AT_EMPTY_PATH).ok()?;
        self.given = null();
        self.duplicate(file.number(), program)
    }

    fn duplicate(&mut self, fd: i32, program: Program) -> Option<i32> {
        if file::is_script(program) {
            // The kernel refuses it: its interpreter could not open it.
            return None;
        }
        // SAFETY: numbers.
        let duplicate = unsafe { raw!(libc::SYS_fcntl, fd, libc::F_DUPFD, 0) } as i32;
        write!(self.dir, "{}{duplicate}", launch::DUPLICATE).ok()?;
        (duplicate >= 0).then_some(duplicate)
    }

    fn pointers(&self) -> [Path; 3] {
        let path = if self.given.is_null() { self.path.as_ptr() } else { self.given };
        [self.dir.as_ptr(), self.flags.as_ptr(), path]
    }
}

/// Returns the program's file if its path leads over a link of /proc, which means another file or
/// none in the command's process: /proc/self/exe, /proc/self/fd/5.
fn by_magic_link(program: Program) -> Option<Option<Fd>> {
    let (dir, path) = match program {
        Program::At(dir, path) => (dir, path),
        Program::Named(path) => (libc::AT_FDCWD, path),
        Program::Open(_) => return None,
    };
    let at = path.expose_provenance();
    // SAFETY: all-zero bytes are a valid `open_how`; the kernel reads it, and checks the path.
    let opened = unsafe {
        let mut how: libc::open_how = core::mem::zeroed();
        how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
        how.resolve = libc::RESOLVE_NO_MAGICLINKS;
        raw!(libc::SYS_openat2, dir, at, (&raw const how).expose_provenance(), size_of_val(&how))
    };
    let leads = match i32::try_from(-opened) {
        Ok(libc::ELOOP) => true,
        // Kernels before 5.6 do not know the call, and a policy may refuse it.
        Ok(libc::ENOSYS | libc::EPERM) => {
            after(at as u64, b"/proc/").or(after(at as u64, b"/dev/fd/")).is_some()
        }
        _ => false,
    };
    if opened >= 0 {
        // SAFETY: our own descriptor.
        unsafe { raw!(libc::SYS_close, opened) };
    }
    leads.then(|| file::find(program).map(|(fd, _)| fd))
}

/// Returns whether nobody traces this process: the command's helper would have to.
#[inline(never)]
fn may_trace() -> bool {
    const NOBODY: &[u8] = b"\nTracerPid:\t0\n";
    let mut status = [0; 1024];
    let known = Fd::open_at(c"/proc/self/status".as_ptr()).map(|fd| fd.read(&mut status, 0));
    known.is_none_or(|n| status[..n].windows(NOBODY.len()).any(|w| w == NOBODY))
}

/// Returns whether the command can start within the limits of this process. Below them the kernel
/// ends a process in the middle of its exec, or the command's loader does.
fn has_room() -> bool {
    const LEAST: [(libc::__rlimit_resource_t, u64); 3] = [
        (libc::RLIMIT_STACK, 128 << 10),
        (libc::RLIMIT_DATA, 4 << 20),
        (libc::RLIMIT_AS, 64 << 20),
    ];
    LEAST.into_iter().all(|(resource, least)| {
        let mut limit = [u64::MAX; 2];
        // SAFETY: the kernel writes the limit into ours.
        unsafe { raw!(libc::SYS_prlimit64, 0, resource, 0, (&raw mut limit).expose_provenance()) };
        limit[0] >= least
    })
}

/// Returns whether exec closes this descriptor; `None` if it is not open.
fn closes_on_exec(fd: i32) -> Option<bool> {
    // SAFETY: numbers.
    let flags = unsafe { raw!(libc::SYS_fcntl, fd, libc::F_GETFD) };
    (flags >= 0).then_some(flags as i32 & libc::FD_CLOEXEC != 0)
}

/// Returns a string of an environment, LD_PRELOAD without its first letter.
fn without_preload(string: Path) -> Path {
    let is_preload = after(string.expose_provenance() as u64, launch::PRELOAD.as_bytes()).is_some();
    if is_preload { string.wrapping_add(1) } else { string }
}
