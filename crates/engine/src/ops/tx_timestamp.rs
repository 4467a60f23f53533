//! URING_CMD SOCKET_URING_OP_TX_TIMESTAMP: a 32-byte CQE for each time that a socket has put into
//! its error queue. Kernel counterpart: `io_uring_cmd_timestamp` in `io_uring/cmd_net.c`.
//!
//! The request is registered in the poll set, edge-triggered, until it is cancelled. The kernel
//! picks the times out of the error queue; recvmsg(2) takes whatever lies in front. So sockets that
//! can have other entries there are refused, or left alone.

use crate::io::socket::has_error_queue;
use crate::io::token::ReqId;
use crate::memory::cq::Cqe;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::Outcome;
use crate::ring::request::{Call, ReqFlags};
use alloc::vec::Vec;
use softring_host::calls::Incoming;
use softring_host::sys;
use softring_host::sys::nr::{EPOLLERR, EPOLLET};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{self, Change};
use softring_uapi::*;

const SOL_IP: u32 = 0;
const SOL_SOCKET: u32 = 1;
const SOL_IPV6: u32 = 41;
const IP_RECVERR: u32 = 11;
const IPV6_RECVERR: u32 = 25;
const SOL_PACKET: u32 = 263;
const PACKET_TX_TIMESTAMP: u32 = 16;
const SO_TIMESTAMPING_OLD: u32 = 37;
const SO_ZEROCOPY: u32 = 60;
const SO_TIMESTAMPING_NEW: u32 = 65;
const SOF_TIMESTAMPING_SOFTWARE: i32 = 1 << 4;
const SOF_TIMESTAMPING_RAW_HARDWARE: i32 = 1 << 6;
const SOF_TIMESTAMPING_OPT_TSONLY: i32 = 1 << 11;
const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;
const ENOMSG: u32 = 42;
const MSG_DONTWAIT: u32 = 0x40;
const MSG_ERRQUEUE: u32 = 0x2000;
const EVENTS: u32 = EPOLLERR | EPOLLET;
/// Bytes for the control data of one message of the error queue, with some to spare.
const ROOM: usize = 512;

/// Waits for times, if the ring has CQEs of 32 bytes (`wide`).
pub(crate) fn issue(call: &Call, wide: bool) -> Result<Outcome> {
    if !wide {
        return Err(Errno::EINVAL);
    }
    if shares_queue(call.file.fd()) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(Outcome::Polled(EVENTS))
}

/// Returns whether errors, or reports on buffers sent without a copy, may lie in the queue, too.
fn shares_queue(fd: i32) -> bool {
    let on = |level, name| sys::socket_option(fd, level, name).is_ok_and(|v: i32| v != 0);
    on(SOL_IP, IP_RECVERR) || on(SOL_IPV6, IPV6_RECVERR) || on(SOL_SOCKET, SO_ZEROCOPY)
}

/// Posts times after an event of the error queue.
pub(crate) fn fired(ctx: &mut Ctx, id: ReqId, _: u32) {
    let Some(req) = ctx.reqs.slab.get(id) else { return };
    if req.flags.contains(ReqFlags::ORPHAN) {
        ctx.poll_leave(id, false);
        return ctx.complete(id, Errno::ECANCELED.res());
    }
    let (fd, user_data) = (req.call.file.fd(), req.user_data);
    if shares_queue(fd) {
        return;
    }
    let mixed = ctx.setup.flags & IORING_SETUP_CQE_MIXED != 0;
    // A time that finds no room stays in the queue for the next event, if the request goes on.
    while ctx.mem.cq_takes_wide(&ctx.completion.overflow) {
        let Some(stamp) = take(fd) else { return };
        let flags = stamp.flags | if mixed { IORING_CQE_F_32 } else { 0 };
        let _ = ctx.post_shot(Cqe { user_data, res: stamp.key, flags, big: stamp.time });
    }
    if version::has(Change::TimesEnd) && has_times(fd) {
        ctx.poll_leave(id, false);
        ctx.complete(id, Errno::ENOBUFS.res());
    }
}

/// A time from the error queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    /// Number of the packet, or of its last byte.
    key: i32,
    /// Event at that time, as in the CQE.
    flags: u32,
    /// Seconds and nanoseconds.
    time: [u64; 2],
}

/// Returns whether there may be times in the error queue without their packets.
fn has_times(fd: i32) -> bool {
    has_error_queue(fd)
        && sys::socket_option::<i32>(fd, SOL_SOCKET, SO_TIMESTAMPING_OLD).is_ok_and(|wants| {
            wants & SOF_TIMESTAMPING_OPT_TSONLY != 0
                && wants & (SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RAW_HARDWARE) != 0
        })
}

/// Takes the next time out of the error queue. A time whose packet lies there with it, or that is
/// not wanted, stays (`skb_has_tx_timestamp`).
fn take(fd: i32) -> Option<Stamp> {
    if !has_times(fd) {
        return None;
    }
    let mut control = [0u64; ROOM / 8];
    loop {
        let to = Incoming::new(&[]).with_control(&mut control);
        let (_, hdr) = to.receive(fd, MSG_ERRQUEUE | MSG_DONTWAIT).ok()?;
        let bytes: Vec<u8> = control.iter().flat_map(|w| w.to_ne_bytes()).collect();
        if let Some(stamp) = parse(bytes.get(..hdr.controllen as usize)?) {
            return Some(stamp);
        }
    }
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(b.get(at..at + 4)?.try_into().ok()?))
}

fn long(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

/// Reads the control data of a message in the error queue; none if it tells no time.
fn parse(mut control: &[u8]) -> Option<Stamp> {
    const HEADER: usize = 16;
    let (mut about, mut time) = (None, None);
    while let Some(len) = long(control, 0)
        && let Some(data) = control.get(HEADER..len as usize)
    {
        match (word(control, 8)?, word(control, 12)?) {
            (SOL_IP, IP_RECVERR) | (SOL_IPV6, IPV6_RECVERR) | (SOL_PACKET, PACKET_TX_TIMESTAMP) => {
                about = error(data)
            }
            (SOL_SOCKET, SO_TIMESTAMPING_OLD | SO_TIMESTAMPING_NEW) => time = when(data),
            _ => {}
        }
        let Some(rest) = control.get((len as usize).next_multiple_of(8)..) else { break };
        control = rest;
    }
    let ((key, kind), (time, hardware)) = (about?, time?);
    Some(Stamp { key, flags: kind << IORING_TIMESTAMP_TYPE_SHIFT | hardware, time })
}

/// Reads the `struct sock_extended_err` of a time: its packet's number, and what happened.
fn error(b: &[u8]) -> Option<(i32, u32)> {
    let time = word(b, 0)? == ENOMSG && *b.get(4)? == SO_EE_ORIGIN_TIMESTAMPING;
    time.then_some((word(b, 12)?.cast_signed(), word(b, 8)?))
}

/// Reads a `struct scm_timestamping`: the time by software, else by hardware.
fn when(b: &[u8]) -> Option<([u64; 2], u32)> {
    let at = |i: usize| Some([long(b, i)?, long(b, i + 8)?]);
    let (software, hardware) = (at(0)?, at(32)?);
    let by_software = software != [0; 2];
    Some(if by_software { (software, 0) } else { (hardware, IORING_CQE_F_TSTAMP_HW) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: u32, kind: u32, words: &[u64]) -> Vec<u64> {
        let head = [16 + 8 * words.len() as u64, u64::from(kind) << 32 | u64::from(level)];
        [&head[..], words].concat()
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    /// A time's `sock_extended_err`: acknowledged, packet 7.
    const ACKED: [u64; 2] = [42 | 4 << 32, 7 << 32 | 2];

    #[test]
    fn a_time_is_read_by_software_and_by_hardware() {
        let about = message(SOL_IP, IP_RECVERR, &ACKED);
        let times = message(SOL_SOCKET, SO_TIMESTAMPING_OLD, &[5, 6, 0, 0, 8, 9]);
        let flags = 2 << IORING_TIMESTAMP_TYPE_SHIFT;
        let stamp = Stamp { key: 7, flags, time: [5, 6] };
        assert_eq!(parse(&bytes(&[times, about.clone()].concat())), Some(stamp));
        let times = message(SOL_SOCKET, SO_TIMESTAMPING_OLD, &[0, 0, 0, 0, 8, 9]);
        let flags = flags | IORING_CQE_F_TSTAMP_HW;
        let stamp = Stamp { key: 7, flags, time: [8, 9] };
        assert_eq!(parse(&bytes(&[about, times].concat())), Some(stamp));
    }

    #[test]
    fn other_messages_are_not_times() {
        let times = message(SOL_SOCKET, SO_TIMESTAMPING_OLD, &[5, 6, 0, 0, 0, 0]);
        let refused = message(SOL_IP, IP_RECVERR, &[111 | 2 << 32, 0]);
        assert_eq!(parse(&bytes(&[times.clone(), refused].concat())), None);
        assert_eq!(parse(&bytes(&times)), None);
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&bytes(&[u64::MAX, 0])), None);
        assert_eq!(parse(&bytes(&[8, 0, 8, 0])), None);
    }
}
