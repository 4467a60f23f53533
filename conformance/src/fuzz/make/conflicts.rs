//! Conflicts of requests: keeps requests apart if their outcome would depend on who comes first. A
//! program that races with itself says nothing about either side, and nothing in the comparison
//! excuses it.
//!
//! Between two waits for idle, no request touches what another one changes, unless a link orders
//! the two. A request that searches for others, or counts completions, comes before all that may
//! run on a worker, or waits for the next wait for idle.

use super::pool::{FILES, Key, Made, WORLD, buf_key, is_child, is_file, is_slot, ud_key};
use crate::fuzz::exec::arena::FUTEXES;
use crate::fuzz::program::{Sqe, Val};
use softring_uapi::*;

/// Requests that a request searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Nobody,
    One(u64),
    Anybody,
}

/// Properties of a queued request.
#[derive(Clone, Debug)]
pub struct Piece {
    ud: u64,
    keys: Vec<Key>,
    aim: Aim,
    /// Flag, true if the request does everything, up to its wait, when it is submitted.
    steady: bool,
    /// Flag, true if it waits for an event that only a later step brings.
    arms: bool,
    /// Flag, true if it goes on waiting after that event.
    again: bool,
    /// Flag, true if several things may end its wait.
    loud: bool,
    drains: bool,
    notifies: bool,
}

/// A chain that waits when all is idle.
#[derive(Debug)]
struct Armed {
    /// The key of the slot whose event lets the whole chain go; 0 if none surely does.
    by: u64,
    /// Flag, true if the chain does nothing until that event: a request alone, which nothing else
    /// wakes.
    quiet: bool,
    again: bool,
    keys: Vec<Key>,
}

impl Armed {
    /// Returns whether a request with these keys wakes it.
    fn woken(&self, keys: &[Key]) -> bool {
        self.quiet && keys.iter().any(|k| k.0 == self.by)
    }

    /// Returns the keys of the chain without that of its event.
    fn other_keys(&self) -> Vec<Key> {
        self.keys.iter().copied().filter(|k| k.0 != self.by).collect()
    }
}

/// Requests that may still run, and requests that wait.
#[derive(Debug, Default)]
pub struct Conflicts {
    moving: Vec<Piece>,
    armed: Vec<Armed>,
    /// Flag, true if a drain was queued: later requests may start late.
    drained: bool,
    /// Requests queued since the drain: a request that searches for one of them finds it before it
    /// starts, or after it has ended.
    late: Vec<u64>,
}

fn clash(a: Key, b: Key) -> bool {
    let covers = |a: u64, b: u64| match a {
        FILES => is_file(b),
        WORLD => is_slot(b) || b == FILES,
        _ => false,
    };
    (a.1 || b.1) && (a.0 == b.0 || covers(a.0, b.0) || covers(b.0, a.0))
}

/// Returns the slot whose event a request with these keys waits for.
fn event_of(keys: &[Key]) -> Option<u64> {
    let of_one = |key: &u64| {
        is_slot(*key) || is_child(*key) || *key == buf_key(FUTEXES) || *key >= ud_key(0)
    };
    keys.iter().map(|k| k.0).find(of_one)
}

fn clashes(a: &[Key], b: &[Key]) -> bool {
    a.iter().any(|&a| b.iter().any(|&b| clash(a, b)))
}

fn aim(sqe: &Sqe) -> Aim {
    let multishot = sqe.op_flags & IORING_TIMEOUT_MULTISHOT != 0;
    match (sqe.op, &sqe.addr) {
        // The timeout counts completions, from the moment when it is armed.
        (IORING_OP_TIMEOUT, _) if sqe.off != Val::Num(0) && !multishot => Aim::Anybody,
        (IORING_OP_ASYNC_CANCEL, _) if sqe.op_flags != 0 => Aim::Anybody,
        (IORING_OP_ASYNC_CANCEL | IORING_OP_POLL_REMOVE | IORING_OP_TIMEOUT_REMOVE, addr) => {
            if let Val::Num(ud) = addr {
                Aim::One(*ud)
            } else {
                Aim::Nobody
            }
        }
        _ => Aim::Nobody,
    }
}

/// Returns whether a request does everything on the submitter's thread. A request that waits for a
/// stream does; a request on files or names may need a worker; and a short time may pass before or
/// after anything else.
fn steady(made: &Made) -> bool {
    let by_op = match made.sqe.op {
        IORING_OP_NOP
        | IORING_OP_POLL_ADD
        | IORING_OP_POLL_REMOVE
        | IORING_OP_ASYNC_CANCEL
        | IORING_OP_TIMEOUT
        | IORING_OP_TIMEOUT_REMOVE
        | IORING_OP_LINK_TIMEOUT
        | IORING_OP_PROVIDE_BUFFERS
        | IORING_OP_REMOVE_BUFFERS => !made.soon,
        IORING_OP_READ
        | IORING_OP_READV
        | IORING_OP_READ_FIXED
        | IORING_OP_READV_FIXED
        | IORING_OP_WRITE
        | IORING_OP_WRITEV
        | IORING_OP_WRITE_FIXED
        | IORING_OP_WRITEV_FIXED
        | IORING_OP_READ_MULTISHOT
        | IORING_OP_SEND
        | IORING_OP_RECV
        | IORING_OP_SENDMSG
        | IORING_OP_RECVMSG
        | IORING_OP_ACCEPT
        | IORING_OP_FUTEX_WAIT => made.arms,
        _ => false,
    };
    // A request that polls first may end later, or at once.
    let first = !matches!(made.sqe.op, IORING_OP_POLL_ADD) && made.sqe.ioprio != 0;
    by_op && !first && made.sqe.flags & (IOSQE_ASYNC | IOSQE_IO_DRAIN) == 0
}

fn notifies(op: u8) -> bool {
    matches!(op, IORING_OP_SEND_ZC | IORING_OP_SENDMSG_ZC)
}

impl Conflicts {
    /// Returns the properties of `made`, the next of `chain`.
    pub fn piece(&self, ud: u64, made: &Made, chain: &[Piece]) -> Piece {
        let multi = made.sqe.op == IORING_OP_POLL_ADD && made.sqe.len & IORING_POLL_ADD_MULTI != 0;
        let timeout = made.sqe.op == IORING_OP_TIMEOUT;
        Piece {
            ud,
            keys: made.keys.clone(),
            aim: aim(&made.sqe),
            steady: steady(made) && !self.drained && chain.iter().all(|p| p.steady),
            arms: made.arms,
            again: multi || made.again || timeout,
            loud: made.loud || timeout,
            drains: made.sqe.flags & IOSQE_IO_DRAIN != 0,
            notifies: notifies(made.sqe.op),
        }
    }

    /// Returns whether the request would wait for ever: the kernel's barrier waits for the
    /// notification of a SEND_ZC behind it, and the notification for the SEND_ZC.
    pub fn stuck(&self, made: &Made, chain: &[Piece]) -> bool {
        let drains = made.sqe.flags & IOSQE_IO_DRAIN != 0;
        let own =
            notifies(made.sqe.op) && (drains || self.drained || chain.iter().any(|p| p.drains));
        own || drains && chain.iter().any(|p| p.notifies)
    }

    /// Returns whether the request may be queued now, as the next of `chain`.
    pub fn fits(&self, new: &Piece, chain: &[Piece]) -> bool {
        let aimed = |a: &Piece, b: &Piece| match a.aim {
            Aim::Nobody => false,
            Aim::One(ud) => b.ud == ud || b.aim == a.aim,
            Aim::Anybody => true,
        };
        let races = |old: &Piece| {
            clashes(&old.keys, &new.keys) || !old.steady && (aimed(old, new) || aimed(new, old))
        };
        // A barrier that ends passes all its requests to workers at once: a request that searches
        // among these finds some.
        let late = match new.aim {
            Aim::Nobody => false,
            Aim::One(ud) => self.late.contains(&ud),
            Aim::Anybody => self.drained,
        };
        // A request that a worker has cancelled may be found once more, until its submitter ends
        // it.
        let again = |old: &Piece| old.aim != Aim::Nobody && old.aim == new.aim && !old.steady;
        if late || chain.iter().any(again) || self.moving.iter().any(races) {
            return false;
        }
        self.armed.iter().all(|old| match (old.woken(&new.keys), old.quiet) {
            (true, _) => {
                // Once woken, the request runs beside the rest of its waker's chain.
                let alone = chain.iter().all(|p| p.keys.iter().all(|k| k.0 != old.by));
                let others_keys = old.other_keys();
                let others = || self.moving.iter().chain(chain).chain([new]);
                alone && !others().any(|p| clashes(&others_keys, &p.keys))
            }
            (false, true) => {
                !chain.iter().any(|p| old.woken(&p.keys) && clashes(&old.other_keys(), &new.keys))
            }
            (false, false) => !clashes(&old.keys, &new.keys),
        })
    }

    /// Records a queued chain, or a request alone; `soon` if a short time limits one of its
    /// requests.
    pub fn queued(&mut self, mut chain: Vec<Piece>, soon: bool, drain: bool) {
        self.drained |= drain;
        if self.drained {
            self.late.extend(chain.iter().map(|p| p.ud));
        }
        if soon || self.drained {
            chain.iter_mut().for_each(|p| p.steady = false);
        }
        let woken: Vec<Piece> = self
            .armed
            .iter()
            .filter_map(|a| {
                let woken = chain.iter().any(|p| a.woken(&p.keys));
                let piece = |keys| Piece {
                    ud: 0,
                    keys,
                    aim: Aim::Nobody,
                    steady: false,
                    arms: true,
                    again: false,
                    loud: false,
                    drains: false,
                    notifies: false,
                };
                woken.then(|| piece(a.keys.clone()))
            })
            .collect();
        self.armed.retain(|a| a.again || !chain.iter().any(|p| a.woken(&p.keys)));
        self.moving.extend(woken);
        let waits: Vec<&Piece> = chain.iter().filter(|p| p.arms).collect();
        if !waits.is_empty() || self.drained {
            let plain = match waits[..] {
                [one] if !self.drained && !one.loud => Some(one),
                _ => None,
            };
            let by = plain.and_then(|one| event_of(&one.keys)).unwrap_or(0);
            let again = waits.iter().any(|p| p.again);
            let quiet = by != 0 && chain.len() == 1 && !soon;
            let by = if again && !quiet { 0 } else { by };
            let keys = chain.iter().flat_map(|p| p.keys.iter().copied()).collect();
            self.armed.push(Armed { by, quiet, again, keys });
        }
        self.moving.extend(chain);
    }

    /// Records that everything that can run has run.
    pub fn all_idle(&mut self) {
        self.moving.clear();
    }

    /// Records an event of a slot, whose waiting requests have run.
    pub fn happened(&mut self, key: u64) {
        self.armed.retain(|a| a.by != key || a.again);
    }
}
