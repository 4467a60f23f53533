//! Injected faults, by the environment.

use super::{given, only_user};
use alloc::format;
use core::ffi::CStr;
use softring_faults::{Plan, Replay, Spec};
use softring_host::files;
use softring_host::os::fd::OwnedFd;

/// Reads the faults to inject. Only softring's rings have them, so `auto` becomes `user`.
pub(super) fn read() {
    let Some(plan) = plan() else { return };
    softring_engine::faults::set(plan, log());
    only_user();
}

fn path(name: &CStr) -> Option<&'static [u8]> {
    Some(given(name)?.to_bytes())
}

fn plan() -> Option<Plan> {
    if let Some(path) = path(c"SOFTRING_FAULTS_REPLAY") {
        return match files::text(path).and_then(|text| Replay::parse(&text)) {
            Ok(replay) => Some(Plan::Replay(replay)),
            Err(e) => {
                crate::notice::say(&format!("SOFTRING_FAULTS_REPLAY: {e}; no fault is injected"));
                None
            }
        };
    }
    let text = given(c"SOFTRING_FAULTS")?.to_string_lossy();
    match Spec::parse(&text) {
        Ok(spec) => Some(Plan::Chance(spec)),
        Err(e) => {
            crate::notice::say(&format!("SOFTRING_FAULTS: {e}; no fault is injected"));
            None
        }
    }
}

/// Opens the log, which may have lines of other processes.
fn log() -> Option<OwnedFd> {
    let path = path(c"SOFTRING_FAULTS_LOG")?;
    match files::appends_to(path) {
        Ok(file) => Some(file),
        Err(e) => {
            crate::notice::say(&format!("SOFTRING_FAULTS_LOG: {e}; no fault is recorded"));
            None
        }
    }
}
