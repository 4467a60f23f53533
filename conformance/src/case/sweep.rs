//! Single requests of every opcode, each with one field changed, on no file, a file and a socket,
//! with their results. A request that does not end soon waits.

use super::prelude::*;
use crate::ring::Map;
use crate::show;
use std::net::UdpSocket;
use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering::Relaxed;

pub const CASES: &[Case] = &[
    case!("sweep", read_and_write, [], "READ, WRITE and the like"),
    case!("sweep", sockets, [], "opcodes that send, receive and connect"),
    case!("sweep", zero_copy, [], "SEND_ZC, SENDMSG_ZC, RECV_ZC"),
    case!("sweep", open_files, [], "opcodes that change an open file or its number"),
    case!("sweep", names, [], "opcodes that name files"),
    case!("sweep", waits, [], "opcodes that wait for time, readiness, words and children"),
    case!("sweep", the_ring, [], "opcodes that concern the ring itself"),
];

/// A changed field: its name, how it is changed, and its value.
type Change = (String, fn(&mut io_uring_sqe, u64, u64), u64);

/// Returns all changes: their names, how they change a field, and the value. The last argument of a
/// change is the address of the memory.
fn changes() -> Vec<Change> {
    let mut all: Vec<Change> = vec![("nothing".into(), |_, _, _| {}, 0)];
    let mut field = |name: &str, values: &[u64], set: fn(&mut io_uring_sqe, u64, u64)| {
        all.extend(values.iter().map(|v| (format!("{name}={v:#x}"), set, *v)));
    };
    let bits = |from: u32, to: u32| (from..to).map(|bit| 1u64 << bit).collect::<Vec<_>>();
    let ends = [1, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    field("flags", &bits(0, 8), |s, v, _| s.flags = v as u8);
    field("ioprio", &bits(0, 8), |s, v, _| s.ioprio = v as u16);
    field("ioprio", &[0x2000, 0x8000, 0xffff], |s, v, _| s.ioprio = v as u16);
    field("off", &ends, |s, v, _| s.off = v);
    field("off=memory", &[0x100], |s, v, at| s.off = at + v);
    field("addr", &[0, 8, 1 << 63, u64::MAX], |s, v, _| s.addr = v);
    field("addr=memory", &[0, 0x100], |s, v, at| s.addr = at + v);
    field("len", &[0, 1, 2, 8, 1 << 31, u64::MAX], |s, v, _| s.len = v as u32);
    field("op_flags", &bits(0, 32), |s, v, _| s.op_flags = v as u32);
    field("buf_index", &[1, 0xffff], |s, v, _| s.buf_index = v as u16);
    field("personality", &[1], |s, v, _| s.personality = v as u16);
    field("file_index", &[1, 16, 1 << 16, 0xffff_ffff], |s, v, _| s.file_index = v as u32);
    field("addr3", &[1, 1 << 63], |s, v, _| s.addr3 = v);
    field("addr3=memory", &[0x100], |s, v, at| s.addr3 = at + v);
    field("pad2", &[1, 1 << 63], |s, v, _| s.pad2 = v);
    all
}

/// Target of a request; each request has fresh files.
#[derive(Clone, Copy, Debug)]
enum On {
    Nothing,
    File,
    Socket,
}

/// Makes a request that succeeds, if it can on such a file.
fn plain(opcode: u8, fd: i32, at: u64) -> io_uring_sqe {
    let s = io_uring_sqe { addr: at, len: 8, ..sqe::op(opcode, fd) };
    match opcode {
        IORING_OP_READV | IORING_OP_WRITEV | IORING_OP_READV_FIXED | IORING_OP_WRITEV_FIXED => {
            s.set(|s| s.len = 1)
        }
        IORING_OP_TIMEOUT | IORING_OP_LINK_TIMEOUT | IORING_OP_SENDMSG | IORING_OP_RECVMSG
        | IORING_OP_SENDMSG_ZC => s.set(|s| s.len = 1),
        IORING_OP_NOP | IORING_OP_POLL_REMOVE | IORING_OP_ASYNC_CANCEL | IORING_OP_ACCEPT
        | IORING_OP_CLOSE | IORING_OP_TIMEOUT_REMOVE | IORING_OP_SYNC_FILE_RANGE
        | IORING_OP_FSYNC | IORING_OP_FTRUNCATE | IORING_OP_FIXED_FD_INSTALL => {
            s.set(|s| (s.addr, s.len) = (0, 0))
        }
        IORING_OP_POLL_ADD => s.set(|s| (s.addr, s.len) = (0, 0)).op_flags(1),
        IORING_OP_FALLOCATE => s.set(|s| (s.addr, s.len) = (4096, 0)),
        IORING_OP_SHUTDOWN | IORING_OP_LISTEN => s.set(|s| (s.addr, s.len) = (0, 1)),
        IORING_OP_CONNECT | IORING_OP_BIND => s.set(|s| (s.off, s.len) = (16, 0)),
        IORING_OP_SOCKET => {
            s.set(|s| (s.fd, s.off, s.addr, s.len) = (libc::AF_INET, 2, 0, 0))
        }
        IORING_OP_FADVISE => s.set(|s| s.addr = 0),
        IORING_OP_EPOLL_CTL | IORING_OP_WAITID => s.set(|s| s.len = 1),
        IORING_OP_FUTEX_WAIT | IORING_OP_FUTEX_WAKE => {
            s.set(|s| (s.len, s.addr3, s.fd) = (0, u64::MAX >> 32, 2))
        }
        IORING_OP_FUTEX_WAITV => s.set(|s| s.len = 1),
        IORING_OP_STATX => s.set(|s| s.off = at + 512),
        IORING_OP_PIPE => s.set(|s| s.len = 0),
        _ => s,
    }
}

/// Returns whether the result is a descriptor.
fn opens(opcode: u8) -> bool {
    matches!(
        opcode,
        IORING_OP_OPENAT
            | IORING_OP_OPENAT2
            | IORING_OP_SOCKET
            | IORING_OP_ACCEPT
            | IORING_OP_FIXED_FD_INSTALL
    )
}

/// Returns whether the request may wait for an event that never comes.
fn may_wait(s: &io_uring_sqe, on: On) -> bool {
    let reads = matches!(
        s.opcode,
        IORING_OP_READ
            | IORING_OP_READV
            | IORING_OP_READ_MULTISHOT
            | IORING_OP_RECV
            | IORING_OP_RECVMSG
            | IORING_OP_POLL_ADD
    );
    let notified = matches!(s.opcode, IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC);
    matches!(s.opcode, IORING_OP_FUTEX_WAIT | IORING_OP_FUTEX_WAITV)
        || reads && matches!(on, On::Socket)
        || notified && s.flags & IOSQE_IO_DRAIN != 0
        || s.flags & IOSQE_CQE_SKIP_SUCCESS != 0
}

/// SQE flags that change how the ring handles later requests.
const LASTING: u8 = IOSQE_IO_DRAIN | IOSQE_CQE_SKIP_SUCCESS;

/// A ring, and memory that requests may read and write.
struct Sweep {
    ring: Ring,
    memory: Map,
    /// Number of requests so far.
    count: u64,
}

impl Sweep {
    /// Submits one request and returns its result; `None` if it waits.
    fn ask(&mut self, cx: &mut Cx, sqe: io_uring_sqe, on: On) -> Result<Option<i32>, Stop> {
        let span = sqe::millis(if may_wait(&sqe, on) { 20 } else { 1000 });
        let arg = io_uring_getevents_arg { ts: addr(&span) as u64, ..Default::default() };
        self.count += 1;
        self.ring.push(sqe.ud(self.count)).enter_ext(1, 1, &arg);
        // Notifications of earlier requests may come before its CQE.
        let cqe = std::iter::from_fn(|| self.ring.pop()).find(|c| c.user_data == self.count);
        // A new ring keeps the state and the late CQEs of this request from the next one.
        let more = cqe.is_none_or(|cqe| cqe.flags & IORING_CQE_F_MORE != 0);
        if more || sqe.flags & LASTING != 0 {
            self.ring = cx.ring(8, 0)?;
        }
        Ok(cqe.map(|cqe| cqe.res))
    }
}

/// Submits every request, and records their results.
fn sweep(cx: &mut Cx, opcodes: &[u8]) -> Outcome {
    let mut s = Sweep {
        ring: cx.ring(8, 0)?,
        // No memory is mapped behind the page.
        memory: Map::of_program(os::border() - 4096, 4096),
        count: 0,
    };
    for opcode in opcodes {
        for on in [On::Nothing, On::File, On::Socket] {
            let name = op_name(*opcode).unwrap_or_default();
            for (what, set, value) in changes() {
                let answer = one(cx, &mut s, *opcode, on, |sqe, at| set(sqe, value, at))?;
                cx.note(&format!("{name} on {on:?}, {what}"), answer);
            }
        }
    }
    Ok(())
}

/// Submits one request on a file of its own.
fn one(
    cx: &mut Cx,
    s: &mut Sweep,
    opcode: u8,
    on: On,
    change: impl FnOnce(&mut io_uring_sqe, u64),
) -> Result<String, Stop> {
    let (file, sockets) = match on {
        On::Nothing => (None, None),
        On::File => (Some(cx.file("f", b"some content of a file")?), None),
        On::Socket => {
            let one = || UdpSocket::bind("127.0.0.1:0");
            (None, Some((one()?, one()?)))
        }
    };
    if let Some((a, b)) = &sockets {
        a.connect(b.local_addr()?)?;
        b.connect(a.local_addr()?)?;
    }
    let fd = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let fd = sockets.as_ref().map_or(fd, |(a, _)| a.as_raw_fd());
    (0..4096).step_by(4).for_each(|at| s.memory.word(at).store(0, Relaxed));
    let at = s.memory.addr as u64;
    let mut sqe = plain(opcode, fd, at);
    change(&mut sqe, at);
    let got = s.ask(cx, sqe, on)?;
    // The request may have closed the files.
    if fd >= 0 && os::fcntl(fd, libc::F_GETFD, 0) < 0 {
        let _ = file.map(IntoRawFd::into_raw_fd);
        let _ = sockets.map(|(a, _)| a.into_raw_fd());
    }
    let made = match (opcode, got) {
        (IORING_OP_PIPE, Some(0)) => {
            [0, 4].map(|at| s.memory.word(at).load(Relaxed).cast_signed()).to_vec()
        }
        (op, Some(fd @ 3..)) if opens(op) => vec![fd],
        _ => vec![],
    };
    let fds = !made.is_empty();
    made.into_iter().for_each(|fd| cx.close(fd));
    Ok(match got {
        None => "waits".into(),
        Some(_) if fds => "an fd".into(),
        Some(res) => show::answer(res.into()),
    })
}

fn read_and_write(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_READ_FIXED,
        IORING_OP_WRITE_FIXED, IORING_OP_READV_FIXED, IORING_OP_WRITEV_FIXED,
        IORING_OP_READ_MULTISHOT,
    ];
    sweep(cx, &opcodes)
}

fn sockets(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_SEND, IORING_OP_RECV, IORING_OP_SENDMSG, IORING_OP_RECVMSG, IORING_OP_ACCEPT,
        IORING_OP_CONNECT, IORING_OP_SOCKET, IORING_OP_BIND, IORING_OP_LISTEN,
        IORING_OP_SHUTDOWN, IORING_OP_URING_CMD,
    ];
    sweep(cx, &opcodes)
}

fn zero_copy(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_SEND_ZC, IORING_OP_SENDMSG_ZC, IORING_OP_RECV_ZC,
    ];
    sweep(cx, &opcodes)
}

fn open_files(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_FSYNC, IORING_OP_SYNC_FILE_RANGE, IORING_OP_FALLOCATE, IORING_OP_FTRUNCATE,
        IORING_OP_FADVISE, IORING_OP_MADVISE, IORING_OP_SPLICE, IORING_OP_TEE, IORING_OP_CLOSE,
        IORING_OP_FIXED_FD_INSTALL, IORING_OP_PIPE, IORING_OP_FSETXATTR, IORING_OP_FGETXATTR,
    ];
    sweep(cx, &opcodes)
}

fn names(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_OPENAT, IORING_OP_OPENAT2, IORING_OP_STATX, IORING_OP_RENAMEAT,
        IORING_OP_UNLINKAT, IORING_OP_MKDIRAT, IORING_OP_SYMLINKAT, IORING_OP_LINKAT,
        IORING_OP_SETXATTR, IORING_OP_GETXATTR,
    ];
    sweep(cx, &opcodes)
}

fn waits(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_TIMEOUT, IORING_OP_TIMEOUT_REMOVE, IORING_OP_LINK_TIMEOUT, IORING_OP_POLL_ADD,
        IORING_OP_POLL_REMOVE, IORING_OP_WAITID, IORING_OP_FUTEX_WAKE, IORING_OP_FUTEX_WAIT,
        IORING_OP_FUTEX_WAITV, IORING_OP_EPOLL_CTL, IORING_OP_EPOLL_WAIT,
    ];
    sweep(cx, &opcodes)
}

fn the_ring(cx: &mut Cx) -> Outcome {
    #[rustfmt::skip]
    let opcodes = [
        IORING_OP_NOP, IORING_OP_ASYNC_CANCEL, IORING_OP_FILES_UPDATE, IORING_OP_PROVIDE_BUFFERS,
        IORING_OP_REMOVE_BUFFERS, IORING_OP_MSG_RING,
    ];
    sweep(cx, &opcodes)
}
