//! Results of the policies on the traces.

use super::{Machine, Outcome, RuleKind, Trace, TraceKind, run, trace};
use softring_engine::hybrid::{COALESCE_SHARE, IDLE_SLEEP_MAX, Policy};

const MACHINE: Machine = Machine { late: 3_000, cpu: 2_500, submit: 1_000 };
const HYBRID: RuleKind = RuleKind::Ours(Policy::Hybrid);
const SPIN: RuleKind = RuleKind::Ours(Policy::Spin);

fn outcome(rule: RuleKind, trace: TraceKind, depth: usize) -> Outcome {
    let mut trace = Trace::new(trace, 1);
    run(&mut *rule.rule(MACHINE, depth), &mut trace, MACHINE, depth, 8_000)
}

#[test]
fn at_depth_one_hybrid_has_the_latency_of_polling() {
    for trace in TraceKind::ALL {
        let (ours, spin) = (outcome(HYBRID, trace, 1), outcome(SPIN, trace, 1));
        let ratio = ours.latency / spin.latency;
        assert!(ratio <= 1.05, "{}: {ratio}", trace.name());
        assert!(ours.longest_idle_sleep <= IDLE_SLEEP_MAX + 10 * MACHINE.late, "{}", trace.name());
    }
}

#[test]
fn predictable_traces_save_most_cpu_time() {
    let cpu = |rule, trace| outcome(rule, trace, 1).cpu;
    assert!(cpu(HYBRID, TraceKind::Constant) < 35.0);
    assert!(cpu(HYBRID, TraceKind::Drifting) < 40.0);
    assert!(cpu(HYBRID, TraceKind::Pausing) < 35.0);
    // Half of the minimum comes to a sleep of only a quarter of the run time.
    assert!(cpu(RuleKind::HalfMinimum, TraceKind::Constant) > 65.0);
    for trace in TraceKind::ALL {
        assert!(cpu(HYBRID, trace) <= cpu(SPIN, trace) + 0.1, "{}", trace.name());
    }
}

#[test]
fn hybrid_is_never_slower_than_blocking() {
    for (trace, depth) in TraceKind::ALL.into_iter().flat_map(|t| [1, 8, 64].map(|d| (t, d))) {
        let block = outcome(RuleKind::Ours(Policy::Block), trace, depth);
        for policy in [Policy::Hybrid, Policy::Adaptive] {
            let ours = outcome(RuleKind::Ours(policy), trace, depth);
            let ratio = ours.iops / block.iops;
            assert!(ratio >= 0.97, "{policy:?} {} {depth}: {ratio}", trace.name());
        }
    }
}

#[test]
fn at_depth_hybrid_keeps_the_throughput_of_polling() {
    for trace in TraceKind::ALL {
        let (ours, spin) = (outcome(HYBRID, trace, 64), outcome(SPIN, trace, 64));
        let ratio = ours.iops / spin.iops;
        assert!(ratio >= 0.98, "{}: {ratio}", trace.name());
    }
}

/// A machine with the sleep costs of a virtual machine.
const DEAR: Machine = Machine { late: 40_000, cpu: 35_000, submit: 500 };

fn dear(policy: Policy, trace: TraceKind, depth: usize, ios: usize) -> Outcome {
    let rule = RuleKind::Ours(policy);
    run(&mut *rule.rule(DEAR, depth), &mut Trace::new(trace, 1), DEAR, depth, ios)
}

#[test]
fn a_busy_device_loses_no_throughput() {
    for (trace, cpu) in [(TraceKind::Busy, 25.0), (TraceKind::BusyUneven, 50.0)] {
        let (ours, spin): (Outcome, Outcome) =
            [Policy::Hybrid, Policy::Spin].map(|p| dear(p, trace, 64, 12_000)).into();
        let name = trace.name();
        assert!(ours.iops >= spin.iops * 0.995, "{name}: {} {}", ours.iops, spin.iops);
        assert!(ours.cpu < cpu, "{name}: {}", ours.cpu);
        // The trace's average latency is 1,216 µs.
        let most = 1_216_000 / COALESCE_SHARE + 3 * DEAR.late;
        assert!(ours.longest_idle_sleep < most, "{name}: {}", ours.longest_idle_sleep);
        assert!((ours.p99 as f64) < spin.p99 as f64 + most as f64, "{name}: {}", ours.p99);
    }
}

#[test]
fn a_device_with_gaps_does_not_count_as_busy() {
    for (trace, depth) in TraceKind::ALL.into_iter().flat_map(|t| [64, 88].map(|d| (t, d))) {
        let (ours, spin): (Outcome, Outcome) =
            [Policy::Hybrid, Policy::Spin].map(|p| dear(p, trace, depth, 6_000)).into();
        let ratio = ours.iops / spin.iops;
        assert!(ratio >= 0.985, "{} {depth}: {ratio}", trace.name());
    }
}

#[test]
fn a_pause_does_not_change_the_estimate() {
    let (ours, theirs) =
        (outcome(HYBRID, TraceKind::Pausing, 1), outcome(RuleKind::Source, TraceKind::Pausing, 1));
    assert!(ours.longest_idle_sleep < 100_000, "{}", ours.longest_idle_sleep);
    assert!(theirs.longest_idle_sleep > trace::PAUSE / 4, "{}", theirs.longest_idle_sleep);
    let (paused, not) = (ours.cpu, outcome(HYBRID, TraceKind::Constant, 1).cpu);
    assert!((paused - not).abs() < 3.0, "{paused} {not}");
}

/// Half of the mean is longer than the quick requests take if run times differ: they lie unseen.
#[test]
fn half_of_the_mean_is_late_for_quick_requests() {
    let mean = |trace| outcome(RuleKind::HalfMean, trace, 1);
    for trace in [TraceKind::Bimodal, TraceKind::HeavyTail] {
        let (ours, theirs, name) = (outcome(HYBRID, trace, 1), mean(trace), trace.name());
        let (us, they) = (ours.unseen, theirs.unseen);
        assert!(they > 3.0 * us && they > 1_500.0, "{name}: {us} {they}");
        assert!(theirs.latency > ours.latency, "{name}: {} {}", ours.latency, theirs.latency);
    }
    // If run times do not differ, nothing lies unseen, and half of the processor time is gone.
    let (ours, theirs) = (outcome(HYBRID, TraceKind::Constant, 1), mean(TraceKind::Constant));
    assert!(theirs.unseen == 0.0 && theirs.cpu > 40.0 && ours.cpu < 35.0, "{theirs:?}");
    let spin = outcome(SPIN, TraceKind::Bimodal, 1).latency;
    assert!(mean(TraceKind::Bimodal).latency > 1.05 * spin, "{spin}");
}
