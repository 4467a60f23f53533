//! The names that this library exports: those it interposes, and its own of `softring.h`. A test
//! compares this list with what the linker made.

/// libc's names, in front of which we stand.
pub const INTERPOSED: &[&str] = &[
    "__poll_chk",
    "__ppoll_chk",
    "close",
    "close_range",
    "closefrom",
    "dup",
    "dup2",
    "dup3",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fclose",
    "fcntl",
    "fcntl64",
    "freopen",
    "freopen64",
    "mmap",
    "mmap64",
    "pclose",
    "poll",
    "ppoll",
    "pselect",
    "pthread_sigmask",
    "select",
    "sigaction",
    "signal",
    "sigprocmask",
    "syscall",
];

/// Our own.
pub const OWN: &[&str] = &[
    "softring_enter",
    "softring_meter_begin",
    "softring_meter_create",
    "softring_meter_destroy",
    "softring_meter_end",
    "softring_meter_read",
    "softring_register",
    "softring_setup",
    "softring_version",
];
