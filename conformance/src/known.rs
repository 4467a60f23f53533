//! Differences between softring and the kernel that cannot or shall not be removed, as data. Each
//! names the words of `docs/LIMITATIONS.md` that tell users about it, and the rows of
//! `docs/SUPPORT.md` that it makes partial.

use crate::case::Cover::{self, Op, Reg, Setup};
use crate::case::glob;
use softring_uapi::version::Release;
use softring_uapi::*;

/// One known difference.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Cases that show the difference; `*` stands for anything.
    pub case: &'static str,
    /// Words of `docs/LIMITATIONS.md`.
    pub words: &'static str,
    /// Opcodes, register calls and flags that it concerns.
    pub rows: &'static [Cover],
}

const fn known(case: &'static str, words: &'static str, rows: &'static [Cover]) -> Known {
    Known { case, words, rows }
}

/// Rows that fill the table of registered files by descriptor.
const FILES: &[Cover] = &[
    Reg(IORING_REGISTER_FILES),
    Reg(IORING_REGISTER_FILES2),
    Reg(IORING_REGISTER_FILES_UPDATE),
    Reg(IORING_REGISTER_FILES_UPDATE2),
    Op(IORING_OP_FILES_UPDATE),
];

/// All known differences.
pub const KNOWN: &[Known] = &[
    known("layout::mmap_bad_offset", "maps at any offset", &[Setup(IORING_SETUP_NO_MMAP)]),
    known(
        "pbuf_waits::eof_behind_data",
        "reports the end of a unix stream at once after its data",
        &[Op(IORING_OP_RECV)],
    ),
    known("inherited::parent_polls", "a completion that the child posts does not end", &[]),
    known("inherited::set_of_two", "a ring that one of them adds to the set", &[]),
    known("layout::no_fsync_no_reopen", "A ring's descriptor is that of a file in memory", &[]),
    known(
        "wait::last_region_entry",
        "The last wait of a region of waits",
        &[Reg(IORING_REGISTER_MEM_REGION)],
    ),
    known(
        "limits::no_descriptor_for_slots",
        "registering a table of files fails with EMFILE",
        FILES,
    ),
    known(
        "slots::path_files_other_requests",
        "A file that a request has opened with O_PATH into a slot",
        &[Op(IORING_OP_OPENAT), Op(IORING_OP_OPENAT2)],
    ),
    known(
        "net_left::urgent_byte_taken",
        "stops before an urgent byte that MSG_OOB has taken already",
        &[Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG)],
    ),
    known(
        "net_left::low_water",
        "leaves fewer bytes of TCP data than the low-water mark",
        &[Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG)],
    ),
    known(
        "spurious_wakes::urgent_receive_shutdown",
        "softring retries a RECV or RECVMSG that waits for an urgent byte",
        &[Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG)],
    ),
    known(
        "spurious_wakes::unix_send_shutdown",
        "waits for room on a unix stream that is shut for sending",
        &[
            Op(IORING_OP_SEND),
            Op(IORING_OP_SENDMSG),
            Op(IORING_OP_SEND_ZC),
            Op(IORING_OP_SENDMSG_ZC),
        ],
    ),
    known(
        "spurious_wakes::eventfd_zero_write",
        "A write of 0 to an eventfd",
        &[Op(IORING_OP_POLL_ADD)],
    ),
    known(
        "undocumented::slots_use_no_descriptors",
        "A registered file is a descriptor of the process",
        FILES,
    ),
    known("epoll_sets::room_by_edge", "asked for edges of EPOLLOUT", &[]),
    known("task_work::woken_before_links", "behind those of the batch's chains", &[]),
    known("task_work::interrupts_epoll_wait", "rings interrupt no such call", &[]),
    known("task_work::one_round", "one call that asks for events runs a whole chain", &[]),
    known(
        "fuzz_found::cqe32_at_last_slot",
        "If a 32-byte CQE does not fit in the last slot",
        &[Setup(IORING_SETUP_CQE_MIXED)],
    ),
    known(
        "msg_ring::own_ring_before_batch",
        "to the sender's own ring is posted in the order of submission",
        &[Op(IORING_OP_MSG_RING)],
    ),
    known(
        "timestamp::recverr",
        "only the entry at the front of a socket's error queue",
        &[Op(IORING_OP_URING_CMD), Op(IORING_OP_URING_CMD128)],
    ),
    known("nvme::admin_parts", "takes a vector of one part", &[Op(IORING_OP_URING_CMD)]),
    known(
        "iopoll::no_queues",
        "reads and writes any file with O_DIRECT",
        &[Setup(IORING_SETUP_IOPOLL), Setup(IORING_SETUP_HYBRID_IOPOLL)],
    ),
    known(
        "hostile::unmapped",
        "A buffer ring in private memory must stay mapped",
        &[Reg(IORING_REGISTER_PBUF_RING)],
    ),
    known(
        "effects::notification_waits_for_ack",
        "No event wakes a thread when the acknowledgement has come",
        &[Op(IORING_OP_SEND_ZC), Op(IORING_OP_SENDMSG_ZC)],
    ),
    known(
        "fair::exclusive_poll",
        "takes the wake-up of a connection from an ACCEPT behind it",
        &[Op(IORING_OP_POLL_ADD), Op(IORING_OP_ACCEPT)],
    ),
    known(
        "fair::accept_before_worker",
        "If a worker's ACCEPT and an earlier ACCEPT wait for one listener",
        &[Op(IORING_OP_ACCEPT)],
    ),
    known(
        "bundle_ends::wait_all_memory_end",
        "If the second step of a RECV bundle with MSG_WAITALL meets the end of memory",
        &[Op(IORING_OP_RECV)],
    ),
    known(
        "fuzz_found_net::recvmsg_wait_all_in_worker",
        "If a worker runs a RECVMSG with MSG_WAITALL",
        &[Op(IORING_OP_RECVMSG)],
    ),
    known(
        "rw::position_direct",
        "moves the position, as read(2) and write(2) do",
        &[Op(IORING_OP_READ), Op(IORING_OP_WRITE)],
    ),
    known(
        "disconnects::reset_reported_once",
        "If a request has already returned the error of a reset",
        &[Op(IORING_OP_RECV)],
    ),
    known(
        "fuzz_found_conn::peer_close_after_batch",
        "If a CLOSE closes the last descriptor of a file",
        &[Op(IORING_OP_CLOSE)],
    ),
    // These differences concern processes and files and have no row.
    known("effects::iowait", "is idle in the eyes of the system", &[]),
    known("tasks::no_extra_thread_waiting", "need a process with one thread", &[]),
    known("effects::inotify_direct_read", "raise no ACCESS and MODIFY events", &[]),
    known("inherited::child_leaves_read", "is cancelled at once when a forked child ends", &[]),
    known("reissue::shut_while_full", "full unix socket that its own side shuts", &[]),
    known("limits::one_worker", "holds no worker", &[Reg(IORING_REGISTER_IOWQ_MAX_WORKERS)]),
    known(
        "futexv::cancelled_in_batch",
        "A FUTEX_WAITV that a batch cancels",
        &[Op(IORING_OP_FUTEX_WAITV)],
    ),
    known(
        "futexv::nodes",
        "Futexes of NUMA nodes",
        &[Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE), Op(IORING_OP_FUTEX_WAITV)],
    ),
    known(
        "tasks::personality_keeps_rights",
        "changing to them needs the rights for setfsuid(2)",
        &[Reg(IORING_REGISTER_PERSONALITY)],
    ),
];

/// Returns the reason for which `case` may differ.
pub fn reason(case: &str) -> Option<&'static str> {
    KNOWN.iter().find(|k| glob(k.case, case)).map(|k| k.words)
}

/// Differences of the running kernel's other calls, before the named release.
pub const OLD: &[(&str, Release, &str)] =
    &[("timestamp::errors", Release(6, 1), "a failed send increments the number")];

/// Returns the reason for which `case` may differ on a kernel of this release.
pub fn reason_on(kernel: Release, case: &str) -> Option<&'static str> {
    let old = OLD.iter().find(|(path, before, _)| *path == case && kernel < *before);
    old.map(|(.., words)| *words).or_else(|| reason(case))
}

/// Returns the cases that show how `row` differs.
pub fn shown_by(row: Cover) -> impl Iterator<Item = &'static str> {
    KNOWN.iter().filter(move |k| k.rows.contains(&row)).map(|k| k.case)
}
