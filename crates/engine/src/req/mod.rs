//! A request from fetch to CQE.

pub mod arm;
pub mod by_worker;
pub mod caller;
pub mod cancel;
pub mod clat;
pub mod complete;
pub mod drain;
pub mod estate;
pub mod fast;
pub mod iowq;
pub mod issue;
pub mod link;
pub mod moving;
pub mod parked;
pub mod relay;
pub mod request;
pub mod route;
pub mod select;
pub mod slab;
pub mod standing;
pub mod submit;
pub mod timeouts;
pub mod trace;
pub mod turns;
