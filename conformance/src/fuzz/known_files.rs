//! Data that requests leave in files and in memory.

use super::program::{Slot, Sqe, Val};
use super::seen::{Seen, buffers, is_regular, reads, writes};

/// Returns whether a read goes to memory that another request reads into or writes from, and one of
/// them is of a file in memory, for which the kernel uses a worker.
pub fn read_over(seen: &Seen) -> bool {
    let in_memory = |(ring, sqe): (u8, &Sqe)| {
        (reads(sqe.op) || writes(sqe.op))
            && seen.file(ring, sqe).is_some_and(|s| s == Slot::Direct || is_regular(s))
    };
    let over = |(_, sqe): (u8, &Sqe)| {
        let both = |buf: &u8| {
            let same = |(_, other): &(u8, &Sqe)| other.ud != sqe.ud && buffers(other).contains(buf);
            let reads = |(_, other): (u8, &Sqe)| reads(other.op);
            let text = writes(sqe.op) || seen.what.text.contains(&format!("buf{buf} "));
            text && seen.sqes().filter(same).any(reads)
        };
        // A vector longer than its written part names any memory.
        let parts = sqe.len as usize * 2;
        let any = matches!(&sqe.addr, Val::Mem(cells) if cells.len() < parts);
        any || buffers(sqe).iter().any(both)
    };
    seen.what.about == "files and memory"
        && seen.program.tmpfs
        && seen.sqes().filter(|of| in_memory(*of)).any(over)
}

/// Returns whether two requests used the current position of an O_DIRECT file, and one of them or
/// the file differs.
pub fn position_direct(seen: &Seen) -> bool {
    let about = seen.what.about == "files and memory"
        || seen.request().is_some_and(|(r, sqe)| seen.file(r, sqe) == Some(Slot::Direct));
    let own = |(ring, sqe): &(u8, &Sqe)| {
        (reads(sqe.op) || writes(sqe.op))
            && sqe.off == Val::Num(u64::MAX)
            && seen.file(*ring, sqe) == Some(Slot::Direct)
    };
    about && !seen.program.tmpfs && seen.sqes().filter(own).count() > 1
}
