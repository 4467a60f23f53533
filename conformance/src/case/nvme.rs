//! URING_CMD on NVMe devices: commands go to the device unchanged. Skipped without such a device;
//! `ci/guest.sh` makes a virtual machine that has one.

use super::prelude::*;
use softring_uapi::nvme_passthru_cmd64 as Command;
use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;

pub const CASES: &[Case] = &[
    case!("nvme", namespace, [Op(IORING_OP_URING_CMD)], "blocks are read and written by commands"),
    case!("nvme", controller, [Op(IORING_OP_URING_CMD)], "identify data of a controller"),
    case!("nvme", admin_parts, [Op(IORING_OP_URING_CMD)], "a controller's answer fills two parts"),
    case!("nvme", refusals, [Op(IORING_OP_URING_CMD)], "commands that the device or the kernel refuses"),
    case!("nvme", modes, [Op(IORING_OP_URING_CMD)], "many commands at a time, in a worker, in a chain"),
];

/// NVMe opcodes of commands.
const WRITE: u8 = 1;
const READ: u8 = 2;
const IDENTIFY: u8 = 6;
const GET_FEATURES: u8 = 10;
/// Number of queues.
const QUEUES: u32 = 7;
const BLOCK: usize = 512;
const WIDE: u32 = IORING_SETUP_SQE128 | IORING_SETUP_CQE32;

fn device(name: &str) -> Result<File, Stop> {
    let opened = File::options().read(true).write(true).open(name);
    opened.map_err(|e| Stop::Skip(format!("{name}: {e}")))
}

/// Makes a command of one block, or of `len` bytes, from or to `at`.
fn command(opcode: u8, cdw10: u32, at: usize, len: usize) -> Command {
    let blocks = (len / BLOCK).saturating_sub(1) as u32;
    let cdw10 = if opcode == IDENTIFY || opcode == GET_FEATURES {
        [cdw10, 0, 0, 0, 0, 0]
    } else {
        [cdw10, 0, blocks, 0, 0, 0]
    };
    let nsid = u32::from(opcode != IDENTIFY && opcode != GET_FEATURES);
    let (addr, data_len) = (at as u64, len as u32);
    Command { opcode, nsid, addr, data_len, cdw10, ..Default::default() }
}

/// Puts a command into the next SQE of a ring with 128-byte SQEs.
fn push(ring: &mut Ring, sqe: io_uring_sqe, c: &Command) {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let first = u64::from(c.opcode) | u64::from(c.nsid) << 32;
    let d = c.cdw10;
    let slot = ring.sq_tail() & (ring.sq_entries() - 1);
    let parts = [pair(d[0], d[1]), pair(d[2], d[3]), pair(d[4], d[5])];
    let sizes = pair(c.metadata_len, c.data_len);
    let time = u64::from(c.timeout_ms);
    ring.write_sqe_tail(slot, [c.metadata, c.addr, sizes, parts[0], parts[1], parts[2], time, 0]);
    ring.push(sqe.set(|s| (s.addr3, s.pad2) = (first, pair(c.cdw2, c.cdw3))));
}

fn asks(fd: RawFd, what: u32) -> io_uring_sqe {
    sqe::op(IORING_OP_URING_CMD, fd).set(|s| s.off = what.into())
}

/// Submits a command, and records its result.
fn issue(
    cx: &mut Cx,
    ring: &mut Ring,
    what: &str,
    sqe: io_uring_sqe,
    c: &Command,
) -> Outcome {
    push(ring, sqe, c);
    ring.submit_wait(1);
    let got = ring.take(1)?[0];
    cx.note_answer(what, got.res);
    cx.note("its result", format_args!("{:?}", got.big));
    Ok(())
}

fn part(at: usize, iov_len: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len }
}

/// Returns the checksum of a buffer.
fn sum(bytes: &[u8]) -> u64 {
    std::hint::black_box(bytes).iter().fold(7, |sum, b| sum * 31 % 0xffff_fffb + u64::from(*b))
}

fn namespace(cx: &mut Cx) -> Outcome {
    let (generic, disk) = (device("/dev/ng0n1")?, device("/dev/nvme0n1")?);
    let fd = generic.as_raw_fd();
    let mut ring = cx.ring_with(8, io_uring_params { flags: WIDE, ..Default::default() })?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let other = os::page(libc::PROT_READ | libc::PROT_WRITE);
    os::store(page, &[0x5a5a_1234_u32; 1024]);
    issue(cx, &mut ring, "write", asks(fd, NVME_URING_CMD_IO), &command(WRITE, 8, page, 4096))?;
    issue(cx, &mut ring, "read", asks(fd, NVME_URING_CMD_IO), &command(READ, 8, other, 4096))?;
    cx.is("what was written", os::load(other), 0x5a5a_1234);
    let mut seen = [0; 4096];
    disk.read_exact_at(&mut seen, 4096)?;
    cx.eq("on the disk, too", sum(&seen), sum(&0x5a5a_1234_u32.to_ne_bytes().repeat(1024)));
    let parts = [part(page, BLOCK), part(other, 3 * BLOCK)];
    let four = command(READ, 8, 0, 4 * BLOCK);
    let vector = Command { addr: addr(&parts) as u64, data_len: 2, ..four };
    os::store(page, &[0u32; 1024]);
    issue(cx, &mut ring, "a vector", asks(fd, NVME_URING_CMD_IO_VEC), &vector)?;
    cx.is("its first part", os::load(page), 0x5a5a_1234);
    cx.is("and no more", os::load(page + BLOCK), 0);
    let iov = [part(page, 4096)];
    cx.is("buffers", ring.register(IORING_REGISTER_BUFFERS, addr(&iov), 1), 0);
    let fixed = asks(fd, NVME_URING_CMD_IO).op_flags(IORING_URING_CMD_FIXED);
    os::store(page, &[0u32; 1024]);
    issue(cx, &mut ring, "into a registered buffer", fixed, &command(READ, 8, page, 4096))?;
    cx.is("read", os::load(page), 0x5a5a_1234);
    issue(cx, &mut ring, "beside it", fixed, &command(READ, 8, other, 4096))
}

fn controller(cx: &mut Cx) -> Outcome {
    let nvme = device("/dev/nvme0")?;
    let fd = nvme.as_raw_fd();
    let mut ring = cx.ring_with(8, io_uring_params { flags: WIDE, ..Default::default() })?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let admin = asks(fd, NVME_URING_CMD_ADMIN);
    issue(cx, &mut ring, "identify", admin, &command(IDENTIFY, 1, page, 4096))?;
    cx.note("its vendor", os::load(page));
    issue(cx, &mut ring, "its queues", admin, &command(GET_FEATURES, QUEUES, 0, 0))?;
    let unknown = Command { opcode: 0x7f, ..Default::default() };
    issue(cx, &mut ring, "no such command", admin, &unknown)?;
    let read = command(READ, 0, page, 4096);
    issue(cx, &mut ring, "to a namespace's", asks(fd, NVME_URING_CMD_IO), &read)?;
    in_parts(cx, &[4096])
}

/// Identifies the controller into `lengths`; records how each part begins.
fn in_parts(cx: &mut Cx, lengths: &[usize]) -> Outcome {
    let nvme = device("/dev/nvme0")?;
    let mut ring = cx.ring_with(8, io_uring_params { flags: WIDE, ..Default::default() })?;
    let new = |len: &usize| part(os::page(libc::PROT_READ | libc::PROT_WRITE), *len);
    let parts: Vec<_> = lengths.iter().map(new).collect();
    let (addr, data_len) = (addr(&parts[..]) as u64, parts.len() as u32);
    let all = Command { addr, data_len, ..command(IDENTIFY, 1, 0, 0) };
    issue(cx, &mut ring, "identify", asks(nvme.as_raw_fd(), NVME_URING_CMD_ADMIN_VEC), &all)?;
    for part in &parts {
        cx.note("a part", os::load(part.iov_base.addr()));
    }
    Ok(())
}

fn admin_parts(cx: &mut Cx) -> Outcome {
    in_parts(cx, &[1024, 3072])
}

fn refusals(cx: &mut Cx) -> Outcome {
    let generic = device("/dev/ng0n1")?;
    let fd = generic.as_raw_fd();
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let read = command(READ, 0, page, 4096);
    let io = asks(fd, NVME_URING_CMD_IO);
    let mut ring = cx.ring_with(8, io_uring_params { flags: WIDE, ..Default::default() })?;
    let at = |addr: usize| Command { addr: addr as u64, ..read };
    let beyond = Command { cdw10: [u32::MAX, 1, 7, 0, 0, 0], ..read };
    let elsewhere = Command { nsid: 9, ..read };
    let flagged = Command { flags: 1, ..read };
    for (what, sqe, c) in [
        ("beyond the end", io, beyond),
        ("another namespace", io, elsewhere),
        ("flags", io, flagged),
        ("not mapped", io, at(BAD)),
        ("the kernel's", io, at(KERNEL)),
        ("an admin's", asks(fd, NVME_URING_CMD_ADMIN), read),
        ("no such", asks(fd, 5), read),
    ] {
        issue(cx, &mut ring, what, sqe, &c)?;
    }
    for flags in [0, IORING_SETUP_SQE128, IORING_SETUP_CQE32] {
        let mut ring = cx.ring(8, flags)?;
        ring.push(io).submit_wait(1);
        let res = ring.take(1)?[0].res;
        cx.note_answer("without room for it", res);
    }
    Ok(())
}

fn modes(cx: &mut Cx) -> Outcome {
    let generic = device("/dev/ng0n1")?;
    let fd = generic.as_raw_fd();
    let mut ring = cx.ring_with(8, io_uring_params { flags: WIDE, ..Default::default() })?;
    let pages = [(); 8].map(|()| os::page(libc::PROT_READ | libc::PROT_WRITE));
    let io = asks(fd, NVME_URING_CMD_IO);
    for (ud, page) in (1..).zip(pages) {
        os::store(page, &[ud as u32; 1024]);
        push(&mut ring, io.ud(ud), &command(WRITE, 64 + 8 * ud as u32, page, 4096));
    }
    ring.submit_wait(8);
    cx.reap(&mut ring, "many", &[1, 2, 3, 4, 5, 6, 7, 8].map(|ud| (ud, 0)));
    push(&mut ring, io.with(IOSQE_ASYNC).ud(1), &command(READ, 64 + 8, pages[7], 4096));
    ring.submit_wait(1);
    cx.reap(&mut ring, "in a worker", &[(1, 0)]);
    cx.is("read", os::load(pages[7]), 1);
    push(&mut ring, io.link().ud(1), &command(READ, 64 + 24, pages[0], 4096));
    push(&mut ring, io.link().ud(2), &command(WRITE, 64 + 128, pages[0], 4096));
    push(&mut ring, io.ud(3), &command(READ, 64 + 128, pages[1], 4096));
    ring.submit_wait(3);
    cx.reap_in_order(&mut ring, "a chain", &[(1, 0), (2, 0), (3, 0)]);
    cx.is("copied", os::load(pages[1]), 3);
    let fds = [fd];
    cx.is("files", ring.register(IORING_REGISTER_FILES, addr(&fds), 1), 0);
    let slot = io.set(|s| s.fd = 0).with(IOSQE_FIXED_FILE);
    push(&mut ring, slot.ud(1), &command(READ, 64 + 32, pages[2], 4096));
    ring.submit_wait(1);
    cx.reap(&mut ring, "on a registered file", &[(1, 0)]);
    cx.is("read", os::load(pages[2]), 4);
    Ok(())
}
