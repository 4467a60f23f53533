//! Pages in the text form of Prometheus, for node_exporter's textfile collector and its like.
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>, "Text-based format";
//! names and units as in its "Metric and label naming".

use super::json::Meter;
use super::pages::{Reading, op_name};
use softring_engine::stats::{OPS, bounds, read};
use std::fmt::Write;

/// One metric: its lines must stand together, so they are collected by metric.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

/// Labels of a sample, as `name="value"` pairs with commas between.
#[derive(Clone)]
struct Labels(String);

impl Labels {
    fn and(&self, name: &str, value: impl ToString) -> Labels {
        let value = value.to_string();
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let comma = if self.0.is_empty() { "" } else { "," };
        Labels(format!("{}{comma}{name}=\"{value}\"", self.0))
    }
}

impl Metric {
    fn add(&mut self, labels: &Labels, value: impl std::fmt::Display) {
        let _ = writeln!(self.samples, "{}{{{}}} {value}", self.name, labels.0);
    }

    fn histogram(&mut self, labels: &Labels, l: &read::Latencies) {
        let mut below = 0u64;
        let mut counts = l.buckets.iter().enumerate().peekable();
        for end in LE.map(|shift| 1u64 << shift) {
            while let Some((_, &n)) = counts.next_if(|(bucket, _)| bounds(*bucket).1 <= end) {
                below = below.saturating_add(n);
            }
            let labels = labels.and("le", seconds(end));
            let _ = writeln!(self.samples, "{}_bucket{{{}}} {below}", self.name, labels.0);
        }
        let all = labels.and("le", "+Inf");
        let _ = writeln!(self.samples, "{}_bucket{{{}}} {}", self.name, all.0, l.count());
        let _ = writeln!(self.samples, "{}_sum{{{}}} {}", self.name, labels.0, seconds(l.sum_ns));
        let _ = writeln!(self.samples, "{}_count{{{}}} {}", self.name, labels.0, l.count());
    }
}

/// Bounds of the histogram's buckets, as powers of two ns: every other octave, from 128 ns to 34 s.
const LE: [u32; 15] = [7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35];

/// Formats an exact decimal number of seconds.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Every metric, in the order in which it is shown.
const METRICS: [(&str, &str, &str); 22] = [
    ("softring_rings", "gauge", "Open rings."),
    ("softring_requests_total", "counter", "SQEs taken, by operation."),
    ("softring_request_errors_total", "counter", "Requests that failed, by operation."),
    ("softring_completions_total", "counter", "CQEs posted to the completion queue."),
    ("softring_overflows_total", "counter", "CQEs that overflowed the completion queue."),
    ("softring_enters_total", "counter", "Calls of io_uring_enter that submitted SQEs."),
    ("softring_read_bytes_total", "counter", "Bytes that reads and receives returned."),
    ("softring_written_bytes_total", "counter", "Bytes that writes and sends transferred."),
    ("softring_in_flight_requests", "gauge", "Requests in flight: taken and not completed."),
    ("softring_routed_requests_total", "counter", "Requests by their first route."),
    ("softring_reissue_steps_total", "counter", "Attempts on pollable files, by outcome."),
    ("softring_idle_sleeps_total", "counter", "Sleeps of threads that poll."),
    ("softring_idle_sleeps_in_vain_total", "counter", "Sleeps that ended too early."),
    ("softring_idle_sleep_seconds_total", "counter", "Time that polling threads spent asleep."),
    ("softring_spin_seconds_total", "counter", "Time that polling threads spent spinning."),
    ("softring_workers", "gauge", "Worker threads, by account and state."),
    ("softring_worker_queue_requests", "gauge", "Requests that wait for a worker."),
    ("softring_thread_cpu_seconds_total", "counter", "Processor time of threads that poll."),
    (
        "softring_thread_work_seconds_total",
        "counter",
        "Processor time of threads that poll, in passes with work.",
    ),
    ("softring_unseen_rings_total", "counter", "Rings that did not fit on the statistics page."),
    (
        "softring_unseen_latencies_total",
        "counter",
        "Latencies of operations that did not fit on the statistics page.",
    ),
    (
        "softring_request_duration_seconds",
        "histogram",
        "Time from taking a request to its completion.",
    ),
];

/// Formats all pages, metric by metric, as the text may be long.
pub fn text(readings: &[Reading]) -> impl Iterator<Item = String> {
    let empty = |(name, kind, help)| Metric { name, kind, help, samples: String::new() };
    let mut metrics = METRICS.map(empty);
    for reading in readings {
        let labels = Labels(String::new()).and("pid", reading.pid);
        let labels = labels.and("command", &reading.command);
        let labels = match &reading.container {
            Some(id) => labels.and("container", id),
            None => labels,
        };
        process(&mut metrics, reading, &labels);
    }
    metrics.into_iter().filter(|m| !m.samples.is_empty()).map(|m| {
        let Metric { name, kind, help, samples } = m;
        let mut text = samples;
        text.insert_str(0, &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        text
    })
}

/// Returns the metric of this name.
fn of<'m>(metrics: &'m mut [Metric], name: &str) -> &'m mut Metric {
    metrics.iter_mut().find(|m| m.name == name).expect("one of METRICS")
}

fn process(metrics: &mut [Metric], p: &Reading, labels: &Labels) {
    let page = &p.page;
    of(metrics, "softring_rings").add(labels, page.rings.len());
    of(metrics, "softring_unseen_rings_total").add(labels, page.unseen_rings);
    of(metrics, "softring_unseen_latencies_total").add(labels, page.unseen_hists);
    // Ended rings stay in the text, so that a sum over all rings never goes back.
    ring(metrics, &page.ended, &labels.and("ring", "ended"));
    for r in &page.rings {
        ring(metrics, r, &labels.and("ring", r.id()));
    }
    let mut pools: Vec<read::Pool> = page.rings.iter().filter_map(|r| r.pool).collect();
    pools.sort_by_key(|pool| pool.slot);
    pools.dedup_by_key(|pool| pool.slot);
    for pool in pools {
        let labels = labels.and("pool", pool.slot);
        for (name, account) in [("bounded", pool.bound), ("unbounded", pool.unbound)] {
            let labels = labels.and("account", name);
            let workers = of(metrics, "softring_workers");
            workers.add(&labels.and("state", "running"), account.running());
            workers.add(&labels.and("state", "idle"), account.idle);
            of(metrics, "softring_worker_queue_requests").add(&labels, account.queued);
        }
    }
    for meter in page.meters.iter().map(|m| Meter::new(p.pid, m)) {
        let labels = labels.and("tid", meter.tid).and("thread", &meter.name);
        let labels = labels.and("kind", meter.kind);
        let [total, work] =
            [meter.total_us, meter.work_us].map(|us| seconds(us.saturating_mul(1000)));
        of(metrics, "softring_thread_cpu_seconds_total").add(&labels, total);
        of(metrics, "softring_thread_work_seconds_total").add(&labels, work);
    }
}

fn ring(metrics: &mut [Metric], r: &read::Ring, labels: &Labels) {
    let mut add = |name: &str, labels: &Labels, n: u64| of(metrics, name).add(labels, n);
    for op in (0..OPS).filter(|&op| r.ops(op) > 0 || r.op_errors(op) > 0) {
        let labels = labels.and("op", op_name(op));
        add("softring_requests_total", &labels, r.ops(op));
        add("softring_request_errors_total", &labels, r.op_errors(op));
    }
    add("softring_completions_total", labels, r.cqes());
    add("softring_overflows_total", labels, r.overflowed());
    add("softring_enters_total", labels, r.enters());
    add("softring_read_bytes_total", labels, r.read_bytes());
    add("softring_written_bytes_total", labels, r.written_bytes());
    if r.id() != 0 {
        add("softring_in_flight_requests", labels, r.in_flight());
    }
    let routes = [
        ("inline", r.inline()),
        ("poll", r.poll()),
        ("aio", r.aio()),
        ("worker", r.worker()),
        ("model", r.model()),
        ("queued", r.queued()),
    ];
    for (route, n) in routes {
        add("softring_routed_requests_total", &labels.and("route", route), n);
    }
    let steps = [
        ("at_once", r.at_once()),
        ("armed", r.armed()),
        ("ready_at_arm", r.ready_at_arm()),
        ("reissued", r.reissued()),
        ("aborted", r.aborted()),
        ("capped", r.capped()),
    ];
    for (step, n) in steps {
        add("softring_reissue_steps_total", &labels.and("step", step), n);
    }
    add("softring_idle_sleeps_total", labels, r.idle_sleeps());
    add("softring_idle_sleeps_in_vain_total", labels, r.idle_sleeps_under());
    of(metrics, "softring_idle_sleep_seconds_total").add(labels, seconds(r.spared_ns()));
    of(metrics, "softring_spin_seconds_total").add(labels, seconds(r.spun_ns()));
    for (&op, l) in r.latencies.iter().filter(|(_, l)| l.count() > 0) {
        let labels = labels.and("op", op_name(op));
        of(metrics, "softring_request_duration_seconds").histogram(&labels, l);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        let cases = [(0, "0"), (128, "0.000000128"), (1_500_000_000, "1.5"), (2_000_000_000, "2")];
        for (ns, want) in cases {
            assert_eq!(seconds(ns), want);
        }
    }

    #[test]
    fn labels_are_quoted() {
        let labels = Labels(String::new()).and("a", "x\"\\\n").and("b", 1);
        assert_eq!(labels.0, r#"a="x\"\\\n",b="1""#);
    }

    #[test]
    fn buckets_add_up() {
        let mut l =
            read::Latencies { sum_ns: 3_000, buckets: vec![0; softring_engine::stats::BUCKETS] };
        (l.buckets[0], l.buckets[60], *l.buckets.last_mut().unwrap()) = (1, 2, 4);
        let mut m = Metric { name: "m", kind: "histogram", help: "", samples: String::new() };
        m.histogram(&Labels("x=\"y\"".into()), &l);
        let lines: Vec<&str> = m.samples.lines().collect();
        assert_eq!(lines[0], "m_bucket{x=\"y\",le=\"0.000000128\"} 1");
        assert_eq!(lines[14], "m_bucket{x=\"y\",le=\"34.359738368\"} 3");
        assert_eq!(lines[15], "m_bucket{x=\"y\",le=\"+Inf\"} 7");
        assert_eq!(lines[16..], ["m_sum{x=\"y\"} 0.000003", "m_count{x=\"y\"} 7"]);
    }
}
