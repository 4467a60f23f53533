//! The checks, as data. A new check is one row here and one probe in `probes.rs`.

use super::probes::{self as p, Finding};
use serde::Serialize;

/// Subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    Denial,
    Interception,
    Transports,
    Polling,
    Limits,
}

impl Group {
    pub const fn title(self) -> &'static str {
        match self {
            Group::Denial => "What denies io_uring",
            Group::Interception => "How programs reach softring",
            Group::Transports => "What softring works with",
            Group::Polling => "Which disks the kernel can poll",
            Group::Limits => "Limits",
        }
    }
}

/// One check: its probe, its meaning, and a hint if the result is not as wished.
pub struct Check {
    pub name: &'static str,
    pub group: Group,
    pub probe: fn() -> Finding,
    pub meaning: &'static str,
    pub hint: &'static str,
}

/// The checks that make no calls but those of the dynamic linker.
pub const HARMLESS: [&str; 4] = ["io_uring_disabled", "seccomp", "lsm", "libsoftring.so"];

macro_rules! checks {
    ($($group:ident { $($name:literal, $probe:expr, $meaning:literal, $hint:literal;)* })*) => {
        pub const CHECKS: &[Check] = &[$($(Check {
            name: $name, group: Group::$group, probe: $probe, meaning: $meaning, hint: $hint,
        }),*),*];
    };
}

checks! {
    Denial {
        "io_uring_setup", p::ring_setup,
            "a real call: does this process get a ring from the kernel?",
            "run the program with softring run, or remove the denial that the rows below show";
        "kernel's rings lack", p::lacking,
            "operations, set-up flags, register calls and features that softring's rings have",
            "for programs that need these: softring run --at-least=RELEASE, or --engine=user";
        "kernel", p::kernel,
            "io_uring came with Linux 5.1, most of its operations by 5.19",
            "use a newer kernel, which has io_uring or more of its operations";
        "io_uring_disabled", p::sysctl,
            "kernel.io_uring_disabled: 0 anyone, 1 a group and CAP_SYS_ADMIN, 2 nobody",
            "as root: sysctl kernel.io_uring_disabled=0, or join the group kernel.io_uring_group";
        "seccomp", p::seccomp,
            "a filter may deny system calls by number; the default filters of Docker and \
             containerd do",
            "docker run --security-opt seccomp=PROFILE, with a profile that allows the io_uring \
             calls";
        "lsm", p::lsm,
            "SELinux and others can deny io_uring by policy; only the audit log shows this",
            "";
    }
    Interception {
        "libsoftring.so", p::library,
            "the library that softring run preloads into programs",
            "install it next to softring or in ../lib, or name it in SOFTRING_LIB";
        "syscall()", p::libc_entry,
            "for programs that call libc's syscall(): Rust, libuv, fio's set-up",
            "use a dynamically linked build of softring and of the program";
        "patched call sites", p::patch_entry,
            "for inline system calls: liburing, fio; needs program text that may be changed",
            "allow it: MemoryDenyWriteExecute=no (systemd), execmod (SELinux); --intercept=sigsys";
        "seccomp trap", p::trap_entry,
            "for every call site, some microseconds each (--intercept=sigsys)",
            "allow seccomp(2) with SECCOMP_RET_TRAP";
        "trial program", super::trial::probe,
            "a small program with inline calls under softring run: which rings does it get?",
            "";
        "user dispatch", p::dispatch_entry,
            "Syscall User Dispatch (Linux 5.11): not used, because the trap slows other calls less",
            "";
    }
    Transports {
        "memfd_create", p::memfd,
            "ring memory; if memfd_create(2) is refused, softring uses a file in /dev/shm or \
             $TMPDIR",
            "allow memfd_create(2): without it softring metrics and trace find nothing";
        "eventfd", p::eventfd,
            "wakes threads that poll the descriptor of a ring",
            "allow eventfd2(2)";
        "kernel aio", p::aio,
            "a batch of reads and writes in one system call; without it softring uses threads",
            "allow io_setup(2), io_submit(2), io_getevents(2); see aio-nr below";
        "RWF_NOWAIT here", p::nowait,
            "cached reads without a thread, on the file system of this directory",
            "";
        "O_DIRECT here", p::direct,
            "I/O past the page cache, on the file system of this directory",
            "";
        "epoll_pwait2", p::epoll_pwait2,
            "waits with nanoseconds (Linux 5.11); without it, milliseconds",
            "";
    }
    Polling {
        "poll queues", p::poll_queues,
            "the kernel's polled rings (IOPOLL) need a disk with poll queues; softring's do not",
            "run programs with polled rings by softring run; or for NVMe, load nvme with \
             poll_queues=N";
        "disk here", p::disk_here,
            "the disk under this directory: may the kernel poll it?",
            "";
    }
    Limits {
        "memlock", p::memlock,
            "RLIMIT_MEMLOCK: without CAP_IPC_LOCK it limits the kernel's rings and registered \
             buffers",
            "";
        "nofile", p::nofile,
            "RLIMIT_NOFILE: a ring of softring takes a few of the program's descriptors",
            "raise it: ulimit -n 4096";
        "fsize", p::fsize,
            "RLIMIT_FSIZE: a ring of softring has a sparse file of 256 MiB and some pages",
            "raise the hard limit: ulimit -f unlimited, or LimitFSIZE=infinity (systemd)";
        "nproc", p::nproc,
            "RLIMIT_NPROC: softring's workers are threads of the program",
            "raise it: ulimit -u 4096";
        "aio-nr", p::aio_nr,
            "fs.aio-nr of fs.aio-max-nr: kernel aio slots in use on the whole machine",
            "as root: sysctl fs.aio-max-nr=1048576";
    }
}
