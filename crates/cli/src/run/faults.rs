//! Injected faults: the options become the variables that the library reads.

use crate::cli::FaultArgs;
use crate::fail;
use softring_faults::log::Head;
use softring_faults::{GRAMMAR, Replay, Spec};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

mod file;

/// Variables of the library, with their values.
pub type Variables = Vec<(&'static str, OsString)>;

/// Checks the options, starts the log, and returns the variables of the library.
///
/// # Errors
/// The SPEC or a file cannot be understood or used.
pub fn variables(args: &FaultArgs) -> anyhow::Result<Variables> {
    if !args.any() {
        if args.faults_log.is_some() {
            let hint = "add --faults SPEC, as --faults legal";
            return Err(fail::usage("--faults-log needs --faults or --faults-replay", hint));
        }
        return Ok(Vec::new());
    }
    let mut spec = args.faults.as_deref().map_or_else(|| Ok(Spec::default()), spec_of)?.to_string();
    let mut variables = Vec::new();
    if let Some(path) = &args.faults_replay {
        let text = read(path, "--faults-replay")?;
        let wrong = |e: String| {
            let hint = match text.ends_with('\n') || text.is_empty() {
                true => "give a file that --faults-log has written",
                false => "its last line is cut off: take that out",
            };
            fail::usage(format!("--faults-replay {}: {e}", path.display()), hint)
        };
        Replay::parse(&text).map_err(wrong)?;
        let head = Head::parse(text.lines().next().unwrap_or_default());
        spec = head.map_err(|e| wrong(e.to_owned()))?.spec;
        variables.push(("SOFTRING_FAULTS_REPLAY", absolute(path, "--faults-replay")?));
    }
    if let Some(path) = &args.faults_log {
        let started = fs::write(path, format!("{}\n", Head { spec: spec.clone() }));
        started.map_err(|e| cannot("write", path, "--faults-log", &e))?;
        variables.push(("SOFTRING_FAULTS_LOG", absolute(path, "--faults-log")?));
    }
    variables.push(("SOFTRING_FAULTS", spec.into()));
    Ok(variables)
}

/// Returns the SPEC of an option's value: a list, or the name of a file.
///
/// # Errors
/// The SPEC cannot be understood.
pub fn spec_of(value: &OsStr) -> anyhow::Result<Spec> {
    let text = value.to_str().ok_or_else(|| fail::usage("--faults: SPEC is no text", GRAMMAR))?;
    if let Some(path) = file_of(text) {
        let text = read(path, "--faults")?;
        let wrong = |e: String| fail::usage(format!("--faults {}: {e}", path.display()), GRAMMAR);
        return file::parse(&text).map_err(wrong);
    }
    Spec::parse(text).map_err(|e| {
        let pointed = e.point(text).replace('\n', "\n  ");
        fail::usage(format!("--faults: {e}\n  {pointed}"), GRAMMAR)
    })
}

/// Returns the TOML file that an option's value names instead of a list.
pub fn file_of(text: &str) -> Option<&Path> {
    text.strip_prefix('@').or_else(|| text.ends_with(".toml").then_some(text)).map(Path::new)
}

/// Reads a file that an option names.
pub fn read(path: &Path, option: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).map_err(|e| cannot("read", path, option, &e))
}

fn cannot(what: &str, path: &Path, option: &str, e: &std::io::Error) -> anyhow::Error {
    let hint = "name a file that can be used";
    fail::usage(format!("{option}: cannot {what} {}: {e}", path.display()), hint)
}

fn absolute(path: &Path, option: &str) -> anyhow::Result<OsString> {
    let absolute = fs::canonicalize(path).map_err(|e| cannot("find", path, option, &e))?;
    Ok(absolute.into())
}
