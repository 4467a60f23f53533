//! Uses of ring descriptors: the same on the kernel's rings and on ours.

mod common;

use common::{count, example, succeed, under};

fn on_both(case: &str) {
    for engine in ["kernel", "user"] {
        succeed(under(example("fds"), engine, "auto").arg(case));
    }
}

macro_rules! cases {
    ($($case:ident),*) => {
        $(#[test]
        fn $case() {
            on_both(stringify!($case));
        })*
    };
}
cases!(
    poll,
    ppoll,
    select,
    epoll,
    dup,
    close_range,
    fork,
    inline_close,
    inline_mmap,
    select_fault,
    one_number,
    unopened
);

#[test]
fn inline_calls_on_ring_descriptors_are_patched() {
    for case in ["inline_close", "inline_mmap"] {
        for (engine, patched) in [("kernel", 0), ("user", 1)] {
            let out = succeed(under(example("fds"), engine, "patch").arg(case));
            assert_eq!(count(&out, "patched"), patched, "{case} {engine}");
            assert_eq!(count(&out, "gaps"), 0);
        }
    }
}

#[test]
fn programs_started_after_the_notice_are_silent() {
    for (mark, lines) in [(Some("1"), 1), (Some("0"), 0), (None, 3)] {
        let mut c = under(example("fds"), "user", "auto");
        c.arg("family").env_remove("SOFTRING_QUIET").env_remove("SOFTRING_NOTICE");
        let out = succeed(c.envs(mark.map(|m| ("SOFTRING_NOTICE", m))));
        let said = String::from_utf8_lossy(&out.stderr).matches("runs in user space").count();
        assert_eq!(said, lines, "{mark:?}");
    }
}

#[test]
fn a_ring_closed_past_every_entry_point_is_noticed() {
    let out = succeed(under(example("fds"), "user", "none").arg("inline_close"));
    assert_eq!(count(&out, "patched"), 0);
}
