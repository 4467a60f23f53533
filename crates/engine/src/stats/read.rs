//! A page, read: for whoever has its bytes.

use super::{Header, MAGIC, OPS, RingStats, VERSION};

/// One ring of a page, or the sums of those that have ended (`id` 0).
#[derive(Clone, Debug)]
pub struct Ring {
    words: Vec<u64>,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    pub pid: u32,
    /// In ns of CLOCK_BOOTTIME.
    pub made: u64,
    /// Rings that are counted nowhere.
    pub unseen: u64,
    /// Those that have ended, as one.
    pub ended: Ring,
    pub rings: Vec<Ring>,
}

/// Why a page cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is none, or not finished, or cut short.
    NoPage,
    /// It has another layout.
    Version(u64),
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Takes a page's bytes apart; rings that it has no bytes of are left out.
///
/// # Errors
/// [`Unreadable`].
pub fn page(bytes: &[u8]) -> Result<Page, Unreadable> {
    let at = |offset| word(bytes, offset).ok_or(Unreadable::NoPage);
    if at(core::mem::offset_of!(Header, magic))? != MAGIC {
        return Err(Unreadable::NoPage);
    }
    let version = at(core::mem::offset_of!(Header, version))?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let start = at(core::mem::offset_of!(Header, header_size))? as usize;
    let size = at(core::mem::offset_of!(Header, ring_size))? as usize;
    if size < 8 || start < 8 {
        return Err(Unreadable::NoPage);
    }
    let ring = |bytes: &[u8]| Ring { words: (0..).map_while(|i| word(bytes, 8 * i)).collect() };
    let mut places = bytes.get(start..).unwrap_or_default().chunks_exact(size).map(ring);
    let ended = places.next().ok_or(Unreadable::NoPage)?;
    Ok(Page {
        pid: at(core::mem::offset_of!(Header, pid))? as u32,
        made: at(core::mem::offset_of!(Header, made))?,
        unseen: at(core::mem::offset_of!(Header, unseen))?,
        ended,
        rings: places.filter(|ring| ring.id() != 0).collect(),
    })
}

/// Words of a ring, by name.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $($field:ident).+;)*) => {
        impl Ring {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> u64 {
                    self.at(core::mem::offset_of!(RingStats, $($field).+))
                }
            )*
        }
    };
}
words! {
    /// Which ring of its process; 0 for the sums.
    id: id;
    flags: flags;
    sq_entries: sq_entries;
    cq_entries: cq_entries;
    enters: enters;
    errors: errors;
    poll: routes.poll;
    aio: routes.aio;
    worker: routes.worker;
    model: routes.model;
    queued: routes.queued;
    at_once: reissue.at_once;
    armed: reissue.armed;
    ready_at_arm: reissue.ready_at_arm;
    reissued: reissue.reissued;
    aborted: reissue.aborted;
    capped: reissue.capped;
    naps: naps.naps;
    naps_under: naps.under;
    naps_over: naps.over;
    spared_ns: naps.spared_ns;
    spun_ns: naps.spun_ns;
}

impl Ring {
    fn at(&self, offset: usize) -> u64 {
        self.words.get(offset / 8).copied().unwrap_or(0)
    }

    /// SQEs taken of an opcode; the last stands for those that do not exist.
    pub fn ops(&self, opcode: usize) -> u64 {
        if opcode < OPS { self.at(core::mem::offset_of!(RingStats, ops) + 8 * opcode) } else { 0 }
    }

    /// SQEs taken.
    pub fn submitted(&self) -> u64 {
        (0..OPS).map(|opcode| self.ops(opcode)).sum()
    }

    /// Requests that ended when they were submitted.
    pub fn inline(&self) -> u64 {
        let elsewhere = self.poll() + self.aio() + self.worker() + self.model() + self.queued();
        self.submitted().saturating_sub(elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_is_one() {
        assert_eq!(page(b"").unwrap_err(), Unreadable::NoPage);
        assert_eq!(page(&[0; 4096]).unwrap_err(), Unreadable::NoPage);
        let mut words = [0u64; 512];
        (words[0], words[1]) = (MAGIC, VERSION + 1);
        let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
        assert_eq!(page(&bytes(&words)).unwrap_err(), Unreadable::Version(VERSION + 1));
        let size = size_of::<RingStats>();
        (words[1], words[2], words[3], words[4]) = (VERSION, 7, 64, size as u64);
        let ring = (64 + size) / 8;
        words[ring] = 5;
        words[ring + core::mem::offset_of!(RingStats, ops) / 8 + 22] = 9;
        words[ring + core::mem::offset_of!(RingStats, routes.poll) / 8] = 2;
        let p = page(&bytes(&words)).unwrap();
        assert_eq!((p.pid, p.rings.len()), (7, 1));
        let r = &p.rings[0];
        assert_eq!((r.id(), r.ops(22), r.submitted(), r.inline()), (5, 9, 9, 7));
    }
}
