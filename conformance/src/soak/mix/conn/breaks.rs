//! Disturbances of a connection: cancelled requests, an end that resets, a reader that stops.

use std::time::Instant;

use super::super::super::{Check, ensure, sys};
use super::super::stage::{Stage, Step};
use super::{Conn, HELD, Kind, Plan, STILL, UNREPORTED};
use crate::sqe;
use softring_uapi::*;

impl Conn {
    /// Stops the reader until the sender could send no more for a while.
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
                let held = sent.saturating_sub(got);
                ensure(held < HELD, || format!("it is not held up: {held} bytes wait"))?;
                // A cancel that an SQ thread handles late finds all data read.
                stage.count(if sent < self.total { "held up" } else { "stopped late" }, 1);
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

    /// Resets one end when the reader has got so much; then the other, if it does not see the
    /// reset.
    pub(super) fn reset_by_plan(&mut self) {
        let Plan::Reset(end, at) = self.plan else { return };
        if self.peers[1].inn.bytes >= at {
            self.peers[end].closing = true;
        }
        if self.gone.is_some_and(|since| since.elapsed() > UNREPORTED) {
            self.peers[1 - end].closing = true;
        }
    }

    /// Cancels this end's requests, then closes it with a reset.
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
        self.gone.get_or_insert_with(Instant::now);
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
