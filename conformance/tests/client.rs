//! The raw client itself, on the kernel: every entry point and every layout of a ring completes a
//! NOP.

use softring_conformance::{EntryPoint, Ring, sqe};
use softring_testing::skipped;
use softring_uapi::*;
use sqe::SqeExt;

#[test]
fn every_layout_moves_a_nop_through_every_entry_point() {
    let layouts = [
        0,
        IORING_SETUP_SQE128,
        IORING_SETUP_CQE32,
        IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
        IORING_SETUP_CQE_MIXED,
        IORING_SETUP_NO_SQARRAY,
        IORING_SETUP_NO_MMAP,
        IORING_SETUP_NO_MMAP | IORING_SETUP_REGISTERED_FD_ONLY,
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    ];
    for entry in EntryPoint::ALL {
        for flags in layouts {
            let mut ring = match Ring::new(entry, 4, flags) {
                Ok(ring) => ring,
                Err(libc::EPERM | libc::ENOSYS) => return skipped!("no io_uring here"),
                Err(e) => panic!("setup {flags:#x} by {entry}: errno {e}"),
            };
            for i in 0..20 {
                ring.push(sqe::nop().ud(i)).push(sqe::nop().ud(i + 100));
                assert_eq!(ring.submit_wait(2), 2, "{flags:#x} by {entry}");
                let got: Vec<_> = ring.pop_all().iter().map(|c| (c.user_data, c.res)).collect();
                assert_eq!(got, [(i, 0), (i + 100, 0)], "{flags:#x} by {entry}");
            }
        }
    }
}
