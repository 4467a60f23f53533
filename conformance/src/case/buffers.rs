//! Registered buffers: tables, tags, and the operations that use them.

use super::prelude::*;
use libc::iovec;

pub const CASES: &[Case] = &[
    any_order!("buffers", register, [
        Reg(IORING_REGISTER_BUFFERS), Reg(IORING_UNREGISTER_BUFFERS),
        Op(IORING_OP_READ_FIXED), Op(IORING_OP_WRITE_FIXED),
    ], "buffers are registered, used by fixed reads and writes, and unregistered"),
    case!("buffers", register_refusals, [Reg(IORING_REGISTER_BUFFERS)], "bad counts, pointers and lengths"),
    any_order!("buffers", ranges, [Op(IORING_OP_READ_FIXED), Op(IORING_OP_WRITE_FIXED)], "a fixed read stays within its buffer"),
    legal!("buffers", bad_index, [Op(IORING_OP_READ_FIXED), Op(IORING_OP_WRITE_FIXED)], "no table, free slots and unknown slots fail with EFAULT"),
    any_order!("buffers", readv_writev_fixed, [
        Op(IORING_OP_READV_FIXED), Op(IORING_OP_WRITEV_FIXED),
    ], "vectors within a registered buffer"),
    any_order!("buffers", vector_refusals, [
        Op(IORING_OP_READV_FIXED), Op(IORING_OP_WRITEV_FIXED),
    ], "vectors that leave the buffer, and bad vectors"),
    any_order!("buffers", sparse, [Reg(IORING_REGISTER_BUFFERS2), Reg(IORING_REGISTER_BUFFERS_UPDATE)], "a sparse table is filled by updates"),
    any_order!("buffers", tags, [Reg(IORING_REGISTER_BUFFERS2), Reg(IORING_REGISTER_BUFFERS_UPDATE)], "tags are posted when buffers are released"),
    case!("buffers", buffers2_refusals, [Reg(IORING_REGISTER_BUFFERS2)], "size, flags and reserved words are checked"),
    case!("buffers", update_refusals, [Reg(IORING_REGISTER_BUFFERS_UPDATE)], "no table, bad ranges, pointers and tags"),
    any_order!("buffers", clone, [Reg(IORING_REGISTER_CLONE_BUFFERS)], "a ring uses buffers cloned from another ring"),
    any_order!("buffers", clone_ranges, [Reg(IORING_REGISTER_CLONE_BUFFERS)], "parts of a table are cloned, and replace other buffers"),
    case!("buffers", clone_refusals, [Reg(IORING_REGISTER_CLONE_BUFFERS)], "bad rings, ranges, flags and reserved words"),
    any_order!("buffers", fixed_files_too, [Op(IORING_OP_READ_FIXED), Sqe(IOSQE_FIXED_FILE)], "registered buffer and registered file in one SQE"),
];

fn iov(buf: &mut [u8]) -> iovec {
    iovec { iov_base: std::ptr::with_exposed_provenance_mut(addr_mut(buf)), iov_len: buf.len() }
}

fn raw_iov(base: usize, len: usize) -> iovec {
    iovec { iov_base: std::ptr::with_exposed_provenance_mut(base), iov_len: len }
}

fn fixed(opcode: u8, fd: i32, buf: usize, len: usize, index: u16) -> io_uring_sqe {
    sqe::rw(opcode, fd, buf, len, 0).set(|s| s.buf_index = index)
}

fn register(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    let mut bufs = [*b"first---", *b"second--"];
    let iovs = bufs.each_mut().map(|b| iov(b));
    cx.is("unregister none", ring.register(IORING_UNREGISTER_BUFFERS, 0, 0), -ENXIO);
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &iovs), 0);
    cx.is("again", ring.register_slice(IORING_REGISTER_BUFFERS, &iovs), -EBUSY);
    let (first, second) = (addr_mut(&mut bufs[0]), addr_mut(&mut bufs[1]));
    cx.one(&mut ring, "write the second", fixed(IORING_OP_WRITE_FIXED, fd, second, 8, 1), 8);
    let found = cx.content("f")?;
    cx.eq("file", found, b"second--".to_vec());
    cx.one(&mut ring, "read into the first", fixed(IORING_OP_READ_FIXED, fd, first, 6, 0), 6);
    cx.eq("buffer", *std::hint::black_box(&bufs[0]), *b"second--");
    cx.is("unregister with a pointer", ring.register(IORING_UNREGISTER_BUFFERS, 8, 0), -EINVAL);
    cx.is("unregister with a count", ring.register(IORING_UNREGISTER_BUFFERS, 0, 1), -EINVAL);
    cx.is("unregister", ring.register(IORING_UNREGISTER_BUFFERS, 0, 0), 0);
    cx.one(&mut ring, "after it", fixed(IORING_OP_READ_FIXED, fd, first, 6, 0), -EFAULT);
    Ok(())
}

fn register_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 8];
    let good = iov(&mut buf);
    let readonly = raw_iov(os::page(libc::PROT_READ), 4096);
    let one = |i: iovec| ring.register_slice(IORING_REGISTER_BUFFERS, &[i]);
    cx.is("null address, some length", one(raw_iov(0, 8)), -EFAULT);
    cx.is("length 0", one(raw_iov(addr(&buf), 0)), -EFAULT);
    cx.is("unmapped", one(raw_iov(0x1000, 8)), -EFAULT);
    cx.is("kernel", one(raw_iov(KERNEL, 8)), -EOVERFLOW);
    cx.is("more than a GiB", one(raw_iov(addr(&buf), (1 << 30) + 1)), -EFAULT);
    cx.is("read-only memory", one(readonly), -EFAULT);
    cx.is("address and length overflow", one(raw_iov(usize::MAX - 4, 8)), -EOVERFLOW);
    cx.registers(&ring, &[
        ("none", IORING_REGISTER_BUFFERS, addr(&good), 0, -EINVAL),
        ("null array", IORING_REGISTER_BUFFERS, 0, 1, -EFAULT),
        ("unmapped array", IORING_REGISTER_BUFFERS, BAD, 1, -EFAULT),
        ("too many", IORING_REGISTER_BUFFERS, addr(&good), 16385, -EINVAL),
        ("good, so none was kept", IORING_REGISTER_BUFFERS, addr(&good), 1, 0),
    ]);
    Ok(())
}

fn ranges(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789abcdef")?;
    let fd = file.as_raw_fd();
    let mut buf = [0u8; 8];
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &[iov(&mut buf)]), 0);
    let at = addr_mut(&mut buf);
    for opcode in [IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED] {
        cx.each(&mut ring, &[
            ("all", fixed(opcode, fd, at, 8, 0), 8),
            ("the last byte", fixed(opcode, fd, at + 7, 1, 0), 1),
            ("nothing", fixed(opcode, fd, at, 0, 0), 0),
            ("one too many", fixed(opcode, fd, at, 9, 0), -EFAULT),
            ("before it", fixed(opcode, fd, at - 1, 2, 0), -EFAULT),
            ("after it", fixed(opcode, fd, at + 8, 1, 0), -EFAULT),
            ("overflow", fixed(opcode, fd, usize::MAX, 2, 0), -EFAULT),
            ("null", fixed(opcode, fd, 0, 1, 0), -EFAULT),
            ("bad fd", fixed(opcode, -1, at, 1, 0), -EBADF),
        ]);
    }
    Ok(())
}

fn bad_index(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123")?;
    let fd = file.as_raw_fd();
    let mut buf = [0u8; 8];
    let at = addr_mut(&mut buf);
    for opcode in [IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED] {
        cx.one(&mut ring, "no table", fixed(opcode, fd, at, 1, 0), -EFAULT);
    }
    let iovs = [raw_iov(0, 0), iov(&mut buf)];
    cx.is("register, one free", ring.register_slice(IORING_REGISTER_BUFFERS, &iovs), 0);
    for opcode in [IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED] {
        cx.each(&mut ring, &[
            ("good", fixed(opcode, fd, at, 1, 1), 1),
            ("free", fixed(opcode, fd, at, 1, 0), -EFAULT),
            ("unknown", fixed(opcode, fd, at, 1, 2), -EFAULT),
            ("last", fixed(opcode, fd, at, 1, u16::MAX), -EFAULT),
        ]);
    }
    Ok(())
}

fn readv_writev_fixed(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"")?;
    let fd = file.as_raw_fd();
    let mut buf = *b"0123456789abcdef";
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &[iov(&mut buf)]), 0);
    let at = addr_mut(&mut buf);
    let parts = [raw_iov(at + 10, 4), raw_iov(at, 2)];
    let write = fixed(IORING_OP_WRITEV_FIXED, fd, addr(&parts), 2, 0);
    cx.one(&mut ring, "write two parts", write, 6);
    let found = cx.content("f")?;
    cx.eq("file", found, b"abcd01".to_vec());
    let parts = [raw_iov(at + 4, 3), raw_iov(at + 12, 3)];
    let read = fixed(IORING_OP_READV_FIXED, fd, addr(&parts), 2, 0);
    cx.one(&mut ring, "read two parts", read, 6);
    cx.eq("buffer", *std::hint::black_box(&buf), *b"0123abc789abd01f");
    Ok(())
}

fn vector_refusals(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"0123456789")?;
    let fd = file.as_raw_fd();
    let mut buf = [0u8; 16];
    let at = addr_mut(&mut buf);
    let outside = [raw_iov(at, 4), raw_iov(at + 12, 5)];
    let good = [raw_iov(at, 4)];
    let huge = [raw_iov(at, usize::MAX)];
    for opcode in [IORING_OP_READV_FIXED, IORING_OP_WRITEV_FIXED] {
        cx.one(&mut ring, "no table", fixed(opcode, fd, addr(&good), 1, 0), -EFAULT);
    }
    cx.is("register", ring.register_slice(IORING_REGISTER_BUFFERS, &[iov(&mut buf)]), 0);
    for opcode in [IORING_OP_READV_FIXED, IORING_OP_WRITEV_FIXED] {
        cx.each(&mut ring, &[
            ("good", fixed(opcode, fd, addr(&good), 1, 0), 4),
            ("a part outside", fixed(opcode, fd, addr(&outside), 2, 0), -EFAULT),
            ("a huge part", fixed(opcode, fd, addr(&huge), 1, 0), -EINVAL),
            ("unmapped vector", fixed(opcode, fd, BAD, 1, 0), -EFAULT),
            ("too many parts", fixed(opcode, fd, addr(&good), 1025, 0), -EINVAL),
            ("unknown buffer", fixed(opcode, fd, addr(&good), 1, 1), -EFAULT),
        ]);
        let none = cx.one(&mut ring, "no parts", fixed(opcode, fd, addr(&good), 0, 0), 0);
        cx.note("flags of it", none.flags);
    }
    Ok(())
}

fn set(ring: &Ring, up: io_uring_rsrc_update2) -> isize {
    ring.register(IORING_REGISTER_BUFFERS_UPDATE, addr(&up), 32)
}

fn sparse(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    let fd = file.as_raw_fd();
    let mut buf = [0u8; 8];
    let at = addr_mut(&mut buf);
    let table = rsrc(4, IORING_RSRC_REGISTER_SPARSE, 0, 0);
    cx.is("register", ring.register(IORING_REGISTER_BUFFERS2, addr(&table), 32), 0);
    cx.one(&mut ring, "free", fixed(IORING_OP_READ_FIXED, fd, at, 4, 3), -EFAULT);
    cx.is("fill", set(&ring, rsrc_update(3, &[iov(&mut buf)], &[])), 1);
    cx.one(&mut ring, "filled", fixed(IORING_OP_READ_FIXED, fd, at, 4, 3), 4);
    cx.is("empty", set(&ring, rsrc_update(3, &[raw_iov(0, 0)], &[])), 1);
    cx.one(&mut ring, "free again", fixed(IORING_OP_READ_FIXED, fd, at, 4, 3), -EFAULT);
    Ok(())
}

fn tags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (r, w) = cx.pipe()?;
    let mut bufs = [[0u8; 8]; 3];
    let iovs = bufs.each_mut().map(|b| iov(b));
    let at = addr_mut(&mut bufs[1]);
    let table = rsrc(3, 0, addr(&iovs), addr(&[11u64, 22, 33]));
    cx.is("register", ring.register(IORING_REGISTER_BUFFERS2, addr(&table), 32), 0);
    cx.is("replace an idle one", set(&ring, rsrc_update(0, &iovs[..1], &[44])), 1);
    cx.reap(&mut ring, "its tag", &[(11, 0)]);
    let read = fixed(IORING_OP_READ_FIXED, r.as_raw_fd(), at, 4, 1);
    cx.start(&mut ring, &[read.ud(1)]);
    cx.is("remove one in use", set(&ring, rsrc_update(1, &[raw_iov(0, 0)], &[])), 1);
    cx.quiet(&ring, "no tag yet", 10);
    rustix::io::write(&w, b"data")?;
    cx.reap(&mut ring, "the request and the tag", &[(1, 4), (22, 0)]);
    cx.eq("data", std::hint::black_box(&bufs)[1][..4].to_vec(), b"data".to_vec());
    cx.is("unregister", ring.register(IORING_UNREGISTER_BUFFERS, 0, 0), 0);
    cx.reap_in_order(&mut ring, "the other tags, the last first", &[(33, 0), (44, 0)]);
    Ok(())
}

fn buffers2_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 8];
    let iovs = [iov(&mut buf)];
    let good = rsrc(1, 0, addr(&iovs), 0);
    let mut call = |what: &str, r: io_uring_rsrc_register, size: u32, want: i32| {
        let got = ring.register(IORING_REGISTER_BUFFERS2, addr(&r), size);
        cx.is(what, got, want);
    };
    call("size 31", good, 31, -EINVAL);
    call("none", rsrc(0, 0, addr(&iovs), 0), 32, -EINVAL);
    call("unknown flag", rsrc(1, 2, addr(&iovs), 0), 32, -EINVAL);
    call("reserved", io_uring_rsrc_register { resv2: 1, ..good }, 32, -EINVAL);
    call("sparse with data", rsrc(1, 1, addr(&iovs), 0), 32, -EINVAL);
    call("too many", rsrc(16385, 1, 0, 0), 32, -EINVAL);
    call("bad tags", rsrc(1, 0, addr(&iovs), BAD), 32, -EFAULT);
    let free = [raw_iov(0, 0)];
    call("tag for a free slot", rsrc(1, 0, addr(&free), addr(&[5u64])), 32, -EINVAL);
    call("good", good, 32, 0);
    Ok(())
}

fn update_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 8];
    let iovs = [iov(&mut buf), raw_iov(0x1000, 8)];
    cx.is("no table", set(&ring, rsrc_update(0, &iovs, &[])), -ENXIO);
    let table = rsrc(2, IORING_RSRC_REGISTER_SPARSE, 0, 0);
    cx.is("register", ring.register(IORING_REGISTER_BUFFERS2, addr(&table), 32), 0);
    cx.is("beyond the end", set(&ring, rsrc_update(1, &iovs, &[])), -EINVAL);
    cx.is("good and bad: those done", set(&ring, rsrc_update(0, &iovs, &[])), 1);
    cx.is("bad alone", set(&ring, rsrc_update(0, &iovs[1..], &[])), -EFAULT);
    cx.is("tag for a free slot", set(&ring, rsrc_update(0, &[raw_iov(0, 0)], &[5])), -EINVAL);
    let up = rsrc_update(0, &iovs[..1], &[]);
    cx.is("reserved", set(&ring, io_uring_rsrc_update2 { resv2: 1, ..up }), -EINVAL);
    cx.is("none", set(&ring, io_uring_rsrc_update2 { nr: 0, ..up }), -EINVAL);
    cx.is("bad data", set(&ring, io_uring_rsrc_update2 { data: BAD as u64, ..up }), -EFAULT);
    cx.registers(&ring, &[
        ("size 16", IORING_REGISTER_BUFFERS_UPDATE, addr(&up), 16, -EINVAL),
        ("unmapped", IORING_REGISTER_BUFFERS_UPDATE, BAD, 32, -EFAULT),
    ]);
    Ok(())
}

fn clone_of(src: &Ring) -> io_uring_clone_buffers {
    io_uring_clone_buffers { src_fd: src.fd.cast_unsigned(), ..Default::default() }
}

fn clone_call(ring: &Ring, c: io_uring_clone_buffers) -> isize {
    ring.register(IORING_REGISTER_CLONE_BUFFERS, addr(&c), 1)
}

fn clone(cx: &mut Cx) -> Outcome {
    let (src, mut dst) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let file = cx.file("f", b"data")?;
    let mut buf = [0u8; 8];
    let at = addr_mut(&mut buf);
    cx.is("nothing to clone", clone_call(&dst, clone_of(&src)), -ENXIO);
    cx.is("register", src.register_slice(IORING_REGISTER_BUFFERS, &[iov(&mut buf)]), 0);
    cx.is("clone", clone_call(&dst, clone_of(&src)), 0);
    cx.is("again", clone_call(&dst, clone_of(&src)), -EBUSY);
    drop(src);
    let read = fixed(IORING_OP_READ_FIXED, file.as_raw_fd(), at, 4, 0);
    cx.one(&mut dst, "read after the source is closed", read, 4);
    cx.eq("data", std::hint::black_box(&buf)[..4].to_vec(), b"data".to_vec());
    cx.is("unregister", dst.register(IORING_UNREGISTER_BUFFERS, 0, 0), 0);
    Ok(())
}

fn clone_ranges(cx: &mut Cx) -> Outcome {
    let (src, mut dst) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let file = cx.file("f", b"data")?;
    let fd = file.as_raw_fd();
    let mut bufs = [[0u8; 8]; 3];
    let iovs = bufs.each_mut().map(|b| iov(b));
    let at = bufs.each_mut().map(addr_mut);
    cx.is("register 3", src.register_slice(IORING_REGISTER_BUFFERS, &iovs), 0);
    cx.is("register 1", dst.register_slice(IORING_REGISTER_BUFFERS, &iovs[..1]), 0);
    let part = io_uring_clone_buffers { src_off: 2, dst_off: 3, nr: 1, ..clone_of(&src) };
    cx.is("without replacing", clone_call(&dst, part), -EBUSY);
    let replace = io_uring_clone_buffers { flags: IORING_REGISTER_DST_REPLACE, ..part };
    cx.is("replacing", clone_call(&dst, replace), 0);
    let read = |buf: usize, index| fixed(IORING_OP_READ_FIXED, fd, buf, 4, index);
    cx.each(&mut dst, &[
        ("the old one", read(at[0], 0), 4),
        ("the gap", read(at[1], 1), -EFAULT),
        ("the cloned one", read(at[2], 3), 4),
        ("beyond", read(at[2], 4), -EFAULT),
    ]);
    Ok(())
}

fn clone_refusals(cx: &mut Cx) -> Outcome {
    let (src, dst) = (cx.ring(4, 0)?, cx.ring(4, 0)?);
    let mut buf = [0u8; 8];
    let file = cx.file("f", b"")?;
    cx.is("register", src.register_slice(IORING_REGISTER_BUFFERS, &[iov(&mut buf)]), 0);
    let good = clone_of(&src);
    let bad = |fd: i32| io_uring_clone_buffers { src_fd: fd.cast_unsigned(), ..good };
    let rows = [
        ("no fd", bad(-1), -EBADF),
        ("a file", bad(file.as_raw_fd()), -EOPNOTSUPP),
        ("unknown flag", io_uring_clone_buffers { flags: 4, ..good }, -EINVAL),
        ("reserved", io_uring_clone_buffers { pad: [0, 1, 0], ..good }, -EINVAL),
        ("source beyond the end", io_uring_clone_buffers { src_off: 1, nr: 1, ..good }, -EOVERFLOW),
        ("too many", io_uring_clone_buffers { nr: 2, ..good }, -EINVAL),
        ("overflow", io_uring_clone_buffers { src_off: u32::MAX, nr: 2, ..good }, -EINVAL),
        ("no such index", io_uring_clone_buffers { flags: 1, ..bad(3) }, -EBADF),
    ];
    for (what, c, want) in rows {
        let got = clone_call(&dst, c);
        cx.is(what, got, want);
    }
    cx.registers(&dst, &[
        ("null", IORING_REGISTER_CLONE_BUFFERS, 0, 1, -EINVAL),
        ("unmapped", IORING_REGISTER_CLONE_BUFFERS, BAD, 1, -EFAULT),
        ("count 0", IORING_REGISTER_CLONE_BUFFERS, addr(&good), 0, -EINVAL),
    ]);
    Ok(())
}

fn fixed_files_too(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = cx.file("f", b"data")?;
    let mut buf = [0u8; 8];
    let at = addr_mut(&mut buf);
    cx.is("buffers", ring.register_slice(IORING_REGISTER_BUFFERS, &[iov(&mut buf)]), 0);
    cx.is("files", ring.register_slice(IORING_REGISTER_FILES, &[-1, file.as_raw_fd()]), 0);
    let read = fixed(IORING_OP_READ_FIXED, 1, at, 4, 0).fixed();
    cx.one(&mut ring, "read", read, 4);
    cx.eq("data", std::hint::black_box(&buf)[..4].to_vec(), b"data".to_vec());
    cx.one(&mut ring, "in a worker", read.with(IOSQE_ASYNC), 4);
    cx.one(&mut ring, "free slot", read.set(|s| s.fd = 0), -EBADF);
    Ok(())
}
