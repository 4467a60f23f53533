//! Number of requests that a context takes before io_submit answers EAGAIN: ioctx_alloc,
//! aio_setup_ring and get_reqs_available in `fs/aio.c`.

use crate::io::of_process::PROCESS;

/// Returns how many requests there can be if a ring has room for so many events. Each processor
/// takes room in batches (`__get_reqs_available`), and no processor gets what is left behind the
/// last whole batch. A program that submits on one processor finds just this number.
pub(super) fn room(events: u32, processors: u32) -> u32 {
    let batch = (events / (4 * processors)).max(1);
    events - events % batch
}

/// Returns the number of processors that the machine can have, whatever this process may use
/// (`num_possible_cpus`).
pub(super) fn processors() -> u32 {
    let possible = || softring_host::files::proc_text("/sys/devices/system/cpu/possible");
    *PROCESS.kernel.possible_cpus.get_or_init(|| {
        possible()
            .and_then(|list| count(&list))
            .unwrap_or_else(softring_host::substitute::processors)
    })
}

/// Counts the numbers in a list like `0-3,8-11`.
fn count(list: &str) -> Option<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.trim().split(',').map(range).sum::<Option<u32>>().filter(|&n| (1..1 << 20).contains(&n))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that rings of one, two, three and 16 pages have room for, and what the kernel's
    /// io_submit takes before EAGAIN on a machine of two processors.
    #[test]
    fn a_context_has_room_for_whole_batches() {
        for (events, taken) in [(126, 120), (254, 248), (382, 376), (2046, 2040)] {
            assert_eq!(room(events, 2), taken);
        }
        assert_eq!((room(126, 64), room(126, 1)), (126, 124));
    }

    #[test]
    fn processors_are_counted_in_ranges() {
        assert_eq!(
            (count("0-1\n"), count("0"), count("0-3,8-11,16\n")),
            (Some(2), Some(1), Some(9))
        );
        assert_eq!([count(""), count("x-1"), count("3-1"), count("0-4294967295")], [None; 4]);
    }
}
