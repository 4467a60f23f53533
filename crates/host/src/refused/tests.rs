//! Tests of the calls that may be refused.

use super::*;

#[test]
fn probes_give_no_false_refusal() {
    for (i, (nr, _)) in OPTIONAL.iter().enumerate() {
        assert_eq!(index(*nr), Some(i), "{nr} stands there twice");
        let known = answer(i);
        // A call that the running kernel lacks (CONFIG_KCMP) is no fault of the table's.
        assert!([WORKS, Errno::ENOSYS.0 as u8].contains(&known), "call {nr}: {known}");
    }
}

#[test]
fn a_child_tries_deadly_calls() {
    let ends = || {
        // SAFETY: in a child, which is meant to end.
        unsafe { syscall6(nr::__NR_kill, bad(syscall6(nr::__NR_getpid, [0; 6]) as usize, 9)) };
    };
    // SAFETY: only makes system calls.
    unsafe { crate::fork::in_child(ends) }.expect("a child").reap();
    assert_eq!(ask_in_children(), Some(N));
    assert!(barred().is_none());
    assert!(!is_filtered() || crate::files::proc_text("/proc/self/status").is_some());
}

#[test]
fn a_missing_filter_is_not_read() {
    assert!(read_filter(0).is_none());
    let program = [0u64, 0];
    assert!(read_filter((&raw const program).expose_provenance() as u64).is_none());
}
