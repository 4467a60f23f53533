//! Program of the tests of injected faults: `transfers WHAT [FOLDER]` makes requests one after the
//! other, and prints a line for each CQE, and for each call that fails.
#![allow(unsafe_code)]

mod calls;

use calls::Libc;
use softring_client::{Cqe, Ring};
use softring_uapi::*;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

const EINTR: isize = -4;
const EAGAIN: isize = -11;

/// A ring that goes on where a call is interrupted or refused.
struct Client(Ring<Libc>);

impl Client {
    fn new(entries: u32, flags: u32) -> Client {
        Client(Ring::new(Libc, entries, flags).expect("a ring"))
    }

    fn enter(&self, submit: u32, min: u32) -> isize {
        let done = self.0.enter(submit, min, IORING_ENTER_GETEVENTS);
        if done < 0 {
            println!("enter {done}");
            assert!(done == EINTR || done == EAGAIN, "{done}");
        }
        done
    }

    /// Submits all that was pushed.
    fn submit(&self) {
        while self.0.sq_ready() > 0 {
            self.enter(self.0.sq_ready(), 0);
        }
    }

    fn next(&mut self) -> Cqe {
        loop {
            if let Some(cqe) = self.0.pop() {
                println!("{} {} {:#x}", cqe.user_data, cqe.res, cqe.flags & 0xffff);
                return cqe;
            }
            self.enter(0, 1);
        }
    }

    fn one(&mut self, sqe: io_uring_sqe) -> Cqe {
        self.0.push(sqe);
        self.submit();
        self.next()
    }
}

fn sqe(opcode: u8, fd: &impl AsRawFd, buffer: &[u8], off: u64) -> io_uring_sqe {
    let (addr, len) = (buffer.as_ptr().expose_provenance() as u64, buffer.len() as u32);
    io_uring_sqe { opcode, fd: fd.as_raw_fd(), addr, len, off, ..Default::default() }
}

/// Writes and reads a file, checks that a short count is a prefix, and that links break.
fn file(folder: &Path) {
    let mut client = Client::new(8, 0);
    let mut open = OpenOptions::new();
    let file = open.read(true).write(true).create(true).truncate(true).open(folder.join("data"));
    let file = file.expect("a file");
    let block: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
    for i in 0..8u64 {
        let before = file.metadata().expect("the file").len();
        let at = i * 8192;
        file.set_len(at).expect("the file");
        let cqe = client.one(sqe(IORING_OP_WRITE, &file, &block, at));
        let len = file.metadata().expect("the file").len();
        assert_eq!(len, at + u64::from(cqe.res.max(0).cast_unsigned()), "a prefix, after {before}");
    }
    file.set_len(0).expect("the file");
    (&file).write_all(&block).expect("the file");
    for _ in 0..8 {
        let into = vec![0xee; 8192];
        let cqe = client.one(sqe(IORING_OP_READ, &file, &into, 0));
        let n = usize::try_from(cqe.res).unwrap_or(0);
        assert!(into[..n] == block[..n] && into[n..].iter().all(|&b| b == 0xee), "a prefix");
    }
    for _ in 0..4 {
        let mut fsync = sqe(IORING_OP_FSYNC, &file, &[], 0);
        fsync.user_data = 1;
        client.one(fsync);
    }
    for _ in 0..4 {
        let into = vec![0xee; 8192];
        let mut read = sqe(IORING_OP_READ, &file, &into, 0);
        (read.flags, read.user_data) = (IOSQE_IO_LINK, 2);
        client.0.push(read);
        client.0.push(io_uring_sqe { user_data: 3, ..Default::default() });
        client.submit();
        let both = [client.next(), client.next()];
        let of = |data| both.iter().find(|cqe| cqe.user_data == data).expect("a CQE").res;
        assert_eq!(
            of(3),
            if of(2) == 8192 { 0 } else { -125 },
            "a link behind a short read breaks"
        );
    }
}

/// Sends bytes through a stream, and receives them.
fn stream(tcp: bool, op: [u8; 2]) {
    let mut client = Client::new(8, 0);
    let (from, to): (OwnedFd, OwnedFd) = if tcp {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let from = TcpStream::connect(at).expect("a connection");
        (from.into(), listener.accept().expect("a connection").0.into())
    } else {
        let (from, to) = UnixStream::pair().expect("two sockets");
        (from.into(), to.into())
    };
    let data: Vec<u8> = (0..1000u32).map(|i| (i % 251) as u8).collect();
    let (mut sent, mut got) = (0, Vec::new());
    for _ in 0..60 {
        if sent < data.len() {
            let piece = &data[sent..data.len().min(sent + 100)];
            let cqe = client.one(sqe(op[0], &from, piece, 0));
            sent += usize::try_from(cqe.res).unwrap_or(0);
        }
        let into = vec![0; 1000];
        if got.len() < sent {
            let cqe = client.one(sqe(op[1], &to, &into, 0));
            let n = usize::try_from(cqe.res).unwrap_or(0);
            got.extend_from_slice(&into[..n]);
            if n == 0 && cqe.res == 0 {
                break;
            }
        }
    }
    assert!(data.starts_with(&got), "the stream stays in order");
    println!("end {} {}", sent, got.len());
}

/// Transfers vectors: by WRITEV and READV of a file, and by messages over a stream.
fn vectors(folder: &Path) {
    let mut client = Client::new(8, 0);
    let mut open = OpenOptions::new();
    let file = open.read(true).write(true).create(true).truncate(true).open(folder.join("parts"));
    let file = file.expect("a file");
    let data: Vec<u8> = (0..3000u32).map(|i| (i % 251) as u8).collect();
    let parts_of = |bytes: &[u8]| {
        let base = bytes.as_ptr().expose_provenance() as u64;
        [0, 1000, 2000].map(|at| iovec { base: base + at, len: 1000 })
    };
    let vector = |opcode, fd: &dyn Fn() -> i32, parts: &[iovec; 3]| {
        let addr = parts.as_ptr().expose_provenance() as u64;
        io_uring_sqe { opcode, fd: fd(), addr, len: 3, ..Default::default() }
    };
    let fd = || file.as_raw_fd();
    for _ in 0..8 {
        file.set_len(0).expect("the file");
        let cqe = client.one(vector(IORING_OP_WRITEV, &fd, &parts_of(&data)));
        let len = file.metadata().expect("the file").len();
        assert_eq!(len, u64::from(cqe.res.cast_unsigned()), "a prefix");
    }
    file.set_len(0).expect("the file");
    (&file).write_all(&data).expect("the file");
    for _ in 0..8 {
        let into = vec![0xee; 3000];
        let n = client.one(vector(IORING_OP_READV, &fd, &parts_of(&into))).res;
        let n = usize::try_from(n).expect("a count");
        assert!(into[..n] == data[..n] && into[n..].iter().all(|&b| b == 0xee), "a prefix");
    }
    let (from, to) = UnixStream::pair().expect("two sockets");
    let message = |opcode, fd: i32, parts: &[iovec; 3]| {
        let iov = parts.as_ptr().expose_provenance() as u64;
        let msg = Box::leak(Box::new(msghdr { iov, iovlen: 3, ..Default::default() }));
        let addr = std::ptr::from_ref(msg).expose_provenance() as u64;
        io_uring_sqe { opcode, fd, addr, len: 1, ..Default::default() }
    };
    for _ in 0..8 {
        let parts = parts_of(&data);
        let sent = client.one(message(IORING_OP_SENDMSG, from.as_raw_fd(), &parts)).res;
        let mut got = 0;
        while got < sent {
            let into = vec![0xee; 3000];
            let parts = parts_of(&into);
            let n = client.one(message(IORING_OP_RECVMSG, to.as_raw_fd(), &parts)).res;
            let (at, n) = (got as usize, usize::try_from(n).expect("a count"));
            assert!(into[..n] == data[at..at + n], "the stream stays in order");
            assert!(into[n..].iter().all(|&b| b == 0xee), "a prefix");
            got += n as i32;
        }
    }
}

/// Has more NOPs in flight than the CQ has room for, if they do not end at once.
fn burst() {
    let mut client = Client::new(4, 0);
    let mut overflowed = false;
    let mut seen = 0;
    for _ in 0..8 {
        for i in 0..4 {
            client.0.push(io_uring_sqe { user_data: i, ..Default::default() });
        }
        client.submit();
        seen += client.0.pop_all().len();
    }
    std::thread::sleep(std::time::Duration::from_millis(10));
    while seen < 32 {
        overflowed |= client.0.sq_flags() & IORING_SQ_CQ_OVERFLOW != 0;
        client.next();
        seen += 1;
    }
    println!("overflowed {overflowed}");
}

/// Submits many reads at once, and prints in which order they end.
fn order(folder: &Path) {
    let mut client = Client::new(32, 0);
    let path = folder.join("order");
    std::fs::write(&path, [1; 4096]).expect("a file");
    let file = File::open(path).expect("a file");
    let into = vec![0; 32 * 16];
    for i in 0..32 {
        let mut read = sqe(IORING_OP_READ, &file, &into[i * 16..][..16], 0);
        read.user_data = i as u64;
        client.0.push(read);
    }
    client.submit();
    for _ in 0..32 {
        client.next();
    }
}

/// Cancels a read of an empty pipe.
fn cancel() {
    let mut client = Client::new(8, 0);
    let (from, _to) = pipe();
    let into = [0; 16];
    for _ in 0..4 {
        let mut read = sqe(IORING_OP_READ, &from, &into, u64::MAX);
        read.user_data = 7;
        client.0.push(read);
        client.submit();
        let cancel = io_uring_sqe {
            opcode: IORING_OP_ASYNC_CANCEL,
            fd: -1,
            addr: 7,
            user_data: 8,
            ..Default::default()
        };
        client.0.push(cancel);
        client.submit();
        let waits = client.0.cq_ready();
        client.next();
        client.next();
        println!("at once {waits}");
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: an array of two; both numbers are then this program's.
    unsafe {
        assert_eq!(libc::pipe(fds.as_mut_ptr()), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

/// Reads a pipe by a multishot request, until it ends.
fn multishot() {
    const GROUP: u16 = 1;
    let mut client = Client::new(8, 0);
    let memory = vec![0u8; 64 * 64];
    let provide = io_uring_sqe {
        opcode: IORING_OP_PROVIDE_BUFFERS,
        fd: 64,
        addr: memory.as_ptr().expose_provenance() as u64,
        len: 64,
        buf_index: GROUP,
        ..Default::default()
    };
    client.one(provide);
    let (from, to) = pipe();
    let mut to = File::from(to);
    let mut read = sqe(IORING_OP_READ_MULTISHOT, &from, &[], u64::MAX);
    (read.addr, read.buf_index, read.flags) = (0, GROUP, IOSQE_BUFFER_SELECT);
    client.0.push(read);
    client.submit();
    let mut got = 0;
    for _ in 0..16 {
        to.write_all(&[5; 64]).expect("room");
        loop {
            let cqe = client.next();
            got += cqe.res.max(0);
            if cqe.flags & IORING_CQE_F_MORE == 0 {
                return println!("ended after {got} with {}", cqe.res);
            }
            if got % 64 == 0 {
                break;
            }
        }
    }
    println!("never ended");
}

/// Sends without a copy, and waits for the notifications.
fn zero_copy() {
    let mut client = Client::new(8, 0);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let from = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
    let mut to = listener.accept().expect("a peer").0;
    for _ in 0..4 {
        client.one(sqe(IORING_OP_SEND_ZC, &from, &[1; 64], 0));
        println!("at once {}", client.0.cq_ready());
        client.next();
        to.read_exact(&mut [0; 64]).expect("data");
    }
}

/// Counts how often an eventfd is signalled.
fn eventfd() {
    let mut client = Client::new(8, 0);
    // SAFETY: a new descriptor of this program's.
    let mut fd = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK)) };
    let number = [fd.as_raw_fd()];
    assert_eq!(client.0.register_slice(IORING_REGISTER_EVENTFD, &number), 0);
    let mut count = 0;
    for _ in 0..16 {
        client.one(io_uring_sqe::default());
        let mut word = [0; 8];
        count += fd.read(&mut word).map_or(0, |_| u64::from_ne_bytes(word));
    }
    println!("signals {count}");
}

/// Has an SQ thread take NOPs.
fn sq_thread() {
    let mut client = Client::new(8, IORING_SETUP_SQPOLL);
    for _ in 0..16 {
        client.0.push(io_uring_sqe::default());
        if client.0.sq_flags() & IORING_SQ_NEED_WAKEUP != 0 {
            client.0.enter(0, 0, IORING_ENTER_SQ_WAKEUP);
        }
        client.next();
    }
}

/// Asks for EAGAIN by RWF_NOWAIT, and for names that need blocks.
fn others(folder: &Path) {
    const RWF_NOWAIT: u32 = 8;
    let mut client = Client::new(8, 0);
    let path = folder.join("others");
    std::fs::write(&path, [1; 4096]).expect("a file");
    let file = File::open(path).expect("a file");
    for _ in 0..4 {
        let into = [0; 64];
        client.one(io_uring_sqe { op_flags: RWF_NOWAIT, ..sqe(IORING_OP_READ, &file, &into, 0) });
    }
    for i in 0..4 {
        let name = std::ffi::CString::new(format!("{}/d{i}", folder.display())).expect("a name");
        let addr = name.as_ptr().expose_provenance() as u64;
        let (opcode, len) = (IORING_OP_MKDIRAT, 0o755);
        let fd = libc::AT_FDCWD;
        client.one(io_uring_sqe { opcode, fd, addr, len, ..Default::default() });
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["file", folder] => file(Path::new(folder)),
        ["order", folder] => order(Path::new(folder)),
        ["vectors", folder] => vectors(Path::new(folder)),
        ["others", folder] => others(Path::new(folder)),
        ["tcp"] => stream(true, [IORING_OP_SEND, IORING_OP_RECV]),
        ["unix"] => stream(false, [IORING_OP_WRITE, IORING_OP_READ]),
        ["burst"] => burst(),
        ["cancel"] => cancel(),
        ["multishot"] => multishot(),
        ["zero-copy"] => zero_copy(),
        ["eventfd"] => eventfd(),
        ["sq-thread"] => sq_thread(),
        _ => panic!("usage: transfers WHAT [FOLDER]"),
    }
}
