//! Registered resources.

pub mod buffers;
pub mod eventfd;
pub mod files;
pub mod filetable;
pub mod personality;
pub mod restrictions;
pub mod ring_fds;
