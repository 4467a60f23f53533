//! The rights that a request has: its submitter's, also where another thread runs it. Kernel
//! counterpart: `req->creds`, taken in `io_prep_async_work`, and `ctx->sq_creds`.
//!
//! A request takes note of its submitter's credentials when it leaves that thread: for a worker, or
//! behind something that may end elsewhere (a chain, a barrier, a peer). The thread is asked once
//! per batch. Requests of SQPOLL rings have those of the ring's maker.

use alloc::sync::Arc;

use crate::io::token::ReqId;
use crate::ring::ctx::Ctx;
use crate::ring::opdef;
use crate::ring::request::{Req, ReqFlags};
use softring_host::creds::{self, Creds};

impl Req {
    /// Is its submitter to be asked for credentials, and was not yet? `asks`: whatever its row
    /// says.
    fn asks_for_creds(&self, asks: bool) -> bool {
        let row = self.row.has(opdef::CREDS);
        (asks || row || self.names_personality() || creds::any_restricted())
            && !self.flags.contains(ReqFlags::CREDS_NOTED)
    }

    /// Gives a request `caller`, which are its submitter's.
    fn set_creds(&mut self, caller: Arc<Creds>) {
        self.call.creds = match &self.call.creds {
            Some(named) => Some(Arc::new(named.within(&caller))),
            None => Some(caller),
        };
        self.flags |= ReqFlags::CREDS_NOTED;
    }
}

impl Ctx {
    /// As [`note_creds`](Self::note_creds), for a request that whoever drives the ring is to run
    /// later: if that thread may lack the submitter's limits, a worker that has them waits for it.
    pub(crate) fn note_creds_ahead(&mut self, req: &mut Req) {
        self.note_creds(req, false);
        self.keep_worker_for(req.call.creds.as_ref());
    }

    fn keep_worker_for(&mut self, creds: Option<&Arc<Creds>>) {
        if let Some(creds) = creds.filter(|c| c.is_limited() && self.resources.sq_creds.is_none()) {
            self.workers().keep_one(creds);
        }
    }

    /// Takes note of the submitter's credentials, if the request asks for them (`asks`: whatever
    /// its row says). Called by the submitter.
    pub(crate) fn note_creds(&mut self, req: &mut Req, asks: bool) {
        if req.asks_for_creds(asks) {
            let caller = self.caller();
            req.set_creds(caller);
        }
    }

    /// As [`note_creds_ahead`](Self::note_creds_ahead), for what follows `req` in its chain: that
    /// is about to wait. What follows a request that ends at once is issued by the submitter.
    #[inline]
    pub(crate) fn note_creds_of_links(&mut self, req: &Req) {
        if req.link.is_some() {
            self.note_creds_of_chain(req.link);
        }
    }

    /// As [`note_creds_ahead`](Self::note_creds_ahead), for a chain that waits.
    pub(crate) fn note_creds_of_chain(&mut self, mut next: Option<ReqId>) {
        while let Some(id) = next {
            self.note_creds_of(id);
            next = self.reqs.slab.get(id).and_then(|req| req.link);
        }
    }

    /// As [`note_creds_ahead`](Self::note_creds_ahead), for a request that waits.
    fn note_creds_of(&mut self, id: ReqId) {
        let asks = self.reqs.slab.get(id).is_some_and(|req| req.asks_for_creds(false));
        let caller = asks.then(|| self.caller());
        let Some(req) = self.reqs.slab.get_mut(id) else { return };
        if let Some(caller) = caller {
            req.set_creds(caller);
        }
        let creds = req.call.creds.clone();
        self.keep_worker_for(creds.as_ref());
    }

    /// Has this thread other credentials than the request? Then it must not try it.
    pub(crate) fn runs_elsewhere(&mut self, req: &Req) -> bool {
        if self.resources.sq_creds.is_some() && creds::am_ours() {
            return req.row.has(opdef::CREDS) && !self.is_as_maker();
        }
        req.flags.contains(ReqFlags::CREDS_NOTED)
            && !req.names_personality()
            && req.task != 0
            && (req.flags.contains(ReqFlags::CREDS_KEPT)
                || req.task != crate::ring::task::current())
            && req.call.creds.as_ref().is_some_and(|c| !creds::is_under(c))
    }

    /// Has this thread of ours the credentials of the ring's maker?
    fn is_as_maker(&mut self) -> bool {
        let now = (creds::epoch(), crate::ring::task::current());
        let maker = self.resources.sq_creds.as_ref();
        if self.submit.as_maker != now && maker.is_some_and(|c| creds::is_under(c)) {
            self.submit.as_maker = now;
        }
        self.submit.as_maker == now
    }

    /// Is it a write, for which the calling thread has what workers have? What that asks for is
    /// capabilities (CAP_FSETID, CAP_SYS_RESOURCE), which takes one system call to tell.
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
