//! Effects of a register call on the calling task, and on the ring.

use super::prelude::*;

pub const CASES: &[Case] = &[
    any_order!("tasks", registered_ring_stays_open, [
        Reg(IORING_REGISTER_RING_FDS), Enter(IORING_ENTER_REGISTERED_RING),
    ], "a registered ring outlives its fd"),
    case!("tasks", registered_rings_of_threads, [Reg(IORING_REGISTER_RING_FDS)], "each thread has its own registered rings"),
    case!("tasks", registered_rings_after_fork, [Reg(IORING_REGISTER_RING_FDS)], "a child has no registered rings"),
    case!("tasks", partial_ring_fds, [Reg(IORING_REGISTER_RING_FDS)], "rows before a bad row count"),
    legal!("tasks", other_credentials, [Reg(IORING_REGISTER_PERSONALITY)], "a request may open the files of its personality"),
    any_order!("tasks", personality_keeps_rights, [Reg(IORING_REGISTER_PERSONALITY)], "a personality may open files that its thread no longer may"),
    legal!("tasks", eventfd_after_submit, [Reg(IORING_REGISTER_EVENTFD)], "an eventfd counts completions of requests submitted before its registration"),
    legal!("tasks", poll_sets_taskrun, [Setup(IORING_SETUP_TASKRUN_FLAG)], "readiness in poll(2) shows in TASKRUN at once"),
    case!("tasks", partly_readable_arrays, [
        Reg(IORING_REGISTER_FILES_UPDATE2), Reg(IORING_REGISTER_BUFFERS_UPDATE),
    ], "an array is used as far as it is readable"),
    case!("tasks", clone_from_single_issuer, [Reg(IORING_REGISTER_CLONE_BUFFERS)], "buffers cannot be cloned from another task's SINGLE_ISSUER ring"),
    case!("tasks", no_extra_thread, [Trap("fork")], "a ring without requests adds no thread: unshare(2) needs one"),
    case!("tasks", no_extra_thread_waiting, [Trap("fork")], "nor does a request that waits for a file"),
    any_order!("tasks", many_buffers, [Reg(IORING_REGISTER_BUFFERS2)], "a table with the maximum number of buffers"),
];

fn row(offset: u32, fd: i32) -> io_uring_rsrc_update {
    io_uring_rsrc_update { offset, resv: 0, data: u64::from(fd.cast_unsigned()) }
}

fn enter(entry: EntryPoint, index: i32, submit: u32) -> isize {
    entry::enter(entry, index, submit, 0, IORING_ENTER_REGISTERED_RING, 0, 0)
}

fn registered_ring_stays_open(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut one = row(2, ring.fd);
    cx.is("register", ring.register_struct(IORING_REGISTER_RING_FDS, &mut one, 1), 1);
    let copy = os::dup(ring.fd);
    ring.push(sqe::nop().ud(1));
    cx.is("close the copy", os::close(copy), 0);
    cx.close(ring.fd);
    cx.is("by fd", ring.enter(1, 0, 0), -EBADF);
    cx.is("by index", enter(cx.entry, 2, 1), 1);
    cx.spin(&ring, "completed", 1);
    let opcode = IORING_UNREGISTER_RING_FDS | IORING_REGISTER_USE_REGISTERED_RING;
    let gone = row(2, 0);
    cx.is("unregister by itself", entry::register(cx.entry, 2, opcode, addr(&gone), 1), 1);
    cx.is("then", enter(cx.entry, 2, 0), -EBADF);
    Ok(())
}

fn registered_rings_of_threads(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut one = row(0, ring.fd);
    cx.is("register", ring.register_struct(IORING_REGISTER_RING_FDS, &mut one, 1), 1);
    let (entry, fd) = (cx.entry, ring.fd);
    let other = move || {
        let before = enter(entry, 0, 0);
        let mut own = row(1, fd);
        let at = addr_mut(&mut own);
        let registered = entry::register(entry, fd, IORING_REGISTER_RING_FDS, at, 1);
        [before, registered, enter(entry, 0, 0), enter(entry, 1, 0)]
    };
    let got = std::thread::spawn(other).join().unwrap_or([1; 4]);
    let want = [-EINVAL, 1, -EBADF, 0];
    for (i, what) in ["before", "register there", "ours there", "its own"].into_iter().enumerate() {
        cx.is(what, got[i], want[i]);
    }
    cx.is("its own here", enter(cx.entry, 1, 0), -EBADF);
    cx.is("ours here", enter(cx.entry, 0, 0), 0);
    Ok(())
}

fn registered_rings_after_fork(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut one = row(0, ring.fd);
    cx.is("register", ring.register_struct(IORING_REGISTER_RING_FDS, &mut one, 1), 1);
    let entry = cx.entry;
    let code = os::in_child(|| (-enter(entry, 0, 0)) as i32);
    cx.is("in a child", -code, -EINVAL);
    cx.is("in the parent", enter(cx.entry, 0, 0), 0);
    Ok(())
}

fn partial_ring_fds(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut rows = [row(u32::MAX, ring.fd), row(u32::MAX, -1), row(u32::MAX, ring.fd)];
    let reg = IORING_REGISTER_RING_FDS;
    cx.is("the second is bad", ring.register(reg, addr_mut(&mut rows), 3), 1);
    let rows = *std::hint::black_box(&rows);
    cx.eq("indices", rows.map(|r| r.offset), [0, u32::MAX, u32::MAX]);
    let undo = [row(0, 0), row(16, 0)];
    cx.is("undo, too", ring.register(IORING_UNREGISTER_RING_FDS, addr(&undo), 2), 1);
    cx.is("undone", enter(cx.entry, 0, 0), -EBADF);
    let with_fd = [row(0, 1)];
    cx.is("undo with an fd", ring.register(IORING_UNREGISTER_RING_FDS, addr(&with_fd), 1), -EINVAL);
    Ok(())
}

fn other_credentials(cx: &mut Cx) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(Stop::Skip("takes the rights of root".into()));
    }
    let mut ring = cx.ring(4, 0)?;
    let path = cx.path("f")?;
    let file = cx.file("f", b"")?;
    let dir = cx.dir()?;
    let open_to = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&dir, open_to(0o755))?;
    file.set_permissions(open_to(0o600))?;
    cx.is("as ourselves", ring.register(IORING_REGISTER_PERSONALITY, 0, 0), 1);
    os::file_ids(12345);
    let got = ring.register(IORING_REGISTER_PERSONALITY, 0, 0);
    os::file_ids(0);
    cx.is("as another", got, 2);
    let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
    let under = |id| open.set(|s| s.personality = id);
    cx.one(&mut ring, "as the other", under(2), -EACCES);
    drop(cx.one_fd(&mut ring, "as ourselves", under(1))?);
    drop(cx.one_fd(&mut ring, "with none", open)?);
    file.set_permissions(open_to(0o644))?;
    drop(cx.one_fd(&mut ring, "as the other, allowed", under(2))?);
    Ok(())
}

fn personality_keeps_rights(cx: &mut Cx) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(Stop::Skip("takes the rights of root".into()));
    }
    let (path, entry) = (cx.path("f")?, cx.entry);
    let only_root = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    cx.file("f", b"")?.set_permissions(only_root)?;
    // The child's status is the open's result: 0 for a descriptor, else an errno.
    let child = os::in_child(|| {
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 200 };
        if ring.register(IORING_REGISTER_PERSONALITY, 0, 0) != 1 || !os::become_nobody() {
            return 201;
        }
        let open = sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(&*path), 0, 0);
        ring.push(open.set(|s| s.personality = 1)).submit_wait(1);
        ring.pop().map_or(202, |c| -c.res.min(0))
    });
    cx.note_answer("opened as root", -child);
    Ok(())
}

fn eventfd_after_submit(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let ev = cx.eventfd(0)?;
    ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN).ud(1));
    cx.is("submit", ring.submit(), 1);
    let fds = [ev.as_raw_fd()];
    cx.is("register", ring.register_slice(IORING_REGISTER_EVENTFD, &fds), 0);
    rustix::io::write(&w, b"x")?;
    let ready = os::poll(ev.as_raw_fd(), libc::POLLIN, 2000);
    cx.is("signalled", ready, i32::from(libc::POLLIN));
    let got = ring.pop_all();
    cx.completions("there without entering", &got, &[(1, i32::from(libc::POLLIN))]);
    Ok(())
}

/// Returns the address of a copy of `items` whose next item would not be readable.
fn at_the_border<T: Copy>(items: &[T]) -> usize {
    let at = os::border() - size_of_val(items);
    os::store(at, items);
    at
}

fn partly_readable_arrays(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let table = io_uring_rsrc_register {
        nr: 4,
        flags: IORING_RSRC_REGISTER_SPARSE,
        ..Default::default()
    };
    cx.is("files", ring.register(IORING_REGISTER_FILES2, addr(&table), 32), 0);
    cx.is("buffers", ring.register(IORING_REGISTER_BUFFERS2, addr(&table), 32), 0);
    let update = |nr, data: usize, tags: usize| io_uring_rsrc_update2 {
        nr,
        data: data as u64,
        tags: tags as u64,
        ..Default::default()
    };
    let mut buf = [0u8; 64];
    let base = std::ptr::with_exposed_provenance_mut(addr_mut(&mut buf));
    let iov = libc::iovec { iov_base: base, iov_len: 64 };
    let (two_fds, two_iovs) = (at_the_border(&[0, 0]), at_the_border(&[iov, iov]));
    let (one_tag, iovs) = (at_the_border(&[9u64]), [iov; 3]);
    let rows = [
        ("files", IORING_REGISTER_FILES_UPDATE2, update(3, two_fds, 0), 2),
        ("files' tags", IORING_REGISTER_FILES_UPDATE2, update(3, addr(&[0, 0, 0]), one_tag), 1),
        ("buffers", IORING_REGISTER_BUFFERS_UPDATE, update(3, two_iovs, 0), 2),
        ("buffers' tags", IORING_REGISTER_BUFFERS_UPDATE, update(3, addr(&iovs), one_tag), 1),
        ("no buffers", IORING_REGISTER_BUFFERS_UPDATE, update(1, 0, 0), -EFAULT),
    ];
    for (what, op, up, want) in rows {
        cx.is(what, ring.register(op, addr(&up), 32), want);
    }
    Ok(())
}

fn clone_from_single_issuer(cx: &mut Cx) -> Outcome {
    let src = cx.ring(4, IORING_SETUP_SINGLE_ISSUER)?;
    let mut buf = [0u8; 8];
    let base = std::ptr::with_exposed_provenance_mut(addr_mut(&mut buf));
    let iov = libc::iovec { iov_base: base, iov_len: 8 };
    cx.is("register", src.register_slice(IORING_REGISTER_BUFFERS, &[iov]), 0);
    let dst = cx.ring(4, 0)?;
    let call = io_uring_clone_buffers { src_fd: src.fd.cast_unsigned(), ..Default::default() };
    let (entry, fd, op) = (cx.entry, dst.fd, IORING_REGISTER_CLONE_BUFFERS);
    let clone = move || entry::register(entry, fd, op, addr(&call), 1);
    cx.is("elsewhere", std::thread::spawn(clone).join().unwrap_or(1), -EEXIST);
    cx.is("here", clone(), 0);
    let itself = io_uring_clone_buffers {
        src_fd: dst.fd.cast_unsigned(),
        flags: IORING_REGISTER_DST_REPLACE,
        dst_off: 1,
        nr: 1,
        ..call
    };
    cx.is("of itself", dst.register(op, addr(&itself), 1), 0);
    Ok(())
}

fn many_buffers(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 8];
    let base = std::ptr::with_exposed_provenance_mut(addr_mut(&mut buf));
    let iovs = vec![libc::iovec { iov_base: base, iov_len: 8 }; 16384];
    // The buffers may exceed RLIMIT_MEMLOCK.
    let registered = ring.register_slice(IORING_REGISTER_BUFFERS, &iovs);
    cx.note_answer("register", registered);
    if registered != 0 {
        return Ok(());
    }
    let file = cx.file("f", b"data")?;
    let read = sqe::rw(IORING_OP_READ_FIXED, file.as_raw_fd(), addr_mut(&mut buf), 4, 0);
    cx.one(&mut ring, "the last", read.set(|s| s.buf_index = 16383), 4);
    cx.is("unregister", ring.register(IORING_UNREGISTER_BUFFERS, 0, 0), 0);
    Ok(())
}

fn poll_sets_taskrun(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, DEFER | IORING_SETUP_TASKRUN_FLAG)?;
    let flag = |ring: &Ring| ring.sq_flags() & IORING_SQ_TASKRUN;
    for _ in 0..20 {
        let (r, w) = cx.pipe()?;
        let fd = r.as_raw_fd();
        cx.start(&mut ring, &[sqe::poll_add(fd, libc::POLLIN).ud(1)]);
        cx.is("not ready", os::poll(fd, libc::POLLIN, 0), 0);
        cx.is("no flag", flag(&ring), 0);
        rustix::io::write(&w, b"x")?;
        cx.is("ready", os::poll(fd, libc::POLLIN, 0), i32::from(libc::POLLIN));
        cx.is("flag", flag(&ring), IORING_SQ_TASKRUN);
        cx.is("not posted", ring.cq_ready(), 0);
        cx.is("enter", ring.enter(0, 0, IORING_ENTER_GETEVENTS), 0);
        cx.is("no flag", flag(&ring), 0);
        cx.reap_in_order(&mut ring, "posted", &[(1, i32::from(libc::POLLIN))]);
    }
    std::thread::sleep(std::time::Duration::from_millis(10));
    cx.is("nor later", flag(&ring), 0);
    Ok(())
}

/// Calls unshare(CLONE_NEWUSER), which fails in a process of several threads, in a child that has
/// made a ring and used it by `with`; returns 0 or an error.
fn unshare_after(cx: &mut Cx, with: fn(&mut Ring) -> bool) -> Result<i32, Stop> {
    let entry = cx.entry;
    let plain = os::in_child(os::own_users);
    if plain != 0 {
        return Err(Stop::Skip(format!("no user namespaces (errno {plain})")));
    }
    Ok(os::in_child(|| {
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 255 };
        if with(&mut ring) { os::own_users() } else { 254 }
    }))
}

fn no_extra_thread(cx: &mut Cx) -> Outcome {
    let nop = |ring: &mut Ring| {
        ring.push(sqe::nop()).submit_wait(1);
        ring.pop().is_some_and(|cqe| cqe.res == 0)
    };
    let answer = unshare_after(cx, nop)?;
    cx.is("after a NOP", answer, 0);
    Ok(())
}

fn no_extra_thread_waiting(cx: &mut Cx) -> Outcome {
    let poll = |ring: &mut Ring| {
        let Ok((read, _write)) = rustix::pipe::pipe() else { return false };
        ring.push(sqe::poll_add(read.as_raw_fd(), libc::POLLIN)).submit() == 1
    };
    let answer = unshare_after(cx, poll)?;
    cx.is("beside a POLL_ADD", answer, 0);
    let sq_thread = |ring: &mut Ring| {
        let other = Ring::new(ring.calls, 4, IORING_SETUP_SQPOLL);
        let made = other.is_ok();
        drop(other);
        std::thread::sleep(std::time::Duration::from_millis(300));
        made
    };
    let answer = unshare_after(cx, sq_thread)?;
    cx.is("behind an SQ thread", answer, 0);
    Ok(())
}
