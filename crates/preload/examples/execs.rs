//! A program that holds a POSIX lock on a registered file and execs itself by each of the functions
//! that can: `execs HOW`. It exits with 0 if arguments, environment and lock arrive. With `high`
//! the file has a number above a limit that was lowered since.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int};
use core::ptr::null;
use io_uring::IoUring;
use std::ffi::CString;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::process::ExitCode;

const ARGS: [&CStr; 9] = [c"execs", c"check", c"2", c"3", c"4", c"5", c"6", c"7", c"8"];
const HERE: &CStr = c"EXECS_HERE=1";
const HIGH: i32 = 700;

fn lock(fd: i32, cmd: c_int) -> libc::flock {
    let l_type = libc::F_WRLCK as i16;
    let mut lock = libc::flock { l_type, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: a live lock.
    assert_eq!(unsafe { libc::fcntl(fd, cmd, &mut lock) }, 0);
    lock
}

/// Calls exec in this way; returns only if it fails.
fn exec(how: &str, path: &CStr) {
    let args: Vec<_> = ARGS.iter().map(|a| a.as_ptr()).chain([null()]).collect();
    let vars = std::env::vars().filter(|(name, _)| name != "EXECS_HERE");
    let vars = vars.map(|(name, value)| CString::new(format!("{name}={value}")).unwrap());
    let vars: Vec<_> = vars.chain([HERE.to_owned()]).collect();
    let env: Vec<*const c_char> = vars.iter().map(|v| v.as_ptr()).chain([null()]).collect();
    let (argv, envp) = (args.as_ptr(), env.as_ptr());
    let dir = std::fs::File::open("/").unwrap();
    let file = std::fs::File::open(path.to_str().unwrap()).or_else(|_| std::fs::File::open("/"));
    let file = file.unwrap();
    // SAFETY: strings and arrays with their null pointers; the process has one thread.
    unsafe {
        let [a, b, c, d, e, f, g, h, i] = ARGS.map(CStr::as_ptr);
        let end = null::<c_char>();
        let name = path.as_ptr();
        match how {
            "execve" | "high" => libc::execve(name, argv, envp),
            "execv" => libc::execv(name, argv),
            "execvp" => libc::execvp(name, argv),
            "execvpe" => libc::execvpe(name, argv, envp),
            "fexecve" => libc::fexecve(file.as_raw_fd(), argv, envp),
            "execveat" => {
                type Execveat = unsafe extern "C" fn(
                    c_int,
                    *const c_char,
                    *const *const c_char,
                    *const *const c_char,
                    c_int,
                ) -> c_int;
                let at = libc::dlsym(libc::RTLD_DEFAULT, c"execveat".as_ptr());
                let call: Option<Execveat> = core::mem::transmute(at);
                call.map_or(-1, |call| call(dir.as_raw_fd(), name.add(1), argv, envp, 0))
            }
            "execl" => libc::execl(name, a, b, c, d, e, f, g, h, i, end),
            "execlp" => libc::execlp(name, a, b, c, d, e, f, g, h, i, end),
            "execle" => libc::execle(name, a, b, c, d, e, f, g, h, i, end, envp),
            "syscall" => libc::syscall(libc::SYS_execve, name, argv, envp) as c_int,
            _ => panic!("no such way: {how}"),
        };
    }
}

/// Checks that an environment that can't be read is an error like any other.
fn exec_without_environment(path: &CStr) {
    let args = [path.as_ptr(), null()];
    let unreadable = core::ptr::without_provenance::<*const c_char>(8);
    let strings = [HERE.as_ptr(), unreadable.cast(), null()];
    // SAFETY: the kernel reads, and finds that it can't.
    unsafe {
        let (prot, how) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let pages = libc::mmap(core::ptr::null_mut(), 8192, prot, how | libc::MAP_ANONYMOUS, -1, 0);
        libc::munmap(pages.byte_add(4096), 4096);
        let last = pages.byte_add(4096 - 8).cast::<*const c_char>();
        last.write(HERE.as_ptr());
        for envp in [unreadable, last, strings.as_ptr()] {
            let wrapped = libc::execve(path.as_ptr(), args.as_ptr(), envp);
            assert_eq!((wrapped, errno()), (-1, libc::EFAULT));
            let by_number = libc::syscall(libc::SYS_execve, path.as_ptr(), args.as_ptr(), envp);
            assert_eq!((by_number, errno()), (-1, libc::EFAULT));
        }
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn lower_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live limit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = 64;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

fn check() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(2).collect();
    assert_eq!(args, ["2", "3", "4", "5", "6", "7", "8"]);
    assert_eq!(std::env::var("EXECS_HERE").as_deref(), Ok("1"));
    assert!(std::env::var_os("SOFTRING_LOCKED").is_none());
    let mine =
        |fd: &i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|l| is_ours(&l));
    let fd = [0, HIGH].into_iter().find(mine).expect("the file");
    // SAFETY: the child has one thread, and leaves at once.
    let held = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(lock(fd, libc::F_GETLK).l_pid != libc::getppid()));
        }
        let mut status = 1;
        libc::waitpid(child, &mut status, 0);
        status == 0
    };
    assert!(held, "the lock is lost");
    // SAFETY: numbers only.
    unsafe { libc::close(fd) };
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let of_file = |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).is_ok_and(|l| is_ours(&l));
    assert_eq!(open.filter_map(|fd| of_file(fd).then_some(())).count(), 0, "it is open");
    ExitCode::SUCCESS
}

/// Returns whether this is the file, which has no name any more.
fn is_ours(link: &std::path::Path) -> bool {
    link.to_string_lossy().contains("/execs-")
}

fn main() -> ExitCode {
    let how = std::env::args().nth(1).expect("a way");
    if how == "check" {
        return check();
    }
    let path = std::env::temp_dir().join(format!("execs-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let fd = if how == "high" { HIGH } else { 0 };
    // SAFETY: numbers of our own; the environment has one user.
    unsafe {
        let low = file.into_raw_fd();
        assert_eq!(libc::dup2(low, fd), fd);
        libc::close(low);
        libc::putenv(HERE.as_ptr().cast_mut());
    }
    let ring = IoUring::new(4).unwrap();
    ring.submitter().register_files(&[fd, fd]).unwrap();
    lock(fd, libc::F_SETLK);
    if how == "high" {
        lower_limit();
    }
    exec(&how, c"/nonexistent");
    let own = std::fs::canonicalize("/proc/self/exe").unwrap();
    let own = CString::new(own.into_os_string().into_encoded_bytes()).unwrap();
    exec_without_environment(&own);
    exec(&how, &own);
    eprintln!("{how}: {}", std::io::Error::last_os_error());
    ExitCode::FAILURE
}
