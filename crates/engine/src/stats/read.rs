//! Reading of a page by anybody who can read its bytes. Any process may have made them, also one
//! that wants its reader to read for ever. So only what our own writer can make is read: no slot is
//! smaller than the writer's, and no section has more slots than the writer's limits. Of a larger
//! slot only the words known here are read, and each histogram is read once.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::mem::{offset_of, size_of};

use softring_host::files::read_exact_at;
use softring_host::os::fd::{AsFd, BorrowedFd};
use softring_host::os::fs::{SealFlags, fcntl_get_seals, fstat};

use super::clean::printable;
use super::hist::{self, BUCKETS};
use super::{Header, Hist, MAGIC, METER_NAME, MeterStats, OPS, PoolStats, RingStats, VERSION};

mod section;

use section::{Kind, SIZE_MAX, Slots};

/// One ring of a page, or the sums of the rings that have ended (`id` 0).
#[derive(Clone, Debug, Default)]
pub struct Ring {
    words: Vec<u64>,
    /// Latencies by opcode.
    pub latencies: BTreeMap<usize, Latencies>,
    /// Workers of the ring, if it has needed any; several rings may share them.
    pub pool: Option<Pool>,
}

/// Workers of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Slot, which names the pool within its process.
    pub slot: u64,
    pub bound: Account,
    pub unbound: Account,
}

/// Workers of one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub workers: u64,
    pub idle: u64,
    pub queued: u64,
    pub max: u64,
}

impl Account {
    /// Returns the number of workers that run something.
    pub fn running(&self) -> u64 {
        self.workers.saturating_sub(self.idle)
    }
}

/// One thread that polls.
#[derive(Clone, Debug)]
pub struct Meter {
    words: Vec<u64>,
}

/// Latencies of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    pub sum_ns: u64,
    /// Counts by bucket; [`bounds`](super::bounds) returns a bucket's limits.
    pub buckets: Vec<u64>,
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub pid: u32,
    /// Rings that are counted nowhere.
    pub unseen_rings: u64,
    /// Operations whose latencies are counted nowhere.
    pub unseen_hists: u64,
    /// Rings that have ended, as one.
    pub ended: Ring,
    pub rings: Vec<Ring>,
    pub meters: Vec<Meter>,
}

/// Reason why a page cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// No page, or not finished, or cut short.
    NoPage,
    /// A page of another layout.
    Version(u64),
    /// A page that is larger than any of softring's, or divided in another way.
    Foreign,
}

/// Contents of the header.
struct Head {
    words: Vec<u64>,
    rings: Slots,
    pools: Slots,
    hists: Slots,
    meters: Slots,
}

/// Source of a page's words: `None` beyond its end.
struct Source<R> {
    read: R,
    /// Histograms that were read: each belongs to one ring.
    hists: RefCell<BTreeSet<u64>>,
}

impl<R: Fn(u64, usize) -> Option<Vec<u8>>> Source<R> {
    fn new(read: R) -> Source<R> {
        Source { read, hists: RefCell::default() }
    }

    fn head(&self) -> Result<Head, Unreadable> {
        let start = self.words(0, 4).ok_or(Unreadable::NoPage)?;
        if start[offset_of!(Header, magic) / 8] != MAGIC {
            return Err(Unreadable::NoPage);
        }
        let version = start[offset_of!(Header, version) / 8];
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        // The words behind the header are not part of it.
        let header_size =
            start[offset_of!(Header, header_size) / 8].min(size_of::<Header>() as u64);
        let mut words = self.words(0, header_size as usize / 8).ok_or(Unreadable::NoPage)?;
        words.resize(size_of::<Header>() / 8, 0);
        let [rings, pools, hists, meters] =
            [Kind::RINGS, Kind::POOLS, Kind::HISTS, Kind::METERS].map(|kind| kind.slots(&words));
        Ok(Head { rings: rings?, pools: pools?, hists: hists?, meters: meters?, words })
    }

    fn words(&self, at: u64, n: usize) -> Option<Vec<u64>> {
        let bytes = (self.read)(at, n * 8).filter(|bytes| bytes.len() == n * 8)?;
        let word = |w: &[u8]| w.try_into().ok().map(u64::from_ne_bytes);
        bytes.chunks_exact(8).map(word).collect()
    }

    /// Returns the words of one slot; `None` if there is no such slot.
    fn slot(&self, slots: Slots, slot: u64) -> Option<Vec<u64>> {
        if slot >= slots.used {
            return None;
        }
        self.words(slots.at + slot * slots.size, slots.words)
    }

    fn latencies(&self, hists: Slots, named: u64) -> Option<Latencies> {
        let slot = named.checked_sub(1)?;
        if slot >= hists.used || !self.hists.borrow_mut().insert(slot) {
            return None;
        }
        let words = self.slot(hists, slot)?;
        let first = offset_of!(Hist, buckets) / 8;
        let buckets = words.get(first..first + BUCKETS)?.to_vec();
        Some(Latencies { sum_ns: words[offset_of!(Hist, sum_ns) / 8], buckets })
    }

    fn pool(&self, pools: Slots, named: u64) -> Option<Pool> {
        let words = self.slot(pools, named.checked_sub(1)?)?;
        let account = |at: usize| {
            let [workers, idle, queued, max] = *words.get(at / 8..at / 8 + 4)? else { return None };
            Some(Account { workers, idle, queued, max })
        };
        let bound = account(offset_of!(PoolStats, bound))?;
        Some(Pool { slot: named, bound, unbound: account(offset_of!(PoolStats, unbound))? })
    }
}

/// Takes a page apart. `read` returns so many bytes from an offset on, or `None` if the page is not
/// that long; slots whose bytes are missing are left out.
///
/// # Errors
/// [`Unreadable`].
pub(crate) fn page(read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Result<Page, Unreadable> {
    let source = Source::new(read);
    let Head { words: header, rings, pools, hists, meters } = source.head()?;
    let meter = |slot| Some(Meter { words: source.slot(meters, slot)? });
    let ring = |slot| ring(&source, [rings, pools, hists], slot);
    let mut page = Page {
        pid: header[offset_of!(Header, pid) / 8] as u32,
        unseen_rings: header[offset_of!(Header, unseen_rings) / 8],
        unseen_hists: header[offset_of!(Header, unseen_hists) / 8],
        ended: ring(0).ok_or(Unreadable::NoPage)?,
        rings: (1..rings.used).filter_map(ring).filter(|ring| ring.id() != 0).collect(),
        meters: (0..meters.used).filter_map(meter).filter(|meter| meter.id() != 0).collect(),
    };
    // The next ring uses a slot again.
    page.rings.sort_by_key(Ring::id);
    Ok(page)
}

/// Takes an open page apart, like [`page`]. The page must be sealed against a change of its size,
/// as ours are, and not be larger than any of ours.
///
/// # Errors
/// [`Unreadable`].
pub fn file(file: impl AsFd) -> Result<Page, Unreadable> {
    let file = file.as_fd();
    check_size(file)?;
    page(of_file(file))
}

/// Returns the process that writes an open page, by its own pid. Reads only the header.
///
/// # Errors
/// Those of [`file()`].
pub fn writer(file: impl AsFd) -> Result<u32, Unreadable> {
    let file = file.as_fd();
    check_size(file)?;
    let head = Source::new(of_file(file)).head()?;
    Ok(head.words[offset_of!(Header, pid) / 8] as u32)
}

fn check_size(file: BorrowedFd<'_>) -> Result<(), Unreadable> {
    let sized = SealFlags::GROW | SealFlags::SHRINK;
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(sized)) {
        return Err(Unreadable::NoPage);
    }
    let fits = fstat(file).is_ok_and(|stat| stat.st_size.cast_unsigned() <= SIZE_MAX);
    if fits { Ok(()) } else { Err(Unreadable::Foreign) }
}

fn of_file(file: BorrowedFd<'_>) -> impl Fn(u64, usize) -> Option<Vec<u8>> {
    move |at, n| {
        let mut bytes = vec![0; n];
        read_exact_at(file, &mut bytes, at).ok().map(|()| bytes)
    }
}

/// Reads one ring; none if it has ended meanwhile.
fn ring<R: Fn(u64, usize) -> Option<Vec<u8>>>(
    source: &Source<R>,
    [rings, pools, hists]: [Slots; 3],
    slot: u64,
) -> Option<Ring> {
    let mut ring = Ring { words: source.slot(rings, slot)?, ..Ring::default() };
    if slot > 0 && ring.id() == 0 {
        return None;
    }
    for op in 0..OPS {
        let named = ring.at(offset_of!(RingStats, op_hists) + 8 * op);
        if let Some(found) = source.latencies(hists, named) {
            ring.latencies.insert(op, found);
        }
    }
    ring.pool = source.pool(pools, ring.at(offset_of!(RingStats, pool)));
    let again = source.words(rings.at + slot * rings.size, 1)?;
    (again[0] == ring.id()).then_some(ring)
}

/// Adds counts up. A stranger's counts may be any numbers.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Defines accessors of a ring's or a meter's words, by name.
macro_rules! words {
    ($what:ident of $layout:ident; $($(#[$doc:meta])* $name:ident: $($field:ident).+;)*) => {
        impl $what {
            fn at(&self, offset: usize) -> u64 {
                self.words.get(offset / 8).copied().unwrap_or(0)
            }
            $(
                $(#[$doc])*
                pub fn $name(&self) -> u64 {
                    self.at(offset_of!($layout, $($field).+))
                }
            )*
        }
    };
}
words! {
    Ring of RingStats;
    /// Returns the number of the ring in its process; 0 for the sums.
    id: id;
    flags: flags;
    sq_entries: sq_entries;
    cq_entries: cq_entries;
    /// Returns the thread that submits for the ring; 0: none.
    sq_thread: sq_thread;
    in_flight: in_flight;
    enters: enters;
    errors: errors;
    cqes: cqes;
    overflowed: overflowed;
    read_bytes: read_bytes;
    written_bytes: written_bytes;
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
    idle_sleeps: idle_sleeps.idle_sleeps;
    idle_sleeps_under: idle_sleeps.under;
    idle_sleeps_over: idle_sleeps.over;
    spared_ns: idle_sleeps.spared_ns;
    spun_ns: idle_sleeps.spun_ns;
    late_seen: late.seen;
    late_ns: late.ns;
    late_p50_ns: late.p50_ns;
    late_p99_ns: late.p99_ns;
}

words! {
    Meter of MeterStats;
    /// Returns the number of the meter in its process.
    id: id;
    /// Returns the owner of the thread ([`super::meter::Kind`]).
    kind: kind;
    tid: tid;
    /// Returns the processor that the thread last worked on.
    cpu: cpu;
    base_ns: base_ns;
    /// Returns the total at the thread's last read of its clock; see [`Self::total_us_at`].
    total_us: total_us;
    work_us: work_us;
    stretches: stretches;
    idle_sleeps: idle_sleeps;
    idle_sleeps_over: idle_sleeps_over;
    idle_slept_us: idle_slept_us;
}

impl Meter {
    pub fn name(&self) -> String {
        let at = offset_of!(MeterStats, name);
        let words = (0..METER_NAME / 8).map(|i| self.at(at + 8 * i));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        printable(&bytes)
    }

    /// Returns the thread's total when its clock, the first number of its schedstat(5), is at `ns`.
    pub fn total_us_at(&self, ns: u64) -> u64 {
        self.total_us().max(ns.saturating_sub(self.base_ns()) / 1000)
    }
}

impl Ring {
    fn op(&self, words: usize, opcode: usize) -> u64 {
        if opcode < OPS { self.at(words + 8 * opcode) } else { 0 }
    }

    /// Returns the SQEs taken of an opcode; the last is for opcodes that do not exist.
    pub fn ops(&self, opcode: usize) -> u64 {
        self.op(offset_of!(RingStats, ops), opcode)
    }

    /// Returns the number of an opcode's requests that ended with a negative result.
    pub fn op_errors(&self, opcode: usize) -> u64 {
        self.op(offset_of!(RingStats, op_errors), opcode)
    }

    /// Returns the number of SQEs taken.
    pub fn submitted(&self) -> u64 {
        sum((0..OPS).map(|opcode| self.ops(opcode)))
    }

    /// Returns the number of requests that ended when they were submitted.
    pub fn inline(&self) -> u64 {
        let elsewhere = [self.poll(), self.aio(), self.worker(), self.model(), self.queued()];
        self.submitted().saturating_sub(sum(elsewhere))
    }

    /// Returns the latencies of all operations together.
    pub fn all_latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for one in self.latencies.values() {
            all.add(one);
        }
        all
    }

    /// Adds another ring's counters and latencies, and what is in flight. The rest stays.
    pub fn add(&mut self, other: &Ring) {
        self.combine(other, u64::saturating_add);
        for (&op, more) in &other.latencies {
            self.latencies.entry(op).or_default().add(more);
        }
    }

    /// Takes off the values of an earlier reading of the same ring. What is in flight stays.
    pub fn subtract(&mut self, earlier: &Ring) {
        let in_flight = offset_of!(RingStats, in_flight) / 8;
        let now = self.in_flight();
        self.combine(earlier, u64::saturating_sub);
        if let Some(word) = self.words.get_mut(in_flight) {
            *word = now;
        }
        for (op, less) in &earlier.latencies {
            if let Some(mine) = self.latencies.get_mut(op) {
                mine.combine(less, u64::saturating_sub);
            }
        }
    }

    fn combine(&mut self, other: &Ring, f: impl Fn(u64, u64) -> u64) {
        self.words.resize(self.words.len().max(other.words.len()), 0);
        let words = offset_of!(RingStats, in_flight) / 8..offset_of!(RingStats, op_hists) / 8;
        let pairs = self.words.iter_mut().zip(&other.words);
        for (mine, theirs) in pairs.take(words.end).skip(words.start) {
            *mine = f(*mine, *theirs);
        }
    }
}

impl Latencies {
    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        sum(self.buckets.iter().copied())
    }

    /// Returns the latency in ns that this share of them (0 to 1) do not exceed, as far as the
    /// buckets show; none if there are no latencies.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let rank = (softring_host::math::ceil(count as f64 * share) as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (bucket, &n) in self.buckets.iter().enumerate() {
            if n > 0 && rank - below <= n {
                let (least, end) = hist::bounds(bucket);
                let width = if end == u64::MAX { 0 } else { end - least };
                return Some(least + (width as f64 * ((rank - below) as f64 / n as f64)) as u64);
            }
            below += n;
        }
        None
    }

    /// Returns the mean in ns.
    pub fn mean(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.combine(other, u64::saturating_add);
    }

    fn combine(&mut self, other: &Latencies, f: impl Fn(u64, u64) -> u64) {
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = f(*mine, *theirs);
        }
        self.sum_ns = f(self.sum_ns, other.sum_ns);
    }
}

#[cfg(test)]
mod tests;
