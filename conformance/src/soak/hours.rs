//! Logic time: how long an everyday server would take for the soak's actions. A soak repeats what
//! such a server does, without its pauses.

use super::ledger::Totals;

/// A counted action, and the average number of them per second on an everyday server.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub name: &'static str,
    pub a_second: f64,
    pub played: fn(&Totals) -> u64,
}

/// Everyday rates.
pub const EVERYDAY: [Rate; 3] = [
    Rate { name: "requests", a_second: 100.0, played: |t| t.requests },
    Rate { name: "connections", a_second: 10.0, played: |t| t.connections },
    Rate { name: "timeouts", a_second: 1.0, played: |t| t.timeouts },
];

impl Rate {
    /// Returns the hours that hold as many actions at this rate.
    pub fn hours(&self, totals: &Totals) -> f64 {
        (self.played)(totals) as f64 / self.a_second / 3600.0
    }
}

/// Returns the hours for which all rates were reached.
pub fn whole(totals: &Totals) -> f64 {
    EVERYDAY.iter().map(|rate| rate.hours(totals)).fold(f64::INFINITY, f64::min)
}

/// Describes the same in words.
pub fn describe(totals: &Totals) -> String {
    let each = EVERYDAY.iter().map(|rate| {
        let Rate { name, a_second, played } = rate;
        format!("{:.1} of {name} ({} at {a_second} a second)", rate.hours(totals), played(totals))
    });
    let each: Vec<_> = each.collect();
    format!("{:.1} hours of logic time: {}", whole(totals), each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_share_counts() {
        let (requests, connections, timeouts) = (100 * 3600 * 30, 10 * 3600 * 24, 3600 * 50);
        let totals = Totals { requests, connections, timeouts, ..Totals::default() };
        assert!((whole(&totals) - 24.0).abs() < 1e-9);
    }
}
