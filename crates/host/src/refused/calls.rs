//! Calls that may be refused, with the arguments by which each is tried.

use linux_raw_sys::general as nr;

pub type Args = [usize; 6];

/// Descriptor, address or flag word that no call takes.
const BAD: usize = usize::MAX;

pub(super) const fn bad(first: usize, second: usize) -> Args {
    [first, second, 0, 0, 0, 0]
}

const MADV_DONTFORK: usize = 10;
const PR_SET_NAME: usize = 15;

/// Calls with arguments that change nothing, and to which the kernel's own answer is none of
/// [`refuses`]. The kernel takes only those of poll(2) and madvise(2), and those of eventfd(2),
/// which makes a descriptor ([`answer`]). The calls of [`RINGS`] come first.
pub(super) const OPTIONAL: &[(u32, Args)] = &[
    (nr::__NR_io_uring_setup, bad(0, 0)),
    (nr::__NR_io_uring_enter, bad(BAD, 0)),
    (nr::__NR_io_uring_register, bad(BAD, BAD)),
    (nr::__NR_io_setup, bad(0, 0)),
    (nr::__NR_io_destroy, bad(0, 0)),
    (nr::__NR_io_submit, bad(0, 0)),
    (nr::__NR_io_cancel, bad(0, 0)),
    (nr::__NR_io_getevents, bad(0, 0)),
    (nr::__NR_io_pgetevents, bad(0, 0)),
    (nr::__NR_preadv, bad(BAD, 0)),
    (nr::__NR_pwritev, bad(BAD, 0)),
    (nr::__NR_preadv2, bad(BAD, 0)),
    (nr::__NR_pwritev2, bad(BAD, 0)),
    (nr::__NR_memfd_create, bad(0, BAD)),
    (nr::__NR_ftruncate, bad(BAD, 0)),
    (nr::__NR_pwrite64, bad(BAD, 0)),
    (nr::__NR_fstatfs, bad(BAD, 0)),
    (nr::__NR_fstat, bad(BAD, 0)),
    (nr::__NR_newfstatat, bad(BAD, 0)),
    (nr::__NR_fcntl, bad(BAD, 0)),
    (nr::__NR_statx, [BAD, 0, BAD, 0, 0, 0]),
    (nr::__NR_prlimit64, bad(BAD, BAD)),
    (nr::__NR_eventfd2, bad(0, BAD)),
    (nr::__NR_eventfd, bad(0, 0)),
    (nr::__NR_epoll_create1, bad(BAD, 0)),
    (nr::__NR_epoll_create, bad(0, 0)),
    (nr::__NR_epoll_ctl, bad(BAD, 2)),
    (nr::__NR_epoll_wait, bad(BAD, 0)),
    (nr::__NR_epoll_pwait, bad(BAD, 0)),
    (nr::__NR_epoll_pwait2, bad(BAD, 0)),
    // No files instead of too many: valgrind checks each.
    (nr::__NR_poll, bad(0, 0)),
    (nr::__NR_timerfd_create, bad(BAD, BAD)),
    (nr::__NR_timer_create, bad(BAD, 0)),
    (nr::__NR_clone3, bad(0, 0)),
    (nr::__NR_close_range, bad(3, 2)),
    (nr::__NR_openat2, bad(BAD, 0)),
    (nr::__NR_pidfd_open, bad(0, 0)),
    (nr::__NR_kcmp, bad(BAD, BAD)),
    (nr::__NR_madvise, [0, 0, MADV_DONTFORK, 0, 0, 0]),
    (nr::__NR_mremap, bad(0, 0)),
    (nr::__NR_membarrier, bad(BAD, BAD)),
    (nr::__NR_seccomp, bad(BAD, BAD)),
    (nr::__NR_prctl, bad(PR_SET_NAME, 0)),
    (nr::__NR_futex_wake, [0, 0, 0, BAD, 0, 0]),
    (nr::__NR_futex_waitv, bad(0, 0)),
    (nr::__NR_sched_setaffinity, bad(BAD, 0)),
    (nr::__NR_sched_getaffinity, bad(BAD, 0)),
    (nr::__NR_ioprio_set, bad(BAD, 0)),
    (nr::__NR_capget, bad(0, 0)),
    (nr::__NR_getgroups, bad(BAD, 0)),
    (nr::__NR_getresuid, bad(0, 0)),
    (nr::__NR_getresgid, bad(0, 0)),
    (nr::__NR_rt_sigtimedwait, bad(0, 0)),
    (nr::__NR_rt_tgsigqueueinfo, bad(0, 0)),
    (nr::__NR_tgkill, bad(0, 0)),
];

/// Calls that reap a child: each does for the other.
pub(super) const WAITS: [(&str, u32); 2] = [("wait4", nr::__NR_wait4), ("waitid", nr::__NR_waitid)];

/// Calls that each ring of ours needs, and that have no substitute. `true`: no ring can be made
/// even if the call is only answered with an error.
pub(super) const NEEDED: &[(&str, u32, bool)] = &[
    ("rt_sigprocmask", nr::__NR_rt_sigprocmask, true),
    ("rt_sigaction", nr::__NR_rt_sigaction, false),
    ("rt_sigpending", nr::__NR_rt_sigpending, false),
    ("getpid", nr::__NR_getpid, true),
    ("gettid", nr::__NR_gettid, true),
    ("geteuid", nr::__NR_geteuid, false),
    ("getegid", nr::__NR_getegid, false),
    ("futex", nr::__NR_futex, true),
    ("mmap", nr::__NR_mmap, true),
    ("munmap", nr::__NR_munmap, false),
    ("mprotect", nr::__NR_mprotect, false),
    ("openat", nr::__NR_openat, false),
    ("newfstatat", nr::__NR_newfstatat, false),
    ("lseek", nr::__NR_lseek, false),
    ("read", nr::__NR_read, false),
    ("write", nr::__NR_write, false),
    ("fcntl", nr::__NR_fcntl, false),
    ("close", nr::__NR_close, false),
    ("clock_gettime", nr::__NR_clock_gettime, false),
];

/// Returns arguments by which a child tries a call of [`WAITS`] or [`NEEDED`], and which change
/// nothing.
pub(super) const fn wrong(nr: u32) -> Args {
    match nr {
        // Any child, of which there is none, without waiting for one.
        nr::__NR_wait4 => [BAD, 0, 1, 0, 0, 0],
        _ => bad(BAD, 0),
    }
}
