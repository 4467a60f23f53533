//! A SPEC as text, which parses back to the same.

use core::fmt::{Display, Formatter, Result};

use crate::chance::{Chance, Time};
use crate::filter::Filter;
use crate::spec::{Entry, Spec};

impl Display for Chance {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (whole, mut rest) = (self.billionths() / 1_000_000_000, self.billionths());
        rest %= 1_000_000_000;
        write!(f, "{whole}")?;
        if rest == 0 {
            return Ok(());
        }
        let mut digits = 9;
        while rest % 10 == 0 {
            (rest, digits) = (rest / 10, digits - 1);
        }
        write!(f, ".{rest:0digits$}")
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let ns = match *self {
            Time::Fixed(ns) => ns,
            Time::Percentile(percent, ns) => {
                write!(f, "p{percent}:")?;
                ns
            }
        };
        let (factor, unit) = crate::part::UNITS
            .iter()
            .copied()
            .find(|&(_, factor)| ns.is_multiple_of(factor))
            .map_or((1, "ns"), |(unit, factor)| (factor, unit));
        write!(f, "{}{unit}", ns / factor)
    }
}

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut before = "@";
        let mut item = |f: &mut Formatter<'_>, name: &str, value: &dyn Display| {
            write!(f, "{before}{name}={value}")?;
            before = ",";
            Ok(())
        };
        if !self.ops.is_empty() {
            item(f, "op", &self.ops)?;
        }
        if let Some(path) = &self.path {
            item(f, "path", path)?;
        }
        if let Some(kind) = self.kind {
            item(f, "kind", &kind.name())?;
        }
        if let Some(ring) = self.ring {
            item(f, "ring", &ring)?;
        }
        if let Some(request) = self.request {
            item(f, "request", &request)?;
        }
        if let Some(nth) = self.nth {
            item(f, "nth", &nth)?;
        }
        Ok(())
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}=", self.fault.name())?;
        match self.time {
            Some(time) if self.chance == Chance::ALWAYS => write!(f, "{time}")?,
            Some(time) => write!(f, "{}:{time}", self.chance)?,
            None => write!(f, "{}", self.chance)?,
        }
        write!(f, "{}", self.filter)
    }
}

impl Display for Spec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "seed={}", self.seed)?;
        for entry in &self.entries {
            write!(f, ",{entry}")?;
        }
        Ok(())
    }
}
