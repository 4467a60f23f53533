//! Registered buffers: which memory is accepted.

use super::pbuf;
use super::prelude::*;
use libc::iovec;

pub const CASES: &[Case] = &[
    case!("mappings", registered, [Reg(IORING_REGISTER_BUFFERS)],
        "memory that can be pinned for writing, and memory that cannot"),
    case!("mappings", updated, [Reg(IORING_REGISTER_BUFFERS_UPDATE)], "updates with memory that can be pinned for writing, and memory that cannot"),
    case!("mappings", buffer_rings, [Reg(IORING_REGISTER_PBUF_RING)], "buffer rings in memory that can be pinned for writing, and memory that cannot"),
];

fn part(base: usize, len: usize) -> iovec {
    iovec { iov_base: std::ptr::with_exposed_provenance_mut(base), iov_len: len }
}

/// Returns mappings of each kind: what, address, length, and the result of registering them.
fn mappings(cx: &mut Cx) -> Result<Vec<(&'static str, usize, usize, i32)>, Stop> {
    use libc::{MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE};
    const RW: i32 = PROT_READ | PROT_WRITE;
    let disk = cx.file("f", &[7; 12288])?;
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&memory, 12288)?;
    let zero = std::fs::File::options().read(true).write(true).open("/dev/zero")?;
    let at = |fd: i32, len, prot, flags| os::mmap_fd(fd, len, prot, flags, 0).cast_unsigned();
    let of_disk = |prot, flags| at(disk.as_raw_fd(), 12288, prot, flags);
    let of_memory = |prot, flags| at(memory.as_raw_fd(), 12288, prot, flags);
    let anon = |prot, flags| at(-1, 12288, prot, flags | libc::MAP_ANON);
    let border = os::border();
    // The mapping is longer than the file: access beyond the file's end is SIGBUS.
    let beyond = at(memory.as_raw_fd(), 16384, RW, MAP_SHARED) + 8192;
    let device = at(zero.as_raw_fd(), 4096, RW, MAP_SHARED);
    let mut rows = vec![
        ("anonymous", anon(RW, MAP_PRIVATE), 12288, 0),
        ("shared", anon(RW, MAP_SHARED), 12288, 0),
        ("only to be read", anon(PROT_READ, MAP_PRIVATE), 12288, -EFAULT),
        ("only to be written", anon(PROT_WRITE, MAP_PRIVATE), 12288, 0),
        ("of no use", anon(0, MAP_PRIVATE), 12288, -EFAULT),
        ("writable at first", border - 4096, 8192, -EFAULT),
        ("just that", border - 4096, 4096, 0),
        ("a file's own copy", of_disk(RW, MAP_PRIVATE), 12288, 0),
        ("a file's own copy, to be read", of_disk(PROT_READ, MAP_PRIVATE), 12288, -EFAULT),
        ("a file", of_disk(RW, MAP_SHARED), 12288, -EFAULT),
        ("the middle of a file", of_disk(RW, MAP_SHARED) + 5000, 100, -EFAULT),
        ("a file, to be read", of_disk(PROT_READ, MAP_SHARED), 12288, -EFAULT),
        ("a file in memory", of_memory(RW, MAP_SHARED), 12288, 0),
        ("its own copy", of_memory(RW, MAP_PRIVATE), 12288, 0),
        ("beyond its end", beyond, 8192, -EFAULT),
        ("a device's", device, 4096, 0),
    ];
    // The hole comes last, so that no other mapping is placed there.
    let hole = anon(RW, MAP_PRIVATE);
    os::unmap(hole + 4096);
    rows.extend([
        ("around a hole", hole, 12288, -EFAULT),
        ("into a hole", hole, 4097, -EFAULT),
        ("from a hole", hole + 4096, 8192, -EFAULT),
    ]);
    Ok(rows)
}

/// Skips the case unless its directory is on a disk: pages of a tmpfs file can be registered.
fn on_disk(cx: &mut Cx) -> Outcome {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    match rustix::fs::statfs(cx.dir()?)?.f_type == TMPFS_MAGIC {
        true => Err(Stop::Skip("its files are in memory".into())),
        false => Ok(()),
    }
}

fn registered(cx: &mut Cx) -> Outcome {
    on_disk(cx)?;
    let ring = cx.ring(4, 0)?;
    for (what, at, len, want) in mappings(cx)? {
        let got = ring.register_slice(IORING_REGISTER_BUFFERS, &[part(at, len)]);
        cx.is(what, got, want);
        if got == 0 {
            ring.register(IORING_UNREGISTER_BUFFERS, 0, 0);
        }
    }
    Ok(())
}

fn updated(cx: &mut Cx) -> Outcome {
    on_disk(cx)?;
    let ring = cx.ring(4, 0)?;
    let sparse = rsrc(1, IORING_RSRC_REGISTER_SPARSE, 0, 0);
    cx.is("a table", ring.register(IORING_REGISTER_BUFFERS2, addr(&sparse), 32), 0);
    for (what, at, len, want) in mappings(cx)? {
        // The call reads `parts`, which must live until then.
        let parts = [part(at, len)];
        let up = rsrc_update(0, &parts, &[]);
        let got = ring.register(IORING_REGISTER_BUFFERS_UPDATE, addr(&up), 32);
        cx.is(what, got, if want == 0 { 1 } else { want });
    }
    Ok(())
}

fn buffer_rings(cx: &mut Cx) -> Outcome {
    on_disk(cx)?;
    let ring = cx.ring(4, 0)?;
    let aligned = |row: &(&str, usize, usize, i32)| row.1.is_multiple_of(4096);
    for (what, at, _, want) in mappings(cx)?.into_iter().filter(aligned) {
        // A buffer ring needs one page: what follows does not matter.
        let begins = ["writable at first", "beyond its end", "around a hole", "into a hole"];
        let want = if begins.contains(&what) { 0 } else { want };
        let reg = pbuf::reg(at, 8, 0);
        let got = pbuf::register(&ring, &reg);
        cx.is(what, got, want);
        if got == 0 {
            ring.register(IORING_UNREGISTER_PBUF_RING, addr(&reg), 1);
        }
    }
    Ok(())
}
