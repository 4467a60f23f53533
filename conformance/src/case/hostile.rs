//! Rings of provided buffers whose entries a program has filled with nonsense.

use super::net::{arrived, pair, seen};
use super::pbuf::{GROUP, reg, register};
use super::prelude::*;
use std::io::Write;
use std::net::TcpStream;

pub const CASES: &[Case] = &[
    case!("hostile", bad_ring_memory, [Reg(IORING_REGISTER_PBUF_RING)], "rings in memory that is read-only, too short or unmapped"),
    any_order!("hostile", unmapped, [Reg(IORING_REGISTER_PBUF_RING)], "a ring whose memory is unmapped after its registration"),
    any_order!("hostile", zero_length_buffers, [Reg(IORING_REGISTER_PBUF_RING), Op(IORING_OP_READ)], "selected buffers of length 0 at bad addresses"),
    any_order!("hostile", addresses, [Reg(IORING_REGISTER_PBUF_RING)], "buffers in unmapped memory, kernel memory and at the end of the address space"),
    any_order!("hostile", bad_tails, [Reg(IORING_REGISTER_PBUF_RING)], "tails far ahead of the head, and tails that move back"),
    any_order!("hostile", lengths, [Reg(IORING_REGISTER_PBUF_RING)], "buffers of length 0, or longer than their mapping"),
    any_order!("hostile", buffer_ids, [Reg(IORING_REGISTER_PBUF_RING)], "buffer ids are the program's: any number, and one number twice"),
    any_order!("hostile", ring_changed_while_waiting, [Reg(IORING_REGISTER_PBUF_RING)], "a request picks the buffer that the ring holds when data come"),
    any_order!("hostile", bundles, [Reg(IORING_REGISTER_PBUF_RING)], "bundles with bad, empty and too long buffers"),
    any_order!("hostile", multishot, [Reg(IORING_REGISTER_PBUF_RING)], "multishot requests with bad, empty and too long buffers"),
    any_order!("hostile", reads_and_messages, [Reg(IORING_REGISTER_PBUF_RING)], "reads and messages with bad, empty and too long buffers"),
];

/// Number of entries of each ring of buffers.
const ENTRIES: u16 = 8;

/// A ring with a ring of buffers, and a socket to receive from.
struct Group {
    ring: Ring,
    page: usize,
    peer: TcpStream,
    socket: TcpStream,
}

impl Group {
    fn new(cx: &mut Cx, flags: u16) -> Result<Self, Stop> {
        let ring = cx.ring(8, 0)?;
        let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
        cx.is("register", register(&ring, &reg(page, ENTRIES.into(), flags)), 0isize);
        let (peer, socket) = pair()?;
        Ok(Self { ring, page, peer, socket })
    }

    /// Sets up a group whose peer has sent `bytes`.
    fn with(cx: &mut Cx, flags: u16, bytes: &[u8]) -> Result<Self, Stop> {
        let mut group = Self::new(cx, flags)?;
        group.send(bytes)?;
        Ok(group)
    }

    fn send(&mut self, bytes: &[u8]) -> Outcome {
        self.peer.write_all(bytes)?;
        arrived(self.socket.as_raw_fd(), bytes.len());
        Ok(())
    }

    /// Same as [`Self::with`], and the peer then shuts down.
    fn with_all(cx: &mut Cx, flags: u16, bytes: &[u8]) -> Result<Self, Stop> {
        let group = Self::with(cx, flags, bytes)?;
        group.peer.shutdown(std::net::Shutdown::Write)?;
        Ok(group)
    }

    fn put(&self, slot: u16, at: u64, len: u32, bid: u16) {
        let entry = self.page + usize::from(slot % ENTRIES) * 16;
        os::store(entry, &[at]);
        os::store(entry + 8, &[len]);
        os::store(entry + 12, &[bid]);
    }

    fn tail(&self, tail: u16) {
        os::store(self.page + 14, &[tail]);
    }

    /// Writes an entry, and the tail behind it.
    fn offer(&self, slot: u16, at: u64, len: u32) {
        self.put(slot, at, len, slot);
        self.tail(slot + 1);
    }

    fn recv(&self, len: usize) -> io_uring_sqe {
        select(IORING_OP_RECV, self.socket.as_raw_fd(), len)
    }

    /// Records a request's result, whatever it is: the kernel decides.
    fn note_cqe(&mut self, cx: &mut Cx, what: &str, sqe: io_uring_sqe) -> Outcome {
        self.ring.push(sqe.ud(1)).submit_wait(1);
        let got = self.ring.take(1)?;
        let want = got[0].res;
        cx.completions(what, &got, &[(1, want)]);
        Ok(())
    }

    /// Same as [`Self::note_cqe`] for a request with several CQEs.
    fn note_all_cqes(&mut self, cx: &mut Cx, what: &str, sqe: io_uring_sqe) -> Outcome {
        self.ring.push(sqe.ud(1)).submit_wait(1);
        loop {
            let got = self.ring.take(1)?;
            let want = got[0].res;
            cx.completions(what, &got, &[(1, want)]);
            if got[0].flags & IORING_CQE_F_MORE == 0 {
                return Ok(());
            }
        }
    }

    fn head(&self, cx: &mut Cx) {
        let mut status = io_uring_buf_status { buf_group: GROUP.into(), ..Default::default() };
        let at = addr_mut(std::slice::from_mut(&mut status));
        cx.is("status", self.ring.register(IORING_REGISTER_PBUF_STATUS, at, 1), 0);
        cx.note("head", std::hint::black_box(&status).head);
    }
}

fn select(op: u8, fd: i32, len: usize) -> io_uring_sqe {
    sqe::rw(op, fd, 0, len, 0).with(IOSQE_BUFFER_SELECT).set(|s| s.buf_index = GROUP)
}

fn bad_ring_memory(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let (writable, border) = (os::page(libc::PROT_READ | libc::PROT_WRITE), os::border());
    let gone = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::unmap(gone);
    for (what, at, entries, want) in [
        ("read-only", os::page(libc::PROT_READ), 8, -EFAULT),
        ("no access", os::page(libc::PROT_NONE), 8, -EFAULT),
        ("unmapped", gone, 8, -EFAULT),
        ("ends too early", border - 4096, 512, -EFAULT),
        ("in the middle of a page", writable + 16, 8, -EINVAL),
        ("the kernel's", 0xffff_8000_0000_0000, 8, -EFAULT),
        ("the last page there is", KERNEL, 8, -EOVERFLOW),
        ("just fits", border - 4096, 256, 0),
    ] {
        cx.is(what, register(&ring, &reg(at, entries, 0)), want);
    }
    Ok(())
}

fn unmapped(cx: &mut Cx) -> Outcome {
    let (mut peer, socket) = pair()?;
    peer.write_all(b"01234567")?;
    let (fd, entry) = (socket.as_raw_fd(), cx.entry);
    arrived(fd, 8);
    // The child ends with 128 + SIGSEGV if the unmapped memory is not pinned.
    let child = os::in_child(|| {
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 10 };
        let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
        let mut mem = [b'-'; 8];
        if register(&ring, &reg(page, ENTRIES.into(), 0)) != 0 {
            return 11;
        }
        os::store(page, &[addr_mut(&mut mem) as u64, 8]);
        os::store(page + 14, &[1u16]);
        os::unmap(page);
        ring.push(select(IORING_OP_RECV, fd, 0)).submit_wait(1);
        if ring.pop().is_some_and(|c| c.res == 8) && seen(&mem) == "01234567" { 0 } else { 12 }
    });
    cx.note("the child", child);
    Ok(())
}

pub(super) fn zero_length_buffers(cx: &mut Cx) -> Outcome {
    let (file, null) = (cx.file("f", b"data")?, std::fs::File::open("/dev/null")?);
    for at in [KERNEL as u64, BAD as u64, 1 << 63] {
        let mut group = Group::with(cx, 0, b"0123456789")?;
        let socket = group.socket.as_raw_fd();
        let (file, null) = (file.as_raw_fd(), null.as_raw_fd());
        let fds = [("a file", file), ("/dev/null", null), ("a socket", socket)];
        for (i, (what, fd)) in (0..).zip(fds) {
            group.offer(i, at, 0);
            let sqe = select(IORING_OP_READ, fd, 0);
            group.note_cqe(cx, what, sqe)?;
            group.note_cqe(cx, "elsewhere", sqe.set(|s| s.off = 5))?;
            group.note_cqe(cx, "by a worker", sqe.with(IOSQE_ASYNC))?;
            group.head(cx);
        }
    }
    Ok(())
}

fn addresses(cx: &mut Cx) -> Outcome {
    let gone = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::unmap(gone);
    for flags in [0, IOU_PBUF_RING_INC] {
        let mut group = Group::with(cx, flags, b"0123456789")?;
        let end = u64::MAX - 4;
        let read_only = os::page(libc::PROT_READ) as u64;
        let bad = [BAD as u64, KERNEL as u64, end, 0, 1 << 63, 0x7fff_ffff_f000 - 4];
        for (i, at) in (0..).zip(bad.into_iter().chain([read_only, gone as u64])) {
            group.offer(i, at, 8);
            let sqe = group.recv(0);
            group.note_cqe(cx, "a receive", sqe)?;
            group.note_cqe(cx, "and again", sqe)?;
            group.head(cx);
        }
    }
    Ok(())
}

fn bad_tails(cx: &mut Cx) -> Outcome {
    let mut group = Group::with(cx, 0, &[b'x'; 80])?;
    let mut mem = [b'-'; 64];
    for i in 0..8 {
        group.put(i, (addr_mut(&mut mem) + 8 * usize::from(i)) as u64, 8, i);
    }
    let (all, four) = (group.recv(0), group.recv(4));
    for ahead in [8, 9, 1000, 0x7fff, 0x8000, 0xffff] {
        group.tail(ahead);
        group.note_cqe(cx, "far ahead", all)?;
        group.head(cx);
    }
    group.tail(2);
    group.note_cqe(cx, "behind the head", all)?;
    group.head(cx);
    group.tail(7);
    group.note_cqe(cx, "at the head", four)?;
    group.head(cx);
    cx.note("data", seen(&mem));
    Ok(())
}

/// Lengths that no buffer has.
const LENGTHS: [(&str, u32); 5] = [
    ("a gigabyte", 1 << 30),
    ("as long as an int tells", i32::MAX as u32),
    ("longer", 1 << 31),
    ("longer still", (1 << 31) + 8),
    ("the longest", u32::MAX),
];

fn lengths(cx: &mut Cx) -> Outcome {
    for flags in [0, IOU_PBUF_RING_INC] {
        let mut group = Group::with(cx, flags, b"0123456789abcdefghijklmnopqrstuv")?;
        let border = os::border();
        let mut mem = [b'-'; 16];
        let at = addr_mut(&mut mem) as u64;
        let (four, all) = (group.recv(4), group.recv(0));
        for (i, (what, at, len)) in (0..).zip([
            ("of no length", at, 0),
            ("a gigabyte", at, 1 << 30),
            ("ends in what is not mapped", border as u64 - 2, 64),
        ]) {
            group.offer(i, at, len);
            group.note_cqe(cx, what, four)?;
            group.head(cx);
        }
        cx.note("data", seen(&mem));
        // A buffer whose request failed before the buffer was used up is still there.
        group.note_cqe(cx, "what is left", all)?;
    }
    for (what, len) in LENGTHS {
        for flags in [0, IOU_PBUF_RING_INC] {
            let mut group = Group::with(cx, flags, b"0123456789")?;
            let mut mem = [b'-'; 16];
            group.offer(0, addr_mut(&mut mem) as u64, len);
            let four = group.recv(4);
            group.note_cqe(cx, what, four)?;
            group.head(cx);
            cx.note("data", seen(&mem));
        }
    }
    Ok(())
}

fn buffer_ids(cx: &mut Cx) -> Outcome {
    let mut group = Group::with(cx, 0, &[b'x'; 40])?;
    let mut mem = [b'-'; 16];
    let sqe = group.recv(0);
    for (i, bid) in (0..).zip([65535, 9, 9, 0]) {
        group.put(i, addr_mut(&mut mem) as u64, 4, bid);
        group.tail(i + 1);
        group.note_cqe(cx, "any id", sqe)?;
    }
    cx.note("data", seen(&mem));
    Ok(())
}

fn ring_changed_while_waiting(cx: &mut Cx) -> Outcome {
    for flags in [0, IOU_PBUF_RING_INC] {
        let mut group = Group::new(cx, flags)?;
        let mut mem = [b'-'; 32];
        let at = addr_mut(&mut mem) as u64;
        let (all, three) = (group.recv(0), group.recv(3));
        group.put(0, at, 8, 1);
        group.tail(1);
        cx.start(&mut group.ring, &[all.ud(1)]);
        cx.quiet(&group.ring, "waits", 10);
        group.put(0, at + 16, 4, 2);
        group.tail(1);
        group.peer.write_all(b"0123456789")?;
        let got = group.ring.take(1)?;
        let want = got[0].res;
        cx.completions("came", &got, &[(1, want)]);
        // The buffer is used up in part; then the program changes its length.
        os::store(group.page + 8, &[2u32]);
        arrived(group.socket.as_raw_fd(), 6);
        group.tail(2);
        group.put(1, at + 24, 8, 3);
        group.note_cqe(cx, "the next", three)?;
        group.head(cx);
        cx.note("data", seen(&mem));
    }
    Ok(())
}

/// Returns heap memory: a gigabyte more stays within the program's half, unlike on the stack, which
/// is near the end.
fn far_below() -> Vec<u8> {
    vec![b'-'; 128]
}

/// Returns the faults of each ring's second buffer: name, address and length.
fn spoilt(good: u64) -> [(&'static str, u64, u32); 6] {
    let read_only = os::page(libc::PROT_READ) as u64;
    [
        ("not mapped", BAD as u64, 4),
        ("read-only", read_only, 4),
        ("the kernel's", KERNEL as u64, 4),
        ("nowhere", 0, 4),
        ("of no length", good, 0),
        ("a gigabyte", good, 1 << 30),
    ]
}

pub(super) fn bundles(cx: &mut Cx) -> Outcome {
    let mut mem = far_below();
    let at = addr_mut(&mut mem[..]) as u64;
    for flags in [0, IOU_PBUF_RING_INC] {
        for (what, bad, len) in spoilt(at + 4) {
            let mut group = Group::with_all(cx, flags, b"0123456789ab")?;
            group.put(0, at, 4, 0);
            group.put(1, bad, len, 1);
            group.put(2, at + 16, 4, 2);
            group.tail(3);
            let bundle = group.recv(0).set(|s| s.ioprio = IORING_RECVSEND_BUNDLE);
            group.note_cqe(cx, what, bundle)?;
            group.head(cx);
            group.note_cqe(cx, "and then", bundle)?;
            group.head(cx);
        }
    }
    let mut group = Group::with_all(cx, 0, &[b'x'; 40])?;
    (0..8).for_each(|i| group.put(i, at + 4 * u64::from(i), 4, i));
    let bundle = group.recv(0).set(|s| s.ioprio = IORING_RECVSEND_BUNDLE);
    for ahead in [9, 0x8000, 0xffff] {
        group.tail(ahead);
        group.note_cqe(cx, "far ahead", bundle)?;
        group.head(cx);
    }
    Ok(())
}

pub(super) fn multishot(cx: &mut Cx) -> Outcome {
    let mut mem = far_below();
    let at = addr_mut(&mut mem[..]) as u64;
    for flags in [0, IOU_PBUF_RING_INC] {
        for (what, bad, len) in spoilt(at + 4) {
            for bundle in [0, IORING_RECVSEND_BUNDLE] {
                let mut group = Group::with_all(cx, flags, b"0123456789ab")?;
                group.put(0, at, 4, 0);
                group.put(1, bad, len, 1);
                group.put(2, at + 16, 4, 2);
                group.tail(3);
                let many = group.recv(0).set(|s| s.ioprio = IORING_RECV_MULTISHOT | bundle);
                group.note_all_cqes(cx, what, many)?;
                group.head(cx);
            }
        }
    }
    Ok(())
}

pub(super) fn reads_and_messages(cx: &mut Cx) -> Outcome {
    let mut mem = far_below();
    let at = addr_mut(&mut mem[..]) as u64;
    let name: [u64; 7] = [0, 8, 0, 0, 0, 0, 0];
    for flags in [0, IOU_PBUF_RING_INC] {
        for (what, bad, len) in spoilt(at) {
            let mut group = Group::with_all(cx, flags, b"0123456789ab")?;
            let (r, w) = cx.pipe()?;
            rustix::io::write(&w, b"0123456789")?;
            drop(w);
            group.offer(0, bad, len);
            group.note_cqe(cx, what, select(IORING_OP_READ, r.as_raw_fd(), 0))?;
            group.head(cx);
            group.offer(1, bad, len);
            group.note_all_cqes(cx, what, select(IORING_OP_READ_MULTISHOT, r.as_raw_fd(), 0))?;
            let message = select(IORING_OP_RECVMSG, group.socket.as_raw_fd(), 1)
                .set(|s| (s.addr, s.ioprio) = (addr(&name) as u64, IORING_RECV_MULTISHOT));
            group.note_all_cqes(cx, "a message", message)?;
            group.head(cx);
        }
    }
    /// Half of a `struct io_uring_recvmsg_out`.
    const HALF: u32 = 8;
    let mut group = Group::with_all(cx, 0, b"0123456789ab")?;
    group.offer(0, at, HALF);
    let message = select(IORING_OP_RECVMSG, group.socket.as_raw_fd(), 1)
        .set(|s| (s.addr, s.ioprio) = (addr(&name) as u64, IORING_RECV_MULTISHOT));
    group.note_all_cqes(cx, "half a header", message)?;
    group.head(cx);
    Ok(())
}
