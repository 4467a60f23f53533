//! Effects of requests beside their results: what the rest of the system sees.

use super::prelude::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::fs::inotify;

pub const CASES: &[Case] = &[
    case!("effects", iowait, [Enter(IORING_ENTER_NO_IOWAIT)],
        "a thread in io_uring_enter counts as waiting for I/O, unless NO_IOWAIT is set"),
    any_order!("effects", inotify_direct_read, [Op(IORING_OP_READ)], "inotify reports O_DIRECT reads"),
    case!("effects", notification_waits_for_ack, [Op(IORING_OP_SEND_ZC)],
        "the zero-copy notification waits until the peer has acknowledged the data"),
];

/// Returns the number of tasks of the whole system that wait for I/O.
fn waiting() -> Result<u32, Stop> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().find_map(|l| l.strip_prefix("procs_blocked "));
    line.and_then(|n| n.parse().ok()).ok_or_else(|| Stop::Skip("no procs_blocked".into()))
}

/// Submits a read of an empty pipe, and waits for it.
fn waiter(entry: EntryPoint, flag: u32) -> i32 {
    let Ok(mut ring) = Ring::with(entry, 4, io_uring_params::default()) else { return 1 };
    let Ok((r, _w)) = rustix::pipe::pipe() else { return 2 };
    let mut buf = [0u8; 8];
    ring.push(sqe::read(r.as_raw_fd(), &mut buf, sqe::HERE));
    ring.enter(1, 1, IORING_ENTER_GETEVENTS | flag);
    3
}

fn iowait(cx: &mut Cx) -> Outcome {
    const WAITERS: u32 = 48;
    let entry = cx.entry;
    for (what, flag) in [("usually", 0), ("with NO_IOWAIT", IORING_ENTER_NO_IOWAIT)] {
        let waiters: Vec<i32> =
            (0..WAITERS).map(|_| os::spawn_child(|| waiter(entry, flag))).collect();
        // Other programs of this machine wait for I/O as well, now and then.
        let mut least = u32::MAX;
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(25));
            let now = waiting()?;
            least = if now >= WAITERS { now } else { least.min(now) };
            if flag == 0 && now >= WAITERS {
                break;
            }
        }
        for pid in waiters {
            os::signal(pid, libc::SIGKILL);
            os::wait_for(pid);
        }
        cx.note(what, if least >= WAITERS { "waits for I/O" } else { "idle" });
    }
    Ok(())
}

fn inotify_direct_read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let direct = cx.direct_file("f", &[7; 4096])?;
    // A worker reads dirty pages.
    rustix::fs::fsync(&direct)?;
    let page = os::page(libc::PROT_READ | libc::PROT_WRITE);
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
    let path = cx.path("f")?;
    inotify::add_watch(&watch, path, inotify::WatchFlags::ACCESS)?;
    let read = sqe::rw(IORING_OP_READ, direct.as_raw_fd(), page, 4096, 0);
    cx.one(&mut ring, "read", read, 4096);
    let mut event = [0u8; 64];
    let told = rustix::io::read(&watch, &mut event).is_ok();
    cx.note("past the page cache", if told { "told" } else { "not told" });
    let plain = cx.file("f", &[7; 4096])?;
    while rustix::io::read(&watch, &mut event).is_ok() {}
    cx.one(&mut ring, "read", sqe::rw(IORING_OP_READ, plain.as_raw_fd(), page, 4096, 0), 4096);
    cx.holds("from it, told", rustix::io::read(&watch, &mut event).is_ok());
    Ok(())
}

/// Receives until `one` has nothing left to send; returns whether that took at most two seconds.
fn take_all(one: &TcpStream, mut two: &TcpStream) -> Result<bool, Stop> {
    let mut buf = vec![0u8; 1 << 20];
    two.set_read_timeout(Some(Duration::from_millis(5)))?;
    for _ in 0..400 {
        match two.read(&mut buf) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e.into()),
            _ if os::outq(one.as_raw_fd()) == 0 => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

fn notification_waits_for_ack(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut one = TcpStream::connect(listener.local_addr()?)?;
    let mut two = listener.accept()?.0;
    one.set_nonblocking(true)?;
    while one.write(&[7; 65536]).is_ok() {}
    // The sender has some room; the path has none.
    two.read_exact(&mut vec![0; 65536])?;
    let mut tries = 0;
    while os::poll(one.as_raw_fd(), libc::POLLOUT, 10) == 0 && tries < 200 {
        two.read_exact(&mut vec![0; 65536])?;
        tries += 1;
    }
    let data = [9u8; 1000];
    let send = sqe::rw(IORING_OP_SEND_ZC, one.as_raw_fd(), addr(&data), data.len(), 0);
    cx.one(&mut ring, "sent", send.ud(5), 1000);
    cx.quiet(&ring, "not acknowledged: notifications", 50);
    cx.holds("acknowledged", take_all(&one, &two)?);
    let got = ring.take(1)?[0];
    cx.eq("notified", (got.user_data, got.flags), (5, IORING_CQE_F_NOTIF));
    Ok(())
}
