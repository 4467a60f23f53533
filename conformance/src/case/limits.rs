//! Exhausted resources: descriptors, lockable memory, room on a disk; and a missing /proc. The
//! error is clear, no request is lost, and the ring goes on when there is enough again. (Threads
//! are not covered: with RLIMIT_NPROC at 0 the kernel's own workers never start, and its requests
//! wait for ever.)

use super::prelude::*;
use std::os::fd::OwnedFd;

pub const CASES: &[Case] = &[
    any_order!("limits", no_descriptor_left, [], "requests need no free descriptor"),
    any_order!("limits", disk_without_descriptors, [], "the disk's completions need no free descriptor"),
    any_order!("limits", spin_without_descriptors, [Trap("spin")], "completions appear by themselves, with descriptors or without"),
    any_order!("limits", no_descriptor_for_slots, [], "a table of files is registered without a free descriptor"),
    legal!("limits", little_locked_memory, [], "buffers beyond RLIMIT_MEMLOCK"),
    case!("limits", maker_may_lock, [Reg(IORING_REGISTER_BUFFERS)], "who made the ring decides whether RLIMIT_MEMLOCK counts"),
    legal!("limits", little_memory, [], "a ring too large for RLIMIT_AS, and requests without free memory"),
    any_order!("limits", one_worker, [Reg(IORING_REGISTER_IOWQ_MAX_WORKERS)], "a chain that waits in the only worker does not block others"),
    any_order!("limits", disk_full, [], "writes to a full disk fail, and work again when there is room"),
    any_order!("limits", no_proc, [], "rings work without /proc"),
];

const ROOM: &[u8] = &[7; 4096];

/// Sets RLIMIT_NOFILE so that every number below the limit is taken; returns the old limit.
fn take_every_number() -> u64 {
    let free = os::dup(0);
    os::close(free);
    os::set_limit(libc::RLIMIT_NOFILE, free.cast_unsigned().into())
}

/// Checks one request of each kind of transport: inline, a worker's, an fsync, a read that waits
/// for a pipe, a timeout. `pipe` gets its byte meanwhile.
fn each_transport(
    cx: &mut Cx,
    ring: &mut Ring,
    file: i32,
    pipe: &(OwnedFd, OwnedFd),
) -> Outcome {
    let (mut a, mut b, mut c) = ([0; 4], [0; 4], [0; 4]);
    let soon = sqe::millis(5);
    cx.start(ring, &[
        sqe::read(file, &mut a, 0).ud(1),
        sqe::read(file, &mut b, 4).ud(2).with(IOSQE_ASYNC),
        sqe::op(IORING_OP_FSYNC, file).ud(3),
        sqe::read(pipe.0.as_raw_fd(), &mut c, 0).ud(4),
        sqe::timeout(&soon, 0, 0).ud(5),
    ]);
    rustix::io::write(&pipe.1, b"wake")?;
    let want = [(1, 4), (2, 4), (3, 0), (4, 4), (5, -ETIME)];
    cx.reap(ring, "each transport", &want);
    let text = [*std::hint::black_box(&a), *std::hint::black_box(&b), *std::hint::black_box(&c)];
    cx.eq("data", text, [*b"0123", *b"4567", *b"wake"]);
    Ok(())
}

fn no_descriptor_left(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"01234567")?;
    let pipe = cx.pipe()?;
    for flags in [0, DEFER] {
        let mut ring = cx.ring(8, flags)?;
        let was = take_every_number();
        each_transport(cx, &mut ring, file.as_raw_fd(), &pipe)?;
        let mut buf = [0; 4];
        cx.start(&mut ring, &[sqe::read(pipe.0.as_raw_fd(), &mut buf, 0).ud(6)]);
        ring.push(sqe::cancel(6, 0).ud(7));
        cx.is("cancel", ring.submit(), 1);
        // A worker may have the read; then it is interrupted.
        let ended = ring.take(2)?;
        cx.holds("cancelled", ended.iter().any(|c| c.user_data == 6 && c.res < 0));
        os::set_limit(libc::RLIMIT_NOFILE, was);
        each_transport(cx, &mut ring, file.as_raw_fd(), &pipe)?;
    }
    Ok(())
}

fn disk_without_descriptors(cx: &mut Cx) -> Outcome {
    let file = cx.direct_file("f", &[b'x'; 4096])?;
    let pipe = cx.pipe()?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let mut ring = cx.ring(4, 0)?;
    late_read(cx, &mut ring, &pipe)?;
    let was = take_every_number();
    let read = || sqe::rw(IORING_OP_READ, file.as_raw_fd(), page, 4096, 0);
    let (four, done) = ([1, 2, 3, 4].map(|ud| read().ud(ud)), [1, 2, 3, 4].map(|ud| (ud, 4096)));
    cx.batch(&mut ring, "waited for", &four, &done);
    cx.start(&mut ring, &four);
    cx.spin(&ring, "looked for", 4);
    os::set_limit(libc::RLIMIT_NOFILE, was);
    cx.reap(&mut ring, "them", &done);
    cx.one(&mut ring, "with descriptors again", read(), 4096);
    Ok(())
}

/// Reads from a pipe that gets its bytes later; the program only peeks at the CQ.
fn late_read(cx: &mut Cx, ring: &mut Ring, pipe: &(OwnedFd, OwnedFd)) -> Outcome {
    let mut buf = [0; 4];
    cx.start(ring, &[sqe::read(pipe.0.as_raw_fd(), &mut buf, 0).ud(1)]);
    rustix::io::write(&pipe.1, b"data")?;
    cx.spin(ring, "a read completes", 1);
    cx.reap(ring, "it", &[(1, 4)]);
    Ok(())
}

fn spin_without_descriptors(cx: &mut Cx) -> Outcome {
    let pipe = cx.pipe()?;
    let mut first = cx.ring(4, 0)?;
    late_read(cx, &mut first, &pipe)?;
    let mut ring = cx.ring(4, 0)?;
    let was = take_every_number();
    let soon = sqe::millis(5);
    cx.start(&mut ring, &[sqe::timeout(&soon, 0, 0).ud(2)]);
    cx.spin(&ring, "a timeout completes", 1);
    cx.reap(&mut ring, "it", &[(2, -ETIME)]);
    let far = sqe::millis(60_000);
    cx.start(&mut ring, &[sqe::timeout(&far, 0, 0).ud(3)]);
    os::set_limit(libc::RLIMIT_NOFILE, was);
    late_read(cx, &mut ring, &pipe)
}

fn no_descriptor_for_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    let fds = [file.as_raw_fd()];
    let was = take_every_number();
    let registered = ring.register_slice(IORING_REGISTER_FILES, &fds);
    os::set_limit(libc::RLIMIT_NOFILE, was);
    cx.note_answer("register", registered);
    if registered != 0 {
        cx.is("again", ring.register_slice(IORING_REGISTER_FILES, &fds), 0);
    }
    let mut buf = [0; 4];
    cx.one(&mut ring, "read", sqe::read(0, &mut buf, 0).with(IOSQE_FIXED_FILE), 4);
    Ok(())
}

fn maker_may_lock(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut memory = vec![0u8; 8192];
    let iov_base = std::ptr::with_exposed_provenance_mut(addr_mut(&mut memory[..]));
    let buffer = [libc::iovec { iov_base, iov_len: 8192 }];
    os::set_limit(libc::RLIMIT_MEMLOCK, 4096);
    if !rustix::process::geteuid().is_root() || !os::become_nobody() {
        return Err(Stop::Skip("root's rights cannot be given up here".into()));
    }
    cx.is("after root's", ring.register_slice(IORING_REGISTER_BUFFERS, &buffer), 0);
    Ok(())
}

fn little_locked_memory(cx: &mut Cx) -> Outcome {
    if !os::become_nobody() {
        return Err(Stop::Skip("root's rights cannot be given up here".into()));
    }
    let mut ring = cx.ring(4, 0)?;
    let mut memory = vec![0u8; 1 << 20];
    let mut buffer = |len: usize| {
        let iov_base = std::ptr::with_exposed_provenance_mut(addr_mut(&mut memory[..]));
        libc::iovec { iov_base, iov_len: len }
    };
    os::set_limit(libc::RLIMIT_MEMLOCK, 256 << 10);
    let large = [buffer(1 << 20)];
    cx.is("too much", ring.register_slice(IORING_REGISTER_BUFFERS, &large), -ENOMEM);
    let small = [buffer(4096)];
    cx.is("little", ring.register_slice(IORING_REGISTER_BUFFERS, &small), 0);
    cx.is("unregister", ring.register(IORING_UNREGISTER_BUFFERS, 0, 0), 0);
    cx.one(&mut ring, "the ring goes on", sqe::nop(), 0);
    Ok(())
}

fn little_memory(cx: &mut Cx) -> Outcome {
    let pipe = cx.pipe()?;
    let mut ring = cx.ring(4096, 0)?;
    let was = os::set_limit(libc::RLIMIT_AS, os::address_space() + (1 << 20));
    let large = Ring::new(cx.entry, 32768, 0);
    let fd = pipe.0.as_raw_fd();
    for i in 0..4096 {
        ring.push(sqe::poll_add(fd, libc::POLLIN).ud(i));
    }
    let mut taken = ring.submit();
    while taken < 4096 {
        os::set_limit(libc::RLIMIT_AS, was);
        let more = ring.submit();
        if more <= 0 {
            break;
        }
        taken += more;
    }
    os::set_limit(libc::RLIMIT_AS, was);
    cx.is("a large ring", large, -ENOMEM);
    cx.is("polls", taken, 4096);
    rustix::io::write(&pipe.1, b"x")?;
    cx.is("completions", ring.take(4096)?.len(), 4096);
    Ok(())
}

/// Mounts a tmpfs in a mount namespace of this process; skips if that fails.
fn mount(at: &std::ffi::CStr, options: &std::ffi::CStr) -> Outcome {
    let mounted = os::own_mounts().and_then(|()| os::mount_tmpfs(at, options));
    mounted.map_err(|e| Stop::Skip(format!("cannot mount here: {e}")))
}

fn one_worker(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let mut max = [1u32, 16];
    let at = addr_mut(&mut max);
    cx.is("one worker", ring.register(IORING_REGISTER_IOWQ_MAX_WORKERS, at, 2), 0);
    let (socket, _peer) = super::net::pair()?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 1];
    let shutdown = sqe::op(IORING_OP_SHUTDOWN, socket.as_raw_fd()).set(|s| s.len = 1);
    cx.start(&mut ring, &[shutdown.link().ud(1), sqe::read(r.as_raw_fd(), &mut buf, 0).ud(2)]);
    cx.reap(&mut ring, "shut down", &[(1, 0)]);
    let file = cx.file("f", b"x")?;
    let sync = sqe::op(IORING_OP_FSYNC, file.as_raw_fd());
    cx.start(&mut ring, &[sync.ud(3)]);
    std::thread::sleep(std::time::Duration::from_millis(50));
    cx.note("synced before the pipe has data", ring.cq_ready());
    rustix::io::write(&w, b"x")?;
    cx.reap(&mut ring, "all", &[(2, 1), (3, 0)]);
    Ok(())
}

fn disk_full(cx: &mut Cx) -> Outcome {
    let at = cx.path("small")?;
    let dir = cx.dir()?.join("small");
    std::fs::create_dir(&dir)?;
    mount(&at, c"size=64k")?;
    let mut ring = cx.ring(32, 0)?;
    cx.file("small/f", b"")?;
    let file = std::fs::File::options().write(true).open(dir.join("f"))?;
    let fd = file.as_raw_fd();
    for i in 0..16 {
        cx.one(&mut ring, "a page", sqe::write(fd, ROOM, i * 4096), 4096);
    }
    let full = -libc::ENOSPC;
    let space = sqe::op(IORING_OP_FALLOCATE, fd).set(|s| (s.off, s.addr) = (65536, 4096));
    cx.each(&mut ring, &[
        ("one too many", sqe::write(fd, ROOM, 65536), full),
        ("in a worker", sqe::write(fd, ROOM, 65536).with(IOSQE_ASYNC), full),
        ("space", space, full),
    ]);
    ring.push(sqe::write(fd, ROOM, 65536).ud(1).link()).push(sqe::nop().ud(2));
    cx.is("a chain", ring.submit(), 2);
    cx.reap(&mut ring, "it breaks", &[(1, full), (2, -ECANCELED)]);
    cx.holds("all as written", std::fs::read(dir.join("f"))? == ROOM.repeat(16));
    file.set_len(0)?;
    cx.one(&mut ring, "room again", sqe::write(fd, ROOM, 0), 4096);
    Ok(())
}

fn no_proc(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"01234567")?;
    let pipe = cx.pipe()?;
    mount(c"/proc", c"")?;
    let mut ring = cx.ring(8, 0)?;
    each_transport(cx, &mut ring, file.as_raw_fd(), &pipe)?;
    let event = cx.eventfd(0)?;
    let fds = [event.as_raw_fd()];
    cx.is("an eventfd", ring.register_slice(IORING_REGISTER_EVENTFD, &fds), 0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.holds("it is signalled", os::poll(fds[0], libc::POLLIN, 0) != 0);
    cx.is("no more", ring.register(IORING_UNREGISTER_EVENTFD, 0, 0), 0);
    let fds = [file.as_raw_fd()];
    cx.is("a file", ring.register_slice(IORING_REGISTER_EVENTFD, &fds), -EINVAL);
    cx.is("files", ring.register_slice(IORING_REGISTER_FILES, &fds), 0);
    let child = os::in_child(|| {
        ring.push(sqe::nop().ud(9));
        i32::from(ring.submit_wait(1) != 1)
    });
    cx.is("a child", child, 0);
    Ok(())
}
