//! The credentials of a request: its submitter's, whichever thread runs the request.

use super::prelude::*;
use crate::rights::{self, NOBODY};
use std::ffi::{CStr, CString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;

pub const CASES: &[Case] = &[
    legal!("creds", names, [
        Op(IORING_OP_OPENAT), Op(IORING_OP_UNLINKAT), Op(IORING_OP_MKDIRAT),
        Op(IORING_OP_SYMLINKAT), Op(IORING_OP_STATX), Op(IORING_OP_SETXATTR),
        Op(IORING_OP_GETXATTR), Op(IORING_OP_RENAMEAT), Op(IORING_OP_LINKAT),
    ], "names are looked up by the submitter's ids"),
    legal!("creds", sockets, [Op(IORING_OP_BIND), Op(IORING_OP_CONNECT)], "names of sockets are looked up by the submitter's ids"),
    legal!("creds", regained_before_worker_runs, [
        Sqe(IOSQE_ASYNC),
    ], "rights that return before a worker runs count for the worker"),
    legal!("creds", capabilities, [Sqe(IOSQE_ASYNC)], "capabilities are dropped and regained"),
    legal!("creds", groups, [Sqe(IOSQE_ASYNC)], "groups are dropped and regained"),
    legal!("creds", set_user_id_bit, [
        Op(IORING_OP_WRITE), Op(IORING_OP_FTRUNCATE),
    ], "a write clears the set-user-ID bit unless the submitter may keep it"),
    legal!("creds", two_threads, [
        Setup(IORING_SETUP_ATTACH_WQ),
    ], "threads with other rights share workers"),
    any_order!("creds", real_time, [Op(IORING_OP_READ)], "the real-time I/O class needs a capability"),
    legal!("creds", whole_process, [
        Sqe(IOSQE_ASYNC),
    ], "seteuid(2) counts for requests submitted after it"),
    legal!("creds", sq_thread, [
        Setup(IORING_SETUP_SQPOLL),
    ], "an SQ thread has the rights of the ring's creator"),
    legal!("creds", landlock, [
        Op(IORING_OP_UNLINKAT),
    ], "a thread's Landlock domain binds its requests"),
    legal!("creds", own_umask_and_directory, [Op(IORING_OP_MKDIRAT)], "requests use their thread's own umask and directory"),
];

const HERE: i32 = libc::AT_FDCWD;
const TRUNCATE: u32 = (libc::O_WRONLY | libc::O_TRUNC).cast_unsigned();

pub(super) fn need_root() -> Outcome {
    let root = rustix::process::geteuid().is_root();
    if root { Ok(()) } else { Err(Stop::Skip("takes the rights of root".into())) }
}

/// Creates a file of root's in a directory that others may search.
pub(super) fn file_of_root(cx: &mut Cx) -> Result<CString, Stop> {
    need_root()?;
    std::fs::set_permissions(cx.dir()?, PermissionsExt::from_mode(0o755))?;
    cx.file("f", b"content")?.set_permissions(PermissionsExt::from_mode(0o600))?;
    cx.path("f")
}

pub(super) fn open(path: &CStr) -> io_uring_sqe {
    sqe::rw(IORING_OP_OPENAT, HERE, addr(path), 0, 0).op_flags(TRUNCATE)
}

pub(super) fn unlink(path: &CStr) -> io_uring_sqe {
    sqe::rw(IORING_OP_UNLINKAT, HERE, addr(path), 0, 0)
}

pub(super) fn mkdir(path: &CStr) -> io_uring_sqe {
    sqe::rw(IORING_OP_MKDIRAT, HERE, addr(path), 0o777, 0)
}

/// Submits an open and returns its result; closes the file if one was opened.
pub(super) fn opens(ring: &mut Ring, sqe: io_uring_sqe) -> i32 {
    ring.push(sqe).submit_wait(1);
    opened(ring)
}

/// Same as [`opens`] on a ring with an SQ thread.
pub(super) fn thread_opens(ring: &mut Ring, sqe: io_uring_sqe) -> i32 {
    ring.push(sqe);
    super::sqpoll::go(ring);
    ring.enter(0, 1, IORING_ENTER_GETEVENTS);
    opened(ring)
}

fn opened(ring: &mut Ring) -> i32 {
    let res = ring.pop().map_or(1, |c| c.res);
    if res >= 0 {
        drop(os::own(res));
    }
    res.min(0)
}

fn names(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut ring = cx.ring(4, 0)?;
    let dir = cx.dir()?;
    std::fs::create_dir(dir.join("only"))?;
    std::fs::set_permissions(dir.join("only"), PermissionsExt::from_mode(0o700))?;
    std::fs::write(dir.join("only/g"), b"")?;
    let (inside, new, other) = (cx.path("only/g")?, cx.path("new")?, cx.path("other")?);
    let (mut st, mut value) = (os::zeroed_statx(), *b"value");
    let name = c"user.softring";
    let two = |op, from: &CStr, to: &CStr| {
        let here = HERE.cast_unsigned() as usize;
        sqe::rw(op, HERE, addr(from), here, addr(to) as u64)
    };
    let at = (addr(name), addr_mut(&mut value) as u64, addr(&*path) as u64);
    let attr = |op| sqe::rw(op, HERE, at.0, 5, at.1).set(|s| s.addr3 = at.2);
    let link = sqe::rw(IORING_OP_SYMLINKAT, HERE, addr(&*path), 0, addr(&*new) as u64);
    let statx = sqe::rw(IORING_OP_STATX, HERE, addr(&*inside), 0x7ff, addr_mut(&mut st) as u64);
    let rows = [
        ("rename", two(IORING_OP_RENAMEAT, &path, &other), 0),
        ("rename back", two(IORING_OP_RENAMEAT, &other, &path), 0),
        ("link", two(IORING_OP_LINKAT, &path, &other), 0),
        ("symlink", link, 0),
        ("unlink it", unlink(&new), 0),
        ("unlink the link", unlink(&other), 0),
        ("mkdir", mkdir(&new), 0),
        ("rmdir", unlink(&new).op_flags(libc::AT_REMOVEDIR.cast_unsigned()), 0),
        ("statx", statx, 0),
        ("set an attribute", attr(IORING_OP_SETXATTR), 0),
        ("get it", attr(IORING_OP_GETXATTR), 5),
    ];
    for flags in [0, IOSQE_ASYNC] {
        for (what, sqe, want) in rows {
            let sqe = sqe.with(flags);
            os::file_ids(NOBODY);
            let got = ring.push(sqe.ud(1)).submit_wait(1);
            os::file_ids(0);
            cx.is("submitted", got, 1);
            let res = ring.take(1)?[0].res;
            cx.note_answer(&format!("{what} as nobody"), res);
            cx.holds("refused", res < 0);
            cx.one(&mut ring, &format!("{what} as root"), sqe, want);
        }
        os::file_ids(NOBODY);
        let got = opens(&mut ring, open(&path).with(flags));
        os::file_ids(0);
        cx.is("open as nobody", got, -EACCES);
        let content = cx.content("f")?;
        cx.eq("content", content.len(), b"content".len());
    }
    cx.is("open as root", opens(&mut ring, open(&path)), 0);
    Ok(())
}

pub(super) fn unix_address(path: &CStr) -> [u8; 110] {
    let mut at = [0u8; 110];
    at[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    at[2..2 + path.count_bytes()].copy_from_slice(path.to_bytes());
    at
}

fn sockets(cx: &mut Cx) -> Outcome {
    file_of_root(cx)?;
    let mut ring = cx.ring(4, 0)?;
    let dir = cx.dir()?;
    let _listener = UnixListener::bind(dir.join("at"))?;
    std::fs::set_permissions(dir.join("at"), PermissionsExt::from_mode(0o600))?;
    let (at, new) = (unix_address(&cx.path("at")?), unix_address(&cx.path("new")?));
    let make = sqe::rw(IORING_OP_SOCKET, libc::AF_UNIX, 0, 0, libc::SOCK_STREAM as u64);
    for flags in [0, IOSQE_ASYNC] {
        let sock = cx.one_fd(&mut ring, "socket", make)?;
        let sqe = |op, at: &[u8; 110]| sqe::rw(op, sock.as_raw_fd(), addr(at), 0, 110).with(flags);
        for (what, sqe) in [
            ("connect", sqe(IORING_OP_CONNECT, &at)),
            ("bind", sqe(IORING_OP_BIND, &new)),
        ] {
            os::file_ids(NOBODY);
            let got = ring.push(sqe).submit_wait(1);
            os::file_ids(0);
            cx.is("submitted", got, 1);
            cx.is(&format!("{what} as nobody"), ring.take(1)?[0].res, -EACCES);
        }
        cx.one(&mut ring, "connect as root", sqe(IORING_OP_CONNECT, &at), 0);
    }
    Ok(())
}

fn regained_before_worker_runs(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut ring = cx.ring(4, 0)?;
    os::file_ids(NOBODY);
    let got = opens(&mut ring, open(&path).with(IOSQE_ASYNC));
    os::file_ids(0);
    cx.is("as nobody", got, -EACCES);
    cx.is("as root", opens(&mut ring, open(&path).with(IOSQE_ASYNC)), 0);
    os::file_ids(NOBODY);
    let got = opens(&mut ring, open(&path));
    os::file_ids(0);
    cx.is("as nobody again", got, -EACCES);
    Ok(())
}

fn capabilities(cx: &mut Cx) -> Outcome {
    const DAC_OVERRIDE: u64 = 1 << 1;
    let path = file_of_root(cx)?;
    std::os::unix::fs::chown(cx.dir()?.join("f"), Some(12345), Some(12345))?;
    let mut ring = cx.ring(4, 0)?;
    for flags in [0, IOSQE_ASYNC] {
        let sqe = open(&path).with(flags);
        cx.is("with all", opens(&mut ring, sqe), 0);
        cx.holds("given up", rights::capabilities(DAC_OVERRIDE));
        cx.is("without CAP_DAC_OVERRIDE", opens(&mut ring, sqe), -EACCES);
        cx.holds("back", rights::capabilities(0));
        cx.is("with all", opens(&mut ring, sqe), 0);
    }
    Ok(())
}

fn groups(cx: &mut Cx) -> Outcome {
    const GROUP: u32 = 4711;
    let path = file_of_root(cx)?;
    std::os::unix::fs::chown(cx.dir()?.join("f"), None, Some(GROUP))?;
    std::fs::set_permissions(cx.dir()?.join("f"), PermissionsExt::from_mode(0o660))?;
    let mut ring = cx.ring(4, 0)?;
    for flags in [0, IOSQE_ASYNC] {
        for (what, groups, want) in
            [("with it", &[GROUP][..], 0), ("without", &[], -EACCES), ("with it", &[GROUP], 0)]
        {
            cx.holds("set", rights::set_groups(groups));
            os::file_ids(NOBODY);
            let got = opens(&mut ring, open(&path).with(flags));
            os::file_ids(0);
            cx.is(what, got, want);
        }
    }
    Ok(())
}

fn set_user_id_bit(cx: &mut Cx) -> Outcome {
    file_of_root(cx)?;
    let file = cx.file("bit", b"content")?;
    let mut ring = cx.ring(4, 0)?;
    let write = sqe::write(file.as_raw_fd(), b"x", 0);
    let truncate = sqe::rw(IORING_OP_FTRUNCATE, file.as_raw_fd(), 0, 0, 5);
    for (what, sqe, res) in [("write", write, 1), ("truncate", truncate, 0)] {
        for flags in [0, IOSQE_ASYNC] {
            for (who, id) in [("root", 0), ("nobody", NOBODY)] {
                file.set_permissions(PermissionsExt::from_mode(0o4755))?;
                os::file_ids(id);
                let got = ring.push(sqe.with(flags)).submit_wait(1);
                os::file_ids(0);
                cx.is("submitted", got, 1);
                cx.is(&format!("{what} as {who}"), ring.take(1)?[0].res, res);
                let mode = file.metadata()?.mode() & 0o7777;
                cx.note("mode", format_args!("{mode:o}"));
            }
        }
    }
    Ok(())
}

fn two_threads(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut first = cx.ring(4, 0)?;
    let params = io_uring_params {
        flags: IORING_SETUP_ATTACH_WQ,
        wq_fd: first.fd.cast_unsigned(),
        ..Default::default()
    };
    let mut second = cx.ring_with(4, params)?;
    let (go, wait) = channel::<()>();
    let (tell, told) = channel();
    let sqe = open(&path).with(IOSQE_ASYNC);
    let other = std::thread::spawn(move || {
        let mut got = rights::become_nobody();
        while wait.recv().is_ok() {
            got &= tell.send(opens(&mut first, sqe)).is_ok();
        }
        (first, got)
    });
    for _ in 0..3 {
        go.send(()).map_err(|e| Stop::Fail(e.to_string()))?;
        cx.is("as nobody", told.recv().unwrap_or(1), -EACCES);
        cx.is("as root", opens(&mut second, sqe), 0);
    }
    drop(go);
    let (mut first, all) = other.join().map_err(|_| Stop::Fail("the other thread".into()))?;
    cx.holds("the other thread is through", all);
    cx.is("as root, on the other's ring", opens(&mut first, sqe), 0);
    cx.is("not by a worker", opens(&mut first, open(&path)), 0);
    Ok(())
}

fn real_time(cx: &mut Cx) -> Outcome {
    const REAL_TIME: u16 = 1 << 13;
    const ADMIN_AND_NICE: u64 = 1 << 21 | 1 << 23;
    need_root()?;
    let (file, mut buf) = (cx.file("f", b"content")?, [0u8; 4]);
    let mut ring = cx.ring(4, 0)?;
    let read = sqe::read(file.as_raw_fd(), &mut buf, 0).set(|s| s.ioprio = REAL_TIME);
    cx.one(&mut ring, "with the capability", read, 4);
    cx.holds("given up", rights::capabilities(ADMIN_AND_NICE));
    let got = ring.push(read).submit_wait(1);
    let res = ring.pop().map(|c| c.res);
    cx.holds("regained", rights::capabilities(0));
    cx.is("submitted", got, 1);
    cx.is("without it", res.unwrap_or(1), -EPERM);
    Ok(())
}

fn whole_process(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut ring = cx.ring(4, 0)?;
    for flags in [0, IOSQE_ASYNC] {
        let sqe = open(&path).with(flags);
        cx.is("as root", opens(&mut ring, sqe), 0);
        cx.holds("as nobody", rights::effective_user(NOBODY));
        cx.is("refused", opens(&mut ring, sqe), -EACCES);
        cx.holds("as root", rights::effective_user(0));
        cx.is("opened", opens(&mut ring, sqe), 0);
    }
    Ok(())
}

fn sq_thread(cx: &mut Cx) -> Outcome {
    let path = file_of_root(cx)?;
    let mut of_root = cx.ring(4, IORING_SETUP_SQPOLL)?;
    cx.holds("as nobody", rights::effective_user(NOBODY));
    let of_nobody = cx.ring(4, IORING_SETUP_SQPOLL);
    let got = thread_opens(&mut of_root, open(&path));
    cx.holds("as root", rights::effective_user(0));
    cx.is("root's ring, as nobody", got, 0);
    let mut of_nobody = of_nobody?;
    cx.is("nobody's ring, as root", thread_opens(&mut of_nobody, open(&path)), -EACCES);
    let made = thread_opens(&mut of_nobody, unlink(&path));
    cx.is("nor does it remove", made, -EACCES);
    cx.is("root's ring, as root", thread_opens(&mut of_root, open(&path)), 0);
    Ok(())
}

fn landlock(cx: &mut Cx) -> Outcome {
    let path = cx.path("f")?;
    cx.file("f", b"")?;
    let mut ring = cx.ring(4, 0)?;
    let sqe = unlink(&path).with(IOSQE_ASYNC);
    let missing = cx.path("missing")?;
    cx.one(&mut ring, "a worker is there", unlink(&missing), -ENOENT);
    let other = std::thread::spawn(move || {
        let bound = rights::no_removal();
        let got = if bound { opens(&mut ring, sqe) } else { 0 };
        // A thread inherits the Landlock domain of the thread that creates it.
        let third = std::thread::spawn(move || (opens(&mut ring, sqe), ring));
        (bound, got, third.join())
    });
    let Ok((bound, got, Ok((third, mut ring)))) = other.join() else {
        return Err(Stop::Fail("the other thread".into()));
    };
    if !bound {
        return Err(Stop::Skip("this kernel has no Landlock".into()));
    }
    cx.is("in a domain", got, -EACCES);
    cx.is("by a thread made in it", third, -EACCES);
    cx.one(&mut ring, "outside", sqe, 0);
    Ok(())
}

fn own_umask_and_directory(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let dir = cx.dir()?;
    std::fs::create_dir(dir.join("sub"))?;
    let (sub, there) = (cx.path("sub")?, cx.path("there")?);
    let mask = rights::umask(0o022);
    cx.one(&mut ring, "a worker is there", mkdir(&there), 0);
    let other = std::thread::spawn(move || {
        let own = rights::own_files() && rights::enter_directory(&sub);
        rights::umask(0o077);
        ring.push(mkdir(c"new")).submit_wait(1);
        (own, ring.pop().map_or(1, |c| c.res))
    });
    let (own, made) = other.join().map_err(|_| Stop::Fail("the other thread".into()))?;
    rights::umask(mask);
    cx.holds("files of its own", own);
    cx.is("made", made, 0);
    let mode = std::fs::metadata(dir.join("sub/new")).map(|m| m.mode() & 0o777);
    cx.eq("there, with its mask", mode.ok(), Some(0o700));
    Ok(())
}
