//! Requests that send without copying: on TCP, where they have a second CQE, the notification.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;

use super::super::{Check, ensure, sys};
use super::data::vector;
use super::make::{Waiting, ended, page, took, unread, wrong};
use crate::ring::Cqe;
use crate::sqe;
use softring_uapi::*;

type Sender = fn(RawFd, usize) -> io_uring_sqe;

pub(super) const SENDERS: &[(&str, Sender)] = &[
    ("SEND_ZC", |fd, at| sqe::rw(IORING_OP_SEND_ZC, fd, at + 512, 2, 0)),
    ("SENDMSG_ZC", |fd, at| sqe::rw(IORING_OP_SENDMSG_ZC, fd, at, 1, 0)),
];

/// Makes a connection with small buffers: the sending end, and the other.
fn pair() -> Check<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(wrong)?;
    sys::small_segments(&listener);
    sys::small_buffers(listener.as_raw_fd());
    let from = TcpStream::connect(listener.local_addr().map_err(wrong)?).map_err(wrong)?;
    let (to, _) = listener.accept().map_err(wrong)?;
    sys::small_buffers(from.as_raw_fd());
    Ok((from, to))
}

/// Fills the connection, and returns the number of bytes.
fn fill(from: &TcpStream) -> Check<usize> {
    from.set_nonblocking(true).map_err(wrong)?;
    let mut full = 0;
    while let Ok(n) = rustix::io::write(from, &[7; 4096]) {
        full += n;
    }
    from.set_nonblocking(false).map_err(wrong)?;
    Ok(full)
}

/// Reads the present bytes.
fn drain(to: &TcpStream) -> usize {
    let (mut buf, mut sum) = ([0u8; 4096], 0);
    while unread(to) > 0 {
        sum += rustix::io::read(to, &mut buf).unwrap_or(0);
    }
    sum
}

/// Checks for one result; a notification must be the only one, come last, and be announced.
fn result_and_notification(cqes: &[Cqe]) -> Check {
    let notifies = |c: &Cqe| c.flags & IORING_CQE_F_NOTIF != 0;
    let announced = cqes[0].flags & IORING_CQE_F_MORE != 0;
    let fine = cqes[0].res == 2 || ended(cqes[0].res);
    let shape = match cqes {
        [one] => !notifies(one) && !announced,
        [one, two] => !notifies(one) && announced && notifies(two),
        _ => false,
    };
    ensure(shape && fine, || "no result with its notification".into())
}

/// Makes a request that waits for room in a full connection.
pub(super) fn sender(name: &'static str, sqe: Sender) -> Check<Waiting> {
    let page = page()?;
    vector(&page);
    let (from, to) = pair()?;
    let full = fill(&from)?;
    let fd = from.as_raw_fd();
    let drained = std::sync::Arc::new((to, Mutex::new(0)));
    let kept = drained.clone();
    Ok(Waiting {
        name,
        sqes: vec![sqe(fd, page.addr)],
        fd,
        happen: Box::new(move || {
            *drained.1.lock().expect("nobody panics with it") += drain(&drained.0);
        }),
        account: Box::new(move |cqes, _| {
            result_and_notification(&cqes[0])?;
            from.shutdown(std::net::Shutdown::Write).map_err(wrong)?;
            let mut rest = Vec::new();
            (&kept.0).read_to_end(&mut rest).map_err(wrong)?;
            // A reset leaves no port in TIME_WAIT.
            sys::reset_on_close(fd);
            let sent = *kept.1.lock().expect("nobody panics with it") + rest.len() - full;
            let told = took(&cqes[0]);
            ensure(sent == told, || format!("{told} sent, {sent} came"))
        }),
        page,
    })
}
