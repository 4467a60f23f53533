//! The table of registered files: `IORING_REGISTER_FILES` and related calls, and slots in use.

use super::prelude::*;

pub const CASES: &[Case] = &[
    any_order!("files", register, [
        Reg(IORING_REGISTER_FILES), Reg(IORING_UNREGISTER_FILES),
    ], "a table of files is registered, used, refused a second time, and unregistered"),
    case!("files", register_refusals, [Reg(IORING_REGISTER_FILES)], "bad counts, pointers and fds"),
    legal!("files", holds_the_file, [Reg(IORING_REGISTER_FILES), Sqe(IOSQE_FIXED_FILE)], "a registered file outlives its fd"),
    legal!("files", sparse, [Reg(IORING_REGISTER_FILES2)], "a sparse table has only free slots"),
    case!("files", register2_refusals, [Reg(IORING_REGISTER_FILES2)], "size, flags and reserved words are checked"),
    legal!("files", update, [Reg(IORING_REGISTER_FILES_UPDATE)], "slots are filled, emptied and skipped"),
    case!("files", update_refusals, [Reg(IORING_REGISTER_FILES_UPDATE)], "no table, bad ranges, pointers and fds"),
    any_order!("files", update2_tags, [
        Reg(IORING_REGISTER_FILES2), Reg(IORING_REGISTER_FILES_UPDATE2),
    ], "a slot's tag is posted when the last user of its file is gone"),
    case!("files", update2_refusals, [Reg(IORING_REGISTER_FILES_UPDATE2)], "unneeded tags and reserved words"),
    case!("files", unregister_posts_tags, [Reg(IORING_UNREGISTER_FILES)], "unregistering posts every tag"),
    legal!("files", alloc_range, [Reg(IORING_REGISTER_FILE_ALLOC_RANGE)], "free slots are picked from a range"),
    legal!("files", files_update_op, [Op(IORING_OP_FILES_UPDATE)], "FILES_UPDATE updates slots like the register call"),
    any_order!("files", files_update_alloc, [Op(IORING_OP_FILES_UPDATE)], "FILES_UPDATE picks slots with ALLOC"),
    case!("files", bad_slots, [Sqe(IOSQE_FIXED_FILE)], "free and unknown slots fail with EBADF"),
    legal!("files", rings_in_tables, [], "a ring cannot be registered as a file"),
];

fn data_file(cx: &mut Cx, name: &str) -> Result<std::fs::File, Stop> {
    cx.file(name, name.as_bytes())
}

/// Reads from slot `slot` and checks the data.
fn read_slot(cx: &mut Cx, ring: &mut Ring, slot: i32, want: &str) {
    let mut buf = [0u8; 16];
    let what = format!("read of slot {slot}");
    cx.one(ring, &what, sqe::read(slot, &mut buf, 0).fixed(), want.len() as i32);
    let got = &std::hint::black_box(&buf)[..want.len()];
    cx.eq("data", String::from_utf8_lossy(got).into_owned(), want.to_owned());
}

fn slot_is_free(cx: &mut Cx, ring: &mut Ring, slot: i32) {
    let mut buf = [0u8; 16];
    let what = format!("read of free slot {slot}");
    cx.one(ring, &what, sqe::read(slot, &mut buf, 0).fixed(), -EBADF);
}

fn register(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (data_file(cx, "aa")?, data_file(cx, "bbb")?);
    let fds = [a.as_raw_fd(), -1, b.as_raw_fd()];
    cx.is("unregister none", ring.register(IORING_UNREGISTER_FILES, 0, 0), -ENXIO);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &fds), 0);
    cx.is("again", ring.register_slice(IORING_REGISTER_FILES, &fds), -EBUSY);
    read_slot(cx, &mut ring, 0, "aa");
    slot_is_free(cx, &mut ring, 1);
    read_slot(cx, &mut ring, 2, "bbb");
    cx.is("unregister with a pointer", ring.register(IORING_UNREGISTER_FILES, 8, 0), -EINVAL);
    cx.is("unregister with a count", ring.register(IORING_UNREGISTER_FILES, 0, 1), -EINVAL);
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    slot_is_free(cx, &mut ring, 0);
    cx.is("anew", ring.register_slice(IORING_REGISTER_FILES, &fds[2..]), 0);
    read_slot(cx, &mut ring, 0, "bbb");
    Ok(())
}

fn register_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let bad = [0, 1234];
    cx.registers(&ring, &[
        ("no files", IORING_REGISTER_FILES, addr(&bad), 0, -EINVAL),
        ("null", IORING_REGISTER_FILES, 0, 1, -EFAULT),
        ("unmapped", IORING_REGISTER_FILES, BAD, 1, -EFAULT),
        ("an fd that is not open", IORING_REGISTER_FILES, addr(&bad), 2, -EBADF),
        ("too many", IORING_REGISTER_FILES, addr(&bad), 1 << 21, -EMFILE),
        ("the good one, so none was kept", IORING_REGISTER_FILES, addr(&bad), 1, 0),
    ]);
    Ok(())
}

fn holds_the_file(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let file = data_file(cx, "kept")?;
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[file.as_raw_fd()]), 0);
    drop(file);
    std::fs::remove_file(cx.dir()?.join("kept"))?;
    read_slot(cx, &mut ring, 0, "kept");
    // A pipe's end in the table keeps the pipe open until it is removed.
    let (r, w) = cx.pipe()?;
    let end = [w.as_raw_fd()];
    let update = io_uring_files_update { fds: addr(&end) as u64, ..Default::default() };
    cx.is("update", ring.register(IORING_REGISTER_FILES_UPDATE, addr(&update), 1), 1);
    drop(w);
    let mut one = [0u8];
    let nonblock = rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&r, nonblock)?;
    cx.holds("still open", rustix::io::read(&r, &mut one) == Err(rustix::io::Errno::AGAIN));
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    cx.holds("closed", rustix::io::read(&r, &mut one) == Ok(0));
    Ok(())
}

fn sparse(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    cx.sparse_files(&ring, 8);
    (0..9).step_by(4).for_each(|slot| slot_is_free(cx, &mut ring, slot));
    let file = data_file(cx, "later")?;
    let fd = [file.as_raw_fd()];
    let up = io_uring_files_update { offset: 7, resv: 0, fds: addr(&fd) as u64 };
    cx.is("fill the last", ring.register(IORING_REGISTER_FILES_UPDATE, addr(&up), 1), 1);
    read_slot(cx, &mut ring, 7, "later");
    Ok(())
}

fn register2_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let fd = [0];
    let good = rsrc(1, 0, addr(&fd), 0);
    let mut refused = |what: &str, r: io_uring_rsrc_register, size: u32, want: i32| {
        let got = ring.register(IORING_REGISTER_FILES2, addr(&r), size);
        cx.is(what, got, want);
    };
    refused("size 31", good, 31, -EINVAL);
    refused("size 33", good, 33, -EINVAL);
    refused("none", rsrc(0, 0, addr(&fd), 0), 32, -EINVAL);
    refused("unknown flag", rsrc(1, 2, addr(&fd), 0), 32, -EINVAL);
    refused("reserved", io_uring_rsrc_register { resv2: 1, ..good }, 32, -EINVAL);
    refused("sparse with data", rsrc(1, 1, addr(&fd), 0), 32, -EINVAL);
    refused("bad tags", rsrc(1, 0, addr(&fd), BAD), 32, -EFAULT);
    let tag = [5u64];
    refused("tag for a free slot", rsrc(1, 0, addr(&[-1]), addr(&tag)), 32, -EINVAL);
    refused("good", good, 32, 0);
    let got = ring.register(IORING_REGISTER_FILES2, BAD, 32);
    cx.is("unmapped", got, -EFAULT);
    let got = ring.register(IORING_UNREGISTER_FILES, 0, 0);
    cx.is("unregister", got, 0);
    // Without data every slot is free, sparse or not.
    let got = ring.register(IORING_REGISTER_FILES2, addr(&rsrc(1, 0, 0, 0)), 32);
    cx.is("no data", got, 0);
    Ok(())
}

fn update(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (data_file(cx, "aa")?, data_file(cx, "bbb")?);
    let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[a, a, a, -1]), 0);
    let fds = [b, -1, IORING_REGISTER_FILES_SKIP, b];
    let up = io_uring_files_update { fds: addr(&fds) as u64, ..Default::default() };
    cx.is("update", ring.register(IORING_REGISTER_FILES_UPDATE, addr(&up), 4), 4);
    read_slot(cx, &mut ring, 0, "bbb");
    slot_is_free(cx, &mut ring, 1);
    read_slot(cx, &mut ring, 2, "aa");
    read_slot(cx, &mut ring, 3, "bbb");
    Ok(())
}

fn update_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let file = data_file(cx, "f")?;
    let fds = [file.as_raw_fd(), 1234];
    let up = |offset: u32, fds: usize| io_uring_files_update { offset, resv: 0, fds: fds as u64 };
    let mut call = |what: &str, up: io_uring_files_update, nr: u32, want: i32| {
        let got = ring.register(IORING_REGISTER_FILES_UPDATE, addr(&up), nr);
        cx.is(what, got, want);
    };
    call("no table", up(0, addr(&fds)), 1, -ENXIO);
    let got = ring.register_slice(IORING_REGISTER_FILES, &[-1, -1]);
    assert_eq!(got, 0);
    call("no slots", up(0, addr(&fds)), 0, -EINVAL);
    call("beyond the end", up(2, addr(&fds)), 1, -EINVAL);
    call("half beyond the end", up(1, addr(&fds)), 2, -EINVAL);
    call("offset and count overflow", up(u32::MAX, addr(&fds)), 2, -EOVERFLOW);
    call("reserved", io_uring_files_update { resv: 1, ..up(0, addr(&fds)) }, 1, -EINVAL);
    call("null fds", up(0, 0), 1, -EFAULT);
    call("unmapped fds", up(0, BAD), 1, -EFAULT);
    call("good and bad: those done", up(0, addr(&fds)), 2, 1);
    call("bad alone", up(0, addr(&fds[1..])), 1, -EBADF);
    call("-3", up(0, addr(&[-3])), 1, -EBADF);
    let got = ring.register(IORING_REGISTER_FILES_UPDATE, BAD, 1);
    cx.is("unmapped", got, -EFAULT);
    Ok(())
}

fn update2_tags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let file = data_file(cx, "f")?;
    let (r, w) = cx.pipe()?;
    let fds = [file.as_raw_fd(), r.as_raw_fd(), file.as_raw_fd()];
    let table = rsrc(3, 0, addr(&fds), addr(&[11u64, 22, 0]));
    cx.is("register", ring.register(IORING_REGISTER_FILES2, addr(&table), 32), 0);
    let set = |ring: &Ring, up: io_uring_rsrc_update2| {
        ring.register(IORING_REGISTER_FILES_UPDATE2, addr(&up), 32)
    };
    cx.is("replace an idle one", set(&ring, rsrc_update(0, &fds[2..], &[33])), 1);
    cx.reap(&mut ring, "its tag", &[(11, 0)]);
    // Slot 1 is in use: the removed file's tag is posted only when the request ends.
    let mut buf = [0u8; 4];
    cx.start(&mut ring, &[sqe::read(1, &mut buf, 0).fixed().ud(1)]);
    cx.is("remove one in use", set(&ring, rsrc_update(1, &[-1], &[])), 1);
    cx.quiet(&ring, "no tag yet", 10);
    rustix::io::write(&w, b"data")?;
    let want = [(1, 4), (22, 0)];
    cx.reap(&mut ring, "the request and the tag", &want);
    cx.is("an untagged one", set(&ring, rsrc_update(2, &[-1], &[])), 1);
    cx.quiet(&ring, "posts nothing", 5);
    Ok(())
}

fn update2_refusals(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    cx.sparse_files(&ring, 2);
    let good = rsrc_update(0, &[0], &[7]);
    let mut call = |what: &str, up: io_uring_rsrc_update2, size: u32, want: i32| {
        let got = ring.register(IORING_REGISTER_FILES_UPDATE2, addr(&up), size);
        cx.is(what, got, want);
    };
    call("size 16", good, 16, -EINVAL);
    call("reserved", io_uring_rsrc_update2 { resv: 1, ..good }, 32, -EINVAL);
    call("reserved too", io_uring_rsrc_update2 { resv2: 1, ..good }, 32, -EINVAL);
    call("none", io_uring_rsrc_update2 { nr: 0, ..good }, 32, -EINVAL);
    call("tag for a free slot", rsrc_update(0, &[-1], &[7]), 32, -EINVAL);
    let skipped = rsrc_update(0, &[IORING_REGISTER_FILES_SKIP], &[7]);
    call("tag for a skipped slot", skipped, 32, -EINVAL);
    call("bad tags", io_uring_rsrc_update2 { tags: BAD as u64, ..good }, 32, -EFAULT);
    call("good", good, 32, 1);
    Ok(())
}

fn unregister_posts_tags(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let table = rsrc(3, 0, addr(&[0, 0, 0]), addr(&[5u64, 0, 6]));
    cx.is("register", ring.register(IORING_REGISTER_FILES2, addr(&table), 32), 0);
    cx.is("unregister", ring.register(IORING_UNREGISTER_FILES, 0, 0), 0);
    cx.reap_in_order(&mut ring, "tags, the last first", &[(6, 0), (5, 0)]);
    Ok(())
}

fn open_into(path: &std::ffi::CStr, slot: u32) -> io_uring_sqe {
    sqe::rw(IORING_OP_OPENAT, libc::AT_FDCWD, addr(path), 0, 0).set(|s| s.file_index = slot)
}

fn alloc_range(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let path = cx.path("f")?;
    cx.file("f", b"f")?;
    let range = |off, len| io_uring_file_index_range { off, len, resv: 0 };
    let set = |ring: &Ring, r: io_uring_file_index_range| {
        ring.register(IORING_REGISTER_FILE_ALLOC_RANGE, addr(&r), 0)
    };
    cx.is("no table", set(&ring, range(0, 1)), -EINVAL);
    cx.sparse_files(&ring, 8);
    cx.is("beyond the end", set(&ring, range(6, 3)), -EINVAL);
    cx.is("overflow", set(&ring, range(u32::MAX, 2)), -EOVERFLOW);
    cx.is("reserved", set(&ring, io_uring_file_index_range { resv: 1, ..range(0, 1) }), -EINVAL);
    cx.is(
        "a count",
        ring.register(IORING_REGISTER_FILE_ALLOC_RANGE, addr(&range(0, 1)), 1),
        -EINVAL,
    );
    cx.is("null", ring.register(IORING_REGISTER_FILE_ALLOC_RANGE, 0, 0), -EINVAL);
    cx.is("unmapped", ring.register(IORING_REGISTER_FILE_ALLOC_RANGE, BAD, 0), -EFAULT);
    cx.is("5 and 6", set(&ring, range(5, 2)), 0);
    let alloc = open_into(&path, IORING_FILE_INDEX_ALLOC);
    cx.one(&mut ring, "first", alloc, 5);
    cx.one(&mut ring, "second", alloc, 6);
    cx.one(&mut ring, "none left", alloc, -libc::ENFILE);
    read_slot(cx, &mut ring, 6, "f");
    cx.one(&mut ring, "a slot outside the range, by number", open_into(&path, 1), 0);
    Ok(())
}

fn update_sqe(fds: usize, nr: usize, offset: u64) -> io_uring_sqe {
    sqe::rw(IORING_OP_FILES_UPDATE, -1, fds, nr, offset)
}

fn files_update_op(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (data_file(cx, "aa")?, data_file(cx, "bbb")?);
    let fds = [a.as_raw_fd(), -1, IORING_REGISTER_FILES_SKIP, b.as_raw_fd()];
    cx.one(&mut ring, "no table", update_sqe(addr(&fds), 1, 0), -ENXIO);
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1; 4]), 0);
    cx.one(&mut ring, "update", update_sqe(addr(&fds), 4, 0), 4);
    read_slot(cx, &mut ring, 0, "aa");
    read_slot(cx, &mut ring, 3, "bbb");
    let good = update_sqe(addr(&fds), 1, 1);
    cx.each(&mut ring, &[
        ("none", update_sqe(addr(&fds), 0, 0), -EINVAL),
        ("null", update_sqe(0, 1, 0), -EFAULT),
        ("unmapped", update_sqe(BAD, 1, 0), -EFAULT),
        ("beyond the end", update_sqe(addr(&fds), 2, 3), -EINVAL),
        ("bad fd", update_sqe(addr(&[1234]), 1, 0), -EBADF),
        ("flags", good.op_flags(1), -EINVAL),
        ("fixed file", good.fixed(), -EINVAL),
        ("in async context", good.with(IOSQE_ASYNC), 1),
    ]);
    Ok(())
}

fn files_update_alloc(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (a, b) = (data_file(cx, "aa")?, data_file(cx, "bbb")?);
    let fd = a.as_raw_fd();
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[-1, fd, -1]), 0);
    let mut fds = [b.as_raw_fd(), b.as_raw_fd()];
    let alloc = u64::from(IORING_FILE_INDEX_ALLOC);
    cx.one(&mut ring, "two", update_sqe(addr_mut(&mut fds), 2, alloc), 2);
    cx.eq("slots", *std::hint::black_box(&fds), [0, 2]);
    read_slot(cx, &mut ring, 2, "bbb");
    let mut more = [b.as_raw_fd()];
    cx.one(&mut ring, "none left", update_sqe(addr_mut(&mut more), 1, alloc), -libc::ENFILE);
    Ok(())
}

fn bad_slots(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let mut buf = [0u8; 4];
    for slot in [0, 1, -1, i32::MAX] {
        let read = sqe::read(slot, &mut buf, 0).fixed();
        cx.one(&mut ring, &format!("slot {slot}, no table"), read, -EBADF);
    }
    cx.is("register", ring.register_slice(IORING_REGISTER_FILES, &[0]), 0);
    for slot in [1, -1, i32::MAX, i32::MIN] {
        let read = sqe::read(slot, &mut buf, 0).fixed();
        cx.one(&mut ring, &format!("slot {slot} of 1"), read, -EBADF);
    }
    Ok(())
}

fn rings_in_tables(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let other = cx.ring(4, 0)?;
    cx.is("itself", ring.register_slice(IORING_REGISTER_FILES, &[ring.fd]), -EBADF);
    cx.is("another", ring.register_slice(IORING_REGISTER_FILES, &[other.fd]), -EBADF);
    // A slot that was allocated for a ring and refused is the next to be allocated.
    cx.sparse_files(&ring, 3);
    let alloc = u64::from(IORING_FILE_INDEX_ALLOC);
    let mut fds = [other.fd];
    cx.one(&mut ring, "picked", update_sqe(addr_mut(&mut fds), 1, alloc), -EBADF);
    let socket = sqe::rw(IORING_OP_SOCKET, libc::AF_UNIX, 0, 0, libc::SOCK_DGRAM as u64);
    let into_any = socket.set(|s| s.file_index = IORING_FILE_INDEX_ALLOC);
    cx.one(&mut ring, "for another", into_any, 0);
    Ok(())
}
