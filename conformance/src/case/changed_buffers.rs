//! Changes after Linux 6.18 to selected buffers, retry limits, threads that end, and times: cases
//! of other families whose answers are different since.

use super::prelude::*;
use super::{fuzz_found_net, fair, hostile, net_bundle, timestamp, waitid};

pub const CASES: &[Case] = &[
    newest!("changed_buffers", address_out_of_range, [
        Op(IORING_OP_READ), Op(IORING_OP_RECVMSG), Op(IORING_OP_READ_MULTISHOT),
    ], "a ring buffer outside of the program's memory counts as no buffer"),
    newest!("changed_buffers", bundles, [
        Op(IORING_OP_SEND), Op(IORING_OP_RECV),
    ], "bundles of buffers outside of the program's memory, or not mapped"),
    newest!("changed_buffers", bundle_middle_out_of_range, [Op(IORING_OP_SEND)], "one buffer of a bundle is outside of the program's memory"),
    newest!("changed_buffers", retry_limit_same_call, [Op(IORING_OP_RECV)], "a request that has used up its turn goes on in the same call"),
    newest!("changed_buffers", tx_timestamp_cq_full, [
        Op(IORING_OP_URING_CMD),
    ], "a TX_TIMESTAMP ends if its time does not fit in the CQ"),
    newest!("changed_buffers", waitid_thread_exit, [Op(IORING_OP_WAITID)], "a WAITID is cancelled when its thread ends"),
];

fn address_out_of_range(cx: &mut Cx) -> Outcome {
    hostile::zero_length_buffers(cx)?;
    hostile::reads_and_messages(cx)?;
    hostile::multishot(cx)
}

fn bundles(cx: &mut Cx) -> Outcome {
    hostile::bundles(cx)?;
    net_bundle::null_in_worker(cx)?;
    fuzz_found_net::bundle_socket_before_memory(cx)
}

fn bundle_middle_out_of_range(cx: &mut Cx) -> Outcome {
    for first in 0..3 {
        fuzz_found_net::bundle_with_one_outside(cx, first)?;
    }
    Ok(())
}

fn retry_limit_same_call(cx: &mut Cx) -> Outcome {
    fair::bundle_with_length(cx)?;
    fair::receive_retry_limit(cx)
}

fn tx_timestamp_cq_full(cx: &mut Cx) -> Outcome {
    timestamp::cq_full(cx)
}

fn waitid_thread_exit(cx: &mut Cx) -> Outcome {
    waitid::thread_ends(cx)
}
