//! Requests that forked children leave in flight on their parent's ring.

use super::prelude::*;
use crate::os_poll;
use crate::poll_shapes::{LONG, SHAPES, SOON, Set, wait};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("inherited", child_leaves_requests, [Trap("fork")],
          "what a child has in flight is the ring's, also when it ends"),
    legal!("inherited", child_killed, [Trap("fork")], "a timeout of a child that is killed goes on"),
    case!("inherited", two_children_exit, [Trap("fork")],
          "two children share a ring, and each leaves something in flight"),
    case!("inherited", child_leaves_read, [Trap("fork")],
          "what waits in the name of a child that ends is cancelled"),
    case!("inherited", child_keeps_no_files, [Trap("fork"), Reg(IORING_UNREGISTER_FILES)],
          "a forked child does not keep open what its parent has unregistered and closed"),
    legal!("inherited", port_is_free, [Trap("fork"), Reg(IORING_REGISTER_FILES_UPDATE),
          Op(IORING_OP_CLOSE)],
          "a registered listener's port is free as soon as its slot is, also right after a fork"),
    any_order!("inherited", child_uses_slots, [Trap("fork"), Reg(IORING_REGISTER_FILES)],
          "a child uses the files that are registered with the ring that it inherits"),
    any_order!("inherited", orphan_uses_slots, [Trap("fork"), Reg(IORING_REGISTER_FILES)],
          "also when its parent has ended"),
    any_order!("inherited", child_execs, [Trap("fork")],
          "what a child that execs has in flight is cancelled, its timeouts, too"),
    legal!("inherited", child_polls, [Trap("fork"), Op(IORING_OP_POLL_ADD)],
          "a completion that the parent posts ends a child's poll of the ring"),
    any_order!("inherited", parent_polls, [Trap("fork")],
          "a completion that a child posts ends its parent's poll of the ring"),
    legal!("inherited", set_of_two, [Trap("fork")],
          "two processes share an epoll set, to which one of them adds a ring of its own"),
    legal!("inherited", set_of_parent, [Trap("fork")],
          "a child that closes its parent's ring leaves it in their epoll set"),
];

fn child_polls(cx: &mut Cx) -> Outcome {
    for shape in SHAPES {
        let mut ring = cx.ring(4, 0)?;
        let fd = ring.fd;
        let child = os::spawn_child(|| match Set::with(shape, fd) {
            Ok(set) => wait(shape, fd, &set, LONG),
            Err(_) => -1,
        });
        std::thread::sleep(SOON);
        ring.push(sqe::nop()).submit();
        cx.is(shape.name(), os::wait_for(child), 1);
    }
    let mut ring = cx.ring(4, 0)?;
    let fd = ring.fd;
    let entry = cx.entry;
    let child = os::spawn_child(|| {
        let Ok(mut own) = Ring::new(entry, 4, 0) else { return -1 };
        own.push(sqe::poll_add(fd, libc::POLLIN).ud(1)).submit();
        own.take(1).map_or(-1, |ended| ended[0].res)
    });
    std::thread::sleep(SOON);
    ring.push(sqe::nop().ud(1)).submit();
    cx.is("by a request", os::wait_for(child), i32::from(libc::POLLIN));
    Ok(())
}

fn parent_polls(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let child = os::spawn_child(|| {
        std::thread::sleep(SOON);
        ring.push(sqe::nop().ud(1));
        i32::from(ring.submit() != 1)
    });
    let begun = std::time::Instant::now();
    os_poll::poll(&[ring.fd], 500);
    cx.holds("ends the poll", begun.elapsed().as_millis() < 400);
    cx.is("child", os::wait_for(child), 0);
    Ok(())
}

fn set_of_two(cx: &mut Cx) -> Outcome {
    let set = Set::new()?;
    let child = os::spawn_child(|| set.wait(500).len() as i32);
    let mut ring = cx.ring(4, 0)?;
    cx.is("added", set.ctl(libc::EPOLL_CTL_ADD, ring.fd, libc::EPOLLIN, 7), 0);
    ring.push(sqe::nop().ud(1)).submit();
    cx.is("the other sees it", os::wait_for(child), 1);
    Ok(())
}

fn set_of_parent(cx: &mut Cx) -> Outcome {
    for how in ["close", "dup2"] {
        let set = Set::new()?;
        let mut ring = cx.ring(4, 0)?;
        cx.is("added", set.ctl(libc::EPOLL_CTL_ADD, ring.fd, libc::EPOLLIN, 7), 0);
        let fd = ring.fd;
        let child = os::in_child(|| match how {
            "close" => os::close(fd),
            _ => i32::from(os::dup2(2, fd) != fd),
        });
        cx.is(how, child, 0);
        ring.push(sqe::nop().ud(1)).submit();
        cx.is("the set reports the ring", set.wait(500).len(), 1);
        cx.is("and has it", set.ctl(libc::EPOLL_CTL_MOD, ring.fd, libc::EPOLLIN, 7), 0);
    }
    Ok(())
}

fn child_leaves_requests(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (at_once, ts) = (ring.fd, sqe::millis(30));
    let child = os::in_child(|| {
        let link = IOSQE_IO_LINK;
        ring.push(sqe::poll_add(at_once, libc::POLLIN).ud(1).with(link));
        ring.push(sqe::timeout(&ts, 0, 0).ud(2));
        ring.push(sqe::timeout(&ts, 0, 0).ud(3).with(link));
        ring.push(sqe::nop().ud(4).with(link));
        ring.push(sqe::nop().ud(5));
        ring.push(sqe::timeout(&ts, 2, IORING_TIMEOUT_MULTISHOT).ud(6));
        ring.push(sqe::timeout(&ts, 0, IORING_TIMEOUT_ETIME_SUCCESS).ud(7).with(link));
        ring.push(sqe::nop().ud(8));
        i32::from(ring.submit() != 8)
    });
    cx.is("child", child, 0);
    std::thread::sleep(Duration::from_millis(100));
    let told = |c: Cqe| (c.user_data, c.res, c.flags);
    let mut seen: Vec<_> = ring.pop_all().into_iter().map(told).collect();
    seen.sort();
    cx.note("ended", format_args!("{seen:?}"));
    Ok(())
}

fn child_killed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let ts = sqe::millis(50);
    let child = os::spawn_child(|| {
        ring.push(sqe::timeout(&ts, 0, 0).ud(1));
        ring.push(sqe::poll_add(ring.fd, libc::POLLIN).ud(2));
        let submitted = ring.submit();
        let _ = rustix::io::write(&w, b"x");
        std::thread::sleep(Duration::from_secs(9));
        i32::from(submitted != 2)
    });
    rustix::io::read(&r, &mut [0; 1])?;
    let pid = rustix::process::Pid::from_raw(child).ok_or(rustix::io::Errno::SRCH)?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    cx.reap(&mut ring, "it goes on", &[(1, -ETIME), (2, -ECANCELED)]);
    os::wait_for(child);
    Ok(())
}

/// Checks that the first child's requests end while the second has some in flight, and submits
/// more.
fn two_children_exit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let (r, w) = cx.pipe()?;
    let (soon, late) = (sqe::millis(30), sqe::millis(250));
    let first = os::spawn_child(|| {
        ring.push(sqe::timeout(&soon, 0, 0).ud(1));
        ring.push(sqe::timeout(&soon, 0, 0).ud(2));
        let submitted = ring.submit();
        let _ = rustix::io::write(&w, b"x");
        std::thread::sleep(Duration::from_millis(80));
        i32::from(submitted != 2)
    });
    rustix::io::read(&r, &mut [0; 1])?;
    let second = os::spawn_child(|| {
        ring.push(sqe::timeout(&late, 0, 0).ud(3));
        ring.push(sqe::timeout(&late, 0, 0).ud(4));
        let submitted = ring.submit();
        std::thread::sleep(Duration::from_millis(120));
        ring.push(sqe::nop().ud(5));
        i32::from(submitted != 2 || ring.submit() != 1)
    });
    cx.is("the first", os::wait_for(first), 0);
    cx.is("the second", os::wait_for(second), 0);
    std::thread::sleep(Duration::from_millis(300));
    let mut seen: Vec<_> = ring.pop_all().into_iter().map(|c| (c.user_data, c.res)).collect();
    seen.sort_unstable();
    cx.note("each once", format_args!("{seen:?}"));
    Ok(())
}

fn child_leaves_read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    let child = os::in_child(|| {
        ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(1));
        i32::from(ring.submit() != 1)
    });
    cx.is("child", child, 0);
    cx.quiet(&ring, "nothing to read", 30);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "too late", &[(1, -ECANCELED)]);
    Ok(())
}

/// Forks children that live until the pipe is closed, and close the descriptors `theirs`.
fn sleepers(n: usize, until: &OwnedFd, end: &OwnedFd, theirs: &[i32]) -> Vec<i32> {
    let sleep = || {
        for &fd in theirs {
            os::close(fd);
        }
        os::close(end.as_raw_fd());
        i32::from(os::poll(until.as_raw_fd(), libc::POLLIN, 9000) == 0)
    };
    (0..n).map(|_| os::spawn_child(sleep)).collect()
}

fn child_keeps_no_files(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let ((r, w), (until, end)) = (cx.pipe()?, cx.pipe()?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let theirs = [w.as_raw_fd(), listener.as_raw_fd()];
    let files = [w.as_raw_fd(), -1, listener.as_raw_fd(), w.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &files), 0);
    let children = sleepers(2, &until, &end, &theirs);
    drop((w, listener));
    cx.is("registered", os::poll(r.as_raw_fd(), libc::POLLIN, 20), 0);
    let mut up = io_uring_rsrc_update { data: addr(&[-1, -1, -1]) as u64, ..Default::default() };
    cx.is("three slots", ring.register_struct(IORING_REGISTER_FILES_UPDATE, &mut up, 3), 3);
    cx.holds("the port is free", TcpListener::bind(address).is_ok());
    cx.is("one has it still", os::poll(r.as_raw_fd(), libc::POLLIN, 20), 0);
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    let hup = i32::from(libc::POLLHUP);
    cx.is("nobody has it", os::poll(r.as_raw_fd(), libc::POLLIN, 100), hup);
    drop(end);
    cx.holds("children", children.into_iter().all(|child| os::wait_for(child) == 0));
    Ok(())
}

/// A way to free slot 0; returns true if the slot is freed.
type GiveUp = fn(&mut Ring) -> bool;

const GIVE_UP: [(&str, GiveUp); 4] = [
    ("FILES_UPDATE", |ring| {
        let none = [-1];
        let mut up = io_uring_rsrc_update { data: addr(&none) as u64, ..Default::default() };
        ring.register_struct(IORING_REGISTER_FILES_UPDATE, &mut up, 1) == 1
    }),
    ("FILES_UPDATE by a request", |ring| {
        let none = [-1];
        ring.push(sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&none), 1, 0));
        ring.submit_wait(1) == 1 && ring.pop().is_some_and(|c| c.res == 1)
    }),
    ("CLOSE", |ring| {
        ring.push(sqe::in_slot(sqe::op(IORING_OP_CLOSE, 0), 0));
        ring.submit_wait(1) == 1 && ring.pop().is_some_and(|c| c.res == 0)
    }),
    ("unregister", |ring| ring.register(IORING_UNREGISTER_FILES, 0, 0) == 0),
];

fn port_is_free(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (until, end) = cx.pipe()?;
    let mut children = Vec::new();
    for (what, give_up) in GIVE_UP {
        let (mut taken, mut failed) = (0, 0);
        for _ in 0..10 {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let files = [listener.as_raw_fd(), -1];
            failed += i32::from(ring.register_slice(IORING_REGISTER_FILES, &files) != 0);
            drop(listener);
            children.extend(sleepers(2, &until, &end, &[]));
            failed += i32::from(!give_up(&mut ring));
            taken += i32::from(TcpListener::bind(address).is_err());
            if what != "unregister" {
                ring.register(IORING_UNREGISTER_FILES, 0, 0);
            }
        }
        cx.is(what, failed, 0);
        cx.is("taken still", taken, 0);
    }
    drop(end);
    cx.holds("children", children.into_iter().all(|child| os::wait_for(child) == 0));
    Ok(())
}

/// Writes a byte to the file in a slot; returns the result.
fn write_to(ring: &mut Ring, slot: i32) -> i32 {
    ring.push(sqe::write(slot, b"x", 0).fixed().ud(1));
    if ring.submit_wait(1) == 1 { ring.pop().map_or(-99, |c| c.res) } else { -98 }
}

fn child_uses_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let go = [cx.pipe()?, cx.pipe()?];
    let file = cx.file("f", b"data")?;
    let files = [w.as_raw_fd(), file.as_raw_fd(), w.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &files), 0);
    let writes = |ring: &mut Ring, until: &OwnedFd| {
        os::close(w.as_raw_fd());
        os::poll(until.as_raw_fd(), libc::POLLIN, 9000);
        let got = [0, 1, 2, 3].map(|slot| write_to(ring, slot));
        i32::from(got != [-EBADF, 1, 1, -EBADF])
    };
    let children = [0, 1].map(|i| os::spawn_child(|| writes(&mut ring, &go[i].0)));
    let mut up = io_uring_rsrc_update { data: addr(&[-1]) as u64, ..Default::default() };
    cx.is("one slot", ring.register_struct(IORING_REGISTER_FILES_UPDATE, &mut up, 1), 1);
    drop(w);
    for ((_, go), child) in go.iter().zip(children) {
        rustix::io::write(go, b"x")?;
        cx.is("child", os::wait_for(child), 0);
    }
    let mut got = [0; 8];
    cx.is("bytes", rustix::io::read(&r, &mut got)?, 2);
    cx.is("the parent", write_to(&mut ring, 2), 1);
    Ok(())
}

fn orphan_uses_slots(cx: &mut Cx) -> Outcome {
    let (r, w) = cx.pipe()?;
    let entry = cx.entry;
    let parent = os::spawn_child(|| {
        let Ok(mut ring) = Ring::new(entry, 8, 0) else { return 10 };
        let registered = ring.register_slice(IORING_REGISTER_FILES, &[-1, w.as_raw_fd()]);
        os::close(w.as_raw_fd());
        os::spawn_child(|| {
            std::thread::sleep(Duration::from_millis(100));
            i32::from(write_to(&mut ring, 1) != 1)
        });
        i32::from(registered != 0)
    });
    cx.is("its parent", os::wait_for(parent), 0);
    drop(w);
    let mut got = [0; 8];
    cx.is("its byte", rustix::io::read(&r, &mut got)?, 1);
    cx.is("its end", rustix::io::read(&r, &mut got)?, 0);
    Ok(())
}

fn child_execs(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(16, 0)?;
    let ((r, w), (stdin, end)) = (cx.pipe()?, cx.pipe()?);
    let (ts, mut buf) = (sqe::millis(8000), [0; 4]);
    let child = os::spawn_child(|| {
        use std::os::unix::process::CommandExt;
        os::close(end.as_raw_fd());
        ring.push(sqe::timeout(&ts, 0, 0).ud(1));
        ring.push(sqe::timeout(&ts, 0, 0).ud(2).link());
        ring.push(sqe::nop().ud(3));
        ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).ud(4));
        if ring.submit() != 4 {
            return 10;
        }
        let mut sh = std::process::Command::new("/bin/sh");
        sh.args(["-c", "read x; exit 7"]).stdin(stdin).exec().raw_os_error().unwrap_or(12)
    });
    let began = std::time::Instant::now();
    let all = [1, 2, 3, 4].map(|ud| (ud, -ECANCELED));
    cx.reap(&mut ring, "cancelled", &all);
    cx.holds("at once", began.elapsed() < Duration::from_secs(5));
    drop((w, end));
    cx.is("the child goes on", os::wait_for(child), 7);
    Ok(())
}
