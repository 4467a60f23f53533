//! A program that works under the library until the value is dropped.

use super::{ME, softring, text};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that submits NOPs; it is ended with this value.
pub struct Load(Child);

impl Load {
    pub fn start(options: &[&str]) -> Load {
        Load::with_flags(options, 0)
    }

    /// Starts `program`, which is another name of the command.
    pub fn named(program: &Path) -> Load {
        Load::program(program, &[], 0)
    }

    pub fn with_flags(options: &[&str], setup_flags: u32) -> Load {
        Load::program(Path::new(ME), options, setup_flags)
    }

    fn program(program: &Path, options: &[&str], setup_flags: u32) -> Load {
        let mut c = Command::new(ME);
        c.args(["run", "--engine=user", "--quiet"]).args(options);
        // `bench` starts the same for one measurement, with the job on its standard input.
        c.arg("--").arg(program).arg("worker").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = c.spawn().expect("softring starts");
        let stdin = child.stdin.take().expect("a pipe");
        serde_json::to_writer(stdin, &job(60.0, setup_flags)).expect("a job");
        Load(child)
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a job of NOPs on one ring for so many seconds.
pub fn job(seconds: f64, setup_flags: u32) -> Value {
    json!({
        "driver": "softring", "op": "nop", "path": "", "size": 0, "bs": 4096, "depth": 8,
        "batch": 8, "wait": 1, "threads": 1, "pool_threads": 1, "seconds": seconds, "warmup": 0.0,
        "rw": "read", "rwmix": 0, "direct": false, "setup_flags": setup_flags, "slat": false,
        "verify": false, "seed": 0, "once": false,
    })
}

/// Waits until `there` accepts the statistics of a process, and returns them.
pub fn wait_for(pid: &str, there: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let o = softring(&["stats", "-p", pid, "--json"]);
        let seen: Option<Value> = serde_json::from_slice(&o.stdout).ok();
        if let Some(page) = seen.filter(|p| there(p)) {
            return page;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{}", text(&o.stderr));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the load submits, so that what comes next finds it at work.
pub fn at_work(load: &Load) {
    wait_for(&load.pid(), |p| p[0]["rings"][0]["submitted"].as_u64() > Some(0));
}
