//! The doors, fastest first: libc's `syscall()`, patched call sites, the SIGSYS trap.

mod filter;
pub mod libaio;
pub mod patch;
pub mod sigsys;
pub mod stack;
pub mod syscall;

use crate::config::{self, Door};
use crate::notice;
use crate::report::GAPS;
use softring_engine::aio;

/// Opens what the configuration asks for. Called by the constructor.
pub fn open() {
    stack::start();
    patch::entry::probe();
    syscall::open();
    patch::own_text();
    match config::door() {
        Door::Auto => {
            sigsys::inherit();
            patch::open();
            trap_if_needed();
        }
        Door::Patch => patch::open(),
        Door::Sigsys => {
            let open = sigsys::open();
            aio::all_calls_are_heard(open && config::aio_hipri());
        }
        Door::None => aio::all_calls_are_heard(false),
    }
}

/// After sites were patched: sets the trap where a call site may make a ring and was left, and the
/// program's rings are to be ours. Nobody would hear of that ring; others' calls can wait until
/// there is one ([`close_gaps`]).
fn trap_if_needed() {
    let late = crate::gate::engine_rings() && GAPS.get() > 0;
    if config::door() != Door::Auto || sigsys::is_open() || !late && patch::setups_left() == 0 {
        return;
    }
    let ours = late || crate::gate::denies_all();
    if let Some(Err(gaps)) = ours.then(close_gaps) {
        notice::past_us(&gaps);
    }
}

/// The engine is about to make a ring: how programs close and map it inline matters from now on.
pub fn before_ring() {
    if matches!(config::door(), Door::Auto | Door::Patch) {
        patch::before_ring();
    }
}

/// Is every close of a descriptor heard of before it happens? Not where call sites are left alone,
/// or are known only to the trap, which need not be told of `close`.
pub fn hears_closes() -> bool {
    let patched = matches!(config::door(), Door::Auto | Door::Patch);
    patched && !sigsys::is_open() && patch::hears_closes()
}

/// Call sites that would go past us.
pub struct Gaps {
    pub sites: usize,
    /// Threads that the trap for them would kill.
    pub blocked: usize,
}

/// Never half-intercept: before the engine makes a ring, every call site must reach us. If some
/// could not be patched, the trap has to catch them; if it cannot, or would kill a thread that
/// blocks SIGSYS, answers what is in the way.
pub fn close_gaps() -> Result<(), Gaps> {
    let sites = GAPS.get() as usize;
    let gaps = |sites, blocked| Err(Gaps { sites, blocked });
    match config::door() {
        Door::Auto if sites > 0 && !sigsys::is_open() => match sigsys::blocked_elsewhere() {
            0 if sigsys::open() => Ok(()),
            blocked => gaps(sites, blocked),
        },
        Door::Patch if sites > 0 => gaps(sites, 0),
        Door::Sigsys if !sigsys::open() => gaps(sites.max(1), 0),
        _ => Ok(()),
    }
}
