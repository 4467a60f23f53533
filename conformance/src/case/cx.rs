//! Surroundings of a case: its entry point, its directory, and its transcript.

use super::{NEWEST, OLDEST};
use crate::entry::{self, EntryPoint};
use crate::ring::{Cqe, Errno, Ring};
use crate::show::{self, Answer};
use crate::sqe::{SqeExt, addr, addr_mut};
use softring_uapi::version::Version;
use softring_uapi::*;
use std::ffi::CString;
use std::fmt::{Debug, Display};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Reason why a case ends early.
#[derive(Debug)]
pub enum Stop {
    /// Something that this machine cannot show.
    Skip(String),
    /// Failure of a step that the rest depends on.
    Fail(String),
}

/// Result of a case.
pub type Outcome = Result<(), Stop>;

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Self::Fail(format!("a step failed: {}", show::answer(-i64::from(e))))
    }
}

impl From<std::io::Error> for Stop {
    fn from(e: std::io::Error) -> Self {
        Self::Fail(format!("a step failed: {e}"))
    }
}

impl From<rustix::io::Errno> for Stop {
    fn from(e: rustix::io::Errno) -> Self {
        Self::Fail(format!("a step failed: {e}"))
    }
}

/// Returns the argument that registers a table of files or buffers.
pub fn rsrc(nr: u32, flags: u32, data: usize, tags: usize) -> io_uring_rsrc_register {
    io_uring_rsrc_register { nr, flags, data: data as u64, tags: tags as u64, ..Default::default() }
}

/// Returns the argument that puts `new` (files or buffers) into a table, from slot `offset` on.
pub fn rsrc_update<T>(offset: u32, new: &[T], tags: &[u64]) -> io_uring_rsrc_update2 {
    io_uring_rsrc_update2 {
        offset,
        data: addr(new) as u64,
        tags: if tags.is_empty() { 0 } else { addr(tags) as u64 },
        nr: new.len() as u32,
        ..Default::default()
    }
}

/// Surroundings of a case. The transcript goes to stdout line by line, so that a hang shows how far
/// the case came: two blanks before an observation, `! ` before a check that did not hold.
#[derive(Debug)]
pub struct Cx {
    pub entry: EntryPoint,
    dir: Option<tempfile::TempDir>,
    failures: u32,
}

impl Cx {
    pub fn new(entry: EntryPoint) -> Self {
        Self { entry, dir: None, failures: 0 }
    }

    /// Returns the number of checks that did not hold.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the kernel whose ABI the kernel or softring under test has.
    pub fn abi(&self) -> &'static Version {
        let mut told = io_uring_query_opcode::default();
        let mut hdr = io_uring_query_hdr {
            query_data: addr_mut(&mut told) as u64,
            query_op: IO_URING_QUERY_OPCODES,
            size: size_of_val(&told) as u32,
            ..Default::default()
        };
        entry::register(self.entry, -1, IORING_REGISTER_QUERY, addr_mut(&mut hdr), 0);
        let queries = std::hint::black_box(&told).nr_query_opcodes;
        if queries >= NEWEST.queries { NEWEST } else { OLDEST }
    }

    /// Returns whether that kernel is the newest.
    pub fn is_newest(&self) -> bool {
        self.abi() == NEWEST
    }

    fn line(mark: char, text: &str) {
        // On a closed pipe nobody reads any more; the exit status still tells.
        let _ = writeln!(std::io::stdout(), "{mark} {text}");
    }

    /// Records something the kernel decides; softring must say the same.
    pub fn note(&mut self, what: &str, value: impl Display) {
        Self::line(' ', &format!("{what}: {value}"));
    }

    /// Records the CQEs that are posted, in their order, and consumes them.
    pub fn note_cqes(&mut self, what: &str, ring: &mut Ring) {
        let cqes = ring.pop_all();
        let each = cqes.iter().map(|c| format!("{}={}", c.user_data, show::answer(c.res.into())));
        self.note(what, each.collect::<Vec<_>>().join(" "));
    }

    /// Records an answer that the kernel decides.
    pub fn note_answer(&mut self, what: &str, got: impl Answer) {
        self.note(what, show::answer(got.answer()));
    }

    fn wrong(&mut self, what: &str, got: &str, want: &str) {
        self.failures += 1;
        Self::line('!', &format!("{what}: got {got}, want {want}"));
    }

    /// Records `got` and checks it.
    pub fn eq<T: PartialEq + Debug>(&mut self, what: &str, got: T, want: T) {
        self.note(what, format_args!("{got:?}"));
        if got != want {
            self.wrong(what, &format!("{got:?}"), &format!("{want:?}"));
        }
    }

    /// Records that something holds.
    pub fn holds(&mut self, what: &str, yes: bool) {
        self.eq(what, yes, true);
    }

    /// Records an answer, a value or `-errno`, and checks it.
    pub fn is(&mut self, what: &str, got: impl Answer, want: impl Answer) {
        let (got, want) = (got.answer(), want.answer());
        self.note(what, show::answer(got));
        if got != want {
            self.wrong(what, &show::answer(got), &show::answer(want));
        }
    }

    /// Records a completion and checks its result; records its flags if there are any.
    pub fn cqe(&mut self, what: &str, got: Cqe, want: i32) {
        let flags = show::cqe_flags(got.flags);
        let blank = if flags.is_empty() { "" } else { " " };
        self.note(what, format_args!("{}{blank}{flags}", show::answer(got.res.into())));
        if got.res != want {
            self.wrong(what, &show::answer(got.res.into()), &show::answer(want.into()));
        }
    }

    /// Checks for an fd (whose number does not matter) and returns it.
    pub fn fd(&mut self, what: &str, got: i32) -> Result<OwnedFd, Stop> {
        if got < 0 {
            self.note_answer(what, got);
            return Err(Stop::Fail(format!("{what}: no fd but {}", show::answer(got.into()))));
        }
        self.note(what, "an fd");
        Ok(crate::os::own(got))
    }

    // Rings.

    /// Sets up a ring through this case's entry point.
    pub fn ring(&mut self, entries: u32, flags: u32) -> Result<Ring, Stop> {
        self.ring_with(entries, io_uring_params { flags, ..Default::default() })
    }

    /// Sets up a ring with `params`.
    pub fn ring_with(&mut self, entries: u32, params: io_uring_params) -> Result<Ring, Stop> {
        Ring::with(self.entry, entries, params)
            .map_err(|e| Stop::Fail(format!("no ring: {}", show::answer(-i64::from(e)))))
    }

    /// Records and checks the result of setup; closes the ring if there is one.
    pub fn setup_is(&mut self, what: &str, entries: u32, p: io_uring_params, want: i32) {
        let got = Ring::with(self.entry, entries, p);
        self.is(what, got, want);
    }

    /// Submits one SQE alone, waits for its completion, records it and checks its result.
    pub fn one(&mut self, ring: &mut Ring, what: &str, sqe: io_uring_sqe, want: i32) -> Cqe {
        const TAG: u64 = 0x5f5f_0000_0000_0001;
        let sqe = if sqe.user_data == 0 { sqe.ud(TAG) } else { sqe };
        let submitted = ring.push(sqe).submit_wait(1);
        if submitted != 1 {
            self.wrong(what, &format!("submitted {}", show::answer(submitted.answer())), "1");
        }
        let Ok([cqe]) =
            ring.take(1).as_deref().map(<[Cqe; 1]>::try_from).unwrap_or(Ok([Cqe::default()]))
        else {
            return Cqe::default();
        };
        if cqe.user_data != sqe.user_data {
            let want = format!("{:#x}", sqe.user_data);
            self.wrong(&format!("{what}: user_data"), &format!("{:#x}", cqe.user_data), &want);
        }
        self.cqe(what, cqe, want);
        cqe
    }

    /// Same as [`Self::one`] for an operation that opens an fd.
    pub fn one_fd(
        &mut self,
        ring: &mut Ring,
        what: &str,
        sqe: io_uring_sqe,
    ) -> Result<OwnedFd, Stop> {
        let cqe = ring.push(sqe).submit_wait(1);
        self.is(&format!("{what}: submitted"), cqe, 1);
        let res = ring.take(1)?[0].res;
        self.fd(what, res)
    }

    /// Calls [`Self::one`] for each row of a table.
    pub fn each(&mut self, ring: &mut Ring, rows: &[(&str, io_uring_sqe, i32)]) {
        for (what, sqe, want) in rows {
            self.one(ring, what, *sqe, *want);
        }
    }

    /// Submits all SQEs, and records that all were consumed.
    pub fn start(&mut self, ring: &mut Ring, sqes: &[io_uring_sqe]) {
        for sqe in sqes {
            ring.push(*sqe);
        }
        let submitted = ring.submit();
        self.is("submit", submitted, sqes.len());
    }

    /// Registers a sparse table of `nr` files.
    pub fn sparse_files(&mut self, ring: &Ring, nr: u32) {
        let table = rsrc(nr, IORING_RSRC_REGISTER_SPARSE, 0, 0);
        let got = ring.register(IORING_REGISTER_FILES2, addr(&table), 32);
        self.is("a sparse table", got, 0);
    }

    /// Submits all, waits for as many completions as `want` has, and checks `(user_data, res)` in
    /// any order.
    pub fn batch(
        &mut self,
        ring: &mut Ring,
        what: &str,
        sqes: &[io_uring_sqe],
        want: &[(u64, i32)],
    ) -> Vec<Cqe> {
        for sqe in sqes {
            ring.push(*sqe);
        }
        let submitted = ring.submit();
        self.is(&format!("{what}: submitted"), submitted, sqes.len());
        self.reap(ring, what, want)
    }

    /// Waits for as many completions as `want` has, and checks `(user_data, res)` in any order.
    pub fn reap(&mut self, ring: &mut Ring, what: &str, want: &[(u64, i32)]) -> Vec<Cqe> {
        let mut got = ring.take(want.len()).unwrap_or_default();
        got.sort();
        self.completions(what, &got, want);
        got
    }

    /// Same as [`Self::reap`], in exactly this order.
    pub fn reap_in_order(&mut self, ring: &mut Ring, what: &str, want: &[(u64, i32)]) -> Vec<Cqe> {
        let got = ring.take(want.len()).unwrap_or_default();
        self.completions(what, &got, want);
        got
    }

    /// Records completions and checks `(user_data, res)`.
    pub fn completions(&mut self, what: &str, got: &[Cqe], want: &[(u64, i32)]) {
        let pair = |(ud, res): (u64, i32)| format!("{ud}={}", show::answer(res.into()));
        let list = |v: Vec<(u64, i32)>| v.into_iter().map(pair).collect::<Vec<_>>().join(" ");
        let with_flags: Vec<String> = got
            .iter()
            .map(|c| format!("{} {}", pair((c.user_data, c.res)), show::cqe_flags(c.flags)))
            .map(|s| s.trim_end().replace(' ', ":"))
            .collect();
        self.note(what, with_flags.join(" "));
        let plain: Vec<(u64, i32)> = got.iter().map(|c| (c.user_data, c.res)).collect();
        if plain != want {
            self.wrong(what, &list(plain), &list(want.to_vec()));
        }
    }

    /// Checks that the CQ is empty after `ms` milliseconds.
    pub fn quiet(&mut self, ring: &Ring, what: &str, ms: u64) {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        self.is(what, ring.cq_ready(), 0);
    }

    /// Spins on the CQ, without entering, until `n` CQEs are posted; at most two seconds.
    pub fn spin(&mut self, ring: &Ring, what: &str, n: u32) {
        let start = std::time::Instant::now();
        while ring.cq_ready() < n && start.elapsed().as_secs() < 2 {
            std::thread::yield_now();
        }
        self.is(what, ring.cq_ready(), n);
    }

    /// Calls [`Ring::register`] for each row of a table: what, opcode, argument, count, answer.
    pub fn registers(&mut self, ring: &Ring, rows: &[(&str, u32, usize, u32, i32)]) {
        for (what, opcode, arg, nr, want) in rows {
            let got = ring.register(*opcode, *arg, *nr);
            self.is(what, got, *want);
        }
    }

    // Files.

    /// Returns this case's own directory, which is removed at the end.
    pub fn dir(&mut self) -> Result<PathBuf, Stop> {
        if self.dir.is_none() {
            self.dir = Some(tempfile::Builder::new().prefix("conformance-").tempdir()?);
        }
        Ok(self.dir.as_ref().map(|d| d.path().to_owned()).unwrap_or_default())
    }

    /// Returns a path in this case's directory.
    pub fn path(&mut self, name: &str) -> Result<CString, Stop> {
        let path = self.dir()?.join(name).into_os_string().into_encoded_bytes();
        CString::new(path).map_err(|e| Stop::Fail(e.to_string()))
    }

    /// Creates a file with `content`, open for reading and writing.
    pub fn file(&mut self, name: &str, content: &[u8]) -> Result<File, Stop> {
        let path = self.dir()?.join(name);
        std::fs::write(&path, content)?;
        Ok(File::options().read(true).write(true).open(path)?)
    }

    /// Creates a file with `content`, open with O_DIRECT. Skips if the file system has no O_DIRECT.
    pub fn direct_file(&mut self, name: &str, content: &[u8]) -> Result<File, Stop> {
        use rustix::fs::{Mode, OFlags, open};
        self.file(name, content)?;
        let path = self.path(name)?;
        let opened = open(path, OFlags::RDWR | OFlags::DIRECT, Mode::empty());
        opened.map(File::from).map_err(|_| Stop::Skip("this file system has no O_DIRECT".into()))
    }

    /// Returns the content of a file of this case.
    pub fn content(&mut self, name: &str) -> Result<Vec<u8>, Stop> {
        Ok(std::fs::read(self.dir()?.join(name))?)
    }

    /// Creates a pipe: the end to read, the end to write.
    pub fn pipe(&mut self) -> Result<(OwnedFd, OwnedFd), Stop> {
        Ok(rustix::pipe::pipe()?)
    }

    /// Creates an eventfd with `count`.
    pub fn eventfd(&mut self, count: u32) -> Result<OwnedFd, Stop> {
        Ok(rustix::event::eventfd(count, rustix::event::EventfdFlags::CLOEXEC)?)
    }

    /// Closes an fd through libc, and records that close succeeded.
    pub fn close(&mut self, fd: i32) {
        let got = entry::close(EntryPoint::Syscall, fd);
        self.is("close", got, 0);
    }
}
