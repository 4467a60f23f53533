//! Credentials of a request: its submitter's, also if another thread runs it. Kernel counterpart:
//! `req->creds`, taken in `io_prep_async_work`, and `ctx->sq_creds`.
//!
//! A request records its submitter's credentials when it leaves that thread: for a worker, or
//! behind something that may end elsewhere (a chain, a barrier, a peer). The thread's credentials
//! are read once per batch. Requests of SQPOLL rings have the credentials of the ring's maker.

use alloc::sync::Arc;

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef;
use crate::ring::request::{Req, ReqFlags};
use softring_host::creds::{self, Creds};

impl Req {
    /// Returns whether the submitter's credentials are still to be recorded. `asks`: record them
    /// whatever the row says.
    fn asks_for_creds(&self, asks: bool) -> bool {
        let row = self.row.has(opdef::CREDS);
        (asks || row || self.names_personality() || creds::any_restricted())
            && !self.flags.contains(ReqFlags::CREDS_RECORDED)
    }

    /// Sets the submitter's credentials, `caller`.
    fn set_creds(&mut self, caller: Arc<Creds>) {
        self.call.creds = match &self.call.creds {
            Some(named) => Some(Arc::new(named.within(&caller))),
            None => Some(caller),
        };
        self.flags |= ReqFlags::CREDS_RECORDED;
    }
}

impl Ctx {
    /// Records the credentials of a request that a later driver of the ring runs
    /// ([`record_creds`](Self::record_creds)). If the driver may lack the submitter's limits, keeps
    /// a worker that has them.
    pub(crate) fn record_creds_ahead(&mut self, req: &mut Req) {
        self.record_creds(req, false);
        self.keep_worker_for(req.call.creds.as_ref());
    }

    fn keep_worker_for(&mut self, creds: Option<&Arc<Creds>>) {
        if let Some(creds) = creds.filter(|c| c.is_limited() && self.resources.sq_creds.is_none()) {
            self.workers().keep_one(creds);
        }
    }

    /// Records the submitter's credentials, if the request asks for them (`asks`: whatever its row
    /// says). Called by the submitter.
    pub(crate) fn record_creds(&mut self, req: &mut Req, asks: bool) {
        if req.asks_for_creds(asks) {
            let caller = self.caller();
            req.set_creds(caller);
        }
    }

    /// Records the credentials of the requests linked behind `req`, which is about to wait; see
    /// [`record_creds_ahead`](Self::record_creds_ahead). If `req` ends at once, the submitter
    /// issues its links.
    #[inline]
    pub(crate) fn record_creds_of_links(&mut self, req: &Req) {
        if req.link.is_some() {
            self.record_creds_of_chain(req.link);
        }
    }

    /// Records the credentials of a chain that waits; see
    /// [`record_creds_ahead`](Self::record_creds_ahead).
    pub(crate) fn record_creds_of_chain(&mut self, mut next: Option<ReqId>) {
        while let Some(id) = next {
            self.record_creds_of(id);
            next = self.reqs.slab.get(id).and_then(|req| req.link);
        }
    }

    /// Records the credentials of a request that waits; see
    /// [`record_creds_ahead`](Self::record_creds_ahead).
    fn record_creds_of(&mut self, id: ReqId) {
        let asks = self.reqs.slab.get(id).is_some_and(|req| req.asks_for_creds(false));
        let caller = asks.then(|| self.caller());
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if let Some(caller) = caller {
            req.set_creds(caller);
        }
        let creds = req.call.creds.clone();
        self.keep_worker_for(creds.as_ref());
    }

    /// Returns whether this thread must not try the request: its credentials differ from the
    /// request's.
    pub(crate) fn runs_elsewhere(&mut self, req: &Req) -> bool {
        if self.resources.sq_creds.is_some() && creds::am_ours() {
            return req.row.has(opdef::CREDS) && !self.is_as_maker();
        }
        req.flags.contains(ReqFlags::CREDS_RECORDED)
            && !req.names_personality()
            && req.task != 0
            && (req.flags.contains(ReqFlags::CREDS_SAVED)
                || req.task != crate::ring::task::current())
            && req.call.creds.as_ref().is_some_and(|c| !creds::is_under(c))
    }

    /// Returns whether this internal thread has the credentials of the ring's maker.
    fn is_as_maker(&mut self) -> bool {
        let now = (creds::epoch(), crate::ring::task::current());
        let maker = self.resources.sq_creds.as_ref();
        if self.submit.as_maker != now && maker.is_some_and(|c| creds::is_under(c)) {
            self.submit.as_maker = now;
        }
        self.submit.as_maker == now
    }

    /// Returns whether the request is a write and the calling thread has the workers' capabilities
    /// (CAP_FSETID, CAP_SYS_RESOURCE). Reading them takes one system call.
    pub(crate) fn writes_alike(&mut self, req: &Req) -> bool {
        let row = req.row;
        let own = req.task == 0 || req.task == crate::ring::task::current();
        let special = req.call.creds.is_some() || self.resources.sq_creds.is_some();
        let write = row.has(opdef::AIO) && row.has(opdef::CREDS);
        if !write || !own || special || creds::any_restricted() {
            return false;
        }
        if !self.submit.alike {
            let workers = self.drive.pool.as_ref().and_then(|w| w.capabilities());
            let alike = workers == Some(creds::capabilities());
            self.submit.alike = alike && self.submit.open;
            return alike;
        }
        true
    }

    fn caller(&mut self) -> Arc<Creds> {
        if let Some(creds) = &self.resources.sq_creds {
            return creds.clone();
        }
        if let Some(creds) = &self.submit.caller {
            return creds.clone();
        }
        let creds = creds::mine();
        self.submit.caller = self.submit.open.then(|| creds.clone());
        creds
    }
}
