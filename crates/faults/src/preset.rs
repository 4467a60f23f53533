//! Presets: lists of entries by one name.

/// Faults that a correct kernel may produce with healthy hardware.
const LEGAL: &str = "short-read=0.05,short-write=0.05,eintr=0.01,eagain=0.01,delay=0.1:p99:20ms,\
    reorder=0.3,overflow=0.1,cancel-late=0.5,multishot-end=0.1,spurious-wake=0.05,sq-late=0.2,\
    buffers-out=0.1,notif-late=0.5";

/// Faults of `LEGAL` that change only the order and the time of completions.
const ORDER: &str = "delay=0.1:p99:20ms,reorder=0.3,overflow=0.1,cancel-late=0.5,\
    spurious-wake=0.05,sq-late=0.2,notif-late=0.5";

/// Faults of hardware, peers and limits.
const HOSTILE: &str = "eio=0.005,enospc=0.005,econnreset=0.005,edquot=0.002,enomem=0.005,\
    drop-connection=0.002";

/// The presets: name, and the texts of their entries.
const PRESETS: &[(&str, &[&str])] =
    &[("legal", &[LEGAL]), ("order", &[ORDER]), ("hostile", &[LEGAL, HOSTILE])];

/// Returns the texts of a preset's entries.
pub(crate) fn named(name: &str) -> Option<&'static [&'static str]> {
    PRESETS.iter().find(|p| p.0 == name).map(|p| p.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_a_part_of_legal() {
        assert!(ORDER.split(',').all(|entry| LEGAL.split(',').any(|of_all| of_all == entry)));
    }
}
