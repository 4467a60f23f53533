//! The result of a campaign: what `--json` writes, and `softring explore merge` reads.

use super::outcome::Ending;
use super::seeds::Seeds;
use super::shard::Shard;
use serde::{Deserialize, Serialize};
use softring_faults::log::Line;

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    pub ring: u32,
    pub request: u64,
    pub op: String,
    pub fault: String,
    pub value: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl From<Line> for Injected {
    fn from(line: Line) -> Injected {
        let Line { ring, request, op, fault, value, path, .. } = line;
        Injected { ring, request, op, fault, value, path }
    }
}

/// Failures that have the same end, the same message and the same faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub ending: Ending,
    /// Last line of one of them.
    pub message: String,
    /// The message, with `#` for each number.
    pub pattern: String,
    /// Operations and what was injected into them.
    pub sites: Vec<String>,
    pub seeds: Vec<u64>,
    /// Seed whose faults were minimised.
    pub seed: u64,
    /// The smallest SPEC that was found, with its seed; none: no faults are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// Flag, false if the failure did not come again.
    pub reproduced: bool,
    pub faults: Vec<Injected>,
    /// Command line that has the failure.
    pub replay: String,
    /// Requests that a hanging program waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<String>,
}

impl Failure {
    /// Returns whether both are one failure.
    pub fn is_same(&self, other: &Failure) -> bool {
        (self.ending, &self.pattern, &self.sites) == (other.ending, &other.pattern, &other.sites)
    }

    /// Returns how good the example is: the smaller, the better.
    fn rank(&self) -> (bool, usize, u64) {
        (!self.reproduced, self.faults.len(), self.seed)
    }

    /// Takes over what another one, which is the same, has.
    pub fn join(&mut self, other: Failure) {
        let mut seeds = std::mem::take(&mut self.seeds);
        seeds.extend(&other.seeds);
        seeds.sort_unstable();
        seeds.dedup();
        if other.rank() < self.rank() {
            *self = other;
        }
        self.seeds = seeds;
    }
}

/// The result of a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub softring: String,
    pub command: Vec<String>,
    /// The faults, without a seed.
    pub faults: String,
    pub seeds: Seeds,
    /// Shares of the seeds that were tried; none: all seeds.
    pub shards: Vec<Shard>,
    pub runs: u64,
    pub failed: u64,
    pub seconds: f64,
    /// Flag, true if a signal ended the campaign.
    pub stopped: bool,
    pub failures: Vec<Failure>,
}

impl Report {
    /// Joins the results of shares.
    ///
    /// # Errors
    /// They are not of one campaign.
    pub fn join(&mut self, other: Report) -> Result<(), &'static str> {
        let same = [
            (self.command == other.command, "they ran different commands"),
            (self.faults == other.faults, "they injected different faults"),
        ];
        if let Some(different) = same.iter().find(|same| !same.0) {
            return Err(different.1);
        }
        if other.shards.iter().any(|shard| self.shards.contains(shard)) && self.seeds == other.seeds
        {
            return Err("a share is there twice");
        }
        self.seeds.start = self.seeds.start.min(other.seeds.start);
        self.seeds.end = self.seeds.end.max(other.seeds.end);
        self.shards.extend(other.shards);
        self.shards.sort_unstable();
        self.shards.dedup();
        self.runs += other.runs;
        self.failed += other.failed;
        self.seconds += other.seconds;
        self.stopped |= other.stopped;
        for failure in other.failures {
            match self.failures.iter_mut().find(|own| own.is_same(&failure)) {
                Some(own) => own.join(failure),
                None => self.failures.push(failure),
            }
        }
        self.sort();
        Ok(())
    }

    /// Returns the shares that nobody has tried.
    pub fn missing(&self) -> Vec<String> {
        let Some(of) = self.shards.first().map(|shard| shard.of) else { return Vec::new() };
        let all = (1..=of).map(|number| Shard { number, of });
        all.filter(|shard| !self.shards.contains(shard)).map(|shard| shard.to_string()).collect()
    }

    /// Puts the most frequent failure first.
    pub fn sort(&mut self) {
        self.failures.sort_by_key(|f| (std::cmp::Reverse(f.seeds.len()), f.seed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64, seeds: &[u64], sites: &str) -> Report {
        let failure = Failure {
            ending: Ending::Exit(1),
            message: format!("byte {number}"),
            pattern: "byte #".into(),
            sites: vec![sites.into()],
            seeds: seeds.to_vec(),
            seed: seeds[0],
            spec: Some(format!("seed={}", seeds[0])),
            reproduced: true,
            faults: Vec::new(),
            replay: String::new(),
            in_flight: Vec::new(),
        };
        Report {
            softring: "0".into(),
            command: vec!["x".into()],
            faults: "legal".into(),
            seeds: Seeds { start: 0, end: 30 },
            shards: vec![Shard { number, of: 3 }],
            runs: 10,
            failed: seeds.len() as u64,
            seconds: 1.0,
            stopped: false,
            failures: vec![failure],
        }
    }

    #[test]
    fn shares_are_joined() {
        let mut all = report(2, &[4, 7], "READ short-read");
        all.join(report(1, &[3], "READ short-read")).unwrap();
        assert_eq!((all.runs, all.failed, all.failures.len()), (20, 3, 1));
        assert_eq!((&all.failures[0].seeds[..], all.failures[0].seed), (&[3, 4, 7][..], 3));
        assert_eq!(all.missing(), ["3/3"]);
        all.join(report(3, &[2], "READ delay")).unwrap();
        assert_eq!((all.failures.len(), all.missing().len()), (2, 0));
        assert!(all.join(report(3, &[2], "READ delay")).is_err());
        let other = Report { faults: "hostile".into(), ..report(3, &[2], "") };
        assert!(all.join(other).unwrap_err().contains("different faults"));
    }

    #[test]
    fn a_report_is_read_back() {
        let report = report(1, &[3], "READ short-read");
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
