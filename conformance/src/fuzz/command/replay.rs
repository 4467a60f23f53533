//! Replay of one program on both sides, with transcripts.

use super::super::check::Divergence;
use super::super::compare::Difference;
use super::super::driver::{Driver, Side, Waits};
use super::super::known::{self, Seen};
use super::super::program::Program;
use super::super::{compare, report};
use super::Cli;
use crate::entry::EntryPoint;
use crate::say;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;

/// Microseconds of quiet of a replayed run.
const SLOW: u64 = 25_000;

pub(super) fn replay(cli: &Cli, driver: &Driver, path: &Path) -> Result<ExitCode> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let program: Program = serde_json::from_slice(&text).context("it is no program")?;
    let kernel = driver.run(&program, Side::Kernel, Waits { quiet: SLOW, ..Waits::default() })?;
    let waits = Waits { quiet: SLOW, follow: Some(&kernel), one_cpu: false };
    let softring = driver.run(&program, Side::Softring, waits)?;
    let found = compare::compare(&program, &kernel, &softring);
    let agreed = found.is_none();
    let nothing = Difference { about: "agreed".to_owned(), ..Difference::default() };
    let difference = found.unwrap_or(nothing);
    let seen = Seen { program: &program, what: &difference, kernel: &kernel, softring: &softring };
    if let Some(words) = known::reason(&seen).filter(|_| !agreed) {
        say!("LIMITATIONS says: {words}");
    }
    let all = Divergence { program, difference, kernel, softring };
    print!("{}", report::divergence(&all, &again(cli, &path.display().to_string())));
    Ok(ExitCode::from(u8::from(!agreed)))
}

/// Returns the command that shows a divergence again.
pub(super) fn again(cli: &Cli, file: &str) -> String {
    let mut out = format!("softring-fuzz --replay {file}");
    if let Some(lib) = &cli.lib {
        out += &format!(" --lib {}", lib.display());
    }
    if cli.intercept != EntryPoint::default() {
        out += &format!(" --intercept {}", cli.intercept);
    }
    out
}
