//! The issue in progress: its thread, its file, and work that others leave to it.

use softring_host::fd::InternalFd;
use softring_host::sys;

/// The current issue. Its thread releases the uring lock around system calls.
#[derive(Debug, Default)]
pub(crate) struct Issue {
    issuing: Issuing,
    /// The issuing thread, as [`sys::thread`] returns it, once it makes a system call.
    thread: usize,
    /// The program's descriptor number that the current call uses.
    in_use: Option<i32>,
    /// A duplicate of that number's file, if the number was closed during the call.
    moved: Option<InternalFd>,
    /// Flag, true if another thread left work to the issuing thread.
    left_work: bool,
}

/// Location of the thread that is in the middle of an issue and makes its system calls without the
/// lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Issuing {
    /// No thread.
    #[default]
    Nobody,
    /// The thread that holds the lock.
    Here,
    /// Another thread. The holder of the lock issues nothing and takes no events from transports.
    Elsewhere,
}

impl Issue {
    /// Returns whether a thread other than the lock's holder is in the middle of an issue.
    #[inline(always)]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.issuing == Issuing::Elsewhere
    }

    /// Returns whether any thread is in the middle of an issue.
    #[inline(always)]
    pub(crate) fn is_made(&self) -> bool {
        self.issuing != Issuing::Nobody
    }

    /// Records that the lock was taken while another thread is in the middle of an issue.
    #[inline]
    pub(crate) fn begin_elsewhere(&mut self) {
        self.issuing = Issuing::Elsewhere;
    }

    /// Records that the lock's holder is about to make a system call; true for the first of an
    /// issue.
    #[inline(always)]
    pub(crate) fn begin_call(&mut self) -> bool {
        let first = self.issuing == Issuing::Nobody;
        if first {
            (self.issuing, self.thread) = (Issuing::Here, sys::thread());
        }
        first
    }

    /// Records that the issuing thread has the lock back.
    #[inline(always)]
    pub(crate) fn end_call(&mut self) {
        self.issuing = Issuing::Here;
    }

    /// Returns whether the thread that releases the lock has made an issue.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.issuing == Issuing::Here
    }

    /// Ends the issue.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.issuing = Issuing::Nobody;
    }

    /// Returns the issuing thread, as [`sys::thread`] has it.
    #[inline(always)]
    pub(crate) fn thread(&self) -> usize {
        self.thread
    }

    /// Records that the current call uses `fd`, until [`Self::end_use`].
    #[inline(always)]
    pub(crate) fn begin_use(&mut self, fd: i32) {
        self.in_use = Some(fd);
    }

    /// Records the end of the call; true if its number was closed meanwhile.
    #[inline(always)]
    pub(crate) fn end_use(&mut self) -> bool {
        self.in_use = None;
        self.moved.is_some()
    }

    /// Returns whether another thread is in the middle of a call on `fd`.
    pub(crate) fn is_used_elsewhere(&self, fd: i32) -> bool {
        self.is_elsewhere() && self.in_use == Some(fd)
    }

    /// Records that the current call's number closes: its file is used as `dup` from now on.
    pub(crate) fn move_file(&mut self, dup: Option<InternalFd>) {
        self.moved = dup;
    }

    pub(crate) fn take_moved(&mut self) -> Option<InternalFd> {
        self.moved.take()
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// Leaves the lock holder's work to the issuing thread, if there is one.
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

    /// Returns whether work was left to the issuing thread, and clears the mark.
    #[inline]
    pub(crate) fn take_left_work(&mut self) -> bool {
        core::mem::take(&mut self.left_work)
    }

    /// Resets the issue in a forked child, where no thread is in the middle of one.
    pub(crate) fn fork_child(&mut self) {
        (self.issuing, self.left_work, self.in_use) = (Issuing::Nobody, false, None);
    }
}
