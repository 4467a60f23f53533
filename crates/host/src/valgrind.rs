//! Client requests to valgrind. If it does not run the process, they have no effect: they are
//! instructions that change nothing (valgrind.h, "Client requests").
#![allow(unsafe_code)]

use core::arch::asm;

/// `VG_USERREQ__RUNNING_ON_VALGRIND`.
const RUNNING_ON_VALGRIND: usize = 0x1001;
/// `VG_USERREQ__CHANGE_ERR_DISABLEMENT`.
const CHANGE_ERR_DISABLEMENT: usize = 0x1801;

/// Returns whether valgrind runs the process.
pub(crate) fn runs() -> bool {
    request(RUNNING_ON_VALGRIND, 0) != 0
}

/// Runs `f`, of which memcheck reports nothing in this thread: its calls pass invalid addresses on
/// purpose.
pub(crate) fn unreported<T>(f: impl FnOnce() -> T) -> T {
    request(CHANGE_ERR_DISABLEMENT, 1);
    let done = f();
    request(CHANGE_ERR_DISABLEMENT, usize::MAX);
    done
}

/// Makes a request; returns valgrind's answer, or 0 without valgrind.
fn request(what: usize, by: usize) -> usize {
    let args = [what, by, 0, 0, 0, 0];
    let answer;
    // SAFETY: the rotations add up to two whole turns, and the exchange is of a register with
    // itself; valgrind, which knows the sequence, reads `args` and writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") args.as_ptr(),
            inout("rdx") 0usize => answer,
            options(nostack),
        );
    }
    answer
}

#[cfg(test)]
mod tests {
    #[test]
    fn unreported_calls_are_made() {
        assert_eq!(super::unreported(|| 7), 7);
        assert!(!super::runs());
    }
}
