//! The trap's seccomp filter. It traps 425..=427, and kernel aio's calls if all contexts are to be
//! polled, unless the call comes from our own text.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::libaio;
use libc::sock_filter;

const LD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JGE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RET: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH: u32 = 4;
const IP_LOW: u32 = 8;
const IP_HIGH: u32 = 12;

/// Value of `si_errno` in the filter's SIGSYS; other filters hardly use it.
pub const MARK: u32 = 0x5f72;

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Returns the filter of a process whose copy of this library has its text at `own`.
pub fn program(own: Range<usize>, aio: bool) -> Vec<sock_filter> {
    let aio_calls = [
        op(JEQ, 4, 0, libaio::PGETEVENTS as u32),
        op(JGE, 0, 13, libaio::FIRST as u32),
        op(JGE, 0, 2, libaio::LAST as u32 + 1),
    ];
    let rings = [
        op(JGE, 0, 11, 425),
        op(JGE, 10, 0, 428),
        op(LD, 0, 0, ARCH),
        op(JEQ, 0, 8, AUDIT_ARCH_X86_64),
    ];
    let mut program = vec![op(LD, 0, 0, NR)];
    program.extend_from_slice(if aio { &aio_calls } else { &[] });
    program.extend_from_slice(&rings);
    program.extend_from_slice(&caller(&own));
    program
}

/// Returns the part that traps unless the call comes from `own`, whose ends may differ in their
/// high halves.
fn caller(own: &Range<usize>) -> [sock_filter; 9] {
    let (start, last) = (own.start, own.end - 1);
    let (low, end) = (start as u32, (last as u32).wrapping_add(1));
    let [first_high, last_high] = [start, last].map(|at| (at >> 32) as u32);
    let one = first_high == last_high;
    [
        op(LD, 0, 0, IP_HIGH),
        op(JEQ, 1, 0, first_high),
        op(JEQ, 2, 4, last_high),
        op(LD, 0, 0, IP_LOW),
        // High half of the start: not below the start. If the end has the same high half, below the
        // end, too.
        op(JGE, if one { 1 } else { 3 }, 2, low),
        op(LD, 0, 0, IP_LOW),
        // If the end is 2^32, every low half lies below it.
        op(JGE, if end == 0 { 1 } else { 0 }, 1, end),
        op(RET, 0, 0, libc::SECCOMP_RET_TRAP | MARK),
        op(RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the kernel's interpreter makes of the filter.
    fn run(program: &[sock_filter], nr: u32, arch: u32, ip: usize) -> u32 {
        let (mut a, mut pc) = (0, 0);
        loop {
            let i = program[pc];
            pc += 1;
            let jump = |taken| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                LD => {
                    a = match i.k {
                        NR => nr,
                        ARCH => arch,
                        IP_LOW => ip as u32,
                        _ => (ip >> 32) as u32,
                    }
                }
                JEQ => pc += jump(a == i.k),
                JGE => pc += jump(a >= i.k),
                _ => return i.k,
            }
        }
    }

    #[test]
    fn only_calls_from_elsewhere_trap() {
        let ranges = [
            0x7f64_1234_5000..0x7f64_1243_8000,
            0x7f64_ffff_5000..0x7f65_000e_8000,
            0x7f64_fff0_0000..0x7f65_0000_0000,
            0x7f65_0000_0000..0x7f65_0010_0000,
        ];
        for own in ranges {
            let mid = own.start + (own.end - own.start) / 2;
            let inside = [own.start, mid, own.end - 1];
            let outside = [own.start - 1, own.end, own.end + (1 << 32), own.start - (1 << 32)];
            for aio in [false, true] {
                let program = program(own.clone(), aio);
                let is = |nr, arch, ip| run(&program, nr, arch, ip);
                for nr in 0..500u32 {
                    let kernel_aio = libaio::knows(nr.into());
                    let ours = (425..428).contains(&nr) || aio && kernel_aio;
                    let traps =
                        if ours { libc::SECCOMP_RET_TRAP | MARK } else { libc::SECCOMP_RET_ALLOW };
                    for ip in outside {
                        assert_eq!(is(nr, AUDIT_ARCH_X86_64, ip), traps, "{nr} {ip:#x} {own:x?}");
                    }
                    for ip in inside {
                        let got = is(nr, AUDIT_ARCH_X86_64, ip);
                        assert_eq!(got, libc::SECCOMP_RET_ALLOW, "{nr} {ip:#x} {own:x?}");
                    }
                    assert_eq!(is(nr, 0, own.end), libc::SECCOMP_RET_ALLOW);
                }
            }
        }
    }
}
