//! A kernel without aio: a filter of this process's own answers ENOSYS to the six calls.

use libc::{sock_filter, sock_fprog};

pub fn aio() {
    let op = |code: u32, jt, jf, k: u32| sock_filter { code: code as u16, jt, jf, k };
    const LD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const JEQ: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const JGE: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const RET: u32 = libc::BPF_RET | libc::BPF_K;
    let filter = [
        op(LD, 0, 0, 0),
        op(JEQ, 3, 0, 333),
        op(JGE, 0, 1, 206),
        op(JGE, 0, 1, 211),
        op(RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        op(RET, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: a valid program, which the kernel copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}
