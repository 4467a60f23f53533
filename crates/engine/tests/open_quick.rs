//! Opens that create files: workers make the first ones, and the submitter makes them once they
//! hardly ever waited, but none that has to wait for somebody.
#![allow(unsafe_code)]

mod client;

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use client::{Client, register, sqe};
use softring_client::Cqe;
use softring_uapi::errno::Errno;
use softring_uapi::*;

const NEW: i32 = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;

/// A folder of this test's on a file system in memory, whose files never wait.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Option<Self> {
        let path = Path::new("/dev/shm").join(format!("softring-opens-{}", std::process::id()));
        fs::create_dir(&path).is_ok().then_some(Folder(path))
    }

    fn path(&self, name: &str) -> CString {
        CString::new(self.0.join(name).into_os_string().into_encoded_bytes()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &CString, flags: i32, user_data: u64) -> io_uring_sqe {
    io_uring_sqe {
        fd: libc::AT_FDCWD,
        addr: path.as_ptr().expose_provenance() as u64,
        len: 0o666,
        op_flags: flags.cast_unsigned(),
        ..sqe(IORING_OP_OPENAT, user_data)
    }
}

fn next(c: &Client) -> Cqe {
    loop {
        match c.pop() {
            Some(cqe) => return cqe,
            None => assert_eq!(c.enter(0, 1), 0),
        }
    }
}

fn close(fd: i32) {
    // SAFETY: a number.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

/// Opens new files one after the other; returns how many of the last hundred the caller has made by
/// itself: it has a mask of its own.
fn create(c: &Client, folder: &Folder, count: u32) -> usize {
    let mut own = 0;
    for i in 0..count {
        let (name, path) = (folder.0.join(format!("new{i}")), folder.path(&format!("new{i}")));
        c.push(open(&path, NEW | libc::O_TRUNC, u64::from(i)));
        assert_eq!(c.enter(1, 1), 1);
        let cqe = next(c);
        assert!(cqe.res >= 0 && cqe.user_data == u64::from(i), "{cqe:?}");
        // SAFETY: numbers.
        let flags = unsafe { libc::fcntl(cqe.res, libc::F_GETFL) };
        assert_eq!(flags & (libc::O_NONBLOCK | libc::O_ACCMODE), libc::O_WRONLY);
        close(cqe.res);
        let mode = fs::metadata(&name).unwrap().permissions().mode() & 0o777;
        assert!([0o644, 0o600].contains(&mode), "{mode:o}");
        own += usize::from(mode == 0o600 && i + 100 >= count);
        fs::remove_file(name).unwrap();
    }
    own
}

#[test]
fn the_submitter_creates_files_once_that_hardly_ever_waits() {
    let Some(folder) = Folder::new() else { return };
    let c = Client::new(8, 0);
    // One worker, which is there before: a later one would have its maker's mask.
    let one = [1u32; 2];
    let at = one.as_ptr().expose_provenance();
    assert_eq!(register(c.fd, IORING_REGISTER_IOWQ_MAX_WORKERS, at, 2), 0);
    // SAFETY: numbers. The worker keeps the process's mask, the caller gets another one.
    unsafe { libc::umask(0o022) };
    create(&c, &folder, 1);
    // SAFETY: as above.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_FS), 0);
        libc::umask(0o077);
    }
    assert_eq!(create(&c, &folder, 100), 0);
    // A machine that others keep busy gets another try.
    assert!((0..20).any(|_| create(&c, &folder, 400) > 50));

    // Failures are told as ever.
    let (there, nowhere) = (folder.path("there"), folder.path("none/file"));
    fs::write(folder.0.join("there"), "text").unwrap();
    c.push(open(&there, NEW | libc::O_EXCL, 1));
    c.push(open(&nowhere, NEW, 2));
    assert_eq!(c.enter(2, 2), 2);
    let mut failed = [next(&c), next(&c)].map(|cqe| (cqe.user_data, cqe.res));
    failed.sort_unstable();
    assert_eq!(failed, [(1, Errno::EEXIST.res()), (2, Errno::ENOENT.res())]);
    assert_eq!(fs::read(folder.0.join("there")).unwrap(), b"text");

    // A FIFO opens when its reader has come, and nobody waits for that but the request.
    let fifo = folder.path("fifo");
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    c.push(open(&fifo, NEW, 3));
    assert_eq!(c.enter(1, 0), 1);
    assert!(c.pop().is_none());
    let mut how = fs::OpenOptions::new();
    let reader = how.read(true).custom_flags(libc::O_NONBLOCK).open(folder.0.join("fifo"));
    let cqe = next(&c);
    assert!(cqe.user_data == 3 && cqe.res >= 0, "{cqe:?}");
    close(cqe.res);
    drop(reader.unwrap());
}
