//! Cost of a reference to a registered file, taken for a request and given back at its end: by a
//! plain count, an atomic one, and one under a lock; alone, and for a batch of 32 as a ring takes
//! them.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use criterion::{Criterion, criterion_group, criterion_main};

const BATCH: usize = 32;

/// Count under a lock of its own, as a table without a lock around it would need.
struct Locked {
    count: Mutex<usize>,
}

impl Locked {
    fn add(&self, n: isize) {
        let mut count = self.count.lock().unwrap();
        *count = count.wrapping_add_signed(n);
    }
}

fn one(c: &mut Criterion) {
    let mut group = c.benchmark_group("get and put");
    let (plain, atomic) = (Rc::new(7u64), Arc::new(7u64));
    let locked = Locked { count: Mutex::new(1) };
    group.bench_function("plain", |b| b.iter(|| drop(black_box(black_box(&plain).clone()))));
    group.bench_function("atomic", |b| b.iter(|| drop(black_box(black_box(&atomic).clone()))));
    group.bench_function("lock", |b| {
        b.iter(|| {
            black_box(&locked).add(1);
            black_box(&locked).add(-1);
        });
    });
    group.finish();
}

/// Measures the gets of a whole batch, then its puts, on nodes of as many slots.
fn batch(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch of 32");
    let plain: Vec<_> = (0..BATCH as u64).map(Rc::new).collect();
    let atomic: Vec<_> = (0..BATCH as u64).map(Arc::new).collect();
    let locked: Vec<_> = (0..BATCH).map(|_| Locked { count: Mutex::new(1) }).collect();
    let mut held = Vec::with_capacity(BATCH);
    group.bench_function("plain", |b| {
        b.iter(|| {
            held.extend(plain.iter().cloned());
            black_box(&held);
            held.clear();
        });
    });
    let mut held = Vec::with_capacity(BATCH);
    group.bench_function("atomic", |b| {
        b.iter(|| {
            held.extend(atomic.iter().cloned());
            black_box(&held);
            held.clear();
        });
    });
    group.bench_function("lock", |b| {
        b.iter(|| {
            locked.iter().for_each(|l| l.add(1));
            locked.iter().for_each(|l| l.add(-1));
        });
    });
    group.finish();
}

criterion_group!(benches, one, batch);
criterion_main!(benches);
