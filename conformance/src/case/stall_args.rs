//! Arguments in a page that is served late, while they are copied in or out: no other call waits
//! for the page.

use super::prelude::*;
use super::net;
use super::stall::{Beside, late_page, submit};
use crate::late::LatePage;
use std::ffi::CString;
use std::os::fd::OwnedFd;

pub const CASES: &[Case] = &[
    any_order!(
        "stall_args",
        requests,
        [
            Op(IORING_OP_READV),
            Op(IORING_OP_WRITEV),
            Op(IORING_OP_SENDMSG),
            Op(IORING_OP_SEND),
            Op(IORING_OP_BIND),
            Op(IORING_OP_CONNECT),
            Op(IORING_OP_OPENAT),
            Op(IORING_OP_OPENAT2),
            Op(IORING_OP_LINKAT),
            Op(IORING_OP_UNLINKAT),
            Op(IORING_OP_STATX),
            Op(IORING_OP_FGETXATTR),
            Op(IORING_OP_FSETXATTR),
            Op(IORING_OP_TIMEOUT),
            Op(IORING_OP_TIMEOUT_REMOVE),
            Op(IORING_OP_EPOLL_CTL),
            Op(IORING_OP_FILES_UPDATE),
            Op(IORING_OP_FUTEX_WAIT),
            Op(IORING_OP_FUTEX_WAITV),
            Op(IORING_OP_PIPE)
        ],
        "slow page faults on memory that a request points to"
    ),
    case!(
        "stall_args",
        in_a_chain,
        [Op(IORING_OP_LINK_TIMEOUT), Op(IORING_OP_WRITEV)],
        "slow page faults on memory of later chain requests, while the chain is assembled"
    ),
    any_order!(
        "stall_args",
        copied_by_thread,
        [Op(IORING_OP_OPENAT), Setup(IORING_SETUP_SQPOLL)],
        "slow page faults on memory that an SQ thread copies"
    ),
    any_order!(
        "stall_args",
        registrations,
        [
            Reg(IORING_REGISTER_BUFFERS),
            Reg(IORING_REGISTER_BUFFERS_UPDATE),
            Reg(IORING_REGISTER_FILES_UPDATE),
            Reg(IORING_REGISTER_FILES_UPDATE2),
            Reg(IORING_REGISTER_PROBE),
            Reg(IORING_REGISTER_EVENTFD),
            Reg(IORING_REGISTER_IOWQ_MAX_WORKERS),
            Reg(IORING_REGISTER_PBUF_RING),
            Reg(IORING_REGISTER_PBUF_STATUS),
            Reg(IORING_REGISTER_FILE_ALLOC_RANGE),
            Reg(IORING_REGISTER_CLOCK),
            Reg(IORING_REGISTER_NAPI)
        ],
        "slow page faults on memory that a registration points to"
    ),
    any_order!(
        "stall_args",
        waits,
        [Enter(IORING_ENTER_EXT_ARG)],
        "slow page faults on memory that a wait points to"
    ),
];

/// Files and paths that a request may name.
struct Names {
    file: std::fs::File,
    path: CString,
    socket: std::net::TcpStream,
    unbound: OwnedFd,
    epoll: OwnedFd,
    reader: OwnedFd,
}

impl Names {
    fn file(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn path(&self) -> usize {
        self.path.as_ptr().expose_provenance()
    }
}

/// A request that points into a page, whose words are 0 once it is served, and its result.
type Late = (&'static str, i32, fn(&Names, usize) -> io_uring_sqe);

const CWD: i32 = libc::AT_FDCWD;

const REQUESTS: &[Late] = &[
    ("READV", 0, |n, at| sqe::rw(IORING_OP_READV, n.file(), at, 1, 0)),
    ("WRITEV", 0, |n, at| sqe::rw(IORING_OP_WRITEV, n.file(), at, 1, 0)),
    ("SENDMSG", 0, |n, at| sqe::rw(IORING_OP_SENDMSG, n.socket.as_raw_fd(), at, 1, 0)),
    ("SEND", 1, |n, at| {
        sqe::rw(IORING_OP_SEND, n.socket.as_raw_fd(), n.path(), 1, at as u64)
            .set(|s| s.file_index = 16)
    }),
    ("BIND", -EINVAL, |n, at| sqe::rw(IORING_OP_BIND, n.unbound.as_raw_fd(), at, 0, 16)),
    ("CONNECT", -EINVAL, |n, at| sqe::rw(IORING_OP_CONNECT, n.unbound.as_raw_fd(), at, 0, 16)),
    ("OPENAT", -ENOENT, |_, at| sqe::rw(IORING_OP_OPENAT, CWD, at, 0, 0)),
    ("OPENAT2", -ENOENT, |n, at| sqe::rw(IORING_OP_OPENAT2, CWD, n.path(), 24, at as u64)),
    ("LINKAT", -ENOENT, |n, at| {
        sqe::rw(IORING_OP_LINKAT, CWD, n.path(), CWD.cast_unsigned() as usize, at as u64)
    }),
    ("UNLINKAT", -ENOENT, |_, at| sqe::rw(IORING_OP_UNLINKAT, CWD, at, 0, 0)),
    ("STATX", -ENOENT, |_, at| sqe::rw(IORING_OP_STATX, CWD, at, 0, at as u64)),
    ("FGETXATTR", -libc::ERANGE, |n, at| {
        sqe::rw(IORING_OP_FGETXATTR, n.file(), at, 0, at as u64)
    }),
    ("FSETXATTR", -EOPNOTSUPP, |n, at| {
        sqe::rw(IORING_OP_FSETXATTR, n.file(), n.path(), 8, at as u64)
    }),
    ("TIMEOUT", -ETIME, |_, at| sqe::rw(IORING_OP_TIMEOUT, -1, at, 1, 0)),
    ("TIMEOUT_REMOVE", -ENOENT, |_, at| {
        sqe::rw(IORING_OP_TIMEOUT_REMOVE, -1, 99, 0, at as u64).op_flags(IORING_TIMEOUT_UPDATE)
    }),
    ("EPOLL_CTL", 0, |n, at| {
        let add = libc::EPOLL_CTL_ADD as usize;
        sqe::rw(IORING_OP_EPOLL_CTL, n.epoll.as_raw_fd(), at, add, n.reader.as_raw_fd() as u64)
    }),
    ("FILES_UPDATE", 2, |_, at| sqe::rw(IORING_OP_FILES_UPDATE, -1, at, 2, 0)),
    ("FILES_UPDATE that picks slots", 1, |_, at| {
        sqe::rw(IORING_OP_FILES_UPDATE, -1, at, 1, IORING_FILE_INDEX_ALLOC.into())
    }),
    ("FUTEX_WAIT", -EAGAIN, |_, at| {
        /// `FUTEX2_SIZE_U32 | FUTEX2_PRIVATE`.
        const WORD: i32 = 2 | 128;
        sqe::rw(IORING_OP_FUTEX_WAIT, WORD, at, 0, 1).set(|s| s.addr3 = u32::MAX.into())
    }),
    ("FUTEX_WAITV", -EINVAL, |_, at| sqe::rw(IORING_OP_FUTEX_WAITV, 0, at, 1, 0)),
    ("PIPE", 0, |_, at| sqe::rw(IORING_OP_PIPE, 0, at, 0, 0)),
];

fn names(cx: &mut Cx) -> Result<Names, Stop> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    );
    Ok(Names {
        file: cx.file("f", b"x")?,
        path: cx.path("none")?,
        socket: net::pair()?.0,
        unbound: socket.map_err(std::io::Error::from)?,
        epoll: rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .map_err(std::io::Error::from)?,
        reader: cx.pipe()?.0,
    })
}

/// Runs `stall`, and beside it actions that must not wait for it; returns the result of `stall`.
fn beside(
    cx: &mut Cx,
    ring: &Ring,
    page: &LatePage,
    stall: impl FnOnce() -> isize + Send,
) -> Result<Option<isize>, Stop> {
    let mut beside = Beside::new(cx, ring)?;
    let (answer, late) = page.while_stalled(stall, &mut beside, Beside::ANY);
    cx.eq("waited for the stall", late, vec![]);
    cx.eq("answers", beside.answers, Beside::ANSWERS.to_vec());
    Ok(answer)
}

fn requests(cx: &mut Cx) -> Outcome {
    let names = names(cx)?;
    for &(name, res, make) in REQUESTS {
        let (mut ring, page) = (cx.ring(8, 0)?, late_page()?);
        cx.sparse_files(&ring, 4);
        ring.push(make(&names, page.addr()).ud(2));
        let submitted = beside(cx, &ring, &page, submit(cx.entry, ring.fd))?;
        cx.eq(name, submitted, Some(1));
        cx.reap(&mut ring, "all", &[(2, res), (77, 5)]);
        cx.one(&mut ring, "goes on", sqe::nop(), 0);
    }
    Ok(())
}

fn in_a_chain(cx: &mut Cx) -> Outcome {
    let (names, far) = (names(cx)?, kernel_timespec { tv_sec: 100, tv_nsec: 0 });
    let (mut ring, page) = (cx.ring(8, 0)?, late_page()?);
    ring.push(sqe::nop().link().ud(1));
    ring.push(sqe::timeout(&far, 0, 0).link().ud(2));
    ring.push(sqe::rw(IORING_OP_LINK_TIMEOUT, -1, page.addr(), 1, 0).link().ud(3));
    ring.push(sqe::rw(IORING_OP_WRITEV, names.file(), page.addr(), 1, 0).ud(4));
    let (entry, fd) = (cx.entry, ring.fd);
    let submit = move || entry::enter(entry, fd, 4, 0, 0, 0, 0);
    let submitted = beside(cx, &ring, &page, submit)?;
    cx.eq("submitted", submitted, Some(4));
    cx.reap(
        &mut ring,
        "all",
        &[(1, 0), (2, -libc::ECANCELED), (3, -ETIME), (4, -libc::ECANCELED), (77, 5)],
    );
    Ok(())
}

fn copied_by_thread(cx: &mut Cx) -> Outcome {
    let (mut ring, page) = (cx.ring(8, IORING_SETUP_SQPOLL)?, late_page()?);
    ring.push(sqe::rw(IORING_OP_OPENAT, CWD, page.addr(), 0, 0).ud(2));
    let (entry, fd) = (cx.entry, ring.fd);
    let wake = move || entry::enter(entry, fd, 1, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
    let submitted = beside(cx, &ring, &page, wake)?;
    cx.eq("submitted", submitted, Some(1));
    cx.reap(&mut ring, "all", &[(2, -ENOENT), (77, 5)]);
    Ok(())
}

/// A registration: its argument, given the page's address, its count, and its result.
type Registration = (&'static str, u32, fn(u64) -> [u64; 5], u32, isize);

/// An argument that is the page itself.
const PAGE: fn(u64) -> [u64; 5] = |_| [0; 5];

const REGISTRATIONS: &[Registration] = &[
    ("buffers", IORING_REGISTER_BUFFERS, |at| [at, 4096, 0, 0, 0], 1, 0),
    ("vector of buffers", IORING_REGISTER_BUFFERS, PAGE, 1, 0),
    ("buffers update", IORING_REGISTER_BUFFERS_UPDATE, PAGE, 32, -(EINVAL as isize)),
    ("files update", IORING_REGISTER_FILES_UPDATE, PAGE, 1, -(EFAULT as isize)),
    ("files of an update", IORING_REGISTER_FILES_UPDATE2, |at| [0, at, 0, 2, 0], 32, 2),
    ("probe", IORING_REGISTER_PROBE, PAGE, 8, 0),
    ("eventfd", IORING_REGISTER_EVENTFD, PAGE, 1, -(EINVAL as isize)),
    ("workers", IORING_REGISTER_IOWQ_MAX_WORKERS, PAGE, 2, 0),
    ("buffer ring", IORING_REGISTER_PBUF_RING, |at| [at, 8, 0, 0, 0], 1, 0),
    ("buffer ring's argument", IORING_REGISTER_PBUF_RING, PAGE, 1, -(EINVAL as isize)),
    ("buffer ring's status", IORING_REGISTER_PBUF_STATUS, PAGE, 1, -(ENOENT as isize)),
    ("range of slots", IORING_REGISTER_FILE_ALLOC_RANGE, PAGE, 0, 0),
    ("clock", IORING_REGISTER_CLOCK, PAGE, 0, -(EINVAL as isize)),
    ("napi", IORING_REGISTER_NAPI, PAGE, 1, 0),
];

fn registrations(cx: &mut Cx) -> Outcome {
    for &(name, opcode, make, nr, answer) in REGISTRATIONS {
        let (mut ring, page) = (cx.ring(8, 0)?, late_page()?);
        cx.sparse_files(&ring, 4);
        let made = make(page.addr() as u64);
        let arg = if made == [0; 5] { page.addr() } else { addr(&made) };
        let (entry, fd) = (cx.entry, ring.fd);
        let register = move || entry::register(entry, fd, opcode, arg, nr);
        let answered = beside(cx, &ring, &page, register)?;
        cx.eq(name, answered, Some(answer));
        cx.reap(&mut ring, "message", &[(77, 5)]);
        cx.one(&mut ring, "goes on", sqe::nop(), 0);
    }
    Ok(())
}

fn waits(cx: &mut Cx) -> Outcome {
    let flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
    for name in ["argument", "time", "mask"] {
        let (mut ring, page) = (cx.ring(8, 0)?, late_page()?);
        let (mut ext, at) = (io_uring_getevents_arg::default(), page.addr() as u64);
        match name {
            "time" => ext.ts = at,
            "mask" => (ext.sigmask, ext.sigmask_sz) = (at, 8),
            _ => {}
        }
        let arg = if name == "argument" { page.addr() } else { addr(&ext) };
        let (entry, fd) = (cx.entry, ring.fd);
        let wait = move || entry::enter(entry, fd, 0, 1, flags, arg, size_of_val(&ext));
        let waited = beside(cx, &ring, &page, wait)?;
        cx.eq(name, waited, Some(0));
        cx.reap(&mut ring, "message", &[(77, 5)]);
    }
    Ok(())
}
