//! Tracks for requests: each ring has as many as it has requests in flight at a time, so that
//! those on one track lie beside each other.

/// The number of the first track, above every thread's (`PID_MAX_LIMIT`).
const FIRST: u32 = 5_000_000;

/// A track: a thread that there is not, for viewers.
#[derive(Clone, Copy, Debug)]
struct Lane {
    tid: u32,
    taken: bool,
    /// When its last request ended, in ticks.
    ended: u64,
}

/// The tracks of all rings.
#[derive(Debug, Default)]
pub struct Lanes {
    /// By source.
    rings: Vec<Vec<Lane>>,
    used: u32,
}

/// Where a request lies: its source and the index there.
pub type Place = (u32, usize);

impl Lanes {
    /// A track for a request that began then; true if it is a new one.
    pub fn take(&mut self, source: u32, began: u64) -> (Place, bool) {
        let ring = source as usize;
        if self.rings.len() <= ring {
            self.rings.resize(ring + 1, Vec::new());
        }
        let lanes = &mut self.rings[ring];
        let free = lanes.iter().position(|lane| !lane.taken && lane.ended <= began);
        let at = free.unwrap_or(lanes.len());
        if free.is_none() {
            lanes.push(Lane { tid: FIRST + self.used, taken: true, ended: 0 });
            self.used += 1;
        }
        lanes[at].taken = true;
        ((source, at), free.is_none())
    }

    /// The request there has ended.
    pub fn give(&mut self, (source, at): Place, ended: u64) {
        let lane = &mut self.rings[source as usize][at];
        (lane.taken, lane.ended) = (false, ended);
    }

    /// The number of a track.
    pub fn tid(&self, (source, at): Place) -> u32 {
        self.rings[source as usize][at].tid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_track_do_not_overlap() {
        let mut l = Lanes::default();
        let (a, new) = l.take(0, 10);
        assert!(new);
        let (b, new) = l.take(0, 11);
        assert!(new && l.tid(b) == FIRST + 1);
        l.give(a, 20);
        assert_eq!(l.take(0, 15).0, (0, 2), "the first was taken until 20");
        assert_eq!(l.take(0, 20), (a, false));
        assert_eq!(l.tid(a), FIRST);
        let (other, _) = l.take(3, 0);
        assert_eq!((other, l.tid(other)), ((3, 0), FIRST + 3));
    }
}
