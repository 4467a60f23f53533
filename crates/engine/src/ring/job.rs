//! A call on its way through a worker, and back.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Deref;

use crate::io::token::ReqId;
use crate::io::worker::Work;
use crate::io::workers::HasCreds;
use crate::ring::ctx::Ring;
use crate::ring::opdef::{self, OpDef, Outcome};
use crate::ring::request::{Call, FileRef, kind_of};
use softring_host::creds::Creds;
use softring_host::fd::kind::Kind;
use softring_uapi::IOSQE_FIXED_FILE;

/// A call that may leave the uring lock: it owns no node of a registered file, whose count is not
/// atomic.
#[derive(Debug)]
pub(crate) struct Sent(Box<Call>);

// SAFETY: all parts of a call that hold no node of a registered file are `Send` by themselves,
// which `Call::may_leave` proves part by part: with a part that is not, it does not compile. `new`
// has checked that there is no node, and none is added: a sent call is only read until `into_call`.
unsafe impl Send for Sent {}

impl Sent {
    /// # Panics
    /// If the call was not made by [`Call::detach`].
    pub(crate) fn new(call: Box<Call>) -> Sent {
        assert!(call.may_leave(), "the nodes of registered files stay");
        Sent(call)
    }

    pub(crate) fn into_call(self) -> Box<Call> {
        self.0
    }
}

impl Deref for Sent {
    type Target = Call;

    fn deref(&self) -> &Call {
        &self.0
    }
}

/// A call that a worker is to make.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ring: Arc<Ring>,
    pub(crate) id: ReqId,
    pub(crate) row: &'static OpDef,
    pub(crate) call: Sent,
    pub(crate) unbound: bool,
    /// Function that makes the call and returns its result; it belongs to layers above this one.
    pub(crate) run: fn(Job),
}

/// Result of a worker.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) id: ReqId,
    pub(crate) call: Call,
    pub(crate) outcome: Outcome,
}

impl Work for Job {
    type Key = (u64, ReqId);

    fn run(self) {
        (self.run)(self);
    }

    fn unbound(&self) -> bool {
        self.unbound
    }

    fn hash_key(&self) -> Option<u64> {
        let regular = matches!(kind_of(&self.call.file), Kind::Buffered);
        let fixed = self.call.sqe().flags & IOSQE_FIXED_FILE != 0;
        (self.row.has(opdef::HASH) && regular).then(|| match &self.call.file {
            FileRef::Shared(fd, _) if fixed => Arc::as_ptr(fd).expose_provenance() as u64,
            _ => u64::from(self.call.sqe().fd.cast_unsigned()),
        })
    }

    fn key(&self) -> Self::Key {
        (self.ring.id, self.id)
    }
}

impl HasCreds for Job {
    fn creds(&self) -> Option<&Arc<Creds>> {
        self.call.creds.as_ref()
    }
}
