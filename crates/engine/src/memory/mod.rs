//! Ring memory, shared with the program. It is never trusted: indices are masked, an SQE is copied
//! once, and every access is atomic or volatile through a raw address; no Rust reference ever
//! covers program-writable bytes other than single atomics.
//!
//! The shared words (all `u32`; offsets as the kernel lays them out, published in `sq_off` /
//! `cq_off`):
//!
//! | word | writer | reader | ordering | pairs with |
//! |---|---|---|---|---|
//! | `sq.tail` | program | engine, `sq::Sq` | release / acquire | SQE stores before it, SQE copy after it |
//! | `sq.head` | engine | program | release / acquire | SQE copied before the slot is given back |
//! | `cq.tail` | engine, `cq::commit` | program | release / acquire | CQE stores before it |
//! | `cq.head` | program | engine | release / acquire | CQE loads before the slot is given back |
//! | `sq.flags` | engine | program | relaxed RMW | NEED_WAKEUP: full fences on both sides |
//! | `sq.dropped`, `cq.overflow` | engine | program | relaxed | statistics |
//! | `cq.flags` | program | engine | relaxed | EVENTFD_DISABLED |
//! | control page: `lock` | all processes | all | acquire / release | the uring lock |
//! | control page: `sq_head`, `cq_tail` | lock holder | lock holder | under `lock` | the engine's own copies |
//! | control page: `waiters`, `seq` | waiters; posters | posters; waiters | under `lock` + futex | `drive::sleep` |

pub(crate) mod cq;
pub(crate) mod file;
mod holder;
pub(crate) mod lock;
pub(crate) mod mappings;
mod of_process;
pub(crate) mod region;
pub(crate) mod resize;
pub(crate) mod rings;
pub(crate) mod scratch;
pub(crate) mod sq;

pub(crate) use of_process::AT_FORK;
