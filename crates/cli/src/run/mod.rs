//! `softring run`: checks the program, puts the preload library under it, and becomes it.

pub mod carried;
mod elf;
mod environment;
pub mod faults;
pub mod launch;
pub mod lib_path;
pub mod mapped;
mod named;
mod needed;
mod options;
mod rehearsal;
pub mod target;

use crate::cli::{Cli, Command, Engine, RunArgs, UnderArgs, name_of};
use crate::{crash, deny, fail, files, out, sys};
use anyhow::Context;
use lib_path::Library;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fmt, io};
use target::Trouble;

/// EPERM: the error of Docker's profile.
const EPERM: u16 = 1;

pub use environment::Environment;

/// Makes the environment of `program`: the library, if there is one to put under it, and the values
/// of the options.
fn environment(
    program: &Path,
    lib: Option<&Path>,
    under: &UnderArgs,
) -> anyhow::Result<Environment> {
    let mut env = Environment::own();
    if let Some(lib) = lib {
        preload(&mut env, program, lib, under);
    }
    let named = [
        ("SOFTRING_SQ_IDLE", under.sq_idle.map(name_of)),
        ("SOFTRING_AT_LEAST", options::at_least(under)?.map(|release| release.to_string())),
        ("SOFTRING_POLL", under.poll.map(name_of)),
        ("SOFTRING_FOLLOW", under.no_follow.then(|| "0".to_owned())),
        ("SOFTRING_STATS", under.no_stats.then(|| "0".to_owned())),
        ("SOFTRING_AIO_HIPRI", under.aio_hipri.then(|| "1".to_owned())),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            env.set(name, value);
        }
    }
    if let Some(models) = options::models(under)? {
        env.set("SOFTRING_MODEL", models);
    }
    if options::engine(under) == Engine::Kernel && under.faults.any() {
        let hint = "leave out --engine and SOFTRING_ENGINE, or use --engine=user";
        return Err(fail::usage("--faults needs softring's rings", hint));
    }
    for (name, value) in faults::variables(&under.faults)? {
        env.set(name, value);
    }
    Ok(env)
}

/// Has `program` get the library, and the variables that the library needs.
fn preload(env: &mut Environment, program: &Path, lib: &Path, under: &UnderArgs) {
    let sanitizer = needed::sanitizer(program);
    let preload = lib_path::preload_with(sanitizer.as_deref(), lib, env.get_last("LD_PRELOAD"));
    env.set("LD_PRELOAD", preload);
    if let Some(engine) = options::engine_to_set(under) {
        env.set("SOFTRING_ENGINE", name_of(engine));
    }
    if let Some(how) = under.intercept {
        env.set("SOFTRING_INTERCEPT", name_of(how));
    }
    // An ancestor's notice is not repeated: the variable is 0 then.
    if env.get("SOFTRING_NOTICE").is_none() {
        env.set("SOFTRING_NOTICE", "1");
    }
    if under.quiet {
        env.set("SOFTRING_QUIET", "1");
    }
}

/// Every variable that [`shell_environment`] may set.
pub const VARIABLES: [&str; 16] = [
    "LD_PRELOAD",
    "SOFTRING_ENGINE",
    "SOFTRING_COMMAND",
    "SOFTRING_INTERCEPT",
    "SOFTRING_NOTICE",
    "SOFTRING_QUIET",
    "SOFTRING_SQ_IDLE",
    "SOFTRING_AT_LEAST",
    "SOFTRING_POLL",
    "SOFTRING_FOLLOW",
    "SOFTRING_STATS",
    "SOFTRING_AIO_HIPRI",
    "SOFTRING_MODEL",
    "SOFTRING_FAULTS",
    "SOFTRING_FAULTS_LOG",
    "SOFTRING_FAULTS_REPLAY",
];

/// Makes the environment in which a shell's children get softring.
///
/// # Errors
/// No library can be found, or an option does not fit.
pub fn shell_environment(under: &UnderArgs) -> anyhow::Result<Environment> {
    let shell = Path::new("/bin/sh");
    let Library::File(lib) = lib_path::find()? else {
        let hint = "softring copy DIR, and then DIR/bin/softring env";
        return Err(fail::usage("no folder here allows a file for later programs", hint));
    };
    let mut env = environment(shell, Some(&lib), under)?;
    if needs_us(under) {
        set_command(&mut env);
    }
    Ok(env)
}

/// Runs `softring run [options] -- CMD`.
pub fn command(args: &RunArgs) -> anyhow::Result<()> {
    let starter = args.failure_fd.map(sys::inherited).transpose();
    let starter = starter.map_err(|e| {
        fail::usage(
            format!("--failure-fd: {e}"),
            "leave --failure-fd out: only softring stat and trace use it",
        )
    })?;
    let done = match &args.crash.crash {
        Some(spec) => crash::spec_of(spec).and_then(|spec| crash::run(args, &args.crash, spec)),
        None => become_program(args),
    };
    if let (Err(_), Some(starter)) = (&done, starter) {
        // A starter that has ended need not know.
        let _ = rustix::io::write(&starter, b"!");
    }
    done
}

/// Tries what this command, whose words are given, does before it becomes a static program. If a
/// policy kills for it, this process ends with a message.
pub fn rehearse(words: &[OsString]) {
    let start = || {
        let cli = Cli::read(words.to_vec());
        let Command::Run(args) = cli.command else { return };
        if prepare(&args).is_ok() && args.under.deny {
            let _ = deny::install(EPERM, false);
        }
    };
    rehearsal::try_start(words.get(2..).unwrap_or_default(), start);
}

/// A program that is about to be started.
struct Prepared {
    path: PathBuf,
    env: Environment,
    /// The library that is to be mapped into the program.
    mapped: Option<softring_loader::Library>,
    needed: bool,
}

/// Finds the program and the library, checks both, and makes the environment.
fn prepare(args: &RunArgs) -> anyhow::Result<Prepared> {
    let under = &args.under;
    let Some(program) = args.command.first() else {
        return Err(fail::usage("no program given", "softring run -- CMD"));
    };
    let path = find_program(program)?;
    let engine = options::engine(under);
    // With the kernel's rings and aio only, the library has nothing to do: its absence is no reason
    // to stop.
    let mut lib = match lib_path::find().and_then(Library::pass_on) {
        Ok(lib) => Some(lib),
        Err(_) if engine == Engine::Kernel && !options::aio_hipri(under) => None,
        Err(e) => return Err(e),
    };
    let mut troubles = target::examine(&path, under.deny);
    let mapped = lib.as_deref().and_then(|lib| mapped::library(&mut troubles, lib, under));
    let preloaded = mapped.is_none() && lib.is_some();
    if preloaded
        && troubles.iter().all(Trouble::leaves_library)
        && let Some(call) = rehearsal::killing_dynamic(under.deny)
    {
        troubles.push(target::kills(&path, call));
        lib = None;
    }
    judge(under, troubles)?;
    let mut env = environment(&path, lib.as_deref(), under)?;
    let quiet = env.get("SOFTRING_RUN").is_some() || options::quiet(under);
    let needed = needs_us(under);
    if lib.is_some() && !quiet && needed {
        env.set("SOFTRING_RUN", named::file());
    }
    if lib.is_some() && needed {
        set_command(&mut env);
    }
    Ok(Prepared { path, env, mapped, needed })
}

/// Becomes the program. Returns only an error.
fn become_program(args: &RunArgs) -> anyhow::Result<()> {
    let Prepared { path, env, mapped, needed } = prepare(args)?;
    // The program inherits the library's file.
    if let Some(library) = &mapped {
        mapped::arrange(&path, library, &args.under, needed)?;
    }
    if args.under.deny {
        deny::install(EPERM, false)?;
    }
    exec(&path, &args.command, &env)
}

/// Names this command, which brings the library to static programs that others start
/// ([`launch`]).
fn set_command(env: &mut Environment) {
    if let Ok(own) = crate::files::own_exe() {
        env.set("SOFTRING_COMMAND", own);
    }
}

/// Stops at troubles that make the run pointless, and warns of the rest.
fn judge(under: &UnderArgs, troubles: Vec<Trouble>) -> anyhow::Result<()> {
    for trouble in troubles {
        match trouble {
            Trouble::Fatal { code, what, hint } => return Err(fail::no_program(code, what, hint)),
            Trouble::Unread { what, hint } => {
                if options::engine(under) != Engine::Kernel {
                    warn(under, &what, &hint);
                }
            }
            Trouble::Foreign { what, hint } => {
                unreachable(under, what, hint, "the program runs without softring")?;
            }
            Trouble::Unreachable { what, hint } | Trouble::Static { what, hint } => {
                unreachable(under, what, hint, "the program gets the kernel's rings")?;
            }
        }
    }
    Ok(())
}

/// Stops before a program that the library does not reach, if the program would miss it; else warns
/// of the `outcome`.
fn unreachable(under: &UnderArgs, what: String, hint: String, outcome: &str) -> anyhow::Result<()> {
    if needs_us(under) {
        return Err(fail::usage(what, hint));
    }
    if options::engine(under) != Engine::Kernel {
        warn(under, &format!("{what}; {outcome}"), &hint);
    }
    Ok(())
}

/// Prints a warning and its next step, unless the run is to be quiet.
pub fn warn(under: &UnderArgs, what: &str, hint: &str) {
    if !options::quiet(under) {
        out::note(&format!("warning: {what}"));
        out::note(&format!("hint: {hint}"));
    }
}

/// Returns whether the program would miss what it was started for if the library did not reach it.
fn needs_us(under: &UnderArgs) -> bool {
    match options::engine(under) {
        _ if options::aio_hipri(under) => true,
        Engine::User => true,
        Engine::Kernel => false,
        Engine::Auto => {
            under.deny || options::has_least(under) || !crate::doctor::kernel_ring_works()
        }
    }
}

/// Most bytes of a file's name, in any file system.
const NAME_MAX: usize = 255;

/// Finds the program that `name` means: `name` itself if it has a slash, else the first in PATH.
pub fn find_program(name: &OsStr) -> anyhow::Result<PathBuf> {
    if name.is_empty() {
        let (what, hint) = ("the program's name is empty", "softring run -- CMD");
        return Err(fail::no_program(fail::NOT_FOUND, what, hint));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    in_path(name).ok_or_else(|| {
        let shown = name.to_string_lossy();
        if name.len() > NAME_MAX {
            let what = format!("{shown}: file name too long");
            return fail::no_program(fail::NOT_EXECUTABLE, what, "check the spelling");
        }
        fail::no_program(
            fail::NOT_FOUND,
            format!("{shown}: not found in PATH"),
            format!("check the spelling, or give a path: softring run -- ./{shown}"),
        )
    })
}

/// Finds the first executable regular file called `name` in PATH; failing that, the first file of
/// that name.
fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let files: Vec<PathBuf> =
        env::split_paths(&path).map(|d| d.join(name)).filter(|f| files::is_file(f)).collect();
    let runs = |f: &&PathBuf| files::access(f, libc::X_OK).is_ok();
    files.iter().find(runs).or(files.first()).cloned()
}

/// Becomes the program. Returns only an error.
pub fn exec(path: &Path, args: &[OsString], env: &Environment) -> anyhow::Result<()> {
    let c = |s: &OsStr| CString::new(s.as_bytes()).context("an argument holds a NUL byte");
    let file = c(path.as_os_str())?;
    let argv = args.iter().map(|a| c(a)).collect::<Result<Vec<_>, _>>()?;
    let envp = env.entries();
    let mut e = sys::execve(&file, &argv, envp);
    if e.raw_os_error() == Some(libc::ENOEXEC) && !elf::is_elf(path) {
        // execvp(3) does the same: it gives a file without a header to the shell.
        let shell = c(OsStr::new("/bin/sh"))?;
        let mut argv: Vec<CString> = vec![shell.clone(), file];
        argv.extend(args.iter().skip(1).map(|a| c(a)).collect::<Result<Vec<_>, _>>()?);
        e = sys::execve(&shell, &argv, envp);
    }
    Err(cannot_become(&path.display(), &e))
}

/// Next step where nothing better is known.
const START_ALONE: &str = "try the program without softring to see whether it starts";

/// Returns the error of a program that execve(2) has refused.
fn cannot_become(path: &impl fmt::Display, e: &io::Error) -> anyhow::Error {
    let (code, hint) = match e.raw_os_error() {
        Some(libc::E2BIG) => {
            (fail::NOT_EXECUTABLE, "the arguments and the environment together are too long")
        }
        Some(libc::ENOMEM | libc::EAGAIN) => {
            (fail::NOT_EXECUTABLE, "free memory, or raise RLIMIT_NPROC")
        }
        Some(libc::EACCES) => {
            (fail::NOT_EXECUTABLE, "the file or its mount (noexec) does not allow execution")
        }
        Some(libc::ENOEXEC | libc::EINVAL | libc::EIO | libc::ELIBBAD) => (
            fail::USAGE,
            "the file is damaged, or of another machine: get a whole copy for this machine; \
             file(1) and readelf(1) tell what it is",
        ),
        Some(libc::ENOENT) => (fail::NOT_FOUND, START_ALONE),
        _ => (fail::NOT_EXECUTABLE, START_ALONE),
    };
    fail::no_program(code, format!("cannot start {path}: {e}"), hint)
}
