//! `io_uring_setup(2)`: sizes, flags and their combinations, the ring's memory, the fd.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("setup", defaults, [], "entries are rounded up to a power of two, the CQ is twice the SQ"),
    case!("setup", entries_bounds, [], "0 entries and more than 32768 fail with EINVAL"),
    case!("setup", clamp, [Setup(IORING_SETUP_CLAMP)], "CLAMP reduces sizes instead of refusing them"),
    case!("setup", cqsize, [Setup(IORING_SETUP_CQSIZE)], "the CQ has the requested size, at least the SQ's size"),
    case!("setup", unknown_flags, [], "every flag after CQE_MIXED fails with EINVAL"),
    case!("setup", flag_combinations, [
        Setup(IORING_SETUP_SQ_AFF), Setup(IORING_SETUP_COOP_TASKRUN),
        Setup(IORING_SETUP_TASKRUN_FLAG), Setup(IORING_SETUP_SINGLE_ISSUER),
        Setup(IORING_SETUP_DEFER_TASKRUN), Setup(IORING_SETUP_SUBMIT_ALL),
    ], "each pair of set-up flags is accepted, or refused with a fixed errno"),
    case!("setup", reserved_words, [], "reserved words of the parameters must be zero"),
    case!("setup", bad_params, [], "a bad pointer to the parameters fails with EFAULT and leaks no fd"),
    case!("setup", features, [], "the features word names the supported features"),
    legal!("setup", attach_wq, [Setup(IORING_SETUP_ATTACH_WQ)], "wq_fd must be a ring"),
    legal!("setup", registered_fd_only, [
        Setup(IORING_SETUP_REGISTERED_FD_ONLY), Enter(IORING_ENTER_REGISTERED_RING),
    ], "the ring has an index and no fd"),
    legal!("setup", disabled, [
        Setup(IORING_SETUP_R_DISABLED), Reg(IORING_REGISTER_ENABLE_RINGS),
    ], "a disabled ring refuses to enter with EBADFD until enabled"),
    case!("setup", fd_flags, [], "the ring's fd is close-on-exec and read-write"),
    case!("setup", fd_limit, [], "no free fd fails with EMFILE"),
    legal!("setup", many_rings, [], "a hundred rings at once, all of which work"),
];

fn flags(flags: u32) -> io_uring_params {
    io_uring_params { flags, ..Default::default() }
}

fn sizes(cx: &mut Cx, entries: u32, p: io_uring_params) {
    let what = format!("{entries} entries, CQ {} asked", p.cq_entries);
    match Ring::with(cx.entry, entries, p) {
        Ok(ring) => cx.note(&what, format_args!("{} {}", ring.sq_entries(), ring.cq_entries())),
        Err(e) => cx.note_answer(&what, -e),
    }
}

fn defaults(cx: &mut Cx) -> Outcome {
    for (asked, sq) in [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (33, 64), (1000, 1024)] {
        let ring = cx.ring(asked, 0)?;
        cx.is(&format!("{asked} asked, SQ"), ring.sq_entries(), sq);
        cx.is("CQ", ring.cq_entries(), 2 * sq);
        cx.is("flags", ring.params.flags, 0);
    }
    Ok(())
}

fn entries_bounds(cx: &mut Cx) -> Outcome {
    cx.setup_is("none", 0, flags(0), -EINVAL);
    cx.setup_is("most", 32768, flags(0), 0);
    cx.setup_is("one too many", 32769, flags(0), -EINVAL);
    cx.setup_is("all bits", u32::MAX, flags(0), -EINVAL);
    Ok(())
}

fn clamp(cx: &mut Cx) -> Outcome {
    cx.setup_is("none", 0, flags(IORING_SETUP_CLAMP), -EINVAL);
    for entries in [1, 32768, 32769, u32::MAX] {
        sizes(cx, entries, flags(IORING_SETUP_CLAMP));
    }
    let both = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE;
    for (entries, cq_entries) in [(4, 65536), (4, 65537), (4, u32::MAX), (40000, 5)] {
        sizes(cx, entries, io_uring_params { cq_entries, ..flags(both) });
    }
    Ok(())
}

fn cqsize(cx: &mut Cx) -> Outcome {
    let asked = |cq_entries| io_uring_params { cq_entries, ..flags(IORING_SETUP_CQSIZE) };
    cx.setup_is("none", 4, asked(0), -EINVAL);
    cx.setup_is("below the SQ", 8, asked(4), -EINVAL);
    cx.setup_is("too many", 4, asked(65537), -EINVAL);
    let one = |more| {
        let flags = IORING_SETUP_CQSIZE | IORING_SETUP_CQE_MIXED | more;
        io_uring_params { flags, cq_entries: 1, ..Default::default() }
    };
    cx.setup_is("one, of both sizes", 1, one(IORING_SETUP_SQ_AFF), -EOVERFLOW);
    for (entries, cq) in [(8, 8), (8, 9), (5, 6), (5, 3), (1, 1), (1, 100), (4, 65536)] {
        sizes(cx, entries, asked(cq));
    }
    // Without the flag the field is not read.
    sizes(cx, 4, io_uring_params { cq_entries: 77, ..flags(0) });
    Ok(())
}

fn unknown_flags(cx: &mut Cx) -> Outcome {
    let first = cx.abi().setup_flags.trailing_ones();
    for bit in first..32 {
        cx.setup_is(&format!("bit {bit}"), 4, flags(1 << bit), -EINVAL);
    }
    Ok(())
}

fn flag_combinations(cx: &mut Cx) -> Outcome {
    let parent = cx.ring(4, 0)?;
    for a in 0..19 {
        for b in a..19 {
            let flags = 1 << a | 1 << b;
            let wq_fd = parent.fd.cast_unsigned();
            let p = io_uring_params { flags, wq_fd, cq_entries: 16, ..Default::default() };
            let got = Ring::with(cx.entry, 8, p);
            let names = format!("{} {}", SETUP_NAMES[a as usize], SETUP_NAMES[b as usize]);
            match got {
                Err(e) => cx.note_answer(&names, -e),
                Ok(ring) => cx.note(&names, format_args!("flags {:#x}", ring.params.flags)),
            }
        }
    }
    Ok(())
}

fn reserved_words(cx: &mut Cx) -> Outcome {
    for i in 0..3 {
        let mut p = flags(0);
        p.resv[i] = 1;
        cx.setup_is(&format!("resv[{i}]"), 4, p, -EINVAL);
    }
    let all = io_uring_params {
        sq_thread_cpu: 3,
        sq_thread_idle: 5,
        features: u32::MAX,
        wq_fd: 77,
        sq_entries: 9,
        ..flags(0)
    };
    cx.setup_is("words of other flags", 4, all, 0);
    Ok(())
}

fn bad_params(cx: &mut Cx) -> Outcome {
    let before = os::open_fds();
    let readonly = os::page(libc::PROT_READ);
    let cut = os::border() - 64;
    let rows =
        [("null", 0), ("unmapped", BAD), ("kernel", KERNEL), ("read-only", readonly), ("cut", cut)];
    for (what, params) in rows {
        let got = entry::setup(cx.entry, 4, params);
        cx.is(what, got, -EFAULT);
    }
    let left = os::open_fds();
    cx.eq("fds left open", left - before, 0);
    // This shows which the kernel checks first: the pointer or the entries.
    let got = entry::setup(cx.entry, 0, BAD);
    cx.is("null entries too", got, -EFAULT);
    Ok(())
}

fn features(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    cx.note("features", format_args!("{:#x}", ring.params.features));
    cx.holds("single mmap", ring.params.features & IORING_FEAT_SINGLE_MMAP != 0);
    Ok(())
}

fn attach_wq(cx: &mut Cx) -> Outcome {
    let first = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let to = |fd: i32| io_uring_params {
        wq_fd: fd.cast_unsigned(),
        ..flags(IORING_SETUP_ATTACH_WQ)
    };
    cx.setup_is("a ring", 4, to(first.fd), 0);
    cx.setup_is("no fd", 4, to(-1), -ENXIO);
    cx.setup_is("no such fd", 4, to(1234), -ENXIO);
    cx.setup_is("a file", 4, to(file.as_raw_fd()), -EINVAL);
    let mut second = cx.ring_with(4, to(first.fd))?;
    drop(first);
    cx.one(&mut second, "nop after the first is closed", sqe::nop(), 0);
    Ok(())
}

fn registered_fd_only(cx: &mut Cx) -> Outcome {
    let setup = IORING_SETUP_NO_MMAP | IORING_SETUP_REGISTERED_FD_ONLY;
    let next = || rustix::io::dup(std::io::stdin()).map(|fd| fd.as_raw_fd());
    let before = next()?;
    let mut ring = cx.ring(4, setup)?;
    cx.is("index", ring.fd, 0);
    cx.is("the next fd moves by", next()? - before, 0);
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    let second = cx.ring(4, setup)?;
    cx.is("second index", second.fd, 1);
    drop(ring);
    cx.is("enter of a dropped index", second_enter(cx.entry, 0), -EBADF);
    cx.is("enter of the other", second_enter(cx.entry, 1), 0);
    Ok(())
}

fn second_enter(entry: EntryPoint, index: i32) -> isize {
    entry::enter(entry, index, 0, 0, IORING_ENTER_REGISTERED_RING, 0, 0)
}

fn disabled(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_R_DISABLED)?;
    ring.push(sqe::nop().ud(7));
    cx.is("submit", ring.submit(), -EBADFD);
    cx.is("wait", ring.enter(0, 1, IORING_ENTER_GETEVENTS), -EBADFD);
    cx.is("nothing", ring.enter(0, 0, 0), -EBADFD);
    cx.registers(&ring, &[
        ("enable with an argument", IORING_REGISTER_ENABLE_RINGS, BAD, 0, -EINVAL),
        ("enable with a count", IORING_REGISTER_ENABLE_RINGS, 0, 1, -EINVAL),
        ("enable", IORING_REGISTER_ENABLE_RINGS, 0, 0, 0),
        ("enable again", IORING_REGISTER_ENABLE_RINGS, 0, 0, -EBADFD),
    ]);
    cx.is("submit", ring.submit(), 1);
    cx.reap(&mut ring, "nop", &[(7, 0)]);
    Ok(())
}

fn fd_flags(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    cx.is("F_GETFD", os::fcntl(ring.fd, libc::F_GETFD, 0), libc::FD_CLOEXEC);
    let mode = os::fcntl(ring.fd, libc::F_GETFL, 0) & libc::O_ACCMODE;
    cx.is("access mode", mode, libc::O_RDWR);
    Ok(())
}

fn fd_limit(cx: &mut Cx) -> Outcome {
    let spare = std::fs::File::open("/dev/null")?;
    let next = spare.as_raw_fd() as u64 + 1;
    let was = os::set_limit(libc::RLIMIT_NOFILE, next);
    let got = Ring::new(cx.entry, 4, 0);
    let after = os::set_limit(libc::RLIMIT_NOFILE, was);
    cx.is("setup", got, -EMFILE);
    cx.holds("limit put back", after == next);
    Ok(())
}

fn many_rings(cx: &mut Cx) -> Outcome {
    let mut rings = Vec::new();
    for _ in 0..100 {
        rings.push(cx.ring(2, 0)?);
    }
    let worked = rings.iter_mut().filter_map(|r| {
        r.push(sqe::nop().ud(5)).submit_wait(1);
        r.pop().filter(|c| c.user_data == 5 && c.res == 0)
    });
    cx.is("rings that work", worked.count(), 100);
    Ok(())
}
