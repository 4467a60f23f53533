//! What programs do to ring descriptors: the same on the kernel's rings and on ours.

mod common;

use common::{example, succeed, under};

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
cases!(poll, ppoll, select, epoll, dup, close_range, fork);
