//! POSIX record locks of forked children, including children of a raw clone(2) that no library
//! sees. A child has none of its parent's locks unless both share one descriptor table.

use super::prelude::*;
use std::fs::File;

pub const CASES: &[Case] = &[
    legal!("locks", clone_child_keeps, [Trap("fork"), Reg(IORING_REGISTER_FILES)],
          "a child by clone(2) keeps the lock that it sets, whatever it does with rings then"),
    legal!("locks", clone_child_forks, [Trap("fork"), Reg(IORING_REGISTER_FILES)],
          "also where it forks, and where a fork before it has used the registered files"),
    legal!("locks", clone_child_slots, [Trap("fork"), Reg(IORING_REGISTER_FILES_UPDATE)],
          "also where it gives up the file in a slot of the ring that it inherits"),
    legal!("locks", clone_child_in_flight, [Trap("fork"), Op(IORING_OP_SPLICE)],
          "also where its parent has requests on the file in flight"),
    legal!("locks", fork_child_keeps, [Trap("fork"), Reg(IORING_REGISTER_FILES)],
          "a child by fork(3) keeps its locks as well"),
    case!("locks", vfork_child_execs, [Trap("vfork")],
          "a vfork child takes a lock that it sets to what it execs"),
    legal!("locks", shared_fd_table, [Trap("fork"), Reg(IORING_REGISTER_FILES)],
          "a child with its parent's table of descriptors costs neither of them a lock"),
];

/// A file in which each process locks a byte range of its own, and another description of it.
struct Both {
    file: File,
    other: File,
}

impl Both {
    fn new(cx: &mut Cx) -> Result<Both, Stop> {
        let file = cx.file("f", &[7; 4096])?;
        let other = File::options().read(true).write(true).open(cx.dir()?.join("f"))?;
        Ok(Both { file, other })
    }

    fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn lock(&self) -> bool {
        os::lock(self.fd()) == 0 && self.locked()
    }

    fn locked(&self) -> bool {
        os::locked(self.other.as_raw_fd())
    }

    /// Sets the lock in a child and runs `works`. Returns bit 0 if the lock is not set, bit 1 if
    /// `works` fails, bit 2 if the lock is lost.
    fn lock_and(&self, works: impl FnOnce() -> bool) -> i32 {
        let locked = self.lock();
        let works = works();
        i32::from(!locked) | i32::from(!works) << 1 | i32::from(!self.locked()) << 2
    }
}

/// Runs a test for each history of the file, with a ring of its own.
fn each(cx: &mut Cx, test: impl Fn(&mut Cx, &str, &Both, &mut Ring) -> Outcome) -> Outcome {
    for done in BEFORE {
        let f = Both::new(cx)?;
        let mut ring = cx.ring(8, 0)?;
        before(cx, &mut ring, done, &f);
        test(cx, done, &f, &mut ring)?;
    }
    Ok(())
}

/// Former uses of the file by the parent.
const BEFORE: [&str; 4] = ["nothing", "FSYNC by a worker", "registered it", "both"];

fn before(cx: &mut Cx, ring: &mut Ring, what: &str, f: &Both) {
    if what.starts_with("FSYNC") || what == "both" {
        cx.one(ring, what, sqe::op(IORING_OP_FSYNC, f.fd()).with(IOSQE_ASYNC), 0);
    }
    if what.starts_with("registered") || what == "both" {
        cx.is(what, ring.register_slice(IORING_REGISTER_FILES, &[f.fd()]), 0);
    }
}

fn nop(ring: &mut Ring) -> bool {
    ring.push(sqe::nop());
    ring.submit_wait(1) == 1 && ring.pop().is_some_and(|c| c.res == 0)
}

/// Action of a child after it has set the lock; returns true if the action works.
type Then = fn(&mut Ring, EntryPoint) -> bool;

const THEN: [(&str, Then); 4] = [
    ("NOP", |ring, _| nop(ring)),
    ("a new ring", |_, entry| Ring::new(entry, 4, 0).is_ok_and(|mut ring| nop(&mut ring))),
    ("both", |ring, entry| nop(ring) && Ring::new(entry, 4, 0).is_ok_and(|mut new| nop(&mut new))),
    ("a close", |ring, _| os::close(os::dup(ring.fd)) == 0 && nop(ring)),
];

fn clone_child_keeps(cx: &mut Cx) -> Outcome {
    let entry = cx.entry;
    each(cx, |cx, done, f, ring| {
        for (what, then) in THEN {
            let child = os::in_raw_child(0, || f.lock_and(|| then(ring, entry)));
            cx.is(&format!("{done}, then {what}"), child, 0);
        }
        cx.holds("nobody has it", !f.locked());
        cx.one(ring, "the parent goes on", sqe::op(IORING_OP_FSYNC, f.fd()), 0);
        Ok(())
    })
}

fn clone_child_forks(cx: &mut Cx) -> Outcome {
    let f = Both::new(cx)?;
    let mut ring = cx.ring(8, 0)?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd()]), 0);
    let sync = sqe::op(IORING_OP_FSYNC, 0).fixed();
    for forked in ["no fork before", "a fork before"] {
        let child = os::in_raw_child(0, || {
            let locked = f.lock();
            let own = os::in_child(|| i32::from(!nop(&mut ring)));
            ring.push(sync);
            let works = ring.submit_wait(1) == 1 && ring.pop().is_some_and(|c| c.res == 0);
            i32::from(!locked) | i32::from(!works) << 1 | i32::from(!f.locked()) << 2 | own << 3
        });
        cx.is(forked, child, 0);
        cx.is("fork", os::in_child(|| i32::from(!nop(&mut ring))), 0);
    }
    cx.one(&mut ring, "the parent goes on", sync, 0);
    Ok(())
}

fn clone_child_slots(cx: &mut Cx) -> Outcome {
    let f = Both::new(cx)?;
    for forked in [false, true] {
        let mut ring = cx.ring(8, 0)?;
        cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[f.fd(), f.fd()]), 0);
        if forked {
            cx.is("fork", os::in_child(|| i32::from(!nop(&mut ring))), 0);
        }
        let none = [-1];
        let child = os::in_raw_child(0, || {
            let locked = f.lock();
            let mut up = io_uring_rsrc_update { data: addr(&none) as u64, ..Default::default() };
            let updated = ring.register_struct(IORING_REGISTER_FILES_UPDATE, &mut up, 1);
            let still = f.locked();
            let gone = ring.register(IORING_UNREGISTER_FILES, 0, 0);
            let all = locked && still && f.locked();
            i32::from(!all) | i32::from((updated, gone) != (1, 0)) << 1
        });
        cx.is("child", child, 0);
    }
    Ok(())
}

fn clone_child_in_flight(cx: &mut Cx) -> Outcome {
    let f = Both::new(cx)?;
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let from = r.as_raw_fd().cast_unsigned();
    let splice = sqe::rw(IORING_OP_SPLICE, f.fd(), 0, 4, 0).ud(1);
    cx.start(&mut ring, &[splice.set(|s| (s.addr, s.file_index) = (u64::MAX, from))]);
    cx.quiet(&ring, "it waits", 10);
    let entry = cx.entry;
    let works = || Ring::new(entry, 4, 0).is_ok_and(|mut new| nop(&mut new));
    let child = os::in_raw_child(0, || f.lock_and(works));
    cx.is("child", child, 0);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "the parent's goes on", &[(1, 4)]);
    Ok(())
}

fn fork_child_keeps(cx: &mut Cx) -> Outcome {
    let entry = cx.entry;
    each(cx, |cx, done, f, ring| {
        for (what, then) in THEN {
            let child = os::in_child(|| f.lock_and(|| then(ring, entry)));
            cx.is(&format!("{done}, then {what}"), child, 0);
        }
        Ok(())
    })
}

fn vfork_child_execs(cx: &mut Cx) -> Outcome {
    each(cx, |cx, done, f, ring| {
        let ((stdin, go), (ready, tell)) = (cx.pipe()?, cx.pipe()?);
        let own_only = "env | grep -q SOFTRING_LOCKED && exit 9";
        let script = format!("{own_only}; echo >&{}; read x; exit 7", tell.as_raw_fd());
        let args = [c"sh".into(), c"-c".into(), std::ffi::CString::new(script).unwrap_or_default()];
        let child = os::spawn_vfork_child(|| {
            // Exec would close these descriptors and so release the lock.
            for fd in [f.fd(), f.other.as_raw_fd(), tell.as_raw_fd()] {
                os::fcntl(fd, libc::F_SETFD, 0);
            }
            os::dup2(stdin.as_raw_fd(), 0);
            let failed = f.lock() && os::exec(c"/nonexistent", &args) == -ENOENT;
            if !failed || !f.locked() {
                return 8;
            }
            -os::exec(c"/bin/sh", &args)
        });
        let told = os::poll(ready.as_raw_fd(), libc::POLLIN, 5000);
        cx.is("it has exec'd", told, i32::from(libc::POLLIN));
        cx.holds(&format!("locked, after {done}"), f.locked());
        rustix::io::write(&go, b"\n")?;
        cx.is("status", os::wait_for(child), 7);
        cx.holds("not locked then", !f.locked());
        cx.one(ring, "the parent goes on", sqe::op(IORING_OP_FSYNC, f.fd()), 0);
        Ok(())
    })
}

fn shared_fd_table(cx: &mut Cx) -> Outcome {
    let entry = cx.entry;
    each(cx, |cx, done, f, ring| {
        for (what, then) in THEN {
            cx.is("lock", os::lock(f.fd()), 0);
            let child = os::in_raw_child(libc::CLONE_FILES, || {
                let works = then(ring, entry);
                i32::from(!works) << 1 | i32::from(!f.locked()) << 2
            });
            cx.is(&format!("{done}, then {what}"), child, 0);
            cx.holds("the parent's lock", f.locked());
            cx.is("unlock", os::unlock(f.fd()), 0);
            let mut child = || os::in_raw_child(libc::CLONE_FILES, || {
                i32::from(os::lock(f.fd()) != 0 || !then(ring, entry) || !f.locked())
            });
            cx.is(&format!("{done}, {what} by a child with a lock"), child(), 0);
            cx.holds("its lock is the parent's", f.locked());
            let sync = sqe::op(IORING_OP_FSYNC, f.fd()).with(IOSQE_ASYNC);
            cx.one(ring, "the parent goes on", sync, 0);
            if done.starts_with("registered") || done == "both" {
                cx.one(ring, "a slot", sqe::op(IORING_OP_FSYNC, 0).fixed(), 0);
            }
            cx.holds("locked", f.locked());
            cx.is("unlock", os::unlock(f.fd()), 0);
        }
        Ok(())
    })
}
