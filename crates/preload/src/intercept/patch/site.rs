//! Choice of the code to replace, made on the decoded instructions of a function.
//!
//! | the number in eax is | replacement, if it may be io_uring's |
//! |---|---|
//! | a constant, moved there in a straight line | its `mov` becomes a jump |
//! | a constant on some of the paths | code before `syscall`, or around it, becomes a jump |
//! | not known: a wrapper's argument | to a stub that checks eax |
//!
//! A site without room for a jump becomes a short one to padding nearby; a site that has none is a
//! gap.

use super::flow::Body;
use super::frames::{self, Function};
use super::ins::{Ins, Kind, Walk};
use super::modules::Module;
use super::stub::UNNAMED;
use super::text::{JUMP, SYSCALL};
use super::windows::prove;
use super::{springboard, unframed};
use crate::intercept::libaio;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use softring_host::initial;

const SETUP: u64 = libc::SYS_io_uring_setup as u64;
const RINGS: core::ops::RangeInclusive<u64> = 425..=427;
/// Numbers of other inline calls on a ring, and on any descriptor: `mmap`, `close`, those that
/// duplicate, and those of epoll. A site of these that is not patched is no gap.
const OTHERS: [u64; 11] = [
    libc::SYS_mmap as u64,
    libc::SYS_close as u64,
    libc::SYS_close_range as u64,
    libc::SYS_dup as u64,
    libc::SYS_dup2 as u64,
    libc::SYS_dup3 as u64,
    libc::SYS_fcntl as u64,
    libc::SYS_epoll_ctl as u64,
    libc::SYS_epoll_wait as u64,
    libc::SYS_epoll_pwait as u64,
    libc::SYS_epoll_pwait2 as u64,
];
/// Numbers of kernel aio. A site of these that is not patched bypasses us unharmed, too.
const AIO: [u64; 6] = [206, 207, 208, 209, 210, libaio::PGETEVENTS as u64];
/// Longest function, in bytes; a longer one counts as one of unknown bounds.
const LONGEST: usize = 256 * 1024;
/// Bytes that are decoded where bounds are unknown.
const UNKNOWN: usize = 96;
/// Bytes before a call in which its number may be put into a register that other calls keep.
const KEPT: usize = 4096;

/// A replacement: `len` bytes at `at` become a jump to a stub that runs `before`, the call, and
/// `after`, and returns to `resume`.
#[derive(Debug)]
pub struct Site {
    pub at: usize,
    pub len: usize,
    pub before: Vec<Ins>,
    pub after: Vec<Ins>,
    pub resume: usize,
    /// Flag, true if the number is not known, so that the stub checks eax.
    pub dynamic: bool,
    /// Address of `syscall` if it stays in its place, for other numbers.
    pub syscall: Option<usize>,
    /// Address of padding that takes the jump; the site has room for a short one there only.
    pub pad: Option<usize>,
    /// Flag, true if the call is exit(2), which does not return.
    pub exit: bool,
    /// Flag, true if this may be one of io_uring's calls: left unpatched, it is a gap.
    pub ring: bool,
}

impl Site {
    /// Returns the addresses to which nothing may jump, as the stub would not run.
    pub fn not_entered(&self) -> core::ops::Range<usize> {
        self.at + 1..self.syscall.map_or(self.at + self.len, |at| at + 1)
    }

    /// Returns whether both replace one of the bytes of text.
    pub fn overlaps(&self, other: &Site) -> bool {
        let pads = self.pad.zip(other.pad).is_some_and(|(a, b)| a.abs_diff(b) < JUMP);
        pads || self.at < other.at + other.len && other.at < self.at + self.len
    }

    /// Returns the address at which the program's own `syscall` would continue.
    pub fn behind_call(&self) -> usize {
        self.after.first().map_or(self.resume, |next| next.ip as usize)
    }
}

/// Findings in a module.
#[derive(Debug, Default)]
pub struct Found {
    pub sites: Vec<Site>,
    /// Calls that may be io_uring's and cannot be replaced.
    pub gaps: usize,
    /// Number of `gaps` that may be io_uring_setup(2).
    pub setups: usize,
}

impl Found {
    /// Counts a call that cannot be replaced.
    pub fn left(&mut self, setup: bool) {
        self.gaps += 1;
        self.setups += usize::from(setup);
    }
}

/// Findings of a scan of the text.
#[derive(Debug, Default)]
pub struct Seen {
    /// Addresses of io_uring's numbers.
    pub numbers: Vec<usize>,
    /// Addresses of `syscall`.
    pub syscalls: Vec<usize>,
}

/// Returns whether a call with this number is taken beside io_uring's. In a static program, these
/// are also calls that other programs make by names of the C library.
fn is_other(nr: u64) -> bool {
    let unnamed = |nr| nr == libc::SYS_rt_sigaction || UNNAMED.contains(&nr);
    OTHERS.contains(&nr) || initial::is_known() && unnamed(nr as i64)
}

/// Number of the call that ends a thread. Only a static program's is taken, and only where nothing
/// else can be meant: the caller may have no stack.
const EXIT: u64 = libc::SYS_exit as u64;

fn is_exit(nr: u64) -> bool {
    nr == EXIT && initial::is_known()
}

/// Finds the sites that may be io_uring's; if there are some, those of `mmap` and `close`, too.
pub fn find(m: &Module, Seen { numbers, syscalls }: &Seen) -> Found {
    let mut found = Found::default();
    let mut done = BTreeSet::new();
    for at in numbers.iter().filter_map(|n| mov_before(m, *n)) {
        if bounds(m, at).is_none() {
            let f = Function { start: at, end: at + UNKNOWN };
            Body::of(m, f).scan_line(&mut found);
        }
    }
    let known: BTreeSet<usize> = found.sites.iter().map(Site::behind_call).collect();
    for &at in syscalls {
        match bounds(m, at) {
            Some(f) if done.contains(&f.start) || !is_instruction(m, f, at) => {}
            Some(f) if is_engine(m, f) => {}
            Some(f) => {
                done.insert(f.start);
                Body::of(m, f).scan(m, &mut found);
            }
            None if known.contains(&(at + SYSCALL)) => {}
            None => {
                if let Some(f) = unframed::around(m, at) {
                    Body::of(m, f).scan_at(at, &mut found);
                }
            }
        }
    }
    prove(m, &mut found);
    if found.sites.iter().all(|s| !s.ring) {
        found.sites.clear();
    }
    found
}

/// Returns the site of the function at `start`, which takes the number as an argument and makes one
/// call.
pub fn wrapper(m: &Module, start: usize) -> Option<Site> {
    let f = frames::function(m, start).or_else(|| frames::straight(m, start))?;
    let body = Body::of(m, f);
    let syscall = body.syscalls().next()?;
    body.window(syscall).filter(|_| f.start == start && body.syscalls().count() == 1)
}

/// Returns the function that holds `at`.
fn bounds(m: &Module, at: usize) -> Option<Function> {
    let f = frames::function(m, at).or_else(|| frames::padded(m, at))?;
    (f.end - f.start <= LONGEST).then_some(f)
}

/// Returns whether the function is the engine's, which a program may be linked with as well.
fn is_engine(m: &Module, f: Function) -> bool {
    let Some((bytes, at)) = m.text_at(f.start) else { return false };
    bytes[..at].ends_with(softring_host::handlers::MARK.as_bytes())
}

/// Returns whether an instruction `syscall` of the function ends with the bytes at `at`. Most bytes
/// that resemble `syscall` are part of another instruction.
fn is_instruction(m: &Module, f: Function, at: usize) -> bool {
    let Some((bytes, from)) = m.text_at(f.start) else { return false };
    let end = (at + SYSCALL) as u64;
    let last = Walk::new(&bytes[from..], f.start).find(|i| i.next_ip() >= end);
    // A prefix without meaning may precede it.
    last.is_some_and(|i| i.kind == Kind::Syscall && i.next_ip() == end)
}

/// Finds the sites of `mmap` and `close` in a module that has no others, and the number of calls
/// that cannot be replaced.
pub fn others(m: &Module, syscalls: &[usize]) -> (Vec<Site>, usize) {
    calls(m, &OTHERS, syscalls)
}

/// Finds the same of kernel aio's calls, in any module.
pub fn aio(m: &Module, syscalls: &[usize]) -> (Vec<Site>, usize) {
    calls(m, &AIO, syscalls)
}

fn calls(m: &Module, calls: &[u64], syscalls: &[usize]) -> (Vec<Site>, usize) {
    let mut found = Found::default();
    let gaps = find_calls(m, calls, syscalls, &mut found);
    let all = found.sites.len();
    prove(m, &mut found);
    let left = gaps + all - found.sites.len();
    (found.sites, left)
}

/// Returns the start of the `mov $imm32, %reg` whose immediate is at `imm`.
fn mov_before(m: &Module, imm: usize) -> Option<usize> {
    let (bytes, i) = m.text_at(imm)?;
    let byte = |back: usize| i.checked_sub(back).and_then(|i| bytes.get(i)).copied().unwrap_or(0);
    match (byte(3), byte(2), byte(1)) {
        (_, 0x41, 0xb8..=0xbf) => Some(imm - 2),
        // REX.W makes it a 64-bit mov; other REX prefixes have no meaning here and are not written.
        (_, 0x40..=0x4f, 0xb8..=0xbf) => None,
        (_, _, 0xb8..=0xbf) => Some(imm - 1),
        (0x48 | 0x49, 0xc7, 0xc0..=0xc7) => Some(imm - 3),
        (_, 0xc7, 0xc0..=0xc7) => Some(imm - 2),
        _ => None,
    }
}

/// Finds sites of calls other than io_uring's. Their numbers are small and common. So only
/// functions that frames describe are searched, and only if the number is near, or may be kept in a
/// register over other calls. Returns how many cannot be replaced.
fn find_calls(m: &Module, calls: &[u64], syscalls: &[usize], found: &mut Found) -> usize {
    let mut seen = BTreeSet::new();
    let mut gaps = 0;
    for &at in syscalls {
        let Some((bytes, i)) = m.text_at(at) else { continue };
        let Some(f) = frames::function(m, at).filter(|f| f.end - f.start <= LONGEST) else {
            continue;
        };
        if seen.contains(&f.start) {
            continue;
        }
        let before = |far: usize| &bytes[i.saturating_sub(far)..i];
        let reach = KEPT.min(at - f.start);
        if is_near(before(UNKNOWN), calls) || keeps_number(before(reach), calls) {
            seen.insert(f.start);
            gaps += Body::of(m, f).scan_for(m, calls, found);
        }
    }
    gaps
}

/// Returns whether the bytes may hold a `mov $nr,%eax` of one of these numbers.
fn is_near(code: &[u8], calls: &[u64]) -> bool {
    code.windows(5).any(|w| matches!(w[0], 0xb8 | 0xc0) && holds(calls, w))
}

/// Returns whether the bytes may move a number to a register that a call keeps: rbx, rbp, r12 to
/// r15.
fn keeps_number(code: &[u8], calls: &[u64]) -> bool {
    let kept = |w: &[u8]| {
        matches!(w[..2], [_, 0xbb | 0xbd | 0xc3 | 0xc5] | [0x41, 0xbc..=0xbf] | [0xc7, 0xc4..=0xc7])
    };
    // The number's upper half is zero: rare, and quick to check.
    code.windows(6).any(|w| (w[4], w[5]) == (0, 0) && kept(w) && holds(calls, &w[1..]))
}

/// Returns whether one of these numbers follows the first byte.
fn holds(calls: &[u64], w: &[u8]) -> bool {
    calls.contains(&u32::from_le_bytes([w[1], w[2], w[3], w[4]]).into())
}

impl Body {
    /// Plans every `syscall` of the function that may be io_uring's, `mmap` or `close`.
    fn scan(&self, m: &Module, found: &mut Found) {
        for i in self.syscalls() {
            if let Some((nr, mov)) = self.plain_number(i) {
                found.sites.extend(self.plain_if_ours(nr, mov, i));
                continue;
            }
            let numbers = self.numbers(i);
            if numbers.is_only(is_exit) {
                found.sites.extend(self.exits(i));
                continue;
            }
            let ring = numbers.may_be(|nr| RINGS.contains(&nr));
            if !ring && !numbers.may_be(is_other) {
                continue;
            }
            match self.place(m, i, found) {
                Some(site) => found.sites.push(Site { ring, ..site }),
                None if ring => found.left(numbers.may_be(|nr| nr == SETUP)),
                None => {}
            }
        }
    }

    /// Plans the first `syscall` of a function of unknown bounds, if its number is a constant moved
    /// in a straight line.
    fn scan_line(&self, found: &mut Found) {
        let valid = self.code.iter().take_while(|i| i.kind != Kind::Invalid).count();
        let Some(i) = self.syscalls().next().filter(|&i| i < valid) else { return };
        if let Some((nr, mov)) = self.plain_number(i)
            && RINGS.contains(&nr)
        {
            found.sites.push(self.plain(mov, i));
        }
    }

    /// Plans the `syscall` at `at`, in a function of unknown bounds. A branch that leads near it
    /// lies within the decoded code, or has a displacement that [`prove`] finds.
    fn scan_at(mut self, at: usize, found: &mut Found) {
        let Some(i) = self.syscalls().find(|&i| self.code[i].next_ip() as usize == at + SYSCALL)
        else {
            return;
        };
        self.keep_function(i);
        if let Some((nr, mov)) = self.plain_number(i) {
            found.sites.extend(self.plain_if_ours(nr, mov, i));
            return;
        }
        let numbers = self.numbers(i);
        if numbers.is_only(is_exit) {
            found.sites.extend(self.exits(i).filter(|_| self.follows_end(i)));
            return;
        }
        let ring = numbers.may_be(|nr| RINGS.contains(&nr));
        if !ring && !numbers.may_be(is_other) {
            return;
        }
        match self.window(i).filter(|_| self.follows_end(i)) {
            Some(site) => found.sites.push(Site { ring, ..site }),
            None if ring => found.left(numbers.may_be(|nr| nr == SETUP)),
            None => {}
        }
    }

    /// Plans every `syscall` that is known to be one of these calls; returns how many cannot be
    /// replaced.
    fn scan_for(&self, m: &Module, calls: &[u64], found: &mut Found) -> usize {
        let mut gaps = 0;
        for i in self.syscalls() {
            match self.plain_number(i) {
                Some((nr, mov)) if calls.contains(&nr) => {
                    found.sites.push(Site { ring: false, ..self.plain(mov, i) });
                }
                Some(_) => {}
                None if self.numbers(i).known.iter().any(|nr| calls.contains(nr)) => {
                    match self.place(m, i, found) {
                        Some(site) => found.sites.push(Site { ring: false, ..site }),
                        None => gaps += 1,
                    }
                }
                None => {}
            }
        }
        gaps
    }

    pub fn syscalls(&self) -> impl Iterator<Item = usize> {
        let is = |i: &usize| self.code[*i].kind == Kind::Syscall;
        (0..self.code.len()).filter(is)
    }

    /// Returns the site of a constant that is moved in a straight line.
    pub fn plain(&self, mov: usize, syscall: usize) -> Site {
        let at = &self.code[mov];
        Site {
            at: at.ip as usize,
            len: at.len.into(),
            before: self.code[mov..syscall].to_vec(),
            after: Vec::new(),
            resume: self.code[syscall].next_ip() as usize,
            dynamic: false,
            syscall: None,
            pad: None,
            exit: false,
            ring: true,
        }
    }

    /// Returns the site of a number that is moved in a straight line, if its call is taken.
    fn plain_if_ours(&self, nr: u64, mov: usize, syscall: usize) -> Option<Site> {
        let (ring, exit) = (RINGS.contains(&nr), is_exit(nr));
        let ours = ring || exit || is_other(nr);
        ours.then(|| Site { ring, exit, ..self.plain(mov, syscall) })
    }

    /// Returns the site of a `syscall` that is exit(2) on each path to it.
    fn exits(&self, syscall: usize) -> Option<Site> {
        let around = self.window_around(syscall).filter(|_| !self.indirect);
        around.map(|site| Site { ring: false, exit: true, ..site })
    }

    /// Returns the site of a `syscall` whose number is not known.
    fn place(&self, m: &Module, syscall: usize, found: &Found) -> Option<Site> {
        self.window(syscall).or_else(|| self.short(m, syscall, found))
    }

    /// Returns a site that is `syscall` alone, if there is padding within reach.
    fn short(&self, m: &Module, syscall: usize, found: &Found) -> Option<Site> {
        // A longer one has a prefix, which may mean something to a jump.
        let plain = usize::from(self.code[syscall].len) == SYSCALL;
        let behind = self.code[syscall].next_ip() as usize;
        let taken = |pad: usize| {
            found.sites.iter().filter_map(|s| s.pad).any(|other| other.abs_diff(pad) < JUMP)
        };
        let pad = springboard::find(m, self.function, behind, taken).filter(|_| plain)?;
        Some(Site { pad: Some(pad), ..self.dynamic(syscall, syscall, syscall) })
    }

    /// Returns instructions that a jump fits into and whose work a stub can do: those before
    /// `syscall`, which then stays where unwinders and address filters expect it, or the smallest
    /// run around it.
    fn window(&self, syscall: usize) -> Option<Site> {
        if self.indirect {
            return None;
        }
        self.window_before(syscall).or_else(|| self.window_around(syscall))
    }

    fn window_before(&self, syscall: usize) -> Option<Site> {
        let mut first = syscall;
        while self.len(first, syscall - 1) < JUMP {
            if first == 0 || self.is_target(first) || !self.is_movable(first - 1) {
                return None;
            }
            first -= 1;
        }
        Some(Site {
            syscall: Some(self.code[syscall].ip as usize),
            ..self.dynamic(first, syscall, syscall - 1)
        })
    }

    fn window_around(&self, syscall: usize) -> Option<Site> {
        let (mut first, mut last) = (syscall, syscall);
        while self.len(first, last) < JUMP {
            if first > 0 && !self.is_target(first) && self.is_movable(first - 1) {
                first -= 1;
            } else if last + 1 < self.code.len()
                && self.is_movable(last + 1)
                && !self.is_target(last + 1)
            {
                last += 1;
            } else {
                return None;
            }
        }
        Some(self.dynamic(first, syscall, last))
    }

    /// Returns a site of the instructions from `first` to `last`.
    fn dynamic(&self, first: usize, syscall: usize, last: usize) -> Site {
        let resume = self.code[last.max(syscall)].next_ip() as usize;
        Site {
            at: self.code[first].ip as usize,
            len: self.len(first, last),
            before: self.code[first..syscall].to_vec(),
            after: self.code.get(syscall + 1..=last).unwrap_or_default().to_vec(),
            resume,
            dynamic: true,
            syscall: None,
            pad: None,
            exit: false,
            ring: true,
        }
    }

    /// Returns the length in bytes of the instructions from `first` to `last`.
    fn len(&self, first: usize, last: usize) -> usize {
        if first > last {
            return 0;
        }
        (self.code[last].next_ip() - self.code[first].ip) as usize
    }

    fn is_movable(&self, at: usize) -> bool {
        self.code[at].is_movable()
    }
}
