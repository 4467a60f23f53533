//! One more run of a failure, under `softring strace` or `softring trace`: what was in flight when
//! the program hung, and the trace that the user asked for.

use super::fresh;
use super::process::Waited;
use super::run::{Run, Scratch, Setup};
use crate::fail;
use crate::family::Family;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for a tool to write what it has, once its program has ended.
const WRITE: Duration = Duration::from_secs(10);
/// Most requests that are told.
const REQUESTS: usize = 20;
const UNFINISHED: &str = " <unfinished ...>";

/// A tool under which a program runs once more.
#[derive(Clone, Copy, Debug)]
struct Tool<'a> {
    words: &'a [&'a str],
    /// File that it writes.
    to: &'a Path,
    /// Folder for the program's output and for the log of its faults; none: they are not kept.
    keep: Option<&'a Path>,
}

impl Tool<'_> {
    /// Returns the command line of a run.
    fn command(&self, setup: &Setup<'_>, run: &Run) -> Command {
        let mut c = Command::new(&setup.own_exe);
        c.args(self.words).arg("-o").arg(self.to);
        if setup.cuts {
            // The tool is to outlive the power cut.
            c.arg("--quiet").arg("--").arg(&setup.own_exe).arg("run");
        }
        c.args(setup.under.words());
        if let Some(spec) = &run.spec {
            let [option, log] = setup.options();
            c.args([option, spec]);
            if let Some(folder) = self.keep {
                c.arg(log).arg(folder.join("log"));
            }
        }
        c.arg("--").args(&setup.command);
        c
    }
}

/// Runs the program once more; returns the files that it has left.
fn under(setup: &Setup<'_>, run: &Run, tool: Tool<'_>) -> anyhow::Result<Scratch> {
    let scratch = Scratch::new(setup.with)?;
    let out = match tool.keep {
        Some(folder) => File::create(folder.join("out")).context("cannot keep an output")?.into(),
        None => Stdio::null(),
    };
    let mut c = tool.command(setup, run);
    c.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    let mut group = setup.start(&mut c, &scratch, run)?;
    if let Waited::Late = group.wait(run.limit, &setup.stop).context("cannot wait for a run")? {
        // The tool itself goes on, and writes when its program has ended.
        for pid in Family::of(group.pid()).update().into_iter().filter(|&pid| pid != group.pid()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        group.wait(WRITE, &setup.stop).context("cannot wait for a run")?;
    }
    Ok(scratch)
}

/// Returns the requests that a program waits for when it hangs.
pub fn in_flight(setup: &Setup<'_>, run: &Run) -> anyhow::Result<Vec<String>> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let to = dir.path().join("strace");
    under(setup, run, Tool { words: &["strace", "-y", "-ttt"], to: &to, keep: None })?;
    let text = fs::read(&to).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().filter_map(|line| request(line, now)).take(REQUESTS).collect())
}

/// Returns the request of a line of `softring strace -ttt` if it has not ended, with its age.
fn request(line: &str, now: f64) -> Option<String> {
    let (said, route) = line.split_once(UNFINISHED)?;
    let after = said.strip_prefix('[').and_then(|said| said.split_once("] ")).map_or(said, |s| s.1);
    let (time, what) = after.split_once(' ')?;
    let age = now - time.parse::<f64>().ok()?;
    let route = route.trim();
    let route = if route.is_empty() { String::new() } else { format!(", {route}") };
    Some(format!("{what}{route}, for {age:.1} s"))
}

/// Keeps what tells of a failure in a folder: its SPEC, its trace, what it has printed, and what a
/// power cut has left.
pub fn keep(setup: &Setup<'_>, run: &Run, folder: &Path) -> anyhow::Result<()> {
    let cannot = |e: std::io::Error| {
        let hint = "--keep takes a folder that you may write into";
        fail::usage(format!("cannot write into {}: {e}", folder.display()), hint)
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    let folder = fs::canonicalize(folder).map_err(cannot)?;
    if let Some(spec) = &run.spec {
        fs::write(folder.join("spec"), format!("{spec}\n")).map_err(cannot)?;
    }
    let to = folder.join("trace.json.gz");
    let scratch = under(setup, run, Tool { words: &["trace"], to: &to, keep: Some(&folder) })?;
    if setup.cuts && setup.with.is_some() {
        let left = folder.join("left");
        // What an earlier campaign has kept there is of another failure.
        let _ = fs::remove_dir_all(&left);
        fs::create_dir(&left).and_then(|()| fresh::copy(&scratch.work, &left)).map_err(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::request;

    #[test]
    fn requests_have_an_age() {
        let line = "[pid 27696] 1000.250000 ring 1 READ(3<pipe:[3770]>, off=0, len=1) \
                    <unfinished ...> poll";
        let said = "ring 1 READ(3<pipe:[3770]>, off=0, len=1), poll, for 2.0 s";
        assert_eq!(request(line, 1002.25).as_deref(), Some(said));
        assert_eq!(request("[pid 1] 1000.2 ring 1 NOP() = 0 <0.1> inline", 1001.0), None);
    }
}
