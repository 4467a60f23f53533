//! A request from fetch to CQE.

pub mod arm;
pub(crate) mod batch;
pub(crate) mod by_worker;
pub(crate) mod caller;
pub mod cancel;
pub(crate) mod clat;
pub(crate) mod complete;
pub(crate) mod drain;
pub(crate) mod estate;
pub(crate) mod fast;
pub(crate) mod iowq;
pub(crate) mod issue;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod moving;
pub(crate) mod parked;
pub(crate) mod relay;
pub(crate) mod request;
pub mod route;
pub(crate) mod select;
pub(crate) mod slab;
pub(crate) mod standing;
pub(crate) mod submit;
pub(crate) mod timeouts;
pub(crate) mod trace;
pub(crate) mod turns;
