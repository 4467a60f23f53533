//! Selection of many provided buffers at once, for a SEND and for bundles. Kernel counterpart:
//! `io_buffers_select`.

use crate::resources::bundle::ALL;
use crate::ring::ctx::Resources;
use crate::ring::message::Msg;
use crate::ring::opdef;
use crate::ring::request::{Call, Net, OpState, Req};
use softring_host::user::in_user;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::{Change, has};
use softring_uapi::*;

impl Call {
    /// Returns the message of the request, made now if there is none.
    pub(crate) fn message(&mut self) -> &mut Msg {
        if !matches!(self.state, OpState::Net(_)) {
            self.state = OpState::Net(Net::default());
        }
        match &mut self.state {
            OpState::Net(net) => net.msg.get_or_insert_default(),
            _ => unreachable!("made above"),
        }
    }
}

impl Resources {
    /// Picks buffers for a SEND or a bundle. `in_worker`: a worker picks, which takes one for each
    /// step.
    ///
    /// # Errors
    /// `ENOENT`, `ENOBUFS`.
    pub(super) fn select_many(&mut self, req: &mut Req, in_worker: bool) -> Result<()> {
        let receives = req.row.has(opdef::RECEIVES);
        let call = &mut req.call;
        let none = |e| if in_worker && receives { Errno::ENOBUFS } else { e };
        let (mut pick, mut head) = self.groups.head(call.io().select.group).map_err(none)?;
        if in_worker && receives {
            head.take_singly();
            let len = head.one(u64::from(call.io().select.want)).len as u32;
            self.groups.commit(call.io().select.group, &mut pick, len);
        }
        // A request that takes a single buffer recognises a missing one by its address.
        if head.singly && pick.buf.addr.is_null() {
            call.set_pick(Some(pick));
            return Err(Errno::ENOBUFS);
        }
        if receives {
            call.set_pick(Some(pick));
            call.aim_at(pick.buf.addr, pick.buf.len);
            call.message().head = head;
            return Ok(());
        }
        let bundle = call.sqe().ioprio & IORING_RECVSEND_BUNDLE != 0;
        let most = if bundle && pick.in_ring { usize::MAX } else { 1 };
        let whole = call.io().select.want == 0 || !pick.in_ring;
        let want = if whole { ALL } else { u64::from(call.io().select.want) };
        let layout = head.lay_out(0, want, most)?;
        if pick.in_ring && has(Change::BufferPlaces) {
            let mut bufs = head.bufs.iter().take(layout.iov.len());
            bufs.try_for_each(|buf| in_user(buf.addr.addr(), buf.len.into()))?;
        }
        pick.count = layout.iov.len() as u16;
        // No other request may send the same bytes while this one waits.
        self.groups.commit(call.io().select.group, &mut pick, layout.len as u32);
        if let Some(io) = call.state.io_mut() {
            // The length is for the first step.
            (io.select.pick, io.select.want) = (Some(pick), 0);
        }
        let msg = call.message();
        (msg.iov, msg.last) = (layout.iov, layout.empty);
        Ok(())
    }
}
