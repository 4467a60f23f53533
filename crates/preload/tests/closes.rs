//! Descriptors that are closed in every possible way, and whose numbers are used again: the same on
//! the kernel's rings and on ours.

mod common;

use common::{count, example, succeed, under};
use std::process::Command;

const WAYS: [&str; 11] = [
    "close",
    "close_range",
    "syscall_close",
    "syscall_close_range",
    "syscall_dup2",
    "syscall_dup3",
    "inline_close",
    "inline_close_range",
    "inline_dup2",
    "inline_dup3",
    "hoisted_close",
];

fn on_both(case: &str, ways: &[&str]) {
    for engine in ["kernel", "user"] {
        for way in ways {
            succeed(under(example("closes"), engine, "auto").args([case, way]));
        }
    }
}

#[test]
fn a_receive_on_a_number_that_was_reused() {
    on_both("recv_reused", &WAYS);
}

#[test]
fn a_receive_goes_on_when_its_number_is_closed() {
    on_both("recv_goes_on", &WAYS);
}

/// The number is also patched in a program whose ring calls are libc's.
#[test]
fn a_close_whose_number_is_kept_over_a_call_is_patched() {
    for way in ["inline_close", "hoisted_close"] {
        let out = succeed(under(example("closes"), "user", "patch").args(["recv_goes_on", way]));
        assert_eq!(count(&out, "patched"), 1, "{way}");
    }
}

#[test]
fn a_fifo_under_the_number_of_a_file() {
    on_both("fifo_reused", &WAYS);
}

#[test]
fn a_file_under_the_number_of_a_ring() {
    on_both("ring_reused", &WAYS);
    for way in ["inline_close", "inline_dup2", "unreported"] {
        for intercept in ["none", "sigsys"] {
            succeed(under(example("closes"), "user", intercept).args(["ring_reused", way]));
        }
    }
}

/// Code that no loader knows of closes descriptors.
#[test]
fn an_unseen_close_costs_a_check() {
    on_both("recv_reused", &["unreported"]);
    on_both("fifo_reused", &["unreported"]);
}

/// Only calls of libc's functions are reported if no call site is patched.
#[test]
fn an_unseen_close_without_patches_costs_a_check() {
    for case in ["recv_reused", "fifo_reused"] {
        for way in ["syscall_close", "inline_close", "inline_dup2", "unreported"] {
            succeed(under(example("closes"), "user", "none").args([case, way]));
        }
    }
}

/// Nobody writes to, closes or reads the program's descriptors after that.
#[test]
fn all_numbers_are_closed_and_reused() {
    on_both("close_all", &["close_range", "closefrom", "syscall", "inline", "unreported"]);
}

#[test]
fn dup2_works_on_any_number() {
    for case in ["onto_any", "onto_all_high"] {
        on_both(case, &["dup2", "dup3", "syscall", "inline"]);
    }
}

/// glibc closes descriptors by internal calls.
#[test]
fn the_c_library_closes() {
    for case in ["daemon", "login_tty", "closedir", "freopen", "popen"] {
        for engine in ["kernel", "user"] {
            succeed(under(example("libc_closes"), engine, "auto").args([case]));
        }
    }
}

#[test]
fn a_dup2_that_fails_closes_nothing() {
    for engine in ["kernel", "user"] {
        succeed(under(example("libc_closes"), engine, "auto").args(["failed_dup"]));
    }
}

#[test]
fn handlers_close_duplicate_and_poll_at_any_moment() {
    for engine in ["kernel", "user"] {
        succeed(under(example("handlers"), engine, "auto").args(["storm", "4000"]));
    }
}

/// Handlers do the same on top of the program's own malloc(3), and all else that can be done with a
/// ring.
#[test]
fn handlers_on_top_of_malloc_ask_for_no_memory() {
    for case in ["waited", "last", "used"] {
        succeed(Command::new(example("asks")).arg(case));
        for intercept in ["auto", "none"] {
            succeed(under(example("asks"), "user", intercept).arg(case));
        }
    }
}

/// Policies of systemd and QEMU may kill for process_vm_readv(2).
#[test]
fn poll_and_select_need_nothing_that_policies_forbid() {
    for engine in ["kernel", "user"] {
        succeed(under(example("handlers"), engine, "auto").args(["denied", "0"]));
    }
}
