//! The process's POSIX record locks: they are released when the process closes a descriptor of the
//! file, and by nothing that a ring does.

use super::prelude::*;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    any_order!("locks", outlive_requests, [Op(IORING_OP_FSYNC), Op(IORING_OP_WRITE), Op(IORING_OP_READ)],
          "requests on a file do not release the process's locks on it"),
    legal!("locks", outlive_direct, [Op(IORING_OP_READ), Op(IORING_OP_WRITE)],
          "O_DIRECT requests do not release the process's locks on a file"),
    legal!("locks", outlive_splice, [Op(IORING_OP_SPLICE)], "SPLICE does not release the process's locks on a file"),
    any_order!("locks", outlive_polls, [Op(IORING_OP_POLL_ADD), Op(IORING_OP_READ)],
          "waits for a FIFO do not release the process's locks"),
    legal!("locks", outlive_tables, [Reg(IORING_REGISTER_FILES), Reg(IORING_UNREGISTER_FILES),
          Reg(IORING_REGISTER_FILES_UPDATE), Op(IORING_OP_FILES_UPDATE)],
          "unregistering a slot or a table does not release the process's locks"),
    legal!("locks", outlive_slots, [Op(IORING_OP_OPENAT), Op(IORING_OP_CLOSE)],
          "opening and closing a file in a slot does not release the process's locks"),
    legal!("locks", outlive_in_flight_slots, [Reg(IORING_UNREGISTER_FILES)],
          "releasing a slot with a request in flight does not release the process's locks"),
    legal!("locks", outlive_rings, [Setup(0)], "closing a ring does not release the process's locks"),
    legal!("locks", outlive_children, [Trap("fork")],
          "nor a forked child that uses the ring, and ends"),
    legal!("locks", outlive_exec, [Trap("fork")], "nor exec, after which the file can be closed"),
    legal!("locks", outlive_failed_exec, [Trap("fork")],
          "nor an exec that fails; children that exec afterwards have no descriptor of the file"),
    case!("locks", end_with_close, [Op(IORING_OP_FSYNC)],
          "closing the file releases its locks, also while requests are in flight"),
    legal!("locks", taken_after_reopen, [Op(IORING_OP_FSYNC), Reg(IORING_REGISTER_FILES)],
          "locks on a reopened file survive the release of the ring's old reference"),
    legal!("locks", flock_ends, [Op(IORING_OP_FSYNC)],
          "a flock(2) lock ends with the program's last descriptor"),
    legal!("locks", many_slots, [Op(IORING_OP_OPENAT), Op(IORING_OP_CLOSE)],
          "a locked file may be opened and closed in a slot many times"),
    case!("locks", taken_during_release, [Reg(IORING_REGISTER_FILES), Reg(IORING_UNREGISTER_FILES)],
          "a lock survives if another thread releases the file in a ring meanwhile"),
];

/// A file that the process has locked, and another description of it, which shows the lock.
struct Locked {
    file: File,
    other: File,
}

impl Locked {
    fn new(cx: &mut Cx, name: &str) -> Result<Locked, Stop> {
        let file = cx.file(name, &[7; 4096])?;
        Locked::of(cx, name, file)
    }

    fn of(cx: &mut Cx, name: &str, file: File) -> Result<Locked, Stop> {
        // This description is opened first: its close would release the lock.
        let other = File::options().read(true).write(true).open(cx.dir()?.join(name))?;
        cx.is("lock", os::lock(file.as_raw_fd()), 0);
        Ok(Locked { file, other })
    }

    fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn still(&self, cx: &mut Cx, what: &str) {
        cx.holds(&format!("locked after {what}"), os::locked(self.other.as_raw_fd()));
    }
}

fn outlive_requests(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    let mut buf = [0; 64];
    let fd = f.fd();
    let sync = sqe::op(IORING_OP_FSYNC, fd);
    let (read, write) = (sqe::read(fd, &mut buf, 0), sqe::write(fd, &[1; 64], 0));
    for (what, sqe, res) in [
        ("FSYNC", sync, 0),
        ("a second one", sync, 0),
        ("READ", read, 64),
        ("READ by a worker", read.with(IOSQE_ASYNC), 64),
        ("WRITE", write, 64),
        ("WRITE by a worker", write.with(IOSQE_ASYNC), 64),
        ("FALLOCATE", sqe::op(IORING_OP_FALLOCATE, fd).set(|s| s.addr = 8192), 0),
        ("FTRUNCATE", sqe::op(IORING_OP_FTRUNCATE, fd).set(|s| s.off = 4096), 0),
        ("FADVISE", sqe::op(IORING_OP_FADVISE, fd).with(IOSQE_ASYNC), 0),
        ("SYNC_FILE_RANGE", sqe::op(IORING_OP_SYNC_FILE_RANGE, fd), 0),
    ] {
        cx.one(&mut ring, what, sqe, res);
        f.still(cx, what);
    }
    let three = [sync.ud(1).link(), write.ud(2).link().with(IOSQE_ASYNC), sync.ud(3)];
    cx.batch(&mut ring, "a chain", &three, &[(1, 0), (2, 64), (3, 0)]);
    f.still(cx, "a chain");
    Ok(())
}

fn outlive_direct(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.direct_file("f", &[7; 8192])?;
    let f = Locked::of(cx, "f", file)?;
    let at = os::page(libc::PROT_READ | libc::PROT_WRITE);
    for (what, opcode) in [("READ", IORING_OP_READ), ("WRITE", IORING_OP_WRITE)] {
        let sqe = sqe::rw(opcode, f.fd(), at, 4096, 0);
        for (how, flags) in [("", 0), (" by a worker", IOSQE_ASYNC)] {
            cx.one(&mut ring, what, sqe.with(flags), 4096);
            f.still(cx, &format!("{what}{how}"));
        }
    }
    Ok(())
}

fn outlive_splice(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    let (r, w) = cx.pipe()?;
    let out = sqe::rw(IORING_OP_SPLICE, w.as_raw_fd(), 0, 64, u64::MAX);
    let out = out.set(|s| s.file_index = f.fd().cast_unsigned());
    let back = sqe::rw(IORING_OP_SPLICE, f.fd(), 0, 64, 0);
    let back = back.set(|s| (s.addr, s.file_index) = (u64::MAX, r.as_raw_fd().cast_unsigned()));
    cx.one(&mut ring, "from the file", out, 64);
    f.still(cx, "SPLICE from it");
    cx.one(&mut ring, "to the file", back, 64);
    f.still(cx, "SPLICE to it");
    Ok(())
}

fn outlive_polls(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let path = cx.path("fifo")?;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &*path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )?;
    let open = || File::options().read(true).write(true).open(path.to_str().unwrap_or_default());
    let f = Locked::of(cx, "fifo", open()?)?;
    let mut bufs = [[0; 1]; 2];
    let [a, b] = &mut bufs;
    let poll = sqe::poll_add(f.fd(), libc::POLLIN);
    let first = [poll.ud(1), poll.ud(2), sqe::read(f.fd(), a, sqe::HERE).ud(3)];
    cx.start(&mut ring, &first);
    cx.start(&mut ring, &[sqe::read(f.fd(), b, sqe::HERE).with(IOSQE_ASYNC).ud(4)]);
    rustix::io::write(&f.file, b"ab")?;
    cx.reap(&mut ring, "all", &[(1, 1), (2, 1), (3, 1), (4, 1)]);
    f.still(cx, "waits");
    cx.start(&mut ring, &[poll.ud(1), poll.ud(2)]);
    let want = [(1, -ECANCELED), (2, -ECANCELED), (3, 2)];
    let cancel = sqe::cancel(0, IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY).ud(3);
    cx.batch(&mut ring, "cancelled", &[cancel], &want);
    f.still(cx, "cancelled waits");
    Ok(())
}

fn outlive_tables(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    let none = [-1];
    for round in 0..3 {
        cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd(), f.fd()]), 0);
        cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, 0).fixed(), 0);
        let mut up = io_uring_rsrc_update { data: addr(&none) as u64, ..Default::default() };
        let updated = ring.register_struct(IORING_REGISTER_FILES_UPDATE, &mut up, 1);
        cx.is("update", updated, 1);
        f.still(cx, "an update");
        let update = sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&none), 1, 1);
        cx.one(&mut ring, "FILES_UPDATE", update, 1);
        f.still(cx, "FILES_UPDATE");
        let again = sqe::rw(IORING_OP_FILES_UPDATE, -1, addr(&[f.fd()]), 1, 0);
        cx.one(&mut ring, "FILES_UPDATE", again, 1);
        cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
        f.still(cx, &format!("round {round}"));
    }
    Ok(())
}

fn outlive_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    cx.sparse_files(&ring, 4);
    let path = cx.path("f")?;
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    cx.one(&mut ring, "open", sqe::in_slot(open, 1), 0);
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, 1).fixed(), 0);
    cx.one(&mut ring, "close", sqe::in_slot(sqe::op(IORING_OP_CLOSE, 0), 1), 0);
    f.still(cx, "CLOSE of a slot");
    Ok(())
}

fn outlive_in_flight_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    let (r, w) = cx.pipe()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd()]), 0);
    // The splice waits for the pipe and holds the slot's file.
    let splice = sqe::rw(IORING_OP_SPLICE, 0, 0, 4, 0).fixed().ud(1);
    let from = r.as_raw_fd().cast_unsigned();
    cx.start(&mut ring, &[splice.set(|s| (s.addr, s.file_index) = (u64::MAX, from))]);
    cx.quiet(&ring, "it waits", 10);
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    f.still(cx, "unregistering");
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "done", &[(1, 4)]);
    f.still(cx, "its last request");
    Ok(())
}

fn outlive_rings(cx: &mut Cx) -> Outcome {
    let f = Locked::new(cx, "f")?;
    for _ in 0..2 {
        let mut ring = cx.ring(8, 0)?;
        cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd()]), 0);
        cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, f.fd()), 0);
        drop(ring);
        f.still(cx, "a ring");
    }
    Ok(())
}

fn outlive_children(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd()]), 0);
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, f.fd()), 0);
    let child = os::in_child(|| {
        ring.push(sqe::op(IORING_OP_FSYNC, f.fd()).ud(1));
        let submitted = ring.submit_wait(1);
        let res = ring.pop().map_or(9, |c| c.res);
        i32::from((submitted, res) != (1, 0) || os::close(f.fd()) != 0)
    });
    cx.is("child", child, 0);
    f.still(cx, "a child");
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, 0).fixed(), 0);
    f.still(cx, "a further FSYNC");
    Ok(())
}

fn outlive_exec(cx: &mut Cx) -> Outcome {
    let (r, w) = cx.pipe()?;
    let file = cx.file("f", b"data")?;
    let (path, entry, ready) = (cx.dir()?.join("f"), cx.entry, cx.eventfd(0)?);
    let child = os::spawn_child(|| {
        // The child's standard input, and nothing else, is the file, by a description of its own.
        let own = File::options().read(true).write(true).open(path);
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 10 };
        let moved = own.is_ok_and(|own| os::dup2(own.as_raw_fd(), 0) == 0);
        if !moved || os::close(file.as_raw_fd()) != 0 {
            return 11;
        }
        let registered = ring.register_slice(IORING_REGISTER_FILES, &[0]);
        // IOSQE_ASYNC is left out: the kernel's workers share the descriptor table, and may lose
        // the lock.
        ring.push(sqe::read(0, &mut [0; 4], 0).fixed());
        if os::lock(0) != 0 || !os::flock(0) || registered != 0 || ring.submit_wait(1) != 1 {
            return 12;
        }
        let (r, ready) = (r.as_raw_fd(), ready.as_raw_fd());
        let stays = |fd| os::fcntl(fd, libc::F_SETFD, 0);
        if (stays(r), stays(ready), os::close(w.as_raw_fd())) != (0, 0, 0) {
            return 13;
        }
        // A redirection of the shell itself would close its standard input for a moment.
        let tell = format!("printf 12345678 >&{ready}; (head -n1 <&{r} >/dev/null)");
        let own_only = "env | grep -q SOFTRING_LOCKED && exit 14";
        exec_shell(&format!("{own_only}; {tell}; exec <&-; {tell}"))
    });
    let told = |cx: &mut Cx, what: &str| {
        cx.holds(what, os::poll(ready.as_raw_fd(), libc::POLLIN, 5000) == i32::from(libc::POLLIN));
        let _ = rustix::io::read(&ready, &mut [0u8; 8]);
    };
    told(cx, "it has exec'd");
    cx.holds("locked after exec", os::locked(file.as_raw_fd()));
    cx.holds("flock as well", !os::flock(file.as_raw_fd()));
    rustix::io::write(&w, b"\n")?;
    told(cx, "it has closed the file");
    cx.holds("not locked then", !os::locked(file.as_raw_fd()));
    // The kernel's ring ends a moment later.
    let free = || (0..100).any(|_| os::flock(file.as_raw_fd()) || os::poll(-1, 0, 20) != 0);
    cx.holds("nor open", free());
    rustix::io::write(&w, b"\n")?;
    cx.is("status", os::wait_for(child), 0);
    Ok(())
}

fn outlive_failed_exec(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd()]), 0);
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, f.fd()), 0);
    os::fcntl(f.fd(), libc::F_SETFD, 0);
    os::fcntl(f.other.as_raw_fd(), libc::F_SETFD, 0);
    use std::os::unix::process::CommandExt;
    let failed = std::process::Command::new("/nonexistent").exec();
    cx.eq("exec", failed.raw_os_error(), Some(libc::ENOENT));
    f.still(cx, "an exec that failed");
    // The script counts the child's descriptors of the file.
    let count = "ls -l /proc/self/fd | grep -c '/f$'";
    let forked = os::in_child(|| exec_shell(&format!("[ $({count}) = 2 ] || exit 4")));
    cx.is("forked child", forked, 0);
    let spawned = std::process::Command::new("/bin/sh").args(["-c", count]).output()?;
    cx.eq("spawned child", String::from_utf8_lossy(&spawned.stdout).trim(), "2");
    f.still(cx, "children");
    Ok(())
}

/// Replaces the process by a shell; returns the exit status to use if there is no shell.
fn exec_shell(script: &str) -> i32 {
    use std::os::unix::process::CommandExt;
    std::process::Command::new("/bin/sh").args(["-c", script]).exec().raw_os_error().unwrap_or(9)
}

fn end_with_close(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    for what in ["idle", "with a request in flight", "in a slot"] {
        let Locked { file, other } = Locked::new(cx, "f")?;
        cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, file.as_raw_fd()), 0);
        if what == "in a slot" {
            cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd()]), 0);
        }
        let from = r.as_raw_fd().cast_unsigned();
        let splice = sqe::rw(IORING_OP_SPLICE, file.as_raw_fd(), 0, 4, 0).ud(1);
        if what == "with a request in flight" {
            cx.start(&mut ring, &[splice.set(|s| (s.addr, s.file_index) = (u64::MAX, from))]);
            cx.quiet(&ring, "it waits", 10);
        }
        drop(file);
        cx.holds(what, !os::locked(other.as_raw_fd()));
        if what == "with a request in flight" {
            rustix::io::write(&w, b"data")?;
            cx.reap(&mut ring, "done", &[(1, 4)]);
        }
    }
    Ok(())
}

fn taken_after_reopen(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let first = cx.file("f", &[7; 4096])?;
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, first.as_raw_fd()), 0);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[first.as_raw_fd()]), 0);
    let from = r.as_raw_fd().cast_unsigned();
    let splice = sqe::rw(IORING_OP_SPLICE, first.as_raw_fd(), 0, 4, 0).ud(1);
    cx.start(&mut ring, &[splice.set(|s| (s.addr, s.file_index) = (u64::MAX, from))]);
    cx.quiet(&ring, "it waits", 10);
    drop(first);
    let f = Locked::new(cx, "f")?;
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "done", &[(1, 4)]);
    f.still(cx, "the end of a request from before");
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    f.still(cx, "unregistering what was registered before");
    Ok(())
}

fn flock_ends(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"data")?;
    let other = File::open(cx.dir()?.join("f"))?;
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&file, exclusive)?;
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, file.as_raw_fd()), 0);
    cx.is("lock it as well", os::lock(file.as_raw_fd()), 0);
    cx.one(&mut ring, "FSYNC", sqe::op(IORING_OP_FSYNC, file.as_raw_fd()), 0);
    cx.holds("held", rustix::fs::flock(&other, exclusive).is_err());
    cx.close(std::os::fd::IntoRawFd::into_raw_fd(file));
    cx.holds("free", rustix::fs::flock(&other, exclusive).is_ok());
    Ok(())
}

fn many_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let f = Locked::new(cx, "f")?;
    cx.sparse_files(&ring, 1);
    let path = cx.path("f")?;
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    let (open, close) = (sqe::in_slot(open, 0), sqe::in_slot(sqe::op(IORING_OP_CLOSE, 0), 0));
    let mut failed = 0;
    for _ in 0..100 {
        for sqe in [open, close] {
            ring.push(sqe).submit_wait(1);
            failed += u32::from(ring.take(1)?[0].res != 0);
        }
    }
    cx.is("failed", failed, 0);
    f.still(cx, "all of them");
    Ok(())
}

fn taken_during_release(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"data")?;
    let other = File::options().read(true).write(true).open(cx.dir()?.join("f"))?;
    let (fd, stop) = (file.as_raw_fd(), AtomicBool::new(false));
    let lost = std::thread::scope(|scope| {
        let ring = &mut ring;
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                ring.register_slice(IORING_REGISTER_FILES, &[fd, fd, fd, fd]);
                ring.register(IORING_UNREGISTER_FILES, 0, 0);
            }
        });
        let lost = [os::lock, os::lock_waiting, os::lockf].map(|lock| {
            let until = Instant::now() + Duration::from_millis(400);
            let mut lost = 0;
            while Instant::now() < until {
                lost += i32::from(lock(fd) != 0 || !os::locked(other.as_raw_fd()));
                lost += i32::from(os::unlock(fd) != 0);
            }
            lost
        });
        stop.store(true, Relaxed);
        lost
    });
    cx.eq("lost", lost, [0; 3]);
    Ok(())
}
