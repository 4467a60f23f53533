//! Errors for options that would change nothing in the measurement: a user who gives one counts on
//! it.

use crate::cli::{self, BenchArgs, Driver, Op, name_of};
use crate::fail;
use Op::*;

/// Operations that run for `--seconds`, in `--threads`.
const TIMED: &[Op] = &[Rw, Nop, Setup, Echo, Poll, MsgRing, Futex];
/// Operations that are done `--count` times.
const COUNTED: &[Op] = &[TimeoutAdd, TimeoutCancel, TimeoutExpire];
/// Operations that are repeated `--pairs` times.
const COMPARED: &[Op] =
    &[Rw, Nop, Setup, Echo, Poll, MsgRing, Futex, TimeoutAdd, TimeoutCancel, TimeoutExpire];

/// The operations that heed an option; an option that is not listed is heeded by all. `--batch`
/// defaults to `--depth`.
const HEEDED: &[(&str, &[Op])] = &[
    ("file", &[Rw]),
    ("device", &[Rw]),
    ("dir", &[Rw]),
    ("overwrite", &[Rw]),
    ("size", &[Rw]),
    ("rw", &[Rw]),
    ("rwmix", &[Rw]),
    ("bs", &[Rw, Echo]),
    ("batch", &[Rw, Nop, TimeoutAdd, TimeoutCancel, TimeoutExpire]),
    (
        "depth",
        &[Rw, Nop, Setup, Idle, Poll, MsgRing, Futex, TimeoutAdd, TimeoutCancel, TimeoutExpire],
    ),
    ("wait", &[Rw]),
    ("threads", TIMED),
    ("pool_threads", &[Rw]),
    ("connections", &[Echo, IdleSockets]),
    ("multishot", &[Echo]),
    ("count", COUNTED),
    ("seconds", &[Rw, Nop, Setup, Echo, Poll, MsgRing, Futex, IdleSockets]),
    ("warmup", TIMED),
    ("pairs", COMPARED),
    ("direct", &[Rw]),
    ("fixed_files", &[Rw]),
    ("slat", &[Rw]),
    ("verify", &[Rw]),
    ("plot", COMPARED),
];

/// Checks that each option that is given changes something.
///
/// # Errors
/// Usage, for the first option that changes nothing.
pub fn check(args: &BenchArgs) -> anyhow::Result<()> {
    let spelt = |option: &str| format!("--{}", option.replace('_', "-"));
    for (option, ops) in HEEDED {
        if args.given.iter().any(|g| g == option) && !ops.contains(&args.op) {
            let what = format!("--op {} does not use {}", name_of(args.op), spelt(option));
            let ops: Vec<String> = ops.iter().map(|op| name_of(*op)).collect();
            let hint = format!("leave the option out; it applies to --op {}", ops.join(", "));
            return Err(fail::usage(what, hint));
        }
    }
    let named = args.file.is_some() || args.device.is_some();
    let asked = |wanted: &[Driver]| args.engines.iter().any(|e| wanted.contains(e));
    let ring = asked(&[Driver::Kernel, Driver::Softring]);
    let idle = [
        ("overwrite", named, "it applies to --file and --device"),
        ("dir", !named, "it names the folder of the temporary file, not of a --file"),
        ("rwmix", args.rw == cli::Rw::Randrw, "it applies to --rw randrw"),
        ("pool_threads", asked(&[Driver::Pool]), "it applies to --engines pool"),
        ("setup_flags", ring, "it applies to --engines kernel, softring"),
        ("fixed_files", ring, "it applies to --engines kernel, softring"),
        ("multishot", ring, "it applies to --engines kernel, softring"),
    ];
    for (option, used, why) in idle {
        if !used && args.given.iter().any(|g| g == option) {
            let what = format!("{} would have no effect", spelt(option));
            return Err(fail::usage(what, format!("leave the option out; {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_table_names_options() {
        let cli = Cli::command();
        let bench = cli.find_subcommand("bench").unwrap();
        for (option, _) in HEEDED {
            assert!(bench.get_arguments().any(|a| a.get_id() == *option), "{option}");
        }
    }
}
