//! A page, read: for whoever has its bytes.

use super::{Header, MAGIC, METER_NAME, MeterStats, OPS, RingStats, VERSION};

/// One ring of a page, or the sums of those that have ended (`id` 0).
#[derive(Clone, Debug)]
pub struct Ring {
    words: Vec<u64>,
}

/// One thread that polls.
#[derive(Clone, Debug)]
pub struct Meter {
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
    pub meters: Vec<Meter>,
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
    let words = |bytes: &[u8]| (0..).map_while(|i| word(bytes, 8 * i)).collect();
    let rings = at(core::mem::offset_of!(Header, rings))? as usize;
    let places = bytes.get(start..).unwrap_or_default().chunks_exact(size).take(rings);
    let mut places = places.map(|bytes| Ring { words: words(bytes) });
    let ended = places.next().ok_or(Unreadable::NoPage)?;
    let start = at(core::mem::offset_of!(Header, meters_at))? as usize;
    let size = (at(core::mem::offset_of!(Header, meter_size))? as usize).max(8);
    let count = at(core::mem::offset_of!(Header, meters))? as usize;
    let meters = bytes.get(start..).unwrap_or_default().chunks_exact(size).take(count);
    let meters = meters.map(|bytes| Meter { words: words(bytes) });
    Ok(Page {
        pid: at(core::mem::offset_of!(Header, pid))? as u32,
        made: at(core::mem::offset_of!(Header, made))?,
        unseen: at(core::mem::offset_of!(Header, unseen))?,
        ended,
        rings: places.filter(|ring| ring.id() != 0).collect(),
        meters: meters.filter(|meter| meter.id() != 0).collect(),
    })
}

/// Words of a ring or a meter, by name.
macro_rules! words {
    ($what:ident of $layout:ident; $($(#[$doc:meta])* $name:ident: $($field:ident).+;)*) => {
        impl $what {
            fn at(&self, offset: usize) -> u64 {
                self.words.get(offset / 8).copied().unwrap_or(0)
            }
            $(
                $(#[$doc])*
                pub fn $name(&self) -> u64 {
                    self.at(core::mem::offset_of!($layout, $($field).+))
                }
            )*
        }
    };
}
words! {
    Ring of RingStats;
    /// Which ring of its process; 0 for the sums.
    id: id;
    flags: flags;
    sq_entries: sq_entries;
    cq_entries: cq_entries;
    enters: enters;
    errors: errors;
    /// The thread that submits for it; 0: none.
    sq_thread: sq_thread;
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

words! {
    Meter of MeterStats;
    /// Which meter of its process.
    id: id;
    /// [`super::meter::Kind`]
    kind: kind;
    tid: tid;
    /// The processor that it last worked on.
    cpu: cpu;
    base_ns: base_ns;
    /// As of the thread's last look at its clock; see [`Self::total_us_at`].
    total_us: total_us;
    work_us: work_us;
    stretches: stretches;
    naps: naps;
    naps_over: naps_over;
    napped_us: napped_us;
}

impl Meter {
    pub fn name(&self) -> String {
        let at = core::mem::offset_of!(MeterStats, name);
        let words = (0..METER_NAME / 8).map(|i| self.at(at + 8 * i));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).take_while(|b| *b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The thread's total when its clock, the first number of its schedstat(5), is at `ns`.
    pub fn total_us_at(&self, ns: u64) -> u64 {
        self.total_us().max(ns.saturating_sub(self.base_ns()) / 1000)
    }
}

impl Ring {
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
        (words[1], words[2], words[3], words[4], words[5]) = (VERSION, 7, 128, size as u64, 2);
        let (meter, meter_size) = (128 + 2 * size, size_of::<MeterStats>());
        (words[8], words[9], words[10]) = (meter as u64, meter_size as u64, 2);
        let ring = (128 + size) / 8;
        words[ring] = 5;
        words[ring + core::mem::offset_of!(RingStats, ops) / 8 + 22] = 9;
        words[ring + core::mem::offset_of!(RingStats, routes.poll) / 8] = 2;
        let meter = meter / 8 + meter_size / 8;
        (words[meter], words[meter + 4], words[meter + 5]) = (2, 5_000, 7);
        words[meter + core::mem::offset_of!(MeterStats, name) / 8] =
            u64::from_ne_bytes(*b"polls\0\0\0");
        let p = page(&bytes(&words)).unwrap();
        assert_eq!((p.pid, p.rings.len()), (7, 1));
        let r = &p.rings[0];
        assert_eq!((r.id(), r.ops(22), r.submitted(), r.inline()), (5, 9, 9, 7));
        let m = &p.meters[0];
        assert_eq!((p.meters.len(), m.id(), m.name()), (1, 2, "polls".into()));
        assert_eq!((m.total_us_at(4_000), m.total_us_at(25_000)), (7, 20));
    }
}
