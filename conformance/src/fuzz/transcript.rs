//! Results of one run of a program, in a form in which two runs can be compared: one record per
//! step, without descriptors and times.

use serde::{Deserialize, Serialize};

/// Result that stands for "some descriptor", where the system chooses the number.
pub const SOME_FD: i64 = 1_000_000;
/// Result of a step whose ring does not exist.
pub const NO_RING: i64 = -1_000_001;
/// Result of a step that queued nothing, because the submission queue is full.
pub const QUEUE_FULL: i64 = -1_000_002;

/// Record of one step.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
pub struct Rec {
    pub step: usize,
    pub ret: i64,
    pub cqes: Vec<Cqe>,
    /// Other observations that must agree, readable.
    pub notes: Vec<String>,
    /// CQ tails of both rings, if the step waits for them.
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

/// End of a run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum End {
    Exit,
    /// Death by this signal.
    Signal(i32),
    /// Exit with this code (the executor itself always exits with 0).
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
    /// Returns all completions, in the order in which they were reaped.
    pub fn cqes(&self) -> impl Iterator<Item = &Cqe> {
        self.recs.iter().flat_map(|rec| &rec.cqes)
    }

    /// Returns the results of a request.
    pub fn results_of(&self, ud: u64) -> impl Iterator<Item = i64> {
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
