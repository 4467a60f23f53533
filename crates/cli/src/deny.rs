//! Denial of the three io_uring system calls to this process and its children, as in Docker's
//! default seccomp profile; on request also of the calls of kernel aio.

use crate::cli::DenyArgs;
use crate::{fail, run};
use anyhow::Context;
use seccompiler::sock_filter;

/// BPF: load a 32-bit word of `struct seccomp_data`.
const LD_W_ABS: u16 = 0x20;
const AND_K: u16 = 0x54;
const JEQ_K: u16 = 0x15;
const JGE_K: u16 = 0x35;
const RET_K: u16 = 0x06;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_ERRNO: u32 = 0x0005_0000;
/// Bit that marks the numbers of the x32 ABI.
const X32: u32 = 0x4000_0000;
/// `AUDIT_ARCH_X86_64`
const X86_64: u32 = 0xc000_003e;
const FIRST: u32 = 425;
const LAST: u32 = 427;
/// Numbers of io_setup to io_cancel, and of io_pgetevents.
const AIO_FIRST: u32 = 206;
const AIO_LAST: u32 = 210;
const AIO_PGETEVENTS: u32 = 333;

/// Returns the filter: `errno` for 425..=427, everything else allowed. These three numbers are the
/// same on every architecture that a process here can switch to (x86-64, i386, x32, arm64), so the
/// filter need not check the architecture for them. The numbers of kernel aio are x86-64's.
fn filter(errno: u16, aio: bool) -> Vec<sock_filter> {
    let op = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let (allow, deny) = (op(RET_K, 0, 0, RET_ALLOW), op(RET_K, 0, 0, RET_ERRNO | u32::from(errno)));
    let mut all = vec![
        op(LD_W_ABS, 0, 0, 0),
        op(AND_K, 0, 0, !X32),
        op(JGE_K, 2, 0, LAST + 1),
        op(JGE_K, 0, 1, FIRST),
        deny.clone(),
    ];
    if aio {
        all.extend([
            op(JEQ_K, 2, 0, AIO_PGETEVENTS),
            op(JGE_K, 4, 0, AIO_LAST + 1),
            op(JGE_K, 0, 3, AIO_FIRST),
            op(LD_W_ABS, 0, 0, 4),
            op(JEQ_K, 0, 1, X86_64),
            deny,
        ]);
    }
    all.push(allow);
    all
}

/// Installs the filter on the calling thread, for good. Sets `no_new_privs`, which the kernel asks
/// for.
pub fn install(errno: u16, aio: bool) -> anyhow::Result<()> {
    seccompiler::apply_filter(&filter(errno, aio)).context("cannot install the seccomp filter")
}

/// Runs `softring deny -- CMD`.
pub fn command(args: &DenyArgs) -> anyhow::Result<()> {
    let Some(program) = args.command.first() else {
        return Err(fail::usage("no program given", "softring deny -- CMD"));
    };
    let path = run::find_program(program)?;
    install(args.errno, args.aio)?;
    run::exec(&path, &args.command, &run::Environment::own())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the filter's answer to system call `nr`, by a small interpreter of the filter's
    /// instructions.
    fn answer(nr: u32, aio: bool, arch: u32) -> u32 {
        let prog = filter(1, aio);
        let (mut pc, mut acc) = (0usize, 0u32);
        loop {
            let i = &prog[pc];
            pc += 1;
            match i.code {
                LD_W_ABS => acc = if i.k == 0 { nr } else { arch },
                AND_K => acc &= i.k,
                JEQ_K => pc += usize::from(if acc == i.k { i.jt } else { i.jf }),
                JGE_K => pc += usize::from(if acc >= i.k { i.jt } else { i.jf }),
                RET_K => return i.k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn exactly_these_numbers_are_denied() {
        for aio in [false, true] {
            for nr in 0..1000 {
                let ring = (FIRST..=LAST).contains(&nr);
                let denied = ring || aio && ((206..=210).contains(&nr) || nr == 333);
                assert_eq!(answer(nr, aio, X86_64) == RET_ALLOW, !denied, "{nr}");
                assert_eq!(answer(nr | X32, aio, X86_64) == RET_ALLOW, !denied, "x32 {nr}");
                assert_eq!(answer(nr, aio, 0x4000_0003) == RET_ALLOW, !ring, "i386 {nr}");
            }
            assert_eq!(answer(426, aio, X86_64), RET_ERRNO | 1);
        }
    }
}
