//! One run: a fresh folder, the program under `softring run`, the checker.

use super::fresh;
use super::outcome::{Ending, Outcome, last_line};
use super::process::{Group, Waited};
use crate::cli::{Engine, ExploreArgs, FaultArgs, UnderArgs};
use crate::run::find_program;
use crate::{crash, fail, files};
use anyhow::Context;
use softring_faults::log::Line;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Bytes of a program's output that are searched for the last line.
const TAIL: u64 = 64 << 10;

/// Parts that all runs have in common.
pub struct Setup<'a> {
    pub own_exe: PathBuf,
    pub under: UnderArgs,
    /// The program, which is found from any folder, and its arguments.
    pub command: Vec<OsString>,
    pub with: Option<&'a Path>,
    check: Option<&'a OsStr>,
    allowed: &'a [u8],
    pub timeout: Duration,
    /// Flag, true if the power of each run is cut, and false if runs get faults.
    pub cuts: bool,
    /// Set once this command is to end.
    pub stop: AtomicBool,
}

/// Parts that differ between runs.
#[derive(Clone, Debug)]
pub struct Run {
    /// Value of SOFTRING_SEED.
    pub seed: Option<u64>,
    /// The faults, with their seed.
    pub spec: Option<String>,
    pub limit: Duration,
}

/// The files of a run.
pub struct Scratch {
    dir: tempfile::TempDir,
    /// Folder in which the program runs.
    pub work: PathBuf,
}

impl Scratch {
    pub fn new(with: Option<&Path>) -> anyhow::Result<Scratch> {
        let dir = tempfile::Builder::new().prefix("softring-explore-").tempdir();
        let dir = dir.context("cannot make a temporary folder")?;
        let work = match with {
            None => PathBuf::from("."),
            Some(with) => {
                let work = dir.path().join("work");
                fs::create_dir(&work)
                    .and_then(|()| fresh::copy(with, &work))
                    .with_context(|| format!("cannot copy {}", with.display()))?;
                work
            }
        };
        Ok(Scratch { dir, work })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str) -> anyhow::Result<File> {
        File::create(self.at(name)).context("cannot make a temporary file")
    }

    /// Returns the last line of the first of these outputs that has one.
    fn last_line(&self, names: &[&str]) -> String {
        let folder = self.dir.path().to_string_lossy();
        let lines = names.iter().map(|name| last_line(&tail(&self.at(name)), &folder));
        lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default()
    }

    fn faults(&self) -> Vec<Line> {
        let text = fs::read(self.at("faults")).unwrap_or_default();
        // The last line is cut off if the program was killed while it wrote.
        String::from_utf8_lossy(&text).lines().skip(1).flat_map(Line::parse).collect()
    }
}

fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes).map(|_| bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

impl<'a> Setup<'a> {
    pub fn new(args: &'a ExploreArgs, cuts: bool) -> anyhow::Result<Setup<'a>> {
        let mut command = args.command.clone();
        if let Some(program) = command.first_mut() {
            find_program(program).map_err(|e| {
                fail::usage(e.to_string(), "check the spelling: softring explore -- CMD")
            })?;
            if program.as_bytes().contains(&b'/') {
                *program = std::path::absolute(&program).context("the working folder")?.into();
            }
        }
        if args.under.engine == Some(Engine::Kernel) {
            let hint = "leave --engine out";
            return Err(fail::usage("the kernel's rings have no faults to inject", hint));
        }
        let engine = Some(Engine::User);
        let faults = FaultArgs::default();
        let under = UnderArgs { engine, quiet: true, no_stats: true, faults, ..args.under.clone() };
        Ok(Setup {
            own_exe: files::own_exe().context("cannot find this program's own file")?,
            under,
            command,
            with: args.with.as_deref(),
            check: args.check.as_deref(),
            allowed: &args.allow_exit,
            timeout: args.timeout,
            cuts,
            stop: AtomicBool::new(false),
        })
    }

    /// Returns the options of a SPEC and of its log.
    pub fn options(&self) -> [&'static str; 2] {
        match self.cuts {
            true => ["--crash", "--crash-log"],
            false => ["--faults", "--faults-log"],
        }
    }

    /// Runs the program once, and its checker. None: this command is to end.
    pub fn run(&self, run: &Run) -> anyhow::Result<Option<Outcome>> {
        let scratch = Scratch::new(self.with)?;
        let start = Instant::now();
        let mut c = Command::new(&self.own_exe);
        c.arg("run").args(self.under.words());
        if let Some(spec) = &run.spec {
            let [option, log] = self.options();
            c.args([option, spec, log]).arg(scratch.at("faults"));
        }
        c.arg("--").args(&self.command);
        c.stdin(Stdio::null()).stdout(scratch.file("out")?).stderr(scratch.file("err")?);
        let waited = self.wait(&mut c, &scratch, run)?;
        let (ending, outputs) = match waited {
            Waited::Stopped => return Ok(None),
            Waited::Late => (Some(Ending::Hang), ["err", "out"]),
            Waited::Ended(status) => match Ending::of(status, self.allowed) {
                None => match self.check(&scratch, run)? {
                    None => return Ok(None),
                    Some(ending) => (ending, ["check", "err"]),
                },
                ending => (ending, ["err", "out"]),
            },
        };
        let message = if ending.is_some() { scratch.last_line(&outputs) } else { String::new() };
        let (cut, faults): (Vec<Line>, Vec<Line>) =
            scratch.faults().into_iter().partition(|line| line.op == crash::CUT);
        let counts = cut.first().map(|line| (line.request, line.value));
        Ok(Some(Outcome { ending, message, faults, counts, took: start.elapsed() }))
    }

    /// Runs the checker. None: this command is to end.
    fn check(&self, scratch: &Scratch, run: &Run) -> anyhow::Result<Option<Option<Ending>>> {
        let Some(check) = self.check else { return Ok(Some(None)) };
        let mut c = Command::new("/bin/sh");
        let out = scratch.file("check")?;
        c.arg("-c").arg(check).stdout(out.try_clone()?).stderr(out);
        // What the program has told is what must be there.
        c.stdin(File::open(scratch.at("out")).context("cannot read a program's output")?);
        Ok(match self.wait(&mut c, scratch, run)? {
            Waited::Stopped => None,
            Waited::Late => Some(Some(Ending::CheckHang)),
            Waited::Ended(status) => Some(Ending::of_check(status)),
        })
    }

    fn wait(&self, c: &mut Command, scratch: &Scratch, run: &Run) -> anyhow::Result<Waited> {
        let mut group = self.start(c, scratch, run)?;
        group.wait(run.limit, &self.stop).context("cannot wait for a run")
    }

    /// Starts a command in the folder of a run, with the run's seed.
    pub fn start(&self, c: &mut Command, scratch: &Scratch, run: &Run) -> anyhow::Result<Group> {
        c.current_dir(&scratch.work);
        match run.seed {
            Some(seed) => c.env("SOFTRING_SEED", seed.to_string()),
            None => c.env_remove("SOFTRING_SEED"),
        };
        Group::start(c).map_err(|e| fail::cannot_start("a run", &e))
    }

    /// Returns what the command line says of the program, for reports.
    pub fn words(&self) -> Vec<String> {
        self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}
