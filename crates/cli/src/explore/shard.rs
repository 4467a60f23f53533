//! Shares of a campaign: one of N processes tries every N-th seed. Engines that start many
//! processes tell each its number by variables.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One of `of` shares, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    pub number: u64,
    pub of: u64,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Shard {
    /// Returns whether the share has one of the seeds that are left if so many are shared out
    /// evenly.
    pub fn has_rest(self, all: u64) -> bool {
        self.number <= all % self.of
    }
}

/// The share that the command line asks for; what is None is read from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    number: Option<u64>,
    of: Option<u64>,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        const FORMS: &str = "use I/N as in 1/4, auto/N, or auto";
        let number = |text: &str| match text.parse() {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(format!("'{text}' is no number from 1 on: {FORMS}")),
        };
        let (first, of) = match text.split_once('/') {
            Some((first, of)) => (first, Some(number(of)?)),
            None if text == "auto" => (text, None),
            None => return Err(FORMS.to_owned()),
        };
        let which = match first {
            "auto" => Which { number: None, of },
            first => Which { number: Some(number(first)?), of },
        };
        match (which.number, which.of) {
            (Some(number), Some(of)) if number > of => {
                Err(format!("there is no share {number} of {of}"))
            }
            _ => Ok(which),
        }
    }
}

/// The variables of an engine that starts many processes.
struct Engine {
    name: &'static str,
    /// Variable with the number of the process.
    index: &'static str,
    /// Number of the first: itself, or a variable that has it.
    first: First,
    /// Variable with the distance of two numbers.
    step: Option<&'static str>,
    /// Variable with the number of all processes.
    count: Option<&'static str>,
}

enum First {
    Number(u64),
    Variable(&'static str),
}

const ENGINES: [Engine; 7] = [
    Engine {
        name: "SOFTRING_SHARD_INDEX",
        index: "SOFTRING_SHARD_INDEX",
        first: First::Number(0),
        step: None,
        count: Some("SOFTRING_SHARD_COUNT"),
    },
    Engine {
        name: "a Kubernetes job",
        index: "JOB_COMPLETION_INDEX",
        first: First::Number(0),
        step: None,
        count: None,
    },
    Engine {
        name: "a Slurm array",
        index: "SLURM_ARRAY_TASK_ID",
        first: First::Variable("SLURM_ARRAY_TASK_MIN"),
        step: Some("SLURM_ARRAY_TASK_STEP"),
        count: Some("SLURM_ARRAY_TASK_COUNT"),
    },
    Engine {
        name: "Buildkite",
        index: "BUILDKITE_PARALLEL_JOB",
        first: First::Number(0),
        step: None,
        count: Some("BUILDKITE_PARALLEL_JOB_COUNT"),
    },
    Engine {
        name: "GitLab",
        index: "CI_NODE_INDEX",
        first: First::Number(1),
        step: None,
        count: Some("CI_NODE_TOTAL"),
    },
    Engine {
        name: "CircleCI",
        index: "CIRCLE_NODE_INDEX",
        first: First::Number(0),
        step: None,
        count: Some("CIRCLE_NODE_TOTAL"),
    },
    Engine {
        name: "GNU parallel",
        index: "PARALLEL_SEQ",
        first: First::Number(1),
        step: None,
        count: None,
    },
];

impl Which {
    /// Returns the share, by the variables that `get` knows.
    ///
    /// # Errors
    /// What is missing, and how to give it.
    pub fn resolve(self, get: impl Fn(&str) -> Option<String>) -> Result<Shard, String> {
        let number_in = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<u64>() {
                Ok(n) => Ok(Some(n)),
                Err(_) => Err(format!("{name} is '{text}', which is no number")),
            },
        };
        let engine = ENGINES.iter().find(|engine| get(engine.index).is_some_and(|v| !v.is_empty()));
        let number = match (self.number, engine) {
            (Some(number), _) => number,
            (None, None) => {
                return Err("nothing here tells the number of the share".to_owned());
            }
            (None, Some(engine)) => {
                let index = number_in(engine.index)?.unwrap_or(0);
                let first = match engine.first {
                    First::Number(n) => n,
                    First::Variable(name) => number_in(name)?.unwrap_or(0),
                };
                let step = engine.step.map(number_in).transpose()?.flatten().unwrap_or(1).max(1);
                index.saturating_sub(first) / step + 1
            }
        };
        // The engine's count is that of its numbers; softring's own goes with any.
        let own = number_in(ENGINES[0].count.unwrap_or_default())?;
        let told = engine.and_then(|engine| engine.count).map(number_in).transpose()?.flatten();
        let name = engine.map_or("the environment", |engine| engine.name);
        let of = self.of.or(own).or(told);
        let of = of.ok_or_else(|| format!("{name} does not tell the number of all shares"))?;
        if number > of {
            return Err(format!("there is no share {number} of {of}"));
        }
        Ok(Shard { number, of })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(which: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let get = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_owned());
        which.parse::<Which>()?.resolve(get).map(|shard| shard.to_string())
    }

    #[test]
    fn words_are_checked() {
        for good in ["1/4", "4/4", "auto/4", "auto"] {
            assert!(good.parse::<Which>().is_ok(), "{good}");
        }
        for bad in ["", "0/4", "5/4", "1/0", "4", "a/4", "1/", "auto/", "1/4/5"] {
            assert!(bad.parse::<Which>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_engine_is_understood() {
        let ok = |which, variables: &[_]| resolve(which, variables).unwrap();
        assert_eq!(ok("2/5", &[]), "2/5");
        assert_eq!(ok("auto/20", &[("JOB_COMPLETION_INDEX", "0")]), "1/20");
        assert_eq!(ok("auto/20", &[("PARALLEL_SEQ", "20")]), "20/20");
        let slurm = [
            ("SLURM_ARRAY_TASK_ID", "14"),
            ("SLURM_ARRAY_TASK_MIN", "10"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
            ("SLURM_ARRAY_TASK_COUNT", "6"),
        ];
        assert_eq!(ok("auto", &slurm), "3/6");
        let buildkite = [("BUILDKITE_PARALLEL_JOB", "3"), ("BUILDKITE_PARALLEL_JOB_COUNT", "4")];
        assert_eq!(ok("auto", &buildkite), "4/4");
        assert_eq!(ok("auto", &[("CI_NODE_INDEX", "1"), ("CI_NODE_TOTAL", "2")]), "1/2");
        assert_eq!(ok("auto", &[("CIRCLE_NODE_INDEX", "1"), ("CIRCLE_NODE_TOTAL", "2")]), "2/2");
        let own =
            [("SOFTRING_SHARD_INDEX", "0"), ("SOFTRING_SHARD_COUNT", "8"), ("PARALLEL_SEQ", "3")];
        assert_eq!(ok("auto", &own), "1/8");
        let count = [("JOB_COMPLETION_INDEX", "7"), ("SOFTRING_SHARD_COUNT", "8")];
        assert_eq!(ok("auto", &count), "8/8");
    }

    #[test]
    fn what_is_missing_is_said() {
        let e = |which, variables: &[_]| resolve(which, variables).unwrap_err();
        assert!(e("auto", &[]).contains("nothing here"));
        assert!(e("auto", &[("JOB_COMPLETION_INDEX", "0")]).contains("a Kubernetes job"));
        assert!(e("auto/3", &[("JOB_COMPLETION_INDEX", "3")]).contains("no share 4 of 3"));
        assert!(e("auto/3", &[("PARALLEL_SEQ", "x")]).contains("PARALLEL_SEQ is 'x'"));
    }
}
