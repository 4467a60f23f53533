//! `io_uring_setup(2)`. Kernel counterpart: `io_uring_create`, `io_uring_fill_params`.
#![allow(unsafe_code)]

use alloc::sync::Arc;

use softring_host::os::fd::IntoRawFd;

use crate::memory::mappings::RingMemory;
use crate::memory::rings::{Geometry, Rings};
use crate::resources::task_rules;
use crate::ring::ctx::{Ctx, Ring};
use crate::ring::slab::Slab;
use crate::stats::CounterSlot;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::limits;
use softring_uapi::version::played;
use softring_uapi::*;

/// Features of kernels 6.18 to 7.2 that softring has.
pub(crate) const FEATURES: u32 = IORING_FEAT_SINGLE_MMAP
    | IORING_FEAT_NODROP
    | IORING_FEAT_SUBMIT_STABLE
    | IORING_FEAT_RW_CUR_POS
    | IORING_FEAT_CUR_PERSONALITY
    | IORING_FEAT_FAST_POLL
    | IORING_FEAT_POLL_32BITS
    | IORING_FEAT_SQPOLL_NONFIXED
    | IORING_FEAT_EXT_ARG
    | IORING_FEAT_NATIVE_WORKERS
    | IORING_FEAT_RSRC_TAGS
    | IORING_FEAT_CQE_SKIP
    | IORING_FEAT_LINKED_FILE
    | IORING_FEAT_REG_REG_RING
    | IORING_FEAT_RECVSEND_BUNDLE
    | IORING_FEAT_MIN_TIMEOUT
    | IORING_FEAT_RW_ATTR
    | IORING_FEAT_NO_IOWAIT;

/// Makes a ring; see [`super::setup()`].
///
/// # Errors
/// `EFAULT`, `EINVAL`, `ENOMEM`, `EMFILE`, `ENFILE`: same as io_uring_setup(2).
pub(crate) fn setup(entries: u32, params: UserPtr) -> Result<usize> {
    softring_host::refused::learn();
    crate::process::forked::notice();
    softring_host::fork::init();
    softring_host::creds::begin();
    let mut p: io_uring_params = user::read(params.addr())?;
    if p.resv != [0; 3] || p.flags & !played().setup_flags != 0 {
        return Err(Errno::EINVAL);
    }
    check_flags(p.flags)?;
    let geo = geometry(entries, &p)?;
    let polls = p.flags & IORING_SETUP_SQPOLL != 0;
    let attaches = p.flags & IORING_SETUP_ATTACH_WQ != 0;
    let other = attaches.then(|| attached(&p)).transpose()?;
    if p.flags & IORING_SETUP_SQ_AFF != 0 && !polls {
        return Err(Errno::EINVAL);
    }
    let named = [p.cq_off.user_addr, p.sq_off.user_addr];
    // SAFETY: the program's parameters name the memory, for as long as the ring has it.
    let [cq_user, sq_user] = named.map(|at| unsafe { RingMemory::of_program(at) });
    let (fd, mem) = Rings::create(geo, cq_user, sq_user)?;
    let mut slab = Slab::default();
    if !slab.prepare() {
        return Err(Errno::ENOMEM);
    }
    geo.publish(&mut p);
    p.features = FEATURES;
    if !polls {
        user::write(params, &p)?;
    }
    let mut ctx = Ctx::new(mem, p.flags, crate::process::worker_side::run, CounterSlot::new());
    ctx.reqs.slab = slab;
    if let Some(rules) = task_rules::mine() {
        ctx.setup.restrictions = rules.restrictions.clone();
        ctx.setup.filters = rules.filters.clone();
    }
    ctx.setup.unlimited = crate::resources::memlock::is_unlimited();
    if p.flags & IORING_SETUP_R_DISABLED != 0 {
        ctx.setup.disabled = true;
    } else if p.flags & IORING_SETUP_SINGLE_ISSUER != 0 {
        ctx.setup.issuer = Some(softring_host::sys::gettid());
    }
    let id = crate::ring::table::next_id();
    crate::stats::trace::prepare();
    ctx.trace.name(id, p.flags);
    ctx.reqs.slab.timed = ctx.stats.seen();
    ctx.stats.name(id, [p.flags, p.sq_entries, p.cq_entries].map(u64::from));
    let ring = Ring::new(id, ctx);
    if polls {
        crate::drive::sqpoll::offload(&ring, &p, other.as_deref())?;
        if let Err(e) = user::write(params, &p) {
            crate::drive::teardown::end(&ring, None);
            return Err(e);
        }
    }
    crate::process::registered::touch();
    crate::ring::workers::made_ring(geo.sq_entries);
    crate::drive::taskrun::made_ring(p.flags);
    if p.flags & IORING_SETUP_REGISTERED_FD_ONLY != 0 {
        return crate::process::registered::register_only(fd, ring);
    }
    let fd = fd.into_raw_fd();
    crate::process::insert(fd, ring);
    Ok(fd as usize)
}

/// Refuses the combinations of flags that the kernel refuses (`io_uring_sanitise_params`,
/// `io_uring_create`).
fn check_flags(f: u32) -> Result<()> {
    let has = |bit: u32| f & bit != 0;
    let both = |a: u32, b: u32| has(a) && has(b);
    const TASKRUN: u32 =
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_DEFER_TASKRUN;
    let bad = (has(IORING_SETUP_HYBRID_IOPOLL) && !has(IORING_SETUP_IOPOLL))
        || both(IORING_SETUP_SQPOLL, TASKRUN)
        || (has(IORING_SETUP_REGISTERED_FD_ONLY) && !has(IORING_SETUP_NO_MMAP))
        || (has(IORING_SETUP_TASKRUN_FLAG)
            && !has(IORING_SETUP_COOP_TASKRUN | IORING_SETUP_DEFER_TASKRUN))
        || (has(IORING_SETUP_DEFER_TASKRUN) && !has(IORING_SETUP_SINGLE_ISSUER))
        || both(IORING_SETUP_CQE32, IORING_SETUP_CQE_MIXED)
        || both(IORING_SETUP_SQE128, IORING_SETUP_SQE_MIXED)
        || (has(IORING_SETUP_SQ_REWIND)
            && (!has(IORING_SETUP_NO_SQARRAY) || has(IORING_SETUP_SQPOLL)));
    if bad { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Returns the ring sizes (`io_uring_fill_params`).
pub(super) fn geometry(entries: u32, p: &io_uring_params) -> Result<Geometry> {
    let clamp = p.flags & IORING_SETUP_CLAMP != 0;
    let bound = |n: u32, max: u32| match n {
        0 => Err(Errno::EINVAL),
        n if n > max && clamp => Ok(max),
        n if n > max => Err(Errno::EINVAL),
        n => Ok(n),
    };
    let sq_entries = bound(entries, limits::MAX_ENTRIES)?.next_power_of_two();
    let cq_entries = if p.flags & IORING_SETUP_CQSIZE != 0 {
        let n = bound(p.cq_entries, limits::MAX_CQ_ENTRIES)?.next_power_of_two();
        if n < sq_entries {
            return Err(Errno::EINVAL);
        }
        n
    } else {
        2 * sq_entries
    };
    if p.flags & IORING_SETUP_CQE_MIXED != 0 && cq_entries < 2 {
        return Err(Errno::EOVERFLOW);
    }
    if p.flags & IORING_SETUP_SQE_MIXED != 0 && sq_entries < 2 {
        return Err(Errno::EOVERFLOW);
    }
    Ok(Geometry { flags: p.flags, sq_entries, cq_entries })
}

/// Returns the ring whose workers, or SQ thread, ATTACH_WQ shares: the descriptor must be one.
fn attached(p: &io_uring_params) -> Result<Arc<Ring>> {
    crate::ring::table::ring(p.wq_fd.cast_signed()).map_err(|e| match e {
        Errno::EBADF => Errno::ENXIO,
        _ => Errno::EINVAL,
    })
}
