//! Parser of models as a user writes them: `PATH=[PRESET,]KEY:VALUE,…`.

use super::device::{Direction, Spec};
use super::dist::{Dist, Shape, Slow};
use super::presets::PRESETS;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Keys, with the values that each takes.
pub(crate) const KEYS: [(&str, &str); 12] = [
    ("latency", "a time, or READ/WRITE"),
    ("jitter", "standard deviation: a time or a percentage, or READ/WRITE"),
    ("dist", "fixed, normal or lognormal, or READ/WRITE"),
    ("slow", "TIME@PERCENT%: this share of the requests takes TIME"),
    ("iops", "requests per second, or READ/WRITE"),
    ("bw", "bytes per second, or READ/WRITE"),
    ("queues", "number of requests that the disk works on at once"),
    ("seek", "a time, added to a request that does not follow the previous one"),
    ("pollqueues", "0 or 1"),
    ("irq", "the time of an interrupt"),
    ("data", "real or none"),
    ("seed", "a whole number"),
];

/// Maximum number of models of one process.
pub(crate) const MOST: usize = 31;
const MOST_QUEUES: u64 = 65_536;
/// Maximum of requests or bytes per second: far above any device, and exact as a number.
const MOST_RATE: f64 = 1e15;
/// Default duration of an interrupt, in ns.
const INTERRUPT: u64 = 2_000;

/// A device and the files on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// A file, or a folder with all that is in it. Absolute.
    pub(crate) path: Vec<u8>,
    pub(crate) spec: Spec,
}

type Result<T> = core::result::Result<T, String>;

/// Parses several models, separated by `;`, as the environment carries them.
///
/// # Errors
/// A text that says what is wrong.
pub fn models(text: &[u8]) -> Result<Vec<Model>> {
    let parts = text.split(|&b| b == b';').filter(|p| !p.is_empty());
    let all: Vec<Model> = parts.map(model).collect::<Result<_>>()?;
    if all.len() > MOST {
        return Err(format!("{} models: the maximum is {MOST}", all.len()));
    }
    Ok(all)
}

/// Parses one model. The path is made absolute, with symbolic links followed.
///
/// # Errors
/// A text that says what is wrong.
pub fn model(text: &[u8]) -> Result<Model> {
    let Some(cut) = text.iter().rposition(|&b| b == b'=') else {
        let text = String::from_utf8_lossy(text);
        return Err(format!("'{text}' has no '=': write PATH=PRESET or PATH=KEY:VALUE,…"));
    };
    if cut == 0 {
        return Err("there is no path: write PATH=PRESET or PATH=KEY:VALUE,…".into());
    }
    let path = softring_host::files::absolute(&text[..cut])?;
    if path.contains(&b';') {
        let path = String::from_utf8_lossy(&path);
        return Err(format!("{path}: a path with ';' cannot be modelled"));
    }
    let options = core::str::from_utf8(&text[cut + 1..]).map_err(|e| e.to_string())?;
    let before = String::from_utf8_lossy(&text[..=cut]).chars().count();
    Ok(Model { path, spec: spec_at(options, before)? })
}

/// Checks a model and makes its path absolute, for the environment of a program that may change its
/// working directory.
///
/// # Errors
/// Those of [`model`].
pub fn absolute(text: &[u8]) -> Result<Vec<u8>> {
    let cut = text.iter().rposition(|&b| b == b'=').unwrap_or(0);
    let mut whole = model(text)?.path;
    whole.extend_from_slice(&text[cut..]);
    Ok(whole)
}

/// Parses the options, which follow the `=`.
///
/// # Errors
/// A text that says what is wrong; with the column, if one option is wrong.
#[cfg(test)]
fn spec(options: &str) -> Result<Spec> {
    spec_at(options, 0)
}

/// Parses the options after `before` characters that count as columns, too.
fn spec_at(options: &str, before: usize) -> Result<Spec> {
    if options.trim().is_empty() {
        return Err(format!("a model needs a preset ({}) or KEY:VALUE", preset_names()));
    }
    let mut given = Given { interrupt: INTERRUPT, seed: 1, ..Given::default() };
    let (mut column, mut said) = (before + 1, Vec::new());
    // Only the end shows whether a distribution has all that it needs.
    let mut dist = column;
    let at = |column: usize| move |e: String| format!("column {column}: {e}");
    for (i, option) in options.split(',').enumerate() {
        if option.starts_with("dist:") {
            dist = column;
        }
        given.take(option, i == 0, &mut said).map_err(at(column))?;
        column += option.chars().count() + 1;
    }
    given.spec().map_err(at(dist))
}

fn preset_names() -> String {
    PRESETS.map(|p| p.name).join(", ")
}

fn key_names() -> String {
    KEYS.map(|k| k.0).join(", ")
}

/// A standard deviation.
#[derive(Clone, Copy, Debug)]
enum Jitter {
    Time(f64),
    Share(f64),
}

/// Options parsed so far; pairs are of reads, then writes.
#[derive(Debug, Default)]
struct Given {
    latency: [f64; 2],
    jitter: Option<[Jitter; 2]>,
    shape: Option<[Shape; 2]>,
    slow: Option<Slow>,
    iops: [f64; 2],
    bandwidth: [f64; 2],
    queues: u32,
    seek: f64,
    pollqueues: bool,
    interrupt: u64,
    empty: bool,
    seed: u64,
}

impl Given {
    /// Parses one piece between commas: a preset, which must be the first, or an option, once.
    fn take<'a>(&mut self, piece: &'a str, first: bool, said: &mut Vec<&'a str>) -> Result<()> {
        if piece.is_empty() {
            return Err("nothing between two commas".into());
        }
        if piece.contains(char::is_whitespace) {
            return Err(format!("'{piece}': a model must not contain blanks"));
        }
        let Some((key, _)) = piece.split_once(':') else { return self.preset(piece, first) };
        if said.contains(&key) {
            return Err(format!("'{key}' appears twice"));
        }
        said.push(key);
        self.option(piece)
    }

    fn preset(&mut self, name: &str, first: bool) -> Result<()> {
        let preset = PRESETS.iter().find(|p| p.name == name);
        let known = || format!("'{name}' is not a preset; known: {}", preset_names());
        let preset = preset.ok_or_else(known)?;
        if !first {
            return Err(format!("the preset '{name}' must come first"));
        }
        preset.options.split(',').try_for_each(|option| self.option(option))
    }

    fn option(&mut self, option: &str) -> Result<()> {
        let (key, value) = option.split_once(':').unwrap_or((option, ""));
        let prefixed = |e: String| format!("{key}:{value}: {e}");
        match key {
            "latency" => self.latency = both(value, time).map_err(prefixed)?,
            "jitter" => self.jitter = Some(both(value, jitter).map_err(prefixed)?),
            "dist" => self.shape = Some(both(value, shape).map_err(prefixed)?),
            "slow" => self.slow = Some(slow(value).map_err(prefixed)?),
            "iops" => self.iops = both(value, rate).map_err(prefixed)?,
            "bw" => self.bandwidth = both(value, rate).map_err(prefixed)?,
            "queues" => self.queues = queues(value).map_err(prefixed)?,
            "seek" => self.seek = time(value).map_err(prefixed)?,
            "pollqueues" => self.pollqueues = whole(value, 1).map_err(prefixed)? == 1,
            "irq" => self.interrupt = time(value).map_err(prefixed)? as u64,
            "data" => self.empty = no_data(value).map_err(prefixed)?,
            "seed" => self.seed = whole(value, u64::MAX).map_err(prefixed)?,
            _ => return Err(format!("'{key}' is not a key; known: {}", key_names())),
        }
        Ok(())
    }

    fn spec(&self) -> Result<Spec> {
        let mut spec = Spec {
            read: self.direction(0)?,
            write: self.direction(1)?,
            queues: self.queues,
            seek: Dist::default(),
            pollqueues: self.pollqueues,
            interrupt: self.interrupt,
            empty: self.empty,
            seed: self.seed,
        };
        if self.seek > 0.0 {
            // With a seek time, the jitter is the arm's.
            let [jitter, _] = self.jitter.unwrap_or([Jitter::Time(0.0); 2]);
            spec.seek = self.dist(0, self.seek, Some(jitter))?;
        }
        Ok(spec)
    }

    fn direction(&self, which: usize) -> Result<Direction> {
        let jitter = self.jitter.filter(|_| self.seek == 0.0).map(|j| j[which]);
        let mut latency = self.dist(which, self.latency[which], jitter)?;
        latency.slow = self.slow;
        let (iops, bandwidth) = (self.iops[which], self.bandwidth[which]);
        Ok(Direction { latency, iops, bandwidth })
    }

    /// Returns the distribution around `mean`. With a jitter, the default shape is normal.
    fn dist(&self, which: usize, mean: f64, jitter: Option<Jitter>) -> Result<Dist> {
        let deviation = match jitter {
            None => 0.0,
            Some(Jitter::Time(ns)) => ns,
            Some(Jitter::Share(share)) => mean * share,
        };
        let usual = if deviation > 0.0 { Shape::Normal } else { Shape::Fixed };
        let shape = self.shape.map_or(usual, |s| s[which]);
        if shape != Shape::Fixed && self.jitter.is_none() {
            return Err("dist: normal and lognormal need a jitter".into());
        }
        Ok(Dist { shape, mean, deviation, slow: None })
    }
}

/// Parses `BOTH` or `READ/WRITE`.
fn both<T: Copy>(value: &str, one: impl Fn(&str) -> Result<T>) -> Result<[T; 2]> {
    match value.split_once('/') {
        Some((read, write)) => Ok([one(read)?, one(write)?]),
        None => one(value).map(|v| [v; 2]),
    }
}

/// Splits a value into a number and its unit.
fn number(value: &str) -> Result<(f64, &str)> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    // Rust's own parser takes `.5` and `5.`, too.
    let whole = digits.split('.').all(|part| !part.is_empty());
    let n = digits.parse::<f64>().ok().filter(|_| whole);
    Ok((n.ok_or_else(|| format!("'{value}' is not a number"))?, unit.trim()))
}

/// Parses a time, in ns; a minute at most.
fn time(value: &str) -> Result<f64> {
    let (n, unit) = number(value)?;
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if n == 0.0 => 1.0,
        _ => return Err(format!("'{value}' needs a unit: ns, us, ms or s")),
    };
    let ns = n * factor;
    if ns > 60e9 { Err(format!("'{value}' is more than a minute")) } else { Ok(ns) }
}

/// Parses a rate per second: decimal suffixes, as in data sheets.
fn rate(value: &str) -> Result<f64> {
    let (n, unit) = number(value)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return Err(format!("unknown unit '{unit}': use k, m or g (powers of 1000)")),
    };
    let rate = n * factor;
    match rate {
        _ if rate < 1.0 => Err("must be at least 1 per second".into()),
        _ if rate > MOST_RATE => Err(format!("'{value}' is more than 1000000g per second")),
        _ => Ok(rate),
    }
}

fn share(value: &str) -> Result<f64> {
    let (n, unit) = number(value)?;
    let fits = unit == "%" && n <= 100.0;
    if fits { Ok(n / 100.0) } else { Err(format!("'{value}' is not a percentage up to 100%")) }
}

fn jitter(value: &str) -> Result<Jitter> {
    if value.ends_with('%') {
        return share(value).map(Jitter::Share);
    }
    time(value).map(Jitter::Time)
}

fn slow(value: &str) -> Result<Slow> {
    let (mean, part) = value.split_once('@').ok_or("write TIME@PERCENT%, as in 2ms@1%")?;
    Ok(Slow { mean: time(mean)?, share: share(part)? })
}

fn shape(value: &str) -> Result<Shape> {
    match value {
        "fixed" => Ok(Shape::Fixed),
        "normal" => Ok(Shape::Normal),
        "lognormal" => Ok(Shape::Lognormal),
        _ => Err("use fixed, normal or lognormal; slow makes any of them bimodal".into()),
    }
}

fn whole(value: &str, most: u64) -> Result<u64> {
    // Rust's own parser takes a sign, too.
    let n = value.parse::<u64>().ok().filter(|_| !value.starts_with('+'));
    let n = n.ok_or_else(|| format!("'{value}' is not a whole number"))?;
    if n > most { Err(format!("the maximum is {most}")) } else { Ok(n) }
}

fn queues(value: &str) -> Result<u32> {
    match whole(value, MOST_QUEUES)? {
        0 => Err("a disk works on at least one request; leave the key out for no limit".into()),
        n => Ok(n as u32),
    }
}

fn no_data(value: &str) -> Result<bool> {
    match value {
        "real" => Ok(false),
        "none" => Ok(true),
        _ => Err("use real or none".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn models_are_parsed() {
        assert!(model(b"=hdd").is_err_and(|e| e.starts_with("there is no path")));
        let m = model(b"/tmp=latency:80us/15us,iops:1m/215k,bw:6.8g,queues:8").unwrap();
        assert_eq!(m.path, b"/tmp");
        let (read, write) = (m.spec.read, m.spec.write);
        assert_eq!((read.latency, write.latency), (Dist::fixed(8e4), Dist::fixed(1.5e4)));
        assert_eq!((read.iops, write.iops, read.bandwidth), (1e6, 215e3, 6.8e9));
        assert_eq!((m.spec.queues, m.spec.pollqueues, m.spec.empty), (8, false, false));
        let s = spec("latency:100us,jitter:10%/1us,slow:2ms@0.5%").unwrap();
        let slow = Some(Slow { mean: 2e6, share: 0.005 });
        let dist = |deviation| Dist { shape: Shape::Normal, mean: 1e5, deviation, slow };
        assert_eq!((s.read.latency, s.write.latency), (dist(1e4), dist(1e3)));
    }

    #[test]
    fn presets_parse_and_can_be_changed() {
        for p in PRESETS {
            assert!(spec(p.name).is_ok(), "{}: {:?}", p.name, spec(p.name));
        }
        let s = spec("nvme-gen4,queues:1,data:none").unwrap();
        assert_eq!((s.queues, s.empty, s.read.latency.mean), (1, true, 80e3));
        assert_eq!(spec("null").unwrap().read, Direction::default());
        assert_eq!(spec("hdd").unwrap().read.latency.deviation, 0.0, "the arm has it");
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (bad, word) in [
            ("", "preset"),
            ("floppy", "known: nvme-gen4"),
            ("latency:80us,nvme-gen4", "first"),
            ("latency:80", "unit"),
            ("latency:x", "not a number"),
            ("latency:2000s", "minute"),
            ("speed:3", "known: latency"),
            ("dist:lognormal,latency:1us", "column 1: dist: normal and lognormal need a jitter"),
            ("latency:1us,dist:fixed/normal,iops:5", "column 13: dist: "),
            ("null,dist:poisson", "column 6: dist:poisson: "),
            ("dist:poisson", "lognormal"),
            ("iops:0", "at least 1"),
            ("bw:5q", "unit 'q'"),
            ("queues:99999999", "65536"),
            ("pollqueues:2", "the maximum"),
            ("slow:2ms", "PERCENT"),
            ("slow:2ms@200%", "percentage"),
            ("data:some", "real or none"),
            ("queues:0", "at least one request"),
            ("iops:5,iops:6", "column 8: 'iops' appears twice"),
            ("hdd, iops:5", "column 5: ' iops:5': a model must not contain blanks"),
            ("hdd,", "column 5: nothing between"),
            ("hdd,bw:1g,queues:0", "column 11"),
            ("hdd,bw:99999999999999999999g", "column 5: bw:99999999999999999999g: '9"),
            ("iops:1000001g", "more than 1000000g"),
            ("queues:+4", "column 1: queues:+4: '+4' is not a whole number"),
            ("seed:+4", "not a whole number"),
            ("latency:.5us", "column 1: latency:.5us: '.5us' is not a number"),
            ("latency:5.us", "not a number"),
            ("latency:1.2.3us", "not a number"),
            ("latency:+5us", "not a number"),
            ("iops:-5", "not a number"),
            ("slow:2ms@.5%", "not a number"),
        ] {
            let e = spec(bad).unwrap_err();
            assert!(e.contains(word), "{bad}: {e}");
        }
        assert!(model(b"null").unwrap_err().contains("no '='"));
        assert!(model(b"/tmp=iops:1 k").unwrap_err().starts_with("column 6: "));
        assert!(model(b"/no/such=null").unwrap_err().contains("No such file"));
        assert_eq!(models(b"/tmp=null;/=hdd").map(|m| m.len()), Ok(2));
        assert!(models("/=null;".repeat(32).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in "\\PC{0,60}") {
            let _ = spec(&text);
        }
    }
}
