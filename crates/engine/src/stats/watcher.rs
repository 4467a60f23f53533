//! The watcher: the command that has started the program in order to watch it (`softring stat --
//! CMD`, `softring trace -- CMD`). Each process sends the watcher what it keeps for viewers:
//! reading `/proc` now and then would miss processes that end in between.
//!
//! The watcher has a socket with an abstract name, and passes the key to it by the environment.
//! Each process, when it makes its file in memory, connects and sends the descriptor (SCM_RIGHTS).
//! From then on the watcher can read it whatever becomes of the process. A process that cannot make
//! the file sends the errno instead. Nothing has a name in any file system, so nothing is left
//! behind, whoever dies.
//!
//! Anybody may take the name once the watcher has gone, so a process checks whom it has reached
//! (SO_PEERCRED), and sends only to its own user or root. In a user namespace without a number for
//! the user at the other end it cannot tell. Then it sends no descriptor, but asks to be looked up
//! in `/proc` ([`FIND`]), which needs the right to read it there.
//!
//! If the socket cannot be reached (another network namespace, a sandbox), the process sends
//! nothing: the file can still be found through `/proc`.

use alloc::vec::Vec;
use core::time::Duration;
use softring_host::os::io::IoSlice;
use softring_host::sync::real::OnceLock;
use softring_host::time::Deadline;

use softring_host::os::event::{PollFd, PollFlags, Timespec, poll};
use softring_host::os::fd::{AsFd, AsRawFd, BorrowedFd};
use softring_host::os::net::{
    SendFlags, SocketAddrUnix, SocketFlags, connect, packet_socket, send_with,
};
use softring_host::os::process::{geteuid, getuid};

use super::of_process::PROCESS;
use softring_host::sys::{self, EngineFd};
use softring_uapi::errno::{Errno, Result};

/// Bytes of a key: the first half names the socket, the whole proves that one was asked to send.
pub const KEY: usize = 32;
/// Bytes behind the key in each message: the name of the process.
pub const COMM: usize = 16;
/// Bytes behind the name: an errno that says why there is no file; 0 if there is one.
pub const WHY: usize = 4;
/// Mark in place of an errno: there is a file, to be found in `/proc` (EREMCHG, which no call that
/// makes a file returns).
pub const FIND: i32 = 78;
/// Number of users that have none in a user namespace (`/proc/sys/kernel/overflowuid`).
const OVERFLOW_UID: u32 = 65534;
/// Longest time for which a watcher that has stopped may delay the program.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Sleep between two attempts.
const IDLE_SLEEP: Duration = Duration::from_millis(1);

/// A kind of watcher.
#[derive(Clone, Copy, Debug)]
pub enum Watcher {
    /// `softring stat`, which gets statistics pages.
    Stat,
    /// `softring trace`, which gets memories for events.
    Trace,
}

impl Watcher {
    /// Returns the part of the socket's name before the key's first half.
    fn prefix(self) -> &'static [u8] {
        match self {
            Watcher::Stat => b"softring-stat-",
            Watcher::Trace => b"softring-trace-",
        }
    }

    fn key(self) -> &'static OnceLock<[u8; KEY]> {
        &PROCESS.keys[self as usize]
    }

    /// Sets the key, whose maker gets the files of this process and its children; false if it is no
    /// key.
    pub fn set_key(self, key: &[u8]) -> bool {
        let fits = key.iter().all(u8::is_ascii_hexdigit).then(|| key.try_into().ok()).flatten();
        fits.is_some_and(|key| self.key().set(key).is_ok())
    }

    /// Returns the abstract name of the socket of `key`'s maker.
    pub fn name(self, key: &[u8; KEY]) -> Vec<u8> {
        [self.prefix(), &key[..KEY / 2]].concat()
    }

    /// Sends a file, or the reason why there is none, to the watcher, if there is one.
    pub(super) fn send(self, file: Result<BorrowedFd<'_>>) {
        if let Some(key) = self.key().get()
            && let Ok((socket, Sent::Request)) = self.send_to(key, file)
        {
            wait_for_answer(socket.as_fd());
        }
    }

    /// Sends a file, and waits until the watcher has begun to read it, or is done with us.
    pub(super) fn send_and_wait(self, file: Result<BorrowedFd<'_>>) {
        if let Some(key) = self.key().get()
            && let Ok((socket, _)) = self.send_to(key, file)
        {
            wait_for_answer(socket.as_fd());
        }
    }

    fn send_to(self, key: &[u8; KEY], file: Result<BorrowedFd<'_>>) -> Result<(EngineFd, Sent)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = EngineFd::from(packet_socket(flags)?);
        reach(socket.as_fd(), &SocketAddrUnix::new_abstract_name(&self.name(key))?)?;
        let peer = peer_of(socket.as_fd()).ok_or(Errno::EPERM)?;
        let ours = is_ours(peer);
        if !ours && !is_nameless(peer) {
            return Err(Errno::EPERM);
        }
        let (file, why, sent) = match file {
            Err(e) => (None, -e.res(), Sent::File),
            Ok(file) if ours => (Some(file), 0, Sent::File),
            Ok(_) => (None, FIND, Sent::Request),
        };
        let why = why.to_ne_bytes();
        let comm = sys::process_name();
        let parts = [IoSlice::new(key), IoSlice::new(&comm), IoSlice::new(&why)];
        // The first message of a connection finds room.
        match file {
            Some(file) => send_file(socket.as_fd(), &parts, file)?,
            None => send_text(socket.as_fd(), &parts)?,
        }
        Ok((socket, sent))
    }
}

/// Kind of message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// A file, or the reason why there is none.
    File,
    /// A request to find the file, while the process waits for that.
    Request,
}

fn send_text(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>; 3]) -> Result<()> {
    send_with(socket, parts, &[], SendFlags::NOSIGNAL).map(drop)
}

/// Sends a message with a file. If the user has more files under way than RLIMIT_NOFILE allows
/// (unix(7), ETOOMANYREFS), waits for the watcher; if it takes none, tells it why there is no file.
fn send_file(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>; 3], file: BorrowedFd<'_>) -> Result<()> {
    let end = Deadline::after(TIMEOUT);
    loop {
        match send_with(socket, parts, &[file], SendFlags::NOSIGNAL) {
            Err(Errno::ETOOMANYREFS) if !end.has_passed() => _ = sys::sleep(IDLE_SLEEP),
            Err(e @ Errno::ETOOMANYREFS) => {
                let why = e.0.to_ne_bytes();
                return send_text(socket, &[parts[0], parts[1], IoSlice::new(&why)]);
            }
            done => return done.map(drop),
        }
    }
}

/// Waits until there is something to read, or the other end is closed. A call that a signal ends
/// begins anew with the time that is left.
fn wait_for_answer(socket: BorrowedFd<'_>) {
    let end = Deadline::after(TIMEOUT);
    loop {
        let left = end.left();
        let left = Timespec { tv_sec: 0, tv_nsec: left.as_nanos().min(999_999_999) as i64 };
        let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Err(Errno::EINTR) if !end.has_passed() => {}
            _ => return,
        }
    }
}

/// Connects. Retries, and never blocks: a call that blocks would begin its time anew after each
/// signal.
fn reach(socket: BorrowedFd<'_>, to: &SocketAddrUnix) -> Result<()> {
    let end = Deadline::after(TIMEOUT);
    loop {
        match connect(socket, to) {
            Err(Errno::EAGAIN) if !end.has_passed() => _ = sys::sleep(IDLE_SLEEP),
            done => return done,
        }
    }
}

/// Returns the user of the other end.
fn peer_of(socket: BorrowedFd<'_>) -> Option<u32> {
    const SOL_SOCKET: u32 = 1;
    const SO_PEERCRED: u32 = 17;
    let creds = sys::socket_option(socket.as_raw_fd(), SOL_SOCKET, SO_PEERCRED).ok()?;
    let [_pid, uid, _gid]: [u32; 3] = creds;
    Some(uid)
}

/// Returns whether the user is this process's, or root.
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == getuid() && uid == geteuid()
}

/// Returns whether the other end's user has no number here, and so may be root of another user
/// namespace.
fn is_nameless(uid: u32) -> bool {
    let map = || softring_host::files::proc_text("/proc/self/uid_map").unwrap_or_default();
    uid == OVERFLOW_UID && !is_mapped(&map(), uid)
}

/// Returns whether a `uid_map` has that number.
fn is_mapped(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u32>());
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(n))) =
            (words.next(), words.next(), words.next())
        else {
            return true;
        };
        uid.checked_sub(first).is_some_and(|at| at < n)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen,
        recv, socket_with,
    };
    use rustix::thread::set_thread_res_uid;
    use softring_host::os::fd::OwnedFd;
    use std::time::Instant;

    fn page() -> OwnedFd {
        softring_host::substitute::memfd("page", false).unwrap()
    }

    fn socket() -> std::os::fd::OwnedFd {
        let flags = SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// Makes a watcher with room for one connection.
    fn watcher(key: &[u8; KEY]) -> std::os::fd::OwnedFd {
        let watcher = socket();
        bind(&watcher, &SocketAddrUnix::new_abstract_name(&Watcher::Stat.name(key)).unwrap())
            .unwrap();
        listen(&watcher, 0).unwrap();
        watcher
    }

    #[test]
    fn a_stopped_watcher_delays_processes_briefly() {
        let key = b"0123456789abcdef0123456789abcdef";
        let watcher = watcher(key);
        let (first, _) = Watcher::Stat.send_to(key, Ok(page().as_fd())).unwrap();
        let start = Instant::now();
        assert_eq!(Watcher::Stat.send_to(key, Ok(page().as_fd())).err(), Some(Errno::EAGAIN));
        let took = start.elapsed();
        assert!(TIMEOUT <= took && took < 3 * TIMEOUT, "{took:?}");
        let start = Instant::now();
        wait_for_answer(first.as_fd());
        let took = start.elapsed();
        assert!(TIMEOUT / 2 <= took && took < 3 * TIMEOUT, "{took:?}");
        let mut message = [0u8; 2 * KEY];
        let who = accept(&watcher).unwrap();
        let (_, n) = recv(&who, &mut message, RecvFlags::empty()).unwrap();
        assert_eq!((&message[..KEY], n), (&key[..], KEY + COMM + WHY));
        assert_eq!(message[KEY + COMM..n], [0; WHY]);
        drop(who);
        let start = Instant::now();
        wait_for_answer(first.as_fd());
        assert!(start.elapsed() < TIMEOUT / 2, "one that has closed is not waited for");
    }

    #[test]
    fn a_missing_file_has_a_reason() {
        let key = b"2123456789abcdef0123456789abcdef";
        let watcher = watcher(key);
        let _socket = Watcher::Stat.send_to(key, Err(Errno::ENOMEM)).unwrap();
        let mut message = [0u8; 2 * KEY];
        let (_, n) = recv(accept(&watcher).unwrap(), &mut message, RecvFlags::empty()).unwrap();
        assert_eq!(message[KEY + COMM..n], 12i32.to_ne_bytes());
    }

    #[test]
    fn unmapped_users_are_resolved_by_the_uid_map() {
        let all = "         0          0 4294967295\n";
        assert!(is_mapped(all, OVERFLOW_UID));
        assert!(!is_mapped("0 65534 1\n", OVERFLOW_UID));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", OVERFLOW_UID));
        assert!(!is_mapped("", OVERFLOW_UID), "no map: nobody has a number");
        assert!(is_mapped("nonsense", OVERFLOW_UID), "in doubt it is a stranger's");
    }

    #[test]
    fn a_stranger_with_the_name_gets_nothing() {
        let key = b"1123456789abcdef0123456789abcdef";
        let squat = || {
            let nobody = rustix::process::Uid::from_raw(65534);
            // This thread alone is another user's from now on.
            set_thread_res_uid(nobody, nobody, nobody).is_ok().then(|| watcher(key))
        };
        let Some(stranger) = std::thread::spawn(squat).join().unwrap() else {
            softring_testing::skipped!("only root can be another user");
            return;
        };
        assert_eq!(Watcher::Stat.send_to(key, Ok(page().as_fd())).err(), Some(Errno::EPERM));
        let who = accept(&stranger).unwrap();
        let (_, n) = recv(&who, &mut [0u8; 1], RecvFlags::empty()).unwrap();
        assert_eq!(n, 0, "closed, with nothing said");
    }
}
