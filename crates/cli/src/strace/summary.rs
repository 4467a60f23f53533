//! The table of `-c`, as strace(1) writes it.

use super::args::operation;
use super::errnos::is_error;
use std::fmt::Write;

/// Counts of one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    ns: u128,
    calls: u64,
    errors: u64,
}

/// Counts by opcode.
#[derive(Debug)]
pub struct Summary(Box<[Row; 256]>);

impl Summary {
    pub fn new() -> Summary {
        Summary(Box::new([Row::default(); 256]))
    }

    pub fn add(&mut self, opcode: u8, res: i32, ns: u64) {
        let row = &mut self.0[usize::from(opcode)];
        row.ns += u128::from(ns);
        row.calls += 1;
        row.errors += u64::from(is_error(res));
    }

    /// Formats the table; the operation that took most time comes first.
    pub fn text(&self) -> String {
        let mut rows: Vec<(u8, Row)> =
            (0..=255).zip(self.0.iter().copied()).filter(|(_, row)| row.calls > 0).collect();
        rows.sort_by_key(|(opcode, row)| (std::cmp::Reverse(row.ns), *opcode));
        let mut all = Row::default();
        for (_, row) in &rows {
            all.ns += row.ns;
            all.calls += row.calls;
            all.errors += row.errors;
        }
        let rule = "------ ----------- ----------- --------- --------- ----------------\n";
        let mut text =
            String::from("% time     seconds  usecs/call     calls    errors operation\n");
        text.push_str(rule);
        let mut line = |row: &Row, name: &str| {
            let share = row.ns as f64 * 100.0 / all.ns.max(1) as f64;
            let each = row.ns / u128::from(row.calls.max(1)) / 1000;
            let errors = if row.errors > 0 { row.errors.to_string() } else { String::new() };
            let seconds = row.ns as f64 / 1e9;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{share:>6.2} {seconds:>11.6} {each:>11} {:>9} {errors:>9} {name}",
                row.calls
            );
        };
        rows.iter().for_each(|(opcode, row)| line(row, &operation(*opcode)));
        let total = Row { ns: all.ns, ..all };
        line(&total, "total");
        // The rule stands above the total.
        let at = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
        text.insert_str(at, rule);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softring_uapi::{IORING_OP_NOP, IORING_OP_READ};

    #[test]
    fn the_summary_table_matches_strace() {
        let mut s = Summary::new();
        s.add(IORING_OP_NOP, 0, 1_000_000);
        s.add(IORING_OP_READ, 5, 1_000_000);
        s.add(IORING_OP_READ, -5, 2_000_000);
        let want = "\
% time     seconds  usecs/call     calls    errors operation
------ ----------- ----------- --------- --------- ----------------
 75.00    0.003000        1500         2         1 READ
 25.00    0.001000        1000         1           NOP
------ ----------- ----------- --------- --------- ----------------
100.00    0.004000        1333         3         1 total
";
        assert_eq!(s.text(), want);
    }
}
