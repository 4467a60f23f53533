//! Programs that are disturbed while their I/O is polled, on modelled disks of all speeds, on the
//! real disk, and on one that stops: nothing is lost, nothing comes twice, nobody hangs.

#![allow(unsafe_code)]

mod common;

use common::{example, under};
use softring_testing::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Folders of the modelled disks, and the options that give the time of a read.
const DISKS: [(&str, &str); 3] =
    [("quick", "latency:80us,jitter:20us"), ("slow", "latency:20ms"), ("still", "latency:300ms")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("disturbed")
}

/// Makes a file of numbered blocks on a disk; none if it cannot be opened with O_DIRECT.
fn file(disk: &str, case: &str) -> Option<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = root().join(disk);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(case);
    let blocks: Vec<u8> = (0..64u8).flat_map(|i| [i; 4096]).collect();
    std::fs::write(&path, blocks).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    match std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(&path) {
        Ok(_) => Some(path),
        Err(e) => {
            skipped!("no O_DIRECT here: {e}");
            None
        }
    }
}

/// Kinds of rings on which the program itself polls, each with a policy.
const POLLERS: [(&str, &str); 9] = [
    ("iopoll", "default"),
    ("iopoll", "hybrid"),
    ("iopoll", "adaptive"),
    ("iopoll", "spin"),
    ("iopoll", "block"),
    ("plain", "default"),
    ("plain", "hybrid"),
    ("plain", "adaptive"),
    ("plain", "spin"),
];

/// Kinds of rings with an SQ thread, each with a policy.
const THREADS: [(&str, &str); 5] = [
    ("sqpoll", "default"),
    ("sqpoll", "hybrid"),
    ("sqpoll-iopoll", "default"),
    ("sqpoll-iopoll", "hybrid"),
    ("sqpoll-iopoll", "block"),
];

/// Returns commands for the case, on rings of these kinds by these policies.
fn on(kinds: &[(&str, &str)], case: &str, disk: &str) -> Vec<Command> {
    let Some(path) = file(disk, case) else { return Vec::new() };
    let models = DISKS.map(|(name, options)| format!("{}={options}", root().join(name).display()));
    let each = |(kind, policy): &(&str, &str)| {
        let mut c = under(example("disturbed"), "user", "auto");
        c.args([case, kind]).arg(&path).env("SOFTRING_POLL", policy);
        c.env("SOFTRING_MODEL", models.join(";"));
        c
    };
    kinds.iter().map(each).collect()
}

/// Returns commands for the case where the program itself polls.
fn pollers(case: &str, disk: &str) -> Vec<Command> {
    on(&POLLERS, case, disk)
}

/// Returns commands for the case on each kind of ring.
fn all(case: &str, disk: &str) -> Vec<Command> {
    on(&[&POLLERS[..], &THREADS].concat(), case, disk)
}

/// Returns the case, the kind and the policy of a command.
fn name(c: &Command) -> String {
    let policy = c.get_envs().find(|(k, _)| *k == "SOFTRING_POLL").and_then(|(_, v)| v);
    let args: Vec<_> = c.get_args().map(|a| a.to_string_lossy()).collect();
    format!("{} by {:?}", args.join(" "), policy.unwrap_or_default())
}

/// Runs a command that must end in time, with success; one that hangs is killed.
fn in_time(c: &mut Command, meanwhile: impl FnMut(u32)) -> Output {
    ends(c, meanwhile, 0)
}

fn ends(c: &mut Command, mut meanwhile: impl FnMut(u32), signal: i32) -> Output {
    use std::os::unix::process::ExitStatusExt;
    let name = name(c);
    let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        meanwhile(child.id());
        if start.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            let out = child.wait_with_output().unwrap();
            panic!("{name} hangs: {out:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let out = child.wait_with_output().unwrap();
    let as_expected = if signal == 0 { out.status.success() } else { true };
    assert!(as_expected && out.status.signal().unwrap_or(0) == signal, "{name}: {out:?}");
    println!("{name}: {}", String::from_utf8_lossy(&out.stdout).trim());
    out
}

fn run(which: fn(&str, &str) -> Vec<Command>, case: &str, disks: &[&str]) {
    for disk in disks {
        which(case, disk).iter_mut().for_each(|c| _ = in_time(c, |_| {}));
    }
}

/// The cases of plain rings hold on the kernel's.
#[test]
fn the_kernel() {
    let Some(path) = file("disk", "kernel") else { return };
    for case in ["signals", "handler_waits", "handler_peeks", "many", "cancels", "closes", "forks"]
    {
        let mut c = under(example("disturbed"), "kernel", "auto");
        in_time(c.args([case, "plain"]).arg(&path), |_| {});
    }
    for case in ["runs", "closes", "forks"] {
        let mut c = under(example("disturbed"), "kernel", "auto");
        in_time(c.args([case, "sqpoll"]).arg(&path), |_| {});
    }
}

#[test]
fn signals_come_at_any_moment() {
    run(pollers, "signals", &["quick", "disk"]);
}

#[test]
fn a_signal_ends_a_wait() {
    run(pollers, "eintr", &["still"]);
}

#[test]
fn a_handler_enters_the_ring_that_its_thread_waits_on() {
    run(pollers, "handler_waits", &["slow", "disk"]);
}

#[test]
fn a_handler_reads_the_ring_at_any_moment() {
    run(pollers, "handler_peeks", &["quick", "disk"]);
}

#[test]
fn ten_thousand_are_in_flight() {
    run(pollers, "many", &["quick", "disk"]);
}

#[test]
fn requests_in_a_device_are_not_cancelled() {
    run(pollers, "cancels", &["slow", "disk"]);
}

#[test]
fn rings_are_closed_in_the_middle() {
    run(all, "closes", &["quick", "slow", "disk"]);
}

#[test]
fn processes_end_in_the_middle() {
    for disk in ["still", "disk"] {
        for case in ["exits", "execs"] {
            let start = Instant::now();
            all(case, disk).iter_mut().for_each(|c| _ = in_time(c, |_| {}));
            assert!(start.elapsed() < Duration::from_secs(20), "{case} {disk}");
        }
        all("aborts", disk).iter_mut().for_each(|c| _ = ends(c, |_| {}, libc::SIGKILL));
    }
}

#[test]
fn a_child_exits_in_the_middle() {
    run(all, "forks", &["slow", "disk"]);
}

#[test]
fn a_process_is_stopped_and_continued() {
    for disk in ["quick", "disk"] {
        for c in &mut all("runs", disk) {
            in_time(c, |pid| {
                for signal in [libc::SIGSTOP, libc::SIGCONT] {
                    // SAFETY: our child, which is not reaped yet.
                    unsafe { libc::kill(pid as i32, signal) };
                    std::thread::sleep(Duration::from_millis(3));
                }
            });
        }
    }
}

/// A disk that can be stopped: a loop device on a file of a file system that can be frozen. Removed
/// when dropped.
struct Brake {
    dir: PathBuf,
    loops: Vec<String>,
}

/// Returns what a command prints; none if it fails.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().into())
}

impl Brake {
    /// Makes the disk; none without the rights or the tools.
    fn new() -> Option<Brake> {
        let dir = root().join(format!("brake-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut brake = Brake { dir, loops: Vec::new() };
        let (image, mount) = (brake.dir.join("image"), brake.dir.join("mount"));
        std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        std::fs::create_dir_all(&mount).unwrap();
        output("mkfs.ext4", &["-q", image.to_str()?])?;
        let below = brake.attach(&image)?;
        output("mount", &[&below, mount.to_str()?])?;
        let disk = mount.join("disk");
        let blocks: Vec<u8> = (0..64u8).flat_map(|i| [i; 4096]).collect();
        std::fs::write(&disk, blocks).unwrap();
        brake.attach(&disk)?;
        Some(brake)
    }

    fn attach(&mut self, file: &Path) -> Option<String> {
        let device = output("losetup", &["--show", "--find", file.to_str()?])?;
        self.loops.push(device.clone());
        Some(device)
    }

    /// Calls fsfreeze with `--freeze` or `--unfreeze`: from then on writes wait, or continue.
    fn set(&self, how: &str) {
        output("fsfreeze", &[how, self.dir.join("mount").to_str().unwrap()]);
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.set("--unfreeze");
        let (last, below) = (self.loops.pop(), self.loops.pop());
        let detach = |device: Option<String>| device.and_then(|d| output("losetup", &["-d", &d]));
        if below.is_some() {
            detach(last);
            output("umount", &[self.dir.join("mount").to_str().unwrap()]);
            detach(below);
        } else {
            detach(last);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_device_stops_answering() {
    let Some(brake) = Brake::new() else {
        return skipped!("no loop devices, or no right to freeze a file system");
    };
    let device = brake.loops.last().unwrap();
    let Some(path) = file("disk", "stops") else { return };
    for mut c in pollers("stops", "disk") {
        let args: Vec<_> = c.get_args().map(|a| a.to_owned()).collect();
        assert_eq!(args[2], path.as_os_str());
        let mut on_brake = Command::new(c.get_program());
        on_brake.args(&args[..2]).arg(device);
        on_brake.envs(c.get_envs().filter_map(|(k, v)| Some((k, v?))));
        c = on_brake;
        let (start, mut stopped) = (Instant::now(), true);
        brake.set("--freeze");
        in_time(&mut c, |_| {
            if stopped && start.elapsed() > Duration::from_millis(600) {
                brake.set("--unfreeze");
                stopped = false;
            }
        });
    }
}
