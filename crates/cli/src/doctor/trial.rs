//! The trial program: what a program with inline system calls gets under `softring run`. It tries a
//! ring (`softring trial`, hidden); doctor runs it and reads what it says.

use super::probes::{Finding, State};
use crate::child::{self, Captured, End};
use crate::{fail, files, inline, out};
use serde::{Deserialize, Serialize};
use softring_engine::trial::{Calls, Trial};
use std::ffi::CString;

/// What the trial program says.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    /// `kernel`, `softring` or `none`.
    rings: String,
    /// What did not work, or the errno of the setup.
    fault: Option<String>,
}

const INLINE: Calls = Calls { setup: inline::setup, enter: inline::enter, close: inline::close };

/// `softring trial`
pub fn command() -> anyhow::Result<()> {
    let said = match Trial::new(INLINE) {
        Err(e) => Said { rings: "none".into(), fault: Some(super::probes::errno_text(e.0)) },
        Ok(trial) => {
            // The kernel's ring has a file of no type.
            let mode = files::mode(trial.ring()).unwrap_or_default();
            let ours = mode & libc::S_IFMT == libc::S_IFREG;
            let rings = if ours { "softring" } else { "kernel" };
            Said { rings: rings.into(), fault: trial.fault().map(str::to_owned) }
        }
    };
    out::json(&said)
}

/// The rings of the trial program, as the found text names them.
pub const KERNELS: &str = "the kernel's rings";
pub const OURS: &str = "softring's rings";

/// Runs the trial program under `softring run`.
pub fn probe() -> Finding {
    let Ok(me) = files::own_exe() else {
        return Finding::new(State::Unknown, "cannot find this program's own file");
    };
    let me = me.to_string_lossy().into_owned();
    let words = [&*me, "run", "--", &*me, "trial"];
    let args: Vec<CString> = words.iter().filter_map(|w| CString::new(*w).ok()).collect();
    match child::captured(&args, &[("SOFTRING_REPORT", "1"), ("SOFTRING_QUIET", "0")]) {
        Ok(done) => judge(&done),
        Err(e) => Finding::new(State::Unknown, format!("it cannot be started: {e}")),
    }
}

/// What its end and its output mean.
fn judge(done: &Captured) -> Finding {
    let lines = || done.stderr.lines().filter_map(|l| l.strip_prefix("softring: "));
    let why = lines().find(|l| !l.starts_with("report:") && !l.starts_with("this program's"));
    let why = why.unwrap_or("without a word");
    let Ok(said) = serde_json::from_str::<Said>(&done.stdout) else {
        let end = match done.end {
            End::Killed(n) => format!("it was killed by signal {n}"),
            End::Exited | End::Unknown => "it ended".into(),
        };
        return Finding::new(State::Denied, format!("{end}: {why}"));
    };
    let report = lines().find(|l| l.starts_with("report:")).unwrap_or_default();
    match (&*said.rings, said.fault) {
        ("none", fault) => {
            let fault = fault.unwrap_or_default();
            Finding::new(State::Denied, format!("no rings ({fault}): {why}"))
        }
        (_, Some(fault)) => Finding::new(State::Denied, format!("a ring does not work: {fault}")),
        ("kernel", None) => Finding::new(State::Ok, format!("{KERNELS} work")),
        _ => Finding::new(State::Ok, format!("{OURS} work, through {}", entry(report))),
    }
}

/// Through which entry the calls came, as the report counts them.
fn entry(report: &str) -> &'static str {
    let count = |what: &str| {
        let mut words = report.split_whitespace().skip_while(|w| *w != what);
        words.nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    match (count("patched"), count("trapped")) {
        (_, 1..) => "the SIGSYS trap",
        (1.., _) => "patched call sites",
        _ => "libc's syscall()",
    }
}

/// The verdict of the trial program: whose rings, if it says.
pub fn rings(found: &str) -> Option<&'static str> {
    let of = |start, rings| found.starts_with(start).then_some(rings);
    of(KERNELS, "kernel").or(of(OURS, "softring"))
}

/// Where neither is to be had.
pub fn none() -> anyhow::Error {
    fail::work("neither the kernel's rings nor softring's can be had here")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(stdout: &str, stderr: &str, end: End) -> Captured {
        Captured { stdout: stdout.into(), stderr: stderr.into(), end }
    }

    #[test]
    fn judgements() {
        let report = "softring: report: pid 1 sites 3 gaps 0 setups 1 libc 0 patched 4 trapped 0";
        let ours = judge(&done("{\"rings\":\"softring\"}", report, End::Exited));
        assert_eq!(ours.found, "softring's rings work, through patched call sites");
        assert_eq!((ours.state, rings(&ours.found)), (State::Ok, Some("softring")));
        let none = judge(&done(
            "{\"rings\":\"none\",\"fault\":\"EPERM\"}",
            "softring: io_uring stays denied: so it is",
            End::Exited,
        ));
        assert_eq!(none.found, "no rings (EPERM): io_uring stays denied: so it is");
        let killed = judge(&done("", "", End::Killed(31)));
        assert_eq!(killed.found, "it was killed by signal 31: without a word");
        assert_eq!((killed.state, rings(&killed.found)), (State::Denied, None));
        let broken = judge(&done("{\"rings\":\"kernel\",\"fault\":\"READ\"}", "", End::Exited));
        assert_eq!(broken.found, "a ring does not work: READ");
    }
}
