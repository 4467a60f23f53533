//! IORING_CQE_F_SOCK_NONEMPTY of receives from TCP.

use super::net::{arrived, pair, recv};
use super::net_msg::{hdr, part, take};
use super::prelude::*;
use libc::{MSG_DONTWAIT, MSG_OOB};
use rustix::net::{RecvFlags, SendFlags};
use std::net::TcpStream;

pub const CASES: &[Case] = &[
    any_order!("net_left", urgent_byte, [Op(IORING_OP_RECV), Op(IORING_OP_RECVMSG)], "a receive that stops before an urgent byte says that there is more"),
    any_order!("net_left", urgent_byte_taken, [Op(IORING_OP_RECV)], "so does one that stops where an urgent byte was taken"),
    any_order!("net_left", low_water, [Op(IORING_OP_RECV)], "so does one that leaves less than the low-water mark"),
];

/// Sends `text`, whose last byte is urgent.
fn send_urgent(from: &TcpStream, text: &[u8]) -> Outcome {
    rustix::net::send(from, text, SendFlags::OOB)?;
    Ok(())
}

/// Waits until the socket has urgent data.
fn urgent_arrived(to: &TcpStream) {
    os::poll(to.as_raw_fd(), libc::POLLPRI, 1000);
}

fn urgent_byte(cx: &mut Cx) -> Outcome {
    let mut buf = [0; 16];
    let text = [0; 16];
    for setup in [0, DEFER] {
        for message in [false, true] {
            let mut ring = cx.ring(8, setup)?;
            let (one, two) = pair()?;
            let fd = two.as_raw_fd();
            let parts = [part(&text)];
            let mut header = hdr(&parts);
            let some = match message {
                true => take(fd, &mut header),
                false => recv(fd, &mut buf),
            };
            cx.start(&mut ring, &[some.ud(1)]);
            send_urgent(&one, b"abc!")?;
            cx.reap(&mut ring, "waited", &[(1, 3)]);
            let urgent = recv(fd, &mut buf).op_flags(MSG_OOB as u32);
            cx.one(&mut ring, "the urgent byte", urgent, 1);
            cx.one(&mut ring, "nothing else", some.op_flags(MSG_DONTWAIT as u32), -EAGAIN);
            send_urgent(&one, b"def!")?;
            urgent_arrived(&two);
            cx.one(&mut ring, "at once", some, 3);
            send_urgent(&one, b"ghi!")?;
            arrived(fd, 3);
            cx.one(&mut ring, "behind an urgent byte", some, 3);
        }
    }
    Ok(())
}

fn urgent_byte_taken(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let mut buf = [0; 16];
    send_urgent(&one, b"abc!")?;
    urgent_arrived(&two);
    rustix::net::recv(&two, &mut buf, RecvFlags::OOB)?;
    cx.one(&mut ring, "the data before it", recv(two.as_raw_fd(), &mut buf), 3);
    Ok(())
}

fn low_water(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(8, 0)?;
    let (one, two) = pair()?;
    let mut buf = [0; 4];
    cx.is("mark", os::set_socket(two.as_raw_fd(), libc::SO_RCVLOWAT, 4), 0);
    rustix::io::write(&one, b"abcdef")?;
    arrived(two.as_raw_fd(), 6);
    cx.one(&mut ring, "two bytes left", recv(two.as_raw_fd(), &mut buf), 4);
    Ok(())
}
