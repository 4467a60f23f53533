//! Checks of a program before it is started: whether it can run here, and whether the preload can
//! reach it.

use super::elf::{self, Elf, Interp};
use crate::child::{self, Isolated};
use crate::fail;
use crate::files::{self, Status};
use softring_host::refused;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Trouble with a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A program that cannot be started at all.
    Fatal { code: u8, what: String, hint: String },
    /// A program without a dynamic loader, which can get the library only as it starts.
    Static { what: String, hint: String },
    /// A program that starts, but without the preload library in it.
    Unreachable { what: String, hint: String },
    /// A program of another machine, which only the kernel knows whether it runs.
    Foreign { what: String, hint: String },
    /// A program that may be run and not read: nobody knows whether the library gets there.
    Unread { what: String, hint: String },
}

impl Trouble {
    /// Returns whether a program with this trouble may get the library all the same.
    pub const fn leaves_library(&self) -> bool {
        matches!(self, Trouble::Unread { .. })
    }
}

/// Makes the trouble of a program that would be killed for a call of the library's.
pub fn kills(path: &Path, call: &str) -> Trouble {
    Trouble::Unreachable {
        what: format!(
            "a policy here kills for {call}(2), which softring's library calls as {} starts",
            path.display()
        ),
        hint: "have the policy allow the call, or start the program alone".into(),
    }
}

/// Bytes of a file in which the kernel reads the name of its interpreter (`BINPRM_BUF_SIZE`).
const HEAD: usize = 256;

/// Most interpreters of scripts that the kernel follows.
const MAX_SCRIPTS: u32 = 4;

fn fatal(what: String, hint: &str) -> Trouble {
    Trouble::Fatal { code: fail::NOT_EXECUTABLE, what, hint: hint.into() }
}

/// Makes the trouble of a file that is no program, or no whole one.
fn damaged(what: String, hint: &str) -> Trouble {
    Trouble::Fatal { code: fail::USAGE, what, hint: hint.into() }
}

fn missing(what: String, hint: &str) -> Trouble {
    Trouble::Fatal { code: fail::NOT_FOUND, what, hint: hint.into() }
}

/// Circumstances in which a program is to be started.
#[derive(Clone, Copy)]
struct Start {
    /// True under no_new_privs, which this process has or is about to set.
    held: bool,
}

/// Returns every trouble with starting `path` with a library preloaded, and, if `deny`, under our
/// filter, which comes with no_new_privs.
pub fn examine(path: &Path, deny: bool) -> Vec<Trouble> {
    let mut found = Vec::new();
    let held = deny || files::proc_status("NoNewPrivs").is_some_and(|v| v == "1");
    check(path, Start { held }, MAX_SCRIPTS, &mut found);
    found
}

fn check(path: &Path, start: Start, scripts_left: u32, found: &mut Vec<Trouble>) {
    let name = path.display();
    let meta = match files::status(path) {
        Ok(m) => m,
        Err(e) => {
            let absent = e.kind() == io::ErrorKind::NotFound;
            let trouble = if absent { missing } else { fatal };
            return found.push(trouble(format!("{name}: {e}"), missing_hint(&e)));
        }
    };
    if meta.is_dir() {
        let hint = "name a program inside the directory";
        return found.push(fatal(format!("{name} is a directory, not a program"), hint));
    }
    if !meta.is_file() {
        return found.push(fatal(format!("{name} is not a regular file"), "name a program"));
    }
    // If a policy refuses access(2), exec will tell.
    let denied =
        |path, how| files::access(path, how).is_err_and(|e| e.raw_os_error() == Some(libc::EACCES));
    if denied(path, libc::X_OK) && !denied(Path::new("/"), libc::F_OK) {
        let hint = if meta.mode & 0o111 == 0 {
            "make the file executable (chmod +x), or start its interpreter: softring run -- sh FILE"
        } else {
            "the file is executable, but not for this user or not on this mount (noexec)"
        };
        return found.push(fatal(format!("{name}: permission denied"), hint));
    }
    // An executable that may not be read can still be started.
    let Ok(file) = File::open(path) else {
        let what =
            format!("{name} may not be read: if it is statically linked, it gets no library");
        let hint = format!("make it readable: chmod +r {name}");
        found.push(Trouble::Unread { what, hint });
        return check_privileges(path, meta, start, found);
    };
    match elf::read(&file) {
        Ok(Some(elf)) => {
            check_elf(path, &elf, found);
            check_privileges(path, meta, start, found);
        }
        Ok(None) => check_script(path, &file, start, scripts_left, found),
        Err(e) => found.push(fatal(format!("cannot read {name}: {e}"), "check the file system")),
    }
}

fn missing_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::NotFound => "check the spelling; a relative path starts at this directory",
        io::ErrorKind::PermissionDenied => "this user may not search a directory of the path",
        _ => "check the path",
    }
}

fn check_elf(path: &Path, elf: &Elf, found: &mut Vec<Trouble>) {
    let name = path.display();
    if elf.machine != elf::OURS || elf.bits != 64 {
        let (theirs, ours) = (elf::machine_name(elf.machine), elf::machine_name(elf::OURS));
        let what = format!(
            "{name} is a {}-bit {theirs} program, but softring here is 64-bit {ours}",
            elf.bits
        );
        let hint = "use a build of the program for this machine".into();
        return found.push(Trouble::Foreign { what, hint });
    }
    match &elf.interp {
        Some(Interp::Path(interp)) => check_interp(path, interp, found),
        Some(Interp::Damaged) => {
            let what = format!("{name} does not name its dynamic linker as it should (PT_INTERP)");
            found.push(damaged(what, "get a whole copy of the file; readelf -l tells what it is"));
        }
        None if is_loader(path) => {}
        None if elf.packed => {
            let what = format!("{name} is packed (UPX), so its calls appear only when it runs");
            let hint = "unpack a copy with upx -d, and run that".into();
            found.push(Trouble::Unreachable { what, hint });
        }
        None => {
            let what = format!("{name} is statically linked, so it cannot load a preload library");
            let hint = "link the program dynamically (for a Rust program there is also the crate \
                        softring-engine)";
            let hint = hint.into();
            found.push(match elf.loads {
                true => Trouble::Static { what, hint },
                false => Trouble::Unreachable { what, hint },
            });
        }
    }
}

/// Checks the dynamic linker of a program.
fn check_interp(path: &Path, interp: &Path, found: &mut Vec<Trouble>) {
    let needs = format!("{} needs the dynamic linker {}, which", path.display(), interp.display());
    match files::status(interp) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => {
            let hint = "link the program with the path of a dynamic linker";
            found.push(fatal(format!("{needs} is not a regular file"), hint));
        }
        Err(_) => {
            let hint = "install the C library that the program was built for";
            found.push(missing(format!("{needs} does not exist here"), hint));
        }
    }
}

/// Returns whether `path` is a dynamic linker. It has no PT_INTERP itself, yet it honours
/// LD_PRELOAD for the program it is given.
fn is_loader(path: &Path) -> bool {
    let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // musl's dynamic linker is its C library as well, and the file has that name.
    [path, &file]
        .into_iter()
        .filter_map(Path::file_name)
        .map(OsStr::as_bytes)
        .any(|name| name.starts_with(b"ld-") || name.starts_with(b"ld.so"))
}

/// Returns the first byte of a file's capabilities, if it has some. If a filter may kill for
/// getxattr(2), a child asks; if no child can be had, nobody does.
fn capabilities(path: &Path) -> Option<u8> {
    let ask = || {
        let mut rights = [0u8; 64];
        let n = rustix::fs::getxattr(path, "security.capability", &mut rights[..]).ok()?;
        (n > 0).then_some(rights[0])
    };
    if !refused::is_filtered() {
        return ask();
    }
    match child::isolated(|| ask().into_iter().collect()) {
        Ok(Isolated::Answer(first)) => first.first().copied(),
        _ => None,
    }
}

/// Reports a program that gains privileges by being started: the dynamic linker drops preloads with
/// a path from it.
fn check_privileges(path: &Path, file: Status, start: Start, found: &mut Vec<Trouble>) {
    let (mode, held) = (file.mode, start.held);
    let (uid, gid) = files::own_ids();
    let setuid = !held && mode & 0o4000 != 0 && file.uid != uid;
    let setgid = !held && mode & 0o2010 == 0o2010 && file.gid != gid;
    // Under no_new_privs capabilities are not gained, but the linker is told so if they are
    // effective (VFS_CAP_FLAGS_EFFECTIVE).
    let capable = uid != 0 && capabilities(path).is_some_and(|first| !held || first & 1 != 0);
    let why = match (setuid, setgid, capable) {
        (true, ..) => "is setuid",
        (_, true, _) => "is setgid",
        (.., true) => "has file capabilities",
        _ => return,
    };
    found.push(Trouble::Unreachable {
        what: format!(
            "{} {why}, so the dynamic linker ignores the preload library",
            path.display()
        ),
        hint: "run softring as the user that the program changes to, or use a copy without the \
               privilege"
            .into(),
    });
}

fn check_script(
    path: &Path,
    file: &File,
    start: Start,
    scripts_left: u32,
    found: &mut Vec<Trouble>,
) {
    let mut head = [0; HEAD];
    let n = elf::read_up_to(file, &mut head, 0).unwrap_or(0);
    let Some((interp, arg)) = shebang(&head) else {
        // There is no header at all: the file goes to the shell, as with execvp(3) (see `exec`),
        // unless it is no text.
        if head[..n].contains(&0) {
            let what = format!("{} is neither a whole ELF program nor a script", path.display());
            let hint = "get a whole copy of the file; file(1) and readelf(1) tell what it is";
            found.push(damaged(what, hint));
        }
        return;
    };
    if interp.as_os_str().as_bytes().ends_with(b"\r") {
        let what = format!("{}: its #! line ends in a carriage return", path.display());
        return found.push(fatal(what, "give it Unix line ends: sed -i 's/\\r$//' FILE"));
    }
    if scripts_left == 0 {
        let what = format!("{}: the chain of #! lines is too long", path.display());
        return found.push(fatal(what, "shorten the chain"));
    }
    let before = found.len();
    check(&interp, start, scripts_left - 1, found);
    if interp.file_name() == Some(OsStr::new("env"))
        && let Some(program) = arg.filter(|a| !a.as_bytes().starts_with(b"-"))
        && let Some(target) = super::in_path(&program)
    {
        check(&target, start, scripts_left - 1, found);
    }
    for trouble in &mut found[before..] {
        if let Trouble::Fatal { what, .. } = trouble {
            *what = format!("{} is a script: {what}", path.display());
        }
    }
}

/// Returns the interpreter of a `#!` line, and the first word after it. A NUL ends the line, as in
/// the kernel; the kernel takes no interpreter whose name may go on behind the head.
fn shebang(head: &[u8; HEAD]) -> Option<(PathBuf, Option<std::ffi::OsString>)> {
    let text = head.strip_prefix(b"#!")?;
    let line = text.split(|b| b"\n\0".contains(b)).next()?;
    let blank = |b: &u8| b" \t".contains(b);
    if line.len() == text.len() && !line.trim_ascii_start().iter().any(blank) {
        return None;
    }
    let mut words = line.split(|b| b" \t".contains(b)).filter(|w| !w.is_empty());
    let interp = PathBuf::from(OsStr::from_bytes(words.next()?));
    Some((interp, words.next().map(|w| OsStr::from_bytes(w).to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = dir.join(name);
        let mut f = File::create(&path).unwrap();
        f.write_all(text).unwrap();
        f.set_permissions(Permissions::from_mode(mode)).unwrap();
        path
    }

    fn only(path: &Path) -> Trouble {
        let mut found = examine(path, false);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn good_programs_have_no_trouble() {
        assert_eq!(examine(Path::new("/bin/sh"), false), []);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(examine(&script(dir.path(), "a", b"#!/bin/sh\n:\n", 0o755), false), []);
        assert_eq!(examine(&script(dir.path(), "b", b"#! /usr/bin/env sh\n:\n", 0o755), false), []);
        assert_eq!(examine(&script(dir.path(), "c", b"echo no header\n", 0o755), false), []);
    }

    #[test]
    fn troubles_have_messages() {
        let dir = tempfile::tempdir().unwrap();
        let text = |t: Trouble| format!("{t:?}");
        assert!(text(only(&dir.path().join("none"))).contains("No such file"));
        assert!(text(only(dir.path())).contains("is a directory"));
        let plain = script(dir.path(), "plain", b"#!/bin/sh\n", 0o644);
        assert!(text(only(&plain)).contains("chmod +x"));
        let lost = script(dir.path(), "lost", b"#!/no/such/interp\n", 0o755);
        assert!(text(only(&lost)).contains("is a script: /no/such/interp"));
        let dos = script(dir.path(), "dos", b"#!/bin/sh\r\n:\r\n", 0o755);
        assert!(text(only(&dos)).contains("carriage return"));
        let junk = script(dir.path(), "junk", b"\0\x01\x02", 0o755);
        assert!(text(only(&junk)).contains("neither a whole ELF"));
        let mut arm = [0u8; 64];
        arm[..6].copy_from_slice(b"\x7fELF\x02\x01");
        arm[18] = if elf::OURS == 183 { 62 } else { 183 };
        assert!(text(only(&script(dir.path(), "arm", &arm, 0o755))).contains("64-bit"));
        arm[18] = elf::OURS as u8;
        let fixed = only(&script(dir.path(), "static", &arm, 0o755));
        assert!(matches!(fixed, Trouble::Unreachable { .. }), "{fixed:?}");
    }

    #[test]
    fn endless_interpreter_chains_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("self");
        let text = format!("#!{}\n", path.display());
        script(dir.path(), "self", text.as_bytes(), 0o755);
        assert!(format!("{:?}", only(&path)).contains("too long"));
    }

    #[test]
    fn shebang_words() {
        let words = |s: &str| {
            let mut head = [0; HEAD];
            head[..s.len().min(HEAD)].copy_from_slice(&s.as_bytes()[..s.len().min(HEAD)]);
            shebang(&head)
        };
        assert_eq!(words("#!/bin/sh"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            words("#! /usr/bin/env  x y\nz"),
            Some(("/usr/bin/env".into(), Some("x".into())))
        );
        assert_eq!(words("#!/bin/sh\0x\n"), Some(("/bin/sh".into(), None)));
        let long = |n: usize| format!("#!{}", "/".repeat(n - 2));
        assert_eq!(words(&format!("{}\n", long(255))), Some((long(255)[2..].into(), None)));
        assert_eq!(words(&format!("{}\n", long(256))), None);
        assert!(words(&format!("#!/bin/sh {}\n", "x".repeat(300))).is_some());
        assert_eq!(words("#!\n"), None);
        assert_eq!(words("plain"), None);
    }
}
