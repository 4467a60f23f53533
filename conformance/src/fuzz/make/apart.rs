//! Keeps a program's requests apart where its outcome would depend on who comes first: a program
//! that races with itself says nothing about either side, and nothing in the comparison excuses it.
//!
//! Between two rests, no request touches what another one changes, unless a link orders the two;
//! and what looks for other requests, or counts completions, comes before all that may run on a
//! worker, or waits for the next rest.

use super::pool::{FILES, Key, Made, WORLD, is_file, is_slot};
use crate::fuzz::program::{Sqe, Val};
use softring_engine::abi::*;

/// Which other requests a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Nobody,
    One(u64),
    Anybody,
}

/// What is known of a request that was queued.
#[derive(Clone, Debug)]
pub struct Piece {
    ud: u64,
    keys: Vec<Key>,
    aim: Aim,
    /// Does all it does, up to its wait, when it is submitted.
    steady: bool,
    /// Waits for an event that only a later step brings.
    arms: bool,
    /// Goes on waiting after that event.
    again: bool,
}

/// A chain that waits, at rest.
#[derive(Debug)]
struct Armed {
    /// The key of the slot whose event lets all of it go; 0 if none surely does.
    by: u64,
    keys: Vec<Key>,
}

/// What may still run, and what waits.
#[derive(Debug, Default)]
pub struct Apart {
    moving: Vec<Piece>,
    armed: Vec<Armed>,
    /// A drain was queued: what comes after it may start late.
    drained: bool,
}

fn clash(a: Key, b: Key) -> bool {
    let covers = |a: u64, b: u64| match a {
        FILES => is_file(b),
        WORLD => is_slot(b) || b == FILES,
        _ => false,
    };
    (a.1 || b.1) && (a.0 == b.0 || covers(a.0, b.0) || covers(b.0, a.0))
}

fn clashes(a: &[Key], b: &[Key]) -> bool {
    a.iter().any(|&a| b.iter().any(|&b| clash(a, b)))
}

fn aim(sqe: &Sqe) -> Aim {
    let multishot = sqe.op_flags & IORING_TIMEOUT_MULTISHOT != 0;
    match (sqe.op, &sqe.addr) {
        // It counts completions, from the moment when it is armed.
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

/// Does it do all it does on the submitter's thread? What waits for a stream does; what works on
/// files or names may need a worker; and a short time may pass before or after anything else.
fn steady(made: &Made) -> bool {
    let by_op = match made.sqe.op {
        IORING_OP_NOP
        | IORING_OP_POLL_ADD
        | IORING_OP_POLL_REMOVE
        | IORING_OP_ASYNC_CANCEL
        | IORING_OP_TIMEOUT
        | IORING_OP_TIMEOUT_REMOVE
        | IORING_OP_LINK_TIMEOUT => !made.soon,
        IORING_OP_READ
        | IORING_OP_READV
        | IORING_OP_READ_FIXED
        | IORING_OP_READV_FIXED
        | IORING_OP_WRITE
        | IORING_OP_WRITEV
        | IORING_OP_WRITE_FIXED
        | IORING_OP_WRITEV_FIXED => made.arms,
        _ => false,
    };
    by_op && made.sqe.flags & (IOSQE_ASYNC | IOSQE_IO_DRAIN) == 0
}

impl Apart {
    /// What is to be known of `made`, the next of `chain`.
    pub fn piece(&self, ud: u64, made: &Made, chain: &[Piece]) -> Piece {
        let multi = made.sqe.op == IORING_OP_POLL_ADD && made.sqe.len & IORING_POLL_ADD_MULTI != 0;
        Piece {
            ud,
            keys: made.keys.clone(),
            aim: aim(&made.sqe),
            steady: steady(made) && !self.drained && chain.iter().all(|p| p.steady),
            arms: made.arms,
            again: multi || made.sqe.op == IORING_OP_TIMEOUT,
        }
    }

    /// May it be queued now?
    pub fn fits(&self, new: &Piece) -> bool {
        let aimed = |a: &Piece, b: &Piece| match a.aim {
            Aim::Nobody => false,
            Aim::One(ud) => b.ud == ud,
            Aim::Anybody => true,
        };
        let races = |old: &Piece| {
            clashes(&old.keys, &new.keys) || !old.steady && (aimed(old, new) || aimed(new, old))
        };
        !self.moving.iter().any(races)
            && !self.armed.iter().any(|old| clashes(&old.keys, &new.keys))
    }

    /// A chain, or a request alone, was queued; `soon` if a short time limits one of it.
    pub fn queued(&mut self, mut chain: Vec<Piece>, soon: bool, drain: bool) {
        self.drained |= drain;
        if soon || self.drained {
            chain.iter_mut().for_each(|p| p.steady = false);
        }
        let waits: Vec<&Piece> = chain.iter().filter(|p| p.arms).collect();
        if !waits.is_empty() || self.drained {
            let by = match waits[..] {
                [one] if !one.again && !self.drained => one.keys.first().map_or(0, |k| k.0),
                _ => 0,
            };
            let keys = chain.iter().flat_map(|p| p.keys.iter().copied()).collect();
            self.armed.push(Armed { by, keys });
        }
        self.moving.extend(chain);
    }

    /// Everything that can run has run.
    pub fn rest(&mut self) {
        self.moving.clear();
    }

    /// Something happened to a slot, and what waited for it has run.
    pub fn happened(&mut self, key: u64) {
        self.armed.retain(|a| a.by != key);
    }
}
