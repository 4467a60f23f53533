//! What disturbs a connection: requests are cancelled, an end resets, the reader stops.

use std::time::Instant;

use super::super::super::{Check, ensure, sys};
use super::super::stage::{Stage, Step};
use super::{Conn, HELD, Kind, Plan, STILL};
use crate::sqe;
use softring_engine::abi::*;

impl Conn {
    /// The reader stops, and goes on when the sender could send no more for a while.
    pub(super) fn stop_reading(&mut self, stage: &mut Stage) -> Check {
        let (sent, got) = (self.peers[0].out.bytes, self.peers[1].inn.bytes);
        match (self.plan, self.stopped) {
            (Plan::Stop(at), None) if got >= at => {
                self.stopped = Some((Instant::now(), sent));
                self.cancel(stage, 1, Step::Recv);
            }
            (_, Some((_, before))) if before != sent || self.peers[1].inn.open > 0 => {
                self.stopped = Some((Instant::now(), sent));
            }
            (_, Some((since, _))) if since.elapsed() > STILL => {
                ensure(sent.saturating_sub(got) < HELD && sent < self.total, || {
                    "it is not held up".into()
                })?;
                stage.count("held up", 1);
                (self.plan, self.stopped) = (Plan::Plain, None);
            }
            _ => {}
        }
        Ok(())
    }

    /// Cancels a half's request, unless that was done.
    pub(super) fn cancel(&mut self, stage: &mut Stage, who: usize, step: Step) {
        let ring = self.peers[who].ring;
        let half = self.half(who, step);
        if half.open > 0 && !half.cancelled {
            half.cancelled = true;
            let number = half.number;
            stage.hands[ring].ledger.cancel(sqe::cancel(number, 0));
        }
    }

    /// Ends all that this end does, then closes it at once.
    pub(super) fn reset(&mut self, stage: &mut Stage, who: usize) -> Check {
        self.cancel(stage, who, Step::Send);
        self.cancel(stage, who, Step::Recv);
        let peer = &mut self.peers[who];
        if peer.out.open + peer.inn.open + peer.open > 0 {
            return Ok(());
        }
        if self.kind == Kind::Tcp {
            sys::reset_on_close(peer.fd);
        }
        stage.count("reset", 1);
        self.close(stage, who)
    }

    pub(super) fn close(&mut self, stage: &mut Stage, who: usize) -> Check {
        if self.peers[who].slot.is_some() {
            return self.set_slot(stage, who, None);
        }
        self.peers[who].closed = true;
        let close = sqe::op(IORING_OP_CLOSE, self.peers[who].fd);
        self.own(stage, who, close, Step::Close)
    }
}
