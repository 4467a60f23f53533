//! Tracks for requests. Each ring has as many tracks as it has requests in flight at a time, so
//! that requests on one track do not overlap.

/// Number of the first track, above every thread's (`PID_MAX_LIMIT`).
const FIRST: u32 = 5_000_000;

/// A track: a thread that exists only for viewers.
#[derive(Clone, Copy, Debug)]
struct Track {
    tid: u32,
    taken: bool,
    /// End of its last request, in ticks.
    ended: u64,
}

/// The tracks of all rings.
#[derive(Debug, Default)]
pub struct Tracks {
    /// Tracks by source.
    rings: Vec<Vec<Track>>,
    used: u32,
}

/// Position of a request: its source, and the index of its track there.
pub type Position = (u32, usize);

impl Tracks {
    /// Takes a track for a request that began at `began`; returns true if the track is new.
    pub fn take(&mut self, source: u32, began: u64) -> (Position, bool) {
        let ring = source as usize;
        if self.rings.len() <= ring {
            self.rings.resize(ring + 1, Vec::new());
        }
        let tracks = &mut self.rings[ring];
        let free = tracks.iter().position(|track| !track.taken && track.ended <= began);
        let at = free.unwrap_or(tracks.len());
        if free.is_none() {
            tracks.push(Track { tid: FIRST + self.used, taken: true, ended: 0 });
            self.used += 1;
        }
        tracks[at].taken = true;
        ((source, at), free.is_none())
    }

    /// Frees the track of a request that has ended.
    pub fn give(&mut self, (source, at): Position, ended: u64) {
        let track = &mut self.rings[source as usize][at];
        (track.taken, track.ended) = (false, ended);
    }

    /// Returns the number of a track.
    pub fn tid(&self, (source, at): Position) -> u32 {
        self.rings[source as usize][at].tid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_track_do_not_overlap() {
        let mut l = Tracks::default();
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
