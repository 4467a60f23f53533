//! The reactor's duties for the process: it watches forked children and answers them, and finds
//! what was closed without a report.

use alloc::boxed::Box;
use softring_host::os::fd::BorrowedFd;

use crate::drive::reactor::{Duties, guard};
use crate::process::closing::{give_back, sweep};
use crate::process::journal::{self, Children, End};
use crate::process::remote_cancel;
use crate::ring::table::{all, some};

/// Children that one reactor watches.
#[derive(Default)]
struct OfProcess {
    children: Children,
}

pub(crate) fn make() -> Box<dyn Duties> {
    Box::<OfProcess>::default()
}

impl Duties for OfProcess {
    fn serve(&mut self, set: BorrowedFd<'_>) {
        let rings = some(|ring| remote_cancel::is_asked(ring) || journal::is_called(ring));
        let asked = rings.iter().filter(|ring| remote_cancel::answer(ring));
        asked.for_each(|ring| guard(ring, true));
        let ended = self.children.update(set, &rings);
        ended.into_iter().for_each(|(child, end)| take_over(child, end));
    }

    fn event(&mut self, set: BorrowedFd<'_>, data: u64) -> bool {
        let ended = self.children.ended(set, data);
        let ours = ended.is_some();
        ended.into_iter().for_each(|(child, end)| take_over(child, end));
        ours
    }

    fn sweep(&mut self) {
        sweep();
        give_back();
    }
}

/// Takes over the requests of a child that has ended, or is another program, on the rings that it
/// had in common with us.
fn take_over(child: u32, end: End) {
    let rings = all();
    rings
        .iter()
        .filter(|ring| journal::take_over(ring, child, end))
        .for_each(|ring| guard(ring, true));
}
