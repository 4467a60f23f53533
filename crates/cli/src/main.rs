//! `softring`: run io_uring programs where io_uring is denied, find out what denies it, measure.
//!
//! Exit codes: 0 done, 1 the work failed, 2 usage or our own error. `run` becomes the program it
//! starts, so that its exit code or signal is the program's own. A reader that closes our standard
//! output early is no error.
#![cfg_attr(not(test), no_main)]

mod bench;
mod child;
mod cli;
mod container;
mod copy;
mod crash;
mod demo;
mod deny;
mod doctor;
mod explore;
mod fail;
mod family;
mod files;
mod gen_docs;
mod inline;
mod listener;
mod man;
mod memfd;
mod out;
mod run;
mod shell;
mod signals;
mod start;
#[cfg(not(test))]
mod startup;
mod stat;
mod stats;
mod strace;
mod sys;
mod top;
mod trace;
mod xml;

use cli::{Cli, Command, CrashOf};
use std::ffi::OsString;

/// Runs the whole program with its arguments; returns the exit code.
#[cfg_attr(test, allow(dead_code, reason = "tests have a main of their own"))]
fn softring(args: Vec<OsString>) -> u8 {
    // Nothing may be changed that the program would inherit.
    if args.get(1).is_some_and(|word| run::launch::is_word(word)) {
        return run::launch::command(&args[2..]);
    }
    // Rust's start-up does this, too.
    sys::fill_standard_streams();
    // A command that becomes a program ignores SIGPIPE when it has something to say, if at all.
    if !args.get(1).is_some_and(|word| word == "run" || word == "deny") {
        signals::ignore_sigpipe();
    }
    if args.get(1).is_some_and(|word| word == "run") {
        run::rehearse(&args);
    }
    let cli = Cli::read(args);
    let done = match cli.command {
        Command::Run(a) => run::command(&a),
        Command::Env(a) => shell::command(&a),
        Command::Doctor(a) => doctor::command(&a),
        Command::Metrics(a) => stats::command(&a),
        Command::Trace(a) => trace::command(&a),
        Command::Strace(a) => strace::command(&a),
        Command::Stat(a) => stat::command(&a),
        Command::Top(a) => top::command(&a),
        Command::Explore(a) => explore::command(&a),
        Command::Crash(a) => match a.of {
            CrashOf::Explore(a) => explore::crash_command(&a),
        },
        Command::Demo(a) => demo::command(&a),
        Command::Bench(a) => bench::command(&a),
        Command::Copy(a) => copy::command(&a),
        Command::Deny(a) => deny::command(&a),
        Command::Trial => doctor::trial(),
        Command::Worker => bench::worker::command(),
        Command::Gen(a) => gen_docs::command(&a),
    };
    match done {
        Ok(()) => 0,
        Err(e) => fail::report(&e),
    }
}
