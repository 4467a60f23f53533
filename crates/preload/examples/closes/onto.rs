//! dup2 and dup3 onto any number, also onto those of the engine's own.

use super::*;
use std::os::fd::AsRawFd;

fn is_readable(fd: RawFd) -> bool {
    let mut p = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut p, 1, 1000) == 1 && p.revents & libc::POLLIN != 0 }
}

/// Creates an epoll set with `fd` in it.
fn set_of(fd: RawFd) -> RawFd {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 };
    // SAFETY: numbers, and an event of ours.
    unsafe {
        let set = libc::epoll_create1(0);
        libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event);
        set
    }
}

/// Returns the data of the events in such a set.
fn event_data(set: RawFd) -> Vec<u64> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four.
    let n = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), 4, 1000) };
    events.iter().take(n as usize).map(|e| e.u64).collect()
}

/// Duplicates onto all numbers from the middle of the table up, where the engine's own begin.
pub fn all_high(way: &str) -> Outcome {
    let limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: a structure of ours.
    equal("the limit", unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0)?;
    any(way, 512..1024)
}

/// Duplicates onto any number, by dup2 and dup3; all that the ring does goes on.
pub fn any(way: &str, numbers: core::ops::Range<i32>) -> Outcome {
    let mut r = ring()?;
    let events = unsafe_eventfd();
    r.submitter().register_eventfd(events).map_err(|e| e.to_string())?;
    let (some, slot) = (pair(), pair());
    let file = memory_file()?;
    r.submitter().register_files(&[slot[0], file]).map_err(|e| e.to_string())?;
    recv(&mut r, some[0])?;
    push(
        &mut r,
        opcode::Recv::new(types::Fixed(0), buffer().as_mut_ptr(), 64).build().user_data(8),
    )?;
    let events_of = libc::POLLIN as u32;
    push(
        &mut r,
        opcode::PollAdd::new(types::Fd(slot[1]), events_of).multi(true).build().user_data(9),
    )?;
    r.submit().map_err(|e| e.to_string())?;
    let mut set = libc::pollfd { fd: r.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    equal("readable", unsafe { libc::poll(&raw mut set, 1, 0) }, 0)?;
    // SAFETY: a path.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
    let set = set_of(r.as_raw_fd());
    let ours = [r.as_raw_fd(), events, some[0], some[1], slot[0], slot[1], file, null, set];
    let others = || numbers.clone().filter(|n| !ours.contains(n));
    for n in others() {
        equal("onto", onto(way, null, n), n as isize)?;
    }
    let answers = |r: &mut IoUring, data: u64, res: i32| {
        let c = one(r)?;
        equal("completion", (c.user_data(), c.result()), (data, res))
    };
    write(some[1], b"abc")?;
    equal("the eventfd", is_readable(events), true)?;
    equal("the ring", is_readable(r.as_raw_fd()), true)?;
    equal("the ring in a set", event_data(set), vec![77])?;
    answers(&mut r, 7, 3)?;
    write(slot[1], b"abcd")?;
    answers(&mut r, 8, 4)?;
    for n in 0..3 {
        write(slot[0], b"abcd")?;
        answers(&mut r, 9, events_of as i32)?;
        let mut text = [0u8; 4];
        // SAFETY: four bytes.
        equal("read", unsafe { libc::read(slot[1], text.as_mut_ptr().cast(), 4) }, 4)?;
        push(
            &mut r,
            opcode::Read::new(types::Fixed(1), buffer().as_mut_ptr(), 16)
                .offset(n)
                .build()
                .user_data(5),
        )?;
        answers(&mut r, 5, 16)?;
        recv(&mut r, some[0])?;
        r.submit().map_err(|e| e.to_string())?;
        write(some[1], b"abcde")?;
        answers(&mut r, 7, 5)?;
    }
    for n in others() {
        // SAFETY: a number only.
        equal("close", unsafe { libc::close(n) }, 0)?;
    }
    push(&mut r, opcode::Nop::new().build().user_data(3))?;
    answers(&mut r, 3, 0)
}
