//! The trial program: a program with inline system calls, to see what it gets under `softring run`.
//! It tries a ring (`softring trial`, hidden); doctor runs it and reads its output.

use super::exercise::{self, Progress};
use super::probes::{Finding, State};
use crate::child::{self, Captured, End};
use crate::run::mapped;
use crate::{fail, files, inline, out};
use serde::{Deserialize, Serialize};
use softring_host::trial::{Calls, Trial};
use std::ffi::CString;
use std::path::Path;

/// Messages of the trial program, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Said {
    /// First message: whose rings the program has.
    Rings {
        /// `kernel`, `softring` or `none`.
        whose: String,
        /// Fault of the ring, or the errno of the set-up.
        fault: Option<String>,
    },
    /// Step that comes next; empty: nothing in particular.
    Tries(String),
    /// Step that failed.
    Failed(String),
    /// Last message.
    Done,
}

const INLINE: Calls = Calls { setup: inline::setup, enter: inline::enter, close: inline::close };

fn say(said: &Said) -> anyhow::Result<()> {
    out::line(&serde_json::to_string(said)?)
}

/// Runs `softring trial`.
pub fn command() -> anyhow::Result<()> {
    let (whose, fault) = match Trial::new(INLINE) {
        Err(e) => ("none", Some(super::probes::errno_text(e.0))),
        Ok(trial) => {
            // The kernel's ring has a file of no type.
            let mode = files::mode(trial.ring()).unwrap_or_default();
            let ours = mode & libc::S_IFMT == libc::S_IFREG;
            let whose = if ours { "softring" } else { "kernel" };
            (whose, trial.fault().map(str::to_owned))
        }
    };
    let exercises = whose == "softring" && fault.is_none();
    say(&Said::Rings { whose: whose.into(), fault })?;
    if exercises {
        exercise::take(|progress| {
            let said = match progress {
                Progress::Tries(what) => Said::Tries(what.into()),
                Progress::Failed(what) => Said::Failed(what),
            };
            // A doctor that has ended reads nothing more.
            let _ = say(&said);
        });
    }
    say(&Said::Done)
}

/// Names of the rings of the trial program in the found text.
pub const KERNELS: &str = "the kernel's rings";
pub const OURS: &str = "softring's rings";

/// Runs the trial program under `softring run`.
pub fn probe() -> Finding {
    let Ok(me) = files::own_exe() else {
        return Finding::new(State::Unknown, "cannot find this program's own file");
    };
    let me = me.to_string_lossy();
    let words = [&*me, "run", "--", &*me, "trial"];
    let args: Vec<CString> = words.iter().filter_map(|w| CString::new(*w).ok()).collect();
    match child::captured(&args, &[("SOFTRING_REPORT", "1"), ("SOFTRING_QUIET", "0")]) {
        Ok(done) if is_only_kind() => judge(&done),
        Ok(done) => judge_static(judge(&done)),
        Err(e) => Finding::new(State::Unknown, format!("the trial program cannot be started: {e}")),
    }
}

/// Returns whether all programs that start here are of the trial program's kind: it is static if
/// this command is.
fn is_only_kind() -> bool {
    const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];
    let is_static = cfg!(target_feature = "crt-static");
    !is_static || !LOADERS.iter().any(|loader| files::exists(Path::new(loader)))
}

/// End of the found text if only a static program was tried.
const UNTRIED: &str = "; a dynamic program needs less, and this static softring has none to try: \
                       `softring run` of one says why it gets no ring";

/// Returns whether the found text tells of static programs alone.
pub fn is_of_static(found: &str) -> bool {
    found.ends_with(UNTRIED)
}

/// Judges by a static trial program where there are dynamic programs. These have less call sites
/// that only the SIGSYS trap hears, and need no ptrace(2).
fn judge_static(tried: Finding) -> Finding {
    if tried.state != State::Denied || rings(&tried.found).is_some() {
        return tried;
    }
    Finding::new(State::Unknown, format!("a static program fails ({}){UNTRIED}", tried.found))
}

/// Judges the trial program's end and output.
fn judge(done: &Captured) -> Finding {
    let lines = || done.stderr.lines().filter_map(|l| l.strip_prefix("softring: "));
    let why = lines().find(|l| !l.starts_with("report:") && !l.starts_with("this program's"));
    let why = why.unwrap_or("it printed no reason");
    let end = match done.end {
        End::Killed(n) => format!("the trial program was killed by signal {n}"),
        End::Exited | End::Unknown => "the trial program ended".into(),
    };
    let mut said = done.stdout.lines().filter_map(|line| serde_json::from_str(line).ok());
    let Some(Said::Rings { whose, fault }) = said.next() else {
        if let Some((_, why)) = why.split_once(mapped::NOT_IN_IT) {
            let found = format!("the library cannot be put under a static program{why}{UNTRIED}");
            return Finding::new(State::Unknown, found);
        }
        // Another signal is not a policy's: memory ran out, say by RLIMIT_AS. This program needs
        // more memory than others.
        let other = matches!(done.end, End::Killed(n) if n != libc::SIGSYS);
        let state = if other { State::Unknown } else { State::Denied };
        return Finding::new(state, format!("{end}: {why}"));
    };
    let report = lines().find(|l| l.starts_with("report:")).unwrap_or_default();
    match (&*whose, fault) {
        ("none", fault) => {
            let fault = fault.unwrap_or_default();
            Finding::new(State::Denied, format!("no rings ({fault}): {why}"))
        }
        (_, Some(fault)) => Finding::new(State::Denied, format!("a ring fails: {fault}")),
        ("kernel", None) => Finding::new(State::Ok, format!("{KERNELS} work")),
        _ => judge_steps(said, &end, entry(report)),
    }
}

/// Judges the steps of the exercise.
fn judge_steps(said: impl Iterator<Item = Said>, end: &str, entry: &str) -> Finding {
    let (mut trying, mut failed, mut done) = (String::new(), Vec::new(), false);
    for said in said {
        match said {
            Said::Tries(what) => trying = what,
            Said::Failed(what) => failed.push(what),
            Said::Done => done = true,
            Said::Rings { .. } => {}
        }
    }
    if !done && !trying.is_empty() {
        return Finding::new(State::Denied, format!("{PARTLY}: {end} at {trying}"));
    }
    if !failed.is_empty() {
        let failed = failed.join(", ");
        return Finding::new(State::Denied, format!("{PARTLY}: {failed}"));
    }
    // A program killed before it could try a step says nothing about rings.
    Finding::new(State::Ok, format!("{OURS} work, through {entry}"))
}

/// Beginning of the found text if not all of a ring works.
const PARTLY: &str = "some operations of softring's rings fail";

/// Returns the entry by which the calls came, as the report counts them.
fn entry(report: &str) -> &'static str {
    let count = |what: &str| {
        let mut words = report.split_whitespace().skip_while(|w| *w != what);
        words.nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    match (count("patched"), count("trapped")) {
        _ if report.is_empty() => "call sites of a static program",
        (_, 1..) => "the SIGSYS trap",
        (1.., _) => "patched call sites",
        _ => "libc's syscall()",
    }
}

/// Returns the verdict of the trial program: whose rings, if the found text says so.
pub fn rings(found: &str) -> Option<&'static str> {
    let of = |start, rings| found.starts_with(start).then_some(rings);
    of(KERNELS, "kernel").or(of(OURS, "softring")).or(of(PARTLY, "partly"))
}

/// Returns the error if neither side's rings can be had.
pub fn none() -> anyhow::Error {
    fail::work("programs get neither the kernel's rings nor softring's here")
}

/// Returns the error if a program gets rings that fail it.
pub fn partly() -> anyhow::Error {
    fail::work("programs get softring's rings here, but some of their operations fail")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(stdout: &str, stderr: &str, end: End) -> Captured {
        Captured { stdout: stdout.into(), stderr: stderr.into(), end }
    }

    const SOFTRING: &str = r#"{"rings":{"whose":"softring","fault":null}}"#;

    #[test]
    fn judgements() {
        let report = "softring: report: pid 1 sites 3 gaps 0 setups 1 libc 0 patched 4 trapped 0";
        let ours = judge(&done(&format!("{SOFTRING}\n\"done\""), report, End::Exited));
        assert_eq!(ours.found, "softring's rings work, through patched call sites");
        assert_eq!((ours.state, rings(&ours.found)), (State::Ok, Some("softring")));
        let none = judge(&done(
            r#"{"rings":{"whose":"none","fault":"EPERM"}}"#,
            "softring: io_uring stays denied: so it is",
            End::Exited,
        ));
        assert_eq!(none.found, "no rings (EPERM): io_uring stays denied: so it is");
        let killed = judge(&done("", "", End::Killed(31)));
        assert_eq!(killed.found, "the trial program was killed by signal 31: it printed no reason");
        assert_eq!((killed.state, rings(&killed.found)), (State::Denied, None));
        let refused = "softring: error: /softring is statically linked, and the library is not in \
                       it: ptrace(2) is not allowed here: EPERM";
        let refused = judge(&done("", refused, End::Exited));
        assert!(refused.found.contains("program: ptrace(2) is not allowed"), "{}", refused.found);
        assert_eq!((refused.state, rings(&refused.found)), (State::Unknown, None));
        let aborted = judge(&done("", "", End::Killed(6)));
        assert_eq!((aborted.state, rings(&aborted.found)), (State::Unknown, None));
        let statics = judge_static(Finding::new(State::Denied, none.found));
        assert_eq!((statics.state, rings(&statics.found)), (State::Unknown, None));
        assert!(statics.found.contains("so it is"), "{}", statics.found);
        assert!(is_of_static(&statics.found) && is_of_static(&refused.found));
        assert!(!is_of_static(&aborted.found));
        let broken =
            judge(&done(r#"{"rings":{"whose":"kernel","fault":"READ"}}"#, "", End::Exited));
        assert_eq!(broken.found, "a ring fails: READ");
    }

    #[test]
    fn a_step_that_kills_or_fails_is_named() {
        let tries = |more: &str| format!("{SOFTRING}\n{{\"tries\":\"a timeout\"}}\n{more}");
        let killed = judge(&done(&tries(""), "", End::Killed(31)));
        assert!(
            killed.found.ends_with("program was killed by signal 31 at a timeout"),
            "{killed:?}"
        );
        assert_eq!((killed.state, rings(&killed.found)), (State::Denied, Some("partly")));
        let failed = judge(&done(&tries("{\"failed\":\"a timeout\"}\n\"done\""), "", End::Exited));
        assert_eq!(rings(&failed.found), Some("partly"), "{failed:?}");
        let between = judge(&done(&tries("{\"tries\":\"\"}"), "", End::Killed(31)));
        assert_eq!(rings(&between.found), Some("softring"), "{between:?}");
    }
}
