//! Plans of campaigns: each seed has faults, or a power cut.

use super::campaign::of_seed;
use crate::cli::{CrashArgs, ExploreArgs, FaultArgs};
use softring_crash::At;
use softring_faults::{Spec, hash};
use std::ffi::OsString;

/// Power cuts at points that a seed chooses.
#[derive(Clone, Debug)]
pub struct Cuts {
    pub spec: softring_crash::Spec,
    /// Requests and syncs of a run without a power cut.
    pub requests: u64,
    pub syncs: u64,
}

#[derive(Clone, Debug)]
pub enum Plan {
    /// Faults; none: the program runs as it is.
    Faults(Option<Spec>),
    Cuts(Cuts),
}

impl Plan {
    /// Returns the SPEC of a seed.
    pub fn spec(&self, seed: u64) -> Option<String> {
        match self {
            Plan::Faults(spec) => spec.as_ref().map(|spec| of_seed(spec, seed).to_string()),
            Plan::Cuts(cuts) => Some(cuts.of_seed(seed).to_string()),
        }
    }

    /// Returns the arguments that give a run its SPEC.
    pub fn words(&self, spec: &str) -> Vec<OsString> {
        let spec = Some(spec.into());
        match self {
            Plan::Faults(_) => FaultArgs { faults: spec, ..FaultArgs::default() }.words(),
            Plan::Cuts(_) => CrashArgs { crash: spec, crash_log: None }.words(),
        }
    }

    /// Returns what reports say of the campaign.
    pub fn told(&self, args: &ExploreArgs) -> String {
        match self {
            Plan::Faults(_) => super::faults_of(args).to_string_lossy().into_owned(),
            Plan::Cuts(cuts) => format!("power cuts, {}", cuts.spec.model.name()),
        }
    }
}

impl Cuts {
    /// Returns the power cut of a seed. Every second one is before a sync, where most is not
    /// durable.
    pub fn of_seed(&self, seed: u64) -> softring_crash::Spec {
        let random = hash(seed, &[u64::from_be_bytes(*b"powercut")]);
        let point = random >> 8;
        let at = match &self.spec.at {
            Some(chosen) => chosen.clone(),
            None if self.syncs > 0 && random.is_multiple_of(2) => At::Sync(1 + point % self.syncs),
            None => match point % (self.requests + 1) {
                0 => At::End,
                n => At::Request(n),
            },
        };
        softring_crash::Spec { seed, at: Some(at), ..self.spec.clone() }
    }
}
