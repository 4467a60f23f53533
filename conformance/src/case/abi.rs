//! What a ring tells of the ABI that it has, beyond Linux 6.18.

use super::prelude::*;

pub const CASES: &[Case] = &[
    newest!("abi", queries, [Reg(IORING_REGISTER_QUERY)], "the queries after the first"),
    newest!("abi", query_room, [Reg(IORING_REGISTER_QUERY)], "a query's room is a page at most"),
];

/// Asks one query with that much room; the words of its answer.
fn ask(cx: &mut Cx, ring: &Ring, query_op: u32, size: u32) -> [u64; 8] {
    let mut words = [u64::MAX; 8];
    let mut hdr = io_uring_query_hdr {
        query_data: addr_mut(&mut words) as u64,
        query_op,
        size,
        ..Default::default()
    };
    let got = ring.register_struct(IORING_REGISTER_QUERY, &mut hdr, 0);
    let hdr = *std::hint::black_box(&hdr);
    cx.is(&format!("query {query_op} into {size}"), got, 0);
    cx.note_answer("result", hdr.result);
    cx.note("size", hdr.size);
    *std::hint::black_box(&words)
}

fn queries(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    for (op, len) in [(1, 40), (2, 16), (3, 48), (4, 0)] {
        for size in [64, 40, 16, 4] {
            let words = ask(cx, &ring, op, size);
            cx.note("words", format_args!("{words:x?}"));
            let behind = words.iter().take(size as usize / 8).skip(len / 8);
            cx.holds("zeroes behind it", behind.copied().all(|word| word == 0));
        }
    }
    Ok(())
}

fn query_room(cx: &mut Cx) -> Outcome {
    let ring = cx.ring(4, 0)?;
    let mut memory = vec![u64::MAX; 1024];
    for (size, want) in [(4096, 0), (4097, -E2BIG), (u32::MAX, -E2BIG)] {
        for op in [IO_URING_QUERY_SCQ, 1000] {
            let mut hdr = io_uring_query_hdr {
                query_data: addr_mut(&mut memory[..]) as u64,
                query_op: op,
                size,
                ..Default::default()
            };
            let got = ring.register_struct(IORING_REGISTER_QUERY, &mut hdr, 0);
            cx.is(&format!("query {op} into {size}"), got, want);
            let hdr = *std::hint::black_box(&hdr);
            cx.note_answer("result", hdr.result);
            cx.note("size", hdr.size);
        }
    }
    Ok(())
}
