//! Size of a trace. The test is alone in its program: its loads would make other tests late.

mod common;

use common::traced::{Dir, check, events, wait};
use common::{ME, library};
use std::fs;

/// Every operation takes at most 300 bytes: a request, or a CQE of a multishot request.
#[test]
fn requests_of_each_kind_take_few_bytes() {
    if !library() {
        return;
    }
    let dir = Dir::new();
    let loads: [&[&str]; 5] = [
        &["--op=nop"],
        &["--op=poll"],
        &["--op=msg-ring"],
        &["--op=echo", "--connections=8"],
        &["--op=echo", "--connections=8", "--multishot"],
    ];
    for load in loads {
        let how = ["--engines=softring", "--pairs=1", "--seconds=0.2", "--warmup=0"];
        let bench = [&["--", ME, "bench"][..], &how].concat();
        let (code, told) = wait(dir.start(None, &[&bench[..], load].concat()));
        assert_eq!(code, Some(0), "{told}");
        let size = fs::metadata(dir.at("out.json")).expect("a trace").len();
        let trace = dir.trace();
        let requests: u64 = check(&trace).values().sum();
        let more = events(&trace).iter().filter(|e| e["ph"] == "i").count() as u64;
        let told = requests + more;
        assert!(told > 200 && size / told <= 300, "{load:?}: {size} bytes for {told}");
    }
}
