//! A SPEC as text, which parses back to the same.

use core::fmt::{Display, Formatter, Result};

use softring_faults::Time;

use crate::spec::{At, Spec};

impl Display for At {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            At::End => f.write_str("end"),
            At::Request(n) => write!(f, "request={n}"),
            At::Sync(n) => write!(f, "fsync={n}"),
            At::Time(ns) => write!(f, "time={}", Time::Fixed(*ns)),
            At::Marker(text) => write!(f, "marker={}", text.replace(',', "\\,")),
        }
    }
}

impl Display for Spec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "seed={},model={},{}", self.seed, self.model.name(), self.moment())?;
        if self.large_sectors {
            f.write_str(",sector=4096")?;
        }
        if let Some(dir) = &self.dir {
            write!(f, ",dir={}", dir.replace(',', "\\,"))?;
        }
        let mut before = ",only=";
        for n in self.only.iter().flatten() {
            write!(f, "{before}{n}")?;
            before = "+";
        }
        Ok(())
    }
}
