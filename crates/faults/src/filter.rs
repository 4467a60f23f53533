//! Filters: the requests to which an entry applies.

use alloc::vec::Vec;
use core::fmt;

use crate::decide::Subject;
use crate::glob::Glob;
use softring_uapi::*;

/// Opcodes by group name.
const GROUPS: &[(&str, &[u8])] = &[
    (
        "read",
        &[
            IORING_OP_READ,
            IORING_OP_READV,
            IORING_OP_READ_FIXED,
            IORING_OP_READV_FIXED,
            IORING_OP_READ_MULTISHOT,
        ],
    ),
    ("write", &[IORING_OP_WRITE, IORING_OP_WRITEV, IORING_OP_WRITE_FIXED, IORING_OP_WRITEV_FIXED]),
    ("send", &[IORING_OP_SEND, IORING_OP_SENDMSG, IORING_OP_SEND_ZC, IORING_OP_SENDMSG_ZC]),
    ("recv", &[IORING_OP_RECV, IORING_OP_RECVMSG]),
    ("sync", &[IORING_OP_FSYNC, IORING_OP_SYNC_FILE_RANGE]),
    ("open", &[IORING_OP_OPENAT, IORING_OP_OPENAT2]),
];

/// The operation by which the log and filters know `io_uring_enter(2)` itself.
pub const ENTER: &str = "ENTER";
/// Code of [`ENTER`], beyond all opcodes.
pub const ENTER_OP: u8 = 127;

/// A set of opcodes, as the program's user wrote it: names of groups and of opcodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ops {
    names: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Group(u8),
    Op(u8),
}

impl Ops {
    /// Adds a group (`write`) or an opcode (`WRITEV`, or `fsync` where no group has that name);
    /// false if the name is unknown.
    pub fn add(&mut self, name: &str) -> bool {
        let group = GROUPS.iter().position(|g| g.0 == name).map(|g| Name::Group(g as u8));
        let alike = |op: &u8| {
            let op = op_name(*op);
            let mut bytes = op.bytes().map(|b| if b == b'_' { b'-' } else { b });
            let mut given = name.bytes().map(|b| match b {
                b'_' => b'-',
                b => b.to_ascii_uppercase(),
            });
            op.len() == name.len() && bytes.by_ref().eq(given.by_ref())
        };
        let op = || (0..IORING_OP_LAST).find(alike).map(Name::Op);
        let enter = || name.eq_ignore_ascii_case(ENTER).then_some(Name::Op(ENTER_OP));
        let Some(found) = group.or_else(op).or_else(enter) else { return false };
        if !self.names.contains(&found) {
            self.names.push(found);
        }
        true
    }

    /// Returns the set of one name; `None` if the name is unknown.
    pub fn named(name: &str) -> Option<Ops> {
        let mut ops = Ops::default();
        ops.add(name).then_some(ops)
    }

    /// Returns whether an opcode is in the set. A set without names has all.
    pub fn has(&self, op: u8) -> bool {
        let one = |name: &Name| match *name {
            Name::Op(known) => known == op,
            Name::Group(group) => GROUPS[usize::from(group)].1.contains(&op),
        };
        self.names.is_empty() || self.names.iter().any(one)
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl fmt::Display for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.names.iter().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            f.write_str(match *name {
                Name::Group(group) => GROUPS[usize::from(group)].0,
                Name::Op(op) => op_name(op),
            })?;
        }
        Ok(())
    }
}

/// Returns the name of an opcode, as the kernel's header has it without its prefix.
pub fn op_name(op: u8) -> &'static str {
    softring_uapi::op_name(op).unwrap_or(ENTER)
}

/// Returns the opcode of a name of [`op_name`].
pub(crate) fn op_named(name: &str) -> Option<u8> {
    if name == ENTER {
        return Some(ENTER_OP);
    }
    (0..IORING_OP_LAST).find(|&op| op_name(op) == name)
}

/// Kind of the file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Block,
    Pipe,
    Socket,
    Other,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::File, Kind::Block, Kind::Pipe, Kind::Socket, Kind::Other];

    pub const fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Block => "block",
            Kind::Pipe => "pipe",
            Kind::Socket => "socket",
            Kind::Other => "other",
        }
    }
}

/// The requests to which an entry applies: those that match all of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub ops: Ops,
    pub path: Option<Glob>,
    pub kind: Option<Kind>,
    /// Ordinal of the ring in its process, from 0.
    pub ring: Option<u32>,
    /// Ordinal of the request in its ring, from 0.
    pub request: Option<u64>,
    /// Ordinal among the requests of one ring that match all else and to which the fault can
    /// happen, from 1.
    pub nth: Option<u32>,
}

impl Filter {
    /// Returns whether a request matches all but `nth`.
    pub(crate) fn matches(&self, subject: &Subject<'_>) -> bool {
        let path = |glob: &Glob| subject.path.is_some_and(|path| glob.matches(path));
        self.ops.has(subject.op)
            && self.ring.is_none_or(|ring| ring == subject.ring)
            && self.request.is_none_or(|request| request == subject.request)
            && self.kind.is_none_or(|kind| Some(kind) == subject.kind)
            && self.path.as_ref().is_none_or(path)
    }
}
