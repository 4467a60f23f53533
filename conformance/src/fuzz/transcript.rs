//! What one run of a program did, in a form in which two runs can be compared: one record per step,
//! descriptors and times left out.

use serde::{Deserialize, Serialize};

/// Stands for "some descriptor" where a number is the system's choice.
pub const SOME_FD: i64 = 1_000_000;
/// The step's ring does not exist.
pub const NO_RING: i64 = -1_000_001;
/// The submission queue is full; the step queued nothing.
pub const QUEUE_FULL: i64 = -1_000_002;

/// What one step did.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Rec {
    pub step: usize,
    pub ret: i64,
    pub cqes: Vec<Cqe>,
    /// Everything else that must agree, readable.
    pub notes: Vec<String>,
    /// CQ tails of both rings, where the step waits for them.
    pub tails: Vec<u32>,
}

/// One completion.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cqe {
    pub ud: u64,
    pub res: i64,
    pub flags: u32,
    pub big: Option<[u64; 2]>,
}

/// How a run ended.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exit,
    /// Killed by this signal.
    Signal(i32),
    /// Left with this code (the executor itself always leaves with 0).
    Code(i32),
    Hang,
}

/// One whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcript {
    pub recs: Vec<Rec>,
    pub end: End,
}

impl Transcript {
    /// All completions, in the order in which they were reaped.
    pub fn cqes(&self) -> impl Iterator<Item = &Cqe> {
        self.recs.iter().flat_map(|rec| &rec.cqes)
    }

    /// What a request was answered.
    pub fn told(&self, ud: u64) -> impl Iterator<Item = i64> {
        self.cqes().filter(move |cqe| cqe.ud == ud).map(|cqe| cqe.res)
    }
}

impl std::fmt::Display for Cqe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ud{}:", self.ud)?;
        if self.res == SOME_FD {
            write!(f, "fd")?;
        } else {
            write!(f, "{}", crate::fuzz::report::ret(self.res))?;
        }
        if self.flags != 0 {
            write!(f, "/{:#x}", self.flags)?;
        }
        match self.big {
            Some(b) if b != [0, 0] => write!(f, "+{:x},{:x}", b[0], b[1]),
            _ => Ok(()),
        }
    }
}
