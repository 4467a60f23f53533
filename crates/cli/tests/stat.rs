//! Tests of `softring stat` on programs that run under the library; without that library next to
//! the executable a test says that it was skipped.

mod common;

use common::load::{Load, at_work, job};
use common::{ME, library, softring, text};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `softring stat ARGS -- CMD`, with a job for `softring worker` on standard input.
fn stat(args: &[&str], command: &[&str]) -> Output {
    let mut c = Command::new(ME);
    c.arg("stat").args(args).arg("--").args(command);
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = c.spawn().unwrap();
    // A program that does not want the job closes its input.
    let _ = child.stdin.take().unwrap().write_all(job(0.3, 0).to_string().as_bytes());
    child.wait_with_output().unwrap()
}

const USER: [&str; 2] = ["--engine=user", "--quiet"];

#[test]
fn a_program_whose_summary_could_not_be_written_is_not_started() {
    let o = stat(&["-o", "/no/such/folder/file"], &["echo", "started"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(o.stdout.is_empty() && text(&o.stderr).contains("hint: "), "{}", text(&o.stderr));
}

#[test]
fn a_summary_follows_the_program() {
    if !library() {
        return;
    }
    let o = stat(&USER, &[ME, "worker"]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let report: Value = serde_json::from_slice(&o.stdout).expect("the program's own output");
    assert!(report["ios"].as_u64() > Some(0));
    let told = text(&o.stderr);
    for part in ["Rings of '", "requests  ", "100.00 %", "nop: ", "seconds elapsed", "seconds user"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.contains(": count     distribution") && told.contains("|****"), "{told}");
}

/// A program that chooses its rings itself gets softring's, as with `trace`.
#[test]
fn the_program_gets_softring_rings() {
    if !library() {
        return;
    }
    let o = stat(&[], &[ME, "worker"]);
    let told = text(&o.stderr);
    assert!(o.status.success() && told.contains("100.00 %"), "{told}");
    // NOPs move no bytes.
    assert!(!told.contains("bytes ") && !told.contains("B/s"), "{told}");
    let o = stat(&["--engine=kernel"], &["true"]);
    assert!(o.status.code() == Some(2) && text(&o.stderr).contains("leave --engine out"));
}

#[test]
fn a_program_can_be_run_more_than_once() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, load) = (dir.path().join("summary"), dir.path().join("job"));
    std::fs::write(&load, job(0.1, 0).to_string()).unwrap();
    let one = format!("{ME} worker < {} > /dev/null", load.display());
    let o = stat(&["-q", "-r", "3"], &["sh", "-c", &one]);
    let told = text(&o.stderr);
    assert!(o.status.success() && told.contains("(3 runs)"), "{told}");
    let spread = |name: &str| {
        let line = told.lines().find(|l| l.contains(name)).expect(name);
        line.contains("( +- ") && line.ends_with("% )")
    };
    assert!(spread("  requests ") && spread(" seconds elapsed") && spread("  nop"), "{told}");
    let args = ["-q", "-r", "2", "--json", "-o", file.to_str().unwrap()];
    assert!(stat(&args, &["sh", "-c", &one]).status.success());
    let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).expect("JSON");
    assert_eq!((told["runs"].as_u64(), told["processes"].as_array().unwrap().len()), (Some(2), 2));
    // The first run that fails is the last.
    let count = dir.path().join("count");
    let fails = format!("echo >> {}; exit 5", count.display());
    assert_eq!(stat(&["-q", "-r", "3"], &["sh", "-c", &fails]).status.code(), Some(5));
    assert_eq!(std::fs::read(count).unwrap(), b"\n");
}

#[test]
fn intervals_are_printed_while_the_program_runs() {
    if !library() {
        return;
    }
    let o = stat(&["-q", "-I", "100"], &[ME, "worker"]);
    let told = text(&o.stderr);
    assert!(o.status.success(), "{told}");
    let (stretches, end) = told.split_once(" Rings of '").expect("a summary");
    let requests = |text: &str| -> u64 {
        let lines = text.lines().filter(|l| l.contains("  requests "));
        let number = |l: &str| {
            let words: Vec<&str> = l.split_whitespace().collect();
            let at = words.iter().position(|w| *w == "requests").expect("the word");
            words[at - 1].replace(',', "").parse::<u64>().expect("a number")
        };
        lines.map(number).sum()
    };
    let times: Vec<f64> = stretches
        .lines()
        .filter(|l| l.contains("  requests "))
        .map(|l| l.split_whitespace().next().unwrap().parse().expect("a time"))
        .collect();
    assert!(times.len() >= 2 && times.is_sorted() && times[0] >= 0.1, "{told}");
    assert!(requests(stretches) > 0 && requests(stretches) <= requests(end), "{told}");
    assert!(!stretches.contains("bytes"), "{told}");
    // Stretches are told of a running process, too, and into a file.
    let load = Load::start(&[]);
    at_work(&load);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out").display().to_string();
    let o = softring(&["stat", "-p", &load.pid(), "--seconds", "0.5", "-I", "100", "-o", &file]);
    assert!(o.status.success() && o.stdout.is_empty(), "{}", text(&o.stderr));
    let told = std::fs::read_to_string(&file).unwrap();
    assert!(
        told.matches("  requests ").count() >= 4 && told.contains(" Rings of process"),
        "{told}"
    );
}

#[test]
fn children_count_and_programs_can_read_it() {
    if !library() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("summary");
    let args = [&USER[..], &["--json", "-o", file.to_str().unwrap()]].concat();
    let both = format!("{ME} worker <<<'{}' & {ME} worker; wait", job(0.3, 0));
    let o = stat(&args, &["bash", "-c", &both]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    assert!(o.stderr.is_empty(), "{}", text(&o.stderr));
    let told: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).expect("JSON");
    let processes = told["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{told}");
    let ended = |p: &Value| {
        p["ended"]["submitted"].as_u64().unwrap() + p["rings"][0]["submitted"].as_u64().unwrap_or(0)
    };
    let sum: u64 = processes.iter().map(ended).sum();
    assert_eq!(told["total"]["submitted"].as_u64(), Some(sum));
    assert!(told["total"]["latency"]["nop"]["p99_ns"].as_u64() > Some(0), "{told}");
}

/// Returns the number of processes that are reported when a script has run.
fn processes_reported(script: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("summary");
    let args = [&USER[..], &["--json", "-o", file.to_str().unwrap()]].concat();
    let o = stat(&args, &["bash", "-c", script]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let told: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).expect("JSON");
    let processes = told["processes"].as_array().unwrap();
    assert!(processes.iter().all(|p| p["command"] == "softring"), "{told}");
    assert_eq!(told["missed_processes"], 0, "{told}");
    processes.len() + told["ended_processes"].as_u64().unwrap() as usize
}

#[test]
fn none_is_missed_however_short_it_lives() {
    if !library() {
        return;
    }
    let short = format!("{ME} worker <<<'{}' >/dev/null", job(0.001, 0));
    // There are more pages than `stat` keeps open.
    assert_eq!(processes_reported(&format!("for i in {{1..90}}; do {short}; done")), 90);
    // Grandchildren run side by side.
    assert_eq!(
        processes_reported(&format!(
            "for i in {{1..20}}; do ({short} & {short}; wait) & done; wait"
        )),
        40
    );
    // A process has a page in each program that it becomes.
    let becomes = format!("{short}; exec {short}");
    assert_eq!(processes_reported(&format!("bash -c \"{}\"", becomes.replace('"', "\\\""))), 2);
}

/// The hard limit is as low, so that `stat` cannot take more, and all processes run at once.
#[test]
fn few_descriptors_are_enough() {
    if !library() {
        return;
    }
    const PROCESSES: u64 = 120;
    let dir = tempfile::tempdir().unwrap();
    let ios = |i: u64| dir.path().join(format!("ios.{i}"));
    let worker = format!("{ME} worker <<<'{}' >{}", job(1.5, 0), ios(0).display());
    let worker = worker.replace("ios.0", "ios.$i");
    let file = dir.path().join("summary");
    let script = format!("for i in {{1..{PROCESSES}}}; do {worker} & done; wait");
    let o = Command::new("bash")
        .args(["-c", "ulimit -n 40; exec \"$@\"", "bash", ME, "stat", "--engine=user", "--quiet"])
        .args(["--json", "-o", file.to_str().unwrap(), "--", "bash", "-c", &script])
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", text(&o.stderr));
    let told: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).expect("JSON");
    let listed = told["processes"].as_array().unwrap().len() as u64;
    assert_eq!(listed + told["ended_processes"].as_u64().unwrap(), PROCESSES);
    assert_eq!(told["missed_processes"], 0, "{}", text(&o.stderr));
    // Each process has counted its requests itself. No counts were taken before the process had
    // ended.
    let counted = (1..=PROCESSES).map(|i| {
        let report = std::fs::read(ios(i)).unwrap();
        serde_json::from_slice::<Value>(&report).unwrap()["ios"].as_u64().unwrap()
    });
    let (counted, total) = (counted.sum::<u64>(), told["total"]["submitted"].as_u64().unwrap());
    assert!(0 < counted && counted <= total, "{total} of {counted}");
}

#[test]
fn killed_processes_count() {
    if !library() {
        return;
    }
    let load = format!("{ME} worker <<<'{}'", job(60.0, 0));
    assert_eq!(processes_reported(&format!("{load} & sleep 0.5; kill -9 $!; wait; exit 0")), 1);
}

#[test]
fn stat_ends_with_the_programs_status() {
    if !library() {
        return;
    }
    let o = stat(&USER, &["sh", "-c", "exit 7"]);
    assert_eq!(o.status.code(), Some(7));
    // The report does not say that there was no ring: a process that cannot reach `stat` may have
    // ended before it is searched for.
    let told = text(&o.stderr);
    assert!(
        told.contains("softring saw none of its rings") && told.contains("namespace"),
        "{told}"
    );
    let o = stat(&USER, &["sh", "-c", "kill -9 $$"]);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&o.status), Some(9));
    assert_eq!(softring(&["stat"]).status.code(), Some(2));
    assert_eq!(softring(&["stat", "-p", "999999999"]).status.code(), Some(1));
}

#[test]
fn a_running_process_is_watched() {
    if !library() {
        return;
    }
    let load = Load::start(&[]);
    at_work(&load);
    let o = softring(&["stat", "-p", &load.pid(), "--seconds", "0.3", "--json"]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    let told: Value = serde_json::from_slice(&o.stdout).expect("JSON");
    let submitted = |v: &Value| v["submitted"].as_u64().unwrap();
    // Requests from before the watch do not count.
    let all = submitted(&told["processes"][0]["rings"][0]);
    let mine = submitted(&told["total"]);
    assert!(0 < mine && mine < all, "{mine} of {all}");
}

/// docs/STATS.md holds what the help tells of it.
#[test]
fn help_and_documents_agree() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/STATS.md");
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(std::fs::read_to_string(page).unwrap());
    let help = words(text(&softring(&["stat", "--help"]).stdout));
    for said in [
        "also grandchildren and short-lived ones",
        "fifty times a second, and may miss processes with a shorter life",
        "from when a request was taken from the",
        "to when its CQE was written",
        "one request in 509",
        "does not include the time in the queue before that",
    ] {
        let lower = |text: &str| text.to_lowercase().contains(&said.to_lowercase());
        assert!(lower(&help), "the help lacks: {said}");
        assert!(lower(&page), "docs/STATS.md lacks: {said}");
    }
}
