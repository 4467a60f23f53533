//! Runs of programs: each in a process of its own, in a fresh directory, with a time limit.
#![allow(unsafe_code)]

use super::check::NEXT;
use super::program::Program;
use super::transcript::{End, Rec, Transcript};
use crate::case::OLDEST;
use crate::entry::EntryPoint;
use crate::target::pin;
use anyhow::{Context, Result};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a run counts as hung.
const RUN_LIMIT: Duration = Duration::from_secs(6);

/// Side whose io_uring a run gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Kernel,
    Softring,
}

/// Waits of a run: microseconds without a completion, and the run that it follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits<'a> {
    pub quiet: u64,
    pub follow: Option<&'a Transcript>,
    /// Flag, true if all threads share one processor: workers then run after the submitter.
    pub one_cpu: bool,
}

/// Surroundings of runs.
#[derive(Debug)]
pub struct Driver {
    exe: PathBuf,
    /// The preload library; without it both sides are the kernel.
    library: Option<PathBuf>,
    entry: EntryPoint,
    /// An opcode whose results are falsified on the second side, to try the fuzzer itself.
    pub spoil: Option<u8>,
    /// Flag, true if only quick runs are falsified: a program agrees when it is run again.
    pub spoil_once: bool,
    deny: BpfProgram,
}

/// Builds a filter that answers EPERM to the three io_uring calls, as a container's does.
fn deny() -> Result<BpfProgram> {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    let rules: BTreeMap<i64, Vec<_>> = calls.into_iter().map(|nr| (nr, Vec::new())).collect();
    let eperm = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, eperm, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

impl Driver {
    /// Builds a driver.
    ///
    /// # Errors
    /// Returned if the filter cannot be built.
    pub fn new(exe: PathBuf, library: Option<PathBuf>, entry: EntryPoint) -> Result<Self> {
        Ok(Self { exe, library, entry, spoil: None, spoil_once: false, deny: deny()? })
    }

    /// Runs `program` once.
    ///
    /// # Errors
    /// Returned if no directory can be made or no process started; errors inside the
    /// process are in the transcript.
    pub fn run(&self, program: &Program, side: Side, waits: Waits<'_>) -> Result<Transcript> {
        let dir = scratch(program.tmpfs)?;
        let (files, work) = (dir.path(), dir.path().join("work"));
        std::fs::create_dir(&work)?;
        let (input, output) = (files.join("program"), files.join("transcript"));
        std::fs::write(&input, serde_json::to_vec(program)?)?;
        let mut cmd = Command::new(&self.exe);
        cmd.arg("exec").arg("--program").arg(&input).arg("--out").arg(&output);
        cmd.arg("--dir").arg(&work).args(["--quiet", &waits.quiet.to_string()]);
        cmd.args(["--intercept", self.entry.name()]);
        if let Some(follow) = waits.follow {
            let expect = files.join("expect");
            std::fs::write(&expect, lines(&follow.recs)?)?;
            cmd.arg("--expect").arg(expect);
        }
        cmd.stdin(Stdio::null()).stdout(Stdio::null());
        let log = files.join("stderr");
        cmd.stderr(std::fs::File::create(&log)?);
        if waits.one_cpu {
            confine(&mut cmd);
        }
        if side == Side::Softring {
            self.under_softring(&mut cmd);
        }
        let mut child = cmd.spawn().context("starting a run")?;
        let end = wait(&mut child)?;
        if let End::Code(code) = end {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            anyhow::ensure!(code != 2, "a run could not start: {}", text.trim());
        }
        let mut t = Transcript { recs: read_recs(&output), end };
        if side == Side::Softring {
            self.falsify(program, waits, &mut t);
        }
        Ok(t)
    }

    fn under_softring(&self, cmd: &mut Command) {
        let Some(library) = &self.library else { return };
        cmd.env("LD_PRELOAD", library).env("SOFTRING_ENGINE", "user").env("SOFTRING_QUIET", "1");
        let inline = if self.entry == EntryPoint::Syscall { "none" } else { self.entry.name() };
        cmd.env("SOFTRING_INTERCEPT", inline);
        cmd.env("SOFTRING_ABI", pin(OLDEST.release).name);
        let deny = self.deny.clone();
        let apply = move || {
            seccompiler::apply_filter(&deny).map_err(|_| std::io::Error::from_raw_os_error(22))
        };
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe { cmd.pre_exec(apply) };
    }

    fn falsify(&self, program: &Program, waits: Waits<'_>, t: &mut Transcript) {
        let spares = self.spoil_once && waits.quiet > NEXT;
        let Some(op) = self.spoil.filter(|_| !spares) else { return };
        let name = super::compare::op_name(op);
        for cqe in t.recs.iter_mut().flat_map(|r| &mut r.cqes) {
            if cqe.res > 0 && super::compare::op_of(program, cqe.ud) == name {
                cqe.res += 1;
            }
        }
    }
}

/// Confines a run to the processor that it starts on.
fn confine(cmd: &mut Command) {
    let apply = || {
        // SAFETY: between fork and exec; system calls that fill or read a set on the stack.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap_or(0), &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing.
    unsafe { cmd.pre_exec(apply) };
}

fn scratch(tmpfs: bool) -> Result<tempfile::TempDir> {
    let shm = Path::new("/dev/shm");
    let make = tempfile::Builder::new().prefix("softring-fuzz-").to_owned();
    if tmpfs && shm.is_dir() {
        return make.tempdir_in(shm).context("making a directory in /dev/shm");
    }
    make.tempdir().context("making a temporary directory")
}

fn lines(recs: &[Rec]) -> Result<String> {
    let mut out = String::new();
    for rec in recs {
        out.push_str(&serde_json::to_string(rec)?);
        out.push('\n');
    }
    Ok(out)
}

/// Returns the records of a transcript's file, without a last line that a crash has cut off.
pub fn read_recs(path: &Path) -> Vec<Rec> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

fn wait(child: &mut Child) -> Result<End> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    while start.elapsed() < RUN_LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(match (status.signal(), status.code()) {
                (Some(signal), _) => End::Signal(signal),
                (_, Some(0) | None) => End::Exit,
                (_, Some(code)) => End::Code(code),
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Ok(End::Hang)
}
