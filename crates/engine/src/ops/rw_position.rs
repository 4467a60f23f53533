//! The position that a file keeps itself, for requests that ask for it and files that know no
//! other. Kernel counterpart: `kiocb_update_pos`, `kiocb_done`.

use crate::ops::rw::{finish, transfer};
use crate::ring::op_state::CURRENT;
use crate::ring::opdef::Outcome;
use crate::ring::request::Call;
use softring_host::calls::files;
use softring_host::fd::kind::Kind;
use softring_uapi::errno::Errno;

/// Writes what a file left undone at its own position.
pub(crate) fn write_remaining(call: &mut Call, kind: Kind, flags: u32) -> Outcome {
    let total = call.total();
    while kind != Kind::Pollable && call.io().done < total {
        match transfer(call, kind, flags) {
            Ok(0) => break,
            Ok(n) => _ = call.add_done(n as u64),
            Err(_) => {
                put_back(call, kind);
                break;
            }
        }
    }
    finish(call, total)
}

/// Moves the position back to where it was at first, after the last attempt has failed though bytes
/// went before (`kiocb_done`).
pub(crate) fn put_back(call: &Call, kind: Kind) {
    if call.io().off == CURRENT && kind != Kind::Pollable {
        let back = call.io().done.cast_signed().wrapping_neg();
        let _ = files::move_position(call.file.fd(), back);
    }
}

/// Transfers at the own position of a file that takes no others, and restores it. io_uring does not
/// ask about positions: for a seq_file written to, such as /proc/PID/comm, or a file without any,
/// such as /proc/kmsg.
pub(crate) fn without_position(call: &mut Call, kind: Kind, flags: u32) -> Outcome {
    let fd = call.file.fd();
    let Some(io) = call.state.io_mut() else { return Outcome::Done(Errno::EINVAL.res()) };
    let off = core::mem::replace(&mut io.off, CURRENT);
    let before = files::position(fd);
    if before.is_ok_and(|before| before != off) {
        let _ = files::set_position(fd, off);
    }
    let got = transfer(call, kind, flags);
    if let Some(io) = call.state.io_mut() {
        io.off = off;
    }
    if let Ok(before) = before {
        let _ = files::set_position(fd, before);
    }
    match got {
        Ok(n) => {
            call.add_done(n as u64);
            let total = call.total();
            finish(call, total)
        }
        Err(e) => Outcome::Done(e.res()),
    }
}
