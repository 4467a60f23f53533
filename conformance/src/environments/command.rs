//! The command line of `softring-environments`.

use super::policy::{self, Policy};
use super::{Fault, checks, sys};
use crate::entry::EntryPoint;
use crate::ring::Ring;
use clap::{Parser, Subcommand};
use softring_uapi::SETUP_NAMES;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Environment variable that names the refused calls to the checks.
const REFUSED: &str = "SOFTRING_CHECKS_REFUSED";

/// Test rings under a policy, on the kernel, or on softring if it is preloaded.
#[derive(Parser, Debug)]
#[command(name = "softring-environments")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Run the checks; exit code 1: a check failed; 3: there is no ring
    Checks {
        /// Entry point of the system calls: syscall, patch or sigsys
        #[arg(long, alias = "door", value_name = "HOW", default_value = "patch")]
        intercept: EntryPoint,
        /// Run only these checks
        names: Vec<String>,
    },
    /// Run a command under a policy
    Under {
        /// CALL=EPERM|ENOSYS|EACCES|kill, rings=…, above=NUMBER:…, mdwe=prctl|seccomp|kill,
        /// processes=…, threads=…, no_new_privs, nproc=N, nofile=N, memlock=BYTES, as=MIB, user=ID
        policy: Vec<String>,
        /// The command, after --
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Write a policy's seccomp filter, as `bwrap --seccomp` reads it
    Filter {
        /// Words as for `under`; only the calls are filtered
        policy: Vec<String>,
    },
    /// List the calls that have their own row
    Calls {
        /// List only calls that a policy may kill for
        #[arg(long)]
        kill: bool,
    },
    /// Ask for a ring with set-up flags; exit code 1: there is none
    Ring {
        /// Names without IORING_SETUP_: CQE32
        flags: Vec<String>,
    },
    /// List the checks
    List,
}

/// Runs the whole program.
pub fn main() -> ExitCode {
    match Cli::parse().what {
        What::Checks { intercept, names } => {
            let refused = std::env::var(REFUSED).unwrap_or_default();
            let refused: Vec<String> = refused.split(',').map(str::to_owned).collect();
            return checks::run(intercept, &refused, &names);
        }
        What::Calls { kill } => policy::single_calls(kill).for_each(|name| println!("{name}")),
        What::List => checks::all().for_each(|check| println!("{}", check.name)),
        What::Ring { flags } => return ring(&flags),
        What::Filter { policy } => {
            if let Err(why) = filter(&policy) {
                eprintln!("softring-environments: {why}");
                return ExitCode::from(2);
            }
        }
        What::Under { policy, command } => {
            let why = under(&policy, &command).err().unwrap_or_default();
            eprintln!("softring-environments: {why}");
            return ExitCode::from(125);
        }
    }
    ExitCode::SUCCESS
}

fn ring(names: &[String]) -> ExitCode {
    let mut flags = 0;
    for name in names {
        let Some(bit) = SETUP_NAMES.iter().position(|known| known == name) else {
            eprintln!("softring-environments: no set-up flag is called {name}");
            return ExitCode::from(2);
        };
        flags |= 1 << bit;
    }
    match Ring::new(EntryPoint::Patch, 1, flags) {
        Ok(_) => println!("a ring"),
        Err(e) => {
            println!("no ring: {}", std::io::Error::from_raw_os_error(e));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs a command under a policy; returns only on an error.
fn under(words: &[String], command: &[OsString]) -> Result<(), Fault> {
    let policy = Policy::parse(words)?;
    let variable = (REFUSED, policy.refused.join(","));
    let e = sys::become_command(command, &variable, || policy.install())?;
    Err(format!("cannot start {}: {e}", command[0].to_string_lossy()))
}

fn filter(words: &[String]) -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    for op in Policy::parse(words)?.filter() {
        let [low, high] = op.code.to_ne_bytes();
        let [a, b, c, d] = op.k.to_ne_bytes();
        let written = out.write_all(&[low, high, op.jt, op.jf, a, b, c, d]);
        written.map_err(|e| format!("cannot write the filter: {e}"))?;
    }
    Ok(())
}
