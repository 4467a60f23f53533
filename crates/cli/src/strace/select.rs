//! Selection of the requests that are shown: by operation, by failure, by the time that they took.

use super::errnos::is_error;
use softring_uapi::{IORING_OP_LAST, op_name};
use std::time::Duration;

/// Operations that are shown: one bit for each opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops(pub [u64; 4]);

impl Ops {
    pub const ALL: Ops = Ops([u64::MAX; 4]);

    pub fn has(self, opcode: u8) -> bool {
        self.0[usize::from(opcode) / 64] >> (opcode % 64) & 1 == 1
    }

    /// Returns the operations that every one of several expressions allows.
    pub fn of(all: &[Ops]) -> Ops {
        let both = |a: Ops, b: &Ops| Ops(std::array::from_fn(|i| a.0[i] & b.0[i]));
        all.iter().fold(Ops::ALL, both)
    }
}

/// Parses operations: `READ,write`, `trace=READ`, `!NOP`, `all`.
///
/// # Errors
/// A name that no operation has.
pub fn ops(text: &str) -> Result<Ops, String> {
    let text = text.trim_start_matches("trace=");
    let (not, list) = match text.strip_prefix('!') {
        Some(list) => (true, list),
        None => (false, text),
    };
    let mut set = [0u64; 4];
    for word in list.split(',').map(|w| w.trim().to_ascii_uppercase()) {
        let name = word.trim_start_matches("IORING_OP_");
        if name == "ALL" {
            set = [u64::MAX; 4];
            continue;
        }
        let found = (0..IORING_OP_LAST).find(|&op| op_name(op) == Some(name));
        let Some(at) = found.map(usize::from) else {
            return Err(format!("unknown operation '{word}'; use names such as READ, SEND, !NOP"));
        };
        set[at / 64] |= 1 << (at % 64);
    }
    Ok(Ops(if not { set.map(|word| !word) } else { set }))
}

/// Parses a time: `10ms`, `1.5s`, `200us`, `50ns`.
///
/// # Errors
/// The text is no such time.
pub fn duration(text: &str) -> Result<Duration, String> {
    let cut = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(cut);
    let ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" => return Err("give a unit: 10ms, 200us, 1s".to_owned()),
        _ => return Err(format!("unknown unit '{unit}': use ns, us, ms or s")),
    };
    let n: f64 = number.parse().map_err(|_| "not a number".to_owned())?;
    Ok(Duration::from_nanos((n * ns).round() as u64))
}

/// The conditions of one command.
#[derive(Clone, Copy, Debug)]
pub struct Select {
    pub ops: Ops,
    pub failed: bool,
    pub slow: Option<Duration>,
}

impl Select {
    /// Returns whether a result of an operation is shown that came after `ns`.
    pub fn shows(&self, opcode: u8, res: i32, ns: u64) -> bool {
        self.ops.has(opcode)
            && (!self.failed || is_error(res))
            && self.slow.is_none_or(|slow| u128::from(ns) >= slow.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softring_uapi::{IORING_OP_NOP, IORING_OP_READ, IORING_OP_WRITE};

    #[test]
    fn operations_are_chosen() {
        let chosen = ops("trace=read,IORING_OP_WRITE").unwrap();
        assert!(chosen.has(IORING_OP_READ) && chosen.has(IORING_OP_WRITE));
        assert!(!chosen.has(IORING_OP_NOP));
        let but = ops("!nop").unwrap();
        assert!(but.has(IORING_OP_READ) && !but.has(IORING_OP_NOP) && but.has(200));
        let both = Ops::of(&[chosen, ops("!read").unwrap()]);
        assert!(both.has(IORING_OP_WRITE) && !both.has(IORING_OP_READ));
        assert_eq!((ops("all").unwrap(), Ops::of(&[])), (Ops::ALL, Ops::ALL));
        assert!(ops("raed").unwrap_err().contains("RAED"));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("200us"), Ok(Duration::from_micros(200)));
        for bad in ["10", "ms", "1h", "1.2.3s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn conditions_add_up() {
        let s = Select { ops: Ops::ALL, failed: true, slow: Some(Duration::from_micros(1)) };
        assert!(s.shows(0, -5, 1000) && !s.shows(0, 0, 1000) && !s.shows(0, -5, 999));
        assert!(!s.shows(0, i32::MIN, 1000), "a flag, not an error");
    }
}
