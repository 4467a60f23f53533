//! Submission: from a fetched SQE to its first attempt, and to a wait if the attempt would block.

pub(crate) mod arm;
pub(crate) mod batch;
pub(crate) mod fast;
pub(crate) mod fast_direct;
mod fast_wake;
mod faults;
pub(crate) mod glue;
pub(crate) mod init;
pub(crate) mod issue;
mod modelled;
pub(crate) mod route;
