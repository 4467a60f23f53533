//! Filters of system calls: one stops a thread before each call that changes files or makes them
//! durable; the other refuses what would change files without such a call.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls before which a thread stops.
const STOPS: [i64; 32] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_copy_file_range,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_creat,
    libc::SYS_openat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_msync,
];

/// Calls that are refused: the kernel's rings and kernel aio would write unheard. softring does
/// without both.
const REFUSED: [i64; 4] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
];

/// Requests of ioctl(2) that copy a file's blocks.
const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns a rule that asks whether these bits of an argument have this value.
fn bits(arg: u8, mask: i32, value: i32) -> Result<SeccompRule, BackendError> {
    let [mask, value] = [mask, value].map(|bits| u64::from(bits.cast_unsigned()));
    let op = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value)?;
    SeccompRule::new(vec![condition])
}

fn stops() -> Result<Rules, BackendError> {
    let mut rules: Rules = STOPS.into_iter().map(|nr| (nr, Vec::new())).collect();
    // A file is made or emptied.
    for (nr, arg) in [(libc::SYS_open, 1), (libc::SYS_openat, 2)] {
        let flags = [libc::O_CREAT, libc::O_TRUNC].map(|flag| bits(arg, flag, flag));
        rules.insert(nr, flags.into_iter().collect::<Result<_, _>>()?);
    }
    let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    rules.insert(libc::SYS_mmap, vec![bits(3, shared, libc::MAP_SHARED)?]);
    let clones = [FICLONE, FICLONERANGE].map(|request| {
        let condition =
            SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?;
        SeccompRule::new(vec![condition])
    });
    rules.insert(libc::SYS_ioctl, clones.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

/// Returns the filters, in the order in which they are installed.
pub fn programs() -> Result<[BpfProgram; 2], BackendError> {
    let refused = REFUSED.into_iter().map(|nr| (nr, Vec::new())).collect();
    let answers = [
        (refused, SeccompAction::Errno(libc::ENOSYS.cast_unsigned())),
        (stops()?, SeccompAction::Trace(0)),
    ];
    let [refuse, stop] = answers.map(|(rules, answer)| {
        SeccompFilter::new(rules, SeccompAction::Allow, answer, TargetArch::x86_64)?.try_into()
    });
    Ok([refuse?, stop?])
}
