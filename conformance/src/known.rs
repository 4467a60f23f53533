//! Differences between softring and the kernel that cannot or shall not be removed, as data. Each
//! names the words of `docs/LIMITATIONS.md` that tell users about it.

use crate::case::glob;

/// One known difference.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The cases it shows in; `*` stands for anything.
    pub case: &'static str,
    /// Words of `docs/LIMITATIONS.md`.
    pub words: &'static str,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known { case: "layout::mmap_elsewhere", words: "maps at any offset" },
    Known {
        case: "limits::no_descriptor_for_slots",
        words: "would take answers EMFILE where no number is free",
    },
    Known {
        case: "odd::slots_hold_no_fd",
        words: "A registered file is a descriptor of the process",
    },
    Known {
        case: "corners::wide_finds_last_slot",
        words: "A 32-byte CQE that finds no room leaves no filler",
    },
    Known { case: "msg_ring::itself_at_once", words: "to the sender's own ring comes in its turn" },
    Known { case: "timestamp::recverr", words: "lies in front in a socket's error queue" },
    Known { case: "iopoll::no_queues", words: "reads and writes any file with O_DIRECT" },
    Known { case: "hostile::unmapped", words: "The memory of a buffer ring must stay mapped" },
    Known {
        case: "process::child_leaves_read",
        words: "is cancelled at once when a forked child ends",
    },
    Known { case: "limits::one_worker", words: "holds no worker" },
];

/// The reason for which `case` may differ.
pub fn reason(case: &str) -> Option<&'static str> {
    KNOWN.iter().find(|k| glob(k.case, case)).map(|k| k.words)
}
