//! Starts a program that is traced from its first system call on.
#![allow(unsafe_code)]

use super::ptrace;
use super::recorder::Recorder;
use super::tracer::{End, Tracer};
use crate::signals;
use seccompiler::BpfProgram;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Word to a program that is followed.
const FOLLOWED: [u8; 1] = *b"!";

/// Starts the command, with the filters, and follows it to its end. The thread that follows it has
/// begun before the program has its filters, and the program waits for that.
///
/// # Errors
/// The program cannot be started or followed.
pub fn follow(
    mut command: Command,
    filters: [BpfProgram; 2],
    recorder: &mut Recorder,
) -> io::Result<End> {
    let (mut ready, mut tell) = io::pipe()?;
    let (mut go, open) = io::pipe()?;
    // SAFETY: between fork and exec the closure makes system calls only; it owns what it uses.
    unsafe {
        command.pre_exec(move || {
            tell.write_all(&std::process::id().to_ne_bytes())?;
            let mut answer = [0];
            go.read_exact(&mut answer)?;
            if answer != FOLLOWED {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            let install = |program: &BpfProgram| seccompiler::apply_filter(program);
            let refused = |_| io::Error::from_raw_os_error(libc::ENOSYS);
            filters.iter().try_for_each(install).map_err(refused)
        });
    }
    std::thread::scope(|scope| {
        let tracer = scope.spawn(move || {
            let mut pid = [0; 4];
            ready.read_exact(&mut pid)?;
            let pid = i32::from_ne_bytes(pid);
            let mut open = open;
            let seized = ptrace::seize(pid);
            open.write_all(if seized.is_ok() { &FOLLOWED } else { b"?" })?;
            seized?;
            Tracer::new(recorder, pid).run()
        });
        let started = signals::spawn(&mut command);
        // The thread sees that nobody will start.
        drop(command);
        let end = tracer.join().unwrap_or_else(|_| Err(io::Error::other("the tracer has died")));
        started.and(end)
    })
}
