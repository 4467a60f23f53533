//! Targets of a case: the kernel, or softring through one of its entry points, always in a process
//! of its own.

use crate::case::{Case, Cx, NEWEST, OLDEST, Stop};
use crate::entry::EntryPoint;
use crate::report::{Answer, Verdict};
use crate::rights::NOBODY;
use crate::ring::CALLS_AGAIN;
use anyhow::{Context, Result, bail};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use softring_host::substitute::release;
use softring_uapi::version::{Release, Version};
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Implementation of io_uring that a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The kernel itself; the entry point only changes how the calls are issued.
    Kernel(EntryPoint),
    /// `libsoftring.so`, with io_uring denied.
    Softring(EntryPoint),
    /// The io_uring of this process, whichever it is.
    Here(EntryPoint),
    /// A record of the case on a kernel of this version.
    Recorded(&'static Version),
}

/// The name of the oracle.
pub const KERNEL: &str = "kernel";
/// The beginning of a record's name.
pub const RECORDED: &str = "recorded on";

impl Target {
    pub fn name(self) -> String {
        match self {
            Self::Kernel(EntryPoint::Syscall) => KERNEL.into(),
            Self::Kernel(entry) => format!("kernel/{entry}"),
            Self::Softring(entry) => format!("softring/{entry}"),
            Self::Here(entry) => format!("here/{entry}"),
            Self::Recorded(version) => format!("{RECORDED} {}", version.name),
        }
    }

    pub const fn entry(self) -> EntryPoint {
        match self {
            Self::Kernel(entry) | Self::Softring(entry) | Self::Here(entry) => entry,
            Self::Recorded(_) => EntryPoint::Syscall,
        }
    }
}

/// Parameters of a case's process.
#[derive(Debug)]
pub struct Launcher {
    /// Path of this program.
    pub exe: PathBuf,
    /// `libsoftring.so`, if it is known.
    pub library: Option<PathBuf>,
    /// Disk model of the cases' files under softring, as in `softring run --model`.
    pub model: Option<String>,
    /// Flag, true if kernel aio is denied to softring, too.
    pub no_aio: bool,
    /// Flag, true if SQ threads sleep, as with `softring run --sq-idle=sleep`.
    pub sq_idle_sleep: bool,
    /// Faults to inject under softring, as in `softring run --faults`.
    pub faults: Option<String>,
    /// Flag, true if these interrupt or refuse calls, which the client then makes again.
    pub calls_again: bool,
    /// Flag, true if the cases run as a user without rights, which takes a right to do.
    pub as_nobody: bool,
    /// Time limit of a case.
    pub timeout: Duration,
    /// Folder of the cases' directories: the files of a killed case go with it.
    scratch: tempfile::TempDir,
}

impl Launcher {
    /// Makes a launcher whose cases make their files in `dir`, or in the folder of temporary files.
    pub fn new(
        exe: PathBuf,
        library: Option<PathBuf>,
        timeout: Duration,
        dir: Option<&Path>,
    ) -> Result<Self> {
        let scratch = dir.map_or_else(tempfile::tempdir, tempfile::tempdir_in);
        let scratch = scratch.context("no directory for the cases' files")?;
        // Cases may run as another user.
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777))?;
        let (model, no_aio, sq_idle_sleep, as_nobody) = (None, false, false, false);
        let (faults, calls_again) = (None, false);
        Ok(Self {
            exe,
            library,
            model,
            no_aio,
            sq_idle_sleep,
            faults,
            calls_again,
            as_nobody,
            timeout,
            scratch,
        })
    }

    /// Returns the folder of the cases' directories.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Runs `case` on `target` in a process of its own. softring has the running kernel's ABI, if
    /// the case needs no newer one.
    pub fn run(&self, case: &Case, target: Target) -> Result<Answer> {
        self.run_as(case, target, pin(case.abi))
    }

    /// Same as [`Self::run`] with softring of the ABI `version`.
    pub fn run_as(&self, case: &Case, target: Target, version: &Version) -> Result<Answer> {
        let mut cmd = self.command(target)?;
        if let Target::Softring(_) = target {
            cmd.env("SOFTRING_ABI", version.name);
        }
        if self.as_nobody {
            cmd.uid(NOBODY).gid(NOBODY);
        }
        cmd.args(["one", &case.path(), "--intercept", target.entry().name()]);
        cmd.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        crate::os::own_group(&mut cmd);
        let mut child = cmd.spawn().with_context(|| format!("cannot start {:?}", self.exe))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let out = std::thread::spawn(move || drain(out));
        let err = std::thread::spawn(move || drain(err));
        let ended = wait(&mut child, self.timeout)?;
        // Processes that the case left behind would hold the pipes open.
        crate::os::kill_group(child.id());
        let text = out.join().unwrap_or_default();
        let noise = err.join().unwrap_or_default();
        Ok(Answer::parse(&text, &noise, ended))
    }

    fn command(&self, target: Target) -> Result<Command> {
        let mut cmd = Command::new(&self.exe);
        cmd.env("TMPDIR", self.scratch.path());
        let entry = match target {
            Target::Here(_) => return Ok(cmd),
            Target::Recorded(_) => bail!("nothing runs there"),
            Target::Kernel(_) => {
                cmd.env_remove("LD_PRELOAD").env("SOFTRING_FOLLOW", "0");
                return Ok(cmd);
            }
            Target::Softring(entry) => entry,
        };
        let Some(library) = &self.library else {
            bail!("libsoftring.so was not found: build it, or name it with --library")
        };
        cmd.env("LD_PRELOAD", library).env("SOFTRING_ENGINE", "user").env("SOFTRING_QUIET", "1");
        let inline = if entry == EntryPoint::Syscall { "none" } else { entry.name() };
        cmd.env("SOFTRING_INTERCEPT", inline);
        if let Some(model) = &self.model {
            let path = self.scratch.path().display();
            cmd.env("SOFTRING_MODEL", format!("{path}={model}"));
        }
        if let Some(faults) = &self.faults {
            cmd.env("SOFTRING_FAULTS", faults);
        }
        if self.calls_again {
            cmd.env(CALLS_AGAIN, "1");
        }
        if self.sq_idle_sleep {
            cmd.env("SOFTRING_SQ_IDLE", "sleep");
        }
        crate::os::deny_in_child(&mut cmd, deny_filter(self.no_aio)?);
        Ok(cmd)
    }
}

/// Returns the ABI that softring is to have: the running kernel's, if the case needs no newer one.
pub fn pin(needed: Release) -> &'static Version {
    let newest = needed >= NEWEST.release || release() >= NEWEST.release;
    if newest { NEWEST } else { OLDEST }
}

/// Returns the library beside this program, as cargo places them.
pub fn find_library(exe: &Path) -> Option<PathBuf> {
    let beside = exe.ancestors().skip(1).take(2).map(|d| d.join("libsoftring.so"));
    beside.into_iter().find(|p| p.exists())
}

/// Numbers of io_setup to io_cancel, and of io_pgetevents.
const KERNEL_AIO: [i64; 6] = [206, 207, 208, 209, 210, 333];

/// Builds a filter by which the three io_uring calls fail with `EPERM`, as with Docker's profile,
/// and with `aio` also those of kernel aio; all else is allowed.
fn deny_filter(aio: bool) -> Result<BpfProgram> {
    let kernel_aio = if aio { &KERNEL_AIO[..] } else { &[] };
    let rules = [425, 426, 427].iter().chain(kernel_aio).map(|&nr| (nr, vec![])).collect();
    let deny = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().context("no seccomp for this architecture")?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, deny, arch)?.try_into()?)
}

fn drain(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // The output before a read error is still worth showing.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the child; returns why it ended, if not by itself with status 0.
fn wait(child: &mut Child, timeout: Duration) -> Result<Option<String>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| status.to_string()));
        }
        if start.elapsed() > timeout {
            crate::os::kill_group(child.id());
            child.wait()?;
            return Ok(Some(format!("no end after {} s", timeout.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs one case in this process and prints its transcript; the last line is the verdict.
pub fn run_here(case: &Case, entry: EntryPoint) -> Verdict {
    let mut cx = Cx::new(entry);
    let outcome = if case.abi > cx.abi().release {
        Err(Stop::Skip(format!("it needs the ABI of Linux {}", NEWEST.name)))
    } else {
        (case.run)(&mut cx)
    };
    let verdict = match outcome {
        Err(Stop::Skip(why)) => Verdict::Skip(why),
        Err(Stop::Fail(why)) => Verdict::Fail(why),
        Ok(()) if cx.failures() > 0 => Verdict::Fail("see the lines marked !".into()),
        Ok(()) => Verdict::Pass,
    };
    println!("= {verdict}");
    verdict
}
