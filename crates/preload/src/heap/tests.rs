//! Tests of the allocator: in one thread, among threads, and on top of itself.
#![allow(unsafe_code)]

use super::*;

#[test]
fn size_classes_hold_their_sizes() {
    let mut last = (0, 0);
    for size in 1..=CACHED {
        let (class, block) = class(size);
        assert!(block >= size && block <= size.max(64) * 5 / 4, "{size}: {block}");
        assert!(class == last.0 || class == last.0 + 1 && block > last.1, "{size}: {class}");
        assert_eq!(class < CLASSES, size <= SMALL, "{size}");
        last = (class, block);
    }
    assert_eq!(last.0, CLASSES + CACHED_CLASSES - 1);
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// A block with its own address in it, and its layout.
struct Owned(*mut u8, Layout);

// SAFETY: nobody else has the block.
unsafe impl Send for Owned {}

impl Owned {
    fn new(heap: &Heap, layout: Layout) -> Owned {
        // SAFETY: not empty; filled at once.
        unsafe {
            let block = heap.alloc(layout);
            assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
            block.write_bytes(block.addr() as u8, layout.size());
            Owned(block, layout)
        }
    }

    fn is_whole(&self) -> bool {
        // SAFETY: written by `new`.
        let bytes = unsafe { core::slice::from_raw_parts(self.0, self.1.size()) };
        bytes.iter().all(|b| *b == self.0.addr() as u8)
    }

    fn free(self, heap: &Heap) {
        assert!(self.is_whole());
        // SAFETY: from this heap, and given up.
        unsafe { heap.dealloc(self.0, self.1) };
    }
}

fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) as usize
}

fn some(seed: &mut u64) -> Layout {
    let size = 1 + random(seed) % (1 << (1 + random(seed) % 19));
    layout(size, 1 << (random(seed) % 13))
}

/// Threads allocate, and free each other's blocks.
#[test]
fn blocks_do_not_overlap() {
    static SHARED: Heap = Heap::new();
    let (to, from) = std::sync::mpsc::channel::<Owned>();
    let threads: Vec<_> = (1..5)
        .map(|n| {
            let to = to.clone();
            std::thread::spawn(move || {
                let (mut seed, mut held) = (n, Vec::new());
                for _ in 0..20_000 {
                    held.push(Owned::new(&SHARED, some(&mut seed)));
                    while held.len() > random(&mut seed) % 64 {
                        let block = held.swap_remove(random(&mut seed) % held.len());
                        match random(&mut seed) % 4 {
                            0 => to.send(block).unwrap(),
                            _ => block.free(&SHARED),
                        }
                    }
                }
                held.into_iter().for_each(|block| block.free(&SHARED));
            })
        })
        .collect();
    drop(to);
    from.into_iter().for_each(|block| block.free(&SHARED));
    threads.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn blocks_are_used_again_and_grow() {
    static OWN: Heap = Heap::new();
    for size in [1, 16, 100, 4096, 5000, CACHED] {
        let one = Owned::new(&OWN, layout(size, 1));
        let (at, of) = (one.0, one.1);
        one.free(&OWN);
        // SAFETY: a block of this heap's, which grows, shrinks and goes.
        unsafe {
            let again = OWN.alloc_zeroed(of);
            assert_eq!(at, again);
            assert!((0..size).all(|i| *again.add(i) == 0));
            again.write_bytes(7, size);
            let mut now = (again, of);
            for new in [2 * size, 64 * size, 3 * size, size] {
                now = (OWN.realloc(now.0, now.1, new), layout(new, 1));
                assert!((0..size).all(|i| *now.0.add(i) == 7));
            }
            OWN.dealloc(now.0, now.1);
        }
    }
}

/// Models a handler on top of an allocation, and a child whose parent's thread was allocating.
#[test]
fn reentrant_allocations_use_another_shard() {
    static OWN: Heap = Heap::new();
    let before = Owned::new(&OWN, layout(64, 8));
    let held: Vec<_> = OWN.shards[1..].iter().map(|s| s.try_lock(thread()).unwrap()).collect();
    let inside = Owned::new(&OWN, layout(64, 8));
    inside.free(&OWN);
    let all = OWN.shards[0].try_lock(thread()).unwrap();
    before.free(&OWN);
    drop((held, all));
    let returned = OWN.shards.iter().any(|s| !s.returned.load(Relaxed).is_null());
    assert!(returned);
    let many: Vec<_> = (0..SHARDS * 10).map(|_| Owned::new(&OWN, layout(64, 8))).collect();
    many.into_iter().for_each(|block| block.free(&OWN));
}
