//! Replay: exactly the faults of a log.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use crate::decide::Subject;
use crate::fault::Fault;
use crate::filter::op_named;
use crate::log::{Head, Line};

/// The faults of a log, by ring, opcode, request and fault. A request with another opcode is not
/// the one that had the fault: the program is another one, or does something else this time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    values: BTreeMap<(u32, u8, u64, Fault), u64>,
}

impl Replay {
    /// Reads a log.
    ///
    /// # Errors
    /// The first line that cannot be understood, and why.
    pub fn parse(text: &str) -> Result<Replay, String> {
        let mut replay = Replay::default();
        for (i, line) in text.lines().enumerate() {
            let wrong = |why: &str| format!("line {}: {why}", i + 1);
            if i == 0 {
                Head::parse(line).map_err(wrong)?;
            } else if !line.trim().is_empty() {
                replay.add(&Line::parse(line).map_err(wrong)?).map_err(|e| wrong(&e))?;
            }
        }
        if text.is_empty() {
            return Err("the log is empty".into());
        }
        Ok(replay)
    }

    /// Adds the fault of a line.
    ///
    /// # Errors
    /// There is no such fault or operation.
    pub fn add(&mut self, line: &Line) -> Result<(), String> {
        let fault = Fault::named(&line.fault);
        let fault = fault.ok_or_else(|| format!("there is no fault {}", line.fault))?;
        let op = op_named(&line.op).ok_or_else(|| format!("there is no operation {}", line.op))?;
        self.values.insert((line.ring, op, line.request, fault), line.value);
        Ok(())
    }

    /// Returns the value of a fault for a request.
    pub(crate) fn value(&self, subject: &Subject<'_>, fault: Fault) -> Option<u64> {
        let key = (subject.ring, subject.op, subject.request, fault);
        self.values.get(&key).copied()
    }

    /// Returns whether the log has the fault.
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.values.keys().any(|k| k.3 == fault)
    }
}
