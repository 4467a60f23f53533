//! Loops of a ring: one function, `drive::turn`, runs a ring's turn, and one, `drive::sleep`, makes
//! a thread sleep for a ring. Their parts are called elsewhere only if a list says why.

use super::sources::{Source, is_word, sources};
use super::{check_list, lines};
use std::collections::BTreeSet;

/// File of a turn, and the steps of a turn.
const TURN: &str = "drive/turn.rs";
const STEPS: &[&str] = &[
    ".aio_reap(",
    "ctx.commit()",
    ".model_reap(",
    ".poll_events(&",
    ".run_iowq(",
    ".take_stash(",
    ".timeouts_expire(",
    ".transports_submit(",
    "other.commit()",
    "self.commit()",
];
/// Lines of `FILE  why it takes a step by itself`. Can only become shorter.
const TURNS: &str = include_str!("turns.txt");

/// File in which a thread sleeps, and the calls by which it can sleep.
const SLEEP: &str = "drive/sleep.rs";
const CALLS: &[&str] = &[
    "asleep(",
    "epoll_pwait(",
    "epoll_pwait2(",
    "epoll_wait(",
    "futex::wait(",
    "futex_wait(",
    "futex_wait_sig(",
    "get_events(",
    "io_getevents(",
    "poll::wait(",
    "poll_entries(",
    "poll_in(",
    "poll_or_stop(",
    "poll_under(",
    "poll_wait(",
    "reap.wait(",
    "sleep_under(",
    "sys::pause(",
    "sys::sleep(",
    "sys::sleep_until(",
    "thread::sleep(",
    "wait_any(",
    "waitid(",
];
/// Lines of `FILE  for what it sleeps by itself`. Can only become shorter.
const SLEEPS: &str = include_str!("sleeps.txt");

fn calls(source: &Source, word: &str) -> bool {
    let code = source.code.as_bytes();
    let whole = |at: usize| at == 0 || word.starts_with('.') || !is_word(code[at - 1]);
    let defines = |at: usize| source.code[..at].ends_with("fn ");
    source.code.match_indices(word).any(|(at, _)| whole(at) && !defines(at))
}

/// Returns the files of the engine that call one of `words`, except `own`, tests, and the layer
/// below a ring's state, whose queues have steps of their own.
fn callers(words: &[&str], own: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = source.name.strip_prefix("crates/engine/src/") else { continue };
        let other = ["memory/", "tests/", "verify/"].iter().any(|dir| file.starts_with(dir));
        if file == own || other || file.ends_with("tests.rs") {
            continue;
        }
        if words.iter().any(|word| calls(&source, word)) {
            found.insert(file.to_owned());
        }
    }
    found
}

#[test]
fn one_function_drives_a_ring() {
    check_list("turns.txt", TURNS, &callers(STEPS, TURN), "call `Ctx::turn`, or say why not in");
}

#[test]
fn one_function_sleeps_for_a_ring() {
    let what = "call `drive::sleep::sleep`, or say why not in";
    check_list("sleeps.txt", SLEEPS, &callers(CALLS, SLEEP), what);
}

/// Tests that [`CALLS`] has each public function of the host crate that makes a system call by
/// `sleeps!`.
#[test]
fn sleeping_functions_are_listed() {
    let mut unknown = BTreeSet::new();
    for source in sources(&[".rs"]).iter().filter(|s| s.name.starts_with("crates/host/src/")) {
        let sleeps = source.code.match_indices("sleeps!(").map(|(at, _)| &source.code[..at]);
        for before in sleeps {
            let Some((head, name)) = before.rsplit_once("fn ") else { continue };
            let name = name.split(|c: char| !is_word(c as u8)).next().unwrap_or_default();
            let listed = CALLS.iter().any(|call| call.trim_end_matches('(').ends_with(name));
            if head.trim_end().ends_with("pub") && !listed {
                unknown.insert(format!("{}: {name}", source.name));
            }
        }
    }
    assert!(unknown.is_empty(), "these sleep; name them in CALLS:\n{}", lines(&unknown));
}
