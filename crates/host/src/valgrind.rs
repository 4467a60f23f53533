//! Client requests to valgrind. If it does not run the process, they have no effect: they are
//! instructions that change nothing (valgrind.h, "Client requests").
#![allow(unsafe_code)]

use core::arch::asm;

/// `VG_USERREQ__CHANGE_ERR_DISABLEMENT`.
const CHANGE_ERR_DISABLEMENT: usize = 0x1801;

/// Runs `f`, of which memcheck reports nothing in this thread: its calls pass invalid addresses on
/// purpose.
pub(crate) fn unreported<T>(f: impl FnOnce() -> T) -> T {
    request(CHANGE_ERR_DISABLEMENT, 1);
    let done = f();
    request(CHANGE_ERR_DISABLEMENT, usize::MAX);
    done
}

fn request(what: usize, by: usize) {
    let args = [what, by, 0, 0, 0, 0];
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
            inout("rdx") 0usize => _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn unreported_calls_are_made() {
        assert_eq!(super::unreported(|| 7), 7);
    }
}
