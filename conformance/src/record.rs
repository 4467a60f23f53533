//! Recording of the running kernel's answers: each case several times, and under other
//! surroundings, so that a record tells what its answer needs of the machine and leaves out what
//! varies.

use crate::case::Case;
use crate::entry::EntryPoint;
use crate::recorded::{self, Need};
use crate::report::{Answer, Verdict};
use crate::target::{Launcher, Target};
use anyhow::{Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Parameters of a recording.
#[derive(Debug)]
pub struct Plan {
    /// Path of this program.
    pub exe: PathBuf,
    /// Time limit of a case.
    pub timeout: Duration,
    /// Number of times that each case is asked as it is.
    pub times: usize,
    /// Number of cases at a time.
    pub jobs: usize,
    /// Directories on other file systems than ext4, in which each case is asked, too.
    pub elsewhere: Vec<PathBuf>,
}

/// Surroundings in which the cases are asked, and the need of an answer that differs there.
struct Surroundings {
    launcher: Launcher,
    lacks: Option<Need>,
}

/// Soft limits that are lower until this is dropped.
struct Lowered(Vec<(Resource, Rlimit)>);

impl Lowered {
    fn new() -> Result<Self> {
        let mut before = Self(Vec::new());
        for (limit, small) in Need::LIMITS {
            let was = getrlimit(limit);
            setrlimit(limit, Rlimit { current: Some(small), ..was })?;
            before.0.push((limit, was));
        }
        Ok(before)
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        for (limit, was) in self.0.drain(..) {
            // The old limit is allowed again.
            let _ = setrlimit(limit, was);
        }
    }
}

/// Asks all cases once; returns their answers in the order of `cases`.
fn ask(launcher: &Launcher, cases: &[&'static Case], jobs: usize) -> Result<Vec<Answer>> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else { return Ok(()) };
            let answer = launcher.run(case, Target::Kernel(EntryPoint::Syscall))?;
            answers.lock().map_err(|_| anyhow::anyhow!("a worker died"))?.push((at, answer));
        }
    };
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| s.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or(Ok(())))
    })?;
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// Asks the running kernel, and returns the text of the recording. Reports progress and omissions
/// on stderr.
///
/// # Errors
/// Returned without the surroundings: the recording takes root with every capability, and
/// ext4.
pub fn record(plan: &Plan, cases: &[&'static Case]) -> Result<String> {
    let new = |dir| Launcher::new(plan.exe.clone(), None, plan.timeout, dir);
    let own = Surroundings { launcher: new(None)?, lacks: None };
    let machine = recorded::Machine::here(own.launcher.scratch());
    if let Some(need) = machine.first_lack() {
        bail!("a recording cannot be made here, as it is to be {}", need.reason());
    }
    let mut nobody = new(None)?;
    nobody.as_nobody = true;
    let mut all = vec![own, Surroundings { launcher: nobody, lacks: Some(Need::Rights) }];
    for dir in &plan.elsewhere {
        all.push(Surroundings { launcher: new(Some(dir))?, lacks: Some(Need::Ext4) });
    }
    let mut found: Vec<Found> = cases.iter().map(|case| Found::new(case)).collect();
    let mut asked = |what: &str, surroundings: &Surroundings, lacks: Option<Need>| -> Result<()> {
        eprintln!("asking {} cases {what}", cases.len());
        let answers = ask(&surroundings.launcher, cases, plan.jobs)?;
        found.iter_mut().zip(answers).for_each(|(found, answer)| found.add(answer, lacks));
        Ok(())
    };
    for _ in 0..plan.times {
        asked("as this process is", &all[0], None)?;
    }
    for surroundings in &all[1..] {
        let need = surroundings.lacks.map_or("", Need::word);
        asked(&format!("without {need}"), surroundings, surroundings.lacks)?;
    }
    let lowered = Lowered::new()?;
    asked("with low limits", &all[0], Some(Need::Limits))?;
    drop(lowered);
    Ok(found.into_iter().map(Found::text).collect())
}

/// Findings of one case.
struct Found {
    case: &'static Case,
    /// The first answer, in the surroundings as they are.
    answer: Option<Answer>,
    /// Reason why the answer is no record.
    out: Option<String>,
    needs: Vec<Need>,
}

impl Found {
    fn new(case: &'static Case) -> Self {
        Self { case, answer: None, out: None, needs: Vec::new() }
    }

    /// Adds another answer, given without `lacks`.
    fn add(&mut self, answer: Answer, lacks: Option<Need>) {
        let Some(first) = &self.answer else {
            if answer.verdict != Verdict::Pass {
                self.out = Some(answer.verdict.to_string());
            }
            self.answer = Some(answer);
            return;
        };
        let same = answer.verdict == first.verdict && answer.seen == first.seen;
        match lacks {
            _ if same => {}
            Some(need) if self.needs.contains(&need) => {}
            Some(need) => self.needs.push(need),
            None => self.out = Some("its answer varies".into()),
        }
    }

    /// Returns the case's text in the recording.
    fn text(self) -> String {
        match (self.out, self.answer) {
            (None, Some(answer)) => recorded::record(self.case, &answer.seen, &self.needs),
            (out, _) => {
                eprintln!("{}: {}", self.case.path(), out.unwrap_or_default());
                format!("unrecorded {}\n", self.case.path())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn answer(seen: &str) -> Answer {
        Answer::parse(&format!("  {seen}\n= pass\n"), "", None)
    }

    fn found(answers: &[(&str, Option<Need>)]) -> String {
        let mut found = Found::new(case::all().next().expect("a case"));
        answers.iter().for_each(|(seen, lacks)| found.add(answer(seen), *lacks));
        let path = found.case.path();
        found.text().replace(&path, "NAME")
    }

    #[test]
    fn unstable_transcripts_are_left_out() {
        assert_eq!(found(&[("a", None), ("a", None)]), "case NAME\n  a\n");
        assert_eq!(found(&[("a", None), ("b", None)]), "unrecorded NAME\n");
    }

    #[test]
    fn results_that_differ_elsewhere_become_requirements() {
        let without = [("a", None), ("b", Some(Need::Rights)), ("c", Some(Need::Rights))];
        assert_eq!(found(&without), "case NAME rights\n  a\n");
        assert_eq!(found(&[("a", None), ("a", Some(Need::Ext4))]), "case NAME\n  a\n");
    }

    #[test]
    fn failed_cases_are_not_recorded() {
        let mut found = Found::new(case::all().next().expect("a case"));
        found.add(Answer::parse("  a\n= fail no\n", "", None), None);
        found.add(answer("a"), None);
        assert!(found.text().starts_with("unrecorded "));
    }
}
