//! Probes: one function per check, which returns what it found.

use crate::files::{self, proc_status};
use crate::run::lib_path::{self, Library};
use crate::{child, sys};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use softring_engine::poll_queues;
use softring_engine::syscall::lacks::Lacking;
use softring_host::{refused, substitute};
use softring_uapi::io_uring_params;
use softring_uapi::version::{self, Release};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Works as wished.
    Ok,
    /// Works, with less.
    Less,
    /// Refused, or not there.
    Denied,
    /// Cannot be seen from here.
    Unknown,
}

impl State {
    pub const fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Less => "less",
            State::Denied => "no",
            State::Unknown => "?",
        }
    }
}

/// Finding of a probe.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finding {
    pub state: State,
    pub found: String,
}

impl Finding {
    pub fn new(state: State, found: impl Into<String>) -> Self {
        Finding { state, found: found.into() }
    }

    fn works<T>(r: io::Result<T>) -> Self {
        match r {
            Ok(_) => Finding::new(State::Ok, "works"),
            Err(e) => Finding::new(State::Denied, explain(&e)),
        }
    }
}

/// Returns an error's text, with its name if that helps to search the web for it.
fn explain(e: &io::Error) -> String {
    let name = match e.raw_os_error() {
        Some(libc::EPERM) => "EPERM",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::EACCES) => "EACCES",
        Some(libc::ENOMEM) => "ENOMEM",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::EAGAIN) => "EAGAIN",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::EMFILE) => "EMFILE",
        Some(libc::ENFILE) => "ENFILE",
        _ => return e.to_string(),
    };
    format!("{name}: {e}")
}

/// Returns the same text for an errno.
pub fn errno_text(errno: i32) -> String {
    explain(&io::Error::from_raw_os_error(errno))
}

fn proc_text(path: &str) -> Option<String> {
    files::proc_text(path).ok().map(|s| s.trim().to_owned())
}

/// Returns whether this process gets a ring from the kernel. A child asks if a policy may kill for
/// the call, or if softring's library is under this process: it would report whose ring that is.
pub fn kernel_ring_works() -> bool {
    let asked = || sys::io_uring_setup(1, &mut io_uring_params::default()).is_ok();
    if !refused::is_filtered() && !sys::is_under_softring() {
        return asked();
    }
    let answer = child::isolated(|| vec![u8::from(asked())]);
    matches!(answer, Ok(child::Isolated::Answer(works)) if works == [1])
}

pub fn ring_setup() -> Finding {
    let mut params = io_uring_params::default();
    match sys::io_uring_setup(1, &mut params) {
        Ok(ring) => Finding::new(State::Ok, format!("works ({})", ring_kind(&ring))),
        Err(e) => Finding::new(State::Denied, explain(&e)),
    }
}

/// Prefix of what /proc calls a descriptor of softring's: its ring memory.
pub const OURS: &str = "memfd:";

/// Returns the side whose ring a descriptor is, by what /proc calls it.
fn ring_kind(ring: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    match fs::read_link(format!("/proc/self/fd/{}", ring.as_raw_fd())) {
        Ok(link) => link.display().to_string(),
        // There is no /proc. Of the two only a memfd has seals.
        Err(_) if rustix::fs::fcntl_get_seals(ring).is_ok() => format!("{OURS}[io_uring]"),
        Err(_) => "anon_inode:[io_uring]".into(),
    }
}

pub fn kernel() -> Finding {
    let name = rustix::system::uname();
    let state = match substitute::release() {
        Release(0, _) => State::Unknown,
        release if release < Release::FIRST => State::Denied,
        release if release < Release(5, 19) => State::Less,
        _ => State::Ok,
    };
    let [machine, release] = [name.machine(), name.release()].map(CStr::to_string_lossy);
    Finding::new(state, format!("{machine} {release}"))
}

/// Finds what the kernel's rings lack of softring's.
pub fn lacking() -> Finding {
    match Lacking::of(version::played().release) {
        Err(_) => Finding::new(State::Unknown, "the kernel gives no ring to probe"),
        Ok(lacking) if lacking.is_empty() => Finding::new(State::Ok, "nothing"),
        Ok(lacking) => Finding::new(State::Less, lacking.names().join(", ")),
    }
}

pub fn sysctl() -> Finding {
    let Some(value) = proc_text("/proc/sys/kernel/io_uring_disabled") else {
        if !files::exists(Path::new("/proc/sys/kernel")) {
            return Finding::new(State::Unknown, "/proc is not mounted here");
        }
        return Finding::new(State::Ok, "no such sysctl (it came with Linux 6.6)");
    };
    let group = proc_text("/proc/sys/kernel/io_uring_group").unwrap_or_default();
    match value.as_str() {
        "0" => Finding::new(State::Ok, "0"),
        "1" => Finding::new(State::Less, format!("1, group {group}")),
        _ => Finding::new(State::Denied, value),
    }
}

pub fn seccomp() -> Finding {
    let Some(mode) = proc_status("Seccomp") else {
        return Finding::new(State::Unknown, "/proc/self/status lacks this field");
    };
    let filters = proc_status("Seccomp_filters").unwrap_or_else(|| "?".into());
    match mode.as_str() {
        "0" => Finding::new(State::Ok, "no filter"),
        "1" => Finding::new(State::Denied, "strict mode"),
        _ => Finding::new(State::Less, format!("{filters} filter(s) on this process")),
    }
}

pub fn lsm() -> Finding {
    if let Some(list) = proc_text("/sys/kernel/security/lsm") {
        return Finding::new(State::Ok, list);
    }
    match proc_text("/proc/self/attr/current").filter(|l| !l.is_empty()) {
        Some(label) => Finding::new(State::Ok, format!("label {}", label.trim_end_matches('\0'))),
        None => Finding::new(State::Unknown, "securityfs is not mounted here"),
    }
}

pub fn library() -> Finding {
    match lib_path::find() {
        Ok(Library::File(path)) => Finding::new(State::Ok, path.display().to_string()),
        Ok(Library::Memory(_)) => {
            let found = "inside softring, and in memory: no folder allows a file";
            Finding::new(State::Less, found)
        }
        Err(e) => Finding::new(State::Denied, e.to_string()),
    }
}

pub fn libc_entry() -> Finding {
    Finding::new(State::Ok, "works for dynamically linked programs")
}

pub fn patch_entry() -> Finding {
    Finding::works(sys::text_patch())
}

pub fn trap_entry() -> Finding {
    Finding::works(sys::seccomp_trap())
}

pub fn dispatch_entry() -> Finding {
    Finding::works(sys::user_dispatch())
}

pub fn memfd() -> Finding {
    refused::learn();
    match substitute::memfd("softring-doctor", false) {
        Ok(_) => Finding::new(State::Ok, "works"),
        Err(e) if substitute::memory_file("softring-doctor").is_ok() => {
            Finding::new(State::Less, format!("{}; softring uses a file instead", errno_text(e.0)))
        }
        Err(e) => Finding::new(State::Denied, errno_text(e.0)),
    }
}

pub fn eventfd() -> Finding {
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    Finding::works(rustix::event::eventfd(0, flags).map_err(io::Error::from))
}

pub fn aio() -> Finding {
    Finding::works(sys::aio_context(32))
}

pub fn epoll_pwait2() -> Finding {
    Finding::works(sys::epoll_pwait2())
}

/// Makes an unnamed file in this directory, with something in it.
fn file_here() -> io::Result<File> {
    let mut file = tempfile::tempfile_in(".")?;
    file.write_all(&[7; 4096])?;
    Ok(file)
}

pub fn nowait() -> Finding {
    let file = match file_here() {
        Ok(f) => f,
        Err(e) => return Finding::new(State::Unknown, format!("cannot write here: {e}")),
    };
    let mut buf = [0; 4096];
    let mut parts = [io::IoSliceMut::new(&mut buf)];
    match rustix::io::preadv2(&file, &mut parts, 0, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Finding::new(State::Ok, "works"),
        Err(e) => Finding::new(State::Less, explain(&e.into())),
    }
}

pub fn direct() -> Finding {
    let file = match file_here() {
        Ok(f) => f,
        Err(e) => return Finding::new(State::Unknown, format!("cannot write here: {e}")),
    };
    match rustix::fs::fcntl_setfl(&file, OFlags::DIRECT) {
        Ok(()) => Finding::new(State::Ok, "works"),
        Err(e) => Finding::new(State::Less, explain(&e.into())),
    }
}

/// Finds the disks with poll queues.
pub fn poll_queues() -> Finding {
    let (polled, other): (Vec<_>, Vec<_>) = poll_queues::disks().into_iter().partition(|d| d.1);
    let name = |(name, _): &(String, bool)| name.clone();
    match (polled.len(), other.len()) {
        (0, 0) => Finding::new(State::Unknown, "/sys is not mounted here"),
        (0, n) if !poll_queues::refuses() => Finding::new(
            State::Less,
            format!("none of {n} disks has them; this kernel does polled I/O anyway"),
        ),
        (0, n) => Finding::new(State::Less, format!("none of {n} disks")),
        _ => Finding::new(State::Ok, polled.iter().map(name).collect::<Vec<_>>().join(", ")),
    }
}

/// Finds whether the disk under this directory has poll queues.
pub fn disk_here() -> Finding {
    let dev = match fs::metadata(".") {
        Ok(meta) => std::os::unix::fs::MetadataExt::dev(&meta),
        Err(e) => return Finding::new(State::Unknown, explain(&e)),
    };
    let at = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let Ok(path) = fs::canonicalize(&at) else {
        return Finding::new(State::Unknown, "this file system is not on a disk");
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // A partition's queue is that of the disk above it.
    let dirs = [path.as_path(), path.parent().unwrap_or(&path)];
    let polls = dirs.iter().find_map(|d| fs::read_to_string(d.join("queue/io_poll")).ok());
    match polls.as_deref().map(str::trim) {
        Some("1") => Finding::new(State::Ok, format!("{name}: yes")),
        Some(_) => Finding::new(State::Less, format!("{name}: no poll queues")),
        None => Finding::new(State::Unknown, format!("{name}: unknown")),
    }
}

/// Finds a limit, as "soft of hard", and whether the soft one is below `enough`.
fn limit(which: Resource, enough: u64) -> Finding {
    let l = getrlimit(which);
    let show = |v: Option<u64>| v.map_or_else(|| "unlimited".into(), |n| n.to_string());
    let state = if l.current.is_some_and(|n| n < enough) { State::Less } else { State::Ok };
    Finding::new(state, format!("{} of {}", show(l.current), show(l.maximum)))
}

pub fn memlock() -> Finding {
    limit(Resource::Memlock, 0)
}

pub fn nofile() -> Finding {
    limit(Resource::Nofile, 256)
}

/// Finds the limit of file sizes. softring lifts a soft limit that is too low where it matters.
pub fn fsize() -> Finding {
    let found = limit(Resource::Fsize, 0);
    match softring_engine::no_ring() {
        Some(_) => Finding { state: State::Denied, ..found },
        None => found,
    }
}

pub fn nproc() -> Finding {
    limit(Resource::Nproc, 256)
}

pub fn aio_nr() -> Finding {
    let number = |p| proc_text(p).and_then(|s| s.parse::<u64>().ok());
    let (now, max) = (number("/proc/sys/fs/aio-nr"), number("/proc/sys/fs/aio-max-nr"));
    match (now, max) {
        (Some(now), Some(max)) => {
            let state = if now + 4096 > max { State::Less } else { State::Ok };
            Finding::new(state, format!("{now} of {max}"))
        }
        _ => Finding::new(State::Unknown, "/proc is not mounted here"),
    }
}
