//! Tests on real threads; and under loom (`ci/loom.sh`) the race between a submitter and a worker
//! that is about to exit.

use super::*;

struct Job {
    key: u64,
    hash: Option<u64>,
    unbound: bool,
    f: Box<dyn FnOnce() + Send>,
}

impl Work for Job {
    type Key = u64;
    fn run(self) {
        (self.f)();
    }
    fn unbound(&self) -> bool {
        self.unbound
    }
    fn hash_key(&self) -> Option<u64> {
        self.hash
    }
    fn key(&self) -> u64 {
        self.key
    }
}

fn job(key: u64, hash: Option<u64>, f: impl FnOnce() + Send + 'static) -> Job {
    Job { key, hash, unbound: false, f: Box::new(f) }
}

#[cfg(loom)]
mod model {
    use super::*;
    use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};

    fn explore(hash: Option<u64>, items: u32, max: u32) {
        let mut b = loom::model::Builder::new();
        b.preemption_bound = Some(3);
        b.check(move || {
            let ran = std::sync::Arc::new(AtomicU32::new(0));
            let pool = Pool::with(1, [max, 1], Duration::ZERO, 0);
            for i in 0..items {
                let ran = ran.clone();
                let f = move || _ = ran.fetch_add(1, SeqCst);
                assert!(pool.queue(job(u64::from(i), hash, f)).is_ok());
            }
            // A lost wake-up leaves an item queued and all workers asleep: loom calls it a
            // deadlock.
            while ran.load(SeqCst) < items {
                loom::thread::yield_now();
            }
            assert!(pool.shutdown().is_empty());
        });
    }

    #[test]
    fn submits_race_idle_and_exiting_workers() {
        explore(None, 2, 2);
    }

    #[test]
    fn hashed_submits_race_idle_workers() {
        explore(Some(7), 3, 2);
    }
}

#[cfg(not(loom))]
mod threads {
    use super::*;
    use softring_host::os::fd::OwnedFd;
    use softring_host::os::pipe::{PipeFlags, pipe_with};
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    fn until(what: &str, mut f: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !f() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn threads_named(name: &str) -> usize {
        let comm = |e: std::fs::DirEntry| std::fs::read_to_string(e.path().join("comm")).ok();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.filter_map(|e| comm(e.ok()?)).filter(|c| c.trim() == name).count()
    }

    fn workers<W: Work>(p: &Pool<W>) -> u32 {
        p.counts().iter().map(|c| c.workers).sum()
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC).unwrap()
    }

    /// Returns a job that occupies its worker until the sender is dropped.
    fn blocked_job(key: u64, hash: Option<u64>) -> (Job, std::sync::mpsc::Sender<()>) {
        let (tx, rx) = channel::<()>();
        (job(key, hash, move || assert!(rx.recv().is_err())), tx)
    }

    #[test]
    fn hashed_items_run_in_order_one_at_a_time() {
        let pool = Pool::new(71, 4, 1);
        let log = Arc::new(std::sync::Mutex::new(vec![Vec::new(); 3]));
        let inside = Arc::new([const { AtomicU32::new(0) }; 3]);
        for i in 0..300u64 {
            let (log, inside, k) = (log.clone(), inside.clone(), (i % 3) as usize);
            let f = move || {
                assert_eq!(inside[k].fetch_add(1, SeqCst), 0);
                log.lock().unwrap()[k].push(i);
                inside[k].fetch_sub(1, SeqCst);
            };
            assert!(pool.queue(job(i, Some(k as u64), f)).is_ok());
        }
        until("all run", || log.lock().unwrap().iter().map(Vec::len).sum::<usize>() == 300);
        assert!(log.lock().unwrap().iter().all(|l| l.is_sorted()));
        pool.shutdown();
    }

    #[test]
    fn a_busy_key_blocks_one_worker_only() {
        let pool = Pool::new(72, 2, 1);
        let (first, hold) = blocked_job(0, Some(9));
        assert!(pool.queue(first).is_ok());
        for i in 1..50 {
            assert!(pool.queue(job(i, Some(9), || ())).is_ok());
        }
        let (tx, rx) = channel();
        assert!(pool.queue(job(99, None, move || tx.send(()).unwrap())).is_ok());
        rx.recv_timeout(Duration::from_secs(10)).unwrap();
        let c = pool.counts()[0];
        assert_eq!((c.workers, c.queued), (2, 49));
        drop(hold);
        until("chain drains", || pool.counts()[0].queued == 0);
        pool.shutdown();
    }

    #[test]
    fn limits_hold_and_accounts_do_not_wait_for_each_other() {
        let pool = Pool::new(73, 3, 2);
        let mut holds = Vec::new();
        for i in 0..16 {
            let (mut j, hold) = blocked_job(i, None);
            j.unbound = i % 2 == 1;
            assert!(pool.queue(j).is_ok());
            holds.push(hold);
        }
        until("running", || pool.counts()[0].running == 3 && pool.counts()[1].running == 2);
        let c = pool.counts();
        assert_eq!((c[0].workers, c[0].queued, c[1].workers, c[1].queued), (3, 5, 2, 6));
        assert_eq!(pool.set_max([5, 0]).unwrap(), [3, 2]);
        assert_eq!(pool.set_max([0, 0]).unwrap(), [5, 2]);
        assert_eq!(pool.set_max([u32::MAX, 0]), Err(Errno::EINVAL));
        let (j, hold) = blocked_job(99, None);
        assert!(pool.queue(j).is_ok());
        assert_eq!(pool.counts()[0].workers, 4);
        drop((hold, holds));
        until("done", || pool.counts().iter().all(|c| c.running + c.queued == 0));
        pool.shutdown();
    }

    #[test]
    fn idle_workers_exit_except_the_last() {
        let pool = Pool::with(74, [4, 4], Duration::from_millis(20), WORKER_STACK);
        let holds: Vec<_> = (0..4)
            .map(|i| {
                let (j, hold) = blocked_job(i, None);
                assert!(pool.queue(j).is_ok());
                hold
            })
            .collect();
        assert_eq!(pool.counts()[0].workers, 4);
        until("four threads", || threads_named("iou-wrk-74") == 4);
        drop(holds);
        until("three leave", || pool.counts()[0].workers == 1);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(pool.counts()[0].idle, 1);
        pool.shutdown();
        until("no thread left", || threads_named("iou-wrk-74") == 0);
        assert!(pool.queue(job(0, None, || ())).is_err());
    }

    #[test]
    fn cancel_removes_queued_items_and_counts_running_ones() {
        let pool = Pool::new(75, 1, 1);
        let (j, hold) = blocked_job(0, Some(1));
        assert!(pool.queue(j).is_ok());
        until("running", || pool.counts()[0].running == 1);
        for i in 1..10 {
            assert!(pool.queue(job(i, (i % 2 == 0).then_some(1), || ())).is_ok());
        }
        let keys = |v: Vec<Job>| v.iter().map(|j| j.key).collect::<Vec<_>>();
        assert_eq!(keys(pool.cancel(|&k| k == 4, false).0), [4]);
        let (gone, running) = pool.cancel(|&k| k < 3, true);
        assert_eq!((keys(gone), running), (vec![2, 1], 1));
        let (gone, running) = pool.cancel(|&k| k == 0, false);
        assert_eq!((gone.len(), running), (0, 1));
        let left = pool.shutdown();
        assert_eq!(left.len(), 6);
        drop(hold);
        until("gone", || workers(&pool) == 0);
    }

    #[test]
    fn a_cancelled_ready_item_releases_its_chain() {
        let pool = Pool::new(76, 1, 1);
        let (j, hold) = blocked_job(0, None);
        assert!(pool.queue(j).is_ok());
        let (tx, rx) = channel();
        for i in 1..4 {
            let tx = tx.clone();
            assert!(pool.queue(job(i, Some(5), move || tx.send(i).unwrap())).is_ok());
        }
        assert_eq!(pool.cancel(|&k| k == 1, true).0.len(), 1);
        drop(hold);
        assert_eq!((rx.recv().unwrap(), rx.recv().unwrap()), (2, 3));
        pool.shutdown();
    }

    #[test]
    fn interrupt_ends_a_blocked_read_and_spares_the_next_item() {
        let pool = Pool::new(77, 1, 1);
        for round in 0..200u64 {
            let (r, w) = pipe();
            let (tx, rx) = channel();
            let mut j = job(round, None, move || {
                let mut b = [0u8; 8];
                tx.send(softring_host::os::io::read(&r, &mut b)).unwrap();
            });
            j.unbound = true;
            assert!(pool.queue(j).is_ok());
            until("running", || pool.interrupt(|&k| k == round) == 1);
            // The next item, on the same worker, must not see the signal.
            let (tx2, rx2) = channel();
            let mut next = job(1000, None, move || {
                tx2.send(softring_host::sys::sleep(Duration::from_micros(300))).unwrap();
            });
            next.unbound = true;
            assert!(pool.queue(next).is_ok());
            let interrupted = Err(softring_uapi::errno::Errno::EINTR);
            assert_eq!(rx.recv_timeout(Duration::from_secs(10)).unwrap(), interrupted);
            assert_eq!(rx2.recv_timeout(Duration::from_secs(10)).unwrap(), Ok(()));
            drop(w);
        }
        pool.shutdown();
    }

    #[test]
    fn the_item_returns_without_a_worker() {
        // No address space has room for such a stack: pthread_create fails as it does at
        // RLIMIT_NPROC.
        let pool = Pool::with(78, [2, 2], WORKER_IDLE, 1 << 46);
        let back = pool.queue(job(5, Some(3), || ())).err().unwrap();
        assert_eq!((back.key, workers(&pool)), (5, 0));
        assert!(pool.queue(job(6, Some(3), || ())).is_err());
    }

    #[test]
    fn ten_thousand_items_from_four_threads() {
        let pool = Pool::with(79, [4, 4], Duration::from_micros(50), WORKER_STACK);
        let sum = Arc::new(AtomicU64::new(0));
        let submitters: Vec<_> = (0..4u64)
            .map(|t| {
                let (pool, sum) = (pool.clone(), sum.clone());
                std::thread::spawn(move || {
                    for i in 0..2500u64 {
                        let sum = sum.clone();
                        let hash = (i % 3 == 0).then_some(i % 7);
                        let mut j = job(t, hash, move || _ = sum.fetch_add(i + 1, SeqCst));
                        j.unbound = i % 5 == 0;
                        assert!(pool.queue(j).is_ok());
                        if i % 100 == 0 {
                            std::thread::sleep(Duration::from_micros(100));
                        }
                    }
                })
            })
            .collect();
        submitters.into_iter().for_each(|t| t.join().unwrap());
        until("all run", || sum.load(SeqCst) == 4 * 2500 * 2501 / 2);
        assert!(pool.shutdown().is_empty());
        until("no thread left", || workers(&pool) == 0 && threads_named("iou-wrk-79") == 0);
    }

    #[test]
    fn affinity_reaches_present_and_future_workers() {
        let pool = Pool::new(80, 2, 1);
        let allowed = || {
            let s = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            s.lines().find(|l| l.starts_with("Cpus_allowed_list")).unwrap().to_owned()
        };
        let ask = || {
            let (tx, rx) = channel();
            assert!(pool.queue(job(0, None, move || tx.send(allowed()).unwrap())).is_ok());
            rx.recv().unwrap()
        };
        let before = ask();
        pool.set_affinity(Some(&[1])).unwrap();
        assert!(ask().ends_with("\t0"));
        pool.set_affinity(None).unwrap();
        assert_eq!(ask(), before);
        assert_eq!(pool.set_affinity(Some(&[0; CPU_MASK_BYTES + 1])), Err(Errno::EINVAL));
        pool.shutdown();
    }

    /// Prints a figure and checks nothing: `cargo test --profile quick … -- --ignored --nocapture
    /// queueing_costs`.
    #[test]
    #[ignore = "measures"]
    fn queueing_costs() {
        let pool = Pool::new(82, 1, 1);
        let (tx, rx) = channel();
        let n = 20_000u32;
        let (mut queue_ns, start) = (0, Instant::now());
        for i in 0..n {
            let tx = tx.clone();
            let j = job(0, None, move || tx.send(()).unwrap());
            let t = Instant::now();
            assert!(pool.queue(j).is_ok());
            queue_ns += if i == 0 { 0 } else { t.elapsed().as_nanos() };
            rx.recv().unwrap();
            while pool.counts()[0].idle == 0 {
                std::thread::yield_now();
            }
        }
        let round = start.elapsed().as_nanos() / u128::from(n);
        println!("queue to an idle worker {} ns, round trip {round} ns", queue_ns / u128::from(n));
        pool.shutdown();
    }
}
