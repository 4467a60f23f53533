//! The position that a file keeps itself: where a request asks for it, or where the file knows no
//! other. Kernel counterpart: `kiocb_update_pos`, `kiocb_done`.

use crate::ops::rw::{CURRENT, finish, total, transfer};
use crate::ring::opdef::Outcome;
use crate::ring::request::Call;
use softring_host::fd::kind::Kind;
use softring_host::sys::sys;

const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;

/// Writes what a file left undone at its own position.
pub(crate) fn rest_at_position(call: &mut Call, kind: Kind, flags: u32) -> Outcome {
    let total = total(call);
    while kind != Kind::Pollable && call.done < total {
        match transfer(call, kind, flags) {
            Ok(0) => break,
            Ok(n) => call.done += n as u64,
            Err(_) => {
                put_back(call, kind);
                break;
            }
        }
    }
    finish(call, total)
}

/// The last attempt has failed, though bytes went before: then the position stays where it was at
/// first (`kiocb_done`).
pub(crate) fn put_back(call: &Call, kind: Kind) {
    if call.io.off == CURRENT && kind != Kind::Pollable {
        let back = call.done.cast_signed().wrapping_neg();
        sys!(__NR_lseek, call.file.fd(), back.cast_unsigned(), SEEK_CUR);
    }
}

/// The file takes no positions, which io_uring does not ask about: a seq_file written to, as
/// /proc/PID/comm, or one without any, as /proc/kmsg. Its own position serves, and is put back.
pub(crate) fn without_position(call: &mut Call, kind: Kind, flags: u32) -> Outcome {
    let fd = call.file.fd();
    let off = core::mem::replace(&mut call.io.off, CURRENT);
    let before = sys!(__NR_lseek, fd, 0, SEEK_CUR);
    if before >= 0 && before.cast_unsigned() as u64 != off {
        sys!(__NR_lseek, fd, off, SEEK_SET);
    }
    let got = transfer(call, kind, flags);
    call.io.off = off;
    if before >= 0 {
        sys!(__NR_lseek, fd, before.cast_unsigned(), SEEK_SET);
    }
    match got {
        Ok(n) => {
            call.done += n as u64;
            let total = total(call);
            finish(call, total)
        }
        Err(e) => Outcome::Done(e.res()),
    }
}
