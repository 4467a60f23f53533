//! Injected faults, by the environment.

use super::{ENGINE, Engine, engine, value};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use softring_faults::{Plan, Replay, Spec};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Reads the faults to inject. Only softring's rings have them, so `auto` becomes `user`.
pub(super) fn read() {
    let Some(plan) = plan() else { return };
    softring_engine::faults::set(plan, log());
    if engine() == Engine::Auto {
        ENGINE.store(Engine::User as u8, Ordering::Relaxed);
    }
}

fn given(name: &CStr) -> Option<&'static CStr> {
    value(name).filter(|v| !v.is_empty())
}

fn path(name: &CStr) -> Option<&'static OsStr> {
    Some(OsStr::from_bytes(given(name)?.to_bytes()))
}

fn plan() -> Option<Plan> {
    if let Some(path) = path(c"SOFTRING_FAULTS_REPLAY") {
        let text = fs::read_to_string(path).map_err(|e| e.to_string());
        return match text.and_then(|text| Replay::parse(&text)) {
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
    match OpenOptions::new().append(true).create(true).open(path) {
        Ok(file) => Some(file.into()),
        Err(e) => {
            crate::notice::say(&format!("SOFTRING_FAULTS_LOG: {e}; no fault is recorded"));
            None
        }
    }
}
