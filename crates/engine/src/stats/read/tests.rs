//! Pages made by hand: whole, cut short, and foreign.

use super::*;
use core::cell::Cell;
use softring_host::limits::{STATS_HISTS, STATS_METERS, STATS_POOLS, STATS_RINGS};

/// Returns a reader of a page's bytes for [`page`].
fn bytes(page: &[u8]) -> impl Fn(u64, usize) -> Option<Vec<u8>> {
    |at, n| {
        let at = usize::try_from(at).ok()?;
        page.get(at..at.checked_add(n)?).map(<[u8]>::to_vec)
    }
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

const HEADER: usize = size_of::<Header>();
const RINGS: usize = HEADER.next_multiple_of(64);
const POOLS: usize = RINGS + 2 * size_of::<RingStats>();
const HISTS: usize = POOLS + size_of::<PoolStats>();

const METERS: usize = HISTS + size_of::<Hist>();

/// Makes a page of sums, one ring with a pool and a histogram, a free meter and a taken one.
fn sample() -> Vec<u64> {
    let mut words = vec![0; (METERS + 2 * size_of::<MeterStats>()) / 8];
    (words[0], words[1], words[2], words[3]) = (MAGIC, VERSION, 7, HEADER as u64);
    let sections = [
        (offset_of!(Header, rings), RINGS, size_of::<RingStats>(), 2),
        (offset_of!(Header, pools), POOLS, size_of::<PoolStats>(), 1),
        (offset_of!(Header, hists), HISTS, size_of::<Hist>(), 1),
        (offset_of!(Header, meters), METERS, size_of::<MeterStats>(), 2),
    ];
    for (at, start, size, used) in sections {
        words[at / 8..at / 8 + 4].copy_from_slice(&[start as u64, size as u64, 64, used]);
    }
    let ring = (RINGS + size_of::<RingStats>()) / 8;
    let set = [
        (offset_of!(RingStats, id), 5),
        (offset_of!(RingStats, pool), 1),
        (offset_of!(RingStats, in_flight), 4),
        (offset_of!(RingStats, ops) + 8 * 22, 9),
        (offset_of!(RingStats, op_hists) + 8 * 22, 1),
        (offset_of!(RingStats, routes.poll), 2),
    ];
    for (at, value) in set {
        words[ring + at / 8] = value;
    }
    words[POOLS / 8 + offset_of!(PoolStats, unbound) / 8] = 3;
    words[HISTS / 8] = 5000;
    words[HISTS / 8 + offset_of!(Hist, buckets) / 8 + 8] = 4;
    let meter = (METERS + size_of::<MeterStats>()) / 8;
    (words[meter], words[meter + 4], words[meter + 5]) = (2, 5_000, 7);
    words[meter + offset_of!(MeterStats, name) / 8] = u64::from_ne_bytes(*b"polls\0\0\0");
    words
}

#[test]
fn a_page_is_decoded() {
    let p = page(bytes(&to_bytes(&sample()))).unwrap();
    assert_eq!((p.pid, p.rings.len(), p.ended.submitted()), (7, 1, 0));
    let r = &p.rings[0];
    assert_eq!((r.id(), r.ops(22), r.submitted(), r.inline(), r.in_flight()), (5, 9, 9, 7, 4));
    let pool = r.pool.unwrap();
    assert_eq!((pool.slot, pool.unbound.workers, pool.bound.workers), (1, 3, 0));
    let m = &p.meters[0];
    assert_eq!((p.meters.len(), m.id(), m.name()), (1, 2, "polls".into()));
    assert_eq!((m.total_us_at(4_000), m.total_us_at(25_000)), (7, 20));
    let l = &r.latencies[&22];
    assert_eq!(
        (l.count(), l.mean(), l.quantile(0.5), l.quantile(1.0)),
        (4, Some(1250), Some(136), Some(144))
    );
}

#[test]
fn rings_come_in_the_order_in_which_they_were_made() {
    let (mut words, size) = (sample(), size_of::<RingStats>());
    let start = words.len() * 8;
    words.resize(words.len() + 4 * size / 8, 0);
    let at = offset_of!(Header, rings) / 8;
    words[at..at + 4].copy_from_slice(&[start as u64, size as u64, 64, 4]);
    for (slot, id) in [(1, 9), (2, 3), (3, 7)] {
        words[(start + slot * size + offset_of!(RingStats, id)) / 8] = id;
    }
    let p = page(bytes(&to_bytes(&words))).unwrap();
    assert_eq!(p.rings.iter().map(Ring::id).collect::<Vec<_>>(), [3, 7, 9]);
}

#[test]
fn other_memory_is_not_a_page() {
    assert_eq!(page(bytes(b"")).unwrap_err(), Unreadable::NoPage);
    assert_eq!(page(bytes(&[0; 4096])).unwrap_err(), Unreadable::NoPage);
    let mut words = sample();
    words[1] = VERSION + 1;
    assert_eq!(page(bytes(&to_bytes(&words))).unwrap_err(), Unreadable::Version(VERSION + 1));
}

#[test]
fn a_truncated_page_is_refused_or_partial() {
    let whole = to_bytes(&sample());
    for n in 0..whole.len() {
        match page(bytes(&whole[..n])) {
            Ok(p) => {
                assert!(n >= RINGS + size_of::<RingStats>(), "{n}");
                assert!(p.rings.iter().all(|r| r.latencies.is_empty() || n >= METERS));
                assert!(p.rings.len() <= 1 && p.meters.is_empty());
            }
            Err(e) => assert_eq!(e, Unreadable::NoPage),
        }
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_pages_are_harmless(
        wild in proptest::collection::vec((2..HEADER / 8 + 40, 0u32..64, 0u64..4096), 1..6),
        hist in (0..OPS, proptest::num::u64::ANY),
    ) {
        let mut words = sample();
        for (at, shift, value) in wild {
            words[at] = value.rotate_right(shift);
        }
        let ring = (RINGS + size_of::<RingStats>() + offset_of!(RingStats, op_hists)) / 8;
        words[ring + hist.0] = hist.1;
        let _ = page(bytes(&to_bytes(&words)));
    }
}

#[test]
fn a_histogram_is_one_ring_s() {
    let mut words = sample();
    let ring = (RINGS + size_of::<RingStats>() + offset_of!(RingStats, op_hists)) / 8;
    words[ring + 23] = 1;
    words[ring + 24] = 1;
    let p = page(bytes(&to_bytes(&words))).unwrap();
    assert_eq!(p.rings[0].latencies.len(), 1);
}

/// Reads as many slots as there may be, all taken, all naming a pool and histograms: no more is
/// read than a page of ours has, except pools that rings share.
#[test]
fn reading_ends() {
    let all = Cell::new(0);
    let header = filled(size_of::<RingStats>(), STATS_RINGS);
    let endless = |at: u64, n: usize| {
        all.set(all.get() + n);
        let words = if at == 0 { header[..n / 8].to_vec() } else { vec![at; n / 8] };
        Some(to_bytes(&words))
    };
    let p = page(endless).unwrap();
    assert!(p.rings.len() < STATS_RINGS && p.meters.len() <= STATS_METERS);
    assert!(all.get() < 7 << 20, "{}", all.get());
}

/// Makes a header with so many rings of this size, and all other slots that there may be.
fn filled(size: usize, rings: usize) -> Vec<u64> {
    let mut words = sample()[..HEADER / 8].to_vec();
    for (at, size, used) in [
        (offset_of!(Header, rings), size, rings),
        (offset_of!(Header, pools), size_of::<PoolStats>(), STATS_POOLS),
        (offset_of!(Header, hists), size_of::<Hist>(), STATS_HISTS),
        (offset_of!(Header, meters), size_of::<MeterStats>(), STATS_METERS),
    ] {
        words[at / 8..at / 8 + 4].copy_from_slice(&[4096, size as u64, used as u64, used as u64]);
    }
    words
}

#[test]
fn impossible_pages_are_foreign() {
    let open = |size, rings| page(bytes(&to_bytes(&filled(size, rings)))).unwrap_err();
    let size = size_of::<RingStats>();
    for (size, rings) in
        [(8, 1), (offset_of!(RingStats, late) - 8, 1), (size + 4, 1), (size, STATS_RINGS + 1)]
    {
        assert_eq!(open(size, rings), Unreadable::Foreign, "{size} {rings}");
    }
    assert_eq!(open(1 << 16, STATS_RINGS), Unreadable::Foreign);
    assert_eq!(open(usize::MAX & !7, 2), Unreadable::Foreign);
    // There is no page behind this header, but it might have one.
    assert_eq!(open(size + 64, STATS_RINGS), Unreadable::NoPage);
}

#[test]
fn names_are_clean() {
    let mut words = sample();
    let meter = (METERS + size_of::<MeterStats>()) / 8;
    words[meter + offset_of!(MeterStats, name) / 8] = u64::from_ne_bytes(*b"\x1b[31mx\n\0");
    assert_eq!(page(bytes(&to_bytes(&words))).unwrap().meters[0].name(), "?[31mx?");
}

#[test]
fn readings_add_up_and_subtract() {
    let p = page(bytes(&to_bytes(&sample()))).unwrap();
    let (mut sum, one) = (Ring::default(), &p.rings[0]);
    sum.add(one);
    sum.add(one);
    assert_eq!((sum.id(), sum.submitted(), sum.in_flight(), sum.poll()), (0, 18, 8, 4));
    assert_eq!(sum.all_latencies().count(), 8);
    sum.subtract(one);
    assert_eq!((sum.submitted(), sum.in_flight(), sum.poll()), (9, 8, 2));
    assert_eq!(sum.latencies[&22], one.latencies[&22]);
}

#[test]
fn quantiles_of_nothing_are_none() {
    assert_eq!((Latencies::default().quantile(0.5), Latencies::default().mean()), (None, None));
    let mut far = Latencies { sum_ns: 1, buckets: vec![0; BUCKETS] };
    far.buckets[BUCKETS - 1] = 1;
    assert_eq!(far.quantile(0.99), Some(1 << 36));
}
