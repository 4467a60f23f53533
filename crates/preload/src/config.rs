//! The environment, read once by the constructor. This table is all that `softring run` sets:
//!
//! | variable | values | meaning |
//! |---|---|---|
//! | `SOFTRING_ENGINE` | `auto` (default), `user`, `kernel` | whose rings a program gets |
//! | `SOFTRING_AT_LEAST` | a release, as `6.1` | `auto`: the kernel's only if they have all of it |
//! | `SOFTRING_INTERCEPT` | `auto` (default), `patch`, `sigsys`, `none` | route of inline calls |
//! | `SOFTRING_DOOR` | the same | older name, read if `SOFTRING_INTERCEPT` is unset |
//! | `SOFTRING_AIO_HIPRI` | `0` (default), `1` | `1`: every context of kernel aio is polled |
//! | `SOFTRING_MODEL` | `PATH=OPTIONS;…` | modelled disks; `auto` then means `user` |
//! | `SOFTRING_FAULTS` | a SPEC | faults to inject; `auto` then means `user` |
//! | `SOFTRING_FAULTS_LOG` | a file | record of the injected faults |
//! | `SOFTRING_FAULTS_REPLAY` | a file | such a record, to inject again |
//! | `SOFTRING_QUIET` | `0` (default), `1` | `1`: no notice line on stderr |
//! | `SOFTRING_NOTICE` | `0`, `1` | `1`: set to `0` with the notice, so children print none |
//! | `SOFTRING_POLL` | `default`, `spin`, `hybrid`, `adaptive`, `block` | how threads wait |
//! | `SOFTRING_FOLLOW` | `1` (default), `0` | `0`: children without LD_PRELOAD stay without us |
//! | `SOFTRING_FOLLOWED` | nothing | set by the library itself, across exec (`children::follow`) |
//! | `SOFTRING_STATS` | `1` (default), `0` | `0`: no statistics page (`softring metrics`) |
//! | `SOFTRING_STAT` | a key | reader of the statistics pages (`softring stat`) |
//! | `SOFTRING_SQ_IDLE` | `spin` (default), `sleep` | what SQ threads do between submissions |
//! | `SOFTRING_TRACE` | a key, `0` | reader of traces (`softring trace`); `0`: no traces |
//! | `SOFTRING_LOCKED` | numbers | set by the library itself, across exec (`wrap::exec`) |
//! | `SOFTRING_RULES` | text | the same: a task's restrictions and filters (`rsrc::task_rules`) |
//! | `SOFTRING_COMMAND` | a file | the command, which starts static programs (`children::launch`) |
//! | `SOFTRING_RUN` | a file | list of programs started without the library (`children`) |
//! | `SOFTRING_ABI` | `7.2` (default), `6.18` | the kernel whose ABI rings have; for tests |
//! | `SOFTRING_REPORT` | `0` (default), `1` | `1`: at exit, one line on stderr: sites, calls |
//!
//! A variable whose default is `0` counts as `1` for any other value. An unknown value is reported
//! once per process and counts as the default: a program must not fail because of a typo here.
//!
//! A program that runs with more rights than its caller's (set-user-id, set-group-id, file
//! capabilities) loads this library only if it is linked with it. Such a program ignores all of
//! these variables: the caller sets them, and could name files to be written and viewers to be
//! shown memory. It shares no memory with viewers either.
#![allow(unsafe_code)]

mod faults;

use alloc::format;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use softring_engine::model::{self, parse};
use softring_host::c_library;
use softring_host::sync::real::OnceLock;
use softring_uapi::version::{self, Release};

use softring_engine::hybrid::Policy;

/// The engine whose rings a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Engine {
    /// The kernel's rings where the kernel gives them, ours where not; decided for each ring.
    Auto,
    /// Our rings.
    User,
    /// The kernel's rings: the entry points are installed and pass every call on.
    Kernel,
}

/// Method by which inline system calls reach us; libc's `syscall()` always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Intercept {
    /// Interception by patching, and by the trap if a program that needs our rings has a site that
    /// cannot be patched.
    Auto,
    /// Interception by patching only.
    Patch,
    /// Interception by the trap only, set from the start.
    Sigsys,
    /// No interception.
    None,
}

static ENGINE: AtomicU8 = AtomicU8::new(Engine::Auto as u8);
static INTERCEPT: AtomicU8 = AtomicU8::new(Intercept::Auto as u8);
static QUIET: AtomicU8 = AtomicU8::new(0);
static REPORT: AtomicU8 = AtomicU8::new(0);
static AIO_HIPRI: AtomicU8 = AtomicU8::new(0);
static FOLLOW: AtomicU8 = AtomicU8::new(0);
static IGNORES: AtomicBool = AtomicBool::new(false);
static AT_LEAST: OnceLock<Option<Release>> = OnceLock::new();
static NOTICE: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

// Relaxed throughout: the constructor writes these before any thread reads them.

pub fn engine() -> Engine {
    match ENGINE.load(Ordering::Relaxed) {
        1 => Engine::User,
        2 => Engine::Kernel,
        _ => Engine::Auto,
    }
}

/// Returns the release whose features the kernel's rings must have.
pub fn at_least() -> Option<Release> {
    *AT_LEAST.get()?
}

pub fn intercept() -> Intercept {
    match INTERCEPT.load(Ordering::Relaxed) {
        1 => Intercept::Patch,
        2 => Intercept::Sigsys,
        3 => Intercept::None,
        _ => Intercept::Auto,
    }
}

pub fn quiet() -> bool {
    QUIET.load(Ordering::Relaxed) != 0
}

pub fn aio_hipri() -> bool {
    AIO_HIPRI.load(Ordering::Relaxed) != 0
}

pub fn report() -> bool {
    REPORT.load(Ordering::Relaxed) != 0
}

/// Returns whether programs that start with an environment without this library get it.
pub fn follows() -> bool {
    FOLLOW.load(Ordering::Relaxed) == 0
}

/// Returns whether a notice was printed, by this program or by the one that started it.
pub fn notice_is_claimed() -> bool {
    let mark = NOTICE.load(Ordering::Relaxed);
    // SAFETY: as in `claim_notice`.
    !mark.is_null() && unsafe { AtomicU8::from_ptr(mark.cast()).load(Ordering::Relaxed) } == b'0'
}

/// Makes a copy of the value of `SOFTRING_NOTICE` take its place, if there was a value.
pub fn move_notice(to: *mut c_char) {
    if !to.is_null() && !NOTICE.load(Ordering::Relaxed).is_null() {
        NOTICE.store(to, Ordering::Relaxed);
    }
}

/// Claims the right to print the notice, for this process and the programs that it starts.
pub fn claim_notice() -> bool {
    let mark = NOTICE.load(Ordering::Relaxed);
    if mark.is_null() {
        return true;
    }
    // SAFETY: points at the one-byte value in the environment block that exec built, which is never
    // freed; other threads only read it as a string, and both values are strings.
    unsafe { AtomicU8::from_ptr(mark.cast()).swap(b'0', Ordering::Relaxed) != b'0' }
}

/// Has every variable count as unset, for a program that this is built into and that decides so.
pub fn ignore_environment() {
    IGNORES.store(true, Ordering::Relaxed);
}

/// Silences notices, whatever the environment says.
pub fn be_quiet() {
    QUIET.store(1, Ordering::Relaxed);
}

/// Reads the environment.
pub fn read() {
    if is_secure() {
        softring_engine::stats::disable();
        softring_engine::stats::trace::disable();
        return;
    }
    // First, as it silences complaints about the others.
    QUIET.fetch_max(flag(c"SOFTRING_QUIET"), Ordering::Relaxed);
    let names = [("auto", 0), ("user", Engine::User as u8), ("kernel", Engine::Kernel as u8)];
    ENGINE.store(choice(c"SOFTRING_ENGINE", &names), Ordering::Relaxed);
    let _ = AT_LEAST.set(release(c"SOFTRING_AT_LEAST"));
    let names = [
        ("auto", 0),
        ("patch", Intercept::Patch as u8),
        ("sigsys", Intercept::Sigsys as u8),
        ("none", Intercept::None as u8),
    ];
    let newer = given(c"SOFTRING_INTERCEPT").is_some();
    let name = if newer { c"SOFTRING_INTERCEPT" } else { c"SOFTRING_DOOR" };
    INTERCEPT.store(choice(name, &names), Ordering::Relaxed);
    let mut policies = [("default", 0); 5];
    for (name, policy) in policies[1..].iter_mut().zip(Policy::ALL) {
        *name = (policy.name(), policy as u8 + 1);
    }
    if let Some(policy) = (choice(c"SOFTRING_POLL", &policies) as usize).checked_sub(1) {
        softring_engine::polling::force(Policy::ALL[policy]);
    }
    REPORT.store(flag(c"SOFTRING_REPORT"), Ordering::Relaxed);
    FOLLOW.store(choice(c"SOFTRING_FOLLOW", &[("1", 0), ("0", 1)]), Ordering::Relaxed);
    AIO_HIPRI.store(flag(c"SOFTRING_AIO_HIPRI"), Ordering::Relaxed);
    if aio_hipri() {
        softring_engine::libaio::poll_all();
    }
    let [first, newest] = version::VERSIONS.each_ref().map(|v| v.name);
    version::play(choice(c"SOFTRING_ABI", &[(newest, version::NEWEST), (first, 0)]));
    read_models();
    faults::read();
    if choice(c"SOFTRING_STATS", &[("1", 0), ("0", 1)]) != 0 {
        softring_engine::stats::disable();
    }
    read_readers();
    let names = [("spin", 0), ("sleep", 1), ("nap", 1)];
    softring_engine::set_idle_sleeps(choice(c"SOFTRING_SQ_IDLE", &names) != 0);
    // A known value other than the default is one byte long; `claim_notice` changes this byte.
    if choice(c"SOFTRING_NOTICE", &[("", 0), ("0", 1), ("1", 1)]) != 0
        && let Some(mark) = value(c"SOFTRING_NOTICE")
    {
        NOTICE.store(mark.as_ptr().cast_mut(), Ordering::Relaxed);
    }
}

/// Reads the keys of the statistics reader and of the tracer.
fn read_readers() {
    use softring_engine::stats::{trace, watcher::Watcher};
    if let Some(key) = given(c"SOFTRING_STAT")
        && !Watcher::Stat.set_key(key.to_bytes())
    {
        let key = key.to_string_lossy();
        crate::notice::say(&format!(
            "SOFTRING_STAT={key} is not a valid key; softring sends no statistics"
        ));
    }
    match given(c"SOFTRING_TRACE") {
        Some(v) if v.to_bytes() == b"0" => trace::disable(),
        Some(v) if !Watcher::Trace.set_key(v.to_bytes()) => {
            let v = v.to_string_lossy();
            crate::notice::say(&format!(
                "SOFTRING_TRACE={v} is not a valid key; softring traces nothing"
            ));
        }
        _ => {}
    }
}

/// Makes `auto` mean `user`, for what only softring's rings have.
fn only_user() {
    if engine() == Engine::Auto {
        ENGINE.store(Engine::User as u8, Ordering::Relaxed);
    }
}

/// Reads the disk models. Only softring's rings have modelled disks, so `auto` becomes `user`.
fn read_models() {
    let Some(text) = given(c"SOFTRING_MODEL") else { return };
    match parse::models(text.to_bytes()) {
        Ok(models) => {
            model::set(models);
            only_user();
        }
        Err(e) => crate::notice::say(&format!("SOFTRING_MODEL: {e}; no disk is modelled")),
    }
}

/// Name of the variable that lists the descriptors which an earlier program of this process left
/// open.
pub const LOCKED: &CStr = c"SOFTRING_LOCKED";

/// Name of the variable that is the first of those that a program is not to see.
pub const FOLLOWED: &CStr = c"SOFTRING_FOLLOWED";

/// Name of the variable that names the command (`children::launch`).
pub const COMMAND: &CStr = c"SOFTRING_COMMAND";

/// Returns the value of [`LOCKED`].
pub fn locked() -> Option<&'static CStr> {
    if is_secure() { None } else { value(LOCKED) }
}

/// Returns the value of the engine's variable (`task_rules::VARIABLE`).
pub fn rules() -> Option<&'static CStr> {
    if is_secure() { None } else { value(c"SOFTRING_RULES") }
}

/// Returns the path of the file that lists programs started without the library (`children`).
pub fn run() -> Option<&'static CStr> {
    if is_secure() { None } else { value(c"SOFTRING_RUN") }
}

/// Returns whether exec(2) has given this process rights that its caller lacks; secure_getenv(3)
/// has this rule.
pub fn is_secure() -> bool {
    c_library::auxiliary(libc::AT_SECURE as usize).is_some()
}

fn value(name: &CStr) -> Option<&'static CStr> {
    let obeyed = !IGNORES.load(Ordering::Relaxed);
    obeyed.then(|| c_library::variable(name.to_bytes())).flatten()
}

/// Returns the value of a variable that is set, and not to nothing.
fn given(name: &CStr) -> Option<&'static CStr> {
    value(name).filter(|v| !v.is_empty())
}

/// Returns 1 for any value but `0` and the empty one: a user who writes `yes` means it.
fn flag(name: &CStr) -> u8 {
    given(name).is_some_and(|v| v.to_bytes() != b"0").into()
}

fn release(name: &CStr) -> Option<Release> {
    let text = given(name)?.to_string_lossy();
    let bad = |e| crate::notice::say(&format!("{}={text}: {e}", name.to_string_lossy()));
    text.parse().map_err(bad).ok()
}

fn choice(name: &CStr, names: &[(&str, u8)]) -> u8 {
    let Some(v) = given(name) else { return 0 };
    if let Some((_, n)) = names.iter().find(|(s, _)| s.as_bytes() == v.to_bytes()) {
        return *n;
    }
    let known = names.iter().map(|(s, _)| *s).filter(|s| !s.is_empty());
    let known = known.collect::<Vec<_>>().join(", ");
    let (name, v) = (name.to_string_lossy(), v.to_string_lossy());
    let default = names.first().map(|(s, _)| *s).filter(|s| !s.is_empty()).unwrap_or("unset");
    crate::notice::say(&format!(
        "{name}={v} is not known; softring uses {default}. Known values: {known}"
    ));
    0
}
