//! Options for injected faults.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// The options of injected faults.
#[derive(Clone, Debug, Default, Args)]
pub struct FaultArgs {
    /// Inject faults that a kernel could produce: a list as seed=7,short-read=0.05, a preset
    /// (legal, order, hostile), or a TOML file; implies --engine=user
    #[arg(long, value_name = "SPEC", value_hint = ValueHint::Other)]
    pub faults: Option<OsString>,
    /// Write each injected fault to a file, a JSON object on each line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub faults_log: Option<PathBuf>,
    /// Inject exactly the faults of such a file, whatever --faults says
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub faults_replay: Option<PathBuf>,
}

impl FaultArgs {
    /// Returns whether faults are to be injected.
    pub fn any(&self) -> bool {
        self.faults.is_some() || self.faults_replay.is_some()
    }

    /// Returns the arguments that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        for (name, value) in [
            ("--faults", self.faults.clone()),
            ("--faults-log", self.faults_log.clone().map(Into::into)),
            ("--faults-replay", self.faults_replay.clone().map(Into::into)),
        ] {
            if let Some(value) = value {
                words.extend([name.into(), value]);
            }
        }
        words
    }
}

/// The options of power cuts.
#[derive(Clone, Debug, Default, Args)]
pub struct CrashArgs {
    /// Let the power fail: kill the program at a chosen point, and make of a directory what may be
    /// left there; implies --engine=user
    #[arg(long, value_name = "SPEC", value_hint = ValueHint::Other)]
    pub crash: Option<OsString>,
    /// Write to a file which requests are lost or torn, a JSON object on each line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "crash")]
    pub crash_log: Option<PathBuf>,
}

impl CrashArgs {
    /// Returns the arguments that say the same.
    pub fn words(&self) -> Vec<OsString> {
        let log = self.crash_log.clone().map(OsString::from);
        let given = [("--crash", self.crash.clone()), ("--crash-log", log)];
        let words = given.into_iter().filter_map(|(name, value)| Some([name.into(), value?]));
        words.flatten().collect()
    }
}
