//! The entry points, fastest first: libc's `syscall()`, patched call sites, the SIGSYS trap.

mod filter;
pub mod libaio;
pub mod patch;
pub mod sigsys;
pub mod stack;
pub mod syscall;

use crate::config::{self, Intercept};
use crate::notice;
use crate::report::GAPS;
use softring_engine::libaio as aio;

/// Opens what the configuration asks for. Called by the constructor.
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

/// Are call sites patched? So they are where the trap was asked for and is not to be had, too.
fn patches() -> bool {
    match config::intercept() {
        Intercept::Auto | Intercept::Patch => true,
        Intercept::Sigsys => !sigsys::is_open(),
        Intercept::None => false,
    }
}

/// After sites were patched: sets the trap where a call site may make a ring and was left, and the
/// program's rings are to be ours; or says that nobody is told of that ring. Others' calls can wait
/// until there is one ([`close_gaps`]).
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

/// The engine is about to make a ring: how programs close and map it inline matters from now on.
pub fn before_ring() {
    if patches() {
        patch::before_ring();
    }
}

/// Is every close of a descriptor reported before it happens? Not where call sites are left alone,
/// or are known only to the trap, which need not be told of `close`.
pub fn reports_closes() -> bool {
    patches() && !sigsys::is_open() && patch::reports_closes()
}

/// Call sites that would go past us.
pub struct Gaps {
    pub sites: usize,
    pub no_trap: NoTrap,
}

/// Why the trap does not catch them.
pub enum NoTrap {
    NotAsked,
    /// The trap would kill so many threads, which block SIGSYS.
    Blocked(usize),
    /// A policy kills for the calls that it is for, and outranks it.
    Kills,
    NotToBeHad,
}

fn gaps(no_trap: NoTrap) -> Gaps {
    Gaps { sites: GAPS.get() as usize, no_trap }
}

/// Never half-intercept: before the engine makes a ring, every call site must reach us. If some
/// could not be patched, the trap has to catch them; if it cannot, or would kill a thread that
/// blocks SIGSYS, answers what is in the way.
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
