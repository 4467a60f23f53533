//! Parsing of a SPEC. Errors name the column.

use alloc::format;
use alloc::string::String;

use crate::chance::{Chance, Time};
use crate::fault::Fault;
use crate::filter::{Filter, Kind, Ops};
use crate::glob::Glob;
use crate::part::{Part, Result, items, ns};
use crate::preset;
use crate::spec::{Entry, Spec};

/// The grammar, as messages show it.
pub const GRAMMAR: &str = "\
SPEC   = ITEM,ITEM,...
ITEM   = legal | order | hostile | seed=N | FAULT=[OP:]CHANCE[FILTER]
         | delay=[OP:][CHANCE:]TIME[FILTER]
CHANCE = 0 to 1, as 0.05
TIME   = 5ms | p99:20ms (99 of 100 times are at most 20 ms); units: ns us ms s
FILTER = @KEY=VALUE,KEY=VALUE,... with the keys
         op       read, write, send, recv, sync, open, or an opcode as FSYNC; several: read+FSYNC
         path     a pattern: *.wal (last component), /data/** (whole path); a comma is \\,
         kind     file, block, pipe, socket, other
         ring     the ring's number in its process, from 0
         request  the request's number in its ring, from 0
         nth      only the nth request that matches the rest, from 1";

/// Names that start a filter's item.
const KEYS: [&str; 6] = ["op", "path", "kind", "ring", "request", "nth"];

impl Spec {
    /// Parses a SPEC.
    ///
    /// # Errors
    /// The first mistake, with its column.
    pub fn parse(text: &str) -> Result<Spec> {
        let mut spec = Spec::default();
        // Whether the items so far end with a filter, which the next may go on.
        let mut filtered = false;
        for item in items(text) {
            match item.split('=') {
                Some((key, value)) if filtered && KEYS.contains(&key.text()) => {
                    if let Some(entry) = spec.entries.last_mut() {
                        filter(&mut entry.filter, key, value)?;
                    }
                    continue;
                }
                Some((key, value)) if key.text() == "seed" => spec.seed = value.number("a seed")?,
                Some((key, value)) => {
                    let (entry, has_filter) = entry(key, value)?;
                    spec.entries.push(entry);
                    filtered = has_filter;
                    continue;
                }
                None => spec.entries.extend(of_preset(item)?),
            }
            filtered = false;
        }
        Ok(spec)
    }
}

fn of_preset(item: Part<'_>) -> Result<alloc::vec::Vec<Entry>> {
    let name = item.text();
    if let Some(texts) = preset::named(name) {
        let mut entries = alloc::vec::Vec::new();
        for text in texts {
            entries.extend(Spec::parse(text)?.entries);
        }
        return Ok(entries);
    }
    if name.is_empty() {
        return Err(item.error("an item is missing"));
    }
    if Fault::named(name).is_some() {
        return Err(item.error(format!("{name} needs a chance, as {name}=0.05")));
    }
    if KEYS.contains(&name) {
        return Err(item.error(format!("{name} needs a value, as {name}=...")));
    }
    Err(item.error(format!("{name} is neither a preset nor a fault{}", alike(name))))
}

/// Returns the known name that a wrong one is closest to, as a question.
fn alike(name: &str) -> String {
    let known = Fault::ALL.iter().map(|f| f.name()).chain(["legal", "order", "hostile", "seed"]);
    let near = known.map(|known| (distance(name, known), known)).min();
    match near {
        Some((far, known)) if far <= 2 => format!("; did you mean {known}?"),
        _ => {
            let names = Fault::ALL.iter().map(|f| f.name());
            format!("; faults: {}", names.collect::<alloc::vec::Vec<_>>().join(", "))
        }
    }
}

/// Returns the number of bytes to insert, drop or replace to make one word of another.
fn distance(a: &str, b: &str) -> usize {
    let mut row: alloc::vec::Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

/// Parses `FAULT=...`; also returns whether it has a filter.
fn entry(key: Part<'_>, value: Part<'_>) -> Result<(Entry, bool)> {
    let name = key.text();
    let fault = match Fault::named(name) {
        Some(fault) => fault,
        None if KEYS.contains(&name) => {
            let message = format!("{name} belongs to a filter: FAULT=CHANCE@{name}=...");
            return Err(key.error(message));
        }
        None => return Err(key.error(format!("there is no fault {name}{}", alike(name)))),
    };
    let (value, first) = match value.split('@') {
        Some((value, first)) => (value, Some(first)),
        None => (value, None),
    };
    let mut ops = Ops::default();
    let mut rest = value;
    if let Some((before, after)) = value.split(':')
        && before.text().starts_with(|c: char| c.is_ascii_alphabetic())
        && !is_percentile(before.text())
    {
        ops = operations(before)?;
        rest = after;
    }
    let mut filter_of = Filter { ops, ..Filter::default() };
    let (chance, time) = if fault.takes_time() { timed(rest)? } else { (chance(rest)?, None) };
    if let Some(first) = first {
        let Some((key, value)) = first.split('=') else {
            return Err(first.error("a filter is KEY=VALUE"));
        };
        filter(&mut filter_of, key, value)?;
    }
    Ok((Entry { fault, chance, time, filter: filter_of }, first.is_some()))
}

fn filter(to: &mut Filter, key: Part<'_>, value: Part<'_>) -> Result<()> {
    let text = value.text();
    let twice = match key.text() {
        "op" => !to.ops.is_empty(),
        "path" => to.path.is_some(),
        "kind" => to.kind.is_some(),
        "ring" => to.ring.is_some(),
        "request" => to.request.is_some(),
        "nth" => to.nth.is_some(),
        other => {
            let keys = KEYS.join(", ");
            return Err(key.error(format!("a filter has no key {other}; keys: {keys}")));
        }
    };
    if twice {
        return Err(key.error(format!("{} is given twice", key.text())));
    }
    if text.is_empty() {
        return Err(value.error(format!("{} needs a value", key.text())));
    }
    match key.text() {
        "op" => to.ops = operations(value)?,
        "path" => to.path = Some(Glob::new(text)),
        "kind" => {
            let kind = Kind::ALL.into_iter().find(|k| k.name() == text);
            let names = Kind::ALL.map(Kind::name).join(", ");
            let wrong = || value.error(format!("there is no kind {text}; kinds: {names}"));
            to.kind = Some(kind.ok_or_else(wrong)?);
        }
        "ring" => to.ring = Some(value.number("a ring")?),
        "request" => to.request = Some(value.number("a request")?),
        _ => {
            let nth = value.number("nth")?;
            if nth == 0 {
                return Err(value.error("nth counts from 1"));
            }
            to.nth = Some(nth);
        }
    }
    Ok(())
}

fn operations(names: Part<'_>) -> Result<Ops> {
    let mut ops = Ops::default();
    let mut from = names.from;
    for name in names.text().split('+') {
        let part = Part { from, to: from + name.len(), ..names };
        if !ops.add(name) {
            let message = format!(
                "there is no operation {name}; groups: read, write, send, recv, sync, open; or an \
                 opcode, as FSYNC"
            );
            return Err(part.error(message));
        }
        from = part.to + 1;
    }
    Ok(ops)
}

/// Parses a decimal number from 0 to 1.
fn chance(part: Part<'_>) -> Result<Chance> {
    let text = part.text();
    let wrong = || part.error("a chance is a number from 0 to 1, as 0.05");
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let numeric = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if text.is_empty() || text == "." || !numeric(whole) || !numeric(digits) {
        return Err(wrong());
    }
    if digits.len() > 9 {
        return Err(part.error("a chance has at most 9 digits behind the point"));
    }
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    let mut parts = 0u32;
    for digit in digits.bytes().chain(core::iter::repeat(b'0')).take(9) {
        parts = parts * 10 + u32::from(digit - b'0');
    }
    let all = whole.checked_mul(1_000_000_000).and_then(|w| w.checked_add(parts));
    all.and_then(Chance::of_billion).ok_or_else(wrong)
}

fn is_percentile(text: &str) -> bool {
    text.strip_prefix('p').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()) && !n.is_empty())
}

/// Parses `[CHANCE:][pN:]TIME`, or `0`: never.
fn timed(part: Part<'_>) -> Result<(Chance, Option<Time>)> {
    if part.text() == "0" {
        return Ok((Chance::NEVER, None));
    }
    let (given, rest) = match part.split(':') {
        Some((before, after)) if !is_percentile(before.text()) => (chance(before)?, after),
        _ => (Chance::ALWAYS, part),
    };
    let Some((before, after)) = rest.split(':') else {
        return Ok((given, Some(Time::Fixed(ns(rest)?))));
    };
    if !is_percentile(before.text()) {
        return Err(before.error("before a time stands a percentile, as p99"));
    }
    let number = Part { from: before.from + 1, ..before };
    let percent: u8 = number.number("a percentile")?;
    if !(1..=99).contains(&percent) {
        return Err(number.error("a percentile is a number from 1 to 99"));
    }
    Ok((given, Some(Time::Percentile(percent, ns(after)?))))
}

#[cfg(test)]
mod tests;
