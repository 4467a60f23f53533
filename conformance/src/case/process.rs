//! Rings and processes: fork, exec, threads, signals.

use super::prelude::*;
use crate::vectors::enter_keeps_vectors;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    legal!("process", child_uses_inherited, [Trap("fork")], "a forked child uses the ring it inherits"),
    any_order!("process", grandchild_first, [Trap("fork")], "of the children of a ring's maker only a grandchild uses it"),
    case!("process", child_keeps_mask, [Trap("fork")], "a forked child blocks the signals that its parent blocks"),
    any_order!("process", child_makes_new, [Trap("fork")], "a forked child makes a ring of its own"),
    case!("process", shared_by_fork, [Trap("fork")], "parent and child see the same completions"),
    any_order!("process", child_cancels, [Trap("fork")], "a child cancels what its parent submitted"),
    legal!("process", ring_per_child, [Trap("fork")], "rings made in a parent, one used by each of its children"),
    any_order!("process", child_ends_parent_goes_on, [Trap("fork")], "a child's end leaves the parent's ring alone"),
    legal!("process", parent_closed_child_uses, [Trap("fork")], "a child's ring outlives the parent's close"),
    case!("process", exec_closes, [Trap("fork")], "exec ends the rings"),
    any_order!("process", vfork_child, [Trap("vfork")], "a child by posix_spawn does no harm to the parent's ring"),
    any_order!("process", threads_own_rings, [], "eight threads, each with its own ring and file"),
    legal!("process", one_waits_others_submit, [], "one thread waits while others submit under a lock"),
    case!("process", signal_handler_during_io, [Trap("SIGSYS")], "signals during submissions do no harm"),
    legal!("process", sigsys_blocked, [Trap("SIGSYS")], "a program may block SIGSYS and use its ring"),
    legal!("process", sigsys_handled, [Trap("SIGSYS")], "a program may have a handler for SIGSYS"),
    any_order!("process", all_signals_blocked, [Trap("SIGSYS")], "a program may block every signal"),
    any_order!("process", registers_survive, [Trap("patched call site")], "a call keeps the registers that a system call keeps"),
    legal!("process", signals_in_child, [Trap("fork")], "a forked child has its parent's signals blocked, and no others"),
    legal!("process", first_realtime_signal, [], "SIGRTMIN belongs to the program: if blocked, it stays pending"),
    legal!("process", child_moves_fd, [], "a child may move a ring's fd to another number"),
];

/// Submits a NOP in a child; returns 0 if it completes.
fn nop_works(ring: &mut Ring, ud: u64) -> i32 {
    ring.push(sqe::nop().ud(ud));
    if ring.submit_wait(1) != 1 {
        return 1;
    }
    match ring.pop() {
        Some(c) if c.user_data == ud && c.res == 0 => 0,
        Some(_) => 2,
        None => 3,
    }
}

fn child_uses_inherited(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.one(&mut ring, "parent first", sqe::nop(), 0);
    cx.is("child", os::in_child(|| nop_works(&mut ring, 5)), 0);
    cx.one(&mut ring, "parent again", sqe::nop(), 0);
    Ok(())
}

fn grandchild_first(cx: &mut Cx) -> Outcome {
    let (mut ring, file) = (cx.ring(4, 0)?, cx.file("f", b"data")?);
    let mut other = cx.ring(4, 0)?;
    cx.is("register", other.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd()]), 0);
    let code = os::in_child(|| {
        os::in_child(|| {
            let mut buf = [0; 4];
            let read = sqe::read(0, &mut buf, 0).with(IOSQE_FIXED_FILE);
            other.push(read).submit_wait(1);
            let got = other.pop().map(|c| c.res);
            if got == Some(4) { nop_works(&mut ring, 5) } else { 10 }
        })
    });
    cx.eq("grandchild", code, 0);
    cx.one(&mut ring, "its maker", sqe::nop(), 0);
    cx.eq("the child's own child", os::in_child(|| nop_works(&mut other, 6)), 0);
    Ok(())
}

fn signals_in_child(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.one(&mut ring, "parent first", sqe::nop(), 0);
    let blocked = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        status.lines().find(|l| l.starts_with("SigBlk")).map(str::to_owned)
    };
    let before = blocked();
    cx.is("child", os::in_child(|| i32::from(blocked() != before)), 0);
    cx.holds("parent", blocked() == before);
    Ok(())
}

fn first_realtime_signal(cx: &mut Cx) -> Outcome {
    let (r, _w) = cx.pipe()?;
    let file = cx.file("f", b"data")?;
    let entry = cx.entry;
    let child = os::in_child(|| {
        let signal = libc::SIGRTMIN();
        os::block(signal, true);
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 10 };
        // The poll and the FSYNC make the engine start its threads.
        ring.push(sqe::poll_add(r.as_raw_fd(), libc::POLLIN));
        ring.push(sqe::op(IORING_OP_FSYNC, file.as_raw_fd()).with(IOSQE_ASYNC));
        if ring.submit() != 2 || ring.enter(0, 1, IORING_ENTER_GETEVENTS) != 0 {
            return 11;
        }
        os::signal(std::process::id().cast_signed(), signal);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let pending = status.lines().find_map(|l| l.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        i32::from(pending != Some(os::mask_of(signal)))
    });
    cx.is("child", child, 0);
    Ok(())
}

fn child_makes_new(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    cx.one(&mut ring, "parent first", sqe::nop(), 0);
    let entry = cx.entry;
    let child = os::in_child(|| {
        let Ok(mut own) = Ring::new(entry, 4, 0) else { return 10 };
        let mut buf = [0; 4];
        own.push(sqe::read(file.as_raw_fd(), &mut buf, 0).ud(1).with(IOSQE_ASYNC));
        if own.submit_wait(1) != 1 {
            return 11;
        }
        if own.pop().is_some_and(|c| c.res == 4) { 0 } else { 12 }
    });
    cx.is("child", child, 0);
    cx.one(&mut ring, "parent again", sqe::nop(), 0);
    Ok(())
}

fn shared_by_fork(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let child = os::in_child(|| {
        ring.push(sqe::nop().ud(7));
        i32::from(ring.submit() != 1)
    });
    cx.is("child submits", child, 0);
    cx.reap(&mut ring, "parent reaps", &[(7, 0)]);
    Ok(())
}

fn child_cancels(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, _w) = cx.pipe()?;
    let mut buf = [0; 4];
    let waits = [
        ("a poll", sqe::poll_add(r.as_raw_fd(), libc::POLLIN)),
        ("a read", sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE)),
        ("a read by a worker", sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE).with(IOSQE_ASYNC)),
    ];
    for (what, wait) in waits {
        cx.start(&mut ring, &[wait.ud(1)]);
        let child = os::in_child(|| cancel_in_child(&mut ring));
        cx.is(what, child, 0);
    }
    cx.one(&mut ring, "the parent goes on", sqe::nop(), 0);
    Ok(())
}

/// Cancels request 1; returns 0 if it is cancelled, and a second cancel does not find it.
fn cancel_in_child(ring: &mut Ring) -> i32 {
    ring.push(sqe::cancel(1, 0).ud(2));
    let submitted = ring.submit();
    let seen = take_for_a_while(ring, 2);
    let of = |ud| seen.iter().find(|c| c.user_data == ud).map_or(9, |c| c.res);
    ring.push(sqe::cancel(1, 0).ud(3));
    let again = ring.submit();
    let none = take_for_a_while(ring, 1);
    let told = [of(1) == -ECANCELED, of(2) == 0, none.iter().all(|c| c.res == -ENOENT)];
    let bad = told.iter().position(|yes| !yes).map_or(0, |at| at as i32 + 1);
    if (submitted, again, none.len()) == (1, 1, 1) { bad } else { 99 }
}

/// Takes completions, whoever posts them, until there are `n`; for five seconds at most.
fn take_for_a_while(ring: &mut Ring, n: usize) -> Vec<Cqe> {
    let (began, mut seen) = (Instant::now(), Vec::new());
    let ts = sqe::millis(10);
    let arg = io_uring_getevents_arg { ts: addr(&ts) as u64, ..Default::default() };
    while seen.len() < n && began.elapsed() < Duration::from_secs(5) {
        ring.enter_ext(0, 1, &arg);
        seen.extend(ring.pop_all());
    }
    seen
}

fn ring_per_child(cx: &mut Cx) -> Outcome {
    let file = cx.file("f", b"0123456789abcdef")?;
    let mut rings = (0..16).map(|_| cx.ring(4, 0)).collect::<Result<Vec<_>, _>>()?;
    let mut children = Vec::new();
    for (i, ring) in rings.iter_mut().enumerate() {
        children.push(os::spawn_child(|| {
            let mut buf = [0; 1];
            ring.push(sqe::read(file.as_raw_fd(), &mut buf, i as u64).ud(1));
            let submitted = ring.submit_wait(1);
            let got = ring.pop().map(|c| c.res);
            i32::from(submitted != 1 || got != Some(1))
        }));
    }
    let ended = children.into_iter().map(os::wait_for).filter(|status| *status == 0).count();
    cx.is("children that are well", ended, 16);
    Ok(())
}

fn child_ends_parent_goes_on(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)]);
    cx.is("child", os::in_child(|| 0), 0);
    cx.quiet(&ring, "the read still waits", 10);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    Ok(())
}

fn parent_closed_child_uses(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let child = os::spawn_child(|| {
        let mut go = [0; 1];
        // The parent closes its fd before it sends this byte.
        if rustix::io::read(&r, &mut go) != Ok(1) {
            return 20;
        }
        nop_works(&mut ring, 6)
    });
    drop(ring);
    rustix::io::write(&w, b"x")?;
    cx.is("child", os::wait_for(child), 0);
    Ok(())
}

fn exec_closes(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[w.as_raw_fd()]), 0);
    let child = os::spawn_child(|| {
        use std::os::unix::process::CommandExt;
        let failed = std::process::Command::new("/bin/true").exec();
        failed.raw_os_error().unwrap_or(99)
    });
    cx.is("child", os::wait_for(child), 0);
    drop(w);
    cx.is("the parent's ring holds its file", os::poll(r.as_raw_fd(), libc::POLLIN, 20), 0);
    drop(ring);
    let hup = i32::from(libc::POLLHUP);
    cx.is("until it is closed", os::poll(r.as_raw_fd(), libc::POLLIN, 3000), hup);
    Ok(())
}

fn vfork_child(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 4];
    cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0).ud(1)]);
    for _ in 0..5 {
        let status = std::process::Command::new("/bin/true").status()?;
        cx.holds("spawned", status.success());
    }
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "read", &[(1, 4)]);
    Ok(())
}

fn threads_own_rings(cx: &mut Cx) -> Outcome {
    let entry = cx.entry;
    let files = (0..8u8)
        .map(|i| cx.file(&format!("f{i}"), &[i; 64]))
        .collect::<Result<Vec<_>, _>>()?;
    let threads: Vec<_> = (0..8u8)
        .zip(files)
        .map(|(i, file)| {
            std::thread::spawn(move || {
                let Ok(mut ring) = Ring::new(entry, 8, 0) else { return 0 };
                let mut good = 0;
                for _ in 0..200 {
                    let mut buf = [0xff; 64];
                    ring.push(sqe::read(file.as_raw_fd(), &mut buf, 0).ud(i.into()));
                    let submitted = ring.submit_wait(1);
                    let res = ring.pop().map(|c| c.res);
                    let right = *std::hint::black_box(&buf) == [i; 64];
                    good += u32::from(submitted == 1 && res == Some(64) && right);
                }
                good
            })
        })
        .collect();
    let good: u32 = threads.into_iter().map(|t| t.join().unwrap_or(0)).sum();
    cx.is("good reads", good, 1600);
    Ok(())
}

fn one_waits_others_submit(cx: &mut Cx) -> Outcome {
    const EACH: u64 = 100;
    let mut ring = cx.ring(64, 0)?;
    let mut seen = vec![false; 4 * EACH as usize];
    let (fd, entry) = (ring.fd, cx.entry);
    let turn = std::sync::Mutex::new(());
    let shared = &ring;
    std::thread::scope(|s| {
        for t in 0..4 {
            let turn = &turn;
            s.spawn(move || {
                for i in 0..EACH {
                    let _mine = turn.lock();
                    let tail = shared.sq_tail();
                    let slot = tail & (shared.sq_entries() - 1);
                    shared.write_sqe(slot, &sqe::nop().ud(t * EACH + i));
                    shared.set_array(slot, slot);
                    shared.set_sq_tail(tail.wrapping_add(1));
                    while entry::enter(entry, fd, 1, 0, 0, 0, 0) != 1 {}
                }
            });
        }
    });
    while let Ok(got) = ring.take(1) {
        seen[got[0].user_data as usize] = true;
        if seen.iter().all(|s| *s) {
            break;
        }
    }
    cx.holds("every one was seen", seen.iter().all(|s| *s));
    Ok(())
}

fn signal_handler_during_io(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", b"data")?;
    os::catch(libc::SIGUSR1, 0);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let sender = os::signal_me_until(libc::SIGUSR1, stop.clone());
    let began = Instant::now();
    let (mut reads, mut bad) = (0, 0);
    // Fast reads go on until enough signals came, too.
    while reads < 2000 || (os::caught() < 20 && began.elapsed() < Duration::from_secs(5)) {
        let mut buf = [0; 4];
        ring.push(sqe::read(file.as_raw_fd(), &mut buf, 0).ud(1));
        while ring.sq_ready() > 0 {
            ring.submit();
        }
        while ring.cq_ready() == 0 {
            ring.enter(0, 1, IORING_ENTER_GETEVENTS);
        }
        reads += 1;
        bad += u32::from(!ring.pop_all().iter().all(|c| c.res == 4));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    sender.join().ok();
    cx.is("bad reads", bad, 0);
    cx.holds("signals came", os::caught() >= 20);
    Ok(())
}

fn sigsys_blocked(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    os::block(libc::SIGSYS, true);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    let mut second = cx.ring(4, 0)?;
    cx.one(&mut second, "nop in a ring made so", sqe::nop(), 0);
    os::block(libc::SIGSYS, false);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    Ok(())
}

fn sigsys_handled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    os::catch(libc::SIGSYS, 0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    cx.is("the handler was not called", os::caught(), 0);
    os::raise(libc::SIGSYS);
    cx.is("but is when raised", os::caught(), 1);
    Ok(())
}

fn all_signals_blocked(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    (1..=31).for_each(|s| os::block(s, true));
    let file = cx.file("f", b"data")?;
    let mut buf = [0; 4];
    cx.one(&mut ring, "read", sqe::read(file.as_raw_fd(), &mut buf, 0), 4);
    let worker = sqe::read(file.as_raw_fd(), &mut buf, 0).with(IOSQE_ASYNC);
    cx.one(&mut ring, "in a worker", worker, 4);
    Ok(())
}

fn registers_survive(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    let mut buf = [0u8; 4];
    let part = iovec { base: buf.as_mut_ptr() as u64, len: 4 };
    let (mut kept, mut read) = (0, 0);
    for i in 0..100 {
        let readv = sqe::rw(IORING_OP_READV, file.as_raw_fd(), addr(&part), 1, 0);
        ring.push(if i / 4 % 2 == 0 { sqe::nop() } else { readv });
        kept += u32::from(match i % 4 {
            0 => enter_keeps_vectors(cx.entry, ring.fd, 1, false),
            1 => enter_keeps_vectors(cx.entry, ring.fd, 1, true),
            _ => entry::enter_keeps_registers(cx.entry, ring.fd, 1),
        });
        read += ring.take(1)?[0].res;
    }
    cx.is("calls that kept them", kept, 100);
    cx.is("bytes read", read, 48 * 4);
    Ok(())
}

/// Returns the mask of the signals that this process blocks.
fn blocked() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find(|line| line.starts_with("SigBlk")).map(str::to_owned)
}

fn child_keeps_mask(cx: &mut Cx) -> Outcome {
    let before = blocked();
    let mut ring = Some(cx.ring(4, 0)?);
    for what in ["child", "another", "without a ring"] {
        if what == "without a ring" {
            drop(ring.take());
        }
        cx.is(what, os::in_child(|| i32::from(blocked() != before)), 0);
        cx.holds("its parent", blocked() == before);
    }
    Ok(())
}

fn child_moves_fd(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let fd = ring.fd;
    let child = os::in_child(|| {
        let moved = os::dup2(fd, 200);
        os::close(fd);
        ring.fd = moved;
        nop_works(&mut ring, 4)
    });
    cx.is("child", child, 0);
    Ok(())
}
