//! Ranges of seeds.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The seeds from the first to the one before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds {
    pub start: u64,
    pub end: u64,
}

impl Seeds {
    pub fn count(self) -> u64 {
        self.end - self.start
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| format!("'{text}' is no number: 0..200, or 200"))
        };
        let (start, end) = match text.split_once("..") {
            None => (0, number(text)?),
            Some((start, last)) => match last.strip_prefix('=') {
                Some(last) => {
                    let next = number(last)?.checked_add(1);
                    (number(start)?, next.ok_or("the last seed is too large")?)
                }
                None => (number(start)?, number(last)?),
            },
        };
        if start < end { Ok(Seeds { start, end }) } else { Err("these are no seeds".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed() {
        let seeds = |text: &str| text.parse::<Seeds>().map(|s| (s.start, s.end));
        assert_eq!(
            (seeds("3..7"), seeds("3..=7"), seeds("9")),
            (Ok((3, 7)), Ok((3, 8)), Ok((0, 9)))
        );
        for bad in ["", "7..3", "3..3", "a..b", "..4", "1..", "0", "-1..2"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
        assert_eq!("3..=7".parse::<Seeds>().unwrap().to_string(), "3..8");
    }
}
