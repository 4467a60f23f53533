//! Decisions: what becomes of a change, from the seed and the number of its request.

use alloc::collections::BTreeSet;

use softring_faults::hash;

use crate::spec::Spec;

/// Fate of a change that is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Kept,
    /// Some of its sectors, or its size alone, are there.
    Torn,
    Lost,
}

impl Fate {
    /// Returns the name, as a log has it.
    pub const fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Torn => "torn",
            Fate::Lost => "lost",
        }
    }
}

/// Chances of one seed, in percent.
#[derive(Clone, Copy, Debug)]
struct Bias {
    data_lost: u64,
    data_torn: u64,
    names_lost: u64,
}

/// Seeds differ in what is likely: if all chances were even, long sequences would hardly ever be
/// kept, or lost, as a whole.
const BIASES: [Bias; 4] = [
    Bias { data_lost: 80, data_torn: 10, names_lost: 10 },
    Bias { data_lost: 10, data_torn: 10, names_lost: 60 },
    Bias { data_lost: 34, data_torn: 33, names_lost: 50 },
    Bias { data_lost: 10, data_torn: 60, names_lost: 20 },
];

/// Kinds of decisions, so that no two depend on the same number.
#[derive(Clone, Copy, Debug)]
enum About {
    Bias,
    Data,
    Name,
    Prefix,
    Size,
    Sector,
}

/// Source of the decisions.
#[derive(Clone, Copy, Debug)]
pub struct Dice<'a> {
    seed: u64,
    bias: Bias,
    /// Bytes that the disk writes as a whole.
    unit: u64,
    only: Option<&'a BTreeSet<u64>>,
}

impl<'a> Dice<'a> {
    pub fn new(spec: &'a Spec) -> Dice<'a> {
        let bias = hash(spec.seed, &[About::Bias as u64]) as usize % BIASES.len();
        let unit = if spec.large_sectors { 4096 } else { 512 };
        Dice { seed: spec.seed, bias: BIASES[bias], unit, only: spec.only.as_ref() }
    }

    /// Returns whether the change of a request may be lost.
    pub(crate) fn may_lose(&self, request: u64) -> bool {
        self.only.is_none_or(|only| only.contains(&request))
    }

    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    fn percent(&self, about: About, words: [u64; 2]) -> u64 {
        // The high half: it depends on all bits.
        (hash(self.seed, &[about as u64, words[0], words[1]]) >> 32) % 100
    }

    pub(crate) fn data(&self, request: u64) -> Fate {
        let at = self.percent(About::Data, [request, 0]);
        match at {
            _ if !self.may_lose(request) => Fate::Kept,
            _ if at < self.bias.data_lost => Fate::Lost,
            _ if at < self.bias.data_lost + self.bias.data_torn => Fate::Torn,
            _ => Fate::Kept,
        }
    }

    /// Returns whether a part of a torn write is there.
    pub(crate) fn part(&self, request: u64, part: u64) -> bool {
        self.percent(About::Sector, [request, part]) < 50
    }

    /// Returns whether a file is as long as if a write were there that is lost or torn.
    pub(crate) fn size(&self, request: u64, fate: Fate) -> bool {
        let chance = if fate == Fate::Torn { 75 } else { 25 };
        self.percent(About::Size, [request, 0]) < chance
    }

    /// Returns whether a change of names, or a truncation, is there.
    pub(crate) fn name(&self, request: u64, part: u64) -> bool {
        let lost = self.percent(About::Name, [request, part]) < self.bias.names_lost;
        !(lost && self.may_lose(request))
    }

    /// Returns how many of the newest changes of a journal are lost.
    pub(crate) fn behind(&self, count: usize) -> usize {
        if self.percent(About::Name, [0, 0]) >= self.bias.names_lost {
            return 0;
        }
        (hash(self.seed, &[About::Prefix as u64]) >> 32) as usize % (count + 1)
    }
}
