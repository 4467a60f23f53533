//! `softring doctor`: shows what denies io_uring here, what works instead, what a program would
//! get, and what to change.

mod checks;
mod exercise;
mod probes;
mod recipes;
mod trial;

use crate::child::{self, End, Isolated};
use crate::cli::{DoctorArgs, name_of};
use crate::{out, sys};
use checks::{CHECKS, Check, Group, HARMLESS};
use probes::{Finding, State};
use serde::Serialize;
use softring_host::refused;

pub use probes::kernel_ring_works;
pub use trial::command as trial;

/// One row, for JSON output.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    group: Group,
    state: State,
    found: String,
    meaning: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

/// The whole result, for JSON output.
#[derive(Serialize)]
struct Report {
    softring: &'static str,
    verdict: Verdict,
    checks: Vec<Row>,
}

/// Rings that a program started by `softring run` would get.
#[derive(Serialize)]
struct Verdict {
    /// `kernel`, `softring`, `partly` if softring's rings fail the program at something, `none`, or
    /// `unknown` if the trial could not be run.
    rings: &'static str,
    why: String,
    /// Advice about each row that is not as wished, by its name.
    change: Vec<String>,
}

/// Runs `softring doctor [--json]`. The exit code is 1 if a program would get no rings at all, or
/// rings that fail it. `--for` only prints.
pub fn command(args: &DoctorArgs) -> anyhow::Result<()> {
    if let Some(environment) = args.environment {
        return recipes::command(environment);
    }
    sys::ignore_file_limit_signal();
    let checks: Vec<Row> = CHECKS.iter().map(|check| row(check, args.iopoll)).collect();
    let report = Report { softring: env!("CARGO_PKG_VERSION"), verdict: verdict(&checks), checks };
    if args.json {
        out::json(&report)?;
    } else {
        print(&report)?;
    }
    match report.verdict.rings {
        "none" => Err(trial::none()),
        "partly" => Err(trial::partly()),
        _ => Ok(()),
    }
}

fn row(check: &Check, iopoll: bool) -> Row {
    let Finding { state, found } = run_isolated(check);
    // Advice is given only on what is known and wanted.
    let wanted = iopoll || check.group != Group::Polling;
    let advised = wanted && matches!(state, State::Less | State::Denied) && !check.hint.is_empty();
    let hint = advised.then_some(check.hint);
    Row { name: check.name, group: check.group, state, found, meaning: check.meaning, hint }
}

/// Columns for the name of a check: the length of the longest.
const NAME: usize = 19;

/// Runs the probe in a child, so that a deadly sandbox does not take doctor with it.
fn run_isolated(check: &Check) -> Finding {
    let probe = || serde_json::to_vec(&(check.probe)()).unwrap_or_default();
    let denied = |found| Finding::new(State::Denied, found);
    let unknown = |found: &str| Finding::new(State::Unknown, found);
    match child::isolated(probe) {
        Ok(Isolated::Answer(json)) => {
            serde_json::from_slice(&json).unwrap_or_else(|_| unknown("the probe gave no answer"))
        }
        Ok(Isolated::Ended(End::Killed(libc::SIGSYS))) => {
            denied("killed by SIGSYS: a seccomp policy".to_owned())
        }
        Ok(Isolated::Ended(End::Killed(n))) => denied(format!("killed by signal {n}")),
        Ok(Isolated::Ended(_)) => unknown("the probe gave no answer"),
        // No child can be had: the probe runs in here, if nothing can kill for it.
        Err(_) if !refused::is_filtered() || harms_not(check.name) => (check.probe)(),
        Err(e) => unknown(&format!(
            "not tried: softring cannot start a process with shared memory ({e}), and a filter may \
             kill a process for trying"
        )),
    }
}

/// Returns whether no policy that lets programs start kills for this check. Under softring's
/// library, that library makes the calls for rings.
fn harms_not(name: &str) -> bool {
    HARMLESS.contains(&name) || name == "io_uring_setup" && sys::is_under_softring()
}

fn find<'a>(rows: &'a [Row], name: &str) -> Option<&'a Row> {
    rows.iter().find(|r| r.name == name)
}

fn verdict(rows: &[Row]) -> Verdict {
    let advice = |r: &Row| r.hint.map(|hint| format!("{}: {hint}", r.name));
    let change = rows.iter().filter_map(advice).collect();
    let setup = find(rows, "io_uring_setup");
    if setup.is_some_and(|r| r.found.contains(probes::OURS)) {
        let why = "this process already runs under softring".into();
        return Verdict { rings: "softring", why, change };
    }
    let tried = find(rows, "trial program");
    let rings = tried.and_then(|r| trial::rings(&r.found));
    let has_library = find(rows, "libsoftring.so").is_some_and(|r| r.state != State::Denied);
    let no_library = setup.is_some_and(|r| r.state == State::Ok) && !has_library;
    if no_library {
        let why = "softring run does not start the program: libsoftring.so was not found, and only \
                   --engine=kernel (the kernel's rings) works without the library";
        return Verdict { rings: "none", why: why.into(), change };
    }
    if rings == Some("kernel") {
        let why = "io_uring_setup works: --engine=auto leaves programs on the kernel's rings";
        return Verdict { rings: "kernel", why: why.into(), change };
    }
    let mut why = format!("io_uring_setup: {}", setup.map_or("not probed", |r| &r.found));
    // The value is asked for: a sysctl that could not be read denies nothing.
    let sysctl = find(rows, "io_uring_disabled").filter(|r| r.state == State::Denied);
    if sysctl.is_some_and(|r| r.found.parse::<u32>().is_ok()) {
        why.push_str(" (the sysctl kernel.io_uring_disabled)");
    } else if find(rows, "seccomp").is_some_and(|r| r.state != State::Ok) {
        why.push_str(" (most likely the seccomp filter that this process runs under)");
    }
    why.push_str(&tried.map_or(String::new(), |r| format!("; tried: {}", r.found)));
    let untried = tried.is_some_and(|r| r.state == State::Unknown);
    let unknown = if untried && has_library { "unknown" } else { "none" };
    Verdict { rings: rings.unwrap_or(unknown), why, change }
}

fn print(report: &Report) -> anyhow::Result<()> {
    let columns = out::columns();
    let mut group = None;
    for r in &report.checks {
        if group != Some(r.group) {
            let gap = if group.is_some() { "\n" } else { "" };
            group = Some(r.group);
            out::line(&format!("{gap}{}", r.group.title()))?;
        }
        let first = format!("  {:NAME$} {:4} ", r.name, r.state.word());
        out::line(&out::wrapped(&first, &r.found, NAME + 8, columns))?;
        // A row that is as wished needs no explanation.
        if r.state != State::Ok {
            let meaning = format!("({})", r.meaning);
            out::line(&out::wrapped("      ", &meaning, 6, columns))?;
        }
    }
    let v = &report.verdict;
    let what = match v.rings {
        "kernel" => "the kernel's rings",
        "softring" => "softring's rings",
        "partly" => "softring's rings, but some of their operations fail",
        "unknown"
            if find(&report.checks, "trial program")
                .is_some_and(|r| trial::is_of_static(&r.found)) =>
        {
            "no rings if it is static, and maybe softring's if it is dynamic: none was tried"
        }
        "unknown" => "either rings or none: the trial could not be run",
        _ => "no rings",
    };
    out::line(&format!("\nA program under `softring run` gets {what}."))?;
    out::line(&out::wrapped("  why: ", &v.why, 7, columns))?;
    if !v.change.is_empty() {
        out::line("\nWhat to change:")?;
    }
    for advice in &v.change {
        out::line(&out::wrapped("  ", advice, 6, columns))?;
    }
    if v.rings != "kernel"
        && let Some(environment) = recipes::guess()
    {
        let lines = format!("softring doctor --for {} prints lines to copy.", name_of(environment));
        out::line(&out::wrapped("\nIn here: ", &lines, 0, columns))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_have_unique_names_and_texts() {
        for (i, c) in CHECKS.iter().enumerate() {
            assert!(CHECKS[..i].iter().all(|d| d.name != c.name), "{} twice", c.name);
            assert!(!c.meaning.is_empty(), "{}", c.name);
            assert!(c.name.len() <= NAME, "{}", c.name);
        }
        assert!(HARMLESS.iter().all(|name| CHECKS.iter().any(|c| c.name == *name)));
    }

    #[test]
    fn checks_of_a_group_are_adjacent() {
        let mut seen = Vec::new();
        for c in CHECKS {
            if seen.last() != Some(&c.group) {
                assert!(!seen.contains(&c.group), "{:?} twice", c.group);
                seen.push(c.group);
            }
        }
    }

    fn fake(name: &'static str, state: State) -> Row {
        let (group, meaning) = (Group::Denial, "");
        Row { name, group, state, found: "EPERM".into(), meaning, hint: Some("change it") }
    }

    #[test]
    fn verdicts() {
        let denied = || fake("io_uring_setup", State::Denied);
        let none = verdict(&[denied()]);
        assert_eq!((none.rings, none.change.len()), ("none", 1));
        let tried = |found: &str| Row { found: found.into(), ..fake("trial program", State::Ok) };
        let works = || fake("io_uring_setup", State::Ok);
        let library = || fake("libsoftring.so", State::Ok);
        for (setup, found, want) in [
            (denied(), "softring's rings work, through patched call sites", "softring"),
            (denied(), "no rings (EPERM): it printed no reason", "none"),
            (works(), "the kernel's rings work", "kernel"),
            (works(), "softring's rings work, through the SIGSYS trap", "softring"),
            (
                denied(),
                "some operations of softring's rings fail: the trial program ended at a timeout",
                "partly",
            ),
        ] {
            let v = verdict(&[setup, library(), tried(found)]);
            assert_eq!(v.rings, want, "{found}");
        }
        let untried = Row { state: State::Unknown, ..tried("it cannot be started: EAGAIN") };
        assert_eq!(verdict(&[denied(), library(), untried]).rings, "unknown");
        assert_eq!(verdict(&[works()]).rings, "none");
        let found = format!("works (/{}[io_uring])", probes::OURS);
        let under = Row { found, ..fake("io_uring_setup", State::Ok) };
        assert_eq!(verdict(&[under]).rings, "softring");
    }
}
