//! Checks of transfers: every byte is checked and counted.

use super::super::super::ledger::End;
use super::super::super::{Check, ensure, sys};
use super::super::stage::{BIT_BY_BIT, Stage, Token, WHOLE};
use super::{Conn, Plan};
use softring_uapi::*;

impl Conn {
    /// Checks that all sent bytes came, or no more than those if an end was reset.
    pub(super) fn account(&self, stage: &mut Stage) -> Check {
        let [one, two] = &self.peers;
        let ways = [(one.out.bytes, two.inn.bytes), (two.out.bytes, one.inn.bytes)];
        let reset = matches!(self.plan, Plan::Reset(..));
        for (sent, got) in ways {
            let fine = if reset { got <= sent } else { got == sent };
            ensure(fine, || format!("{sent} bytes sent, {got} came"))?;
            stage.count("bytes", got);
        }
        ensure(reset || ways[0].0 == self.total, || "not all was sent".into())
    }

    pub(super) fn sent(&mut self, who: usize, end: &End<Token>) -> Check {
        let (cqe, reset) = (&end.cqe, matches!(self.plan, Plan::Reset(..)));
        let out = &mut self.peers[who].out;
        match -cqe.res {
            _ if cqe.flags & IORING_CQE_F_NOTIF != 0 => {}
            ..=0 => out.bytes += cqe.res as u64,
            libc::ECANCELED | libc::EINTR => {}
            libc::EPIPE | libc::ECONNRESET if reset => out.over = true,
            _ => return Err("an odd result".into()),
        }
        Ok(())
    }

    pub(super) fn received(&mut self, stage: &mut Stage, who: usize, end: &End<Token>) -> Check {
        let (cqe, reset) = (&end.cqe, matches!(self.plan, Plan::Reset(..)));
        let at = self.page(who) + 8192;
        let (stream, pattern) = (self.stream, stage.pattern.clone());
        let peer = &mut self.peers[who];
        let (group, hand) = (peer.inn.group, &mut stage.hands[peer.ring]);
        let mut check = Ok(());
        let mut look = |bytes: &[u8]| {
            let good = pattern.check(stream, peer.inn.bytes, bytes);
            check = std::mem::replace(&mut check, Ok(())).and(good);
            peer.inn.bytes += bytes.len() as u64;
        };
        if group != 0 {
            let from = if group == WHOLE { &mut hand.whole } else { &mut hand.bits };
            debug_assert!([WHOLE, BIT_BY_BIT].contains(&group));
            from.take(cqe, look)?;
        } else if cqe.res > 0 {
            look(&sys::bytes(at, cqe.res as usize));
        }
        check?;
        match -cqe.res {
            0 => peer.inn.over = true,
            ..0 => peer.inn.starved = 0,
            libc::ECANCELED | libc::EINTR => {}
            libc::ENOBUFS if group != 0 => {
                peer.inn.starved += 1;
                stage.count("no buffers", 1);
            }
            libc::ECONNRESET if reset => peer.inn.over = true,
            _ => return Err("an odd result".into()),
        }
        Ok(())
    }
}
