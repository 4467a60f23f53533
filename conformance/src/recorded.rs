//! Recorded answers of kernels to the cases, by `conformance record`: the oracle if the running
//! kernel gives no ring, or is older than a case needs.

use crate::case::{Case, NEWEST, OLDEST};
use crate::report::{Answer, Outcome, Row, Verdict};
use crate::target::Target;
use rustix::thread::CapabilitySet;
use softring_host::substitute::release;
use softring_uapi::version::{Release, Version};
use std::fmt::Write as _;
use std::path::Path;

/// The records of one kernel. A line `case NAME`, followed by its needs of the machine, precedes
/// the observations; a line `unrecorded NAME` is a case whose answer varies, or that could not be
/// asked.
#[derive(Debug)]
struct Records {
    of: &'static Version,
    text: &'static str,
}

static RECORDS: [Records; 2] = [
    Records { of: OLDEST, text: include_str!("../recorded/6.18.txt") },
    Records { of: NEWEST, text: include_str!("../recorded/7.2.txt") },
];

/// Need of an answer beside its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Root with every capability except CAP_SYS_RESOURCE.
    Rights,
    /// Files of the cases on ext4.
    Ext4,
    /// Limits of open files and of locked memory above those of [`Need::LIMITS`].
    Limits,
}

impl Need {
    pub const ALL: [Self; 3] = [Self::Rights, Self::Ext4, Self::Limits];
    /// Soft limits that a container may have: open files, and bytes of locked memory.
    pub const LIMITS: [(rustix::process::Resource, u64); 2] =
        [(rustix::process::Resource::Nofile, 1024), (rustix::process::Resource::Memlock, 64 << 10)];

    /// Returns the need's word in a record.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rights => "rights",
            Self::Ext4 => "ext4",
            Self::Limits => "limits",
        }
    }

    /// Returns why a record says nothing on a machine without this need.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Rights => "recorded as root with every capability",
            Self::Ext4 => "recorded on ext4",
            Self::Limits => "recorded with higher limits of open files and locked memory",
        }
    }
}

/// The running kernel, and the needs that this machine meets.
#[derive(Clone, Debug)]
pub struct Machine {
    release: Release,
    has: Vec<Need>,
}

impl Machine {
    /// Reads this process's rights and limits, and the file system of `dir`, where cases make their
    /// files.
    pub fn here(dir: &Path) -> Self {
        // The recorder's root never has CAP_CHECKPOINT_RESTORE, as in a container; no case needs
        // it.
        let last = CapabilitySet::CHECKPOINT_RESTORE.bits();
        let recorders = CapabilitySet::from_bits_retain(2 * last - 1);
        let recorders = recorders.difference(CapabilitySet::SYS_RESOURCE);
        let rights =
            rustix::thread::capabilities(None).is_ok_and(|own| own.effective.contains(recorders));
        let rights = rights && rustix::process::geteuid().is_root();
        let has = [
            (Need::Rights, rights),
            (Need::Ext4, is_ext4(dir)),
            (Need::Limits, Need::LIMITS.into_iter().all(|(limit, small)| exceeds(limit, small))),
        ];
        let has = has.into_iter().filter(|(_, there)| *there).map(|(need, _)| need).collect();
        Self { release: release(), has }
    }

    /// Returns the first need that recordings meet and this machine does not.
    pub fn first_lack(&self) -> Option<Need> {
        Need::ALL.into_iter().find(|need| !self.has.contains(need))
    }

    /// Returns whether the running kernel is the one that was recorded as `version`. The calls by
    /// which softring replaces io_uring answer differently on others.
    pub fn runs(&self, version: &Version) -> bool {
        self.release == version.release
    }
}

fn exceeds(limit: rustix::process::Resource, small: u64) -> bool {
    rustix::process::getrlimit(limit).current.is_none_or(|soft| soft > small)
}

/// Returns whether the files of `dir` are on ext4.
pub fn is_ext4(dir: &Path) -> bool {
    const EXT4: i64 = 0xef53;
    rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type == EXT4)
}

/// Returns the kernel whose answer to `case` is recorded: the first that the case can be asked on.
pub fn version(case: &Case) -> &'static Version {
    if case.abi > OLDEST.release { NEWEST } else { OLDEST }
}

/// Verdict for a case without a record, or whose record the kernel no longer confirms.
pub const OUT_OF_DATE: &str = "the recordings are out of date: see HACKING.md";

/// Returns the recorded answer to `case`, or why it says nothing on this machine.
pub fn answer(case: &Case, machine: &Machine) -> Answer {
    let (path, version) = (case.path(), version(case));
    let text = RECORDS.iter().find(|r| r.of == version).map_or("", |r| r.text);
    let mut lines = text.lines();
    let needs = loop {
        let Some(line) = lines.next() else { return Answer::skipped(OUT_OF_DATE) };
        if line.strip_prefix("unrecorded ") == Some(&path) {
            return Answer::skipped("not recorded, as the answer varies or needs a device");
        }
        if let Some((_, needs)) = header(line).filter(|(name, _)| *name == path) {
            break needs;
        }
    };
    let lacks = |need: &Need| needs.contains(need.word()) && !machine.has.contains(need);
    if let Some(need) = Need::ALL.into_iter().find(lacks) {
        return Answer::skipped(need.reason());
    }
    let seen = lines.map_while(|l| l.strip_prefix("  ")).map(str::to_owned).collect();
    Answer { verdict: Verdict::Pass, seen, wrong: vec![], noise: String::new() }
}

/// Parses a line that begins a record: the case's name and the needs of its answer.
fn header(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("case ")?;
    Some(rest.split_once(' ').unwrap_or((rest, "")))
}

/// Returns the text of a record whose answer needs `needs`.
pub fn record(case: &Case, seen: &[String], needs: &[Need]) -> String {
    let mut out = format!("case {}", case.path());
    needs.iter().for_each(|need| out.extend([" ", need.word()]));
    out.push('\n');
    for line in seen {
        let _ = writeln!(out, "  {line}");
    }
    out
}

/// Returns a line for the summary: how many cases were compared with records, and how many records
/// said nothing; `None` if the running kernel was the oracle of all.
pub fn summary(rows: &[Row]) -> Option<String> {
    let names = [OLDEST, NEWEST].map(|version| Target::Recorded(version).name());
    let of = |row: &&Row| names.contains(&row.target);
    let compared = rows.iter().filter(of).filter(|r| r.outcome == Outcome::Pass).count();
    let silent = rows.iter().filter(of).count() - compared;
    let line = || format!("{compared} cases compared with records, {silent} not (see the skips)");
    (compared + silent > 0).then(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn names(records: &Records) -> Vec<String> {
        let named = |l: &'static str| header(l).map(|h| h.0).or(l.strip_prefix("unrecorded "));
        let mut names: Vec<_> = records.text.lines().filter_map(named).map(str::to_owned).collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_record_holds_every_case() {
        let wanted = case::all().filter(|c| c.abi == NEWEST.release).map(Case::path);
        let mut wanted: Vec<_> = wanted.collect();
        wanted.sort();
        assert_eq!(names(&RECORDS[1]), wanted);
    }

    /// Tests that each record of the oldest kernel belongs to a case. A new case is recorded when
    /// the recordings are made anew; a removed case has no record.
    #[test]
    fn the_oldest_record_holds_only_its_cases() {
        let there: Vec<_> =
            case::all().filter(|c| c.abi == OLDEST.release).map(Case::path).collect();
        for name in names(&RECORDS[0]) {
            assert!(there.contains(&name), "{name} is recorded, and no case");
        }
    }

    #[test]
    fn missing_machine_features_are_reported() {
        let rights = RECORDS[0].text.lines().filter_map(header).find(|(_, n)| *n == "rights");
        let (name, _) = rights.expect("a case that needs rights");
        let case = case::all().find(|c| c.path() == name).expect("it is one");
        let machine = |has: &[Need]| Machine { release: OLDEST.release, has: has.to_vec() };
        assert_eq!(answer(case, &machine(&[Need::Rights])).verdict, Verdict::Pass);
        let lacking = answer(case, &machine(&[Need::Ext4, Need::Limits])).verdict;
        assert_eq!(lacking, Verdict::Skip(Need::Rights.reason().into()));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let case = case::all().next().expect("a case");
        let text = record(case, &["a: 1".into(), "b: ".into()], &[Need::Rights, Need::Ext4]);
        assert_eq!(text, format!("case {} rights ext4\n  a: 1\n  b: \n", case.path()));
        let first = text.lines().next().expect("a line");
        assert_eq!(header(first), Some((case.path().as_str(), "rights ext4")));
    }
}
