//! Sockets of the executor: those that a program starts with, and acts of the outside world on
//! them.
#![allow(unsafe_code)]

use super::{arena, digest, host};
use crate::fuzz::program::{Slot, Supply};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

const STREAM: i32 = libc::SOCK_STREAM;
/// Lowest number of a connection from outside.
const HIGH: i32 = 800;
/// Length of the longest name of a socket, and more.
const NAME: usize = 128;

fn sys(n: i32) -> io::Result<i32> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n) }
}

fn socket(domain: i32, kind: i32) -> io::Result<i32> {
    // SAFETY: socket touches no memory.
    sys(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, 0) })
}

/// Returns a socket's address, as bytes.
pub fn name(fd: i32) -> Vec<u8> {
    let (mut bytes, mut len) = ([0u8; NAME], NAME as u32);
    // SAFETY: `bytes` is live, with its length.
    let got = unsafe { libc::getsockname(fd, bytes.as_mut_ptr().cast(), &raw mut len) };
    let len = if got == 0 { (len as usize).min(NAME) } else { 0 };
    bytes[..len.max(16)].to_vec()
}

/// Returns the loopback address with a port that the system chooses.
fn loopback() -> Vec<u8> {
    [2u16.to_le_bytes(), [0, 0]]
        .concat()
        .into_iter()
        .chain([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
        .collect()
}

fn unix(path: &str) -> Vec<u8> {
    let mut bytes = 1u16.to_le_bytes().to_vec();
    bytes.extend(path.as_bytes());
    bytes.push(0);
    bytes
}

fn bind(fd: i32, to: &[u8]) -> io::Result<i32> {
    // SAFETY: `to` is live, with its length.
    sys(unsafe { libc::bind(fd, to.as_ptr().cast(), to.len() as u32) })
}

fn connect(fd: i32, to: &[u8]) -> io::Result<i32> {
    // SAFETY: `to` is live, with its length.
    sys(unsafe { libc::connect(fd, to.as_ptr().cast(), to.len() as u32) })
}

fn listener(domain: i32, at: &[u8]) -> io::Result<i32> {
    let fd = socket(domain, STREAM)?;
    bind(fd, at)?;
    // SAFETY: listen touches no memory.
    sys(unsafe { libc::listen(fd, 64) })?;
    Ok(fd)
}

fn tcp_pair(listener: i32) -> io::Result<[i32; 2]> {
    let one = socket(libc::AF_INET, STREAM)?;
    connect(one, &name(listener))?;
    // SAFETY: null pointers ask for no address.
    let two = sys(unsafe { libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()) })?;
    for fd in [one, two] {
        set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32);
    }
    Ok([one, two])
}

fn set<T>(fd: i32, level: i32, name: i32, value: &T) {
    let len = size_of::<T>() as u32;
    // SAFETY: `value` is live, with its length.
    unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), len) };
}

fn udp_pair() -> io::Result<[i32; 2]> {
    let both = [socket(libc::AF_INET, libc::SOCK_DGRAM)?, socket(libc::AF_INET, libc::SOCK_DGRAM)?];
    for fd in both {
        bind(fd, &loopback())?;
    }
    connect(both[0], &name(both[1]))?;
    connect(both[1], &name(both[0]))?;
    Ok(both)
}

fn unix_pair(kind: i32) -> io::Result<[i32; 2]> {
    let mut fds = [0; 2];
    // SAFETY: `fds` is an array of two.
    sys(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    Ok(fds)
}

/// Creates the sockets, each with its slot.
///
/// # Errors
/// Returned if there is no loopback network, or no descriptor.
pub fn make() -> io::Result<Vec<(Slot, i32)>> {
    use Slot::*;
    let tcp = listener(libc::AF_INET, &loopback())?;
    let mut all = vec![
        (TcpL, tcp),
        (UnixL, listener(libc::AF_UNIX, &unix("listener"))?),
        (TcpN, socket(libc::AF_INET, STREAM)?),
        (UnixN, socket(libc::AF_UNIX, STREAM)?),
        // SAFETY: epoll_create1 touches no memory.
        (Epoll, sys(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?),
    ];
    let pairs = [
        ([TcpA, TcpB], tcp_pair(tcp)?),
        ([UdpA, UdpB], udp_pair()?),
        ([DgramA, DgramB], unix_pair(libc::SOCK_DGRAM)?),
        ([SeqA, SeqB], unix_pair(libc::SOCK_SEQPACKET)?),
        ([EagerA, EagerB], unix_pair(STREAM | libc::SOCK_NONBLOCK)?),
        ([TightA, TightB], unix_pair(STREAM)?),
    ];
    for (slots, fds) in pairs {
        all.extend([(slots[0], fds[0]), (slots[1], fds[1])]);
    }
    Ok(all)
}

/// Calls `shutdown(2)`.
pub fn shutdown(slot: Slot, how: i32) -> i64 {
    // SAFETY: shutdown touches no memory.
    sys(unsafe { libc::shutdown(slot.number(), how) }).map_or_else(|e| host::code(&e), i64::from)
}

/// Closes a socket so that its peer is reset.
pub fn reset(slot: Slot) -> i64 {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set(slot.number(), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    host::close(slot.number())
}

/// Connects to a listener and sends `n` bytes; the connection stays until it is hung up.
pub fn come(listener: Slot, n: u32) -> io::Result<i32> {
    let domain = if listener == Slot::TcpL { libc::AF_INET } else { libc::AF_UNIX };
    let low = socket(domain, STREAM | libc::SOCK_NONBLOCK)?;
    // SAFETY: the descriptors are our own.
    let fd = unsafe {
        let fd = libc::fcntl(low, libc::F_DUPFD_CLOEXEC, HIGH);
        libc::close(low);
        sys(fd)?
    };
    // On the loopback the connection is there at once, even if the call reports EINPROGRESS.
    let done = connect(fd, &name(listener.number()));
    if let Err(e) = done
        && e.raw_os_error() != Some(libc::EINPROGRESS)
    {
        host::close(fd);
        return Err(e);
    }
    let bytes = vec![b'c'; n as usize];
    // SAFETY: `bytes` is live, with its length.
    unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    Ok(fd)
}

/// Calls `futex(2)`: wakes `n` waiters at word `i`.
pub fn wake(i: u8, n: u32) -> i64 {
    let at = arena::buffer(arena::FUTEXES, 4 * u32::from(i));
    // SAFETY: `at` is an aligned word of the arena.
    let got = unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAKE, n, 0, 0, 0) };
    if got < 0 { host::code(&io::Error::last_os_error()) } else { got }
}

/// Describes a socket's state: events, number of bytes, the bytes at the front. Consumes only its
/// error.
pub fn state(slot: Slot) -> String {
    let fd = slot.number();
    let events = host::poll(fd);
    let mut bytes = vec![0u8; 1 << 16];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let stream = if matches!(slot, Slot::TcpA | Slot::TcpB) { libc::MSG_TRUNC } else { 0 };
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: `bytes` is live, with its length.
    let got = unsafe { libc::recv(fd, to, bytes.len(), flags & !stream) };
    let front = match usize::try_from(got) {
        Ok(n) => format!("{n} bytes {}", digest::short(&bytes[..n.min(1 << 16)])),
        Err(_) => crate::fuzz::report::ret(host::code(&io::Error::last_os_error())),
    };
    format!("{slot:?} events {events:#x} front {front}")
}

/// Describes a `struct sockaddr` in words that are the same in every run.
pub fn show_name(bytes: &[u8]) -> String {
    let family = u16::from_le_bytes([bytes[0], bytes[1]]);
    if i32::from(family) == libc::AF_INET {
        let mut slots = Slot::ENDS.iter().chain(&Slot::OTHERS);
        let whose = slots.find(|s| name(s.number()).get(..8) == Some(&bytes[..8]));
        return format!("name inet {:?} of {whose:?}", &bytes[4..8]);
    }
    format!("name {}", digest::short(bytes))
}

/// Tails of the buffer rings, and addresses of their memory.
#[derive(Debug)]
pub struct Supplies {
    mapped: [Option<usize>; arena::RINGS as usize],
    tails: [u16; arena::RINGS as usize],
}

impl Supplies {
    pub const fn new() -> Self {
        Self { mapped: [None; arena::RINGS as usize], tails: [0; arena::RINGS as usize] }
    }

    /// Maps a ring's memory for `group`, and uses it.
    pub fn map(&mut self, ring: i32, group: u16, mem: u8) -> i64 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let offset = 0x8000_0000u64 | u64::from(group) << 16;
        // SAFETY: a new mapping overlaps nothing; it stays until the process ends.
        let at = unsafe {
            let at = std::ptr::null_mut();
            libc::mmap(at, 4096, prot, libc::MAP_SHARED, ring, offset.cast_signed())
        };
        if at == libc::MAP_FAILED {
            return host::code(&io::Error::last_os_error());
        }
        let mem = usize::from(mem % arena::RINGS);
        (self.mapped[mem], self.tails[mem]) = (Some(at.expose_provenance()), 0);
        0
    }

    fn at(&self, mem: u8, offset: u64) -> usize {
        let mapped = self.mapped[usize::from(mem % arena::RINGS)];
        mapped.unwrap_or(arena::ring(mem) as usize) + offset as usize
    }

    /// Writes buffers at the tail, and moves the tail.
    pub fn add(&mut self, s: &Supply, addrs: &[u64]) {
        let mask = s.entries.clamp(1, arena::RING_ENTRIES).next_power_of_two() - 1;
        let i = usize::from(s.mem % arena::RINGS);
        for (n, ((_, len, bid), addr)) in s.bufs.iter().zip(addrs).enumerate() {
            let entry = u64::from(self.tails[i].wrapping_add(n as u16) & mask) * 16;
            let word = u64::from(*len) | u64::from(*bid) << 32;
            self.store(s.mem, entry, *addr);
            // The tail is in the first entry's last two bytes.
            self.store_part(s.mem, entry + 8, word);
        }
        self.tails[i] = self.tails[i].wrapping_add(s.tail);
        let at = self.at(s.mem, 14);
        let tail = std::ptr::with_exposed_provenance_mut::<AtomicI32>(at - 2).cast::<u16>();
        std::sync::atomic::fence(Ordering::Release);
        // SAFETY: `tail` is mapped and aligned in the ring's memory, which no reference points to.
        unsafe { tail.add(1).write_volatile(self.tails[i]) };
    }

    fn store(&self, mem: u8, offset: u64, word: u64) {
        let at = std::ptr::with_exposed_provenance_mut::<u64>(self.at(mem, offset));
        // SAFETY: as in `add`; entries are 16 bytes in a page.
        unsafe { at.write_volatile(word) };
    }

    fn store_part(&self, mem: u8, offset: u64, word: u64) {
        let at = std::ptr::with_exposed_provenance_mut::<u16>(self.at(mem, offset));
        for i in 0..3 {
            // SAFETY: as in `store`.
            unsafe { at.add(i).write_volatile((word >> (16 * i)) as u16) };
        }
    }
}
