//! Content of a program that differs: its requests, and the files that they name.

use super::compare::Difference;
use super::program::{Cell, Fd, Host, Program, Slot, Sqe, Step, Val};
use super::transcript::{Cqe, Transcript};
use softring_uapi::*;

/// A difference, and its program and transcripts.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub program: &'a Program,
    pub what: &'a Difference,
    pub kernel: &'a Transcript,
    pub softring: &'a Transcript,
}

impl<'a> Seen<'a> {
    pub fn sqes(&self) -> impl Iterator<Item = (u8, &'a Sqe)> {
        self.program.steps.iter().filter_map(|step| match step {
            Step::Sqe { ring, sqe, .. } => Some((*ring, sqe)),
            _ => None,
        })
    }

    /// Returns the request of the difference, and its ring.
    pub fn request(&self) -> Option<(u8, &'a Sqe)> {
        self.sqes().find(|(_, sqe)| Some(sqe.ud) == self.what.ud)
    }

    /// Returns the head of that request's chain, and its ring.
    pub fn head(&self) -> Option<(u8, &'a Sqe)> {
        let (ring, own) = self.request()?;
        let before = self.sqes().filter(|(r, _)| *r == ring).map(|(_, sqe)| sqe);
        let before: Vec<&Sqe> = before.take_while(|sqe| sqe.ud != own.ud).collect();
        let links = |sqe: &&Sqe| sqe.flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK) != 0;
        Some((ring, before.into_iter().rev().take_while(links).last().unwrap_or(own)))
    }

    /// Returns the requests of a ring, each with its predecessor.
    pub fn pairs(&self, ring: u8) -> impl Iterator<Item = (Option<&'a Sqe>, &'a Sqe)> {
        let mut before = None;
        let own = self.sqes().filter(move |(of, _)| *of == ring);
        own.map(move |(_, sqe)| (before.replace(sqe), sqe))
    }

    /// Returns the request of a ring that comes before `own`.
    pub fn before(&self, ring: u8, own: &Sqe) -> Option<&'a Sqe> {
        self.pairs(ring).find(|(_, sqe)| sqe.ud == own.ud)?.0
    }

    /// Returns whether a buffer ring is given a buffer whose address satisfies `is`.
    pub fn supplies(&self, is: impl Fn(&Val) -> bool) -> bool {
        self.program.steps.iter().any(|step| match step {
            Step::Host(Host::Supply(s)) => s.bufs.iter().any(|(addr, ..)| is(addr)),
            _ => false,
        })
    }

    pub fn defers(&self, ring: u8) -> bool {
        self.program.steps.iter().any(|step| {
            matches!(step, Step::Setup(s)
                if s.ring == ring && s.flags & IORING_SETUP_DEFER_TASKRUN != 0)
        })
    }

    /// Returns the file that a request names, by its number or in a table of registered files.
    pub fn file(&self, ring: u8, sqe: &Sqe) -> Option<Slot> {
        let Fd::Num(index) = sqe.fd else { return slot(sqe) };
        let mut tables = self.program.steps.iter().filter_map(|step| match step {
            Step::Register { ring: of, arg, .. } if *of == ring => table(arg),
            _ => None,
        });
        let fixed = sqe.flags & IOSQE_FIXED_FILE != 0;
        let index = usize::try_from(index).ok().filter(|_| fixed)?;
        match tables.next()?.get(index)? {
            Fd::Slot(slot) => Some(*slot),
            _ => None,
        }
    }

    /// Returns whether the difference is that one CQ had more than the other when both were idle,
    /// or had no room for it.
    pub fn when_idle(&self) -> bool {
        let text = &self.what.text;
        let more = text.starts_with("CQ tails");
        let full = format!("sq flags {IORING_SQ_CQ_OVERFLOW:#x}");
        let overflow = [format!("{full} / sq flags 0x0"), format!("sq flags 0x0 / {full}")];
        self.what.ud.is_none() && (more || overflow.contains(text))
    }

    /// Returns the results that only the kernel gave, and those that only softring gave.
    pub fn results(&self) -> (Vec<i64>, Vec<i64>) {
        let of = |cqes: &[Cqe]| cqes.iter().map(|c| c.res).collect();
        (of(&self.what.kernel), of(&self.what.softring))
    }
}

pub fn res(errno: i32) -> i64 {
    -i64::from(errno)
}

/// Returns the file that a request names, if that is a slot.
pub fn slot(sqe: &Sqe) -> Option<Slot> {
    match sqe.fd {
        Fd::Slot(slot) if sqe.flags & IOSQE_FIXED_FILE == 0 => Some(slot),
        _ => None,
    }
}

/// Returns the files that a register call names, in its argument or one step further.
pub fn table(arg: &Val) -> Option<Vec<Fd>> {
    let Val::Mem(cells) = arg else { return None };
    let fd = |cell: &Cell| match cell {
        Cell::Fd(fd) => Some(fd.clone()),
        _ => None,
    };
    let fds: Vec<Fd> = cells.iter().filter_map(fd).collect();
    let further = |cell: &Cell| match cell {
        Cell::U64(val) => table(val),
        _ => None,
    };
    if fds.is_empty() { cells.iter().find_map(further) } else { Some(fds) }
}

/// Returns the buffers that a request names, itself or in a vector.
pub fn buffers(sqe: &Sqe) -> Vec<u8> {
    let buf = |val: &Val| if let Val::Buf(buf, _) = val { Some(*buf) } else { None };
    match &sqe.addr {
        Val::Mem(cells) => {
            let part = |cell: &Cell| if let Cell::U64(val) = cell { buf(val) } else { None };
            cells.iter().filter_map(part).collect()
        }
        val => buf(val).into_iter().collect(),
    }
}

pub fn writes(op: u8) -> bool {
    matches!(
        op,
        IORING_OP_WRITE | IORING_OP_WRITEV | IORING_OP_WRITE_FIXED | IORING_OP_WRITEV_FIXED
    )
}

pub fn sends(op: u8) -> bool {
    matches!(op, IORING_OP_SEND | IORING_OP_SENDMSG | IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC)
}

pub fn reads(op: u8) -> bool {
    matches!(op, IORING_OP_READ | IORING_OP_READV | IORING_OP_READ_FIXED | IORING_OP_READV_FIXED)
}

/// Returns whether the slot is a regular file whose data go through the page cache.
pub fn is_regular(slot: Slot) -> bool {
    matches!(slot, Slot::A | Slot::B | Slot::Ro | Slot::Wo | Slot::Append)
}

/// Returns whether its data go through the page cache. On tmpfs, O_DIRECT changes nothing.
pub fn is_cached(seen: &Seen, slot: Slot) -> bool {
    is_regular(slot) || seen.program.tmpfs && slot == Slot::Direct
}

/// Returns the other end of a pipe or a socket.
pub fn other_end(slot: Slot) -> Option<Slot> {
    use Slot::*;
    let pairs = [(PipeR, PipeW), (NbR, NbW), (FullR, FullW), (TcpA, TcpB), (UdpA, UdpB)];
    let other = pairs.into_iter().find_map(|(a, b)| match slot {
        _ if slot == a => Some(b),
        _ if slot == b => Some(a),
        _ => None,
    });
    other.or_else(|| unix_peer(slot))
}

/// Returns whether it is a socket whose peer's half cannot be shut from there.
pub fn own_side_only(slot: Slot) -> bool {
    matches!(slot, Slot::TcpA | Slot::TcpB | Slot::UdpA | Slot::UdpB | Slot::UnixL)
}

/// Returns the other end of a unix socket.
pub fn unix_peer(slot: Slot) -> Option<Slot> {
    use Slot::*;
    let pairs =
        [(SockA, SockB), (DgramA, DgramB), (SeqA, SeqB), (EagerA, EagerB), (TightA, TightB)];
    pairs.into_iter().find_map(|(a, b)| match slot {
        _ if slot == a => Some(b),
        _ if slot == b => Some(a),
        _ => None,
    })
}
