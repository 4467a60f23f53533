//! An echo server on a ring with the flags of a network library for JVMs (SINGLE_ISSUER,
//! DEFER_TASKRUN). Each connection has one RECV or SEND in flight; the wait submits them.
//! With `epoll`: the same loop on a level-triggered epoll set, a recv(2) and a send(2) for each
//! round trip and one wait for all that are ready: the least that user space must do.

use io_uring::{IoUring, opcode, squeue, types};
use loads::BUFFER;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

const ACCEPT: u64 = u64::MAX;
const SEND: u64 = 1 << 32;

struct Server {
    ring: IoUring,
    buffers: Vec<Box<[u8; BUFFER]>>,
}

impl Server {
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: buffers live as long as the server, which ends with the process.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit().expect("io_uring_enter");
        }
    }

    fn buffer(&mut self, fd: RawFd) -> *mut u8 {
        let at = fd as usize;
        while self.buffers.len() <= at {
            self.buffers.push(Box::new([0; BUFFER]));
        }
        self.buffers[at].as_mut_ptr()
    }

    fn receive(&mut self, fd: RawFd) {
        let to = self.buffer(fd);
        let entry = opcode::Recv::new(types::Fd(fd), to, BUFFER as u32).build();
        self.push(entry.user_data(fd as u64));
    }

    fn send(&mut self, fd: RawFd, len: u32) {
        let from = self.buffer(fd);
        let entry = opcode::Send::new(types::Fd(fd), from, len).build();
        self.push(entry.user_data(SEND | fd as u64));
    }

    fn accept(&mut self, listener: RawFd) {
        let (none, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let entry = opcode::Accept::new(types::Fd(listener), none, no_len).build();
        self.push(entry.user_data(ACCEPT));
    }

    fn on_cqe(&mut self, listener: RawFd, user_data: u64, res: i32) {
        let fd = user_data as u32 as RawFd;
        match user_data {
            ACCEPT => {
                assert!(res >= 0, "accept: {res}");
                self.receive(res);
                self.accept(listener);
            }
            // The client has gone.
            _ if res <= 0 => drop(io_of(fd)),
            _ if user_data & SEND != 0 => self.receive(fd),
            _ => self.send(fd, res as u32),
        }
    }
}

fn io_of(fd: RawFd) -> std::net::TcpStream {
    use std::os::fd::FromRawFd;
    // SAFETY: the server owns its connections by number.
    unsafe { std::net::TcpStream::from_raw_fd(fd) }
}

fn on_ring(listener: TcpListener) {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(1024)
        .expect("a ring");
    let mut server = Server { ring, buffers: Vec::new() };
    let fd = listener.into_raw_fd();
    server.accept(fd);
    let mut ready = Vec::new();
    loop {
        server.ring.submit_and_wait(1).expect("io_uring_enter");
        ready.extend(server.ring.completion().map(|cqe| (cqe.user_data(), cqe.result())));
        for (user_data, res) in ready.drain(..) {
            server.on_cqe(fd, user_data, res);
        }
    }
}

fn on_epoll(listener: TcpListener) {
    use std::io::{Read, Write};
    use std::mem::ManuallyDrop;
    let fd = listener.as_raw_fd();
    let set = Epoll::new();
    set.add(fd);
    let mut buf = [0; BUFFER];
    let mut ready = Vec::with_capacity(1024);
    loop {
        set.wait(&mut ready);
        for &at in &ready {
            if at == fd {
                let (stream, _) = listener.accept().expect("a connection");
                set.add(stream.into_raw_fd());
                continue;
            }
            let mut stream = ManuallyDrop::new(io_of(at));
            match stream.read(&mut buf) {
                Ok(n @ 1..) => {
                    stream.write_all(&buf[..n]).expect("a send");
                }
                _ => drop(ManuallyDrop::into_inner(stream)),
            }
        }
    }
}

struct Epoll(RawFd);

impl Epoll {
    fn new() -> Epoll {
        // SAFETY: no memory is passed.
        Epoll(unsafe { libc::epoll_create1(0) })
    }

    fn add(&self, fd: RawFd) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: the event lives for the call.
        assert_eq!(unsafe { libc::epoll_ctl(self.0, libc::EPOLL_CTL_ADD, fd, &mut event) }, 0);
    }

    fn wait(&self, ready: &mut Vec<RawFd>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
        // SAFETY: there is room for as many as are asked for.
        let n = unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), 1024, -1) };
        ready.clear();
        ready.extend(events[..n.max(0) as usize].iter().map(|event| event.u64 as RawFd));
    }
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    loads::listens(listener.local_addr().expect("an address").port());
    match loads::word(1).as_str() {
        "epoll" => on_epoll(listener),
        _ => on_ring(listener),
    }
}
