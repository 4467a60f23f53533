//! Changes after Linux 6.18 to selected buffers, retry limits, threads that end, and times: cases
//! of other families whose answers are different since.

use super::prelude::*;
use super::{fuzz_found_net, fair, hostile, net_bundle, timestamp, waitid};

pub const CASES: &[Case] = &[
    newest!("changed_buffers", outside, [
        Op(IORING_OP_READ), Op(IORING_OP_RECVMSG), Op(IORING_OP_READ_MULTISHOT),
    ], "a ring buffer outside of the program's memory counts as no buffer"),
    newest!("changed_buffers", bundles, [
        Op(IORING_OP_SEND), Op(IORING_OP_RECV),
    ], "bundles of buffers outside of the program's memory, or not mapped"),
    newest!("changed_buffers", in_the_middle, [Op(IORING_OP_SEND)], "one buffer of a bundle is outside of the program's memory"),
    newest!("changed_buffers", turns, [Op(IORING_OP_RECV)], "a request that has used up its turn goes on in the same call"),
    newest!("changed_buffers", times_without_room, [
        Op(IORING_OP_URING_CMD),
    ], "a TX_TIMESTAMP ends if its time does not fit in the CQ"),
    newest!("changed_buffers", thread_ends, [Op(IORING_OP_WAITID)], "a WAITID is cancelled when its thread ends"),
];

fn outside(cx: &mut Cx) -> Outcome {
    hostile::nothing_to_read(cx)?;
    hostile::readers(cx)?;
    hostile::shots(cx)
}

fn bundles(cx: &mut Cx) -> Outcome {
    hostile::bundles(cx)?;
    net_bundle::null_in_worker(cx)?;
    fuzz_found_net::bundle_nowhere(cx)
}

fn in_the_middle(cx: &mut Cx) -> Outcome {
    for first in 0..3 {
        fuzz_found_net::bundle_with_one_outside(cx, first)?;
    }
    Ok(())
}

fn turns(cx: &mut Cx) -> Outcome {
    fair::bundles_capped(cx)?;
    fair::one_by_one(cx)
}

fn times_without_room(cx: &mut Cx) -> Outcome {
    timestamp::full(cx)
}

fn thread_ends(cx: &mut Cx) -> Outcome {
    waitid::thread_ends(cx)
}
