//! Peers of the sockets that batches send to: they say which sockets a send may have filled. A
//! receive of any other, later in the batch, need not ask epoll whether its socket has data.
//!
//! Within a batch, epoll is polled before the first receive that is taken to find nothing. What
//! others send from then on comes at the same time as the batch, and a receive may find it or not.
//! What the batch itself sends is there before the next request is tried: a receive of it ends at
//! once, before all that follows. So epoll is polled again only where a receive's socket may be the
//! peer of one that was sent to.
//!
//! A stream socket has one peer for good. Which it is, no call says; epoll shows it. A send wakes
//! the peer, so a number that is registered for data and has no event after the send is not its
//! peer:
//!
//! ```text
//! poll      takes all events
//! send X    nothing else happens in this batch
//! poll      an event of Y: every other number that is registered is not the peer of X
//! ```
//!
//! Two such polls must say the same, as another thread may take the data before epoll reports
//! them. What is known of X holds for numbers that were registered at the first poll ([`Peers`]
//! counts registrations), and later ones are included by later polls that show no event of theirs.
//! It ends with the close of X ([`History::file`]). If it were wrong, two CQEs of one batch would
//! change places.
//!
//! Not all that was sent need have left a socket of TCP (Nagle's algorithm, a full window): it is
//! asked for that before a poll counts.
//!
//! [`History::file`]: softring_host::fd::history::History::file

use alloc::vec::Vec;

use super::persistent::{Registration, Trust};
use super::poll::PollSet;
use crate::io::socket;
use softring_host::fd::remembered::history;

/// Polls after which the peer of a number is not sought any more, if it is not known by then.
const MOST_TRIES: u8 = 16;

/// The peer that is in no registration.
const NONE: i32 = -1;

/// Knowledge of the peer of one number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer {
    /// The number's file ([`History::file`](softring_host::fd::history::History::file)).
    file: u16,
    tries: u8,
    /// Polls that have agreed, up to [`ENOUGH`].
    polls: u8,
    /// Number of the only registration that may be the peer; [`NONE`]: none is.
    number: i32,
    /// Count of registrations of which that is known.
    of: u64,
}

/// Polls that must agree.
const ENOUGH: u8 = 2;

/// The peers of the numbers that the batches of one ring send to.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: Vec<Peer>,
    /// Registrations for data so far.
    registered: u64,
    /// Polls in the middle of batches so far.
    polls: u64,
    /// Numbers that were sent to since the last poll; the peers of all are known.
    sent: Vec<i32>,
    /// The least count of registrations for which that is so.
    of: u64,
    /// State of the set's events at the end of the last poll.
    at_poll: (u32, usize),
}

/// Record of what a batch has done since epoll was last polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Anything.
    #[default]
    No,
    /// Nothing but receives, and sends to sockets whose peers are known.
    Yes,
    /// One send, to this number.
    Before(i32),
}

/// Returns the count that tells the file of a number from later ones.
fn file(fd: i32) -> Option<u16> {
    Some(history(fd)?.file())
}

impl Peers {
    /// Returns the count that a new registration for data gets.
    pub(super) fn next_registration(&mut self) -> u64 {
        self.registered += 1;
        self.registered
    }

    /// Returns what is known of the peer of `fd`.
    pub(crate) fn of(&self, fd: i32) -> Peer {
        let known = usize::try_from(fd).ok().and_then(|at| self.known.get(at));
        let same = known.filter(|peer| file(fd) == Some(peer.file));
        same.copied().unwrap_or_default()
    }

    /// Returns whether epoll is to be polled before a send: the next poll may show the peer then.
    pub(crate) fn wants_poll(&self, peer: &Peer) -> bool {
        peer.polls < ENOUGH && peer.tries < MOST_TRIES && !self.sent.is_empty()
    }

    fn observe(&mut self, fd: i32, events: &[i32]) {
        let (Ok(at), Some(file)) = (usize::try_from(fd), file(fd)) else { return };
        let before = self.of(fd);
        let mut peer = Peer { file, tries: before.tries.saturating_add(1), ..before };
        match (before.polls, events) {
            // What has an event, and had none at the first poll, is not the peer.
            (1.., _) => {
                peer.polls = before.polls.saturating_add(1).min(ENOUGH);
                if !events.contains(&peer.number) {
                    peer.number = NONE;
                }
            }
            (0, []) => (peer.polls, peer.number, peer.of) = (1, NONE, self.registered),
            (0, &[only]) => (peer.polls, peer.number, peer.of) = (1, only, self.registered),
            _ => {}
        }
        if at >= self.known.len() {
            self.known.resize(at + 1, Peer::default());
        }
        self.known[at] = peer;
    }
}

impl PollSet {
    /// Returns the registration of `fd`, if a receive there would find nothing that a batch has
    /// sent since epoll was polled, and events tell of all else.
    #[inline]
    pub(crate) fn unfilled(&self, fd: i32) -> Option<&Registration> {
        let s = self.registrations.get(usize::try_from(fd).ok()?)?;
        let Peers { sent, of, polls, .. } = &*self.peers;
        let spared = s.filled != *polls && (1..=*of).contains(&s.for_data);
        (s.trust == Trust::Yes && (spared || sent.is_empty())).then_some(s)
    }

    /// Records that a batch has sent to `fd`, which has this peer; returns what it has done since
    /// epoll was polled, if that was [`Polled::Yes`] before.
    pub(crate) fn sent(&mut self, fd: i32, peer: Peer) -> Polled {
        if peer.polls < ENOUGH {
            let alone = self.peers.sent.is_empty() && peer.tries < MOST_TRIES;
            return if alone { Polled::Before(fd) } else { Polled::No };
        }
        let first = self.peers.sent.is_empty();
        self.peers.of = if first { peer.of } else { self.peers.of.min(peer.of) };
        self.peers.sent.push(fd);
        let polls = self.peers.polls;
        if let Some(socket) = self.registration(peer.number) {
            socket.filled = polls;
        }
        Polled::Yes
    }

    /// Records a poll that has found events of the numbers `events`, and learns from it whose peers
    /// they are. `polled`: what the batch has done since the poll before. `before`, `after`: the
    /// state of the set's events on both sides, by which another thread's polls show.
    pub(crate) fn polled(
        &mut self,
        polled: Polled,
        events: &[i32],
        (before, after): ((u32, usize), (u32, usize)),
    ) {
        let undisturbed = before == self.peers.at_poll;
        match polled {
            Polled::Before(fd) if undisturbed && socket::has_sent_all(fd) => {
                self.peers.observe(fd, events);
            }
            Polled::Yes if undisturbed => self.include_later(events),
            _ => {}
        }
        self.peers.sent.clear();
        self.peers.polls += 1;
        self.peers.at_poll = after;
    }

    /// Includes the registrations since in what is known of the numbers that were sent to, if no
    /// event may come of one.
    fn include_later(&mut self, events: &[i32]) {
        let all = self.peers.registered;
        if self.peers.sent.is_empty() || self.peers.of == all {
            return;
        }
        let (polls, of) = (self.peers.polls, self.peers.of);
        let explained = |s: &Registration| s.filled == polls || (1..=of).contains(&s.for_data);
        if !events.iter().all(|&fd| self.registration(fd).is_some_and(|s| explained(s))) {
            return;
        }
        let sent = core::mem::take(&mut self.peers.sent);
        for &fd in &sent {
            if let Some(peer) = self.peers.known.get_mut(fd as usize)
                && peer.of < all
                && socket::has_sent_all(fd)
            {
                peer.of = all;
            }
        }
        self.peers.sent = sent;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::persistent::IN;
    use crate::io::socket::Socket;

    /// Numbers of no files; each test has its own, as what is remembered of numbers is the
    /// process's.
    fn set_with(senders: &[i32], receivers: &[i32]) -> PollSet {
        senders.iter().for_each(|&fd| Socket::UnixStream.remember(fd));
        let mut set = PollSet::of_tokens();
        receivers.iter().for_each(|&fd| assert_eq!(set.begin(fd, IN), Ok(true)));
        set
    }

    /// Polls with these events; nothing else has polled.
    fn poll(set: &mut PollSet, polled: Polled, events: &[i32]) {
        let at = set.peers.at_poll;
        set.polled(polled, events, (at, at));
    }

    fn sent(set: &mut PollSet, fd: i32) -> Polled {
        set.sent(fd, set.peers.of(fd))
    }

    fn learn(set: &mut PollSet, from: i32, events: &[i32]) {
        poll(set, Polled::No, &[]);
        let polled = sent(set, from);
        assert_eq!(polled, Polled::Before(from));
        poll(set, polled, events);
    }

    fn may_be_filled(set: &mut PollSet, fd: i32) -> bool {
        set.registration(fd).unwrap().trust = Trust::Yes;
        set.unfilled(fd).is_none()
    }

    #[test]
    fn peer_is_known_after_two_polls() {
        let (a, b, to) = (4001, 4002, [4003, 4004, 4005]);
        let mut set = set_with(&[a, b], &to);
        learn(&mut set, a, &to[..1]);
        learn(&mut set, a, &to[..1]);
        poll(&mut set, Polled::No, &[]);
        assert_eq!(to.map(|fd| may_be_filled(&mut set, fd)), [false; 3]);
        assert_eq!(sent(&mut set, a), Polled::Yes);
        assert_eq!(to.map(|fd| may_be_filled(&mut set, fd)), [true, false, false]);
        assert!(set.peers.wants_poll(&set.peers.of(b)));
        assert_eq!(sent(&mut set, b), Polled::No);
        poll(&mut set, Polled::No, &[]);
        assert_eq!(to.map(|fd| may_be_filled(&mut set, fd)), [false; 3]);
        learn(&mut set, b, &[]);
        learn(&mut set, b, &to[1..]);
        poll(&mut set, Polled::No, &[]);
        assert_eq!(sent(&mut set, b), Polled::Yes);
        assert_eq!(to.map(|fd| may_be_filled(&mut set, fd)), [false; 3]);
        softring_host::fd::forget_kind(a);
        assert_eq!(sent(&mut set, a), Polled::No);
    }

    #[test]
    fn disturbed_polls_say_nothing() {
        let (a, to) = (4011, [4012, 4013, 4014]);
        let mut set = set_with(&[a], &to);
        for _ in 0..3 {
            poll(&mut set, Polled::No, &[]);
            let polled = sent(&mut set, a);
            set.polled(polled, &to[..1], ((7, 7), (0, 0)));
        }
        for _ in 0..MOST_TRIES {
            learn(&mut set, a, &to);
        }
        poll(&mut set, Polled::No, &[]);
        assert_eq!(sent(&mut set, a), Polled::No);
        assert!(!set.peers.wants_poll(&set.peers.of(a)));
    }

    #[test]
    fn later_registrations_are_included_once_they_are_quiet() {
        let (a, to, later) = (4021, [4022, 4023, 4024], 4025);
        let mut set = set_with(&[a], &to);
        learn(&mut set, a, &to[..1]);
        learn(&mut set, a, &to[..1]);
        assert_eq!(set.begin(later, IN), Ok(true));
        poll(&mut set, Polled::No, &[]);
        for (events, filled) in [(&[later][..], true), (&to[..2], false)] {
            assert_eq!(sent(&mut set, a), Polled::Yes);
            assert!(may_be_filled(&mut set, later), "{events:?}");
            poll(&mut set, Polled::Yes, events);
            assert_eq!(sent(&mut set, a), Polled::Yes);
            assert_eq!(may_be_filled(&mut set, later), filled, "{events:?}");
        }
    }
}
