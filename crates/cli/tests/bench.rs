//! Tests of `softring bench` and its worker, with whatever this machine allows.

mod common;

use common::{library, softring, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const SHORT: [&str; 8] = [
    "bench",
    "--seconds=0.1",
    "--warmup=0.01",
    "--pairs=2",
    "--size=1m",
    "--depth=4",
    "--json",
    "--verify",
];

fn short(more: &[&str]) -> Value {
    let o = softring(&[&SHORT, more].concat());
    assert!(o.status.success(), "{more:?}: {}", text(&o.stderr));
    serde_json::from_slice(&o.stdout).expect("JSON")
}

/// Runs an operation other than reads and writes: an option that it does not heed is an error.
fn brief(op: &str, more: &[&str]) -> Value {
    let (timed, compared) = (["--seconds=0.1", "--warmup=0.01"], ["--pairs=2"]);
    let op_is = |names: &[&str]| names.contains(&op);
    let mut args = vec!["bench", "--json", "--op", op];
    if op_is(&["nop", "setup", "echo", "poll", "msg-ring", "futex"]) {
        args.extend(timed);
    }
    if !op_is(&["idle", "idle-sockets"]) {
        args.extend(compared);
    }
    if op_is(&["echo", "idle-sockets"]) {
        args.push("--connections=8");
    } else {
        args.push("--depth=4");
    }
    if op.starts_with("timeout") {
        args.push("--count=200");
    }
    args.extend(more);
    let o = softring(&args);
    assert!(o.status.success(), "{args:?}: {}", text(&o.stderr));
    serde_json::from_slice(&o.stdout).expect("JSON")
}

#[track_caller]
fn fails(args: &[&str], code: i32, part: &str) {
    let o = softring(args);
    assert_eq!(o.status.code(), Some(code), "{args:?}: {}", text(&o.stderr));
    assert!(text(&o.stderr).contains(part), "{args:?}: {}", text(&o.stderr));
}

fn kernel_ring() -> bool {
    let o = softring(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&o.stdout).unwrap();
    report["checks"][0]["state"] == "ok"
}

#[test]
fn every_engine_without_a_ring_measures_and_verifies() {
    let result = short(&["--engines=pool,posix-aio,libaio,calls", "--rw=randrw", "--deny"]);
    let engines = result["engines"].as_array().unwrap();
    let skipped = result["skipped"].as_array().unwrap();
    assert_eq!(engines.len() + skipped.len(), 4, "{result}");
    for e in engines {
        assert_eq!(e["runs"].as_array().unwrap().len(), 2);
        for run in e["runs"].as_array().unwrap() {
            assert!(run["ios"].as_u64().unwrap() > 0, "{run}");
            assert!(run["verified"].as_u64().unwrap() > 0, "{run}");
            assert!(run["lat"]["p50"].as_u64() <= run["lat"]["p99"].as_u64());
        }
    }
    assert!(engines[0]["iops_ratio"].is_null() && engines[1]["iops_ratio"]["median"].is_number());
}

#[test]
fn plain_calls_do_what_user_space_must() {
    for op in ["poll", "msg-ring", "futex", "setup"] {
        let result = brief(op, &["--engines=calls", "--deny"]);
        let run = &result["engines"][0]["runs"][0];
        assert!(run["ios"].as_u64().unwrap() > 0 && run["ring"].is_null(), "{op}: {run}");
    }
    fails(&["bench", "--engines=calls", "--op=nop"], 2, "none of these engines supports --op nop");
}

#[test]
fn the_kernels_ring_measures_and_verifies() {
    if !kernel_ring() {
        skipped!("the kernel's io_uring is denied here");
        return;
    }
    for flags in
        ["--setup-flags=SINGLE_ISSUER,DEFER_TASKRUN", "--setup-flags=SQE128,CQE32", "--slat"]
    {
        let result = short(&["--engines=kernel", "--rw=randrw", "--threads=2", flags]);
        let run = &result["engines"][0]["runs"][0];
        assert!(run["verified"].as_u64().unwrap() > 0, "{run}");
        assert_eq!(run["slat"].is_object(), flags == "--slat");
        assert!(run["ring"].as_str().unwrap().starts_with("anon_inode"), "{run}");
    }
    for op in ["nop", "setup", "idle"] {
        let result = brief(op, &["--engines=kernel"]);
        let run = &result["engines"][0]["runs"][0];
        assert!(run["ios"].as_u64().unwrap() > 0 || run["idle"]["rings"] == 64, "{run}");
    }
    wakes("kernel");
}

/// Measures the operations that wait for a wake-up, on `engine`.
fn wakes(engine: &str) {
    let engine = format!("--engines={engine}");
    for op in ["poll", "msg-ring", "futex", "timeout-add", "timeout-cancel", "timeout-expire"] {
        let result = brief(op, &[&engine]);
        let run = &result["engines"][0]["runs"][0];
        assert!(run["ios"].as_u64().unwrap() > 0, "{op}: {run}");
    }
    for how in [&[][..], &["--multishot"]] {
        let result = brief("echo", &[&[&*engine], how].concat());
        let run = &result["engines"][0]["runs"][0];
        assert!(
            run["ios"].as_u64().unwrap() > 0 && run["lat"]["p50"].as_u64().unwrap() > 0,
            "{run}"
        );
    }
    let result = brief("idle-sockets", &[&engine]);
    let run = &result["engines"][0]["runs"][0];
    assert_eq!(run["waiting"]["requests"], 7, "{run}");
}

/// Measures reads, NOPs and messages on rings with an SQ thread.
fn threads(engine: &str) {
    let engine = format!("--engines={engine}");
    let how = [&*engine, "--setup-flags=SQPOLL"];
    let reads = |more: &[&str]| short(&[&how, more].concat());
    for result in [
        reads(&["--rw=randrw"]),
        reads(&["--rw=read", "--slat"]),
        brief("nop", &how),
        brief("msg-ring", &how),
    ] {
        let run = &result["engines"][0]["runs"][0];
        assert!(run["ios"].as_u64().unwrap() > 0, "{result}");
    }
    let result = brief("idle", &[&engine, "--setup-flags=SQPOLL,SQ_AFF"]);
    assert_eq!(result["engines"][0]["runs"][0]["idle"]["rings"], 64, "{result}");
}

#[test]
fn sqpoll_rings_are_measured() {
    if kernel_ring() {
        threads("kernel");
    } else {
        skipped!("the kernel's io_uring is denied here");
    }
    if library() {
        threads("softring");
    }
}

#[test]
fn unsupported_setup_flags_are_refused() {
    let cases = [
        ("CQSIZE", "--depth"),
        ("ATTACH_WQ", "leave this flag out"),
        ("R_DISABLED", "enable"),
        ("NO_MMAP", "maps"),
        ("NO_MMAP,REGISTERED_FD_ONLY", "maps"),
        ("SQ_AFF", "add SQPOLL"),
        ("HYBRID_IOPOLL", "add IOPOLL"),
        ("DEFER_TASKRUN", "add SINGLE_ISSUER"),
        ("TASKRUN_FLAG", "add COOP_TASKRUN or DEFER_TASKRUN"),
        ("SQPOLL,COOP_TASKRUN", "leave one of them out"),
        ("CQE32,CQE_MIXED", "leave one of them out"),
        ("IOPOLL", "add --direct"),
    ];
    for (flags, part) in cases {
        fails(&["bench", "--engines=softring", "--setup-flags", flags], 2, part);
    }
    let polled = ["bench", "--setup-flags=IOPOLL", "--op=poll"];
    fails(&polled, 2, "leave IOPOLL out");
}

#[test]
fn an_echo_server_on_epoll_measures() {
    let result = brief("echo", &["--engines=epoll,pool", "--bs=64"]);
    assert!(result["engines"][0]["runs"][0]["ios"].as_u64().unwrap() > 0, "{result}");
    assert_eq!(result["skipped"][0]["engine"], "pool");
}

#[test]
fn wake_benchmarks_run_on_softring() {
    if !library() {
        return;
    }
    wakes("softring");
}

#[test]
fn loads_that_cannot_run_are_skipped() {
    let me = env!("CARGO_BIN_EXE_softring");
    let denied = |engines: &str| {
        let args = [&["deny", "--", me], &SHORT[..], &[engines]].concat();
        softring(&args)
    };
    let o = denied("--engines=kernel,pool");
    let result: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!(result["skipped"][0]["engine"], "kernel");
    assert_eq!(result["engines"][0]["engine"], "pool");
    let o = denied("--engines=kernel");
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
}

#[test]
fn a_drawing_and_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("o.svg").display().to_string();
    let args =
        ["bench", "--seconds=0.05", "--pairs=1", "--size=1m", "--engines=pool", "--plot", &svg];
    let o = softring(&args);
    assert!(o.status.success(), "{}", text(&o.stderr));
    assert!(text(&o.stdout).contains("IOPS"), "{}", text(&o.stdout));
    assert!(o.stderr.is_empty(), "no progress in a pipe: {}", text(&o.stderr));
    assert!(fs::read_to_string(&svg).unwrap().contains("</svg>"));
}

#[test]
fn impossible_measurements_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data").display().to_string();
    fs::write(&file, vec![1; 8192]).unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["--file", "/no/such/file"], "cannot open"),
        (&["--device", &file], "not a block device"),
        (&["--file", &file, "--rw=randwrite"], "--overwrite"),
        (&["--file", &file, "--bs=1m"], "less than one block"),
        (&["--batch=64", "--depth=8"], "--depth"),
        (&["--direct", "--bs=100"], "multiple of 512"),
        (&["--dir", "/no/such/dir"], "--dir"),
    ];
    for (options, part) in cases {
        fails(&[&["bench", "--engines=pool"], options].concat(), 2, part);
    }
    assert_eq!(fs::read(&file).unwrap(), vec![1; 8192], "untouched");
    fails(&["bench", "--engines=pool", "--op=nop"], 2, "--engines kernel, softring");
    fails(&["bench", "--engines=epoll"], 2, "epoll is for --op echo");
    for path in ["/no/such/folder/o.svg", "/"] {
        let long = ["bench", "--engines=pool", "--seconds=3600", "--plot", path];
        fails(&long, 2, "cannot write the drawing");
    }
    let polled = ["bench", "polled", "--seconds=3600", "--plot", "/no/such/folder/o.svg"];
    fails(&polled, 2, "cannot write the drawing");
}

#[test]
fn options_without_effect_are_refused() {
    let for_rw = ["--direct", "--verify", "--rw=read", "--size=1m", "--slat", "--dir=/tmp"];
    for option in for_rw {
        fails(&["bench", "--op=nop", option], 2, "it applies to --op rw");
    }
    let cases: [&[&str]; 10] = [
        &["--op=nop", "--bs=512"],
        &["--op=nop", "--multishot"],
        &["--op=nop", "--connections=4"],
        &["--op=idle", "--pairs=3"],
        &["--rw=randread", "--multishot"],
        &["--overwrite"],
        &["--file=/dev/null", "--dir=/tmp"],
        &["--rw=read", "--rwmix=50"],
        &["--pool-threads=4"],
        &["--engines=pool", "--setup-flags=CLAMP"],
    ];
    for options in cases {
        fails(&[&["bench"], options].concat(), 2, "leave the option out");
    }
}

/// The worker runs by itself: a job in, a report or an error out.
#[test]
fn wrong_data_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zeros").display().to_string();
    fs::write(&file, vec![0; 65536]).unwrap();
    let job = format!(
        r#"{{"driver":"pool","op":"rw","path":"{file}","size":65536,"bs":4096,"depth":2,"batch":2,
        "wait":1,"threads":1,"pool_threads":2,"seconds":0.1,"warmup":0,"rw":"read","rwmix":70,
        "direct":false,"setup_flags":0,"slat":false,"verify":true,"seed":1,"once":true}}"#
    );
    let run = |input: &str| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_softring"));
        c.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = c.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let o = run(&job);
    assert_eq!(o.status.code(), Some(1));
    assert!(text(&o.stderr).contains("wrong data at byte"), "{}", text(&o.stderr));
    assert_eq!(run("{}").status.code(), Some(2));
    let o = run(&job.replace(r#""verify":true"#, r#""verify":false"#));
    let report: Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!((&report["ios"], &report["bytes"]), (&16.into(), &65536.into()));
}

#[test]
fn reissue_measures_four_lines_of_two_streams() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("reissue.svg");
    let drawn = svg.to_str().unwrap();
    let few = ["--reads=20", "--seconds=0.05", "--json", "--plot", drawn];
    let o = softring(&[&["bench", "reissue"], &few[..]].concat());
    assert!(o.status.success(), "{}", text(&o.stderr));
    let v: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert_eq!((v["reads"].as_u64(), v["bytes"].as_u64()), (Some(20), Some(1024)));
    let streams = v["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 2);
    for (stream, name) in streams.iter().zip(["tcp", "pipe"]) {
        assert_eq!(stream["stream"], name);
        let lines = stream["lines"].as_array().unwrap();
        assert_eq!(lines.len(), 4);
        for l in lines {
            let [min, p50, max] = ["min", "p50", "max"].map(|k| l[k].as_u64().unwrap());
            assert!(0 < min && min <= p50 && p50 <= max, "{l}");
        }
        assert_eq!(stream["shares"].as_array().unwrap().len(), 2);
    }
    let drawing = fs::read_to_string(&svg).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("ready at arm, reissued"));
    fails(&["bench", "reissue", "--bytes=8192"], 2, "--bytes");
    fails(&["bench", "--op=nop", "reissue"], 2, "reissue");
}

#[test]
fn sqpoll_measures_the_thread_that_submits() {
    if !library() {
        return;
    }
    let few = ["--rates=2000,0", "--sides=spin,sleep,no-stats", "--pairs=1", "--seconds=0.2"];
    let more = ["--warmup=0.1", "--size=1m", "--depth=8", "--json"];
    let o = softring(&[&["bench", "sqpoll"], &few[..], &more[..]].concat());
    assert!(o.status.success(), "{}", text(&o.stderr));
    let v: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let rows = v["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for (row, side) in rows.iter().zip(["spin", "sleep", "no-stats"].iter().cycle()) {
        assert_eq!(row["side"], *side);
        assert!(row["iops"].as_f64() > Some(0.0) && row["p99_ns"].as_f64() > Some(0.0), "{row}");
        assert!((0.0..=110.0).contains(&row["sq_thread_cpu"].as_f64().unwrap()), "{row}");
    }
    // The limit of a sleep is measured for each rate that has gaps.
    let sleeps = v["sleeps"].as_array().unwrap();
    assert!(sleeps.len() == 1 && sleeps[0]["rate"] == 2000, "{sleeps:?}");
    assert!(sleeps[0]["floor_percent"].as_f64() > Some(0.0), "{sleeps:?}");
    fails(&["bench", "sqpoll", "--sides=nobody"], 2, "nobody");
}

/// Every rule runs on every trace and depth, and the result is drawn.
#[test]
fn sleep_rules_are_simulated() {
    const RULES: [&str; 7] =
        ["spin", "block", "hybrid", "adaptive", "minimum/2", "source", "mean/2"];
    const TRACES: [&str; 9] = [
        "constant",
        "bimodal",
        "heavy tail",
        "drifting",
        "pausing",
        "busy",
        "busy, uneven",
        "eight units",
        "pipeline",
    ];
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("hybrid.svg");
    let plot = format!("--plot={}", svg.display());
    let simulate = ["bench", "hybrid", "--simulate", "--ios=2000", "--depths=1,8"];
    let o = softring(&[&simulate[..], &["--json", &plot]].concat());
    assert!(o.status.success(), "{}", text(&o.stderr));
    let result: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let tables = result["tables"].as_array().unwrap();
    let named = tables.iter().map(|t| (t["trace"].as_str().unwrap(), t["depth"].as_u64().unwrap()));
    let all = TRACES.into_iter().flat_map(|t| [(t, 1), (t, 8)]);
    assert_eq!(named.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    for table in tables {
        let rows = table["rows"].as_array().unwrap();
        let names: Vec<_> = rows.iter().map(|r| r["rule"].as_str().unwrap()).collect();
        assert_eq!(names, RULES, "{}", table["trace"]);
        let number = |rule: usize, key: &str| rows[rule][key].as_f64().unwrap();
        assert!((number(0, "latency_ratio") - 1.0).abs() < 1e-9, "{table}");
        assert!((0..7).all(|r| number(r, "iops") > 0.0 && number(r, "cpu_percent") <= 100.1));
        // The rule that blocks sleeps for each request, and the rule that spins for none.
        assert!(
            number(0, "idle_sleeps") < 1.0 && number(1, "cpu_percent") < number(0, "cpu_percent")
        );
    }
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("<svg") && drawn.contains("mean/2") && drawn.contains("depth 8"));
    let plain = softring(&simulate);
    let again = softring(&simulate);
    assert!(plain.status.success() && plain.stdout == again.stdout, "by the seed alone");
    let shown = text(&plain.stdout);
    assert!(RULES.iter().chain(&TRACES).all(|word| shown.contains(word)), "{shown}");
    fails(&["bench", "hybrid"], 2, "--simulate");
}
