//! Restrictions of a ring, and of a task for the rings that it makes.

use super::prelude::*;
use crate::rights;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const CASES: &[Case] = &[
    newest!("rules", sqes_and_register_calls, [Reg(IORING_REGISTER_RESTRICTIONS)], "SQEs and register calls are restricted independently"),
    newest!("rules", task, [Reg(IORING_REGISTER_RESTRICTIONS)], "restrictions of a task apply to its later rings"),
    newest!("rules", task_allows_nothing, [Reg(IORING_REGISTER_RESTRICTIONS)], "a task that allows nothing"),
    newest!("rules", task_flags, [Reg(IORING_REGISTER_RESTRICTIONS)], "flags of a task's restrictions"),
    newest!("rules", task_refusals, [Reg(IORING_REGISTER_RESTRICTIONS)], "bad restrictions of a task, in order"),
    newest!("rules", task_rights, [
        Reg(IORING_REGISTER_RESTRICTIONS), Reg(IORING_REGISTER_BPF_FILTER),
    ], "rights that a task needs to restrict itself"),
    newest!("rules", task_forked, [Reg(IORING_REGISTER_RESTRICTIONS)], "a child has its parent's restrictions"),
    newest!("rules", task_execs, [
        Reg(IORING_REGISTER_RESTRICTIONS), Reg(IORING_REGISTER_BPF_FILTER),
    ], "programs that the task executes or starts keep its restrictions"),
    newest!("rules", threads, [Reg(IORING_REGISTER_BPF_FILTER)], "threads that exist already are free, later threads are restricted"),
    newest!("rules", zero_copy, [], "calls of zero-copy receive on a ring without a queue"),
];

pub(super) const CALL: u32 = IORING_REGISTER_BPF_FILTER;
pub(super) const RESTRICT: u32 = IORING_REGISTER_RESTRICTIONS;

pub(super) fn row(kind: u16, arg: u8) -> io_uring_restriction {
    io_uring_restriction { opcode: kind, arg, ..Default::default() }
}

pub(super) fn allow(opcode: u8) -> io_uring_restriction {
    row(IORING_RESTRICTION_SQE_OP, opcode)
}

pub(super) fn call(opcode: u32) -> io_uring_restriction {
    row(IORING_RESTRICTION_REGISTER_OP, opcode as u8)
}

/// Restrictions of a task.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Task<const N: usize> {
    pub(super) head: io_uring_task_restriction,
    pub(super) rows: [io_uring_restriction; N],
}

pub(super) fn task_of<const N: usize>(rows: [io_uring_restriction; N]) -> Task<N> {
    Task { head: io_uring_task_restriction { nr_res: N as u16, ..Default::default() }, rows }
}

pub(super) fn lay<const N: usize>(cx: &Cx, task: &Task<N>) -> isize {
    entry::register(cx.entry, -1, RESTRICT, addr(task), 1)
}

/// Makes one instruction.
pub(super) const fn insn(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

pub(super) const fn ret(k: u32) -> sock_filter {
    insn(0x06, 0, 0, k)
}

pub(super) const ALLOW: [sock_filter; 1] = [ret(1)];
pub(super) const DENY: [sock_filter; 1] = [ret(0)];

/// Makes a program that allows requests whose word at `at` is `word`.
pub(super) fn word_is(at: u32, word: u32) -> [sock_filter; 4] {
    [insn(0x20, 0, 0, at), insn(0x15, 0, 1, word), ret(1), ret(0)]
}

/// Makes a filter of an opcode by this program.
pub(super) fn of(opcode: u8, program: &[sock_filter]) -> io_uring_bpf {
    io_uring_bpf {
        cmd_type: IO_URING_BPF_CMD_FILTER,
        opcode: opcode.into(),
        filter_len: program.len() as u32,
        filter_ptr: addr(program) as u64,
        ..Default::default()
    }
}

pub(super) fn add(ring: &Ring, filter: &io_uring_bpf) -> isize {
    ring.register(CALL, addr(filter), 1)
}

fn sqes_and_register_calls(cx: &mut Cx) -> Outcome {
    let kinds: [(&str, &[io_uring_restriction], i32, i32); 5] = [
        ("a call", &[call(IORING_REGISTER_ENABLE_RINGS)], 0, -EACCES),
        ("an opcode", &[allow(IORING_OP_NOP)], 0, 0),
        ("another opcode", &[allow(IORING_OP_READ)], -EACCES, 0),
        ("flags", &[row(IORING_RESTRICTION_SQE_FLAGS_ALLOWED, IOSQE_ASYNC)], -EACCES, 0),
        ("nothing", &[], -EACCES, -EACCES),
    ];
    for (what, rows, nop, probe) in kinds {
        let mut ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
        let at = if rows.is_empty() { addr(&what) } else { addr(rows) };
        cx.is(what, ring.register(RESTRICT, at, rows.len() as u32), 0);
        cx.is("enable", ring.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
        cx.one(&mut ring, "NOP", sqe::nop(), nop);
        let mut p = [0u64; 10];
        let got = ring.register_struct(IORING_REGISTER_PROBE, &mut p, 8);
        cx.is("probe", got, probe);
    }
    let ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    let many = vec![allow(IORING_OP_NOP); 108];
    cx.registers(&ring, &[
        ("null", RESTRICT, 0, 0, -EINVAL),
        ("108 rows", RESTRICT, addr(&many[..]), 108, -EINVAL),
        ("107 rows", RESTRICT, addr(&many[..]), 107, 0),
        ("again", RESTRICT, addr(&many[..]), 1, -EBUSY),
    ]);
    Ok(())
}

fn probe(ring: &Ring) -> isize {
    let mut p = [0u64; 10];
    ring.register_struct(IORING_REGISTER_PROBE, &mut p, 8)
}

fn task(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    let mut old = cx.ring(4, 0)?;
    let rules = task_of([allow(IORING_OP_NOP), call(IORING_REGISTER_PROBE)]);
    cx.is("restrict", lay(cx, &rules), 0);
    cx.is("again", lay(cx, &rules), -EPERM);
    let mut new = cx.ring(4, 0)?;
    let mut buf = [0u8; 4];
    let file = cx.file("f", b"data")?;
    let read = sqe::read(file.as_raw_fd(), &mut buf, 0);
    cx.each(&mut old, &[("NOP on the old ring", sqe::nop(), 0), ("READ", read, 4)]);
    cx.each(&mut new, &[
        ("NOP on the new one", sqe::nop(), 0),
        ("with a flag", sqe::nop().with(IOSQE_ASYNC), -EACCES),
        ("READ", read, -EACCES),
        ("unknown", sqe::op(200, -1), -EINVAL),
    ]);
    cx.is("probe", probe(&new), 0);
    cx.is("another call", new.register(IORING_REGISTER_PERSONALITY, 0, 0), -EACCES);
    cx.is("on the old ring", old.register(IORING_REGISTER_PERSONALITY, 0, 0), 1);
    let disabled = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    cx.is("enable", disabled.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), -EACCES);
    cx.is("restrict a ring", disabled.register_slice(RESTRICT, &[allow(0)]), -EACCES);
    cx.is("ABI", u32::from(cx.abi().ops), u32::from(IORING_OP_LAST));
    Ok(())
}

fn task_allows_nothing(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    cx.is("restrict", lay(cx, &task_of([])), 0);
    let mut ring = cx.ring(4, 0)?;
    cx.one(&mut ring, "NOP", sqe::nop(), -EACCES);
    cx.is("probe", probe(&ring), -EACCES);
    let disabled = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    cx.is("enable", disabled.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), -EACCES);
    Ok(())
}

fn task_flags(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    let required = row(IORING_RESTRICTION_SQE_FLAGS_REQUIRED, IOSQE_ASYNC);
    cx.is("restrict", lay(cx, &task_of([required, allow(IORING_OP_NOP)])), 0);
    let mut ring = cx.ring(4, 0)?;
    cx.each(&mut ring, &[
        ("without it", sqe::nop(), -EACCES),
        ("with it", sqe::nop().with(IOSQE_ASYNC), 0),
        ("with more", sqe::nop().with(IOSQE_ASYNC | IOSQE_IO_LINK), -EACCES),
    ]);
    cx.is("probe", probe(&ring), 0);
    let disabled = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    cx.is("restrict a ring", disabled.register_slice(RESTRICT, &[allow(0)]), -EBUSY);
    cx.is("enable", disabled.register(IORING_REGISTER_ENABLE_RINGS, 0, 0), 0);
    Ok(())
}

fn task_refusals(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    let good = task_of([allow(IORING_OP_NOP)]);
    let mut flags = task_of([allow(IORING_OP_NOP)]);
    flags.head.flags = 1;
    let mut resv = task_of([allow(IORING_OP_NOP)]);
    resv.head.resv[2] = 1;
    let mut many = task_of([allow(IORING_OP_NOP); 108]);
    let kind = task_of([row(IORING_RESTRICTION_LAST, 0)]);
    let opcode = task_of([allow(65)]);
    let number = task_of([call(38)]);
    let rows = [
        ("no count", addr(&good), 0, -EINVAL),
        ("two", addr(&good), 2, -EINVAL),
        ("two, unmapped", BAD, 2, -EINVAL),
        ("null", 0, 1, -EFAULT),
        ("unmapped", BAD, 1, -EFAULT),
        ("a flag", addr(&flags), 1, -EINVAL),
        ("reserved", addr(&resv), 1, -EINVAL),
        ("108 rows", addr(&many), 1, -EINVAL),
        ("unknown kind", addr(&kind), 1, -EINVAL),
        ("unknown opcode", addr(&opcode), 1, -EINVAL),
        ("unknown call", addr(&number), 1, -EINVAL),
    ];
    for (what, at, nr, want) in rows {
        cx.is(what, entry::register(cx.entry, -1, RESTRICT, at, nr), want);
    }
    many.head.nr_res = 107;
    cx.is("107 rows", lay(cx, &many), 0);
    cx.is("no count then", entry::register(cx.entry, -1, RESTRICT, addr(&good), 0), -EPERM);
    Ok(())
}

fn task_rights(cx: &mut Cx) -> Outcome {
    if rights::has_no_new_privs() {
        return Err(Stop::Skip("this process may restrict itself whoever it is".into()));
    }
    if !rights::become_nobody() {
        return Err(Stop::Skip("it takes root's rights to give them up".into()));
    }
    let good = task_of([allow(IORING_OP_NOP)]);
    let filter = of(IORING_OP_NOP, &ALLOW);
    let task = |what: u32, at: usize, nr: u32| entry::register(cx.entry, -1, what, at, nr);
    let got = [
        task(RESTRICT, addr(&good), 1),
        task(RESTRICT, BAD, 7),
        task(CALL, addr(&filter), 1),
        task(CALL, BAD, 7),
    ];
    got.into_iter().for_each(|got| cx.is("without rights", got, -EACCES));
    let mut ring = cx.ring(4, 0)?;
    cx.is("a ring's filter", add(&ring, &of(IORING_OP_NOP, &DENY)), 0);
    cx.one(&mut ring, "NOP", sqe::nop(), -EACCES);
    rights::no_new_privs();
    cx.is("no new ones", lay(cx, &good), 0);
    Ok(())
}

fn task_forked(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    let good = task_of([allow(IORING_OP_NOP)]);
    let ring = cx.ring(4, 0)?;
    drop(ring);
    cx.is("restrict", lay(cx, &good), 0);
    let entry = cx.entry;
    let read = sqe::op(IORING_OP_READ, -1);
    let answers = move || -> Option<[i32; 3]> {
        let again = entry::register(entry, -1, RESTRICT, addr(&good), 1) as i32;
        let mut ring = Ring::new(entry, 4, 0).ok()?;
        ring.push(sqe::nop()).submit_wait(1);
        let nop = ring.pop()?.res;
        ring.push(read).submit_wait(1);
        Some([again, nop, ring.pop()?.res])
    };
    let right = Some([-EPERM, 0, -EACCES]);
    cx.is("in a child", os::in_child(|| i32::from(answers() != right)), 0);
    let thread = std::thread::spawn(answers);
    cx.holds("in a thread", thread.join().is_ok_and(|a| a == right));
    cx.is("in a child again", os::in_child(|| i32::from(answers() != right)), 0);
    Ok(())
}

/// Environment variable that is set when this case starts its own program.
const STARTED: &str = "STARTED_BY_A_TASK_WITH_RULES";

fn task_execs(cx: &mut Cx) -> Outcome {
    let own_program = || -> Result<Command, Stop> {
        let mut args = std::env::args_os();
        let mut own = Command::new(std::env::current_exe()?);
        args.next();
        own.args(args).env(STARTED, "1");
        Ok(own)
    };
    if let Some(times) = std::env::var_os(STARTED) {
        cx.note("started again", times.display());
        answers_with_rules(cx)?;
        if times == "1" {
            return Err(own_program()?.env(STARTED, "2").exec().into());
        }
        return Ok(());
    }
    rights::no_new_privs();
    let rest = io_uring_bpf { flags: IO_URING_BPF_FILTER_DENY_REST, ..of(IORING_OP_READ, &ALLOW) };
    let is_seven = word_is(0, 7);
    let only_nop = of(IORING_OP_NOP, &is_seven);
    let rows = task_of([allow(IORING_OP_NOP), allow(IORING_OP_READ), allow(IORING_OP_WRITE)]);
    cx.is("restrict", lay(cx, &rows), 0);
    for filter in [&only_nop, &rest] {
        cx.is("filter", entry::register(cx.entry, -1, CALL, addr(filter), 1), 0);
    }
    answers_with_rules(cx)?;
    let started = own_program()?.stdout(std::process::Stdio::null()).status()?;
    cx.eq("a program that is spawned", started.code(), Some(0));
    Err(own_program()?.exec().into())
}

fn answers_with_rules(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let write = sqe::op(IORING_OP_WRITE, -1);
    cx.each(&mut ring, &[
        ("NOP", sqe::nop(), -EACCES),
        ("NOP that is allowed", sqe::nop().ud(7), 0),
        ("READ", sqe::op(IORING_OP_READ, -1), -EBADF),
        ("WRITE", write, -EACCES),
        ("FSYNC", sqe::op(IORING_OP_FSYNC, -1), -EACCES),
    ]);
    cx.is("again", lay(cx, &task_of([])), -EPERM);
    Ok(())
}

fn threads(cx: &mut Cx) -> Outcome {
    rights::no_new_privs();
    let entry = cx.entry;
    let nop = move || -> Option<i32> {
        let mut ring = Ring::new(entry, 4, 0).ok()?;
        ring.push(sqe::nop()).submit_wait(1);
        ring.pop().map(|cqe| cqe.res)
    };
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let before = std::thread::spawn(move || wait.recv().ok().and_then(|()| nop()));
    let got = entry::register(cx.entry, -1, CALL, addr(&of(IORING_OP_NOP, &DENY)), 1);
    cx.is("filter", got, 0);
    let after = std::thread::spawn(nop).join().ok().flatten();
    let _ = go.send(());
    cx.eq("before", before.join().ok().flatten(), Some(0));
    cx.eq("after", after, Some(-EACCES));
    cx.eq("the thread itself", nop(), Some(-EACCES));
    Ok(())
}

fn zero_copy(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let call = |fd: i32, nr: u32| entry::register(cx.entry, fd, IORING_REGISTER_ZCRX_CTRL, BAD, nr);
    let got = [call(-1, 0), call(-1, 1)];
    got.into_iter().for_each(|got| cx.is("without a ring", got, -(EINVAL as isize)));
    cx.is("unknown call", ring.register(38, 0, 0), -EINVAL);
    Ok(())
}
