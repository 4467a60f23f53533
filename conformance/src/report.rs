//! Reports of a case's runs, and their comparison.

use serde::Serialize;
use std::fmt;

/// End of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict", content = "why")]
pub enum Verdict {
    Pass,
    Skip(String),
    Fail(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Skip(why) => write!(f, "skip {why}"),
            Self::Fail(why) => write!(f, "fail {why}"),
        }
    }
}

/// A case's transcript and its end.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Observations.
    pub seen: Vec<String>,
    /// Checks that did not hold.
    pub wrong: Vec<String>,
    /// The case's stderr.
    pub noise: String,
}

impl Answer {
    /// Parses the output of a case. `ended` says how its process ended, if badly.
    pub fn parse(text: &str, noise: &str, ended: Option<String>) -> Self {
        let marked = |mark: &str| -> Vec<String> {
            text.lines().filter_map(|l| l.strip_prefix(mark)).map(str::to_owned).collect()
        };
        let said = marked("= ").pop();
        let verdict = match (said.as_deref(), ended) {
            (_, Some(how)) => Verdict::Fail(how),
            (Some("pass"), None) => Verdict::Pass,
            (Some(s), None) if s.starts_with("skip ") => Verdict::Skip(s[5..].into()),
            (Some(s), None) => Verdict::Fail(s.strip_prefix("fail ").unwrap_or(s).into()),
            (None, None) => Verdict::Fail("ended without a verdict".into()),
        };
        Self { verdict, seen: marked("  "), wrong: marked("! "), noise: noise.trim().into() }
    }

    /// Makes an answer without a run.
    pub fn skipped(why: &str) -> Self {
        let verdict = Verdict::Skip(why.into());
        Self { verdict, seen: vec![], wrong: vec![], noise: String::new() }
    }
}

/// Result of comparing softring's answer with the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "outcome", content = "detail")]
pub enum Outcome {
    Pass,
    Skip(String),
    /// A difference that the documentation names.
    Known(&'static str),
    Differs(Vec<String>),
}

/// Judges softring's answer by the case's own checks, and by the kernel's transcript unless the
/// kernel itself has failed those.
pub fn compare(kernel: &Answer, softring: &Answer) -> Outcome {
    match (&kernel.verdict, &softring.verdict) {
        (_, Verdict::Skip(why)) => Outcome::Skip(why.clone()),
        (Verdict::Skip(_) | Verdict::Fail(_), Verdict::Pass) => Outcome::Pass,
        (Verdict::Pass, Verdict::Pass) if kernel.seen == softring.seen => Outcome::Pass,
        _ => Outcome::Differs(difference(kernel, softring)),
    }
}

/// Returns the lines in which the two differ, then how softring's case ended.
fn difference(kernel: &Answer, softring: &Answer) -> Vec<String> {
    let mut out = Vec::new();
    if kernel.verdict == Verdict::Pass {
        let lines = kernel.seen.len().max(softring.seen.len());
        let at = |seen: &[String], i: usize| seen.get(i).map_or("(nothing)".into(), String::clone);
        for i in 0..lines {
            let (k, s) = (at(&kernel.seen, i), at(&softring.seen, i));
            if k != s {
                out.push(format!("kernel    {k}"));
                out.push(format!("softring  {s}"));
            }
        }
    }
    out.extend(softring.wrong.iter().map(|w| format!("wrong     {w}")));
    if let Verdict::Fail(why) = &softring.verdict {
        out.push(format!("ended     {why}"));
    }
    out.extend(softring.noise.lines().take(8).map(|l| format!("stderr    {l}")));
    out
}

/// One case on one target.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: String,
    pub family: &'static str,
    pub target: String,
    /// Differences of each earlier time before the case was asked again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Vec<String>>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Counts of one target's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub pass: usize,
    pub differs: usize,
    pub known: usize,
    pub skip: usize,
}

impl Counts {
    pub fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut c = Self::default();
        for row in rows {
            match row.outcome {
                Outcome::Pass => c.pass += 1,
                Outcome::Differs(_) => c.differs += 1,
                Outcome::Known(_) => c.known += 1,
                Outcome::Skip(_) => c.skip += 1,
            }
        }
        c
    }
}

/// Returns a table: families down, targets across, `pass/differs/known/skip` in each cell.
pub fn table(rows: &[Row]) -> String {
    let mut targets: Vec<&str> = Vec::new();
    let mut families: Vec<&str> = Vec::new();
    for row in rows {
        if !targets.contains(&row.target.as_str()) {
            targets.push(&row.target);
        }
        if !families.contains(&row.family) {
            families.push(row.family);
        }
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(std::iter::once("family").chain(targets.iter().copied()));
    let cell = |family: Option<&str>, target: &str| {
        let of = |r: &&Row| r.target == target && family.is_none_or(|f| r.family == f);
        let c = Counts::of(rows.iter().filter(of));
        let part = |n: usize, name: &str| (n > 0).then(|| format!("{n} {name}"));
        let parts = [
            part(c.pass, "pass"),
            part(c.differs, "DIFFER"),
            part(c.known, "known"),
            part(c.skip, "skip"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    for family in families.iter().map(|f| Some(*f)).chain([None]) {
        let cells = targets.iter().map(|t| cell(family, t));
        table.add_row(std::iter::once(family.unwrap_or("all").to_owned()).chain(cells));
    }
    table.to_string()
}
