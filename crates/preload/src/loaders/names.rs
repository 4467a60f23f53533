//! Names of the unwinder and of glibc's loader, defined here, and hidden.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Returns an address in the process by name; null if there is none.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a NUL-terminated name.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Address of the process's own `__tls_get_addr`, once it was searched.
static TLS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn find_tls() -> *mut c_void {
    let found = find(c"__tls_get_addr");
    // Relaxed: an address into a library that is mapped for good.
    TLS.store(found, Ordering::Relaxed);
    found
}

// SAFETY: has the arguments, the registers and the stack as the function that it jumps to expects
// them: its argument is kept over the call, for which the stack is aligned.
core::arch::global_asm!(
    ".hidden __tls_get_addr",
    ".globl __tls_get_addr",
    ".type __tls_get_addr, @function",
    "__tls_get_addr:",
    ".cfi_startproc",
    "mov rax, qword ptr [rip + {known}]",
    "test rax, rax",
    "jz 2f",
    "jmp rax",
    "2:",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "call {find}",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "jmp rax",
    ".cfi_endproc",
    ".size __tls_get_addr, . - __tls_get_addr",
    known = sym TLS,
    find = sym find_tls,
);

/// `_URC_END_OF_STACK`.
const END: c_int = 5;

/// Returns a function of the process's own unwinder; glibc's backtrace(3) loads it the same way.
fn unwinder(name: &CStr) -> *mut c_void {
    let found = find(name);
    if !found.is_null() {
        return found;
    }
    // SAFETY: a library that only defines functions; it stays loaded.
    unsafe {
        let library = libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_LAZY);
        if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
    }
}

/// Passes a backtrace to the process's unwinder; without one, answers that the stack ends.
extern "C" fn backtrace(each: *const c_void, data: *mut c_void) -> c_int {
    type Backtrace = extern "C" fn(*const c_void, *mut c_void) -> c_int;
    // SAFETY: the function of this name, whose signature is part of the platform's ABI.
    let theirs: Option<Backtrace> = unsafe { core::mem::transmute(unwinder(c"_Unwind_Backtrace")) };
    theirs.map_or(END, |theirs| theirs(each, data))
}

extern "C" fn ip_info(context: *mut c_void, before: *mut c_int) -> usize {
    type IpInfo = extern "C" fn(*mut c_void, *mut c_int) -> usize;
    // SAFETY: as above.
    let theirs: Option<IpInfo> = unsafe { core::mem::transmute(unwinder(c"_Unwind_GetIPInfo")) };
    theirs.map_or(0, |theirs| theirs(context, before))
}

extern "C" fn ip(context: *mut c_void) -> usize {
    type Ip = extern "C" fn(*mut c_void) -> usize;
    // SAFETY: as above.
    let theirs: Option<Ip> = unsafe { core::mem::transmute(unwinder(c"_Unwind_GetIP")) };
    theirs.map_or(0, |theirs| theirs(context))
}

/// Answers 0 where only the personality routine of the standard library asks: without a table
/// (LSDA) it makes an unwinder go on to the next frame.
extern "C" fn nothing() -> usize {
    0
}

extern "C" fn never() -> ! {
    std::process::abort()
}

macro_rules! hidden {
    ($($name:literal = $to:ident),* $(,)?) => {$(
        // SAFETY: a jump to the function that has the arguments of this name's.
        core::arch::global_asm!(
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ": jmp {}"),
            sym $to,
        );
    )*};
}
hidden!(
    "_Unwind_Backtrace" = backtrace,
    "_Unwind_GetIPInfo" = ip_info,
    "_Unwind_GetIP" = ip,
    "_Unwind_GetCFA" = nothing,
    "_Unwind_FindEnclosingFunction" = nothing,
    "_Unwind_GetLanguageSpecificData" = nothing,
    "_Unwind_GetRegionStart" = nothing,
    "_Unwind_GetTextRelBase" = nothing,
    "_Unwind_GetDataRelBase" = nothing,
    "_Unwind_SetGR" = nothing,
    "_Unwind_SetIP" = nothing,
    "_Unwind_DeleteException" = nothing,
    "_Unwind_RaiseException" = never,
    "_Unwind_Resume" = never,
);
