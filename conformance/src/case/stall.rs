//! A submission that sleeps: nobody waits for it who would not wait on the kernel.

use super::prelude::*;
use super::net;
use crate::late::{LatePage, Step};
use std::io::Write;

pub const CASES: &[Case] = &[
    any_order!(
        "stall",
        other_threads_continue,
        [Op(IORING_OP_READ), Op(IORING_OP_MSG_RING)],
        "a slow page fault delays only the thread that touches the page"
    ),
    any_order!(
        "stall",
        recv_buffer_fault,
        [Op(IORING_OP_RECV)],
        "a reissued receive that faults on its buffer delays no other request"
    ),
    any_order!(
        "stall",
        fd_closed_during_fault,
        [Op(IORING_OP_RECV)],
        "a number that a receive waits on is closed while its ring's submitter faults"
    ),
    any_order!(
        "stall",
        second_submitter_waits,
        [Op(IORING_OP_NOP)],
        "a second submitter waits during a page fault, and loses nothing"
    ),
    case!(
        "stall",
        child_pid_namespace,
        [Op(IORING_OP_NOP), Trap("fork")],
        "also a forked child in a pid namespace of its own, to which the first means nothing"
    ),
];

/// Actions beside the stall, and their results.
pub(super) struct Beside {
    entry: EntryPoint,
    /// The ring whose submission sleeps.
    stalled: i32,
    other: Ring,
    pub(super) answers: Vec<isize>,
}

impl Beside {
    /// Actions that must not wait for the stall.
        pub(super) const ANY: &[Step<Self>] = &[
        ("fork", |b| b.answers.push(os::in_child(|| 7) as isize)),
        ("poll", |b| b.answers.push(os::poll(b.stalled, libc::POLLIN, 0) as isize)),
        ("enter", |b| {
            b.answers.push(entry::enter(b.entry, b.stalled, 0, 0, IORING_ENTER_GETEVENTS, 0, 0));
        }),
        ("enter with a time limit", |b| b.answers.push(b.enter(1, 10))),
        ("another ring", |b| {
            b.other.push(sqe::nop().ud(1));
            b.answers.push(b.other.submit_wait(1));
        }),
        ("a message", |b| {
            b.other.push(sqe::rw(IORING_OP_MSG_RING, b.stalled, 0, 5, 77).ud(2));
            b.answers.push(b.other.submit_wait(2));
        }),
        ("a new ring", |b| b.answers.push(isize::from(Ring::new(b.entry, 4, 0).is_ok()))),
    ];
    /// Results of these actions.
    pub(super) const ANSWERS: [isize; 7] = [7, 0, 0, -(ETIME as isize), 1, 1, 1];

    pub(super) fn new(cx: &mut Cx, ring: &Ring) -> Result<Beside, Stop> {
        Ok(Beside { entry: cx.entry, stalled: ring.fd, other: cx.ring(4, 0)?, answers: vec![] })
    }

    fn enter(&self, min: u32, timeout_ms: i64) -> isize {
        let ts = kernel_timespec { tv_sec: 0, tv_nsec: timeout_ms * 1_000_000 };
        let arg = io_uring_getevents_arg { ts: addr(&ts) as u64, ..Default::default() };
        let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
        entry::enter(self.entry, self.stalled, 0, min, flags, addr(&arg), size_of_val(&arg))
    }
}

pub(super) fn late_page() -> Result<LatePage, Stop> {
    LatePage::new().ok_or_else(|| Stop::Skip("userfaultfd is denied".into()))
}

/// Makes a READ of 100 bytes whose buffer page is served late.
fn late_read(file: &std::fs::File, page: &LatePage) -> io_uring_sqe {
    sqe::rw(IORING_OP_READ, file.as_raw_fd(), page.addr(), 100, 0)
}

/// Returns a closure that submits the queue of ring `fd`.
pub(super) fn submit(entry: EntryPoint, fd: i32) -> impl Fn() -> isize + Send + Copy {
    move || entry::enter(entry, fd, 1, 0, 0, 0, 0)
}

fn other_threads_continue(cx: &mut Cx) -> Outcome {
    let page = late_page()?;
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", &[b'x'; 4096])?;
    ring.push(late_read(&file, &page).ud(2));
    let mut beside = Beside::new(cx, &ring)?;
    let (submitted, late) = page.while_stalled(submit(cx.entry, ring.fd), &mut beside, Beside::ANY);
    cx.eq("waited for the stall", late, vec![]);
    cx.eq("submitted", submitted, Some(1));
    cx.eq("answers", beside.answers, Beside::ANSWERS.to_vec());
    cx.reap(&mut ring, "all", &[(2, 100), (77, 5)]);
    cx.one(&mut ring, "goes on", sqe::nop(), 0);
    Ok(())
}

fn recv_buffer_fault(cx: &mut Cx) -> Outcome {
    let page = late_page()?;
    let mut ring = cx.ring(8, 0)?;
    let (a, mut b) = net::pair()?;
    let mut first = [0; 4];
    b.write_all(b"once")?;
    cx.one(&mut ring, "once", net::recv(a.as_raw_fd(), &mut first), 4);
    ring.push(sqe::rw(IORING_OP_RECV, a.as_raw_fd(), page.addr(), 100, 0).ud(2));
    let (mut beside, entry, stalled) = (Beside::new(cx, &ring)?, cx.entry, ring.fd);
    // The task that submits the request also retries it.
    let wait = move || entry::enter(entry, stalled, 1, 2, IORING_ENTER_GETEVENTS, 0, 0);
    let sender = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        b.write_all(&[7; 100]).map(|()| b)
    });
    let (waited, late) = page.while_stalled(wait, &mut beside, Beside::ANY);
    cx.holds("sent", matches!(sender.join(), Ok(Ok(_))));
    cx.eq("waited for the stall", late, vec![]);
    cx.eq("waited", waited, Some(1));
    cx.eq("answers", beside.answers, Beside::ANSWERS.to_vec());
    cx.reap(&mut ring, "all", &[(2, 100), (77, 5)]);
    Ok(())
}

fn fd_closed_during_fault(cx: &mut Cx) -> Outcome {
    let page = late_page()?;
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", &[b'x'; 4096])?;
    let ((a, mut b), (c, mut d)) = (net::pair()?, net::pair()?);
    let (mut first, mut old, mut new) = ([0; 4], [0; 4], [0; 4]);
    b.write_all(b"once")?;
    cx.one(&mut ring, "once", net::recv(a.as_raw_fd(), &mut first), 4);
    cx.start(&mut ring, &[net::recv(a.as_raw_fd(), &mut old).ud(1)]);
    ring.push(late_read(&file, &page).ud(2));
    let mut ends = (a.as_raw_fd(), c.as_raw_fd());
    let meanwhile: &[Step<(i32, i32)>] =
        &[("close", |ends| _ = os::close(ends.0)), ("dup2", |ends| _ = os::dup2(ends.1, ends.0))];
    let (submitted, late) =
        page.while_stalled(submit(cx.entry, ring.fd), &mut ends, meanwhile);
    cx.eq("waited for the stall", late, vec![]);
    cx.eq("submitted", submitted, Some(1));
    cx.reap(&mut ring, "what stalled", &[(2, 100)]);
    cx.start(&mut ring, &[net::recv(a.as_raw_fd(), &mut new).ud(3)]);
    b.write_all(b"old!")?;
    cx.reap(&mut ring, "under the old number", &[(1, 4)]);
    d.write_all(b"new!")?;
    cx.reap(&mut ring, "under the new one", &[(3, 4)]);
    cx.eq("data", (old, new), (*b"old!", *b"new!"));
    Ok(())
}

fn second_submitter_waits(cx: &mut Cx) -> Outcome {
    let page = late_page()?;
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", &[b'x'; 4096])?;
    let nops: Vec<_> = (2..6).map(|ud| sqe::nop().ud(ud)).collect();
    ring.push(late_read(&file, &page).ud(1));
    nops.iter().for_each(|nop| _ = ring.push(*nop));
    let submit = submit(cx.entry, ring.fd);
    let second = std::thread::scope(|s| {
        let others = || nops.iter().map(|_| s.spawn(submit)).collect::<Vec<_>>();
        let mut state = (Vec::new(), Some(others));
        let (first, _) = page.while_stalled(submit, &mut state, &[("others", |state| {
            state.0 = state.1.take().map_or(Vec::new(), |others| others());
            std::thread::sleep(std::time::Duration::from_millis(50));
        })]);
        let others = state.0.into_iter().map(|other| other.join().unwrap_or(-1));
        first.into_iter().chain(others).collect::<Vec<_>>()
    });
    cx.eq("submitted", second, vec![1; 5]);
    cx.reap(&mut ring, "all", &[(1, 100), (2, 0), (3, 0), (4, 0), (5, 0)]);
    Ok(())
}

fn child_pid_namespace(cx: &mut Cx) -> Outcome {
    let page = late_page()?;
    let mut ring = cx.ring(8, 0)?;
    let file = cx.file("f", &[b'x'; 4096])?;
    let (go, mut begin) = cx.pipe()?;
    ring.push(late_read(&file, &page).ud(1));
    ring.push(sqe::nop().ud(2));
    let submit = submit(cx.entry, ring.fd);
    let child = os::spawn_in_namespace(|| {
        let began = rustix::io::read(&go, &mut [0; 1]);
        if began.is_ok() { submit() as i32 } else { -1 }
    });
    let child = child.map_err(|e| Stop::Skip(format!("no pid namespace: {e}")))?;
    // A waiting thread checks ten times a second whether the holder lives.
    let (submitted, _) = page.while_stalled(submit, &mut begin, &[("child", |begin| {
        _ = rustix::io::write(begin, b"x");
        std::thread::sleep(std::time::Duration::from_millis(400));
    })]);
    cx.eq("submitted", (submitted, os::wait_for(child)), (Some(1), 1));
    let order: Vec<_> = ring.take(2)?.iter().map(|cqe| (cqe.user_data, cqe.res)).collect();
    cx.eq("one after the other", order, vec![(1, 100), (2, 0)]);
    Ok(())
}
