//! A program of the fuzzer: steps with symbolic pointers and descriptors, so that the program means
//! the same in every process, can be shrunk step by step, and can be kept in a file.

use serde::{Deserialize, Serialize};

/// Steps of one run, from its first setup to its last reap.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Program {
    pub seed: u64,
    /// Flag, true for a directory of tmpfs instead of the disk's file system.
    pub tmpfs: bool,
    pub steps: Vec<Step>,
}

/// One step. `ring` is 0 or 1.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Step {
    Setup(Setup),
    /// One SQE to queue; with `bad_index` its place in the SQ array holds an index out of range.
    Sqe {
        ring: u8,
        sqe: Sqe,
        bad_index: bool,
    },
    Enter(Enter),
    /// Submission of the entries that an enter left in the queue behind a refused request.
    Flush(u8),
    /// Wait until no ring's CQ moves any more.
    #[serde(alias = "Settle")]
    AwaitIdle,
    /// Reap of `max` completions, or of all, with a flush of the overflow.
    Reap {
        ring: u8,
        max: Option<u32>,
    },
    Register {
        ring: u8,
        op: u32,
        arg: Val,
        nr: u32,
    },
    Resize {
        ring: u8,
        sq: u32,
        cq: u32,
        flags: u32,
    },
    Host(Host),
}

/// `io_uring_setup(2)`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Setup {
    pub ring: u8,
    pub entries: u32,
    pub flags: u32,
    pub cq_entries: u32,
    pub wq_ring: Option<u8>,
    pub resv: u32,
    /// `sq_thread_idle`, in ms.
    #[serde(default)]
    pub idle: u32,
}

/// `io_uring_enter(2)`; `submit` of `None` means all queued entries.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Enter {
    pub ring: u8,
    pub fd: Option<Fd>,
    pub submit: Option<u32>,
    pub min: u32,
    pub flags: u32,
    pub arg: Val,
    pub size: u32,
}

/// One submission; the fields are the uapi's.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Sqe {
    pub op: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: Fd,
    pub off: Val,
    pub addr: Val,
    pub len: u32,
    pub op_flags: u32,
    pub ud: u64,
    pub buf_index: u16,
    pub personality: u16,
    /// `file_index`, or `splice_fd_in`.
    pub file: Fd,
    pub addr3: Val,
    pub pad2: u64,
}

/// A descriptor.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Fd {
    Num(i64),
    /// A descriptor that the executor opens before the first step.
    Slot(Slot),
    Ring(u8),
    /// The descriptor that the request of this user_data has opened.
    Of(u64),
    /// The process id of a child.
    Child(u8),
}

impl Default for Fd {
    fn default() -> Self {
        Self::Num(0)
    }
}

/// Descriptors that every program starts with, at fixed numbers.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    A,
    B,
    Ro,
    Wo,
    Append,
    Direct,
    Dir,
    Sub,
    PipeR,
    PipeW,
    NbR,
    NbW,
    FullR,
    FullW,
    Event,
    Sem,
    SockA,
    SockB,
    Null,
    Path,
    RingEvent,
    TcpA,
    TcpB,
    UdpA,
    UdpB,
    /// A pair of AF_UNIX datagram sockets.
    DgramA,
    DgramB,
    /// A pair of SOCK_SEQPACKET.
    SeqA,
    SeqB,
    /// A pair of AF_UNIX streams with O_NONBLOCK.
    EagerA,
    EagerB,
    /// A pair of AF_UNIX streams, the first with no room to send.
    TightA,
    TightB,
    /// Listeners.
    TcpL,
    UnixL,
    /// Sockets that are not connected.
    TcpN,
    UnixN,
    Epoll,
}

impl Slot {
    /// Files and streams.
    pub const ALL: [Self; 21] = [
        Self::A,
        Self::B,
        Self::Ro,
        Self::Wo,
        Self::Append,
        Self::Direct,
        Self::Dir,
        Self::Sub,
        Self::PipeR,
        Self::PipeW,
        Self::NbR,
        Self::NbW,
        Self::FullR,
        Self::FullW,
        Self::Event,
        Self::Sem,
        Self::SockA,
        Self::SockB,
        Self::Null,
        Self::Path,
        Self::RingEvent,
    ];
    /// Ends of connections.
    pub const ENDS: [Self; 14] = [
        Self::SockA,
        Self::SockB,
        Self::TcpA,
        Self::TcpB,
        Self::UdpA,
        Self::UdpB,
        Self::DgramA,
        Self::DgramB,
        Self::SeqA,
        Self::SeqB,
        Self::EagerA,
        Self::EagerB,
        Self::TightA,
        Self::TightB,
    ];
    /// Sockets that are no ends of connections, and the epoll set.
    pub const OTHERS: [Self; 5] = [Self::TcpL, Self::UnixL, Self::TcpN, Self::UnixN, Self::Epoll];

    /// Returns the descriptor number of the slot.
    pub const fn number(self) -> i32 {
        100 + self as i32
    }
}

/// A 64-bit field: a number, or an address in the executor's memory.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Val {
    Num(u64),
    /// Address of a byte of a buffer: buffer `0`, byte `1`.
    Buf(u8, u32),
    Bad(Bad),
    Str(String),
    Mem(Vec<Cell>),
    Out(Out),
    /// The number of a descriptor.
    Fd(Fd),
    /// The `struct sockaddr` of a socket.
    Addr(Slot),
    /// The memory of a buffer ring.
    Ring(u8),
}

impl Default for Val {
    fn default() -> Self {
        Self::Num(0)
    }
}

/// Addresses that are wrong in one way each.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    Null,
    Unmapped,
    Kernel,
    NonCanonical,
    /// Readable, not writable.
    ReadOnly,
    /// The last byte before unmapped memory.
    Edge,
    /// A string longer than any path may be.
    LongStr,
}

/// Memory that a request writes to, by its later content.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    Statx,
    Pipe,
    Probe,
    /// `struct sockaddr_storage`.
    Name,
    /// `siginfo_t`.
    Child,
    Raw(u16),
}

/// One member of a structure in memory.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Cell {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(Val),
    Fd(Fd),
}

/// Action outside any ring.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Host {
    /// `write(2)` of `1` bytes (an eventfd gets this number as its value).
    Write(Slot, u32),
    /// `read(2)`, if poll says that it will not wait.
    Read(Slot, u32),
    Close(Slot),
    CloseRing(u8),
    /// `poll(2)` with no timeout; the events are recorded.
    Poll(Fd),
    Sleep(u32),
    /// Eventfd notification turned off or on, in the CQ ring's flags.
    CqFlags(u8, u32),
    /// A buffer filled with 32-bit words.
    Poke(u8, Vec<u32>),
    /// `shutdown(2)`.
    Shutdown(Slot, i32),
    /// A close with SO_LINGER of 0: a TCP peer is reset.
    Reset(Slot),
    /// A connection to a listener, with so many bytes sent.
    Connect(Slot, u32),
    /// The end of the oldest of those connections.
    HangUp,
    Child(u8, Fate),
    /// `futex(2)`: a wake of so many waiters at this word of the futexes' buffer.
    Wake(u8, u32),
    Supply(Supply),
    /// A mapping of a group's ring from the ring's file, in place of the program's memory.
    MapBuffers {
        ring: u8,
        group: u16,
        mem: u8,
    },
}

/// Fate of a child.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Exit,
    Kill,
    Stop,
    Continue,
}

/// Buffers for a buffer ring: address, length and id of each, written from its tail on.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Supply {
    pub mem: u8,
    /// Entries of the ring.
    pub entries: u16,
    pub bufs: Vec<(Val, u32, u16)>,
    /// Number of entries that the tail moves.
    pub tail: u16,
}
