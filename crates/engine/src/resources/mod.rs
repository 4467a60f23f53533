//! Registered resources: tables and their methods. They do not know the ring; the calls that change
//! them are in `syscall::register`.

pub(crate) mod buffers;
pub(crate) mod bundle;
pub(crate) mod deposit;
pub(crate) mod eventfd;
pub(crate) mod files;
pub(crate) mod filetable;
pub(crate) mod filters;
pub(crate) mod kbuf;
pub(crate) mod memlock;
pub(crate) mod napi;
mod of_process;
pub(crate) mod personality;
pub(crate) mod region;
pub(crate) mod restrictions;
pub mod task_rules;

pub(crate) use of_process::AT_FORK;
