//! FUTEX_WAITs of a process that is stopped and goes on, again and again.

use super::futex::{wait_on, wake_of};
use super::prelude::*;
use super::sqpoll::until;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const CASES: &[Case] = &[
    legal!("futex_stops", rounds, [Op(IORING_OP_FUTEX_WAIT), Op(IORING_OP_FUTEX_WAKE)], "wakes that change no value end the waits"),
];

fn rounds(cx: &mut Cx) -> Outcome {
    const ROUNDS: u32 = 300;
    let memory = crate::ring::Map::anonymous(4096).map_err(Stop::from)?;
    let (word, done) = (memory.word(8), memory.word(12));
    let entry = cx.entry;
    let child = os::spawn_child(|| {
        let Ok(mut ring) = Ring::new(entry, 4, 0) else { return 1 };
        for _ in 0..ROUNDS {
            ring.push(wait_on(word, 0).ud(1)).submit();
            ring.push(wake_of(word, 1).ud(2)).submit();
            let mut results = Vec::new();
            while results.len() < 2 {
                // SIGSTOP and SIGCONT may end a wait.
                results.extend(ring.take(1).into_iter().flatten().map(|c| (c.user_data, c.res)));
            }
            results.sort_unstable();
            if results != [(1, 0), (2, 1)] {
                return 2;
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
        0
    });
    let ended = until(|| {
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            os::signal(child, signal);
            std::thread::sleep(Duration::from_micros(200));
        }
        done.load(Ordering::SeqCst) == ROUNDS
    });
    if !ended {
        os::signal(child, libc::SIGKILL);
    }
    cx.is("every wait has ended", os::wait_for(child), 0);
    Ok(())
}
