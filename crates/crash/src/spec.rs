//! SPEC: when the power fails, and what it may leave.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};

use softring_faults::Error;
use softring_faults::part::{Part, Result, items, ns};

/// The grammar, as messages show it.
pub const GRAMMAR: &str = "\
SPEC   = ITEM,ITEM,...
ITEM   = seed=N | model=MODEL | sector=512|4096 | dir=PATH | only=N+N+... | POINT
MODEL  = posix-minimal | ext4-ordered
POINT  = end           after the program has ended (default)
         request=N     before the Nth change or sync below the directory, from 1
         fsync=N       before the Nth fsync, fdatasync, sync, syncfs, msync, or synchronous write
         time=500ms    this long after the start; units: ns us ms s
         marker=TEXT   after a write that has TEXT, to any file; a comma is \\,
only   = no other requests than these are lost or torn; 0: none";

/// The rules by which changes become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// Only what POSIX promises.
    #[default]
    PosixMinimal,
    /// ext4 with data=ordered and auto_da_alloc.
    Ext4Ordered,
}

impl Model {
    pub const ALL: [Model; 2] = [Model::PosixMinimal, Model::Ext4Ordered];

    pub const fn name(self) -> &'static str {
        match self {
            Model::PosixMinimal => "posix-minimal",
            Model::Ext4Ordered => "ext4-ordered",
        }
    }
}

/// The moment at which the power fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// End of the program.
    #[default]
    End,
    /// Number, from 1, of the change or sync before which it fails.
    Request(u64),
    /// Number, from 1, of the sync before which it fails.
    Sync(u64),
    /// Time since the start, in ns.
    Time(u64),
    /// Text of the write after which it fails.
    Marker(String),
}

/// A power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    pub seed: u64,
    pub model: Model,
    /// Moment at which the power fails; none: not chosen, so the end of the program.
    pub at: Option<At>,
    /// Unit that a disk writes as a whole: 512 or, if set, 4096 bytes.
    pub large_sectors: bool,
    /// The directory; none: the working directory.
    pub dir: Option<String>,
    /// Requests that may be lost or torn; none: all.
    pub only: Option<BTreeSet<u64>>,
}

/// Items of a SPEC.
const NAMES: [&str; 10] =
    ["seed", "model", "sector", "dir", "only", "end", "request", "fsync", "time", "marker"];

impl Spec {
    /// Returns when the power fails.
    pub fn moment(&self) -> &At {
        self.at.as_ref().unwrap_or(&At::End)
    }

    /// Parses a SPEC.
    ///
    /// # Errors
    /// The first mistake, with its column.
    pub fn parse(text: &str) -> Result<Spec> {
        let mut spec = Spec::default();
        let mut point = false;
        for item in items(text) {
            let (key, value) = match item.split('=') {
                Some((key, value)) => (key, Some(value)),
                None => (item, None),
            };
            let Some(value) = value else {
                match key.text() {
                    "end" => spec.at = Some(At::End),
                    name if NAMES.contains(&name) => {
                        return Err(item.error(format!("{name} needs a value, as {name}=...")));
                    }
                    name => return Err(unknown(key, name)),
                }
                once(&mut point, item)?;
                continue;
            };
            if value.text().is_empty() {
                return Err(value.error(format!("{} needs a value", key.text())));
            }
            match key.text() {
                "seed" => spec.seed = value.number("a seed")?,
                "model" => spec.model = model(value)?,
                "sector" => spec.large_sectors = sector(value)?,
                "dir" => spec.dir = Some(plain(value)),
                "only" => spec.only = Some(numbers(value)?),
                name => {
                    spec.at = Some(match name {
                        "request" => At::Request(from_one(value, "a request")?),
                        "fsync" => At::Sync(from_one(value, "an fsync")?),
                        "time" => At::Time(ns(value)?),
                        "marker" => At::Marker(plain(value)),
                        "end" => return Err(value.error("end has no value")),
                        name => return Err(unknown(key, name)),
                    });
                    once(&mut point, item)?;
                }
            }
        }
        Ok(spec)
    }
}

fn once(point: &mut bool, item: Part<'_>) -> Result<()> {
    if core::mem::replace(point, true) {
        return Err(item.error("the power fails once: one of end, request, fsync, time, marker"));
    }
    Ok(())
}

fn unknown(key: Part<'_>, name: &str) -> Error {
    if name.is_empty() {
        return key.error("an item is missing");
    }
    key.error(format!("there is no item {name}; items: {}", NAMES.join(", ")))
}

fn model(value: Part<'_>) -> Result<Model> {
    let names = Model::ALL.map(Model::name);
    let found = Model::ALL.into_iter().find(|m| m.name() == value.text());
    let wrong = || format!("there is no model {}; models: {}", value.text(), names.join(", "));
    found.ok_or_else(|| value.error(wrong()))
}

fn sector(value: Part<'_>) -> Result<bool> {
    match value.text() {
        "512" => Ok(false),
        "4096" => Ok(true),
        _ => Err(value.error("a sector has 512 or 4096 bytes")),
    }
}

/// Returns the text without its escapes.
fn plain(value: Part<'_>) -> String {
    value.text().replace("\\,", ",").to_string()
}

fn from_one(value: Part<'_>, what: &str) -> Result<u64> {
    match value.number(what)? {
        0 => Err(value.error(format!("{what} is counted from 1"))),
        n => Ok(n),
    }
}

fn numbers(value: Part<'_>) -> Result<BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    let mut rest = Some(value);
    while let Some(part) = rest {
        let (this, after) = part.split('+').map_or((part, None), |(a, b)| (a, Some(b)));
        all.insert(this.number("a request")?);
        rest = after;
    }
    Ok(all)
}
