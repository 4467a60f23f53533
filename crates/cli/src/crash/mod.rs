//! `softring run --crash`: a program whose power fails, and the directory that is left.
//!
//! A filter stops each thread of the program before a system call that changes files or makes them
//! durable ([`filter`], [`ptrace`]), also before those that softring's rings make. [`tracer`] lets
//! one such call be made at a time; [`calls`] says what it does, [`changes`] and [`recorder`] note
//! it in a record of what is not durable. At the power cut all processes are killed, and
//! [`restore`] makes of the directory what may be left.

mod calls;
mod changes;
mod file;
mod filter;
mod gate;
mod ptrace;
mod recorder;
mod restore;
mod tracee;
mod tracer;

use crate::cli::{CrashArgs, Engine, RunArgs, UnderArgs};
use crate::run::target::{self, Trouble};
use crate::run::{self, faults};
use crate::{fail, files, signals, sys};
use anyhow::Context;
use recorder::Recorder;
use softring_crash::{Dice, Fate, GRAMMAR, Spec};
use softring_faults::log::{Head, Line};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tracer::End;

/// Operation of the last line of a log: the numbers of requests, and of syncs as its value.
pub const CUT: &str = "cut";

/// Returns the SPEC of an option's value: a list, or the name of a file.
///
/// # Errors
/// The SPEC cannot be understood.
pub fn spec_of(value: &OsStr) -> anyhow::Result<Spec> {
    let text = value.to_str().ok_or_else(|| fail::usage("--crash: SPEC is no text", GRAMMAR))?;
    if let Some(path) = faults::file_of(text) {
        let text = faults::read(path, "--crash")?;
        let wrong = |e: String| fail::usage(format!("--crash {}: {e}", path.display()), GRAMMAR);
        return file::parse(&text).map_err(wrong);
    }
    Spec::parse(text).map_err(|e| {
        let pointed = e.point(text).replace('\n', "\n  ");
        fail::usage(format!("--crash: {e}\n  {pointed}"), GRAMMAR)
    })
}

/// Runs a program until the power fails, and makes of the directory what is left. Ends with the
/// program's own exit code or signal if it has ended before.
pub fn run(args: &RunArgs, crash: &CrashArgs, spec: Spec) -> anyhow::Result<()> {
    let root = Path::new(spec.dir.as_deref().unwrap_or("."));
    let root = fs::canonicalize(root).map_err(|e| {
        let what = format!("--crash: cannot find the directory {}: {e}", root.display());
        fail::usage(what, "name it: dir=PATH; without it, it is the working directory")
    })?;
    if args.under.engine == Some(Engine::Kernel) {
        let hint = "leave --engine out: the kernel's rings would write unheard";
        return Err(fail::usage("--crash needs softring's rings", hint));
    }
    sys::raise_descriptors();
    let mut recorder = Recorder::new(spec, root);
    let end = follow(&mut recorder, &inner(args)?)?;
    recorder.cut_mappings();
    let spec = recorder.spec.clone();
    let cut = recorder.record.cut(&Dice::new(&spec));
    if let Some(path) = &crash.crash_log {
        let text = log(&recorder, &cut.fates);
        fs::write(path, text).map_err(|e| {
            let what = format!("--crash-log: cannot write {}: {e}", path.display());
            fail::usage(what, "name a file that can be written")
        })?;
    }
    restore::restore(&recorder, &cut)?;
    match end {
        End::Cut => Ok(()),
        End::Itself(status) if libc::WIFSIGNALED(status) => signals::die_of(libc::WTERMSIG(status)),
        End::Itself(status) => std::process::exit(libc::WEXITSTATUS(status)),
    }
}

/// Returns the command that puts softring's rings under the program. A static program is started as
/// it is: the library is mapped by ptrace(2), and here somebody traces the program already.
fn inner(args: &RunArgs) -> anyhow::Result<Vec<OsString>> {
    let troubles = args.command.first().and_then(|name| run::find_program(name).ok());
    let troubles = troubles.map_or_else(Vec::new, |path| target::examine(&path, args.under.deny));
    if let [Trouble::Static { what, .. }] = troubles.as_slice() {
        let hint = "link the program dynamically, if it has rings: see docs/CRASH.md";
        run::warn(&args.under, &format!("{what}; under --crash it gets no ring"), hint);
        return Ok(args.command.clone());
    }
    let own = files::own_exe().context("cannot find this program's own file")?;
    let under = UnderArgs { engine: Some(Engine::User), ..args.under.clone() };
    let mut words = vec![own.into_os_string(), "run".into()];
    words.extend(under.words());
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    Ok(words)
}

fn follow(recorder: &mut Recorder, words: &[OsString]) -> anyhow::Result<End> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let filters = filter::programs().context("cannot make the filter")?;
    gate::follow(command, filters, recorder).map_err(|e| {
        let hint = "--crash follows the program by ptrace(2) and seccomp(2): see docs/CRASH.md";
        fail::usage(format!("--crash: the program cannot be followed: {e}"), hint)
    })
}

/// Returns the log: a line for each request that is not there as a whole.
fn log(recorder: &Recorder, fates: &BTreeMap<u64, Fate>) -> String {
    let mut text = format!("{}\n", Head { spec: recorder.spec.to_string() });
    for (&n, fate) in fates {
        let label = recorder.label(n);
        let path = |label: &recorder::Label| recorder.relative(&label.path);
        let line = Line {
            ring: 0,
            request: n,
            op: label.map_or("mmap", |label| label.op).into(),
            fault: fate.name().into(),
            value: label.map_or(0, |label| label.bytes),
            pid: label.map_or(0, |label| label.pid.cast_unsigned()),
            path: label.map(path).map(|path: PathBuf| path.to_string_lossy().into_owned()),
        };
        let _ = writeln!(text, "{line}");
    }
    let (request, value) = (recorder.requests, recorder.syncs);
    let line = Line { request, value, op: CUT.into(), fault: CUT.into(), ..Line::default() };
    let _ = writeln!(text, "{line}");
    text
}
