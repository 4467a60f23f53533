//! The calls that start another program, in a program without a loader: there, no name of the C
//! library leads here. musl's functions have no frames; but `syscall` right behind one of these
//! numbers is no chance.

use super::flow::Body;
use super::frames::Function;
use super::modules::Module;
use super::site::Site;
use super::text::{JUMP, SYSCALL};
use alloc::vec::Vec;

/// Finds the sites among the addresses of `syscall`.
pub fn find(m: &Module, syscalls: &[usize]) -> Vec<Site> {
    let site = |&at: &usize| {
        let body = Body::of(m, Function { start: at.checked_sub(JUMP)?, end: at + SYSCALL });
        let (nr, mov) = body.syscalls().next().and_then(|i| body.plain_number(i))?;
        let execs = mov == 0 && matches!(nr as i64, libc::SYS_execve | libc::SYS_execveat);
        execs.then(|| Site { ring: false, ..body.plain(mov, 1) })
    };
    syscalls.iter().filter_map(site).collect()
}
