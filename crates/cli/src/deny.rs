//! Denies the three io_uring system calls to this process and its children, as Docker's default
//! seccomp profile does.

use crate::cli::DenyArgs;
use crate::{fail, run};
use anyhow::Context;
use seccompiler::sock_filter;

/// BPF: load a 32-bit word of `struct seccomp_data`.
const LD_W_ABS: u16 = 0x20;
const AND_K: u16 = 0x54;
const JGE_K: u16 = 0x35;
const RET_K: u16 = 0x06;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
/// The x32 ABI marks its numbers with this bit.
const X32: u32 = 0x4000_0000;
const FIRST: u32 = 425;
const LAST: u32 = 427;

/// The filter: `errno` for 425..=427, everything else allowed. These three have the same number on
/// every architecture that a process here can switch to (x86-64, i386, x32, arm64), so it need not
/// look at the architecture.
fn filter(errno: u16) -> [sock_filter; 6] {
    let op = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    [
        op(LD_W_ABS, 0, 0, 0),
        op(AND_K, 0, 0, !X32),
        op(JGE_K, 1, 0, LAST + 1),
        op(JGE_K, 1, 0, FIRST),
        op(RET_K, 0, 0, RET_ALLOW),
        op(RET_K, 0, 0, RET_ERRNO | u32::from(errno)),
    ]
}

/// Installs the filter on the calling thread, for good. Sets `no_new_privs`, which the kernel asks
/// for.
pub fn install(errno: u16) -> anyhow::Result<()> {
    seccompiler::apply_filter(&filter(errno)).context("cannot install the seccomp filter")
}

/// `softring deny -- CMD`
pub fn command(args: &DenyArgs) -> anyhow::Result<()> {
    let Some(program) = args.command.first() else {
        return Err(fail::usage("no program given", "softring deny -- CMD"));
    };
    let path = run::find_program(program)?;
    install(args.errno)?;
    run::exec(&path, &args.command, &run::environment())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter answers for system call `nr`, by a small interpreter of the four
    /// instructions it uses.
    fn answer(nr: u32) -> u32 {
        let prog = filter(1);
        let (mut pc, mut acc) = (0usize, 0u32);
        loop {
            let i = &prog[pc];
            pc += 1;
            match i.code {
                LD_W_ABS => acc = nr,
                AND_K => acc &= i.k,
                JGE_K => pc += usize::from(if acc >= i.k { i.jt } else { i.jf }),
                RET_K => return i.k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn exactly_three_numbers_are_denied() {
        for nr in 0..1000 {
            let denied = (FIRST..=LAST).contains(&nr);
            assert_eq!(answer(nr) == RET_ALLOW, !denied, "{nr}");
            assert_eq!(answer(nr | X32) == RET_ALLOW, !denied, "x32 {nr}");
        }
        assert_eq!(answer(426), RET_ERRNO | 1);
    }
}
