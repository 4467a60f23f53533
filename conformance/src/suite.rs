//! The cases on every target, and the comparison.

use crate::case::{Case, NEWEST, OLDEST};
use crate::entry::EntryPoint;
use crate::recorded::{Machine, Need};
use crate::report::{Answer, Outcome, Row, Verdict, compare};
use crate::ring::Ring;
use crate::target::{Launcher, Target, pin};
use crate::{known, recorded};
use anyhow::Result;
use softring_host::substitute::release;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns why the kernel cannot be asked here, or `None`.
pub fn kernel_denies() -> Option<String> {
    match Ring::new(EntryPoint::Syscall, 1, 0) {
        Ok(_) => None,
        Err(e) => {
            let e = std::io::Error::from_raw_os_error(e);
            Some(format!("this kernel gives no ring ({e})"))
        }
    }
}

/// Shows progress on a terminal; nothing in a pipe.
fn progress(done: usize, all: usize, case: &str) {
    if std::io::stderr().is_terminal() {
        let end = if done == all { "\n" } else { "" };
        eprint!("\r{done}/{all} {case:<48}{end}");
    }
}

/// Times that a case on which softring differs is asked again, alone.
const AGAIN: usize = 2;
/// Times that a case is asked again which the kernel itself failed: a busy machine lost a race.
const AGAIN_BUSY: usize = 8;

/// Asks the cases that differ again, one at a time; the earlier differences stay in their rows.
fn ask_again(
    l: &Launcher,
    cases: &[&Case],
    entries: &[EntryPoint],
    oracle: &Oracle,
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
            let before = std::mem::replace(got, one_case(l, cases[*at], entries, oracle)?);
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
    let machine = Machine::here(launcher.scratch());
    let oracle = Oracle { denied: kernel_denies().is_some(), machine };
    let next = AtomicUsize::new(0);
    let rows: Mutex<Vec<(usize, Vec<Row>)>> = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let got = one_case(launcher, case, entries, &oracle)?;
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
    ask_again(launcher, cases, entries, &oracle, &mut rows)?;
    Ok(rows.into_iter().flat_map(|(_, rows)| rows).map(stale_is_a_skip).collect())
}

/// Source of the right answers.
struct Oracle {
    /// Flag, true if the running kernel gives no ring.
    denied: bool,
    machine: Machine,
}

impl Oracle {
    /// Returns the right answer and its source: a record if the running kernel gives no ring, or is
    /// older than the case needs.
    fn ask(&self, l: &Launcher, case: &Case) -> Result<(Target, Answer)> {
        let here = release();
        if self.denied || case.abi > OLDEST.release && here < case.abi {
            let recorded = Target::Recorded(recorded::version(case));
            return Ok((recorded, recorded::answer(case, &self.machine)));
        }
        let oracle = Target::Kernel(EntryPoint::Syscall);
        let kernel = l.run(case, oracle)?;
        let old = here < OLDEST.release && matches!(kernel.verdict, Verdict::Fail(_));
        let older = || Answer::skipped(&format!("this kernel is older than {}", OLDEST.name));
        Ok((oracle, if old { older() } else { kernel }))
    }

    /// Compares the record of `case` with the answer of the running kernel of its version.
    fn is_recorded(&self, case: &Case, kernel: &Answer) -> Option<(Target, Outcome)> {
        let version = recorded::version(case);
        let record = recorded::answer(case, &self.machine);
        let stale = record.verdict == Verdict::Skip(recorded::OUT_OF_DATE.into());
        let told = record.verdict == Verdict::Pass || stale;
        if !self.machine.runs(version) || kernel.verdict != Verdict::Pass || !told {
            return None;
        }
        let outcome = if stale { Outcome::Differs(vec![]) } else { compare(&record, kernel) };
        let differs = matches!(outcome, Outcome::Differs(_));
        differs.then_some((Target::Recorded(version), outcome))
    }

    /// Judges softring's answer on `target`.
    fn judge(&self, right: &(Target, Answer), case: &Case, softring: &Answer) -> Outcome {
        let outcome = compare(&right.1, softring);
        let Outcome::Differs(lines) = outcome else { return outcome };
        if let Some(known) = known::reason_on(release(), &case.path()) {
            return Outcome::Known(known);
        }
        // The kernel would fail the case's own checks, too.
        if let Verdict::Skip(why) = &right.1.verdict
            && Need::ALL.iter().any(|need| need.reason() == why)
        {
            return Outcome::Skip(why.clone());
        }
        match right.0 {
            // softring replaces io_uring by calls of the running kernel.
            Target::Recorded(version)
                if version == OLDEST
                    && !self.machine.runs(version)
                    && softring.verdict == Verdict::Pass =>
            {
                let (here, name) = (release(), version.name);
                Outcome::Skip(format!("other than recorded on {name}, as Linux {here} may be"))
            }
            _ => Outcome::Differs(lines),
        }
    }
}

/// Skips a record that its own kernel does not confirm, because that is no fault of softring's.
fn stale_is_a_skip(row: Row) -> Row {
    let recorded = [OLDEST, NEWEST].map(|version| Target::Recorded(version).name());
    let stale = matches!(row.outcome, Outcome::Differs(_)) && recorded.contains(&row.target);
    if stale { Row { outcome: Outcome::Skip(recorded::OUT_OF_DATE.into()), ..row } } else { row }
}

fn one_case(
    l: &Launcher,
    case: &Case,
    entries: &[EntryPoint],
    oracle: &Oracle,
) -> Result<Vec<Row>> {
    let row = |target: Target, outcome| Row {
        case: case.path(),
        family: case.family,
        target: target.name(),
        earlier: Vec::new(),
        outcome,
    };
    let mut rows = Vec::new();
    let right = oracle.ask(l, case)?;
    rows.push(row(right.0, compare(&Answer::skipped(""), &right.1)));
    let version = match right.0 {
        Target::Recorded(version) => version,
        _ => pin(case.abi),
    };
    for entry in entries {
        let target = Target::Softring(*entry);
        let softring = l.run_as(case, target, version)?;
        rows.push(row(target, oracle.judge(&right, case, &softring)));
    }
    if let Target::Kernel(_) = right.0 {
        rows.extend(
            oracle.is_recorded(case, &right.1).map(|(target, outcome)| row(target, outcome)),
        );
    }
    Ok(rows)
}
