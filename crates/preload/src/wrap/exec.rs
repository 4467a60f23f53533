//! exec(3): libc's functions that replace the program. A POSIX lock of the process outlives exec
//! only if the engine's descriptors of the file do (`fd::exec`). So they stay open, and a variable
//! names them to the new program's copy of this library, which removes the variable.
//!
//! The variable is `PID:fd,dev,ino;fd,dev,ino;…`. A process with another id has inherited it from
//! one that has no copy of this library.
//!
//! The calling task's rules for its rings also go over exec in a variable (`rsrc::task_rules`), and
//! to programs that posix_spawn(3) starts. If the variable is longer than the kernel allows, exec
//! answers E2BIG: no rules are lost.
#![allow(unsafe_code)]

use crate::children::follow::{Added, length};
use crate::children::{self, Launch, Program, Room};
use crate::intercept::stack;
use crate::raw::{self, Next, next, raw};
use crate::{config, gate, notice, proc};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::Write;
use softring_engine::task_rules;
use softring_host::c_library::environ;
use softring_host::fd;
use softring_host::fd::exec;

const PAGE: usize = 4096;

pub(super) type Path = *const c_char;
/// Strings, followed by a null pointer.
pub(super) type Strings = *const Path;

/// Returns the program's environment; null without a C library.
pub(super) fn environment() -> Strings {
    // SAFETY: the C library's variable; a program that changes it while others read it breaks its
    // rules.
    unsafe { environ().as_ref() }.map_or(core::ptr::null(), |strings| *strings)
}

/// Arguments of execve(2).
#[derive(Clone, Copy)]
struct Image {
    /// The command that is started in the program's place; null: the program itself.
    command: Path,
    argv: Strings,
    envp: Strings,
}

impl Image {
    /// Returns the path to start, for a program that is at `path`.
    fn or(self, path: Path) -> Path {
        if self.command.is_null() { path } else { self.command }
    }

    /// Starts the command, if it is to be started.
    fn exec_command(self) -> Option<isize> {
        if self.command.is_null() {
            return None;
        }
        let command = self.command.expose_provenance();
        let (argv, envp) = (self.argv.expose_provenance(), self.envp.expose_provenance());
        // SAFETY: arrays and a path of ours.
        Some(stack::leave_for(|| unsafe { raw!(libc::SYS_execve, command, argv, envp) }))
    }
}

/// `execve(2)`: execute program.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: Path, argv: Strings, envp: Strings) -> c_int {
    let next = next!(c"execve", fn(Path, Strings, Strings) -> c_int);
    let program = Program::At(libc::AT_FDCWD, path);
    // SAFETY: the program's own call, here and below.
    let call = |i: Image| next.map_or_else(missing, |f| unsafe { f(path, i.argv, i.envp) });
    by_name(program, (argv, envp), &call)
}

/// `execv(3)`: execute a file.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: Path, argv: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { execve(path, argv, environment()) }
}

/// `execvp(3)`: execute a file that is searched in `PATH`.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: Path, argv: Strings) -> c_int {
    // SAFETY: as above.
    unsafe { execvpe(file, argv, environment()) }
}

/// `execvpe(3)`: as execvp(3), with an environment.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: Path, argv: Strings, envp: Strings) -> c_int {
    let next = next!(c"execvpe", fn(Path, Strings, Strings) -> c_int);
    // SAFETY: as above.
    let call = |i: Image| next.map_or_else(missing, |f| unsafe { f(file, i.argv, i.envp) });
    by_name(Program::Named(file), (argv, envp), &call)
}

/// `fexecve(3)`: execute program specified via file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    let next = next!(c"fexecve", fn(c_int, Strings, Strings) -> c_int);
    // SAFETY: as above.
    let call = |i: Image| next.map_or_else(missing, |f| unsafe { f(fd, i.argv, i.envp) });
    by_name(Program::Open(fd), (argv, envp), &call)
}

/// `execveat(2)`: execute program relative to a directory file descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: Path,
    argv: Strings,
    envp: Strings,
    flags: c_int,
) -> c_int {
    let (dir, path) = (dir as usize, path.expose_provenance());
    let (argv, envp) = (argv.expose_provenance(), envp.expose_provenance());
    raw::libc_answer(raw_execveat(&[dir, path, argv, envp, flags as usize, 0])) as c_int
}

/// A function that takes its arguments one by one, and lays them out as a vector: those in
/// registers go on the stack below the others, in place of the return address, which goes below
/// them. `$vector` is called with the address of the first.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident, $vector:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {vector}",
                "pop rcx",
                "add rsp, 40",
                "jmp rcx",
                vector = sym $vector,
            )
        }
    };
}
listed!(
    /// `execl(3)`: execute a file.
    execl, execv
);
listed!(
    /// `execlp(3)`: execute a file that is searched in `PATH`.
    execlp, execvp
);
listed!(
    /// `execle(3)`: as execl(3), with an environment.
    execle, execv_with_environment
);

/// Calls execve(2) with the environment that follows the arguments' null pointer.
unsafe extern "C" fn execv_with_environment(path: Path, argv: Strings) -> c_int {
    // SAFETY: as above; the arguments lie on the stack.
    unsafe { execve(path, argv, (*argv.add(length(argv).unwrap_or(0) + 1)).cast()) }
}

/// Handles execve(2) by number. Never inlined: room for two paths would be on the stack of every
/// call.
#[inline(never)]
pub fn raw_execve(a: &[usize; 6]) -> isize {
    let call = |i: Image| {
        let envp = i.envp.expose_provenance();
        // SAFETY: the program's own call.
        stack::leave_for(|| unsafe { raw!(libc::SYS_execve, a[0], a[1], envp) })
    };
    let path = core::ptr::with_exposed_provenance(a[0]);
    by_number(Program::At(libc::AT_FDCWD, path), 0, (a[1], a[2]), &call)
}

/// Handles execveat(2) by number.
#[inline(never)]
pub fn raw_execveat(a: &[usize; 6]) -> isize {
    let call = |i: Image| {
        let envp = i.envp.expose_provenance();
        // SAFETY: the program's own call.
        stack::leave_for(|| unsafe { raw!(libc::SYS_execveat, a[0], a[1], a[2], envp, a[4]) })
    };
    let program = if a[4] as i32 & libc::AT_EMPTY_PATH != 0 {
        Program::Open(a[0] as i32)
    } else {
        Program::At(a[0] as i32, core::ptr::with_exposed_provenance(a[1]))
    };
    by_number(program, a[4] as i32, (a[2], a[3]), &call)
}

/// Makes a call by number by which the program execs. `flags`: those of execveat(2).
fn by_number(
    program: Program,
    flags: i32,
    (argv, envp): (usize, usize),
    call: &dyn Fn(Image) -> isize,
) -> isize {
    let strings = |at| core::ptr::with_exposed_provenance(at);
    let given = (strings(argv), strings(envp));
    around(program, flags, given, &|image| image.exec_command().unwrap_or_else(|| call(image)))
}

/// Makes a call of libc's by which the program execs.
fn by_name(program: Program, given: (Strings, Strings), call: &dyn Fn(Image) -> c_int) -> c_int {
    around(program, 0, given, &|image| match image.exec_command() {
        Some(ret) => raw::libc_answer(ret),
        None => call(image) as isize,
    }) as c_int
}

type Spawn =
    unsafe extern "C" fn(*mut c_int, Path, *const c_void, *const c_void, Strings, Strings) -> c_int;

/// `posix_spawn(3)`: spawn a process.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: Path,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    static NEXT: Next = Next::new(c"posix_spawn");
    let program = Program::At(libc::AT_FDCWD, path);
    spawn(&NEXT, program, (argv, envp), &|f, i| {
        // SAFETY: the program's own call.
        unsafe { f(pid, i.or(path), actions, attributes, i.argv, i.envp) }
    })
}

/// `posix_spawnp(3)`: spawn a process, by a file that is searched in `PATH`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: Path,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    static NEXT: Next = Next::new(c"posix_spawnp");
    let program = Program::Named(file);
    // The command's path has a slash, so it is not searched for.
    spawn(&NEXT, program, (argv, envp), &|f, i| {
        // SAFETY: the program's own call.
        unsafe { f(pid, i.or(file), actions, attributes, i.argv, i.envp) }
    })
}

fn spawn(
    next: &'static Next,
    program: Program,
    given: (Strings, Strings),
    call: &dyn Fn(Spawn, Image) -> c_int,
) -> c_int {
    let next = next.get();
    if next.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: libc's function of one of these two names.
    let f = unsafe { core::mem::transmute::<*mut c_void, Spawn>(next) };
    starting(program, 0, given, &|image| call(f, image) as isize) as c_int
}

pub(super) fn missing() -> c_int {
    raw::set_errno(libc::ENOSYS);
    -1
}

/// Makes the call by which the program execs, with the environment for the new program. `flags`:
/// those of execveat(2).
fn around(
    program: Program,
    flags: i32,
    given: (Strings, Strings),
    call: &dyn Fn(Image) -> isize,
) -> isize {
    starting(program, flags, given, &|image| {
        with_locks(image.envp, &|envp| call(Image { envp, ..image }))
    })
}

/// Makes a call that starts a program, with the environment that the new program needs.
fn starting(
    program: Program,
    flags: i32,
    given: (Strings, Strings),
    call: &dyn Fn(Image) -> isize,
) -> isize {
    children::with_stack(&|| start_with_room(program, flags, given, call))
}

fn start_with_room(
    program: Program,
    flags: i32,
    (argv, envp): (Strings, Strings),
    call: &dyn Fn(Image) -> isize,
) -> isize {
    children::keep_library();
    let plain = &|envp| call(Image { command: core::ptr::null(), argv, envp });
    let file = children::inspect(program);
    let Some(file) = file.as_ref() else { return with_rules(envp, plain) };
    let with = children::follow(file, envp).and_then(|added| Environment::added(&added, envp));
    let envp = with.as_ref().map_or(envp, |with| with.strings);
    if let Some(launch) = children::launch((program, file), flags, argv, envp) {
        let Launch { command, argv, envp, .. } = launch;
        let ret = with_rules(envp, &|envp| call(Image { command, argv, envp }));
        if ret == 0 {
            return ret;
        }
        // The command could not be started: a policy may allow the program alone.
    }
    let Some((preload, nth)) = children::preload_for(file, envp) else {
        return with_rules(envp, plain);
    };
    let with = Environment::replacing(nth, preload.assignment(), envp);
    with_rules(with.as_ref().map_or(envp, |with| with.strings), plain)
}

/// Makes the call by which the program execs, with the descriptors that the new program must know.
fn with_locks(envp: Strings, call: &dyn Fn(Strings) -> isize) -> isize {
    if gate::watched() { with_known_locks(envp, call) } else { call(envp) }
}

/// Does so where there are rings. Never inlined: its room would be on the stack of every call.
#[inline(never)]
fn with_known_locks(envp: Strings, call: &dyn Fn(Strings) -> isize) -> isize {
    let vforked = proc::shares_memory();
    let mut left = Variable::new(if vforked { proc::getpid() } else { proc::id() });
    let stays = |fd, file| left.add(fd, file);
    if vforked {
        exec::prepare_vforked(stays)
    } else {
        exec::prepare(stays)
    }
    let errno = raw::errno();
    let with = if left.count > 0 { Environment::with(left.as_ptr(), envp) } else { None };
    raw::set_errno(errno);
    let ret = call(with.as_ref().map_or(envp, |with| with.strings));
    if vforked {
        exec::failed_vforked()
    } else {
        exec::failed()
    }
    ret
}

/// Makes a call that starts a program, with the calling task's rules in the environment.
fn with_rules(envp: Strings, call: &dyn Fn(Strings) -> isize) -> isize {
    let Some(rules) = task_rules::mine() else { return call(envp) };
    let with = Environment::with(rules.assignment().as_ptr(), envp);
    call(with.as_ref().map_or(envp, |with| with.strings))
}

/// The variable [`config::LOCKED`] for the new program.
struct Variable {
    text: [u8; PAGE],
    len: usize,
    count: usize,
}

impl Variable {
    /// Starts the variable of process `id`.
    fn new(id: c_int) -> Variable {
        let mut new = Variable { text: [0; PAGE], len: 0, count: 0 };
        let _ = write!(new, "{}={}:", config::LOCKED.to_str().unwrap_or_default(), id);
        new
    }

    fn as_ptr(&self) -> Path {
        self.text.as_ptr().cast()
    }

    /// Adds a descriptor. One that has no room stays open, unknown to the new program.
    fn add(&mut self, fd: c_int, (dev, ino): (u64, u64)) {
        let before = self.len;
        if write!(self, "{fd},{dev},{ino};").is_ok() {
            self.count += 1;
        } else {
            self.text[before..].fill(0);
            self.len = before;
        }
    }
}

impl Write for Variable {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        // The last byte stays 0.
        let to = self.text[..PAGE - 1].get_mut(self.len..self.len + s.len());
        to.ok_or(core::fmt::Error)?.copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

/// The program's environment and more variables.
pub(super) struct Environment {
    pub(super) strings: Strings,
    _room: Room,
}

// SAFETY: a mapping, which any thread may read and unmap.
unsafe impl Send for Environment {}

impl Environment {
    /// Returns `envp` with `variable` in front. `None` without memory, or if the kernel will not be
    /// able to read `envp` either.
    fn with(variable: Path, envp: Strings) -> Option<Environment> {
        Self::put(variable, 0, 1, envp)
    }

    /// Returns `envp` with `variable` in place of string `nth`.
    fn replacing(nth: usize, variable: Path, envp: Strings) -> Option<Environment> {
        Self::put(variable, nth, 0, envp)
    }

    /// Returns `envp` behind `room` strings, with `variable` as string `nth`.
    fn put(variable: Path, nth: usize, room: usize, envp: Strings) -> Option<Environment> {
        let n = length(envp)?;
        let memory = Room::new((n + room + 1) * size_of::<Path>())?;
        let at = memory.start().cast::<Path>();
        // SAFETY: `envp` has `n` strings, which can be read; the mapping has room for them, and
        // ends with 0.
        unsafe {
            for i in 0..n {
                at.add(i + room).write(*envp.add(i));
            }
            at.add(nth).write(variable);
        }
        Some(Environment { strings: at, _room: memory })
    }

    /// Returns `envp` with what a program needs to be followed behind it.
    pub(super) fn added(added: &Added, envp: Strings) -> Option<Environment> {
        let n = length(envp)?;
        let pointers = (n + added.count() + 1) * size_of::<Path>();
        let text = added.text_len();
        let memory = Room::new(pointers + text)?;
        let at = memory.start();
        let strings = at.cast::<Path>();
        // SAFETY: as in `put`; the text lies behind the pointers.
        unsafe {
            for i in 0..n {
                strings.add(i).write(*envp.add(i));
            }
            added.write(strings.add(n), core::slice::from_raw_parts_mut(at.add(pointers), text));
        }
        Some(Environment { strings, _room: memory })
    }
}

/// Takes over what the program before exec has left. Called once, before `main`, when the
/// environment is as that program has given it.
pub fn start() {
    if let Some(variable) = config::locked() {
        let _ = inherit(variable);
        forget(config::LOCKED);
    }
    if let Some(rules) = config::rules() {
        if task_rules::inherit(rules).is_err() {
            notice::say(
                "SOFTRING_RULES has a value that softring did not write; softring ignores it",
            );
        }
        forget(task_rules::VARIABLE);
    }
}

/// Removes a variable from the environment. (A program may have an unsetenv(3) of its own, as bash
/// does, which knows of no environment before `main`.)
fn forget(name: &CStr) {
    let all = environment();
    if all.is_null() {
        return;
    }
    // SAFETY: nobody else uses the environment yet: strings, and a null pointer behind them.
    unsafe {
        let mut to = all.cast_mut();
        let mut from = all;
        while !(*from).is_null() {
            let rest = CStr::from_ptr(*from).to_bytes().strip_prefix(name.to_bytes());
            if !rest.is_some_and(|rest| rest.starts_with(b"=")) {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = core::ptr::null();
    }
}

fn inherit(variable: &CStr) -> Option<()> {
    let (pid, files) = variable.to_str().ok()?.split_once(':')?;
    let born_with = pid.parse() != Ok(proc::id());
    for file in files.split_terminator(';') {
        let mut numbers = file.split(',').map(|n| n.parse::<u64>().ok());
        let (fd, dev, ino) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let fd = i32::try_from(fd).ok()?;
        // SAFETY: the variable is the earlier program's, and the program's code has not begun.
        if unsafe { fd::owned::inherit(fd, (dev, ino), born_with) } {
            gate::watch();
        }
    }
    Some(())
}
