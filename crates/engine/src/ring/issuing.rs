//! The issue that is being made: by which thread, of which file, and what others leave to it.

use softring_host::fd::InternalFd;
use softring_host::sys;

/// The issue at hand. The thread that makes it gives the uring lock back around system calls.
#[derive(Debug, Default)]
pub(crate) struct Issue {
    issuing: Issuing,
    /// The issuing thread, as [`sys::thread`] has it, once it makes a system call.
    thread: usize,
    /// The program's number that the call is about.
    at_hand: Option<i32>,
    /// The file that number meant, if it was closed during the call.
    moved: Option<InternalFd>,
    /// Somebody left work to the issuing thread.
    left_work: bool,
}

/// The thread that is in the middle of an issue, and makes its system calls without the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Issuing {
    /// Nobody.
    #[default]
    Nobody,
    /// The thread that holds the lock.
    Here,
    /// Another thread. The holder of the lock issues nothing and takes no events from transports.
    Elsewhere,
}

impl Issue {
    /// Is another thread than the holder of the lock in the middle of an issue?
    #[inline(always)]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.issuing == Issuing::Elsewhere
    }

    /// Is any thread in the middle of an issue?
    #[inline(always)]
    pub(crate) fn is_made(&self) -> bool {
        self.issuing != Issuing::Nobody
    }

    /// The lock was taken while another thread is in the middle of an issue.
    #[inline]
    pub(crate) fn begin_elsewhere(&mut self) {
        self.issuing = Issuing::Elsewhere;
    }

    /// The holder of the lock is about to make a system call; true for the first of an issue.
    #[inline(always)]
    pub(crate) fn begin_call(&mut self) -> bool {
        let first = self.issuing == Issuing::Nobody;
        if first {
            (self.issuing, self.thread) = (Issuing::Here, sys::thread());
        }
        first
    }

    /// The issuing thread has the lock back.
    #[inline(always)]
    pub(crate) fn end_call(&mut self) {
        self.issuing = Issuing::Here;
    }

    /// The lock is about to be given back; true for the thread that has made an issue.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.issuing == Issuing::Here
    }

    /// No issue is made any more.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.issuing = Issuing::Nobody;
    }

    /// The issuing thread, as [`sys::thread`] has it.
    #[inline(always)]
    pub(crate) fn thread(&self) -> usize {
        self.thread
    }

    /// The call at hand is about `fd`; [`Self::put_away`] ends that.
    #[inline(always)]
    pub(crate) fn take_in_hand(&mut self, fd: i32) {
        self.at_hand = Some(fd);
    }

    /// The call has ended; true if its number was closed meanwhile.
    #[inline(always)]
    pub(crate) fn put_away(&mut self) -> bool {
        self.at_hand = None;
        self.moved.is_some()
    }

    /// Is another thread in the middle of a call about `fd`?
    pub(crate) fn has_at_hand(&self, fd: i32) -> bool {
        self.is_elsewhere() && self.at_hand == Some(fd)
    }

    /// The number of the call at hand is closed: its file goes on as `dup`.
    pub(crate) fn move_file(&mut self, dup: Option<InternalFd>) {
        self.moved = dup;
    }

    pub(crate) fn take_moved(&mut self) -> Option<InternalFd> {
        self.moved.take()
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// The holder of the lock leaves what it has come upon to the issuing thread, if there is one.
    #[inline]
    pub(crate) fn leaves_work(&mut self) -> bool {
        // Not by `|=`: rustc 1.95 drops a comparison whose result is stored, and then branched on
        // (SimplifyComparisonIntegral), and stores whatever there is.
        if !self.is_elsewhere() {
            return false;
        }
        self.left_work = true;
        true
    }

    /// Was work left to the issuing thread?
    #[inline]
    pub(crate) fn take_left_work(&mut self) -> bool {
        core::mem::take(&mut self.left_work)
    }

    /// In a forked child nobody is in the middle of an issue.
    pub(crate) fn fork_child(&mut self) {
        (self.issuing, self.left_work, self.at_hand) = (Issuing::Nobody, false, None);
    }
}
