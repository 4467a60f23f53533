//! Ring memory, shared with the program and never trusted: indices are masked, an SQE is copied
//! once, and every access is atomic or volatile through a raw address. No Rust reference ever
//! covers program-writable bytes other than single atomics.
//!
//! Shared words (all `u32`; offsets as in the kernel, published in `sq_off` / `cq_off`):
//!
//! | word | writer | reader | ordering | pairs with |
//! |---|---|---|---|---|
//! | `sq.tail` | program | engine | release / acquire | SQE stores before it, SQE copy after it |
//! | `sq.head` | engine | program | release / acquire | SQE copied before the slot is given back |
//! | `cq.tail` | engine | program | release / acquire | CQE stores before it |
//! | `cq.head` | program | engine | release / acquire | CQE loads before the slot is given back |
//! | `sq.flags` | engine | program | relaxed RMW | NEED_WAKEUP: full fences on both sides |
//! | `sq.dropped`, `cq.overflow` | engine | program | relaxed | statistics |
//! | `cq.flags` | program | engine | relaxed | EVENTFD_DISABLED |
//! | control: `lock` | all processes | all | acquire / release | the uring lock |
//! | control: `sq_head`, `cq_tail` | lock holder | lock holder | under `lock` | engine's copies |
//! | control: `waiters`, `seq` | waiters, posters | both | SeqCst, futex | `drive::sleep` |

pub(crate) mod cq;
pub(crate) mod file;
mod holder;
pub(crate) mod left;
pub(crate) mod lock;
pub(crate) mod mappings;
mod of_process;
pub(crate) mod region;
pub(crate) mod resize;
pub(crate) mod rings;
pub(crate) mod scratch;
pub(crate) mod sq;
pub(crate) mod sqe;

pub(crate) use of_process::AT_FORK;
