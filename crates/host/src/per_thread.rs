//! Statics of which each thread has its own, without thread-local storage of the C library.
//!
//! Each thread has a block of memory that holds its copies. The linker collects the first values of
//! all such statics in one section; a new block begins as a copy of that section, and a static's
//! copy lies in a block where the static lies in the section.
//!
//! A thread finds its block in a table by its thread pointer. Blocks are never given back to the
//! system. A block whose thread has ended is free for a thread whose pointer has the same hash:
//!
//! ```text
//! heads[hash(pointer)] -> block -> block -> 0
//!                         owner: the thread's pointer; FREE: none
//! ```
//!
//! Two threads that are alive have different pointers. Only the owner looks for its own pointer, so
//! no thread waits for another:
//!
//! - A thread and a handler on top of it might each make a block for the same pointer, and the
//!   thread would lose what the handler has stored:
//!
//! ```text
//! thread                                  its handler
//! finds no block of its own
//!                                         finds none, makes one, stores a value
//! makes one, which it finds from then on
//! ```
//!
//!   Signals are not blocked, as a filter of the program's may kill for that. So a block is first
//!   marked as meant for the thread ([`MEANT`]). A handler that finds such a block, and no owned
//!   one, makes it the thread's. Then the thread looks for an owned block again. If there is one, a
//!   handler has made it before the mark; every later handler has found it as well, and the thread
//!   frees the marked block, which nobody has used.
//! - A thread that ends leaves its block with the first values in it, then stores FREE (release).
//!   Who takes the block (compare-exchange, acquire) finds the first values.
//! - A C library gives the memory of a thread that has ended, and so its pointer, to a new thread.
//!   If the block still had the pointer as its owner, the new thread would find another's values:
//!
//! ```text
//! thread A, pointer P                     thread B, pointer P again
//! stores a value in its block
//! ends, and its block has the owner P
//!                                         finds the block of owner P, and A's value
//! ```
//!
//!   So a block has to be free before its thread's memory can be used again. The destructor of a
//!   key of pthreads sees to that. The C library calls it in the thread that ends, in each of four
//!   rounds as long as the key has a value. The block is given up in the last round: the
//!   destructors of others, in the rounds before, may still use their rings.
//! - A forked child has one thread: it frees the blocks of all others ([`fork_child`]). A vfork
//!   child, and a thread that was made without a thread pointer of its own, use the block of the
//!   thread that they stand in for.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell, UnsafeCell};
use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use crate::os::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::lock::OnceLock;
use crate::raw::{nr, set_sigmask, syscall, thread, weak_fn};

/// Owner of a block whose thread has ended; no thread has this pointer.
const FREE: usize = 1;
/// Bit beside the pointer of the thread that a block is meant for.
const MEANT: usize = 2;
/// Number of heads, a power of two.
pub const HEADS_LEN: usize = 1024;
/// An odd factor, whose product with a thread pointer has all bits of the pointer above bit 32.
pub const FACTOR: usize = 0x5bd1_e995;
/// Bytes in front of the values in a block.
const VALUES: usize = 128;
/// Most that a value may be aligned to.
const ALIGNED: usize = 64;
/// Bytes of a block that needs no mapping, and the number of such blocks. The first is the first
/// thread's; the others are for threads for which no memory can be mapped, as after
/// mlockall(MCL_FUTURE) with a low RLIMIT_MEMLOCK.
const OWN_LEN: usize = 2048;
const OWN: usize = 64;

/// Offset of [`Words`] in a block, for assembly.
pub const WORDS: usize = offset_of!(Block, words);
/// Offset of the address of the next block of the same hash, for assembly.
pub const NEXT: usize = offset_of!(Block, next);

/// Words of a thread's block that assembly reads and writes, which may not have a stack for more.
/// All are 0 at first. Its owner changes them, and what has no block of its own and stands in for
/// it: a vfork child, a thread without a thread pointer of its own.
#[repr(C)]
#[derive(Debug)]
pub struct Words(pub [AtomicUsize; 6]);

/// Memory of a thread. The values follow, [`VALUES`] bytes from its start.
#[repr(C, align(64))]
#[derive(Debug)]
struct Block {
    /// Thread pointer of the thread, with [`MEANT`] or without, or [`FREE`].
    owner: AtomicUsize,
    /// Distance from the section of first values to the values of this block.
    distance: usize,
    next: *const Block,
    /// Number of the thread, once it has asked for it ([`numbered`]): a filter may kill who asks.
    tid: AtomicU32,
    words: Words,
}

const _: () = assert!(offset_of!(Block, owner) == 0 && size_of::<Block>() <= VALUES);
const _: () = assert!(offset_of!(OfProcess, heads) == 0);

#[repr(C, align(64))]
#[derive(Debug)]
struct Own(UnsafeCell<[[u8; OWN_LEN]; OWN]>);

// SAFETY: `own_taken` gives each block to one thread.
unsafe impl Sync for Own {}

/// State of this module, once per process.
#[repr(C)]
#[derive(Debug)]
pub struct OfProcess {
    heads: [AtomicPtr<Block>; HEADS_LEN],
    own: Own,
    /// Number of blocks of `own` that are taken, or more.
    own_taken: AtomicUsize,
    /// Function that a thread runs before it gives up its block.
    on_end: OnceLock<fn()>,
    /// Key as pthread_key_create(3) numbers it.
    key: OnceLock<u32>,
}

/// The blocks. Assembly finds a thread's [`Words`] from here: the thread pointer times [`FACTOR`],
/// shifted right by 32, has the number of the head in its lowest bits; a block begins with its
/// owner, and has the next one at [`NEXT`].
pub static PROCESS: OfProcess = OfProcess {
    heads: [const { AtomicPtr::new(null_mut()) }; HEADS_LEN],
    own: Own(UnsafeCell::new([[0; OWN_LEN]; OWN])),
    own_taken: AtomicUsize::new(0),
    on_end: OnceLock::new(),
    key: OnceLock::new(),
};

// Otherwise a shared library exports the linker's names.
core::arch::global_asm!(
    ".hidden __start_softring_per_thread",
    ".hidden __stop_softring_per_thread",
);

unsafe extern "C" {
    /// Start of the section, by the linker.
    #[link_name = "__start_softring_per_thread"]
    static START: u8;
    /// End of the section.
    #[link_name = "__stop_softring_per_thread"]
    static STOP: u8;
}

fn first_values() -> core::ops::Range<usize> {
    (&raw const START).expose_provenance()..(&raw const STOP).expose_provenance()
}

#[inline(always)]
fn head(owner: usize) -> &'static AtomicPtr<Block> {
    &PROCESS.heads[owner.wrapping_mul(FACTOR) >> 32 & (HEADS_LEN - 1)]
}

/// Returns the calling thread's block.
#[inline(always)]
fn block() -> &'static Block {
    let me = thread();
    let first = head(me).load(Acquire);
    // SAFETY: a block is never unmapped, and was whole before a head led to it.
    match unsafe { first.as_ref() } {
        Some(block) if block.owner.load(Relaxed) == me => block,
        _ => find(me),
    }
}

/// Returns the blocks with the hash of this owner.
fn blocks(owner: usize) -> impl Iterator<Item = &'static Block> {
    // SAFETY: as in `block`.
    let first = unsafe { head(owner & !MEANT).load(Acquire).as_ref() };
    // SAFETY: as above; a block's successor stays as it is.
    core::iter::successors(first, |block| unsafe { block.next.as_ref() })
}

fn search(owner: usize) -> Option<&'static Block> {
    blocks(owner).find(|block| block.owner.load(Relaxed) == owner)
}

#[cold]
#[inline(never)]
fn find(me: usize) -> &'static Block {
    if let Some(own) = search(me) {
        return own;
    }
    let meant = search(me | MEANT);
    let block = meant.or_else(|| take(me | MEANT)).unwrap_or_else(|| add(me | MEANT));
    own(me, block)
}

/// Makes a block that is meant for the thread its own, unless a handler has made another.
fn own(me: usize, block: &'static Block) -> &'static Block {
    if let Some(other) = search(me) {
        if !core::ptr::eq(other, block) {
            block.owner.store(FREE, Release);
        }
        return other;
    }
    block.owner.store(me, Relaxed);
    end::watch();
    block
}

/// Takes a free block.
fn take(owner: usize) -> Option<&'static Block> {
    let take = |block: &&Block| block.owner.compare_exchange(FREE, owner, Acquire, Relaxed).is_ok();
    blocks(owner).find(take)
}

/// Makes a block for the calling thread. Later calls on this thread make no system call for that,
/// which a filter might kill for.
pub fn prepare() {
    block();
}

/// Returns the calling thread's words.
#[inline(always)]
pub fn words() -> &'static Words {
    &block().words
}

/// Notes the calling thread's number.
pub(crate) fn numbered(tid: u32) {
    block().tid.store(tid, Relaxed);
}

/// Returns memory for a block. Without any the process ends, as it does if the C library has none
/// for its thread-local storage.
fn room(len: usize) -> *mut c_void {
    let own = || {
        let n = PROCESS.own_taken.fetch_add(1, Relaxed);
        let all = PROCESS.own.0.get().cast::<[u8; OWN_LEN]>();
        (n < OWN && len <= OWN_LEN).then(|| all.wrapping_add(n).cast())
    };
    let is_first = PROCESS.own_taken.load(Relaxed) == 0;
    let first = if is_first { own() } else { None };
    let (prot, null) = (ProtFlags::READ | ProtFlags::WRITE, null_mut());
    first
        // SAFETY: a fresh anonymous mapping overlays nothing.
        .or_else(|| unsafe { mmap_anonymous(null, len, prot, MapFlags::PRIVATE) }.ok())
        .or_else(own)
        .unwrap_or_else(|| ends())
}

/// Adds a block to the table.
fn add(owner: usize) -> &'static Block {
    let at = room(VALUES + first_values().len());
    let block = at.cast::<Block>();
    let values = block.expose_provenance() + VALUES;
    let distance = values.wrapping_sub(first_values().start);
    let head = head(owner & !MEANT);
    let (owner, tid) = (AtomicUsize::new(owner), AtomicU32::new(0));
    let words = Words([const { AtomicUsize::new(0) }; 6]);
    // SAFETY: memory of ours, long enough and aligned, that nobody knows yet.
    unsafe {
        block.write(Block { owner, distance, next: null(), tid, words });
        (*block).reset();
    }
    let mut first = head.load(Acquire);
    loop {
        // SAFETY: no head leads to the block yet.
        unsafe { (*block).next = first };
        match head.compare_exchange(first, block, Release, Acquire) {
            // SAFETY: whole, and never unmapped.
            Ok(_) => return unsafe { &*block },
            Err(now) => first = now,
        }
    }
}

#[cold]
fn ends() -> ! {
    const STATUS: usize = 127;
    loop {
        // SAFETY: a number.
        unsafe { syscall(nr::__NR_exit_group as usize, &[STATUS, 0, 0, 0, 0, 0]) };
    }
}

impl Block {
    /// Gives all values their first ones again.
    ///
    /// # Safety
    /// No thread uses the values.
    unsafe fn reset(&self) {
        let first = first_values();
        let to = first.start.wrapping_add(self.distance);
        let from = core::ptr::with_exposed_provenance::<u8>(first.start);
        let to = core::ptr::with_exposed_provenance_mut::<u8>(to);
        // SAFETY: a block has room for the section, whose values nobody changes.
        unsafe { core::ptr::copy_nonoverlapping(from, to, first.len()) };
    }

    /// Gives the block up.
    ///
    /// # Safety
    /// The owner is the calling thread, which ends, or has ended.
    unsafe fn give_up(&self) {
        // SAFETY: the caller's.
        unsafe { self.reset() };
        self.tid.store(0, Relaxed);
        for word in &self.words.0 {
            word.store(0, Relaxed);
        }
        self.owner.store(FREE, Release);
    }

    /// Returns whether the thread of this block is one of the calling process, or may be: one that
    /// has never asked for its number.
    fn is_alive(&self) -> bool {
        if self.tid.load(Relaxed) == 0 {
            return true;
        }
        // SAFETY: numbers; signal 0 does nothing.
        unsafe {
            let pid = syscall(nr::__NR_getpid as usize, &[0; 6]).cast_unsigned();
            let a = [pid, self.tid.load(Relaxed) as usize, 0, 0, 0, 0];
            syscall(nr::__NR_tgkill as usize, &a) == 0
        }
    }
}

/// Frees, in a forked child, the blocks of the threads that it does not have. `late`: the child has
/// run before, and may have threads of its own.
pub(crate) fn fork_child(late: bool) {
    let me = thread();
    for first in &PROCESS.heads {
        // SAFETY: as in `block`.
        let first = unsafe { first.load(Acquire).as_ref() };
        // SAFETY: as in `blocks`.
        let all = core::iter::successors(first, |block| unsafe { block.next.as_ref() });
        let others = |block: &&Block| ![me, me | MEANT, FREE].contains(&block.owner.load(Relaxed));
        for block in all.filter(others) {
            if !late || !block.is_alive() {
                // SAFETY: the thread is none of this process.
                unsafe { block.give_up() };
            }
        }
    }
}

/// Sets the function that a thread runs before it gives up its block.
pub fn at_end(end: fn()) {
    let _ = PROCESS.on_end.set(end);
}

pub use end::thread_ends;

/// The end of a thread, as the C library tells it.
mod end {
    use super::*;

    type Create = extern "C" fn(*mut u32, extern "C" fn(*mut c_void)) -> c_int;
    type Set = extern "C" fn(u32, *const c_void) -> c_int;

    /// Rounds in which the C library calls destructors: `PTHREAD_DESTRUCTOR_ITERATIONS`, the same
    /// in glibc and in musl.
    const ROUNDS: usize = 4;
    const NO_KEY: u32 = u32::MAX;

    /// Asks to be told of the end of the calling thread. Without memory for that the end goes
    /// unnoticed; so it does without a C library.
    pub(super) fn watch() {
        set(*PROCESS.key.get_or_init(make), 1);
    }

    fn make() -> u32 {
        let mut key = NO_KEY;
        // SAFETY: the function of this name, in every C library.
        let create = unsafe { weak_fn!("pthread_key_create", Create) };
        match create {
            Some(create) if create(&raw mut key, ends) == 0 => key,
            _ => NO_KEY,
        }
    }

    fn set(key: u32, round: usize) {
        // SAFETY: as above.
        let set = unsafe { weak_fn!("pthread_setspecific", Set) };
        if let Some(set) = set.filter(|_| key != NO_KEY) {
            set(key, core::ptr::without_provenance(round));
        }
    }

    extern "C" fn ends(round: *mut c_void) {
        if round.addr() < ROUNDS {
            return set(*PROCESS.key.get_or_init(make), round.addr() + 1);
        }
        thread_ends();
    }

    /// Ends the calling thread's state: it gives up its block.
    pub fn thread_ends() {
        if let Some(end) = PROCESS.on_end.get() {
            end();
        }
        let mask = set_sigmask(!0);
        if let Some(block) = search(thread()) {
            // SAFETY: this thread's; with signals blocked, nothing uses the values any more.
            unsafe { block.give_up() };
        }
        set_sigmask(mask);
    }
}

/// Static of which each thread has its own; made by [`per_thread!`](crate::per_thread!) only.
#[repr(transparent)]
#[derive(Debug)]
pub struct PerThread<T: 'static>(UnsafeCell<T>);

// SAFETY: the static itself is never used; each thread uses a copy of its own.
unsafe impl<T> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// Makes a static's first value.
    ///
    /// # Safety
    /// Nothing but the macro calls this: the value is a static in the section of first values,
    /// aligned to 64 at most.
    #[doc(hidden)]
    pub const unsafe fn first(value: T) -> Self {
        const { assert!(align_of::<T>() <= ALIGNED) };
        Self(UnsafeCell::new(value))
    }

    /// Calls `f` with the calling thread's copy.
    #[inline(always)]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let at = self.0.get().addr().wrapping_add(block().distance);
        // SAFETY: the static lies in the section, so this is its copy in the thread's own block,
        // which stays until the thread is gone. No other thread uses the block, and a copy of the
        // first value is a value: that has no address of its own in it.
        f(unsafe { &*core::ptr::with_exposed_provenance::<T>(at) })
    }
}

impl<T> PerThread<Cell<T>> {
    #[inline(always)]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    #[inline(always)]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: Copy> PerThread<Cell<T>> {
    #[inline(always)]
    pub fn get(&'static self) -> T {
        self.with(Cell::get)
    }
}

impl<T: Default> PerThread<Cell<T>> {
    #[inline(always)]
    pub fn take(&'static self) -> T {
        self.with(Cell::take)
    }
}

impl<T> PerThread<RefCell<T>> {
    #[inline(always)]
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    #[inline(always)]
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }
}

/// Statics of which each thread has its own, declared as in `std::thread_local!` with a constant
/// first value. They are not dropped when a thread ends.
#[macro_export]
macro_rules! per_thread {
    ($($(#[$attr:meta])* static $name:ident: $t:ty = const $first:block;)*) => {$(
        $(#[$attr])*
        // SAFETY: in the section of first values, as `first` demands.
        // The macro stands in for a module that allows unsafe code.
        #[allow(clippy::undocumented_unsafe_blocks, unsafe_code)]
        #[unsafe(link_section = "softring_per_thread")]
        static $name: $crate::per_thread::PerThread<$t> = {
            let first = $first;
            unsafe { $crate::per_thread::PerThread::first(first) }
        };
    )*};
}
pub use crate::per_thread;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread::{scope, spawn};

    per_thread! {
        static COUNT: Cell<u64> = const { Cell::new(5) };
        static LIST: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn each_thread_has_its_own() {
        COUNT.set(6);
        scope(|s| {
            for n in 10..50 {
                s.spawn(move || {
                    assert_eq!(COUNT.replace(n), 5);
                    LIST.with_borrow_mut(|list| list.push(n));
                    std::thread::yield_now();
                    assert_eq!((COUNT.get(), LIST.take_all()), (n, vec![n]));
                });
            }
        });
        assert_eq!(COUNT.get(), 6);
    }

    impl PerThread<RefCell<Vec<u64>>> {
        fn take_all(&'static self) -> Vec<u64> {
            self.with_borrow_mut(core::mem::take)
        }
    }

    /// The C library gives the memory of a thread that has ended to the next one.
    #[test]
    fn a_new_thread_finds_first_values_at_an_old_pointer() {
        let one = || {
            let found = COUNT.replace(7);
            (thread(), found)
        };
        let pointers: Vec<_> = (0..100).map(|_| spawn(one).join().unwrap()).collect();
        assert!(pointers.iter().all(|(_, found)| *found == 5));
        let again = pointers.windows(2).any(|pair| pair[0].0 == pair[1].0);
        assert!(again, "no pointer came twice: this test shows nothing here");
    }

    #[test]
    fn blocks_are_used_again() {
        let one = || COUNT.with(|c| core::ptr::from_ref(c).expose_provenance());
        let all: std::collections::BTreeSet<_> =
            (0..1000).map(|_| spawn(one).join().unwrap()).collect();
        assert!(all.len() < 100, "{} blocks for one thread at a time", all.len());
    }

    /// The block that a handler makes, before or after the thread's own is marked, is for both.
    #[test]
    fn a_handler_and_its_thread_share_one_block() {
        let me = 1usize << 21;
        let meant = add(me | MEANT);
        let by_handler = own(me, add(me | MEANT));
        assert!(core::ptr::eq(own(me, meant), by_handler));
        assert_eq!(meant.owner.load(Relaxed), FREE);
        let adopted = search(me).unwrap();
        assert!(core::ptr::eq(adopted, by_handler));
        // SAFETY: no thread has this pointer.
        unsafe { adopted.give_up() };
        let meant = take(me | MEANT).unwrap();
        assert!(core::ptr::eq(find(me), meant) && core::ptr::eq(own(me, meant), meant));
        // SAFETY: as above.
        unsafe { meant.give_up() };
    }

    #[test]
    fn threads_of_one_hash_find_their_own() {
        let owners = [1usize << 20, (1 << 20) + (1 << 62)].map(|at| (at, head(at)));
        assert!(core::ptr::eq(owners[0].1, owners[1].1));
        let blocks = owners.map(|(owner, _)| add(owner));
        assert!(!core::ptr::eq(blocks[0], blocks[1]));
        for ((owner, _), block) in owners.iter().zip(blocks) {
            assert!(core::ptr::eq(search(*owner).unwrap(), block));
        }
        for block in blocks {
            // SAFETY: no thread has this pointer.
            unsafe { block.give_up() };
        }
        assert!(search(owners[0].0).is_none());
        assert!(core::ptr::eq(take(owners[1].0).unwrap(), blocks[1]));
        // SAFETY: as above.
        unsafe { blocks[1].give_up() };
    }
}
