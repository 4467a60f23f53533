//! System calls on softring's own files, memory and sockets, with their types: the part of rustix
//! that the engine uses. They bypass the C library, check their arguments, and are safe to call, or
//! say what the caller must uphold. A call on what the program names is one of [`crate::calls`]; a
//! call that a policy may refuse is one of [`crate::substitute`].

/// Owned and borrowed descriptors.
pub mod fd {
    pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
}

/// Waiting for events of several descriptors.
pub mod event {
    pub use rustix::event::{PollFd, PollFlags, Timespec, poll};
}

/// Files and folders.
pub mod fs {
    pub use rustix::fs::{
        AtFlags, FileType, Mode, OFlags, RawDir, SealFlags, SeekFrom, Stat, StatxFlags,
        fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, major, makedev, minor, open,
        readlink, seek, statx,
    };
}

/// Bytes of files.
pub mod io {
    pub use rustix::io::{Errno, IoSlice, IoSliceMut, pread, read, write};
}

/// Mapped memory.
pub mod mm {
    pub use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};
}

/// Sockets, and descriptors that are sent over them.
pub mod net {
    pub use rustix::cmsg_space;
    pub use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
        sendmsg, socket_with, socketpair,
    };
}

/// Pipes.
pub mod pipe {
    pub use rustix::pipe::{PipeFlags, pipe_with};
}

/// Processes, their users and their limits.
pub mod process {
    pub use rustix::process::{Pid, Resource, Rlimit, geteuid, getppid, getuid};
}

/// Threads.
pub mod thread {
    pub use rustix::thread::sched_getcpu;
}

/// Timers.
pub mod time {
    pub use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
}
