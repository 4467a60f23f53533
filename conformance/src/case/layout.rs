//! The memory of a ring: offsets, mappings, sizes of entries, memory of the program's own.

use super::prelude::*;

pub const CASES: &[Case] = &[
    case!("layout", offsets, [], "ring words lie at their offsets, without overlap and aligned"),
    case!("layout", first_words, [], "the ring holds masks and sizes, and all other words are 0"),
    legal!("layout", mmap_offsets, [], "SQ and CQ offsets map the same memory"),
    case!("layout", mmap_bad_offset, [], "offsets without ring memory cannot be mapped"),
    case!("layout", no_fsync_no_reopen, [], "a ring cannot be flushed, or opened again by /proc"),
    case!("layout", mmap_too_long, [], "a mapping may be longer than the ring"),
    legal!("layout", big_entries, [
        Setup(IORING_SETUP_SQE128), Setup(IORING_SETUP_CQE32),
    ], "128-byte SQEs and 32-byte CQEs, each alone and both"),
    legal!("layout", mixed_entries, [Setup(IORING_SETUP_CQE_MIXED)], "16- and 32-byte CQEs in one ring"),
    legal!("layout", no_mmap, [Setup(IORING_SETUP_NO_MMAP)], "the ring lies in the program's memory"),
    case!("layout", no_mmap_refusals, [Setup(IORING_SETUP_NO_MMAP)], "bad addresses of ring memory"),
    case!("layout", no_sqarray, [Setup(IORING_SETUP_NO_SQARRAY)], "SQEs are taken in slot order"),
];

fn offsets(cx: &mut Cx) -> Outcome {
    for setup in [0, IORING_SETUP_SQE128 | IORING_SETUP_CQE32, IORING_SETUP_NO_SQARRAY] {
        let ring = cx.ring(8, setup)?;
        let (sq, cq) = (ring.params.sq_off, ring.params.cq_off);
        let mut words = vec![
            sq.head,
            sq.tail,
            sq.ring_mask,
            sq.ring_entries,
            sq.flags,
            sq.dropped,
            cq.head,
            cq.tail,
            cq.ring_mask,
            cq.ring_entries,
            cq.overflow,
            cq.flags,
        ];
        cx.holds("aligned", words.iter().all(|w| w % 4 == 0) && cq.cqes % 16 == 0);
        words.sort_unstable();
        words.dedup();
        cx.is("apart", words.len(), 12);
        cx.holds("CQEs after the words", words.iter().all(|w| *w < cq.cqes));
        let cqe = if setup & IORING_SETUP_CQE32 != 0 { 32 } else { 16 };
        let end = cq.cqes + 16 * cqe;
        let array = setup & IORING_SETUP_NO_SQARRAY == 0;
        cx.holds("array after the CQEs", if array { sq.array >= end } else { sq.array == 0 });
        cx.is("reserved", sq.resv1 + cq.resv1, 0);
        cx.is("user_addr", sq.user_addr + cq.user_addr, 0);
    }
    Ok(())
}

fn first_words(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let (sq, cq) = (ring.params.sq_off, ring.params.cq_off);
    let word = |off: u32| ring.ring_word(off).load(std::sync::atomic::Ordering::Relaxed);
    cx.is("SQ mask", word(sq.ring_mask), 7);
    cx.is("SQ entries", word(sq.ring_entries), 8);
    cx.is("CQ mask", word(cq.ring_mask), 15);
    cx.is("CQ entries", word(cq.ring_entries), 16);
    let zero = [sq.head, sq.tail, sq.flags, sq.dropped, cq.head, cq.tail, cq.overflow, cq.flags];
    cx.is("the rest", zero.map(word).iter().sum::<u32>(), 0);
    cx.is("array", (0..8).map(|i| word(sq.array + 4 * i)).sum::<u32>(), 0);
    Ok(())
}

fn mmap_offsets(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    cx.one(&mut ring, "nop", sqe::nop(), 0);
    let map = |off: u64| {
        os::mmap_fd(ring.fd, 4096, libc::PROT_READ, libc::MAP_SHARED, off.cast_signed())
    };
    let (sq, cq) = (map(IORING_OFF_SQ_RING), map(IORING_OFF_CQ_RING));
    cx.holds("both map", sq > 0 && cq > 0);
    if sq > 0 && cq > 0 {
        let tail = |base: isize| {
            let p = base.cast_unsigned() + ring.params.cq_off.tail as usize;
            os::load(p)
        };
        cx.is("CQ tail by the SQ's offset", tail(sq), 1);
        cx.is("CQ tail by the CQ's offset", tail(cq), 1);
    }
    Ok(())
}

fn no_fsync_no_reopen(cx: &mut Cx) -> Outcome {
    let (ring, mut other) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    cx.one(&mut other, "FSYNC", sqe::op(IORING_OP_FSYNC, ring.fd), -EINVAL);
    let opened = std::fs::File::open(format!("/proc/self/fd/{}", ring.fd));
    cx.holds("is not opened again", opened.is_err());
    Ok(())
}

fn mmap_too_long(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let map = |len, off: u64| {
        os::mmap_fd(ring.fd, len, libc::PROT_READ, libc::MAP_SHARED, off.cast_signed())
    };
    cx.holds("ring", map(1 << 20, IORING_OFF_SQ_RING) > 0);
    cx.holds("SQEs", map(1 << 20, IORING_OFF_SQES) > 0);
    Ok(())
}

fn big_entries(cx: &mut Cx) -> Outcome {
    for setup in [
        IORING_SETUP_SQE128,
        IORING_SETUP_CQE32,
        IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
    ] {
        let mut ring = cx.ring(4, setup)?;
        for lap in 0..3 {
            let sqes: Vec<_> = (0..4).map(|i| sqe::nop().ud(lap * 10 + i)).collect();
            let want: Vec<_> = sqes.iter().map(|s| (s.user_data, 0)).collect();
            let got = cx.batch(&mut ring, "nops", &sqes, &want);
            let zero = got.iter().all(|c| c.big.is_none_or(|b| b == [0, 0]));
            cx.holds("big halves are zero", zero);
        }
    }
    Ok(())
}

fn mixed_entries(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_CQE_MIXED)?;
    let big = sqe::nop()
        .op_flags(IORING_NOP_CQE32)
        .set(|s| (s.off, s.addr) = (0x1111, 0x2222));
    // Seven slots at a time move the 128-byte SQEs over every position, including the wrap.
    for lap in 0..16 {
        let small = sqe::nop().ud(lap);
        let sqes = [small, big.ud(100 + lap), big.ud(200 + lap), small.ud(300 + lap)];
        let want = [lap, 100 + lap, 200 + lap, 300 + lap].map(|ud| (ud, 0));
        let got = cx.batch(&mut ring, "small, big, big, small", &sqes, &want);
        cx.eq(
            "sizes",
            got.iter().map(|c| c.big.is_some()).collect(),
            vec![false, true, true, false],
        );
        let words = got.iter().find_map(|c| c.big);
        cx.note("big half", format_args!("{words:x?}"));
    }
    let mut plain = cx.ring(4, 0)?;
    cx.one(&mut plain, "a big CQE on a small ring", big, -EINVAL);
    Ok(())
}

fn no_mmap(cx: &mut Cx) -> Outcome {
    for setup in [0, IORING_SETUP_SQE128 | IORING_SETUP_CQE32, IORING_SETUP_NO_SQARRAY] {
        let mut ring = cx.ring(8, setup | IORING_SETUP_NO_MMAP)?;
        for _ in 0..3 {
            let sqes: Vec<_> = (1..=8).map(|i| sqe::nop().ud(i)).collect();
            let want: Vec<_> = (1..=8).map(|i| (i, 0)).collect();
            cx.batch(&mut ring, "nops", &sqes, &want);
        }
    }
    Ok(())
}

fn no_mmap_refusals(cx: &mut Cx) -> Outcome {
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE) as u64;
    let both = |rings: u64, sqes: u64| {
        let flags = IORING_SETUP_NO_MMAP;
        let mut p = io_uring_params { flags, ..Default::default() };
        (p.cq_off.user_addr, p.sq_off.user_addr) = (rings, sqes);
        p
    };
    let mut try_it = |what: &str, p: io_uring_params| {
        let got = entry::setup(cx.entry, 8, sqe::addr(&p));
        cx.is(what, got, -EFAULT);
    };
    try_it("no memory", both(0, 0));
    try_it("no memory for SQEs", both(page, 0));
    try_it("unmapped", both(0x1000, page));
    let got = entry::setup(cx.entry, 8, sqe::addr(&both(page + 8, page)));
    cx.is("not page aligned", got, -EINVAL);
    Ok(())
}

fn no_sqarray(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, IORING_SETUP_NO_SQARRAY)?;
    cx.is("array offset", ring.params.sq_off.array, 0);
    for lap in 0..5 {
        for slot in 0..3 {
            ring.push(sqe::nop().ud(lap * 10 + slot));
        }
        cx.is("submitted", ring.submit(), 3);
        let want = [0, 1, 2].map(|i| (lap * 10 + i, 0));
        cx.reap_in_order(&mut ring, "in slot order", &want);
    }
    Ok(())
}

fn mmap_bad_offset(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(8, 0)?;
    let own = cx.ring(8, IORING_SETUP_NO_MMAP)?;
    let map = |fd: i32, off: u64| {
        os::mmap_fd(fd, 4096, libc::PROT_READ, libc::MAP_SHARED, off.cast_signed())
    };
    let no_memory = if cx.is_newest() { -EINVAL } else { -ENOMEM };
    cx.is("unknown offset", map(ring.fd, 0x4000_0000), no_memory);
    cx.is("no buffer ring", map(ring.fd, IORING_OFF_PBUF_RING), no_memory);
    cx.is("memory of the program's own", map(own.fd, 0), no_memory);
    Ok(())
}
