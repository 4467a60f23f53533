//! The cases on every target, and the comparison.

use crate::case::{Case, OLDEST};
use crate::entry::EntryPoint;
use crate::report::{Answer, Outcome, Row, Verdict, compare};
use crate::ring::Ring;
use crate::target::{Launcher, Target};
use crate::{known, recorded};
use anyhow::Result;
use softring_engine::host::substitute::release;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why the kernel cannot be asked here, or nothing.
pub fn kernel_denies() -> Option<String> {
    match Ring::new(EntryPoint::Syscall, 1, 0) {
        Ok(_) => None,
        Err(e) => {
            let e = std::io::Error::from_raw_os_error(e);
            Some(format!("this kernel gives no ring ({e}): nothing to compare with"))
        }
    }
}

/// Shows on a terminal how far the run has come; nothing in a pipe.
fn progress(done: usize, all: usize, case: &str) {
    if std::io::stderr().is_terminal() {
        let end = if done == all { "\n" } else { "" };
        eprint!("\r{done}/{all} {case:<48}{end}");
    }
}

/// How often a case on which softring differs is asked again, alone: its difference shows again.
const AGAIN: usize = 2;
/// How often one is that the kernel itself has not passed: it raced against a busy machine.
const AGAIN_BUSY: usize = 8;

/// Asks the cases that differ again, one at a time; how they differed stays in their rows.
fn ask_again(
    l: &Launcher,
    cases: &[&Case],
    entries: &[EntryPoint],
    no_kernel: Option<&str>,
    rows: &mut [(usize, Vec<Row>)],
) -> Result<()> {
    let differs = |row: &Row| matches!(row.outcome, Outcome::Differs(_));
    for (at, got) in rows.iter_mut() {
        let (mut again, mut busy) = (AGAIN, AGAIN_BUSY);
        while got.iter().any(differs) {
            // The first row is the kernel's.
            let left = if differs(&got[0]) { &mut busy } else { &mut again };
            if *left == 0 {
                break;
            }
            *left -= 1;
            let before = std::mem::replace(got, one_case(l, cases[*at], entries, no_kernel)?);
            for (row, before) in got.iter_mut().zip(before) {
                row.earlier = before.earlier;
                if let Outcome::Differs(how) = before.outcome {
                    eprintln!("{} on {}, asked again: {how:?}", row.case, row.target);
                    row.earlier.push(how);
                }
            }
            if !got.iter().any(differs) {
                eprintln!("{} agreed when asked again", cases[*at].path());
            }
        }
    }
    Ok(())
}

/// Runs `cases` on the kernel and on softring through `entries`; rows come in the order of the
/// cases.
pub fn run(
    launcher: &Launcher,
    cases: &[&Case],
    entries: &[EntryPoint],
    jobs: usize,
) -> Result<Vec<Row>> {
    let no_kernel = kernel_denies();
    let next = AtomicUsize::new(0);
    let rows: Mutex<Vec<(usize, Vec<Row>)>> = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let got = one_case(launcher, case, entries, no_kernel.as_deref())?;
            let at = cases.iter().position(|c| std::ptr::eq(*c, *case)).unwrap_or_default();
            let mut rows = rows.lock().map_err(|_| anyhow::anyhow!("a worker died"))?;
            rows.push((at, got));
            progress(rows.len(), cases.len(), &case.path());
        }
        Ok(())
    };
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| s.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or(Ok(())))
    })?;
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(at, _)| *at);
    ask_again(launcher, cases, entries, no_kernel.as_deref(), &mut rows)?;
    Ok(rows.into_iter().flat_map(|(_, rows)| rows).collect())
}

/// The kernel's answer, and where it comes from: a case that needs a newer kernel than the running
/// one has been recorded there.
fn kernels(l: &Launcher, case: &Case, no_kernel: Option<&str>) -> Result<(Target, Answer)> {
    let here = release();
    let oracle = Target::Kernel(EntryPoint::Syscall);
    if case.abi > OLDEST.release && (no_kernel.is_some() || here < case.abi) {
        let none = || Answer::skipped("there is no record of it: see HACKING.md");
        return Ok((Target::Recorded, recorded::answer(&case.path()).unwrap_or_else(none)));
    }
    let kernel = match no_kernel {
        Some(why) => Answer::skipped(why),
        None => l.run(case, oracle)?,
    };
    let old = here < OLDEST.release && matches!(kernel.verdict, Verdict::Fail(_));
    let older = || Answer::skipped(&format!("this kernel is older than {}", OLDEST.name));
    Ok((oracle, if old { older() } else { kernel }))
}

fn one_case(
    l: &Launcher,
    case: &Case,
    entries: &[EntryPoint],
    no_kernel: Option<&str>,
) -> Result<Vec<Row>> {
    let row = |target: Target, outcome| Row {
        case: case.path(),
        family: case.family,
        target: target.name(),
        earlier: Vec::new(),
        outcome,
    };
    let mut rows = Vec::new();
    let (oracle, kernel) = kernels(l, case, no_kernel)?;
    rows.push(row(oracle, compare(&Answer::skipped(""), &kernel)));
    for entry in entries {
        let target = Target::Softring(*entry);
        let outcome = match compare(&kernel, &l.run(case, target)?) {
            Outcome::Differs(lines) => known::reason_on(release(), &case.path())
                .map_or(Outcome::Differs(lines), Outcome::Known),
            other => other,
        };
        rows.push(row(target, outcome));
    }
    Ok(rows)
}
