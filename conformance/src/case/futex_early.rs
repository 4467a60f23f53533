//! Wakes of a futex while a request that waits for the futex is still being submitted.

use super::futex::Word;
use super::futexv::{any_of, entry};
use super::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub const CASES: &[Case] = &[case!(
    "futex_early",
    first_of_several,
    [Op(IORING_OP_FUTEX_WAITV)],
    "the first of several waiters is woken repeatedly"
)];

fn first_of_several(cx: &mut Cx) -> Outcome {
    const N: u64 = 200;
    let mut ring = cx.ring(8, 0)?;
    let words: Arc<[Word; 8]> = Arc::default();
    let (theirs, end) = (words.clone(), Arc::new(Word::new(0)));
    let stop = end.clone();
    let waker = std::thread::spawn(move || {
        let mut woken = 0;
        while stop.load(Ordering::SeqCst) == 0 {
            woken += os::futex_wake(&theirs[0], 1, u32::MAX);
        }
        woken
    });
    let entries: Vec<_> = words.iter().map(|w| entry(w, 0, 0)).collect();
    let mut ended = 0;
    for i in 0..N {
        ring.push(any_of(&entries).ud(i)).submit();
        let got = ring.take(1)?[0];
        ended += i64::from(got.res == 0 && got.user_data == i);
    }
    end.store(1, Ordering::SeqCst);
    cx.eq("ended", ended, N as i64);
    cx.eq("as often as the waker says", waker.join().unwrap_or(-1), ended);
    Ok(())
}
