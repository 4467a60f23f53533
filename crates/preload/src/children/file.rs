//! Inspection of a program's file before exec: will it load the library, and does it make rings?
#![allow(unsafe_code)]

use super::rings::{MARGIN, Rings};
use super::{Program, Room, Why, byte};
use crate::loaders;
use crate::raw::{self, raw};
use core::ffi::c_char;
use core::fmt::Write;
use softring_host::{c_library, initial};

/// Limit of the bytes of a segment that are scanned.
const MOST: u64 = 64 << 20;
const PIECE: usize = 64 << 10;
pub const HEAD: usize = 4096;
/// Limits of execve(2): nested scripts, and bytes of a `#!` line.
const MAX_SCRIPTS: usize = 4;
const SHEBANG: usize = 256;

pub const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PF_X: u32 = 1;

/// A path, or a line that holds one.
pub struct Name {
    text: [u8; 1024],
    len: usize,
}

impl Name {
    pub fn new() -> Name {
        Name { text: [0; 1024], len: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    /// Returns the address of the text, which ends with a NUL.
    pub fn as_ptr(&self) -> *const c_char {
        self.text.as_ptr().cast()
    }

    /// Appends `more` and drops what does not fit; the last byte stays 0.
    pub fn add(&mut self, more: &[u8]) {
        let n = more.len().min(self.text.len() - 1 - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&more[..n]);
        self.len += n;
    }

    /// Appends the string at `at` up to its NUL or `end`; returns the address where it stopped.
    fn add_string(&mut self, mut at: u64, end: u8) -> u64 {
        while byte(at) != 0 && byte(at) != end {
            self.add(&[byte(at)]);
            at += 1;
        }
        at
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

pub struct Fd(i32);

impl Fd {
    fn open(dir: i32, path: usize, flags: i32) -> Option<Fd> {
        // SAFETY: the kernel checks the address.
        let fd = unsafe { raw!(libc::SYS_openat, dir, path, flags | libc::O_CLOEXEC, 0o600) };
        (fd >= 0).then_some(Fd(fd as i32))
    }

    /// Returns whether the file at `path` can be read.
    pub fn reads(path: *const c_char) -> bool {
        Fd::open_at(path).is_some()
    }

    pub fn open_name(name: &Name) -> Option<Fd> {
        Fd::open_at(name.as_ptr())
    }

    /// Opens a file to be read.
    pub fn open_at(path: *const c_char) -> Option<Fd> {
        Fd::open(libc::AT_FDCWD, path.expose_provenance(), libc::O_RDONLY)
    }

    /// Returns whether there is a program at `path`.
    pub fn is_program_at(path: *const c_char) -> bool {
        Fd::open_at(path).is_some_and(|file| file.is_program())
    }

    /// Returns the descriptor's number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Returns whether this is a regular file with an execute bit. Reads the mode, as a policy may
    /// refuse faccessat(2) or kill for it.
    fn is_program(&self) -> bool {
        // SAFETY: all-zero bytes are a valid `stat`; the kernel writes within it.
        let (rc, stat) = unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            let rc = raw!(libc::SYS_fstat, self.0, (&raw mut stat).expose_provenance());
            (rc, stat)
        };
        rc == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_mode & 0o111 != 0
    }

    /// Reads into `to` and returns the number of bytes read.
    pub fn read(&self, to: &mut [u8], offset: u64) -> usize {
        // SAFETY: the kernel writes within `to`.
        let n = unsafe {
            let at = to.as_mut_ptr().expose_provenance();
            raw!(libc::SYS_pread64, self.0, at, to.len(), offset)
        };
        usize::try_from(n).unwrap_or(0)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { raw!(libc::SYS_close, self.0) };
    }
}

/// Returns the target of a symbolic link.
fn target(link: &Name) -> Option<Name> {
    let mut name = Name::new();
    let (at, to) = (link.text.as_ptr().expose_provenance(), name.text.as_mut_ptr());
    let room = name.text.len() - 1;
    // SAFETY: the kernel writes at most `room` bytes.
    let n = unsafe { raw!(libc::SYS_readlinkat, libc::AT_FDCWD, at, to.expose_provenance(), room) };
    name.len = usize::try_from(n).ok()?;
    Some(name)
}

/// Finds the first program of this name in `PATH`.
fn in_path(file: *const c_char) -> Option<(Fd, Name)> {
    let path = c_library::variable(b"PATH").unwrap_or(c"/bin:/usr/bin").as_ptr();
    let mut at = path.expose_provenance() as u64;
    let file = file.expose_provenance() as u64;
    loop {
        let mut name = Name::new();
        let end = name.add_string(at, b':');
        name.add(if end == at { b"./" } else { b"/" });
        name.add_string(file, 0);
        if let Some(fd) = Fd::open_name(&name).filter(Fd::is_program) {
            return Some((fd, name));
        }
        if byte(end) == 0 {
            return None;
        }
        at = end + 1;
    }
}

/// Opens a program's file, and returns its path.
pub fn find(program: Program) -> Option<(Fd, Name)> {
    let mut name = Name::new();
    let (dir, path) = match program {
        Program::Named(file) => {
            let at = file.expose_provenance() as u64;
            let slash = (at..).take_while(|&at| byte(at) != 0).any(|at| byte(at) == b'/');
            if !slash {
                return in_path(file);
            }
            (libc::AT_FDCWD, file)
        }
        Program::At(dir, path) => (dir, path),
        Program::Open(fd) => {
            let _ = write!(name, "/proc/self/fd/{fd}");
            let fd = Fd::open_name(&name)?;
            return Some((fd, target(&name).unwrap_or(name)));
        }
    };
    name.add_string(path.expose_provenance() as u64, 0);
    Fd::open(dir, path.expose_provenance(), libc::O_RDONLY).map(|fd| (fd, name))
}

/// Returns whether the program is a script.
pub fn is_script(program: Program) -> bool {
    let mut head = [0; 2];
    find(program).is_some_and(|(fd, _)| fd.read(&mut head, 0) == 2) && head == *b"#!"
}

/// The file that the kernel starts for a program, which is a script's interpreter. What is known
/// of it lies in a mapping: who calls exec may have a small stack.
pub struct File {
    fd: Fd,
    known: Room,
}

struct Known {
    name: Name,
    head: [u8; HEAD],
    len: usize,
}

impl File {
    /// Opens the file, and reads its first bytes.
    #[inline(never)]
    pub fn of(program: Program) -> Option<File> {
        let room = Room::new(size_of::<Known>())?;
        // SAFETY: a new mapping of zeroes, which are a valid structure of numbers.
        let known = unsafe { &mut *room.start().cast::<Known>() };
        let (mut fd, name) = find(program)?;
        known.name = name;
        for _ in 0..MAX_SCRIPTS {
            known.len = fd.read(&mut known.head, 0);
            let Some(line) = known.head[..known.len.min(SHEBANG)].strip_prefix(b"#!") else {
                return Some(File { fd, known: room });
            };
            let mut words = line.split(|b| b" \t\n".contains(b));
            let interpreter = words.find(|word| !word.is_empty())?;
            known.name = Name::new();
            known.name.add(interpreter);
            fd = Fd::open_name(&known.name)?;
        }
        None
    }

    pub fn fd(&self) -> &Fd {
        &self.fd
    }

    fn known(&self) -> &Known {
        // SAFETY: `of` has filled it in.
        unsafe { &*self.known.start().cast::<Known>() }
    }

    pub fn head(&self) -> &[u8] {
        &self.known().head[..self.known().len]
    }

    pub fn name(&self) -> &Name {
        &self.known().name
    }

    /// Returns the reason why this program is to be told of, if it starts without the library, and
    /// makes rings or is a launcher.
    #[inline(never)]
    pub fn judge(&self, preloaded: bool) -> Option<Why> {
        match lacks(&self.fd, self.head(), preloaded)? {
            Why::Environment if is_launcher(self.name()) => Some(Why::Launcher),
            why => makes_rings(&self.fd, self.head()).then_some(why),
        }
    }

    /// Returns the program's kind.
    #[inline(never)]
    pub fn kind(&self) -> Kind {
        kind(&self.fd, self.head())
    }
}

/// Programs that start others: shells, interpreters and command wrappers.
const LAUNCHERS: &[&[u8]] = &[
    b"sh",
    b"bash",
    b"dash",
    b"ash",
    b"zsh",
    b"ksh",
    b"fish",
    b"busybox",
    b"python",
    b"perl",
    b"ruby",
    b"lua",
    b"tclsh",
    b"env",
    b"nice",
    b"ionice",
    b"chrt",
    b"taskset",
    b"numactl",
    b"nohup",
    b"setsid",
    b"timeout",
    b"stdbuf",
    b"time",
    b"xargs",
    b"parallel",
    b"find",
    b"flock",
    b"make",
    b"prlimit",
    b"setpriv",
    b"setarch",
    b"unshare",
    b"nsenter",
    b"chroot",
    b"runuser",
    b"bwrap",
    b"strace",
    b"script",
];

/// Returns whether the file name is a launcher's, with a version at its end or without.
fn is_launcher(name: &Name) -> bool {
    let file = name.bytes().rsplit(|&b| b == b'/').next().unwrap_or_default();
    let version = |rest: &[u8]| rest.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    LAUNCHERS.iter().any(|known| file.strip_prefix(*known).is_some_and(version))
}

fn lacks(fd: &Fd, head: &[u8], preloaded: bool) -> Option<Why> {
    if head.len() < 64 || head[..5] != *b"\x7fELF\x02" {
        return None;
    }
    if gains_rights(fd) {
        return Some(Why::Privileged);
    }
    if !Headers(head).iter().any(|header| header.kind == PT_INTERP) {
        return Some(Why::Static);
    }
    (!preloaded).then_some(Why::Environment)
}

/// A program by how the library comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Program whose loader takes LD_PRELOAD, and is this C library's unless this program has none.
    Dynamic,
    /// Program without a loader, which gains no rights.
    Static,
    Other,
}

fn kind(fd: &Fd, head: &[u8]) -> Kind {
    const EM_X86_64: [u8; 2] = [62, 0];
    const GLIBC: &[u8] = b"/ld-linux-";
    const MUSL: &[u8] = b"/ld-musl-";
    let loaders: &[&[u8]] = match (initial::is_known(), loaders::runs_on_musl()) {
        (true, _) => &[GLIBC, MUSL],
        (_, true) => &[MUSL],
        _ => &[GLIBC],
    };
    let ours = head.len() >= 64 && head[..5] == *b"\x7fELF\x02" && head[18..20] == EM_X86_64;
    if !ours || gains_rights(fd) {
        return Kind::Other;
    }
    // The kernel refuses a file that is cut off there.
    let headers = Headers(head).iter().count();
    if headers != usize::from(u16::from_le_bytes([head[56], head[57]])) {
        return Kind::Other;
    }
    let Some(named) = Headers(head).iter().find(|header| header.kind == PT_INTERP) else {
        return if fd.is_program() { Kind::Static } else { Kind::Other };
    };
    let mut path = [0; 256];
    let n = fd.read(&mut path[..named.len.min(256) as usize], named.offset);
    let is_reached = loaders.iter().any(|loader| names(&path[..n], loader));
    if is_reached { Kind::Dynamic } else { Kind::Other }
}

/// Returns whether the kernel will set AT_SECURE for this program.
fn gains_rights(fd: &Fd) -> bool {
    // SAFETY: an all-zero `stat` is a valid one, and the kernel fills it in; the others are numbers
    // and an array of ours.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let mut rights = [0u8; 64];
        if raw!(libc::SYS_fstat, fd.0, (&raw mut stat).expose_provenance()) != 0 {
            return false;
        }
        let held = raw!(libc::SYS_prctl, libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        let (uid, gid) = (raw!(libc::SYS_getuid) as u32, raw!(libc::SYS_getgid) as u32);
        let name = c"security.capability".as_ptr().expose_provenance();
        let to = rights.as_mut_ptr().expose_provenance();
        let setuid = stat.st_mode & 0o4000 != 0 && stat.st_uid != uid;
        let setgid = stat.st_mode & 0o2010 == 0o2010 && stat.st_gid != gid;
        let capable = uid != 0 && raw!(libc::SYS_fgetxattr, fd.0, name, to, rights.len()) > 0;
        // Under no_new_privs a file's capabilities are not gained, but AT_SECURE is set if they are
        // effective (VFS_CAP_FLAGS_EFFECTIVE).
        !held && (setuid || setgid) || capable && (!held || rights[0] & 1 != 0)
    }
}

pub struct Header {
    pub kind: u32,
    flags: u32,
    pub offset: u64,
    pub address: u64,
    pub len: u64,
}

/// Program headers, as far as they lie in the first page of the file.
pub struct Headers<'a>(pub &'a [u8]);

impl Headers<'_> {
    fn nth(&self, n: usize) -> Option<Header> {
        let number = |at: usize, len: usize| {
            let bytes = self.0.get(at..at + len)?;
            Some(bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b)))
        };
        if n as u64 >= number(56, 2)? {
            return None;
        }
        let at = usize::try_from(number(32, 8)?).ok()?.checked_add(n * number(54, 2)? as usize)?;
        let (kind, flags) = (number(at, 4)? as u32, number(at + 4, 4)? as u32);
        let (offset, address) = (number(at + 8, 8)?, number(at + 16, 8)?);
        Some(Header { kind, flags, offset, address, len: number(at + 32, 8)? })
    }

    pub fn iter(&self) -> impl Iterator<Item = Header> {
        (0..).map_while(|n| self.nth(n))
    }
}

/// Returns whether the text makes rings, or the file names liburing, and the file does not name
/// this library.
fn makes_rings(fd: &Fd, head: &[u8]) -> bool {
    let at = raw::map(PIECE, libc::MAP_PRIVATE);
    if at.is_null() {
        return false;
    }
    // SAFETY: a new mapping of `PIECE` bytes, unmapped below.
    let piece = unsafe { core::slice::from_raw_parts_mut(at, PIECE) };
    let (mut rings, mut uses, mut has_us) = (Rings::default(), false, false);
    for header in Headers(head).iter().filter(|header| header.kind == PT_LOAD) {
        let (mut done, end) = (0, header.len.min(MOST));
        while done < end {
            let most = (end - done).min(PIECE as u64) as usize;
            let n = fd.read(&mut piece[..most], header.offset.saturating_add(done));
            let text = &piece[..n];
            if header.flags & PF_X != 0 {
                rings.scan(text);
            } else {
                uses |= names(text, b"liburing.so");
                has_us |= names(text, b"libsoftring.so");
            }
            if n < most || n <= MARGIN {
                break;
            }
            done += n as u64 - if done + (n as u64) < end { MARGIN as u64 } else { 0 };
        }
    }
    // SAFETY: the mapping is not used any more.
    unsafe { raw!(libc::SYS_munmap, at.expose_provenance(), PIECE) };
    (uses || rings.are_made()) && !has_us
}

fn names(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|w| w == what)
}

/// Adds `name` to the file at `run`. True if the file did not hold the name, or cannot be opened.
pub fn is_first(run: *const c_char, name: &Name) -> bool {
    const HOW: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW;
    let Some(file) = Fd::open(libc::AT_FDCWD, run.expose_provenance(), HOW) else { return true };
    let mut known = [0; HEAD];
    let mut line = Name::new();
    line.add(name.bytes());
    line.add(b"\n");
    let line = line.bytes();
    // SAFETY: numbers, and a line that is read.
    unsafe { raw!(libc::SYS_flock, file.0, libc::LOCK_EX) };
    let n = file.read(&mut known, 0);
    // A full file takes no more lines.
    if n + line.len() > HEAD || known[..n].split_inclusive(|&b| b == b'\n').any(|l| l == line) {
        return false;
    }
    // SAFETY: as above.
    unsafe { raw!(libc::SYS_write, file.0, line.as_ptr().expose_provenance(), line.len()) };
    true
}
