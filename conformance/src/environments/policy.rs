//! Policies of other people: seccomp filters, limits, another user.

use super::{Fault, sys};
use libc::sock_filter;

/// Action of a policy on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Answer(i32),
    Kill,
}

impl Action {
    fn of(word: &str) -> Result<Self, Fault> {
        Ok(match word {
            "kill" => Self::Kill,
            "EPERM" => Self::Answer(libc::EPERM),
            "EACCES" => Self::Answer(libc::EACCES),
            "ENOSYS" => Self::Answer(libc::ENOSYS),
            "EOPNOTSUPP" => Self::Answer(libc::EOPNOTSUPP),
            other => return Err(format!("{other:?} is no answer: kill, EPERM, EACCES, ENOSYS")),
        })
    }

    const fn code(self) -> u32 {
        match self {
            Self::Answer(errno) => libc::SECCOMP_RET_ERRNO | errno.cast_unsigned(),
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// Calls that a policy can name: softring makes them, and a program can do without them.
const CALLS: &[(&str, i64)] = &[
    ("access", libc::SYS_access),
    ("clone3", libc::SYS_clone3),
    ("close_range", libc::SYS_close_range),
    ("capget", libc::SYS_capget),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("epoll_wait", libc::SYS_epoll_wait),
    ("eventfd2", libc::SYS_eventfd2),
    ("faccessat", libc::SYS_faccessat),
    ("faccessat2", libc::SYS_faccessat2),
    ("fallocate", libc::SYS_fallocate),
    ("fstatfs", libc::SYS_fstatfs),
    ("ftruncate", libc::SYS_ftruncate),
    ("futex_wait", 455),
    ("futex_waitv", libc::SYS_futex_waitv),
    ("futex_wake", 454),
    ("getgroups", libc::SYS_getgroups),
    ("getrandom", libc::SYS_getrandom),
    ("getresuid", libc::SYS_getresuid),
    ("io_cancel", libc::SYS_io_cancel),
    ("io_destroy", libc::SYS_io_destroy),
    ("io_getevents", libc::SYS_io_getevents),
    ("io_pgetevents", 333),
    ("io_setup", libc::SYS_io_setup),
    ("io_submit", libc::SYS_io_submit),
    ("ioprio_set", libc::SYS_ioprio_set),
    ("kcmp", libc::SYS_kcmp),
    ("madvise", libc::SYS_madvise),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("mkdirat", libc::SYS_mkdirat),
    ("mremap", libc::SYS_mremap),
    ("openat2", libc::SYS_openat2),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("prctl", libc::SYS_prctl),
    ("preadv2", libc::SYS_preadv2),
    ("pwritev2", libc::SYS_pwritev2),
    ("renameat2", libc::SYS_renameat2),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("seccomp", libc::SYS_seccomp),
    ("socketpair", libc::SYS_socketpair),
    ("splice", libc::SYS_splice),
    ("statx", libc::SYS_statx),
    ("sync_file_range", libc::SYS_sync_file_range),
    ("tgkill", libc::SYS_tgkill),
    ("timer_create", libc::SYS_timer_create),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("unlinkat", libc::SYS_unlinkat),
    ("poll", libc::SYS_poll),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
];

/// Further calls that a policy can name, without a row: most are calls that softring needs.
const OTHERS: &[(&str, i64)] = &[
    ("clock_gettime", libc::SYS_clock_gettime),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("clone", libc::SYS_clone),
    ("dup2", libc::SYS_dup2),
    ("fcntl", libc::SYS_fcntl),
    ("fstat", libc::SYS_fstat),
    ("getcwd", libc::SYS_getcwd),
    ("getdents64", libc::SYS_getdents64),
    ("getegid", libc::SYS_getegid),
    ("geteuid", libc::SYS_geteuid),
    ("getgid", libc::SYS_getgid),
    ("getpid", libc::SYS_getpid),
    ("getsockopt", libc::SYS_getsockopt),
    ("gettid", libc::SYS_gettid),
    ("getuid", libc::SYS_getuid),
    ("getxattr", libc::SYS_getxattr),
    ("ioctl", libc::SYS_ioctl),
    ("kill", libc::SYS_kill),
    ("lseek", libc::SYS_lseek),
    ("mprotect", libc::SYS_mprotect),
    ("munmap", libc::SYS_munmap),
    ("nanosleep", libc::SYS_nanosleep),
    ("newfstatat", libc::SYS_newfstatat),
    ("open", libc::SYS_open),
    ("pipe2", libc::SYS_pipe2),
    ("pread64", libc::SYS_pread64),
    ("preadv", libc::SYS_preadv),
    ("pwritev", libc::SYS_pwritev),
    ("readlink", libc::SYS_readlink),
    ("rt_sigpending", libc::SYS_rt_sigpending),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("stat", libc::SYS_stat),
    ("uname", libc::SYS_uname),
    ("wait4", libc::SYS_wait4),
];

/// Calls without which the program of checks ends, even on the kernel's rings: the C library, its
/// dynamic linker and Rust's standard library make them.
const OWN: &[&str] = &["access", "getrandom", "sched_getaffinity", "statx", "unlinkat"];

/// Calls without which no Rust program starts, whatever the answer.
const START: &[&str] = &["poll", "rt_sigaction"];

/// Returns the single calls that have a row in the table: [`CALLS`] without the rings' calls and
/// [`START`]; with `kill` also without [`OWN`].
pub fn single_calls(kill: bool) -> impl Iterator<Item = &'static str> {
    let own = move |name: &str| START.contains(&name) || (kill && OWN.contains(&name));
    CALLS.iter().map(|c| c.0).filter(move |name| !name.starts_with("io_uring") && !own(name))
}

const LD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JGE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JSET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RET: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offsets of the low halves of the first and third argument in `struct seccomp_data`.
const FIRST: u32 = 16;
const THIRD: u32 = 32;
/// `PR_SET_MDWE`, `PR_MDWE_REFUSE_EXEC_GAIN`.
const MDWE: (i32, u64) = (65, 1);

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// A policy, from words such as `preadv2=EPERM`.
#[derive(Default)]
pub struct Policy {
    rules: Vec<sock_filter>,
    memory: Vec<sock_filter>,
    /// Names of the refused calls.
    pub refused: Vec<String>,
    then: Vec<Then>,
}

enum Then {
    Limit(u32, u64),
    User(u32),
    Prctl(i32, u64),
}

impl Policy {
    /// Parses a policy.
    ///
    /// # Errors
    /// Returned for an unknown word.
    pub fn parse(words: &[String]) -> Result<Self, Fault> {
        let mut policy = Self::default();
        for word in words {
            policy.word(word).map_err(|e| format!("{word}: {e}"))?;
        }
        Ok(policy)
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        let (what, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<u64>().map_err(|e| e.to_string());
        match what {
            "no_new_privs" => self.then.push(Then::Prctl(libc::PR_SET_NO_NEW_PRIVS, 1)),
            "mdwe" if value == "prctl" => self.then.push(Then::Prctl(MDWE.0, MDWE.1)),
            "mdwe" if value == "kill" => self.memory = deny_write_execute(Action::Kill),
            "mdwe" => self.memory = deny_write_execute(Action::Answer(libc::EPERM)),
            "nproc" => self.then.push(Then::Limit(libc::RLIMIT_NPROC, number()?)),
            "nofile" => self.then.push(Then::Limit(libc::RLIMIT_NOFILE, number()?)),
            "memlock" => {
                self.then.push(Then::Limit(libc::RLIMIT_MEMLOCK, number()?));
                // With a limit of 0 the kernel registers no buffer either.
                self.refused.extend((number()? == 0).then(|| "memlock".to_owned()));
            }
            "as" => self.then.push(Then::Limit(libc::RLIMIT_AS, number()? << 20)),
            "user" => self.then.push(Then::User(u32::try_from(number()?).unwrap_or(u32::MAX))),
            "rings" => self.range(libc::SYS_io_uring_setup, 3, Action::of(value)?),
            "above" => {
                let (from, action) = value.split_once(':').ok_or("above=NUMBER:ANSWER")?;
                let from = from.parse::<i64>().map_err(|e| e.to_string())?;
                self.range(from + 1, 1000, Action::of(action)?);
                let above = CALLS.iter().filter(|c| c.1 > from).map(|c| c.0.to_owned());
                self.refused.extend(above);
            }
            "processes" => self.clones(false, Action::of(value)?),
            "threads" => self.clones(true, Action::of(value)?),
            call => {
                let known = CALLS.iter().chain(OTHERS).find(|c| c.0 == call);
                let (name, nr) = known.ok_or("no policy is called so")?;
                self.range(*nr, 1, Action::of(value)?);
                self.refused.push((*name).to_owned());
            }
        }
        Ok(())
    }

    fn range(&mut self, first: i64, n: i64, action: Action) {
        self.rules.extend([
            op(JGE, 0, 2, first as u32),
            op(JGE, 1, 0, (first + n) as u32),
            op(RET, 0, 0, action.code()),
        ]);
    }

    /// Refuses either new threads or new processes. clone3(2) does not exist: no filter sees its
    /// arguments.
    fn clones(&mut self, threads: bool, action: Action) {
        let (yes, no) = if threads { (0, 1) } else { (1, 0) };
        self.range(libc::SYS_clone3, 1, Action::Answer(libc::ENOSYS));
        self.rules.extend([
            op(JEQ, 0, 4, libc::SYS_clone as u32),
            op(LD, 0, 0, FIRST),
            op(JSET, yes, no, libc::CLONE_THREAD as u32),
            op(RET, 0, 0, action.code()),
            op(LD, 0, 0, 0),
        ]);
        if !threads {
            self.range(libc::SYS_fork, 2, action);
        }
    }

    /// Puts this process under the policy, for good.
    ///
    /// # Errors
    /// Returned for a refusal of the kernel.
    pub fn install(&self) -> Result<(), Fault> {
        for then in &self.then {
            match *then {
                Then::Limit(resource, most) => sys::limit(resource, most),
                Then::User(id) => sys::become_user(id),
                Then::Prctl(what, value) => sys::prctl(what, value),
            }?;
        }
        if self.rules.is_empty() && self.memory.is_empty() {
            return Ok(());
        }
        sys::install(&self.filter())
    }

    /// Returns a seccomp filter that refuses the calls.
    pub fn filter(&self) -> Vec<sock_filter> {
        let mut filter = vec![op(LD, 0, 0, 0)];
        filter.extend_from_slice(&self.rules);
        filter.extend_from_slice(&self.memory);
        filter.push(op(RET, 0, 0, libc::SECCOMP_RET_ALLOW));
        filter
    }
}

/// Refuses by seccomp like systemd's MemoryDenyWriteExecute: no mapping that is written and
/// executed, no memory made executable later.
fn deny_write_execute(action: Action) -> Vec<sock_filter> {
    let [write, exec] = [libc::PROT_WRITE, libc::PROT_EXEC].map(i32::cast_unsigned);
    let deny = op(RET, 0, 0, action.code());
    let allow = op(RET, 0, 0, libc::SECCOMP_RET_ALLOW);
    vec![
        op(JEQ, 0, 5, libc::SYS_mmap as u32),
        op(LD, 0, 0, THIRD),
        op(JSET, 0, 2, write),
        op(JSET, 0, 1, exec),
        deny,
        allow,
        op(JEQ, 1, 0, libc::SYS_mprotect as u32),
        op(JEQ, 0, 3, libc::SYS_pkey_mprotect as u32),
        op(LD, 0, 0, THIRD),
        op(JSET, 0, 1, exec),
        deny,
    ]
}
