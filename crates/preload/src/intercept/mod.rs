//! The entry points, fastest first: libc's `syscall()`, patched call sites, the SIGSYS trap.

mod filter;
pub mod libaio;
pub mod patch;
pub mod sigsys;
pub mod stack;
pub mod syscall;
mod thread_exit;

use crate::config::{self, Intercept};
use crate::notice;
use crate::report::GAPS;
use softring_engine::libaio as aio;

/// Opens the entry points that the configuration asks for. Called by the constructor.
pub fn open() {
    stack::start();
    patch::entry::probe();
    syscall::open();
    patch::own_text();
    match config::intercept() {
        Intercept::Auto => {
            sigsys::inherit();
            patch::open();
        }
        Intercept::Patch => patch::open(),
        Intercept::Sigsys => {
            let open = sigsys::open();
            aio::all_calls_reported(open && config::aio_hipri());
            if !open {
                patch::open();
            }
        }
        Intercept::None => {
            patch::count();
            aio::all_calls_reported(false);
        }
    }
    see_to_setups();
}

/// Returns whether call sites are patched. They are also patched if the trap was asked for and
/// cannot be had.
fn patches() -> bool {
    match config::intercept() {
        Intercept::Auto | Intercept::Patch => true,
        Intercept::Sigsys => !sigsys::is_open(),
        Intercept::None => false,
    }
}

/// Sets the trap, after patching, if a call site that may make a ring was left and the program's
/// rings must be ours. Reports the site if the trap cannot be set. Sites of other calls can wait
/// until there is a ring ([`close_gaps`]).
fn see_to_setups() {
    let late = crate::gate::engine_rings() && GAPS.get() > 0;
    if sigsys::is_open() || !late && patch::setups_left() == 0 {
        return;
    }
    if late || crate::gate::denies_all() {
        let gaps = match config::intercept() {
            Intercept::None => Err(gaps(NoTrap::NotAsked)),
            _ => close_gaps(),
        };
        if let Err(gaps) = gaps {
            notice::past_us(&gaps);
        }
    }
}

/// Patches what matters once the engine makes a ring: inline calls that close or map it.
pub fn before_ring() {
    if patches() {
        patch::before_ring();
    }
}

/// Returns whether every close of a descriptor is reported before it happens. False if call sites
/// are not patched, or if only the trap knows some: it does not trap `close`.
pub fn reports_closes() -> bool {
    patches() && !sigsys::is_open() && patch::reports_closes()
}

/// Call sites that would bypass us.
pub struct Gaps {
    pub sites: usize,
    pub no_trap: NoTrap,
}

/// Reason why the trap does not catch them.
pub enum NoTrap {
    NotAsked,
    /// Threads that block SIGSYS, and would be killed by the trap.
    Blocked(usize),
    /// A policy kills for the trapped calls, and outranks the trap.
    Kills,
    NotToBeHad,
}

fn gaps(no_trap: NoTrap) -> Gaps {
    Gaps { sites: GAPS.get() as usize, no_trap }
}

/// Makes sure, before the engine makes a ring, that every call site reaches us: half of an
/// interception is worse than none. The trap catches the sites that could not be patched. Returns
/// the obstacle if the trap cannot be set, or would kill a thread that blocks SIGSYS.
pub fn close_gaps() -> Result<(), Gaps> {
    if config::intercept() == Intercept::None || sigsys::is_open() || GAPS.get() == 0 {
        return Ok(());
    }
    if config::intercept() == Intercept::Patch {
        return Err(gaps(NoTrap::NotAsked));
    }
    if sigsys::is_outranked() {
        return Err(gaps(NoTrap::Kills));
    }
    match sigsys::blocked_elsewhere() {
        0 if sigsys::open() => Ok(()),
        0 => Err(gaps(NoTrap::NotToBeHad)),
        threads => Err(gaps(NoTrap::Blocked(threads))),
    }
}
