//! Loaded objects and their names: by the dynamic loader's functions, where the process has them.
//!
//! glibc before 2.34 has dlsym(3) in a library of its own, which a program may do without. There,
//! names are searched as the loader does it, in the tables of each object, but for the versions
//! of symbols: the default one is found.
#![allow(unsafe_code)]

mod table;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};

use crate::raw::weak_fn;
use crate::start_static;
use libc::{PT_DYNAMIC, PT_LOAD, dl_phdr_info};
use softring_host::c_library;
use softring_host::raw::weak;
use table::Table;

/// Function that [`iterate`] calls for each object.
pub type Visit = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;
type Search = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Distance from the addresses in its tables to those in memory.
    pub base: usize,
    /// Path of its file; stays while it is loaded.
    pub name: *const c_char,
    /// Addresses of its segments, from the lowest to the highest.
    low: usize,
    high: usize,
    /// Address of its dynamic section; 0: it has none.
    dynamic: usize,
}

impl Object {
    /// # Safety
    /// `info` is dl_iterate_phdr(3)'s.
    unsafe fn of(info: &dl_phdr_info) -> Object {
        // SAFETY: an array of dlpi_phnum headers.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let (base, name) = (info.dlpi_addr as usize, info.dlpi_name);
        let mut object = Object { base, name, low: usize::MAX, high: 0, dynamic: 0 };
        for h in headers {
            let at = base.wrapping_add(h.p_vaddr as usize);
            match h.p_type {
                PT_LOAD => {
                    object.low = object.low.min(at);
                    object.high = object.high.max(at + h.p_memsz as usize);
                }
                PT_DYNAMIC => object.dynamic = at,
                _ => {}
            }
        }
        object
    }

    fn holds(&self, at: usize) -> bool {
        (self.low..self.high).contains(&at)
    }

    /// Returns the address of a symbol that the object defines.
    pub fn symbol(&self, name: &CStr) -> Option<usize> {
        Table::of(self.base, self.dynamic)?.find(name)
    }
}

/// Calls `visit` with `data` for each object, by dl_iterate_phdr(3), until it answers anything but
/// 0. Without a dynamic loader these are the program and this library.
///
/// # Safety
/// As `visit` demands.
pub unsafe fn iterate(visit: Visit, data: *mut c_void) {
    // SAFETY: the function of this name, in every C library; else the caller's.
    unsafe {
        match weak_fn!("dl_iterate_phdr", Iterate) {
            Some(iterate) => _ = iterate(visit, data),
            None => start_static::objects(visit, data),
        }
    }
}

/// Calls `f` for each object, in the order of their loading, until it answers something.
fn find<T>(mut f: impl FnMut(Object) -> Option<T>) -> Option<T> {
    struct State<'a, T> {
        f: &'a mut dyn FnMut(Object) -> Option<T>,
        found: Option<T>,
    }
    unsafe extern "C" fn visit<T>(info: *mut dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr(3)'s `info`, and the state below.
        let (object, state) = unsafe { (Object::of(&*info), &mut *data.cast::<State<'_, T>>()) };
        state.found = (state.f)(object);
        c_int::from(state.found.is_some())
    }
    let mut state = State { f: &mut f, found: None };
    // SAFETY: the state is of the type that `visit` takes.
    unsafe { iterate(visit::<T>, (&raw mut state).cast()) };
    state.found
}

/// Returns the object that holds this address.
pub fn object_of(at: *const c_void) -> Option<Object> {
    find(|object| object.holds(at.addr()).then_some(object))
}

/// Returns the address of the first definition of `name`, as `dlsym(RTLD_DEFAULT)` does; null if
/// there is none.
pub fn first(name: &CStr) -> *mut c_void {
    search(libc::RTLD_DEFAULT, name, |_| true)
}

/// Returns the address of the next definition of `name` after this library's, as
/// `dlsym(RTLD_NEXT)` does; null if there is none.
pub fn next(name: &CStr) -> *mut c_void {
    let mut passed = false;
    search(libc::RTLD_NEXT, name, |entry| {
        let is_after = passed;
        passed |= entry.dynamic == own_dynamic();
        is_after
    })
}

/// Searches by dlsym(3), or without it in the objects of the loader's list that `among` takes.
fn search(handle: *mut c_void, name: &CStr, mut among: impl FnMut(&Entry) -> bool) -> *mut c_void {
    // SAFETY: the function of this name, in every C library, and a NUL-terminated name. RTLD_NEXT
    // is resolved from this library's place in the order of search.
    unsafe {
        if let Some(search) = weak_fn!("dlsym", Search) {
            return search(handle, name.as_ptr());
        }
    }
    let vdso = c_library::auxiliary(libc::AT_SYSINFO_EHDR as usize);
    let mut all = entries().filter(|entry| among(entry) && Some(entry.base) != vdso);
    let found = all.find_map(|entry| Table::of(entry.base, entry.dynamic)?.find(name));
    found.map_or(null_mut(), with_exposed_provenance_mut)
}

/// `struct r_debug` of <link.h>: what the loader tells debuggers.
#[repr(C)]
#[derive(Debug)]
pub struct RDebug {
    version: c_int,
    map: *const Entry,
    /// Address of an empty function, which the loader calls after each change of its list.
    pub brk: usize,
    /// 0 while the list is complete.
    pub state: c_int,
    base: usize,
}

/// `struct link_map` of <link.h>: an object on the loader's list.
#[repr(C)]
struct Entry {
    base: usize,
    name: *const c_char,
    dynamic: usize,
    next: *const Entry,
    before: *const Entry,
}

/// Returns what the loader tells debuggers; null where the process's loader tells nothing.
pub fn debug() -> *const RDebug {
    // SAFETY: asks for an address.
    with_exposed_provenance(unsafe { weak!("_r_debug") })
}

/// Returns the loader's list, in the order of search. Unlike dl_iterate_phdr(3) this needs no
/// thread-local storage of the C library, which a thread by clone(2) lacks.
fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: the loader's structure, there for the life of the process.
    let first = unsafe { debug().as_ref() }.map_or(null(), |debug| debug.map);
    // SAFETY: an object's entry stays while the object is loaded. Where there is no dlsym(3), no
    // program unloads any.
    core::iter::successors(unsafe { first.as_ref() }, |entry| unsafe { entry.next.as_ref() })
}

/// Returns the address of the dynamic section of this library, or of the program that it is built
/// into; 0 without one.
fn own_dynamic() -> usize {
    // SAFETY: the linker's name for it, which a program without such a section lacks.
    unsafe { weak!("_DYNAMIC") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this, tests find names by dlsym(3) alone.
    #[test]
    fn names_are_found_in_the_tables() {
        let libc = object_of(libc::getauxval as *const c_void).unwrap();
        for (name, at) in [
            (c"getppid", libc::getppid as *const c_void),
            (c"fileno", libc::fileno as *const c_void),
            (c"strtol", libc::strtol as *const c_void),
            (c"pthread_create", libc::pthread_create as *const c_void),
        ] {
            assert_eq!(libc.symbol(name), Some(at.addr()), "{name:?}");
        }
        assert_eq!(libc.symbol(c"softring_no_such_name"), None);
        assert!(object_of(core::ptr::null()).is_none());
    }

    #[test]
    fn the_loaders_list_has_every_object() {
        let by_list = |at: *const c_void| {
            let object = object_of(at).unwrap();
            entries().filter(|e| (e.base, e.dynamic) == (object.base, object.dynamic)).count()
        };
        assert_eq!(by_list(libc::getppid as *const c_void), 1);
        assert_eq!(by_list(first as fn(&CStr) -> *mut c_void as *const c_void), 1);
        assert_eq!(entries().filter(|e| e.dynamic == own_dynamic()).count(), 1);
    }

    #[test]
    fn an_object_is_found_by_an_address() {
        let own = object_of(first as fn(&CStr) -> *mut c_void as *const c_void).unwrap();
        let other = object_of(libc::getppid as *const c_void).unwrap();
        assert_ne!(own.base, other.base);
    }
}
